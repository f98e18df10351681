//! Pointwise operators: the gradient follows from the expression. Programs' own operators.

use super::tape::{Found, Step, Tape};
use crate::network::attribute::Attributes;
use crate::network::custom::CustomOperator;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::graph::{Applied, EdgeId};
use crate::network::operator::Derivative;
use crate::network::types::Dim;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The rule of every pointwise operator, from its expression: a node for each input, and the sum over what the input was
/// stretched along.
pub(crate) fn pointwise(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (node, gradient) = (step.node, step.gradient()?);
    let of = format_of_kernels(tape, gradient)?;
    let mut given = Vec::new();
    for edge in &node.inputs {
        // The language has no type for some integers: as numbers they are what the expression takes them for.
        given.push(match *edge {
            Some(edge) if tape.format(edge)?.dtype().is_none() => Some(tape.cast(edge, of)?),
            edge => edge,
        });
    }
    let output = node.outputs[0];
    given.extend([Some(output), Some(gradient)]);
    let mut formats = Vec::new();
    for edge in &given {
        formats.push(edge.map(|edge| tape.format(edge)).transpose()?);
    }
    let shapes =
        node.inputs.iter().map(|edge| edge.map(|edge| tape.dims(edge)).transpose()).collect::<Result<Vec<_>, Fault>>()?;
    let placed = node.expression().map_or_else(|| shapes.clone(), |of| of.placed(&node.attributes, &shapes));
    let mut found = vec![None; node.inputs.len()];
    for input in (0..node.inputs.len()).filter(|input| step.wants(*input)) {
        let derivative = Derivative::new(&node.operator, input);
        let (used, handed_on) = fewest(&derivative, &formats, &node.attributes)?;
        let full = if handed_on {
            gradient
        } else {
            let value = |format: Option<Format>| format.and_then(Format::dtype).map(crate::dtype::DType::value_type);
            let lost = |at: usize| {
                let as_gradient = value(formats[at]) == value(formats[given.len() - 1]);
                let own = at < node.inputs.len();
                !used.contains(&at) && (!own || derivative.may_lack(at) && as_gradient)
            };
            let mut inputs = given.clone();
            (0..given.len() - 1).filter(|at| lost(*at)).for_each(|at| inputs[at] = None);
            tape.push(Applied::Derivative(derivative), inputs, node.attributes.clone(), 1)?[0]
        };
        let own = step.input(input)?;
        let to = tape.format(own)?;
        let place: &[Dim] = placed[input].as_deref().unwrap_or_default();
        let summed = tape.sum_to(full, place)?;
        let summed = tape.cast(summed, to)?;
        found[input] = Some(tape.shaped(summed, own)?);
    }
    Ok(found)
}

/// The inputs that a derivative uses, and whether it hands the gradient on: with the output's value in place of inputs, if those
/// are fewer. Where one stands for one, the output is read: what is computed next reads it, too.
fn fewest(
    derivative: &Derivative,
    formats: &[Option<Format>],
    attributes: &Attributes,
) -> Result<(BTreeSet<usize>, bool), Fault> {
    let mut without = formats.to_vec();
    let output = formats.len().saturating_sub(2);
    without[output] = None;
    let (plain, by_value) = (derivative.uses(&without, attributes)?, derivative.uses(formats, attributes)?);
    let alone = output == 1 && by_value.0.len() == plain.0.len();
    Ok(if by_value.0.len() < plain.0.len() || alone { by_value } else { plain })
}

fn format_of_kernels(tape: &Tape, gradient: EdgeId) -> Result<Format, Fault> {
    Ok(if tape.format(gradient)? == Format::F64 { Format::F64 } else { Format::F32 })
}

/// The rule of a program's own operator whose gradient is another operator.
pub(super) fn by_operator(tape: &mut Tape, step: &Step<'_>, operator: &Arc<CustomOperator>) -> Found {
    let mut inputs: Vec<Option<EdgeId>> = step.node.inputs.clone();
    for (edge, gradient) in step.node.outputs.iter().zip(step.incoming) {
        inputs.push(Some(match gradient {
            Some(gradient) => *gradient,
            None => tape.zeros(*edge)?,
        }));
    }
    let count = step.node.inputs.len();
    let gradients = tape.push(Applied::Custom(operator.clone()), inputs, Attributes::new(), count)?;
    Ok((0..count).map(|input| step.wants(input).then(|| gradients[input])).collect())
}

/// `Identity`, and `Dropout` of inference.
pub(crate) fn identity(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    if let Some(training) = step.given(2)
        && tape.value(training).is_none_or(|training| training.only() != Some(0.0))
    {
        return Err(step.lacks("in training, which takes random numbers,"));
    }
    Ok(vec![Some(step.gradient()?)])
}

/// `Cast` and `CastLike`: back into the input's format.
pub(crate) fn cast(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let to = tape.format(step.input(0)?)?;
    Ok(vec![Some(tape.cast(step.gradient()?, to)?)])
}

/// `BatchNormalization` of inference.
pub(crate) fn batch_norm(tape: &mut Tape, step: &Step<'_>) -> Found {
    if step.node.attributes.flag("training_mode") {
        return Err(step.lacks("in training"));
    }
    pointwise(tape, step)
}

/// `QuantizeLinear`: rounds to steps, so nothing changes between them.
pub(crate) fn quantize(_: &mut Tape, step: &Step<'_>) -> Found {
    Err(step.lacks("which rounds,"))
}

/// `DequantizeLinear`, of its scale.
pub(crate) fn dequantize(tape: &mut Tape, step: &Step<'_>) -> Found {
    if step.node.attributes.int_or("block_size", 0) != 0 {
        return Err(step.lacks("with a scale for each block"));
    }
    pointwise(tape, step)
}
