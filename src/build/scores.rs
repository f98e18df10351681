//! Building and reading functions of scores.

use super::activation;
use super::epilogue::{ReadError, annotated, registry};
use super::expr::{Builder, Expr};
use super::into::IntoExpr;
use crate::check::{self, Diagnostics};
use crate::ir::{Graph, Registry, Sink, SinkKind, text, wire};
use crate::problem::Scores;
use std::panic::Location;
use std::str::FromStr;

impl Scores {
    /// Builds the function with a closure that returns what a score becomes, and checks it.
    ///
    /// ```
    /// use postlude::prelude::*;
    /// use postlude::{Attention, Scores};
    /// // Three keys, the last of which is padding.
    /// let scores = Scores::build(|s| s.load("seen", Bool.over(N)).select(s.acc(), f32::NEG_INFINITY))?;
    /// let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F32))?;
    /// let (query, keys, values, seen, mut d) = ([0.0f32], [1.0f32, 2.0, 3.0], [1.0f32, 3.0, 9.0], [1u8, 1, 0], [0.0f32]);
    /// let args = HostArgs::new().input("a", &query).input("keys", &keys).input("b", &values).input("seen", &seen);
    /// let gemm = Gemm::attention(F32, Attention::new(1).scores(&scores), &epilogue);
    /// gemm.reference(Shape::new(1, 1, 3), args.output("d", &mut d))?;
    /// assert_eq!(d, [2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the graph has errors: all of them at once; see [`check`](crate::check).
    #[track_caller]
    pub fn build(build: impl for<'g> FnOnce(&'g Builder) -> Expr<'g>) -> Result<Scores, Diagnostics> {
        let caller = Location::caller();
        let (graph, foreign) = Builder::build(|e| {
            let result = build(e).into_expr(e, caller).id;
            e.graph.borrow_mut().sink(Sink::new(check::RESULT, result, SinkKind::Store(check::result())), Some(caller));
        });
        check::check_scores(graph, activation::ALL, Some(caller), &foreign).map(Scores::of)
    }

    /// Checks a graph.
    ///
    /// # Errors
    /// If the graph has errors: all of them at once.
    pub fn from_graph(graph: Graph) -> Result<Scores, Diagnostics> {
        check::check_scores(graph, activation::ALL, None, &[]).map(Scores::of)
    }

    /// Reads the text form that [`Display`](std::fmt::Display) writes, and checks it.
    ///
    /// # Errors
    /// If the text has a syntax error (with its line), or the graph has errors (all of them).
    pub fn from_text(text: &str, registry: &Registry) -> Result<Scores, ReadError> {
        let parsed = text::parse(text, registry)?;
        let scores = Scores::from_graph(parsed.graph).map_err(|d| d.in_document(&parsed.lines))?;
        annotated(scores.checked(), parsed.annotations, text).map(|()| scores)
    }

    /// Reads JSON that [`to_json`](Scores::to_json) wrote, and checks it.
    ///
    /// # Errors
    /// If the document is invalid, or the graph has errors (all of them).
    pub fn from_json(json: &str, registry: &Registry) -> Result<Scores, ReadError> {
        let document: wire::Document = serde_json::from_str(json).map_err(wire::WireError::from)?;
        Ok(Scores::from_graph(document.into_graph(registry)?)?)
    }

    /// The graph as JSON: a versioned array of nodes.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&wire::Document::of(self.checked().graph())).unwrap_or_default()
    }
}

/// [`Scores::from_text`] with the activations and no custom primitives.
impl FromStr for Scores {
    type Err = ReadError;
    fn from_str(text: &str) -> Result<Scores, ReadError> {
        Scores::from_text(text, &registry())
    }
}
