//! What scores of an attention become, as functions in a namespace of their own.

use super::phases::Phases;
use super::printer::{Part, Printer};
use super::{RenderError, calls};
use crate::plan::{KernelPlan, KeyBound, PlannedScores};
use serde::Serialize;
use tera::Tera;

#[derive(Serialize)]
struct Function {
    strip: usize,
    /// What the templates of an epilogue test, and a function of scores has not.
    hopper: bool,
    reductions: [(); 0],
    stages: [(); 0],
    calls: Vec<calls::Call>,
    #[serde(flatten)]
    phases: Phases,
    /// The result for an element.
    result: String,
    /// The least and the largest keys that a query sees.
    least: Vec<String>,
    most: Vec<String>,
}

/// A bound of the keys that the query `query` sees.
fn bound(of: &KeyBound, printer: &Printer<'_>) -> String {
    let value = of.step.map(|(step, by)| format!("{} i64({})", if by < 0 { " -" } else { " +" }, printer.reference(step)));
    format!("{}{} + ({}ll)", if of.relative { "query" } else { "0ll" }, value.unwrap_or_default(), of.plus)
}

/// The functions, if a plan has any.
pub(super) fn render(plan: &KernelPlan, engine: &Tera) -> Result<Option<String>, RenderError> {
    let (Some(part), Some(scores)) = (Part::of_scores(plan), &plan.scores) else { return Ok(None) };
    let printer = Printer::new(part);
    let function = Function {
        strip: PlannedScores::STRIP,
        hopper: false,
        reductions: [],
        stages: [],
        calls: calls::calls(&part),
        phases: Phases::of(&plan.params, &printer),
        result: printer.reference(scores.result()),
        least: scores.bounds.iter().filter(|of| of.least).map(|of| bound(of, &printer)).collect(),
        most: scores.bounds.iter().filter(|of| !of.least).map(|of| bound(of, &printer)).collect(),
    };
    let context = tera::Context::from_serialize(&function).map_err(|e| RenderError(e.to_string()))?;
    engine.render("epilogue/scores.cuh", &context).map(Some).map_err(|e| RenderError(e.to_string()))
}
