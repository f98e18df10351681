//! The text form: one line for each node and each sink. The listing shows it, diagnostics underline parts of it, and
//! [`parse`] reads it back.
//!
//! ```text
//! %0: f32[M,N,L] = acc f32
//! %1: f32[N] = load "bias" f16[N]
//! %2: f32[M,N,L] = add %0, %1
//! %3: f32[M,N,L] = relu %2
//! %4: i32[M] = load "expert" i32[M]
//! %5: f32[M] = gather "scale" f32 %4
//! %6: f32[M,N,L] = mul %3, %5
//! %7: f32[M,L] = reduce max [N] %6
//! %8: f32[M,N,L] = sub %6, %7
//! store "d" f16[M,N,L], %8
//! reduce "sums" sum f32[N], %6
//! bincount "experts" i32[], %4
//! ```
//!
//! An argument that a launch may leave out has its default after the word `or`: `load "bias" f16[N] or 0.0`.
//!
//! The type after the colon is optional, but must be correct. A line that begins with `;` is a comment. Names are
//! quoted as in JSON. Floating-point constants are decimal, or `0x` and their bits if decimal cannot express them.

use super::axes::Axes;
use super::custom::{CustomOp, Registry};
use super::graph::{Constant, Coordinate, Graph, Node, NodeId, Side};
use super::name;
use super::op::Op;
use super::operand::{Operand, Order};
use super::over::Over;
use super::sink::{Sink, SinkKind};
use crate::dtype::{DType, ValueType};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The most nodes a document may have.
pub const MAX_NODES: usize = 4096;

/// A line of the listing, with the byte ranges of its parts.
#[derive(Clone, Debug)]
pub struct Line {
    /// The text, without a line end.
    pub text: String,
    /// The subject of the line: the name of an argument, or otherwise the word after the equals sign.
    pub subject: Range<usize>,
    /// The type or the format and axes of an argument.
    pub format: Option<Range<usize>>,
    /// The default of an argument that may be left out.
    pub default: Option<Range<usize>>,
    /// Each operand.
    pub operands: Vec<Range<usize>>,
}

impl Line {
    fn new(text: String) -> Line {
        Line { text, subject: 0..0, format: None, default: None, operands: Vec::new() }
    }

    fn add(&mut self, separator: &str, part: &str) -> Range<usize> {
        self.text.push_str(separator);
        let start = self.text.len();
        self.text.push_str(part);
        start..self.text.len()
    }

    fn subject(&mut self, separator: &str, part: &str) {
        self.subject = self.add(separator, part);
    }

    fn format(&mut self, part: &str) {
        self.format = Some(self.add(" ", part));
    }

    /// Writes the default, with its type if that differs from the argument's, which the check refuses.
    fn default(&mut self, expected: ValueType, default: Option<Constant>) {
        if let Some(default) = default {
            let found = default.value_type();
            let text = if found == expected { default.to_string() } else { format!("{found} {default}") };
            self.default = Some(self.add(" or ", &text));
        }
    }

    fn operand(&mut self, separator: &str, id: NodeId) {
        let span = self.add(separator, &id.to_string());
        self.operands.push(span);
    }
}

macro_rules! floats {
    ($($float:ident $bits:ident $digits:literal $format:ident $parse:ident),*) => { $(
        #[doc = concat!("An `", stringify!($float), "` that reads back bit for bit: decimal if possible, otherwise its bits.")]
        pub fn $format(bits: $bits) -> String {
            let x = $float::from_bits(bits);
            if x.is_finite() { format!("{x:?}") } else { format!("0x{bits:0width$x}", width = $digits) }
        }

        #[doc = concat!("The inverse of [`", stringify!($format), "`].")]
        pub fn $parse(text: &str) -> Option<$bits> {
            match text.strip_prefix("0x") {
                Some(hex) if hex.len() == $digits && !hex.starts_with('+') => $bits::from_str_radix(hex, 16).ok(),
                Some(_) => None,
                None => text.parse::<$float>().ok().filter(|x| x.is_finite()).map($float::to_bits),
            }
        }
    )* };
}

floats! { f32 u32 8 format_f32 parse_f32, f64 u64 16 format_f64 parse_f64 }

/// A node's line.
pub fn node_line(graph: &Graph, id: NodeId, type_name: Option<&str>) -> Line {
    let node = graph.node(id);
    let annotation = type_name.map(|t| format!(": {t}")).unwrap_or_default();
    let mut line = Line::new(format!("{id}{annotation} = "));
    match node {
        Node::Scalar { name, value_type, default } => {
            line.subject("scalar ", &name::quoted(name));
            line.format(value_type.name());
            line.default(*value_type, *default);
        }
        Node::Load { name, operand, default } => {
            line.subject("load ", &name::quoted(name));
            line.format(&operand.to_string());
            line.default(operand.dtype.value_type(), *default);
        }
        Node::Gather { name, dtype, .. } => {
            line.subject("gather ", &name::quoted(name));
            line.format(dtype.name());
        }
        Node::Custom { op, .. } => {
            line.subject("custom ", op.name());
            line.add("#", &format!("{:016x}", op.fingerprint()));
        }
        Node::Reduce { monoid, over, .. } => {
            line.subject("reduce ", &monoid.word());
            line.format(&over.to_string());
        }
        Node::Accumulator(v) => {
            line.subject("", "acc");
            line.format(v.name());
        }
        Node::Element(_, v) => {
            line.subject("", node.mnemonic());
            line.format(v.name());
        }
        Node::Constant(c) => {
            line.subject("", "const");
            line.format(c.value_type().name());
            line.add(" ", &c.to_string());
        }
        Node::Coordinate(_) | Node::Apply { .. } | Node::Call { .. } => line.subject("", &name::seen(node.mnemonic())),
    }
    for (i, arg) in node.args().iter().enumerate() {
        line.operand(if i == 0 { " " } else { ", " }, *arg);
    }
    line
}

/// A sink's line.
pub fn sink_line(graph: &Graph, index: usize) -> Line {
    let sink = &graph.sinks()[index];
    let mut line = Line::new(String::new());
    line.subject(&format!("{} ", sink.kind.name()), &name::quoted(&sink.name));
    let parameters = sink.kind.parameters();
    if !parameters.is_empty() {
        line.add(" ", &parameters);
    }
    line.format(&sink.kind.operand().to_string());
    for value in &sink.values {
        line.operand(", ", *value);
    }
    line
}

/// The whole graph, each value annotated with the type that `type_of` gives.
pub fn print(graph: &Graph, type_of: impl Fn(NodeId) -> Option<String>) -> String {
    let mut text = String::new();
    for (id, _) in graph.nodes() {
        text += &node_line(graph, id, type_of(id).as_deref()).text;
        text.push('\n');
    }
    for index in 0..graph.sinks().len() {
        text += &sink_line(graph, index).text;
        text.push('\n');
    }
    text
}

/// The reason why a text is not in the text form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}\n  --> line {line}\n   |\n   | {text}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The fault, and what was expected.
    pub message: String,
    /// The line's text, truncated, with invisible characters escaped.
    pub text: String,
}

/// A graph read from text, with the types that its author wrote.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The graph.
    pub graph: Graph,
    /// Node, its annotated type, and its line.
    pub annotations: Vec<(NodeId, String, usize)>,
    /// The line of each node, then of each sink.
    pub lines: Vec<usize>,
}

/// Reads the text form. The graph is not checked yet.
///
/// # Errors
/// The first line that is not in the text form.
pub fn parse(text: &str, registry: &Registry) -> Result<Parsed, ParseError> {
    let mut reader = Reader::new(registry);
    for (index, raw) in lines(text).enumerate() {
        let line = raw.trim();
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        reader.line(line, index + 1).map_err(|message| ParseError {
            line: index + 1,
            message,
            text: name::shown(line, name::SHOWN_LINE),
        })?;
    }
    let lines = reader.node_lines.into_iter().chain(reader.sink_lines).collect();
    Ok(Parsed { graph: reader.graph, annotations: reader.annotations, lines })
}

/// The lines of a document, without the byte-order mark that some editors write.
fn lines(text: &str) -> std::str::Lines<'_> {
    text.strip_prefix('\u{feff}').unwrap_or(text).lines()
}

/// A line of a document, counted from 1, for a message.
pub(crate) fn shown_line(text: &str, number: usize) -> String {
    lines(text).nth(number - 1).map(|line| name::shown(line.trim(), name::SHOWN_LINE)).unwrap_or_default()
}

struct Reader<'r> {
    registry: &'r Registry,
    graph: Graph,
    labels: HashMap<u32, NodeId>,
    annotations: Vec<(NodeId, String, usize)>,
    node_lines: Vec<usize>,
    sink_lines: Vec<usize>,
}

impl<'r> Reader<'r> {
    fn new(registry: &'r Registry) -> Reader<'r> {
        Reader {
            registry,
            graph: Graph::new(),
            labels: HashMap::new(),
            annotations: Vec::new(),
            node_lines: Vec::new(),
            sink_lines: Vec::new(),
        }
    }

    fn line(&mut self, line: &str, number: usize) -> Result<(), String> {
        if self.labels.len() + self.sink_lines.len() >= MAX_NODES {
            return Err(format!("more than {MAX_NODES} nodes and stores"));
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if SinkKind::WORDS.contains(&word) {
            let (name, rest) = name(rest)?;
            let expected = || format!("expected `{word} \"name\" format[axes], %value`");
            let (kind, values) = rest.split_at(rest.find('%').ok_or_else(expected)?);
            let kind = kind.trim_end().strip_suffix(',').ok_or_else(expected)?;
            let (kind, operand) = SinkKind::parse(self.registry, word, kind)?;
            let (kind, values) = (kind(parse_operand(&operand)?), self.references(values)?);
            if !matches!(kind, SinkKind::Reduce(_)) && values.len() > 1 {
                return Err(format!("a {word} takes one value"));
            }
            self.graph.sink(Sink { name: name.into(), values, kind }, None);
            self.sink_lines.push(number);
            return Ok(());
        }
        let (head, body) = line.split_once('=').ok_or("expected `%id = ...`, `store ...`, `reduce ...` or `bincount ...`")?;
        let (label, annotation) = match head.split_once(':') {
            Some((label, annotation)) => (label, Some(annotation.trim())),
            None => (head, None),
        };
        let label = parse_label(label)?;
        if self.labels.contains_key(&label) {
            return Err(format!("%{label} is defined twice"));
        }
        let node = self.node(body.trim())?;
        let id = self.graph.push(node, None);
        self.labels.insert(label, id);
        if id.index() == self.node_lines.len() {
            self.node_lines.push(number);
        }
        if let Some(annotation) = annotation {
            self.annotations.push((id, annotation.into(), number));
        }
        Ok(())
    }

    fn node(&self, body: &str) -> Result<Node, String> {
        let (word, rest) = body.split_once(char::is_whitespace).map_or((body, ""), |(w, r)| (w, r.trim()));
        if let Some(coordinate) = Coordinate::ALL.into_iter().find(|c| c.name() == word) {
            return if rest.is_empty() { Ok(Node::Coordinate(coordinate)) } else { Err(format!("`{word}` takes no operand")) };
        }
        if let Some(side) = Side::ALL.into_iter().find(|side| side.name() == word) {
            return Ok(Node::Element(side, parse_type(rest)?));
        }
        Ok(match word {
            "acc" => Node::Accumulator(parse_type(rest)?),
            "const" => Node::Constant(parse_constant(rest)?),
            "scalar" => {
                let (name, rest) = name(rest)?;
                let (value_type, default) = split_default(rest);
                let value_type = parse_type(value_type)?;
                Node::Scalar { name: name.into(), value_type, default: parse_default(value_type, default)? }
            }
            "load" => {
                let (name, rest) = name(rest)?;
                let (operand, default) = split_default(rest);
                let operand = parse_operand(operand)?;
                Node::Load { name: name.into(), operand, default: parse_default(operand.dtype.value_type(), default)? }
            }
            "gather" => {
                let (name, rest) = name(rest)?;
                let (format, index) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                Node::Gather {
                    name: name.into(),
                    dtype: parse_format(format, || EXPECTED_GATHER.into())?,
                    args: self.references(index)?,
                }
            }
            "reduce" => {
                let (monoid, rest) = rest.split_once(char::is_whitespace).ok_or(EXPECTED_REDUCE)?;
                let axes = rest.trim().strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or(EXPECTED_REDUCE)?;
                Node::Reduce {
                    monoid: self.registry.monoid(monoid)?,
                    over: Over::from_letters(axes.0).ok_or(EXPECTED_REDUCE)?,
                    args: self.references(axes.1)?,
                }
            }
            "custom" => {
                let (head, args) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let (name, fingerprint) = head.split_once('#').ok_or("expected `custom name#fingerprint %a, ...`")?;
                Node::Custom { op: custom(self.registry, name, fingerprint)?, args: self.references(args)? }
            }
            _ => match (Op::from_name(word), self.registry.function(word)) {
                (Some(op), _) => Node::Apply { op, args: self.references(rest)? },
                (_, Some(function)) => Node::Call { function, args: self.references(rest)? },
                _ => return Err(unknown(self.registry, word)),
            },
        })
    }

    fn references(&self, text: &str) -> Result<Vec<NodeId>, String> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        text.split(',').map(|part| self.reference(part)).collect()
    }

    fn reference(&self, text: &str) -> Result<NodeId, String> {
        let label = parse_label(text)?;
        self.labels.get(&label).copied().ok_or_else(|| format!("%{label} is not defined above this line"))
    }
}

/// The message for an unknown primitive or function.
pub(super) fn unknown(registry: &Registry, word: &str) -> String {
    let leaves = ["acc", "const", "scalar", "load", "gather", "custom", "reduce"];
    let coordinates = Coordinate::ALL.map(Coordinate::name);
    let known = Op::ALL.iter().map(|op| op.name()).chain(registry.function_names()).chain(leaves).chain(coordinates);
    let shown = name::word(word);
    format!("`{shown}` is neither a primitive nor a function of the registry{}", name::meant(word, known))
}

/// Whether a line can call a function of that name: one visible word without another meaning.
pub(crate) fn is_free(name: &str) -> bool {
    let word = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || name::is_unseen(c));
    let registry = Registry::default();
    word && Reader::new(&registry).node(name) == Err(unknown(&registry, name))
}

/// The custom primitive of that name, if its definition is the one that the document was written with.
pub(super) fn custom(registry: &Registry, name: &str, fingerprint: &str) -> Result<Arc<CustomOp>, String> {
    let op = registry.custom(name).ok_or_else(|| {
        let name = name::word(name);
        format!("custom primitive `{name}` is not in the registry; add it with `Registry::with` before reading")
    })?;
    if format!("{:016x}", op.fingerprint()) == fingerprint {
        return Ok(op.clone());
    }
    Err(format!("custom primitive `{name}` is registered with another definition than the document was written with"))
}

fn parse_label(text: &str) -> Result<u32, String> {
    let digits = text.trim().strip_prefix('%').filter(|d| d.chars().all(|c| c.is_ascii_digit()));
    digits.and_then(|d| d.parse().ok()).ok_or_else(|| "expected a value such as %3".to_string())
}

/// A quoted name at the start, and the text after it.
fn name(text: &str) -> Result<(String, &str), String> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<String>();
    match stream.next() {
        Some(Ok(name)) => {
            let end = stream.byte_offset();
            Ok((name, text[end..].trim()))
        }
        _ => Err("expected a quoted name".into()),
    }
}

fn parse_type(text: &str) -> Result<ValueType, String> {
    ValueType::ALL.into_iter().find(|t| t.name() == text).ok_or_else(|| "expected a type: f32, f64, i32 or bool".into())
}

fn parse_constant(text: &str) -> Result<Constant, String> {
    let (kind, value) = text.split_once(char::is_whitespace).ok_or("expected a type and a value")?;
    parse_value(parse_type(kind)?, value.trim())
}

fn parse_value(value_type: ValueType, text: &str) -> Result<Constant, String> {
    let constant = match value_type {
        ValueType::F32 => parse_f32(text).map(Constant::F32),
        ValueType::F64 => parse_f64(text).map(Constant::F64),
        ValueType::I32 => text.parse().ok().map(Constant::I32),
        ValueType::Bool => text.parse().ok().map(Constant::Bool),
    };
    constant.ok_or_else(|| format!("this is not a constant of type {value_type}"))
}

/// The text before the word `or`, and the text after it.
fn split_default(text: &str) -> (&str, Option<&str>) {
    text.split_once(" or ").map_or((text, None), |(before, default)| (before.trim_end(), Some(default.trim())))
}

fn parse_default(value_type: ValueType, text: Option<&str>) -> Result<Option<Constant>, String> {
    let expected = |fault| format!("{fault}: after `or` comes the argument's value if a launch leaves it out");
    let parse = |text: &str| if text.contains(' ') { parse_constant(text) } else { parse_value(value_type, text) };
    text.map(|text| parse(text).map_err(expected)).transpose()
}

/// The form of a line with a gather.
const EXPECTED_GATHER: &str = "expected `gather \"name\" format %index`";

/// The form of a line with a reduction.
const EXPECTED_REDUCE: &str = "expected `reduce monoid [axes] %value`, such as `reduce sum [N] %3`";

fn parse_format(word: &str, expected: impl Fn() -> String) -> Result<DType, String> {
    let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let known = DType::ALL.map(DType::name);
    let no_format = || {
        let meant = name::meant(word, known.into_iter());
        format!("`{}` is not a format; there are {}{meant}", name::word(word), known.join(", "))
    };
    DType::from_name(word).ok_or_else(|| if is_word { no_format() } else { expected() })
}

fn parse_operand(text: &str) -> Result<Operand, String> {
    let expected = || "expected a format and axes, such as f16[M,N,L] or bf16[N]".to_string();
    let text = text.trim();
    let open = text.find('[').ok_or_else(expected)?;
    let close = text.find(']').filter(|c| *c > open).ok_or_else(expected)?;
    let dtype = parse_format(&text[..open], expected)?;
    let axes = Axes::from_letters(&text[open + 1..close]).ok_or_else(expected)?;
    let order = match text[close + 1..].trim() {
        "" | "row_major" => Order::RowMajor,
        "column_major" => Order::ColumnMajor,
        _ => return Err("only `row_major` or `column_major` may follow the axes".into()),
    };
    Ok(Operand { dtype, axes, order })
}
