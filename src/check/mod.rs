//! The check: from a [`Graph`] to a [`Checked`], or to every diagnostic at once.
//!
//! All later code takes a [`Checked`]. If the check passes, rendering and evaluation do not panic.
//!
//! # Rules
//!
//! | code | rule |
//! | --- | --- |
//! | E0101 | A graph has at least one sink. |
//! | E0102 | An argument's name is 1 to 64 visible characters, none of them a control, format, bidirectional or line-separator character; and it is neither `a` nor `b`, which are the operands of the product. |
//! | E0103 | One name means one thing: the same scalar, the same operand, with the same default or without one, or a matrix and its update in place. |
//! | E0104 | Every argument reaches a sink. A warning, where the caller asks for that ([`Epilogue::build_lenient`](crate::Epilogue::build_lenient)). |
//! | E0106 | A graph has at most 4096 nodes and stores, which is also the limit for documents. |
//! | E0108 | One name means one function, and one custom primitive: two definitions have two names, and neither has an activation's name. |
//! | E0109 | A function's name is one word of such characters without another meaning in the text form: it is not a primitive's name. |
//! | E0110 | A table has a format of at least one byte an element. |
//! | E0111 | The default of an argument that may be left out has the type of the argument's values. |
//! | E0112 | Arguments of an epilogue have a format of eight bits at least, or of one. Integers of four bits are operands of the product. |
//! | E0113 | Only functions of scores have values that vary along S, the sequences of an attention. |
//! | E0201 | Operands have the types the primitive takes; `f32`, `f64`, `i32` and `bool` do not mix without a cast. |
//! | E0202 | A primitive, function or custom primitive has as many operands as it declares. |
//! | E0203 | A product has one type: its accumulator is `acc`, `acc_f64` or `acc_i32`, only one of them, and its operands' elements are of the same. |
//! | E0204 | An element of an operand of the product, `a` or `b`, is reduced by `sum`, and used for nothing else: it exists only inside the product. |
//! | E0205 | A function's body is well typed and stores nothing; its result is an `f32` value that depends only on its arguments, if those are `f32`, and on constants. |
//! | E0206 | A function does not call itself, directly or through other functions. |
//! | E0207 | A reduction inside the graph goes over at least one of M, N and L. E0306 and E0310 check its monoid and elements as they check those of a sink. |
//! | E0301 | A store's operand is a matrix, unless the value comes from a reduction inside the graph. |
//! | E0302 | A store's operand varies along every axis its value varies along. |
//! | E0303 | A sink's format holds its value's type: `f32` values go to floating-point formats up to `f32`, `f64` to `f64`, `i32` to `i32`, `bool` to `bool` and to bits. |
//! | E0304 | A store that updates a loaded matrix has the same format, axes and order as the load, varies along the batch, and is never left out. A reduction updates nothing. |
//! | E0305 | A reduction's operand lacks an axis of M, N and L, over which it reduces. |
//! | E0306 | A reduction's monoid takes its value's type: `f32` and `f64` all of them, `i32` all but `logsumexp`, `bool` `max` (any) and `min` (all). |
//! | E0307 | A reduction's result has a format of whole bytes. |
//! | E0308 | The sum of an operand's elements varies along M if they are those of `a`, along N if those of `b`, and along the batch or not. |
//! | E0309 | A reduction adds to the values in memory only if its monoid can take a result as one more element: not mean, norms, counts and indices. |
//! | E0311 | The elements of operands that are summed are not `f64` values, which kernels do not sum beside a product. |
//! | E0312 | A count's value is an `i32`, the index of an entry; its table is of `i32`, and varies along no axis. |
//! | E0401 | A function of scores ([`Scores`](crate::Scores)) ends with one store of its result, `store "scores" f32[M,N,L,S]`, whose name nothing else has. |
//! | E0402 | A function of scores reduces nothing: no kernel has all scores at a time. |
//! | E0403 | The accumulator of a function of scores, the score, is an `f32`, and the function reads no elements of operands. |

mod definitions;
mod diagnostic;
mod scores;
mod sinks;
mod types;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub(crate) use scores::{RESULT, check_scores, result};

use crate::dtype::{DType, ValueType};
use crate::ir::graph::{BuiltAt, Constant, Graph, Node, NodeId, Side};
use crate::ir::name::{self, LONGEST, word};
use crate::ir::{Axes, Function, Monoid, Operand, Reduction, SinkKind, text};
use diagnostic::{FaultSite, Part};
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The type of a value, and the axes that it varies along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// The type of the value while it is computed.
    pub value: ValueType,
    /// The axes it varies along.
    pub axes: Axes,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.value, self.axes)
    }
}

/// An argument of a launch: the memory or number under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name.
    pub name: Arc<str>,
    /// The kind of argument.
    pub role: Role,
    /// Whether a launch may leave it out.
    pub need: Need,
}

/// Whether a launch may leave an argument out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// It must be given.
    Required,
    /// It may be left out. Its value is then this number, rounded to its format.
    Optional(Constant),
    /// No value depends on it. It may be given, and is ignored.
    Unused,
}

impl Need {
    /// The value of the argument if a launch leaves it out.
    pub fn default(self) -> Option<Constant> {
        if let Need::Optional(default) = self { Some(default) } else { None }
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", word(&self.name), Meaning(self.role, self.need))
    }
}

/// The meaning of a name, in words.
struct Meaning(Role, Need);

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        match self.1 {
            Need::Required => Ok(()),
            Need::Optional(default) => write!(f, " (or {default})"),
            Need::Unused => write!(f, " (unused)"),
        }
    }
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A number passed by value.
    Scalar(ValueType),
    /// A table for `gather`: elements of this format, as many as a launch passes.
    Table(DType),
    /// A table for `bincount`: counts of this format, as many as a launch passes, that grow in place.
    Counts(DType),
    /// Memory that is read.
    Input(Operand),
    /// Memory that is written.
    Output(Operand),
    /// Memory that is read and then written in place: a matrix element by element, or the target of an accumulating
    /// reduction.
    Update(Operand),
}

impl Role {
    /// The operand, unless it is a scalar by value or a table.
    pub fn operand(self) -> Option<Operand> {
        match self {
            Role::Scalar(_) | Role::Table(_) | Role::Counts(_) => None,
            Role::Input(o) | Role::Output(o) | Role::Update(o) => Some(o),
        }
    }

    /// The format in memory, unless it is a scalar by value.
    pub(crate) fn dtype(self) -> Option<DType> {
        match self {
            Role::Table(dtype) | Role::Counts(dtype) => Some(dtype),
            other => other.operand().map(|operand| operand.dtype),
        }
    }

    /// Whether memory is written.
    pub fn is_written(self) -> bool {
        matches!(self, Role::Counts(_) | Role::Output(_) | Role::Update(_))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Scalar(v) => write!(f, "{v} scalar"),
            Role::Table(dtype) => write!(f, "{dtype} table"),
            Role::Counts(dtype) => write!(f, "{dtype} table of counts"),
            Role::Input(o) => write!(f, "{o} input"),
            Role::Output(o) => write!(f, "{o} output"),
            Role::Update(o) => write!(f, "{o} updated in place"),
        }
    }
}

/// A graph that keeps every rule, with the types of its values and the arguments of a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    graph: Graph,
    types: Vec<Type>,
    arguments: Vec<Argument>,
}

impl Checked {
    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The type of a value.
    pub fn type_of(&self, id: NodeId) -> Type {
        self.types[id.index()]
    }

    /// The arguments of a launch, in the order of first use.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// The argument of that name with its place in [`arguments`](Checked::arguments).
    pub fn argument(&self, name: &str) -> Option<(usize, &Argument)> {
        self.arguments.iter().enumerate().find(|(_, a)| &*a.name == name)
    }

    /// The result of a pass on a checked graph. It keeps the rules by construction, and a launch still passes the same
    /// arguments, even those that the pass made unused.
    pub(crate) fn rebuilt(graph: Graph, arguments: Vec<Argument>) -> Checked {
        let mut faults = Vec::new();
        let types: Vec<Type> = types::infer(&graph, &mut faults).into_iter().flatten().collect();
        debug_assert!(
            faults.is_empty() && types.len() == graph.len(),
            "a pass broke a checked graph: {}",
            Diagnostics::new(faults)
        );
        Checked { graph, types, arguments }
    }

    /// The type of the accumulator, if the graph uses the accumulator or elements of operands, which have the same
    /// type.
    pub fn accumulator(&self) -> Option<ValueType> {
        self.graph.nodes().find_map(|(_, n)| if let Node::Accumulator(v) | Node::Element(_, v) = n { Some(*v) } else { None })
    }

    /// The two factors of a summed element, if it is a product of numbers. Such a product enters the sum exactly, as
    /// one fused multiply-add.
    pub(crate) fn summed_product(&self, monoid: Monoid, element: NodeId) -> Option<[NodeId; 2]> {
        let factors = self.graph.node(element).factors()?;
        (monoid.fuses() && self.type_of(element).value == ValueType::F32).then_some(factors)
    }

    /// The values that a kernel combines for an element: the factors of a summed product, or the element itself.
    pub(crate) fn terms(&self, monoid: Monoid, element: &[NodeId]) -> Vec<NodeId> {
        self.summed_product(monoid, element[0]).map_or_else(|| element.to_vec(), |factors| factors.to_vec())
    }

    /// The first operand of the product whose elements the graph sums over K.
    pub fn summed_operand(&self) -> Option<Side> {
        self.graph
            .sinks()
            .iter()
            .find_map(|sink| if let Node::Element(side, _) = self.graph.node(sink.value()) { Some(*side) } else { None })
    }
}

/// The type of every value of a graph without operands in memory.
///
/// # Errors
/// Every broken rule.
pub(crate) fn value_types(graph: &Graph) -> Result<Vec<ValueType>, Diagnostics> {
    let mut faults = Vec::new();
    let types = types::infer(graph, &mut faults);
    if faults.is_empty() { Ok(types.into_iter().flatten().map(|t| t.value).collect()) } else { Err(Diagnostics::new(faults)) }
}

/// Checks a graph. Activations are ordinary functions here. [`Epilogue`](crate::Epilogue), which knows the activations,
/// makes sure that their names have no other meaning.
///
/// # Errors
/// Every broken rule, in the order of the listing.
pub fn check(graph: Graph) -> Result<Checked, Diagnostics> {
    check_built(graph, &[], None, &[])
}

/// The results of inspecting a graph.
struct Findings {
    faults: Vec<Diagnostic>,
    types: Vec<Option<Type>>,
    arguments: Vec<Argument>,
}

/// Checks a graph beside these activations, whose names are taken and whose bodies are correct. `built_at` is the place
/// where the graph was built, and `foreign` are the places where its builder saw expressions of another builder.
pub(crate) fn check_built(
    graph: Graph,
    activations: &[&'static Function],
    built_at: BuiltAt,
    foreign: &[&'static Location<'static>],
) -> Result<Checked, Diagnostics> {
    let mut found = inspect(&graph, activations, built_at, foreign, Severity::Error);
    scores::refuse_sequences(&graph, &mut found.faults);
    accept(graph, found)
}

/// The checked graph, if nothing was found.
fn accept(graph: Graph, Findings { faults, types, arguments }: Findings) -> Result<Checked, Diagnostics> {
    let types: Vec<Type> = types.into_iter().flatten().collect();
    if faults.is_empty() && types.len() == graph.len() {
        Ok(Checked { graph, types, arguments })
    } else {
        Err(Diagnostics::new(faults))
    }
}

/// The same for a graph that may have unused arguments. Their nodes are removed from the graph, with everything else
/// that no sink needs, but a launch may still pass them. Returns a warning for each.
pub(crate) fn check_lenient(
    graph: &Graph,
    activations: &[&'static Function],
    built_at: BuiltAt,
    foreign: &[&'static Location<'static>],
) -> Result<(Checked, Vec<Diagnostic>), Diagnostics> {
    let Findings { mut faults, arguments, .. } = inspect(graph, activations, built_at, foreign, Severity::Warning);
    scores::refuse_sequences(graph, &mut faults);
    let (errors, warnings): (Vec<_>, Vec<_>) = faults.into_iter().partition(|fault| fault.severity() == Severity::Error);
    if !errors.is_empty() {
        return Err(Diagnostics::new(errors));
    }
    let live = if warnings.is_empty() { graph.clone() } else { graph.pruned(&mut []) };
    let mut checked = check_built(live, activations, built_at, &[])?;
    let unused = arguments.into_iter().filter(|a| checked.argument(&a.name).is_none());
    let unused: Vec<_> = unused.map(|a| Argument { need: Need::Unused, ..a }).collect();
    checked.arguments.extend(unused);
    Ok((checked, warnings))
}

/// Inspects a graph under all rules. `unused` is the severity of an unused argument.
fn inspect(
    graph: &Graph,
    activations: &[&'static Function],
    built_at: BuiltAt,
    foreign: &[&'static Location<'static>],
    unused: Severity,
) -> Findings {
    let mut out = Vec::new();
    for at in foreign {
        out.push(
            Diagnostic::new(graph, "E0105", FaultSite::Rust(Some(at)), "an expression of another builder is used here")
                .help("build every expression of an epilogue with the builder handed to its own closure"),
        );
    }
    let size = graph.len() + graph.sinks().len();
    if size > text::MAX_NODES {
        let message = format!("the epilogue has {size} nodes and stores; at most {} are allowed", text::MAX_NODES);
        let fault = Diagnostic::new(graph, "E0106", FaultSite::Rust(built_at), &message);
        out.push(fault.help("compute large tables on the host and load them, or split the epilogue"));
        return Findings { faults: out, types: Vec::new(), arguments: Vec::new() };
    }
    let types = types::infer(graph, &mut out);
    check_liveness(graph, built_at, unused, &mut out);
    definitions::check(graph, activations, &mut out);
    let arguments = check_names(graph, &mut out);
    sinks::check(graph, &types, &mut out);
    out.sort_by_key(Diagnostic::order);
    Findings { faults: out, types, arguments }
}

fn check_liveness(graph: &Graph, built_at: BuiltAt, unused: Severity, out: &mut Vec<Diagnostic>) {
    let cure = match unused {
        Severity::Error => "use it, or remove it: otherwise a launch would have to pass it without effect",
        Severity::Warning => "use it, or remove it: a launch may pass it, and nothing reads it",
    };
    if graph.sinks().is_empty() {
        out.push(
            Diagnostic::new(graph, "E0101", FaultSite::Rust(built_at), "the epilogue stores nothing")
                .help("end it with `e.store(\"d\", value, F16)`"),
        );
        return;
    }
    for ((id, node), live) in graph.nodes().zip(graph.live()) {
        if let (Node::Scalar { name, .. } | Node::Load { name, .. } | Node::Gather { name, .. }, false) = (node, live) {
            out.push(
                Diagnostic::new(graph, "E0104", FaultSite::Node(id), &format!("argument `{}` reaches no sink", word(name)))
                    .mark(Part::Subject, "never used")
                    .help(cure)
                    .severity_of(unused),
            );
        }
    }
}

/// The arguments of a launch of a graph that keeps the rules of names, in the order of first use.
pub(crate) fn arguments_of(graph: &Graph) -> Vec<Argument> {
    check_names(graph, &mut Vec::new())
}

fn check_names(graph: &Graph, out: &mut Vec<Diagnostic>) -> Vec<Argument> {
    let mut names = Names { graph, arguments: Vec::new(), first: Vec::new(), by_name: HashMap::new() };
    for (id, node) in graph.nodes() {
        match node {
            Node::Scalar { name, value_type, default } => {
                let need = default.map_or(Need::Required, Need::Optional);
                names.add(name, Role::Scalar(*value_type), need, FaultSite::Node(id), out);
            }
            Node::Load { name, operand, default } => {
                let need = default.map_or(Need::Required, |default| Need::Optional(default.rounded(operand.dtype)));
                names.add(name, Role::Input(*operand), need, FaultSite::Node(id), out);
            }
            Node::Gather { name, dtype, .. } => names.add(name, Role::Table(*dtype), Need::Required, FaultSite::Node(id), out),
            _ => {}
        }
    }
    for (index, sink) in graph.sinks().iter().enumerate() {
        let role = match sink.kind {
            SinkKind::Bincount(operand) => Role::Counts(operand.dtype),
            SinkKind::Store(operand) | SinkKind::Reduce(Reduction { operand, .. }) => Role::Output(operand),
        };
        names.add(&sink.name, role, Need::Required, FaultSite::Sink(index), out);
    }
    // The target of an accumulating reduction has its own name, or a fault is reported.
    let accumulates = |name: &str| graph.sinks().iter().any(|s| *s.name == *name && s.kind.accumulates());
    for argument in &mut names.arguments {
        if let Role::Output(operand) = argument.role
            && accumulates(&argument.name)
        {
            argument.role = Role::Update(operand);
        }
    }
    names.arguments
}

/// The arguments seen so far, and the first place of each.
struct Names<'g> {
    graph: &'g Graph,
    arguments: Vec<Argument>,
    first: Vec<FaultSite>,
    by_name: HashMap<Arc<str>, usize>,
}

impl Names<'_> {
    fn add(&mut self, name: &Arc<str>, role: Role, need: Need, place: FaultSite, out: &mut Vec<Diagnostic>) {
        let shown = word(name);
        let new = |code, message: &str| Diagnostic::new(self.graph, code, place, message);
        let cure = match name::fault(name) {
            None if name.is_empty() || name.chars().count() > LONGEST => Some(format!("use 1 to {LONGEST} characters")),
            fault => fault,
        };
        if let Some(cure) = cure {
            out.push(new("E0102", &format!("`{shown}` is not a name for an argument")).mark(Part::Subject, "").help(&cure));
        } else if matches!(&**name, "a" | "b") {
            out.push(
                new("E0102", &format!("`{shown}` is the name of an operand of the product"))
                    .mark(Part::Subject, "")
                    .help("choose another name: a launch passes the product's operands as `a` and `b`"),
            );
        }
        let Some(&index) = self.by_name.get(name) else {
            self.by_name.insert(name.clone(), self.arguments.len());
            self.arguments.push(Argument { name: name.clone(), role, need });
            self.first.push(place);
            return;
        };
        let Argument { role: known, need: known_need, .. } = &mut self.arguments[index];
        let (first, known_need) = (self.first[index], *known_need);
        let reduces = matches!(place, FaultSite::Sink(i) if matches!(self.graph.sinks()[i].kind, SinkKind::Reduce(_)));
        match (*known, role) {
            (old, new) if old == new && known_need == need && !new.is_written() => {}
            (Role::Input(_), Role::Output(_)) if reduces => out.push(
                new("E0304", &format!("`{shown}` is loaded and reduced into"))
                    .mark(Part::Subject, "")
                    .note(self.graph, "it is loaded here", first)
                    .help("elements would read values that others have already changed: give the result another name"),
            ),
            (Role::Input(_), Role::Output(_)) if known_need != Need::Required => out.push(
                new("E0304", &format!("`{shown}` is updated in place, and a launch may leave it out"))
                    .mark(Part::Subject, "")
                    .note(self.graph, "it is loaded here", first)
                    .help("load it without a default, or store to another name: memory that is left out cannot be written"),
            ),
            (Role::Input(old), Role::Output(new)) if old == new && old.axes.contains(Axes::MNL) => *known = Role::Update(new),
            (Role::Input(old), Role::Output(operand)) if old == operand && old.axes.is_matrix() => out.push(
                new("E0304", &format!("`{shown}` is updated in place and shared by the batch"))
                    .mark(Part::Format, "does not vary along L")
                    .note(self.graph, "it is loaded here", first)
                    .help(
                        "a batch entry would read what another has written: let it vary along the batch (`F16`), or store \
                         elsewhere",
                    ),
            ),
            // Only a matrix can be stored, and another rule reports that.
            (Role::Input(_), Role::Output(new)) if !new.axes.is_matrix() => {}
            (Role::Input(old), Role::Output(operand)) => out.push(
                new("E0304", &format!("`{shown}` is loaded as {old} and stored as {operand}"))
                    .mark(Part::Format, &format!("not {old}"))
                    .note(self.graph, "it is loaded here", first)
                    .help("an update in place needs one matrix operand for both; give the output another name otherwise"),
            ),
            (Role::Counts(_) | Role::Output(_) | Role::Update(_), Role::Counts(_) | Role::Output(_)) => out.push(
                new("E0103", &format!("`{shown}` is stored twice"))
                    .mark(Part::Subject, "")
                    .note(self.graph, "it is first used here", first)
                    .help("give each output a name of its own"),
            ),
            (old, role) => out.push(
                new("E0103", &format!("`{shown}` has two meanings: {} and {}", Meaning(old, known_need), Meaning(role, need)))
                    .mark(Part::Format, &Meaning(role, need).to_string())
                    .note(self.graph, "it is first used here", first)
                    .help(match old == role {
                        true => "give both the same default or none, or each argument a name of its own",
                        false => "give each argument a name of its own",
                    }),
            ),
        }
    }
}
