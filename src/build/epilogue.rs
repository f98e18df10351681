//! An epilogue: a graph that has passed the check, ready to be planned, evaluated, printed or serialised.

use super::activation;
use super::expr::Builder;
use crate::check::{self, Argument, Checked, Diagnostic, Diagnostics};
use crate::ir::graph::BuiltAt;
use crate::ir::{Graph, NodeId, Registry, SinkKind, dot, name, text, wire};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::panic::Location;
use std::str::FromStr;
use std::sync::Arc;

/// A checked epilogue. Cheap to clone.
#[doc(alias = "EVT")]
#[doc(alias = "Sm90EVT")]
#[doc(alias = "Sm90TreeVisitor")]
#[doc(alias = "Sm90SplitTreeVisitor")]
#[doc(alias = "Sm90TopologicalVisitor")]
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    checked: Arc<Checked>,
}

/// The names that every document may use: the activations. Add custom primitives with [`Registry::with`].
pub fn registry() -> Registry {
    Registry::of(activation::ALL)
}

impl Epilogue {
    /// Builds the graph with a closure and checks it.
    ///
    /// # Errors
    /// If the graph has errors: all of them at once; see [`check`](crate::check).
    #[track_caller]
    pub fn build(build: impl FnOnce(&Builder)) -> Result<Epilogue, Diagnostics> {
        let (graph, foreign) = Builder::build(build);
        Ok(Epilogue { checked: Arc::new(check::check_built(graph, activation::ALL, Some(Location::caller()), &foreign)?) })
    }

    /// Builds an epilogue for the caller, as the [`recipes`](super::recipes) do. Mark your function `#[track_caller]`
    /// and pass its `file!()`. An error in a node that your file added is then reported at the call of your function,
    /// because its caller cannot repair your file. An error in a node of the caller's closure is reported in the
    /// closure.
    ///
    /// ```
    /// use postlude::prelude::*;
    ///
    /// #[track_caller]
    /// fn scaled_by(scale: DType) -> Result<Epilogue, postlude::Diagnostics> {
    ///     Epilogue::build_for_caller(file!(), |e| e.store("d", e.acc() * e.load("scale", scale.over(N)), F16))
    /// }
    ///
    /// assert!(scaled_by(F32).is_ok());
    /// let call = line!() + 1;
    /// let fault = scaled_by(I32).unwrap_err();
    /// assert!(fault.iter().next().unwrap().built_at().unwrap().contains(&format!(":{call}:")));
    /// ```
    ///
    /// # Errors
    /// If the graph has errors: all of them at once.
    #[track_caller]
    pub fn build_for_caller(own: &str, build: impl FnOnce(&Builder)) -> Result<Epilogue, Diagnostics> {
        let caller = Location::caller();
        let (mut graph, foreign) = Builder::build(build);
        graph.relocate(|built_at| if built_at.file() == own { caller } else { built_at });
        Ok(Epilogue { checked: Arc::new(check::check_built(graph, activation::ALL, Some(caller), &foreign)?) })
    }

    /// Builds a graph that a program generates: an unused argument is a warning (`E0104`) instead of an error.
    /// Everything else is as strict as in [`build`](Epilogue::build).
    ///
    /// The epilogue has no unused arguments: its listing, its documents and epilogues derived from it do not contain
    /// them. A launch may still pass them, in any format and with any strides, and nothing reads them. On a device they
    /// must be on the device of the plan's other arguments.
    ///
    /// ```
    /// use postlude::prelude::*;
    /// let (epilogue, warnings) = Epilogue::build_lenient(|e| {
    ///     let [scale, _shift] = ["scale", "shift"].map(|name| e.load(name, F32.over(N)));
    ///     e.store("d", e.acc() * scale, F32);
    /// })?;
    /// assert!(warnings[0].to_string().starts_with("warning[E0104]: argument `shift` reaches no sink"));
    /// let (a, b, scale, shift, mut d) = ([3.0f32], [2.0f32], [0.5f32], [9.0f32], [0.0f32]);
    /// let args = HostArgs::new().input("a", &a).input("b", &b).input("scale", &scale).input("shift", &shift);
    /// let args = args.output("d", &mut d);
    /// Gemm::new(F32, TT, &epilogue).reference(Shape::new(1, 1, 1), args)?;
    /// assert_eq!(d, [3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the graph has other errors: all of them at once.
    #[track_caller]
    pub fn build_lenient(build: impl FnOnce(&Builder)) -> Result<(Epilogue, Vec<Diagnostic>), Diagnostics> {
        let (graph, foreign) = Builder::build(build);
        Epilogue::lenient(&graph, Some(Location::caller()), &foreign)
    }

    /// [`build_lenient`](Epilogue::build_lenient) for an existing graph, such as one that [`text::parse`] or
    /// [`wire::Document`] read.
    ///
    /// # Errors
    /// If the graph has other errors: all of them at once.
    pub fn from_graph_lenient(graph: &Graph) -> Result<(Epilogue, Vec<Diagnostic>), Diagnostics> {
        Epilogue::lenient(graph, None, &[])
    }

    fn lenient(
        graph: &Graph,
        built_at: BuiltAt,
        foreign: &[&'static Location<'static>],
    ) -> Result<(Epilogue, Vec<Diagnostic>), Diagnostics> {
        let (checked, warnings) = check::check_lenient(graph, activation::ALL, built_at, foreign)?;
        Ok((Epilogue { checked: Arc::new(checked) }, warnings))
    }

    /// Checks a graph.
    ///
    /// # Errors
    /// If the graph has errors: all of them at once.
    pub fn from_graph(graph: Graph) -> Result<Epilogue, Diagnostics> {
        Ok(Epilogue { checked: Arc::new(check::check_built(graph, activation::ALL, None, &[])?) })
    }

    /// The same epilogue, whose reductions may combine partial results in order of arrival: see
    /// [`Monoid::atomic`](crate::ir::Monoid::atomic). Use it for epilogues that were not written by hand, such as a
    /// recipe or a derived backward epilogue.
    #[must_use]
    pub fn atomic(&self) -> Epilogue {
        let graph = self.graph().map_sinks(SinkKind::atomic);
        Epilogue { checked: Arc::new(Checked::rebuilt(graph, self.arguments().to_vec())) }
    }

    /// The graph and the results of the check.
    pub fn checked(&self) -> &Checked {
        &self.checked
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.checked.graph()
    }

    /// The arguments of a launch, in the order of first use.
    pub fn arguments(&self) -> &[Argument] {
        self.checked.arguments()
    }

    /// Reads the text form that [`Display`](fmt::Display) writes, and checks it.
    ///
    /// # Errors
    /// If the text has a syntax error (with its line), or the graph has errors (all of them).
    pub fn from_text(text: &str, registry: &Registry) -> Result<Epilogue, ReadError> {
        let parsed = text::parse(text, registry)?;
        let epilogue = Epilogue::from_graph(parsed.graph).map_err(|d| d.in_document(&parsed.lines))?;
        annotated(&epilogue.checked, parsed.annotations, text).map(|()| epilogue)
    }

    /// Reads JSON that [`to_json`](Epilogue::to_json) wrote, and checks it.
    ///
    /// # Errors
    /// If the document is invalid, or the graph has errors (all of them).
    pub fn from_json(json: &str, registry: &Registry) -> Result<Epilogue, ReadError> {
        let document: wire::Document = serde_json::from_str(json).map_err(wire::WireError::from)?;
        Ok(Epilogue::from_graph(document.into_graph(registry)?)?)
    }

    /// The graph as JSON: a versioned array of nodes.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&wire::Document::of(self.graph())).unwrap_or_default()
    }

    /// The graph in Graphviz's DOT language.
    pub fn to_dot(&self) -> String {
        dot::dot(self.graph(), |id| self.checked.type_of(id).to_string())
    }
}

/// Compares the types that the author of a document wrote with the real ones.
pub(super) fn annotated(checked: &Checked, annotations: Vec<(NodeId, String, usize)>, text: &str) -> Result<(), ReadError> {
    for (id, written, line) in annotations {
        let inferred = checked.type_of(id).to_string();
        if inferred != written {
            let written = name::word(&written);
            return Err(ReadError::Annotation { line, written, inferred, text: text::shown_line(text, line) });
        }
    }
    Ok(())
}

/// The same form as [`to_json`](Epilogue::to_json), in any serde format.
impl Serialize for Epilogue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        wire::Document::of(self.graph()).serialize(serializer)
    }
}

/// Reads and checks a document that uses the activations and no custom primitives. For those see
/// [`from_json`](Epilogue::from_json).
impl<'de> Deserialize<'de> for Epilogue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Epilogue, D::Error> {
        let document = wire::Document::deserialize(deserializer)?;
        let graph = document.into_graph(&registry()).map_err(serde::de::Error::custom)?;
        Epilogue::from_graph(graph).map_err(serde::de::Error::custom)
    }
}

/// Why a document could not be read as an epilogue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The text is not in the text form.
    #[error(transparent)]
    Text(#[from] text::ParseError),
    /// The JSON does not describe an epilogue.
    #[error(transparent)]
    Json(#[from] wire::WireError),
    /// The written type of a value differs from its real type.
    #[error("the type is written as `{written}`, but it is `{inferred}`\n  --> line {line}\n   |\n   | {text}")]
    Annotation {
        /// The line, from 1.
        line: usize,
        /// The written type.
        written: String,
        /// The type that follows from the operands.
        inferred: String,
        /// The line's text, shortened, with invisible characters escaped.
        text: String,
    },
    /// The document was read, but its graph is not valid.
    #[error(transparent)]
    Check(#[from] Diagnostics),
}

/// The listing: the text form, with the type of every value.
impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::print(self.graph(), |id| Some(self.checked.type_of(id).to_string())))
    }
}

/// [`Epilogue::from_text`] with the activations and no custom primitives.
impl FromStr for Epilogue {
    type Err = ReadError;
    fn from_str(text: &str) -> Result<Epilogue, ReadError> {
        Epilogue::from_text(text, &registry())
    }
}
