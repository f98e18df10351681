//! Functions of whole rows: softmax and norms. In 32 bits at least, as their kernels compute.

use super::reduce::over_count;
use super::tape::{Found, Step, Tape};
use crate::network::fault::Fault;
use crate::network::graph::EdgeId;
use crate::network::meaning;

/// The axis of a softmax.
fn axis(tape: &Tape, step: &Step<'_>) -> Result<usize, Fault> {
    meaning::axis(step.node.attributes.int_or("axis", -1), tape.rank(step.input(0)?)?)
}

/// `Softmax`: y (g - sum of g y).
pub(crate) fn softmax(tape: &mut Tape, step: &Step<'_>) -> Found {
    let axis = axis(tape, step)?;
    let format = tape.format(step.input(0)?)?;
    let (y, g) = (tape.wide(step.node.outputs[0])?, tape.wide(step.gradient()?)?);
    let weighted = tape.mul(g, y)?;
    let sum = tape.reduced("ReduceSum", weighted, &[axis])?;
    let less = tape.binary("Sub", g, sum)?;
    let full = tape.mul(less, y)?;
    Ok(vec![Some(tape.cast(full, format)?)])
}

/// `LogSoftmax`: g - e^y (sum of g).
pub(crate) fn log_softmax(tape: &mut Tape, step: &Step<'_>) -> Found {
    let axis = axis(tape, step)?;
    let gradient = behind_logs(tape, step.node.outputs[0], step.gradient()?, axis)?;
    let format = tape.format(step.input(0)?)?;
    Ok(vec![Some(tape.cast(gradient, format)?)])
}

/// The gradient of what logarithms of a softmax were computed from.
pub(super) fn behind_logs(tape: &mut Tape, logs: EdgeId, g: EdgeId, axis: usize) -> Result<EdgeId, Fault> {
    let (y, g) = (tape.wide(logs)?, tape.wide(g)?);
    let sum = tape.reduced("ReduceSum", g, &[axis])?;
    let shares = tape.unary("Exp", y)?;
    let part = tape.mul(shares, sum)?;
    tape.binary("Sub", g, part)
}

fn mean(tape: &mut Tape, x: EdgeId, axes: &[usize]) -> Result<EdgeId, Fault> {
    tape.reduced("ReduceMean", x, axes)
}

/// Elements centred along axes, and one over their deviation.
struct Normed {
    centred: EdgeId,
    inverse: EdgeId,
    /// The product of both.
    normed: EdgeId,
}

/// Centred if `centres`, over the root of the mean square.
fn normed(tape: &mut Tape, x: EdgeId, axes: &[usize], epsilon: f64, centres: bool) -> Result<Normed, Fault> {
    let centred = if centres {
        let middle = mean(tape, x, axes)?;
        tape.binary("Sub", x, middle)?
    } else {
        x
    };
    let square = tape.mul(centred, centred)?;
    let variance = mean(tape, square, axes)?;
    let epsilon = tape.number_like(variance, epsilon)?;
    let sum = tape.binary("Add", variance, epsilon)?;
    let root = tape.unary("Sqrt", sum)?;
    let inverse = tape.unary("Reciprocal", root)?;
    let normed = tape.mul(centred, inverse)?;
    Ok(Normed { centred, inverse, normed })
}

/// The gradient of what was normed: (h - mean of h - n mean of h n) over the deviation, h the gradient of n.
fn behind(tape: &mut Tape, of: &Normed, h: EdgeId, axes: &[usize], centres: bool) -> Result<EdgeId, Fault> {
    let weighted = tape.mul(h, of.normed)?;
    let along = mean(tape, weighted, axes)?;
    let part = tape.mul(of.normed, along)?;
    let mut rest = tape.binary("Sub", h, part)?;
    if centres {
        let middle = mean(tape, h, axes)?;
        rest = tape.binary("Sub", rest, middle)?;
    }
    tape.mul(rest, of.inverse)
}

/// The gradients of scale and bias, which broadcast.
fn of_operands(tape: &mut Tape, step: &Step<'_>, [g, normed]: [EdgeId; 2], found: &mut [Option<EdgeId>]) -> Result<(), Fault> {
    for (input, found) in found.iter_mut().enumerate().skip(1).filter(|(input, _)| step.wants(*input)) {
        let own = step.input(input)?;
        let full = if input == 1 { tape.mul(g, normed)? } else { g };
        let sum = tape.sum_like(full, own)?;
        let format = tape.format(own)?;
        *found = Some(tape.cast(sum, format)?);
    }
    Ok(())
}

/// A norm over the last axes.
fn rows(tape: &mut Tape, step: &Step<'_>, centres: bool) -> Found {
    let (x, rank) = (step.input(0)?, tape.rank(step.input(0)?)?);
    let first = meaning::axis(step.node.attributes.int_or("axis", -1), rank)?;
    let axes: Vec<usize> = (first..rank).collect();
    let (format, wide) = (tape.format(x)?, tape.wide(x)?);
    let of = normed(tape, wide, &axes, step.node.attributes.float_or("epsilon", 1e-5), centres)?;
    let mut found = vec![None; step.node.inputs.len()];
    let mut sum = None;
    if let Some(gradient) = step.incoming[0] {
        let g = tape.wide(gradient)?;
        of_operands(tape, step, [g, of.normed], &mut found)?;
        if step.wants(0) {
            let scale = tape.wide(step.input(1)?)?;
            let h = tape.mul(g, scale)?;
            sum = Some(behind(tape, &of, h, &axes, centres)?);
        }
    }
    if step.wants(0) {
        // Mean and one over the deviation are outputs, too.
        if let Some(gradient) = step.incoming.get(1).copied().flatten() {
            let g = tape.wide(gradient)?;
            let each = over_count(tape, x, g, &axes)?;
            let part = tape.stretched(each, wide)?;
            sum = Some(sum.map_or(Ok(part), |sum| tape.binary("Add", sum, part))?);
        }
        if let Some(gradient) = step.incoming.get(2).copied().flatten() {
            let g = tape.wide(gradient)?;
            let each = over_count(tape, x, g, &axes)?;
            let square = tape.mul(of.inverse, of.inverse)?;
            let cube = tape.mul(square, of.inverse)?;
            let factor = tape.mul(each, cube)?;
            let part = tape.mul(factor, of.centred)?;
            sum = Some(match sum {
                Some(sum) => tape.binary("Sub", sum, part)?,
                None => tape.unary("Neg", part)?,
            });
        }
        found[0] = sum.map(|sum| tape.cast(sum, format)).transpose()?;
    }
    Ok(found)
}

/// `LayerNormalization`.
pub(crate) fn layer_norm(tape: &mut Tape, step: &Step<'_>) -> Found {
    rows(tape, step, true)
}

/// `RMSNormalization`.
pub(crate) fn rms_norm(tape: &mut Tape, step: &Step<'_>) -> Found {
    rows(tape, step, false)
}

/// Groups of channels, each centred over its deviation, with scale and bias of each channel.
fn grouped(tape: &mut Tape, step: &Step<'_>, groups: usize) -> Found {
    let (x, shape) = (step.input(0)?, tape.shape(step.input(0)?)?);
    let format = tape.format(x)?;
    let lines = [shape[0] as i64, groups as i64, (shape[1..].iter().product::<usize>() / groups.max(1)) as i64];
    let (wide, g) = (tape.wide(x)?, tape.wide(step.gradient()?)?);
    let line = tape.reshaped(wide, &lines)?;
    let of = normed(tape, line, &[2], step.node.attributes.float_or("epsilon", 1e-5), true)?;
    let normed = tape.shaped(of.normed, x)?;
    let mut found = vec![None; 3];
    let others: Vec<usize> = (0..shape.len()).filter(|axis| *axis != 1).collect();
    for input in (1..3).filter(|input| step.wants(*input)) {
        let own = step.input(input)?;
        let full = if input == 1 { tape.mul(g, normed)? } else { g };
        let sum = tape.reduced("ReduceSum", full, &others)?;
        let sum = tape.shaped(sum, own)?;
        let format = tape.format(own)?;
        found[input] = Some(tape.cast(sum, format)?);
    }
    if step.wants(0) {
        let mut channel = vec![1i64; shape.len()];
        channel[1] = shape[1] as i64;
        let scale = tape.wide(step.input(1)?)?;
        let scale = tape.reshaped(scale, &channel)?;
        let h = tape.mul(g, scale)?;
        let h = tape.reshaped(h, &lines)?;
        let full = behind(tape, &of, h, &[2], true)?;
        let full = tape.shaped(full, x)?;
        found[0] = Some(tape.cast(full, format)?);
    }
    Ok(found)
}

/// `InstanceNormalization`.
pub(crate) fn instance_norm(tape: &mut Tape, step: &Step<'_>) -> Found {
    let channels = tape.shape(step.input(0)?)?.get(1).copied().unwrap_or(1);
    grouped(tape, step, channels)
}

/// `GroupNormalization`.
pub(crate) fn group_norm(tape: &mut Tape, step: &Step<'_>) -> Found {
    let groups = usize::try_from(step.node.attributes.int_or("num_groups", 0)).unwrap_or(0);
    if groups == 0 {
        return Err(Fault::attribute("num_groups", "is a positive number"));
    }
    grouped(tape, step, groups)
}

/// `LpNormalization`: elements over the norm along an axis.
pub(crate) fn lp_normalization(tape: &mut Tape, step: &Step<'_>) -> Found {
    let axis = axis(tape, step)?;
    let (format, x) = (tape.format(step.input(0)?)?, tape.wide(step.input(0)?)?);
    let g = tape.wide(step.gradient()?)?;
    let by_sign = step.node.attributes.int_or("p", 2) == 1;
    let norm = if by_sign {
        let size = tape.unary("Abs", x)?;
        tape.reduced("ReduceSum", size, &[axis])?
    } else {
        let square = tape.mul(x, x)?;
        let sum = tape.reduced("ReduceSum", square, &[axis])?;
        tape.unary("Sqrt", sum)?
    };
    let y = tape.binary("Div", x, norm)?;
    let weighted = tape.mul(g, y)?;
    let sum = tape.reduced("ReduceSum", weighted, &[axis])?;
    let direction = if by_sign { tape.unary("Sign", x)? } else { y };
    let part = tape.mul(direction, sum)?;
    let less = tape.binary("Sub", g, part)?;
    let full = tape.binary("Div", less, norm)?;
    Ok(vec![Some(tape.cast(full, format)?)])
}
