//! Operators that take elements at places that indices name, and put them there: each is the other's gradient.

use super::tape::{Found, Step, Tape};
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::graph::EdgeId;
use crate::network::meaning;

/// Adds gradients to zeros in the type of an edge, in 32 bits at least: several may come to one place.
fn added(
    tape: &mut Tape,
    operator: &str,
    like: EdgeId,
    [indices, g]: [EdgeId; 2],
    attributes: Attributes,
) -> Result<EdgeId, Fault> {
    let format = tape.format(like)?;
    let (zeros, g) = (tape.zeros(like)?, tape.wide(g)?);
    let zeros = tape.wide(zeros)?;
    let sum = tape.apply(operator, &[zeros, indices, g], attributes.with("reduction", "add"))?;
    tape.cast(sum, format)
}

/// `Gather`: the slices are added to those that the indices name.
pub(crate) fn gather(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let (x, indices, g) = (step.input(0)?, step.input(1)?, step.gradient()?);
    let (rank, of_indices) = (tape.rank(x)?, tape.rank(indices)?);
    let axis = meaning::axis(step.node.attributes.int_or("axis", 0), rank)?;
    let last = tape.indices(&[-1]);
    let rows = tape.binary("Unsqueeze", indices, last)?;
    if axis == 0 {
        return Ok(vec![Some(added(tape, "ScatterND", x, [rows, g], Attributes::new())?)]);
    }
    // The axis comes first, and with it the axes of the indices.
    let first: Vec<usize> = std::iter::once(axis).chain((0..rank).filter(|other| *other != axis)).collect();
    let own: Vec<usize> = (axis..axis + of_indices).collect();
    let all: Vec<usize> = own.iter().copied().chain((0..rank + of_indices - 1).filter(|other| !own.contains(other))).collect();
    let (turned, g) = (tape.turned(x, &first)?, tape.turned(g, &all)?);
    let sum = added(tape, "ScatterND", turned, [rows, g], Attributes::new())?;
    Ok(vec![Some(tape.turned(sum, &meaning::layout::inverse(&first))?)])
}

fn along(step: &Step<'_>) -> Attributes {
    Attributes::new().with("axis", step.node.attributes.int_or("axis", 0))
}

/// `GatherElements`.
pub(crate) fn gather_elements(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let operands = [step.input(1)?, step.gradient()?];
    Ok(vec![Some(added(tape, "ScatterElements", step.input(0)?, operands, along(step))?)])
}

/// `GatherND`.
pub(crate) fn gather_nd(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    if step.node.attributes.int_or("batch_dims", 0) != 0 {
        return super::moves::by_places(tape, step);
    }
    let operands = [step.input(1)?, step.gradient()?];
    Ok(vec![Some(added(tape, "ScatterND", step.input(0)?, operands, Attributes::new())?)])
}

/// `ScatterElements` and `ScatterND`, with what takes elements from where they put them.
fn scatter(tape: &mut Tape, step: &Step<'_>, [takes, puts]: [&str; 2], attributes: Attributes) -> Found {
    let mode = step.node.attributes.text_or("reduction", "none").to_owned();
    if !matches!(mode.as_str(), "none" | "add") {
        return Err(step.lacks(&format!("with the reduction `{mode}`")));
    }
    let (indices, g) = (step.input(1)?, step.gradient()?);
    let mut found = vec![None; 3];
    if step.wants(0) {
        found[0] = Some(if mode == "add" {
            g
        } else {
            let zeros = tape.zeros(step.input(2)?)?;
            tape.apply(puts, &[g, indices, zeros], attributes.clone())?
        });
    }
    if step.wants(2) {
        let taken = tape.apply(takes, &[g, indices], attributes)?;
        found[2] = Some(tape.shaped(taken, step.input(2)?)?);
    }
    Ok(found)
}

/// `ScatterElements`.
pub(crate) fn scatter_elements(tape: &mut Tape, step: &Step<'_>) -> Found {
    scatter(tape, step, ["GatherElements", "ScatterElements"], along(step))
}

/// `ScatterND`.
pub(crate) fn scatter_nd(tape: &mut Tape, step: &Step<'_>) -> Found {
    scatter(tape, step, ["GatherND", "ScatterND"], Attributes::new())
}

/// `Compress`: by places, which the network computes.
pub(crate) fn compress(tape: &mut Tape, step: &Step<'_>) -> Found {
    super::moves::by_places(tape, step)
}
