//! Diagnostics: what is wrong, where in the listing, which Rust line built it, and what to do.

use crate::ir::graph::{BuiltAt, Graph, NodeId};
use crate::ir::name;
use crate::ir::text::{self, Line};
use std::fmt;
use std::ops::Range;

/// Where a fault lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum FaultSite {
    Node(NodeId),
    Sink(usize),
    Rust(BuiltAt),
}

impl FaultSite {
    fn line(self, graph: &Graph) -> Option<Line> {
        match self {
            FaultSite::Node(id) => Some(text::node_line(graph, id, None)),
            FaultSite::Sink(index) => Some(text::sink_line(graph, index)),
            FaultSite::Rust(_) => None,
        }
    }

    fn built_at(self, graph: &Graph) -> Option<String> {
        let at = match self {
            FaultSite::Node(id) => graph.built_at(id),
            FaultSite::Sink(index) => graph.sink_built_at(index),
            FaultSite::Rust(at) => at,
        };
        at.map(ToString::to_string)
    }
}

/// A part of a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The subject of the line: an argument's name, or the operation.
    Subject,
    /// An argument's format.
    Format,
    /// The default of an argument that may be left out.
    Default,
    /// One of the operands.
    Operand(usize),
}

/// The severity of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The graph is refused.
    Error,
    /// The graph is accepted, but the user should look at the fault.
    Warning,
}

/// One broken rule.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    severity: Severity,
    code: &'static str,
    message: String,
    note: Option<String>,
    help: String,
    built_at: Option<String>,
    line: Option<Line>,
    marks: Vec<(Range<usize>, String)>,
    order: Option<usize>,
}

impl Diagnostic {
    pub(super) fn new(graph: &Graph, code: &'static str, place: FaultSite, message: &str) -> Diagnostic {
        let order = match place {
            FaultSite::Node(id) => Some(id.index()),
            FaultSite::Sink(index) => Some(graph.len() + index),
            FaultSite::Rust(_) => None,
        };
        Diagnostic {
            severity: Severity::Error,
            code,
            message: name::seen(message),
            note: None,
            help: String::new(),
            built_at: place.built_at(graph),
            line: place.line(graph),
            marks: Vec::new(),
            order,
        }
    }

    #[must_use]
    pub(super) fn help(mut self, help: &str) -> Diagnostic {
        self.help = name::seen(help);
        self
    }

    /// Points at another line that is related to the fault.
    #[must_use]
    pub(super) fn note(mut self, graph: &Graph, what: &str, place: FaultSite) -> Diagnostic {
        let line = place.line(graph).map(|l| name::shown(&l.text, name::SHOWN_LINE)).unwrap_or_default();
        let at = place.built_at(graph).map(|at| format!("\n       at {at}")).unwrap_or_default();
        self.note = Some(format!("{what}: `{line}`{at}"));
        self
    }

    /// Underlines a part of the line with a label.
    #[must_use]
    pub(super) fn mark(mut self, part: Part, label: &str) -> Diagnostic {
        let span = self.line.as_ref().and_then(|line| match part {
            Part::Subject => Some(&line.subject),
            Part::Format => line.format.as_ref(),
            Part::Default => line.default.as_ref(),
            Part::Operand(index) => line.operands.get(index),
        });
        if let Some(span) = span.cloned() {
            self.marks.push((span, name::seen(label)));
        }
        self
    }

    /// The place in the listing. Faults without a node come first.
    pub(super) fn order(&self) -> Option<usize> {
        self.order
    }

    #[must_use]
    pub(super) fn severity_of(self, severity: Severity) -> Diagnostic {
        Diagnostic { severity, ..self }
    }

    /// Whether the graph was refused for it.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The rule's code, as listed in [`check`](super).
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The fault in words.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The cure in words.
    pub fn cure(&self) -> &str {
        &self.help
    }

    /// Where the faulty line was built: `file:line:column` of the Rust code, or the line of the document.
    pub fn built_at(&self) -> Option<&str> {
        self.built_at.as_deref()
    }

    /// The line of the listing, underlined, each label below its part.
    fn snippet(&self, line: &Line, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "   |\n   | {}", name::shown(&line.text, name::SHOWN_LINE))?;
        // Columns and widths in characters. Marks beyond the cut are dropped.
        let mut marks: Vec<(usize, usize, &str)> = Vec::new();
        for (span, label) in &self.marks {
            let (start, width) = (line.text[..span.start].chars().count(), line.text[span.clone()].chars().count());
            if start + width <= name::SHOWN_LINE {
                marks.push((start, width, label));
            }
        }
        marks.sort_by_key(|(start, ..)| *start);
        let Some(((_, _, last), rest)) = marks.split_last() else { return Ok(()) };
        let mut carets = String::new();
        for (start, width, _) in &marks {
            pad(&mut carets, *start);
            carets.push_str(&"^".repeat(*width));
        }
        writeln!(f, "   | {}", format!("{carets} {last}").trim_end())?;
        // The remaining labels, the last first, under bars that lead up to their carets.
        let mut open: Vec<(usize, &str)> = rest.iter().filter(|(.., label)| !label.is_empty()).map(|m| (m.0, m.2)).collect();
        let bars = |open: &[(usize, &str)]| {
            let mut text = String::new();
            for (start, _) in open {
                pad(&mut text, *start);
                text.push('|');
            }
            text
        };
        if !open.is_empty() {
            writeln!(f, "   | {}", bars(&open))?;
        }
        while let Some((start, label)) = open.pop() {
            let mut text = bars(&open);
            pad(&mut text, start);
            writeln!(f, "   | {text}{label}")?;
        }
        Ok(())
    }
}

/// Appends blanks up to a column.
fn pad(text: &mut String, column: usize) {
    let length = text.chars().count();
    text.push_str(&" ".repeat(column.saturating_sub(length)));
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(f, "{severity}[{}]: {}", self.code, self.message)?;
        if let Some(at) = &self.built_at {
            writeln!(f, "  --> {at}")?;
        }
        if let Some(line) = &self.line {
            self.snippet(line, f)?;
        }
        writeln!(f, "   |")?;
        if let Some(note) = &self.note {
            writeln!(f, "   = note: {note}")?;
        }
        write!(f, "   = help: {}", self.help)
    }
}

/// Every broken rule of one graph, in the order of its listing. Never empty.
#[derive(Clone)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    pub(super) fn new(list: Vec<Diagnostic>) -> Diagnostics {
        Diagnostics(list)
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// The same for a graph that a program in another language built. `place` says where each part was built, by its place
    /// in the listing: first nodes, then sinks.
    #[must_use]
    pub fn located(mut self, place: impl Fn(usize) -> Option<String>) -> Diagnostics {
        for diagnostic in &mut self.0 {
            diagnostic.built_at = diagnostic.order.and_then(&place);
        }
        self
    }

    /// The same for a graph that was read from a document. `lines` are the document's lines of the nodes and then the
    /// sinks.
    pub(crate) fn in_document(self, lines: &[usize]) -> Diagnostics {
        self.located(|order| lines.get(order).map(|line| format!("line {line}")))
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl std::error::Error for Diagnostic {}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.0 {
            writeln!(f, "{diagnostic}\n")?;
        }
        let count = self.0.len();
        write!(f, "{count} error{} in the epilogue", if count == 1 { "" } else { "s" })
    }
}

/// The output of `unwrap` and of a `main` that returns it: the same as [`Display`](fmt::Display), on separate lines.
impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl std::error::Error for Diagnostics {}
