//! Operators that only move elements: views, and copies in another order.

use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::operator::Call;
use crate::network::tensor::{Tensor, dot, strides};

pub(crate) fn identity(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    Ok(vec![call.input(0)?.clone()])
}

/// The shape that `Reshape` asks for: 0 keeps an extent, -1 is what is left.
///
/// # Errors
/// If no such shape has as many elements.
pub(crate) fn reshaped(from: &[usize], to: &[i64], zero_is_empty: bool) -> Result<Vec<usize>, Fault> {
    let wrong = || Fault::Shape(format!("{from:?} cannot take the shape {to:?}"));
    let mut out = Vec::new();
    for (axis, extent) in to.iter().enumerate() {
        out.push(match extent {
            -1 => 1,
            0 if !zero_is_empty => *from.get(axis).ok_or_else(wrong)?,
            extent => usize::try_from(*extent).map_err(|_| wrong())?,
        });
    }
    let product = |shape: &[usize]| shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
    let (count, known) = (product(from).ok_or_else(wrong)?, product(&out).ok_or_else(wrong)?);
    let open: Vec<usize> = (0..to.len()).filter(|axis| to[*axis] == -1).collect();
    match open[..] {
        [] if count == known => Ok(out),
        [axis] if known > 0 && count.is_multiple_of(known) => {
            out[axis] = count / known;
            Ok(out)
        }
        _ => Err(wrong()),
    }
}

pub(crate) fn reshape(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, to) = (call.input(0)?, call.input(1)?.sizes());
    Ok(vec![x.reshaped(&reshaped(x.shape(), &to, call.attributes.flag("allowzero"))?)?])
}

pub(crate) fn flatten(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axis = flatten_axis(call.attributes.int_or("axis", 1), x.rank())?;
    let (before, behind) = x.shape().split_at(axis);
    Ok(vec![x.reshaped(&[before.iter().product(), behind.iter().product()])?])
}

/// The axis that splits a shape in two, which may lie behind the last.
pub(crate) fn flatten_axis(axis: i64, rank: usize) -> Result<usize, Fault> {
    if axis == rank as i64 { Ok(rank) } else { super::axis(axis, rank) }
}

/// The order of axes that `Transpose` asks for.
pub(crate) fn permutation(asked: Option<&[i64]>, rank: usize) -> Result<Vec<usize>, Fault> {
    let Some(asked) = asked else { return Ok((0..rank).rev().collect()) };
    let order: Vec<usize> = asked.iter().map(|a| super::axis(*a, rank)).collect::<Result<_, _>>()?;
    if (0..rank).all(|axis| order.contains(&axis)) && order.len() == rank {
        Ok(order)
    } else {
        Err(Fault::attribute("perm", format!("{asked:?} is no order of {rank} axes")))
    }
}

/// The order that undoes another one.
pub(crate) fn inverse(order: &[usize]) -> Vec<usize> {
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, from)| back[*from] = to);
    back
}

pub(crate) fn transpose(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let order = permutation(call.attributes.ints("perm"), x.rank())?;
    let own = strides(x.shape());
    let shape: Vec<usize> = order.iter().map(|axis| x.shape()[*axis]).collect();
    let steps: Vec<usize> = order.iter().map(|axis| own[*axis]).collect();
    Ok(vec![x.gathered(&shape, None, |index| Some(dot(index, &steps)))?])
}

/// The shape without some axes of extent 1, or without all of them.
pub(crate) fn squeezed(shape: &[usize], asked: Option<Vec<i64>>) -> Result<Vec<usize>, Fault> {
    let gone = match asked {
        Some(list) => super::axes(&list, shape.len())?,
        None => (0..shape.len()).filter(|axis| shape[*axis] == 1).collect(),
    };
    match gone.iter().find(|axis| shape[**axis] != 1) {
        Some(axis) => Err(Fault::Shape(format!("axis {axis} of {shape:?} is not 1, and cannot be squeezed"))),
        None => Ok((0..shape.len()).filter(|axis| !gone.contains(axis)).map(|axis| shape[axis]).collect()),
    }
}

pub(crate) fn squeeze(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    Ok(vec![x.reshaped(&squeezed(x.shape(), call.sizes(1))?)?])
}

pub(crate) fn unsqueeze(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let list = call.input(1)?.sizes();
    let rank = x.rank() + list.len();
    let new = super::axes(&list, rank)?;
    if new.len() != list.len() {
        return Err(Fault::Value(format!("axes {list:?} repeat")));
    }
    let mut rest = x.shape().iter();
    let shape: Vec<usize> =
        (0..rank).map(|axis| if new.contains(&axis) { 1 } else { rest.next().copied().unwrap_or(1) }).collect();
    Ok(vec![x.reshaped(&shape)?])
}

/// The tensors side by side along an axis.
pub(crate) fn joined(parts: &[&Tensor], axis: i64) -> Result<Tensor, Fault> {
    let Some(first) = parts.first() else { return Err(Fault::Shape("Concat takes one tensor or more".to_owned())) };
    let axis = super::axis(axis, first.rank())?;
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for part in parts {
        let mut same = part.shape().to_vec();
        let extent = same.get(axis).copied().unwrap_or(0);
        same.get_mut(axis).into_iter().for_each(|extent| *extent = first.shape()[axis]);
        if same != first.shape() || part.format() != first.format() {
            return Err(Fault::Shape(format!("{part} does not continue {first} along axis {axis}")));
        }
        shape[axis] += extent;
    }
    let [outer, _, inner] = super::around(&shape, axis);
    let mut bytes = Vec::new();
    for before in 0..outer {
        for part in parts {
            let line = part.shape()[axis] * inner * part.format().size();
            bytes.extend_from_slice(&part.bytes()[before * line..][..line]);
        }
    }
    Tensor::new(first.format(), &shape, bytes)
}

pub(crate) fn concat(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let parts: Vec<&Tensor> = call.inputs.iter().copied().flatten().collect();
    Ok(vec![joined(&parts, call.attributes.int_or("axis", 0))?])
}

/// A run of elements along an axis.
fn run(x: &Tensor, axis: usize, begin: usize, extent: usize) -> Result<Tensor, Fault> {
    let [outer, own, inner] = super::around(x.shape(), axis);
    let line = inner * x.format().size();
    let mut shape = x.shape().to_vec();
    shape[axis] = extent;
    let mut bytes = Vec::new();
    for before in 0..outer {
        bytes.extend_from_slice(&x.bytes()[(before * own + begin) * line..][..extent * line]);
    }
    Tensor::new(x.format(), &shape, bytes)
}

/// The extents of the parts of a split.
pub(crate) fn split_extents(extent: usize, asked: Option<Vec<i64>>, parts: usize) -> Result<Vec<usize>, Fault> {
    let list = match asked {
        Some(list) => list.iter().map(|x| usize::try_from(*x).unwrap_or(usize::MAX)).collect(),
        None => {
            let each = extent.div_ceil(parts.max(1));
            (0..parts).map(|part| each.min(extent.saturating_sub(part * each))).collect::<Vec<_>>()
        }
    };
    let sum = list.iter().try_fold(0usize, |a, b| a.checked_add(*b));
    if sum == Some(extent) && list.len() == parts {
        Ok(list)
    } else {
        Err(Fault::Shape(format!("{extent} elements do not split into {list:?} for {parts} outputs")))
    }
}

pub(crate) fn split(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axis = super::axis(call.attributes.int_or("axis", 0), x.rank())?;
    let mut begin = 0;
    let mut out = Vec::new();
    for extent in split_extents(x.shape()[axis], call.sizes(1), call.outputs)? {
        out.push(run(x, axis, begin, extent)?);
        begin += extent;
    }
    Ok(out)
}

/// Begin, step and count of a slice of each axis.
pub(crate) fn slices(
    shape: &[usize],
    starts: &[i64],
    ends: &[i64],
    axes: Option<Vec<i64>>,
    steps: Option<Vec<i64>>,
) -> Result<Vec<(i64, i64, usize)>, Fault> {
    let mut out: Vec<(i64, i64, usize)> = shape.iter().map(|extent| (0, 1, *extent)).collect();
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|len| *len != starts.len()) {
        return Err(Fault::Value("starts, ends, axes and steps of a slice differ in length".to_owned()));
    }
    for (i, axis) in axes.iter().enumerate() {
        let axis = super::axis(*axis, shape.len())?;
        let (extent, step) = (shape[axis] as i64, steps[i]);
        if step == 0 {
            return Err(Fault::Value("a slice has a step of 0".to_owned()));
        }
        let wrap = |x: i64| if x < 0 { x.saturating_add(extent) } else { x };
        let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
        let begin = wrap(starts[i]).clamp(low.max(0), high.max(0));
        let begin = if step > 0 { begin.min(extent) } else { begin };
        let end = wrap(ends[i]).clamp(low, high.max(low));
        let count = if step > 0 {
            (end - begin).max(0).div_euclid(step) + i64::from((end - begin).max(0) % step != 0)
        } else if extent == 0 {
            0
        } else {
            let back = step.checked_neg().unwrap_or(i64::MAX);
            (begin - end).max(0) / back + i64::from((begin - end).max(0) % back != 0)
        };
        out[axis] = (begin, step, usize::try_from(count).unwrap_or(0));
    }
    Ok(out)
}

pub(crate) fn slice(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let (starts, ends) = (call.input(1)?.sizes(), call.input(2)?.sizes());
    let slices = slices(x.shape(), &starts, &ends, call.sizes(3), call.sizes(4))?;
    let shape: Vec<usize> = slices.iter().map(|(.., count)| *count).collect();
    let own = strides(x.shape());
    let place = |index: &[usize]| {
        let along = |axis: usize| (slices[axis].0 + index[axis] as i64 * slices[axis].1) as usize * own[axis];
        (0..index.len()).map(along).sum()
    };
    Ok(vec![x.gathered(&shape, None, |index| Some(place(index)))?])
}

pub(crate) fn expand(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, to) = (call.input(0)?, call.input(1)?.sizes());
    let to: Vec<usize> = to.iter().map(|x| usize::try_from(*x).unwrap_or(usize::MAX)).collect();
    let shape = crate::network::types::broadcast_shapes([x.shape(), &to])?;
    Ok(vec![x.broadcast(&shape)?])
}

pub(crate) fn tile(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, times) = (call.input(0)?, call.input(1)?.sizes());
    let wrong = || Fault::Value(format!("{times:?} is no number of copies for each axis of {x}"));
    if times.len() != x.rank() {
        return Err(wrong());
    }
    let own = strides(x.shape());
    let mut shape = Vec::new();
    for (extent, times) in x.shape().iter().zip(&times) {
        shape.push(usize::try_from(*times).ok().and_then(|times| extent.checked_mul(times)).ok_or_else(wrong)?);
    }
    let place = |index: &[usize]| (0..index.len()).map(|a| index[a] % x.shape()[a] * own[a]).sum();
    Ok(vec![x.gathered(&shape, None, |index| Some(place(index)))?])
}

/// Where a padded index comes from along an axis.
fn padded_from(at: i64, extent: i64, mode: &str) -> Option<i64> {
    match mode {
        _ if (0..extent).contains(&at) => Some(at),
        _ if extent == 0 => None,
        "edge" => Some(at.clamp(0, extent - 1)),
        "wrap" => Some(at.rem_euclid(extent)),
        "reflect" if extent == 1 => Some(0),
        "reflect" => {
            let period = 2 * (extent - 1);
            let folded = at.rem_euclid(period);
            Some(folded.min(period - folded))
        }
        _ => None,
    }
}

pub(crate) fn pad(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, pads) = (call.input(0)?, call.input(1)?.sizes());
    let axes = match call.sizes(3) {
        Some(list) => list.iter().map(|a| super::axis(*a, x.rank())).collect::<Result<Vec<_>, _>>()?,
        None => (0..x.rank()).collect(),
    };
    let mode = call.attributes.text_or("mode", "constant");
    if pads.len() != 2 * axes.len() || !["constant", "edge", "reflect", "wrap"].contains(&mode) {
        return Err(Fault::Value(format!("pads {pads:?} in mode `{mode}` do not fit {x}")));
    }
    let mut before = vec![0i64; x.rank()];
    let mut shape = x.shape().to_vec();
    for (i, axis) in axes.iter().enumerate() {
        let extent = (shape[*axis] as i64).checked_add(pads[i]).and_then(|e| e.checked_add(pads[axes.len() + i]));
        before[*axis] = pads[i];
        shape[*axis] =
            extent.and_then(|extent| usize::try_from(extent).ok()).ok_or_else(|| Fault::Value(format!("pads {pads:?}")))?;
    }
    let own = strides(x.shape());
    let place = |index: &[usize]| {
        let mut offset = 0;
        for axis in 0..index.len() {
            let extent = x.shape()[axis] as i64;
            offset += padded_from(index[axis] as i64 - before[axis], extent, mode)? as usize * own[axis];
        }
        Some(offset)
    };
    let filling = call.get(2).filter(|t| t.len() == 1 && t.format() == x.format());
    Ok(vec![x.gathered(&shape, filling, place)?])
}

/// `DepthToSpace` and `SpaceToDepth`: channels become blocks of pixels, and back.
pub(crate) fn depth_to_space(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    blocks(call, true)
}

pub(crate) fn space_to_depth(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    blocks(call, false)
}

fn blocks(call: &Call<'_>, to_space: bool) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let b = usize::try_from(call.attributes.int_or("blocksize", 0)).unwrap_or(0);
    let &[n, c, h, w] = x.shape() else { return Err(Fault::Shape(format!("{x} is not a batch of images"))) };
    let divides =
        b > 0 && b < 1 << 20 && if to_space { c.is_multiple_of(b * b) } else { h.is_multiple_of(b) && w.is_multiple_of(b) };
    if !divides {
        return Err(Fault::attribute("blocksize", format!("divides no axes of {x}")));
    }
    let own = strides(x.shape());
    let by_columns = call.attributes.text_or("mode", "DCR") == "CRD";
    if to_space {
        let depth = c / (b * b);
        let place = |i: &[usize]| {
            let (row, column) = (i[2] % b, i[3] % b);
            let channel = if by_columns { i[1] * b * b + row * b + column } else { (row * b + column) * depth + i[1] };
            dot(&[i[0], channel, i[2] / b, i[3] / b], &own)
        };
        return Ok(vec![x.gathered(&[n, depth, h * b, w * b], None, |index| Some(place(index)))?]);
    }
    let place = |i: &[usize]| {
        let (block, channel) = (i[1] / c.max(1), i[1] % c.max(1));
        dot(&[i[0], channel, i[2] * b + block / b, i[3] * b + block % b], &own)
    };
    Ok(vec![x.gathered(&[n, c * b * b, h / b, w / b], None, |index| Some(place(index)))?])
}

/// `Shape`: extents, from `start` to `end`.
pub(crate) fn shape_of(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let extents: Vec<i64> = x.shape().iter().map(|extent| *extent as i64).collect();
    let (start, end) = shape_range(call.attributes, x.rank());
    Ok(vec![Tensor::indices(extents.get(start..end.max(start)).unwrap_or_default())])
}

/// The axes that `Shape` tells of.
pub(crate) fn shape_range(attributes: &crate::network::Attributes, rank: usize) -> (usize, usize) {
    let limit = |x: i64| (if x < 0 { x + rank as i64 } else { x }).clamp(0, rank as i64) as usize;
    (limit(attributes.int_or("start", 0)), limit(attributes.int_or("end", rank as i64)))
}

pub(crate) fn size_of(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let count = call.input(0)?.len() as i128;
    Ok(vec![Tensor::of_integers(Format::I64, &[], &[count])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Attributes;

    #[test]
    fn blocks_divide_what_they_are_made_of() {
        let x = Tensor::of_numbers(Format::F32, &[1, 8, 4, 6], &(0..192).map(f64::from).collect::<Vec<_>>()).unwrap();
        let shape = |size: i64, to_space: bool| {
            let attributes = Attributes::new().with("blocksize", size);
            let call = Call { name: "", attributes: &attributes, inputs: &[Some(&x)], outputs: 1 };
            blocks(&call, to_space).ok().map(|out| out[0].shape().to_vec())
        };
        assert_eq!(shape(2, true), Some(vec![1, 2, 8, 12]));
        assert_eq!(shape(2, false), Some(vec![1, 32, 2, 3]));
        assert_eq!((shape(1, true), shape(1, false)), (Some(vec![1, 8, 4, 6]), Some(vec![1, 8, 4, 6])));
        // Not of whole blocks along one axis, along the other, and no blocks.
        for size in [4, 3, 0, -2, 1 << 20, 1 << 40] {
            assert_eq!((shape(size, true), shape(size, false)), (None, None), "{size}");
        }
    }
}
