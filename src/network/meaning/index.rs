//! Operators that take indices, and those that make tensors of numbers.

use crate::network::attribute::Attribute;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::operator::Call;
use crate::network::operator::pointwise::named_format;
use crate::network::tensor::{Tensor, count, dot, for_each_index, strides};

/// An index that may be counted from the end.
fn wrapped(index: i128, extent: usize) -> Result<usize, Fault> {
    let at = if index < 0 { index + extent as i128 } else { index };
    let at = usize::try_from(at).ok().filter(|at| *at < extent);
    at.ok_or_else(|| Fault::Value(format!("index {index} lies outside {extent} elements")))
}

/// `Gather`: whole slices along an axis.
pub(crate) fn gather(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let axis = super::axis(call.attributes.int_or("axis", 0), x.rank())?;
    let [outer, extent, inner] = super::around(x.shape(), axis);
    let places: Vec<usize> = indices.integers().into_iter().map(|i| wrapped(i, extent)).collect::<Result<_, _>>()?;
    let shape: Vec<usize> = x.shape()[..axis].iter().chain(indices.shape()).chain(&x.shape()[axis + 1..]).copied().collect();
    count(x.format(), &shape)?;
    let line = inner * x.format().size();
    let mut bytes = Vec::new();
    for before in 0..outer {
        places.iter().for_each(|at| bytes.extend_from_slice(&x.bytes()[(before * extent + at) * line..][..line]));
    }
    Ok(vec![Tensor::new(x.format(), &shape, bytes)?])
}

/// `GatherElements`: one element for each index.
pub(crate) fn gather_elements(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let places = element_places(x, indices, call.attributes.int_or("axis", 0))?;
    let mut places = places.into_iter();
    Ok(vec![x.gathered(indices.shape(), None, |_| places.next())?])
}

/// The offset in `x` of the element that each index names along an axis.
fn element_places(x: &Tensor, indices: &Tensor, axis: i64) -> Result<Vec<usize>, Fault> {
    let axis = super::axis(axis, x.rank())?;
    let inside = indices.shape().iter().zip(x.shape()).enumerate().all(|(a, (i, extent))| a == axis || i <= extent);
    if indices.rank() != x.rank() || !inside {
        return Err(Fault::Shape(format!("indices {indices} do not fit {x}")));
    }
    let own = strides(x.shape());
    let mut list = indices.integers().into_iter();
    let mut places = Vec::new();
    let mut fault = None;
    for_each_index(indices.shape(), |index| {
        let mut at = index.to_vec();
        match wrapped(list.next().unwrap_or(0), x.shape()[axis]) {
            Ok(place) => at[axis] = place,
            Err(error) => fault = Some(error),
        }
        places.push(dot(&at, &own));
    });
    fault.map_or(Ok(places), Err)
}

/// The offset in `x` of the slice that each row of indices names, the slices' shape, and how many leading axes agree.
fn slice_places(x: &Tensor, indices: &Tensor, batch: usize) -> Result<(Vec<usize>, usize), Fault> {
    let depth = indices.shape().last().copied().unwrap_or(0);
    let fits = indices.rank() > batch && batch + depth <= x.rank() && indices.shape()[..batch] == x.shape()[..batch];
    if !fits {
        return Err(Fault::Shape(format!("indices {indices} do not fit {x}")));
    }
    let own = strides(x.shape());
    let list = indices.integers();
    let rows = &indices.shape()[..indices.rank() - 1];
    let mut places = Vec::new();
    let mut fault = None;
    let mut row = 0;
    for_each_index(rows, |index| {
        let mut offset = dot(&index[..batch], &own);
        for (i, at) in list[row * depth..(row + 1) * depth].iter().enumerate() {
            match wrapped(*at, x.shape()[batch + i]) {
                Ok(at) => offset += at * own[batch + i],
                Err(error) => fault = Some(error),
            }
        }
        places.push(offset);
        row += 1;
    });
    fault.map_or(Ok((places, batch + depth)), Err)
}

/// `GatherND`: a slice for each row of indices.
pub(crate) fn gather_nd(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let batch = usize::try_from(call.attributes.int_or("batch_dims", 0)).unwrap_or(usize::MAX).min(x.rank());
    let (places, taken) = slice_places(x, indices, batch)?;
    let slice: usize = x.shape()[taken..].iter().product();
    let shape: Vec<usize> = indices.shape()[..indices.rank() - 1].iter().chain(&x.shape()[taken..]).copied().collect();
    let size = x.format().size();
    let bytes = places.iter().flat_map(|at| x.bytes()[at * size..(at + slice) * size].iter().copied()).collect();
    Ok(vec![Tensor::new(x.format(), &shape, bytes)?])
}

/// How an update meets what is there.
fn combine(mode: &str, old: f64, new: f64) -> Result<f64, Fault> {
    Ok(match mode {
        "none" => new,
        "add" => old + new,
        "mul" => old * new,
        "max" => old.max(new),
        "min" => old.min(new),
        other => return Err(Fault::attribute("reduction", format!("has no value `{other}`"))),
    })
}

/// `x` with updates at some places.
fn scattered(call: &Call<'_>, x: &Tensor, places: &[usize], updates: &Tensor) -> Result<Vec<Tensor>, Fault> {
    if updates.len() != places.len() || updates.format() != x.format() {
        return Err(Fault::Shape(format!("updates {updates} are not one for each of {} places in {x}", places.len())));
    }
    let mode = call.attributes.text_or("reduction", "none");
    let mut out = x.clone();
    let (format, size) = (x.format(), x.format().size());
    let bytes = out.bytes_mut();
    for (i, place) in places.iter().enumerate() {
        if mode == "none" {
            bytes[place * size..][..size].copy_from_slice(&updates.bytes()[i * size..][..size]);
        } else {
            let value = combine(mode, format.read(bytes, *place), format.read(updates.bytes(), i))?;
            format.write(bytes, *place, value);
        }
    }
    Ok(vec![out])
}

/// `ScatterElements`.
pub(crate) fn scatter_elements(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let places = element_places(x, indices, call.attributes.int_or("axis", 0))?;
    scattered(call, x, &places, call.input(2)?)
}

/// `ScatterND`.
pub(crate) fn scatter_nd(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let (places, taken) = slice_places(x, indices, 0)?;
    let slice: usize = x.shape()[taken..].iter().product();
    let all: Vec<usize> = places.iter().flat_map(|at| *at..at + slice).collect();
    scattered(call, x, &all, call.input(2)?)
}

/// `Constant`: the tensor, number or list of an attribute.
pub(crate) fn constant(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let value = call.attributes.iter().next().map(|(_, value)| value);
    Ok(vec![match value {
        Some(Attribute::Tensor(tensor)) => tensor.clone(),
        Some(Attribute::Int(x)) => Tensor::of_integers(Format::I64, &[], &[(*x).into()])?,
        Some(Attribute::Float(x)) => Tensor::scalar(Format::F32, f64::from(*x)),
        Some(Attribute::Ints(list)) => Tensor::indices(list),
        Some(Attribute::Floats(list)) => Tensor::of(list, &[list.len()])?,
        _ => return Err(Fault::attribute("value", "is no tensor, number or list of numbers")),
    }])
}

/// A shape in an input.
fn asked_shape(list: &[i64]) -> Result<Vec<usize>, Fault> {
    let extents: Result<Vec<usize>, _> = list.iter().map(|x| usize::try_from(*x)).collect();
    extents.map_err(|_| Fault::Value(format!("{list:?} is no shape")))
}

/// `ConstantOfShape`.
pub(crate) fn constant_of_shape(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let shape = asked_shape(&call.input(0)?.sizes())?;
    let zero = Tensor::scalar(Format::F32, 0.0);
    let value = call.attributes.tensor("value").unwrap_or(&zero);
    if value.len() != 1 {
        return Err(Fault::attribute("value", "has one element"));
    }
    let elements = count(value.format(), &shape)?;
    Ok(vec![Tensor::new(value.format(), &shape, value.bytes().repeat(elements))?])
}

/// `Range`: from a start, by a step, up to a limit.
pub(crate) fn range(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let number = |i: usize| call.input(i)?.only().ok_or_else(|| Fault::Value("a bound of a range is one number".to_owned()));
    let (start, limit, step) = (number(0)?, number(1)?, number(2)?);
    let length = ((limit - start) / step).ceil();
    let length = if length.is_finite() && length > 0.0 { length as usize } else { 0 };
    let format = call.input(0)?.format();
    count(format, &[length])?;
    let numbers: Vec<f64> = (0..length).map(|i| start + i as f64 * step).collect();
    Ok(vec![Tensor::of_numbers(format, &[length], &numbers)?])
}

/// `OneHot`.
pub(crate) fn one_hot(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (indices, values) = (call.input(0)?, call.input(2)?);
    let depth =
        call.input(1)?.only().filter(|x| *x >= 0.0).ok_or_else(|| Fault::Value("a depth is one number".to_owned()))? as usize;
    let axis = super::axis(call.attributes.int_or("axis", -1), indices.rank() + 1)?;
    if values.len() != 2 {
        return Err(Fault::Shape("values are two: off and on".to_owned()));
    }
    let mut shape = indices.shape().to_vec();
    shape.insert(axis, depth);
    let own = strides(indices.shape());
    let list = indices.integers();
    let on = |index: &[usize]| {
        let rest: Vec<usize> = (0..index.len()).filter(|a| *a != axis).map(|a| index[a]).collect();
        let asked = list[dot(&rest, &own)];
        let asked = if asked < 0 { asked + depth as i128 } else { asked };
        usize::from(asked == index[axis] as i128)
    };
    Ok(vec![values.gathered(&shape, None, |index| Some(on(index)))?])
}

/// `Trilu`: the triangle above or below a diagonal of each matrix; the rest is 0.
pub(crate) fn trilu(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    if x.rank() < 2 {
        return Err(Fault::Shape(format!("{x} is not a matrix")));
    }
    let k = call.sizes(1).and_then(|k| k.first().copied()).unwrap_or(0);
    let upper = call.attributes.int_or("upper", 1) != 0;
    let own = strides(x.shape());
    let kept = |index: &[usize]| {
        let (row, column) = (index[x.rank() - 2] as i64, index[x.rank() - 1] as i64);
        let above = column.saturating_sub(row);
        let inside = if upper { above >= k } else { above <= k };
        inside.then(|| dot(index, &own))
    };
    Ok(vec![x.gathered(x.shape(), None, kept)?])
}

/// `EyeLike`: ones along a diagonal.
pub(crate) fn eye_like(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let &[rows, columns] = x.shape() else { return Err(Fault::Shape(format!("{x} is not a matrix"))) };
    let format = if call.attributes.get("dtype").is_some() { named_format(call.attributes, "dtype")? } else { x.format() };
    let k = call.attributes.int_or("k", 0);
    let one = |i: usize| f64::from(u8::from((i % columns) as i64 - (i / columns) as i64 == k));
    let numbers: Vec<f64> = (0..rows * columns).map(one).collect();
    Ok(vec![Tensor::of_numbers(format, &[rows, columns], &numbers)?])
}

/// `NonZero`: the indices of elements that are not 0, a column each.
pub(crate) fn non_zero(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let numbers = x.numbers();
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut at = 0;
    for_each_index(x.shape(), |index| {
        if numbers[at] != 0.0 {
            found.push(index.to_vec());
        }
        at += 1;
    });
    let rank = x.rank().max(1);
    let indices: Vec<i128> =
        (0..rank).flat_map(|axis| found.iter().map(move |index| index.get(axis).copied().unwrap_or(0) as i128)).collect();
    Ok(vec![Tensor::of_integers(Format::I64, &[rank, found.len()], &indices)?])
}

/// `Compress`: the slices along an axis for which a condition holds.
pub(crate) fn compress(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, condition) = (call.input(0)?, call.input(1)?);
    let (x, axis) = match call.attributes.int("axis") {
        Some(axis) => (x.clone(), super::axis(axis, x.rank())?),
        None => (x.reshaped(&[x.len()])?, 0),
    };
    let kept = condition.integers().into_iter().enumerate().filter(|(i, on)| *on != 0 && *i < x.shape()[axis]);
    let kept: Vec<i64> = kept.map(|(i, _)| i as i64).collect();
    let indices = Tensor::indices(&kept);
    let inputs = [Some(&x), Some(&indices)];
    let attributes = crate::network::Attributes::new().with("axis", axis as i64);
    gather(&Call { inputs: &inputs, attributes: &attributes, ..*call })
}

/// `ReverseSequence`: the first elements of each batch entry in reverse order.
pub(crate) fn reverse_sequence(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, lengths) = (call.input(0)?, call.input(1)?.sizes());
    let batch = super::axis(call.attributes.int_or("batch_axis", 1), x.rank())?;
    let time = super::axis(call.attributes.int_or("time_axis", 0), x.rank())?;
    let fits = lengths.len() == x.shape()[batch] && lengths.iter().all(|n| (0..=x.shape()[time] as i64).contains(n));
    if !fits {
        return Err(Fault::Value(format!("lengths {lengths:?} do not fit {x}")));
    }
    let own = strides(x.shape());
    let place = |index: &[usize]| {
        let (at, length) = (index[time], lengths[index[batch]] as usize);
        let from = if at < length { length - 1 - at } else { at };
        dot(index, &own) - at * own[time] + from * own[time]
    };
    Ok(vec![x.gathered(x.shape(), None, |index| Some(place(index)))?])
}
