//! Losses.

use super::normal::behind_logs;
use super::tape::{Found, Step, Tape};
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::graph::{Applied, EdgeId};
use crate::network::operator::Operator;

/// The gradient of the scores of a weighted negative likelihood.
fn of_scores(tape: &mut Tape, step: &Step<'_>, like: EdgeId, g: EdgeId) -> Result<EdgeId, Fault> {
    let mut inputs = vec![Some(like), Some(step.input(1)?), Some(g)];
    inputs.extend(step.given(2).map(Some));
    let row = Operator::named("NegativeLogLikelihoodLossGradient").ok_or_else(|| step.lacks("by its scores"))?;
    Ok(tape.push(Applied::Row(row), inputs, step.node.attributes.clone(), 1)?[0])
}

/// `NegativeLogLikelihoodLoss`.
pub(crate) fn negative_log_likelihood(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    Ok(vec![Some(of_scores(tape, step, step.input(0)?, step.gradient()?)?)])
}

/// `SoftmaxCrossEntropyLoss`: that of the logarithms, which may have a gradient of their own, behind a log softmax.
pub(crate) fn softmax_cross_entropy(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let x = step.input(0)?;
    let logs = match step.node.outputs.get(1) {
        Some(logs) => *logs,
        None => tape.apply("LogSoftmax", &[x], Attributes::new().with("axis", 1i64))?,
    };
    let mut sum = None;
    if let Some(g) = step.incoming[0] {
        sum = Some(of_scores(tape, step, logs, g)?);
    }
    if let Some(own) = step.incoming.get(1).copied().flatten() {
        sum = Some(sum.map_or(Ok(own), |sum| tape.binary("Add", sum, own))?);
    }
    let sum = sum.ok_or_else(|| step.lacks("without a gradient of its output"))?;
    let gradient = behind_logs(tape, logs, sum, 1)?;
    let format = tape.format(x)?;
    Ok(vec![Some(tape.cast(gradient, format)?)])
}
