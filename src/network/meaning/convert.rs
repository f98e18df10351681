//! Conversions of formats, and pointwise operators whose meaning on the CPU covers more than their expression.

use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::operator::Call;
use crate::network::operator::pointwise::{self, named_format};
use crate::network::tensor::Tensor;

/// What a number becomes in a format. An integer takes the whole part, as C does; without saturation a number of eight
/// bits that is too large becomes infinite, or not a number.
fn converted(x: f64, to: Format, saturate: bool) -> f64 {
    match to {
        _ if to.is_integer() => x.trunc(),
        Format::E4M3 if !saturate && x.abs() > 464.0 => f64::NAN,
        Format::E5M2 if !saturate && x.abs() >= 61440.0 => f64::INFINITY.copysign(x),
        _ => x,
    }
}

/// A tensor in another format, as `Cast` converts.
///
/// # Errors
/// If the result is too large.
pub(crate) fn as_format(x: &Tensor, to: Format, saturate: bool) -> Result<Tensor, Fault> {
    let from = x.format();
    if from == to {
        return Ok(x.clone());
    }
    if !from.is_float() && !to.is_float() {
        return Tensor::of_integers(to, x.shape(), &x.integers());
    }
    let mut out = Tensor::blank(to, x.shape())?;
    let bytes = out.bytes_mut();
    for (i, x) in x.numbers().into_iter().enumerate() {
        let x = converted(x, to, saturate);
        // An infinity has no other spelling in a store that saturates.
        match to {
            Format::E5M2 if x.is_infinite() && !saturate => bytes[i] = if x > 0.0 { 0x7c } else { 0xfc },
            _ if to.is_integer() && x.is_nan() => to.write_integer(bytes, i, 0),
            _ if to.is_integer() => to.write_integer(bytes, i, x as i128),
            _ => to.write(bytes, i, x),
        }
    }
    Ok(out)
}

/// `Cast` and `CastLike`.
pub(crate) fn cast(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let to = match call.get(1) {
        Some(like) => like.format(),
        None => named_format(call.attributes, "to")?,
    };
    Ok(vec![as_format(call.input(0)?, to, call.attributes.int_or("saturate", 1) != 0)?])
}

/// `BitCast`: the same bits in a format of the same size.
pub(crate) fn bit_cast(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, to) = (call.input(0)?, named_format(call.attributes, "to")?);
    if to.size() != x.format().size() {
        return Err(Fault::Format(format!("the bits of {} are not those of {to}", x.format())));
    }
    Ok(vec![Tensor::new(to, x.shape(), x.bytes().to_vec())?])
}

/// `Pow`: in `f64`, if one of both is an integer and the other is not, or neither kernels nor integers have it.
pub(crate) fn pow(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, y) = (call.input(0)?, call.input(1)?);
    if x.format() == y.format() {
        return pointwise::meaning(call);
    }
    let (wide_x, wide_y) = (as_format(x, Format::F64, true)?, as_format(y, Format::F64, true)?);
    let inputs = [Some(&wide_x), Some(&wide_y)];
    let power = pointwise::meaning(&Call { inputs: &inputs, ..*call })?;
    Ok(vec![as_format(&power[0], x.format(), true)?])
}

/// `Clip`: integers take the range of their format for a bound that is left out.
pub(crate) fn clip(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    if x.format().is_float() {
        return pointwise::meaning(call);
    }
    let (least, most) = x.format().range();
    let bound = |index: usize, other: i128| call.get(index).and_then(|t| t.integers().first().copied()).unwrap_or(other);
    let (low, high) = (bound(1, least), bound(2, most));
    let clipped: Vec<i128> = x.integers().into_iter().map(|x| x.max(low).min(high)).collect();
    Ok(vec![Tensor::of_integers(x.format(), x.shape(), &clipped)?])
}

/// `Dropout` of inference: `x` and a mask of ones.
pub(crate) fn dropout(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let training = call.get(2).and_then(Tensor::only).is_some_and(|x| x != 0.0);
    let ratio = call.get(1).and_then(Tensor::only).unwrap_or(0.5);
    if training && ratio != 0.0 {
        return Err(Fault::Unsupported("Dropout in training, which takes random numbers,".to_owned()));
    }
    let mut out = vec![x.clone()];
    if call.outputs > 1 {
        out.push(Tensor::of_numbers(Format::Bool, x.shape(), &vec![1.0; x.len()])?);
    }
    Ok(out)
}

/// `BatchNormalization` of inference.
pub(crate) fn batch_norm(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    if call.attributes.flag("training_mode") {
        return Err(Fault::Unsupported("BatchNormalization in training".to_owned()));
    }
    pointwise::meaning(call)
}

/// One number of a scale for each element of `x`: one for all, one along an axis, or one for each block of it.
fn spread(x: &Tensor, scale: &Tensor, axis: i64, block: i64) -> Result<Tensor, Fault> {
    if scale.len() == 1 {
        return scale.reshaped(&vec![1; x.rank()])?.broadcast(x.shape());
    }
    let axis = super::axis(axis, x.rank())?;
    if scale.rank() == 1 && block <= 0 {
        let mut shape = vec![1; x.rank()];
        shape[axis] = scale.len();
        return if scale.len() == x.shape()[axis] { scale.reshaped(&shape)?.broadcast(x.shape()) } else { Err(misfit(x, scale)) };
    }
    let agree = (0..x.rank()).all(|other| scale.shape().get(other).is_some_and(|s| other == axis || *s == x.shape()[other]));
    if scale.rank() != x.rank() || !agree || scale.is_empty() {
        return Err(misfit(x, scale));
    }
    let block = if block > 0 { block as usize } else { x.shape()[axis].div_ceil(scale.shape()[axis]) };
    if x.shape()[axis].div_ceil(block.max(1)) != scale.shape()[axis] {
        return Err(misfit(x, scale));
    }
    let strides = crate::network::tensor::strides(scale.shape());
    scale.gathered(x.shape(), None, |index| {
        Some((0..index.len()).map(|a| if a == axis { index[a] / block } else { index[a] } * strides[a]).sum())
    })
}

fn misfit(x: &Tensor, scale: &Tensor) -> Fault {
    Fault::Shape(format!("a scale {scale} fits no axis and no blocks of {x}"))
}

/// `QuantizeLinear`.
pub(crate) fn quantize(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    let (axis, block) = (call.attributes.int_or("axis", 1), call.attributes.int_or("block_size", 0));
    let to = match call.get(2) {
        Some(zero) => zero.format(),
        None if call.attributes.get("output_dtype").is_some() => named_format(call.attributes, "output_dtype")?,
        None => Format::U8,
    };
    let scale = spread(x, scale, axis, block)?.numbers();
    let zero = call.get(2).map(|zero| spread(x, zero, axis, block)).transpose()?.map(|zero| zero.numbers());
    let saturate = call.attributes.int_or("saturate", 1) != 0;
    let quantized = |(i, x): (usize, f64)| {
        let quotient = x / scale[i];
        let zero = zero.as_ref().map_or(0.0, |zero| zero[i]);
        if to.is_float() { quotient + zero } else { quotient.round_ties_even() + zero }
    };
    let numbers: Vec<f64> = x.numbers().into_iter().enumerate().map(quantized).collect();
    let quantized = if to.is_float() {
        as_format(&Tensor::of_numbers(Format::F32, x.shape(), &numbers)?, to, saturate)?
    } else {
        Tensor::of_numbers(to, x.shape(), &numbers)?
    };
    Ok(vec![quantized])
}

/// `DequantizeLinear`.
pub(crate) fn dequantize(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    let (axis, block) = (call.attributes.int_or("axis", 1), call.attributes.int_or("block_size", 0));
    let to = match call.attributes.get("output_dtype") {
        Some(_) => named_format(call.attributes, "output_dtype")?,
        None => scale.format(),
    };
    let scale = spread(x, scale, axis, block)?.numbers();
    let zero = call.get(2).map(|zero| spread(x, zero, axis, block)).transpose()?.map(|zero| zero.numbers());
    let real = |(i, x): (usize, f64)| (x - zero.as_ref().map_or(0.0, |zero| zero[i])) * scale[i];
    let numbers: Vec<f64> = x.numbers().into_iter().enumerate().map(real).collect();
    Ok(vec![Tensor::of_numbers(to, x.shape(), &numbers)?])
}

/// `DynamicQuantizeLinear`: to `u8`, with the scale and zero point that the smallest and largest element ask for.
pub(crate) fn dynamic_quantize(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let numbers: Vec<f32> = x.numbers().into_iter().map(|x| x as f32).collect();
    // In `f32`, as the scale and every quotient are.
    let (low, high) = numbers.iter().fold((0.0f32, 0.0f32), |(low, high), x| (low.min(*x), high.max(*x)));
    let scale = (high - low) / 255.0;
    let divisor = if scale == 0.0 { 1.0 } else { scale };
    let zero = (-low / divisor).round_ties_even().clamp(0.0, 255.0);
    let quantized: Vec<f64> = numbers.iter().map(|x| f64::from((x / divisor).round_ties_even() + zero)).collect();
    let (scale, zero) = (f64::from(scale), f64::from(zero));
    Ok(vec![
        Tensor::of_numbers(Format::U8, x.shape(), &quantized)?,
        Tensor::scalar(Format::F32, scale),
        Tensor::scalar(Format::U8, zero),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `Cast` makes of numbers in a format.
    fn cast(to: Format, saturate: bool, numbers: &[f64]) -> Vec<f64> {
        let x = Tensor::of_numbers(Format::F64, &[numbers.len()], numbers).unwrap();
        as_format(&x, to, saturate).unwrap().numbers()
    }

    #[test]
    fn a_truth_is_what_is_not_zero() {
        assert_eq!(cast(Format::Bool, true, &[0.0, -0.0, 0.25, -3.0, f64::NAN]), [0.0, 0.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn integers_are_whole_parts() {
        assert_eq!(cast(Format::I32, true, &[2.75, -2.75, 0.5, f64::NAN]), [2.0, -2.0, 0.0, 0.0]);
        for to in Format::ALL.into_iter().filter(|to| !to.is_float() && *to != Format::Bool) {
            assert!(to.is_integer());
            assert_eq!(cast(to, true, &[2.75, 0.5, f64::NAN]), [2.0, 0.0, 0.0], "{to}");
        }
        // A number that is too large loses its upper bits, as in C.
        assert_eq!(cast(Format::I8, true, &[300.7, -129.5]), [44.0, 127.0]);
        assert_eq!(cast(Format::U8, true, &[300.7, -1.0]), [44.0, 255.0]);
        assert_eq!(cast(Format::I16, true, &[70_000.9]), [4464.0]);
    }

    #[test]
    fn what_eight_bits_do_not_hold_is_the_largest_or_no_number() {
        assert_eq!(cast(Format::E4M3, true, &[464.0, 465.0, -1e9]), [448.0, 448.0, -448.0]);
        let open = cast(Format::E4M3, false, &[464.0, -464.0, 464.5, -1e9]);
        assert_eq!(open[..2], [448.0, -448.0]);
        assert!(open[2..].iter().all(|x| x.is_nan()), "{open:?}");
        assert_eq!(cast(Format::E5M2, true, &[61440.0, -1e9]), [57344.0, -57344.0]);
        let open = cast(Format::E5M2, false, &[61439.0, 61440.0, -61440.0]);
        assert_eq!(open, [57344.0, f64::INFINITY, f64::NEG_INFINITY]);
    }
}
