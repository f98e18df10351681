//! Reductions along axes, and scans.

use super::tape::{Found, Step, Tape, extents};
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::graph::EdgeId;
use crate::network::meaning;

/// The axes that a reduction goes over.
fn axes(tape: &Tape, step: &Step<'_>) -> Result<Vec<usize>, Fault> {
    let rank = tape.rank(step.input(0)?)?;
    match step.given(1) {
        Some(edge) => match tape.sizes(edge)? {
            list if !list.is_empty() => meaning::axes(&list, rank),
            _ if step.node.attributes.flag("noop_with_empty_axes") => Ok(Vec::new()),
            _ => Ok((0..rank).collect()),
        },
        None if step.node.attributes.flag("noop_with_empty_axes") => Ok(Vec::new()),
        None => Ok((0..rank).collect()),
    }
}

/// A result of a reduction, or its gradient, with the axes that it went over as axes of extent 1.
fn kept(tape: &mut Tape, step: &Step<'_>, x: EdgeId, axes: &[usize]) -> Result<EdgeId, Fault> {
    if axes.is_empty() || step.node.attributes.int_or("keepdims", 1) != 0 {
        return Ok(x);
    }
    let axes = tape.indices(&extents(axes));
    tape.binary("Unsqueeze", x, axes)
}

/// The incoming gradient and the result, both with the axes of the input.
fn seen(tape: &mut Tape, step: &Step<'_>) -> Result<(EdgeId, EdgeId, EdgeId, Vec<usize>), Fault> {
    step.only(1)?;
    let axes = axes(tape, step)?;
    let g = kept(tape, step, step.gradient()?, &axes)?;
    Ok((step.input(0)?, step.node.outputs[0], g, axes))
}

/// `ReduceSum`.
pub(crate) fn sum(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, _, g, _) = seen(tape, step)?;
    Ok(vec![Some(tape.stretched(g, x)?)])
}

/// `ReduceMean`.
pub(crate) fn mean(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, _, g, axes) = seen(tape, step)?;
    let scaled = over_count(tape, x, g, &axes)?;
    Ok(vec![Some(tape.stretched(scaled, x)?)])
}

/// Over the number of elements along axes.
pub(super) fn over_count(tape: &mut Tape, x: EdgeId, g: EdgeId, axes: &[usize]) -> Result<EdgeId, Fault> {
    let dims = tape.dims(x)?;
    if let Some(count) = axes.iter().try_fold(1usize, |count, axis| dims[*axis].known().map(|extent| count * extent)) {
        return tape.scaled(g, 1.0 / count as f64);
    }
    let (shape, list) = (tape.unary("Shape", x)?, tape.indices(&extents(axes)));
    let counts = tape.binary("Gather", shape, list)?;
    let count = tape.apply("ReduceProd", &[counts], Attributes::new().with("keepdims", 0i64))?;
    let format = tape.format(g)?;
    let count = tape.cast(count, format)?;
    tape.binary("Div", g, count)
}

/// `ReduceMax` and `ReduceMin`: shared among equal elements.
pub(crate) fn extreme(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, y, g, axes) = seen(tape, step)?;
    let (y, format) = (kept(tape, step, y, &axes)?, tape.format(x)?);
    let hits = tape.binary("Equal", x, y)?;
    let hits = tape.cast(hits, format)?;
    let hits = tape.wide(hits)?;
    let count = tape.reduced("ReduceSum", hits, &axes)?;
    let g = tape.wide(g)?;
    let share = tape.binary("Div", g, count)?;
    let full = tape.mul(hits, share)?;
    Ok(vec![Some(tape.cast(full, format)?)])
}

/// `ReduceProd`: the product of the others. Along one axis it is the product of what is before and what is behind.
pub(crate) fn product(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, _, g, axes) = seen(tape, step)?;
    // Only what is along one axis has a before and a behind: the axes become the last one.
    let (shape, rank) = (tape.shape(x)?, tape.rank(x)?);
    let others: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    let order: Vec<usize> = others.iter().chain(&axes).copied().collect();
    let turned = tape.turned(x, &order)?;
    let mut flat: Vec<i64> = others.iter().map(|axis| shape[*axis] as i64).collect();
    flat.push(axes.iter().map(|axis| shape[*axis] as i64).product());
    let line = tape.reshaped(turned, &flat)?;
    let axis = tape.indices(&[others.len() as i64]);
    let scan = |tape: &mut Tape, reverse: i64| {
        tape.apply("CumProd", &[line, axis], Attributes::new().with("exclusive", 1i64).with("reverse", reverse))
    };
    let (before, behind) = (scan(tape, 0)?, scan(tape, 1)?);
    let rest = tape.mul(before, behind)?;
    let turned_shape: Vec<i64> = order.iter().map(|axis| shape[*axis] as i64).collect();
    let rest = tape.reshaped(rest, &turned_shape)?;
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(at, axis)| back[*axis] = at);
    let rest = tape.turned(rest, &back)?;
    Ok(vec![Some(tape.mul(rest, g)?)])
}

/// `ReduceL1`: the sign of each element.
pub(crate) fn l1(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, _, g, _) = seen(tape, step)?;
    let sign = tape.unary("Sign", x)?;
    Ok(vec![Some(tape.mul(sign, g)?)])
}

/// `ReduceL2`: each element over the norm, and 0 where the norm is.
pub(crate) fn l2(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, y, g, axes) = seen(tape, step)?;
    let y = kept(tape, step, y, &axes)?;
    let (zero, one) = (tape.number_like(y, 0.0)?, tape.number_like(y, 1.0)?);
    let nothing = tape.binary("Equal", y, zero)?;
    let norm = tape.apply("Where", &[nothing, one, y], Attributes::new())?;
    let direction = tape.binary("Div", x, norm)?;
    Ok(vec![Some(tape.mul(direction, g)?)])
}

/// `ReduceSumSquare`.
pub(crate) fn sum_square(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, _, g, _) = seen(tape, step)?;
    let twice = tape.scaled(x, 2.0)?;
    Ok(vec![Some(tape.mul(twice, g)?)])
}

/// `ReduceLogSum`: one over the sum, which is e^y.
pub(crate) fn log_sum(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, _, g, axes) = seen(tape, step)?;
    let sum = tape.reduced("ReduceSum", x, &axes)?;
    let each = tape.binary("Div", g, sum)?;
    Ok(vec![Some(tape.stretched(each, x)?)])
}

/// `ReduceLogSumExp`: e^x over the sum of all.
pub(crate) fn log_sum_exp(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, y, g, axes) = seen(tape, step)?;
    let y = kept(tape, step, y, &axes)?;
    let below = tape.binary("Sub", x, y)?;
    let share = tape.unary("Exp", below)?;
    Ok(vec![Some(tape.mul(share, g)?)])
}

/// `CumSum`: the sum from the other end.
pub(crate) fn cum_sum(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let of = &step.node.attributes;
    let turned = Attributes::new().with("exclusive", of.int_or("exclusive", 0)).with("reverse", i64::from(!of.flag("reverse")));
    let (axis, g) = (step.input(1)?, step.gradient()?);
    Ok(vec![Some(tape.apply("CumSum", &[g, axis], turned)?)])
}

/// `TopK`: each gradient goes back to where the element was.
pub(crate) fn top_k(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let (x, indices) = (step.input(0)?, step.node.outputs[1]);
    let rank = tape.rank(x)?;
    let axis = meaning::axis(step.node.attributes.int_or("axis", -1), rank)? as i64;
    let zeros = tape.zeros(x)?;
    let g = step.gradient()?;
    let place = Attributes::new().with("axis", axis);
    Ok(vec![Some(tape.apply("ScatterElements", &[zeros, indices, g], place)?)])
}
