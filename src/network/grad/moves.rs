//! Operators that move elements: their gradients move back.

use super::tape::{Found, Step, Tape};
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::graph::EdgeId;
use crate::network::meaning::{self, layout};
use crate::network::operator::{Kind, Moves};
use crate::network::tensor::Tensor;

/// `Reshape`, `Flatten`, `Squeeze`, `Unsqueeze`: the input's shape.
pub(crate) fn reshape(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    Ok(vec![Some(tape.shaped(step.gradient()?, step.input(0)?)?)])
}

/// `Transpose`: the order that turns back.
pub(crate) fn transpose(tape: &mut Tape, step: &Step<'_>) -> Found {
    let order = layout::permutation(step.node.attributes.ints("perm"), tape.rank(step.input(0)?)?)?;
    Ok(vec![Some(tape.turned(step.gradient()?, &layout::inverse(&order))?)])
}

/// `Expand`: the sum over what was stretched.
pub(crate) fn expand(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    Ok(vec![Some(tape.sum_like(step.gradient()?, step.input(0)?)?)])
}

/// Elements before the first and behind the last of each axis, as `Pad` takes them; below 0 they are cut off.
fn padded(tape: &mut Tape, x: EdgeId, pads: &[[i64; 2]]) -> Result<EdgeId, Fault> {
    let list: Vec<i64> = pads.iter().map(|pad| pad[0]).chain(pads.iter().map(|pad| pad[1])).collect();
    let list = tape.indices(&list);
    tape.binary("Pad", x, list)
}

/// `Slice`: between zeros, where it took every element from one on, else place by place.
pub(crate) fn slice(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let (x, g) = (step.input(0)?, step.gradient()?);
    let list = |index: usize| step.given(index).map(|edge| tape.sizes(edge)).transpose();
    let (starts, ends, axes, steps) = (tape.sizes(step.input(1)?)?, tape.sizes(step.input(2)?)?, list(3)?, list(4)?);
    let dims = tape.dims(x)?;
    let touched = match &axes {
        Some(axes) => meaning::axes(axes, dims.len())?,
        None => (0..starts.len()).collect(),
    };
    // What is not sliced may be any extent.
    let mut shape = vec![1; dims.len()];
    for axis in touched {
        shape[axis] = match dims.get(axis).map(|dim| dim.known()) {
            Some(Some(extent)) => extent,
            _ => return Err(step.lacks("along an extent that is not a number")),
        };
    }
    let slices = layout::slices(&shape, &starts, &ends, axes, steps)?;
    if slices.iter().any(|(_, step, count)| *step != 1 && *count > 1) {
        return by_places(tape, step);
    }
    let pad = |((begin, _, count), extent): (&(_, _, usize), &usize)| -> Result<[i64; 2], Fault> {
        let (begin, extent) = (wide(*begin)?, wide(*extent)?);
        Ok([begin, extent - begin - wide(*count)?])
    };
    // An empty slice begins anywhere.
    if slices.iter().any(|(.., count)| *count == 0) {
        return Ok(vec![Some(tape.zeros(x)?)]);
    }
    let pads = slices.iter().zip(&shape).map(pad).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![Some(padded(tape, g, &pads)?)])
}

fn wide(x: impl TryInto<i64>) -> Result<i64, Fault> {
    x.try_into().map_err(|_| Fault::Value("an extent is too long".to_owned()))
}

/// `Pad`: cut off. An element that the border repeats gets the sum of all its places.
pub(crate) fn pad(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    if step.node.attributes.text_or("mode", "constant") != "constant" {
        return by_places(tape, step);
    }
    let rank = tape.rank(step.input(0)?)?;
    let sizes = tape.sizes(step.input(1)?)?;
    let axes = match step.given(3) {
        Some(axes) => {
            let axes = tape.sizes(axes)?;
            axes.iter().map(|axis| meaning::axis(*axis, rank)).collect::<Result<Vec<_>, _>>()?
        }
        None => (0..rank).collect(),
    };
    let mut pads = vec![[0; 2]; rank];
    for (at, axis) in axes.iter().enumerate() {
        let [before, behind] = [at, axes.len() + at].map(|at| sizes.get(at).copied().unwrap_or(0));
        pads[*axis] = [-before, -behind];
    }
    Ok(vec![Some(padded(tape, step.gradient()?, &pads)?)])
}

/// `Split`: side by side again.
pub(crate) fn split(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let axis = meaning::axis(step.node.attributes.int_or("axis", 0), tape.rank(step.input(0)?)?)?;
    let mut parts = Vec::new();
    for (edge, gradient) in step.node.outputs.iter().zip(step.incoming) {
        parts.push(match gradient {
            Some(gradient) => *gradient,
            None => tape.zeros(*edge)?,
        });
    }
    Ok(vec![Some(tape.apply("Concat", &parts, Attributes::new().with("axis", axis as i64))?)])
}

/// `Concat`: a slice for each input.
pub(crate) fn concat(tape: &mut Tape, step: &Step<'_>) -> Found {
    let g = step.gradient()?;
    let axis = meaning::axis(step.node.attributes.int_or("axis", 0), tape.rank(g)?)?;
    let mut begin = 0i64;
    let mut found = Vec::new();
    for index in 0..step.node.inputs.len() {
        let part = step.input(index)?;
        let extent = tape.dims(part)?.get(axis).and_then(|dim| dim.known());
        let extent = wide(extent.ok_or_else(|| step.lacks("along an extent that is not a number"))?)?;
        found.push(if step.wants(index) {
            let lists = [begin, begin + extent, axis as i64].map(|number| tape.indices(&[number]));
            Some(tape.apply("Slice", &[g, lists[0], lists[1], lists[2]], Attributes::new())?)
        } else {
            None
        });
        begin += extent;
    }
    Ok(found)
}

/// `DepthToSpace` and `SpaceToDepth`: each turns the other back; channels that come first do so by axes.
pub(crate) fn blocks(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (of, g) = (&step.node.attributes, step.gradient()?);
    let b = of.int_or("blocksize", 1);
    let gathers = matches!(step.node.kind(), Kind::View(Moves::Blocks { gathers: true }));
    let size = Attributes::new().with("blocksize", b);
    Ok(vec![Some(match (gathers, of.text_or("mode", "DCR")) {
        (true, _) => tape.apply("DepthToSpace", &[g], size)?,
        (_, "CRD") => {
            let x = step.input(0)?;
            let shape: Vec<i64> = tape.shape(x)?.into_iter().map(|extent| extent as i64).collect();
            let [n, c, h, w] = shape[..] else { return Err(Fault::Shape("blocks are of images".to_owned())) };
            let split = tape.reshaped(g, &[n, c / (b * b), h, b, w, b])?;
            let turned = tape.turned(split, &[0, 1, 3, 5, 2, 4])?;
            tape.reshaped(turned, &[n, c, h, w])?
        }
        _ => tape.apply("SpaceToDepth", &[g], size)?,
    })])
}

/// `Tile`: the sum over the copies.
pub(crate) fn tile(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let (x, repeats) = (step.input(0)?, tape.sizes(step.input(1)?)?);
    let shape = tape.shape(x)?;
    let split: Vec<i64> = repeats.iter().zip(&shape).flat_map(|(times, extent)| [*times, *extent as i64]).collect();
    let copies: Vec<usize> = (0..shape.len()).map(|axis| 2 * axis).collect();
    let split = tape.reshaped(step.gradient()?, &split)?;
    let sum = tape.reduced("ReduceSum", split, &copies)?;
    Ok(vec![Some(tape.shaped(sum, x)?)])
}

/// `Trilu`: the same triangle.
pub(crate) fn trilu(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let inputs: Vec<Option<EdgeId>> = std::iter::once(Some(step.gradient()?)).chain(step.given(1).map(Some)).collect();
    Ok(vec![Some(tape.push(step.node.operator.clone(), inputs, step.node.attributes.clone(), 1)?[0])])
}

/// Operators that hand on elements from other places: the same operator on the places themselves says where each came from, and
/// gradients are added there.
pub(crate) fn by_places(tape: &mut Tape, step: &Step<'_>) -> Found {
    step.only(1)?;
    let (x, g) = (step.input(0)?, step.gradient()?);
    let shape = tape.shape(x)?;
    let count: usize = shape.iter().product();
    let places: Vec<i64> = (0..count as i64).collect();
    let places = tape.constant(Tensor::indices(&places).reshaped(&shape)?);
    let mut inputs = step.node.inputs.clone();
    inputs[0] = Some(places);
    let moved = tape.push(step.node.operator.clone(), inputs, step.node.attributes.clone(), 1)?[0];
    let (moved, flat) = (tape.reshaped(moved, &[-1])?, tape.reshaped(g, &[-1])?);
    let (format, flat) = (tape.format(x)?, tape.wide(flat)?);
    let wide = if format == Format::F64 { Format::F64 } else { Format::F32 };
    let zeros = tape.constant(Tensor::blank(wide, &[count])?);
    let add = Attributes::new().with("axis", 0i64).with("reduction", "add");
    let sum = tape.apply("ScatterElements", &[zeros, moved, flat], add)?;
    let sum = tape.shaped(sum, x)?;
    Ok(vec![Some(tape.cast(sum, format)?)])
}
