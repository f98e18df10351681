//! Diagnostics: what is wrong, where in the listing, which Rust line built it, and what to do.

use crate::ir::graph::{Graph, NodeId};
use crate::ir::text;
use std::fmt;
use std::ops::Range;
use std::panic::Location;

/// Where a fault lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Graph,
    Node(NodeId),
    Sink(usize),
    Rust(&'static Location<'static>),
}

/// One broken rule.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    code: &'static str,
    message: String,
    help: String,
    built_at: Option<String>,
    line: Option<text::Line>,
    marks: Vec<(Range<usize>, String)>,
    order: usize,
}

impl Diagnostic {
    pub(super) fn new(graph: &Graph, code: &'static str, place: Place, message: &str) -> Diagnostic {
        let (line, built_at, order) = match place {
            Place::Graph => (None, None, usize::MAX),
            Place::Node(id) => (Some(text::node_line(graph, id, None)), graph.built_at(id), id.index()),
            Place::Sink(index) => (Some(text::sink_line(graph, index)), graph.sink_built_at(index), graph.len() + index),
            Place::Rust(location) => (None, Some(location), 0),
        };
        let built_at = built_at.map(ToString::to_string);
        Diagnostic { code, message: message.into(), help: String::new(), built_at, line, marks: Vec::new(), order }
    }

    #[must_use]
    pub(super) fn help(mut self, help: &str) -> Diagnostic {
        self.help = help.into();
        self
    }

    /// Underlines an operand and says what it is.
    #[must_use]
    pub(super) fn mark(mut self, operand: usize, label: &str) -> Diagnostic {
        if let Some(span) = self.line.as_ref().and_then(|l| l.operands.get(operand)) {
            self.marks.push((span.clone(), label.into()));
        }
        self
    }

    pub(super) fn order(&self) -> usize {
        self.order
    }

    /// The rule's code, as listed in [`check`](super).
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub fn cure(&self) -> &str {
        &self.help
    }

    /// `file:line:column` of the Rust code that built the culprit, if a program did.
    pub fn built_at(&self) -> Option<&str> {
        self.built_at.as_deref()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(at) = &self.built_at {
            writeln!(f, "  --> {at}")?;
        }
        if let Some(line) = &self.line {
            writeln!(f, "   |\n   | {}", line.text)?;
            // Labels from the last to the first, so that each stands below its operand without crossing another.
            let columns =
                |span: &Range<usize>| (line.text[..span.start].chars().count(), line.text[span.clone()].chars().count());
            let mut underline = String::new();
            for (span, _) in &self.marks {
                let (start, width) = columns(span);
                if underline.len() <= start {
                    underline.push_str(&" ".repeat(start - underline.len()));
                    underline.push_str(&"^".repeat(width));
                }
            }
            for (i, (_, label)) in self.marks.iter().enumerate().rev() {
                if i + 1 == self.marks.len() {
                    writeln!(f, "   | {underline} {label}")?;
                } else {
                    let (start, _) = columns(&self.marks[i].0);
                    writeln!(f, "   | {}{label}", " ".repeat(start))?;
                }
            }
        }
        write!(f, "   = help: {}", self.help)
    }
}

/// Every broken rule of one graph, in the order of its listing. Never empty.
#[derive(Clone, Debug)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    pub(super) fn new(list: Vec<Diagnostic>) -> Diagnostics {
        Diagnostics(list)
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.0 {
            writeln!(f, "{diagnostic}\n")?;
        }
        let count = self.0.len();
        write!(f, "{count} error{} in the epilogue", if count == 1 { "" } else { "s" })
    }
}

impl std::error::Error for Diagnostics {}
