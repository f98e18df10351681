//! Custom primitives: a CUDA expression with its CPU evaluation and derivative, registered by the user's program.
//!
//! The expression reaches a kernel only from a [`CustomOp`] that the program itself built. A serialised graph contains
//! its name and the fingerprint of its text. Reading the graph requires a [`Registry`] with the same text. So a
//! document can neither contribute source of its own nor silently use a changed definition.

use super::custom_monoid::CustomMonoid;
use super::fnv1a;
use super::function::Function;
use super::monoid::Monoid;
use super::name::{is_identifier, is_unseen, seen, word};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// How a custom primitive or one of its partial derivatives is evaluated on the CPU.
pub type Evaluate = Arc<dyn Fn(&[f64]) -> f64 + Send + Sync>;

/// The partial derivative with respect to one operand.
#[derive(Clone)]
pub struct Partial {
    /// CUDA expression; `$0`, `$1`, ... are the operands.
    pub cuda: String,
    /// The same on the CPU.
    pub eval: Evaluate,
}

/// A primitive that the user registers: `f32` operands, `f32` result.
#[derive(Clone)]
pub struct CustomOp {
    name: String,
    arity: usize,
    cuda: String,
    eval: Evaluate,
    partials: Vec<Option<Partial>>,
}

/// A fault in a definition of a custom primitive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustomOpError {
    /// The name is not an identifier.
    #[error("custom primitive `{}`: a name is a letter followed by at most 62 letters, digits or underscores", word(.0))]
    Name(String),
    /// The expression does not use each operand, or uses one that does not exist.
    #[error("custom primitive `{name}`: `{}` must use operands $0 to ${last} and no other", seen(.cuda), last = arity - 1)]
    Operands {
        /// The primitive.
        name: String,
        /// The expression.
        cuda: String,
        /// How many operands it declares.
        arity: usize,
    },
    /// The text would not stay inside the parentheses around it.
    #[error("custom primitive `{name}`: `{}` is not a single expression: {why}", seen(.cuda))]
    Expression {
        /// The primitive.
        name: String,
        /// The expression.
        cuda: String,
        /// What breaks out.
        why: &'static str,
    },
    /// A derivative with respect to an operand that does not exist.
    #[error(
        "custom primitive `{name}`: a partial derivative for operand {operand}; its operands are 0 to {last}",
        last = arity - 1
    )]
    Partial {
        /// The primitive.
        name: String,
        /// The operand that was named.
        operand: usize,
        /// How many operands it has.
        arity: usize,
    },
    /// The number of operands is out of range.
    #[error("custom primitive `{name}`: {arity} operands; between 1 and 8 are supported")]
    Arity {
        /// The primitive.
        name: String,
        /// How many operands it declares.
        arity: usize,
    },
}

impl CustomOp {
    /// Issue slots of one element, as an estimate: the cost of a spelling is unknown, and a special function costs
    /// about this much.
    pub const COST: u32 = 16;

    /// A primitive of `arity` `f32` operands, spelled `cuda` with `$0`, `$1`, ... for the operands, whose value is `eval`.
    ///
    /// The spelling may call whatever CUDA device code has without headers (`expf`, `__fdividef`, ...). Primitives with
    /// the same name and spelling are one primitive, so `eval` must compute the same as the spelling. With two
    /// definitions the first one is used.
    ///
    /// # Errors
    /// If the name is not an identifier, or if the spelling does not use exactly the declared operands or is not one
    /// expression.
    pub fn new(
        name: &str,
        arity: usize,
        cuda: &str,
        eval: impl Fn(&[f64]) -> f64 + Send + Sync + 'static,
    ) -> Result<CustomOp, CustomOpError> {
        if !is_identifier(name) {
            return Err(CustomOpError::Name(name.into()));
        }
        if arity == 0 || arity > 8 {
            return Err(CustomOpError::Arity { name: name.into(), arity });
        }
        check_spelling(name, arity, cuda, true)?;
        Ok(CustomOp { name: name.into(), arity, cuda: cuda.into(), eval: Arc::new(eval), partials: vec![None; arity] })
    }

    /// Adds the partial derivative with respect to one operand.
    ///
    /// # Errors
    /// If the operand does not exist, or the spelling is not one expression over the operands.
    pub fn partial(
        mut self,
        operand: usize,
        cuda: &str,
        eval: impl Fn(&[f64]) -> f64 + Send + Sync + 'static,
    ) -> Result<CustomOp, CustomOpError> {
        check_spelling(&self.name, self.arity, cuda, false)?;
        let CustomOp { name, arity, partials, .. } = &mut self;
        let slot =
            partials.get_mut(operand).ok_or_else(|| CustomOpError::Partial { name: name.clone(), operand, arity: *arity })?;
        *slot = Some(Partial { cuda: cuda.into(), eval: Arc::new(eval) });
        Ok(self)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many operands.
    pub fn arity(&self) -> usize {
        self.arity
    }

    /// The spelling.
    pub fn cuda(&self) -> &str {
        &self.cuda
    }

    /// The value.
    pub fn eval(&self, x: &[f64]) -> f64 {
        (self.eval)(x)
    }

    /// The partial derivative with respect to an operand, if it is defined.
    pub fn derivative(&self, operand: usize) -> Option<&Partial> {
        self.partials.get(operand).and_then(Option::as_ref)
    }

    /// The partial derivative with respect to an operand as a separate primitive, named `name.d0` and so on, and its
    /// operands: those that its spelling uses, or otherwise the operand itself. This primitive does not have a
    /// derivative.
    pub fn derivative_op(&self, operand: usize) -> Option<(CustomOp, Vec<usize>)> {
        let Partial { cuda, eval } = self.derivative(operand)?.clone();
        let used = used(self.arity, &cuda)?;
        let mut operands: Vec<usize> = (0..self.arity).filter(|i| used[*i]).collect();
        if operands.is_empty() {
            operands.push(operand);
        }
        // In rising order, no replacement changes a later number.
        let spelled = operands.iter().enumerate().fold(cuda, |text, (at, i)| text.replace(&format!("${i}"), &format!("${at}")));
        let (all, taken) = (self.arity, operands.clone());
        let value = move |x: &[f64]| {
            let mut full = vec![f64::NAN; all];
            taken.iter().zip(x).for_each(|(i, x)| full[*i] = *x);
            eval(&full)
        };
        let (name, arity) = (format!("{}.d{operand}", self.name), operands.len());
        Some((CustomOp { name, arity, cuda: spelled, eval: Arc::new(value), partials: vec![None; arity] }, operands))
    }

    /// A fingerprint of everything that reaches a kernel: name, operands, spelling, derivatives (64-bit FNV-1a). It
    /// tells an edited definition from the one that a document was written with. It does not protect against forgery,
    /// and does not need to, because the text comes from the program.
    pub fn fingerprint(&self) -> u64 {
        let arity = self.arity.to_string();
        let partials = self.partials.iter().map(|partial| partial.as_ref().map_or("", |p| &p.cuda));
        let fields = [&*self.name, &*arity, &*self.cuda].into_iter().chain(partials);
        fnv1a(fields.flat_map(|text| (text.len() as u64).to_le_bytes().into_iter().chain(text.bytes())))
    }
}

/// Makes sure that a spelling stays inside the parentheses around it.
fn check_spelling(name: &str, arity: usize, cuda: &str, every_operand: bool) -> Result<(), CustomOpError> {
    let fault = |why| Err(CustomOpError::Expression { name: name.into(), cuda: cuda.into(), why });
    if cuda.trim().is_empty() {
        return fault("it is empty");
    }
    if cuda.chars().any(|c| is_unseen(c) || "{};\"'\\#".contains(c)) || cuda.contains("//") || cuda.contains("/*") {
        return fault("it holds a brace, a semicolon, a quote, a comment, a directive or a character that is not seen");
    }
    let mut depth = 0i32;
    for c in cuda.chars() {
        depth += match c {
            '(' | '[' => 1,
            ')' | ']' => -1,
            _ => 0,
        };
        if depth < 0 {
            break;
        }
    }
    if depth != 0 {
        return fault("its parentheses do not match");
    }
    match used(arity, cuda) {
        Some(used) if !every_operand || used.iter().all(|u| *u) => Ok(()),
        _ => Err(CustomOpError::Operands { name: name.into(), cuda: cuda.into(), arity }),
    }
}

/// The operands that a spelling uses; `None` if one of them does not exist.
fn used(arity: usize, cuda: &str) -> Option<Vec<bool>> {
    let (mut used, mut rest) = (vec![false; arity], cuda);
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        *used.get_mut(rest[..digits].parse::<usize>().ok()?)? = true;
    }
    Some(used)
}

/// Equal by name and fingerprint.
impl PartialEq for CustomOp {
    fn eq(&self, other: &CustomOp) -> bool {
        self.name == other.name && self.fingerprint() == other.fingerprint()
    }
}

impl Eq for CustomOp {}

impl Hash for CustomOp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.fingerprint().hash(state);
    }
}

impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partial").field("cuda", &self.cuda).finish_non_exhaustive()
    }
}

impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomOp").field("name", &self.name).field("cuda", &self.cuda).finish_non_exhaustive()
    }
}

/// The names that a document may use: functions, and custom primitives of the reading program.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    functions: BTreeMap<&'static str, &'static Function>,
    customs: BTreeMap<String, Arc<CustomOp>>,
    monoids: BTreeMap<String, &'static CustomMonoid>,
}

impl Registry {
    /// A registry of these functions.
    pub fn of(functions: &[&'static Function]) -> Registry {
        Registry { functions: functions.iter().map(|f| (f.name, *f)).collect(), ..Registry::default() }
    }

    /// Adds a custom primitive and its derivatives. They replace others with the same names.
    #[must_use]
    pub fn with(mut self, op: Arc<CustomOp>) -> Registry {
        for (derivative, _) in (0..op.arity()).filter_map(|operand| op.derivative_op(operand)) {
            self.customs.insert(derivative.name.clone(), Arc::new(derivative));
        }
        self.customs.insert(op.name.clone(), op);
        self
    }

    /// Adds the program's own monoids. They replace others with the same names. Those of the table are always
    /// available.
    #[must_use]
    pub fn with_monoids(mut self, monoids: impl IntoIterator<Item = Monoid>) -> Registry {
        let own = monoids.into_iter().filter_map(Monoid::custom);
        self.monoids.extend(own.map(|custom| (custom.name().into(), custom)));
        self
    }

    /// The monoid for a word of a document: one of the table, or one of the program's own with the definition that the
    /// document was written with.
    ///
    /// # Errors
    /// The fault of the word.
    pub(crate) fn monoid(&self, word: &str) -> Result<Monoid, String> {
        let Some((name, _)) = word.split_once('#') else {
            let known = Monoid::ALL.map(Monoid::name);
            let meant = || super::name::meant(word, known.into_iter());
            let listed = || format!("expected a monoid: {}{}", known.join(", "), meant());
            return Monoid::from_name(word).ok_or_else(listed);
        };
        let shown = super::name::word(name);
        let custom = self.monoids.get(name).ok_or_else(|| {
            format!("monoid `{shown}` is not in the registry; add it with `Registry::with_monoids` before reading")
        })?;
        let other = || format!("monoid `{shown}` is registered with another definition than the document was written with");
        if custom.word() == word { Ok(Monoid::Custom(custom)) } else { Err(other()) }
    }

    /// The function of that name.
    pub fn function(&self, name: &str) -> Option<&'static Function> {
        self.functions.get(name).copied()
    }

    /// The custom primitive of that name.
    pub fn custom(&self, name: &str) -> Option<&Arc<CustomOp>> {
        self.customs.get(name)
    }

    /// Every function's name.
    pub fn function_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.functions.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn softcap(cuda: &str) -> Result<CustomOp, CustomOpError> {
        CustomOp::new("softcap", 2, cuda, |x| x[1] * (x[0] / x[1]).tanh())
    }

    #[test]
    fn a_definition_is_one_expression_over_its_operands() {
        assert!(softcap("$1 * tanhf($0 / $1)").is_ok());
        for bad in [
            "$0",
            "$0 + $1 + $2",
            "$0 + \u{202e}$1",
            "$0 + $1; asm(0)",
            "$0 ) + ( $1",
            "$0 + $1 // x",
            "",
            "$0 + $1 }",
            "$0 + $1 \n #include",
        ] {
            assert!(softcap(bad).is_err(), "{bad}");
        }
        assert!(matches!(CustomOp::new("9x", 1, "$0", |x| x[0]), Err(CustomOpError::Name(_))));
        assert!(matches!(CustomOp::new("x", 9, "$0", |x| x[0]), Err(CustomOpError::Arity { .. })));
        for operand in [1, usize::MAX] {
            let error = CustomOp::new("x", 1, "$0", |x| x[0]).unwrap().partial(operand, "1.0f", |_| 1.0).unwrap_err();
            assert!(error.to_string().ends_with("its operands are 0 to 0"), "{error}");
        }
    }

    #[test]
    fn the_fingerprint_covers_text_and_derivative() {
        let plain = softcap("$1 * tanhf($0 / $1)").unwrap();
        let edited = softcap("$1 * tanhf($0/$1)").unwrap();
        let derived = plain.clone().partial(0, "1.0f", |_| 1.0).unwrap();
        assert_ne!(plain.fingerprint(), edited.fingerprint());
        assert_ne!(plain.fingerprint(), derived.fingerprint());
        assert!(derived.derivative(0).is_some() && derived.derivative(1).is_none());
    }
}
