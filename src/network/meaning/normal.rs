//! Functions of whole rows: softmax and norms.

use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::operator::Call;
use crate::network::tensor::Tensor;
use crate::network::types::broadcast_shapes;

/// Applies a function to every row along an axis.
fn along(call: &Call<'_>, axis: i64, each: impl Fn(&mut [f64])) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axis = super::axis(axis, x.rank())?;
    let [outer, extent, inner] = super::around(x.shape(), axis);
    let mut numbers = x.numbers();
    let mut row = vec![0.0; extent];
    for before in 0..outer {
        for behind in 0..inner {
            let at = |i: usize| (before * extent + i) * inner + behind;
            row.iter_mut().enumerate().for_each(|(i, x)| *x = numbers[at(i)]);
            each(&mut row);
            row.iter().enumerate().for_each(|(i, x)| numbers[at(i)] = *x);
        }
    }
    Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &numbers)?])
}

fn largest(row: &[f64]) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// e^x over the sum of all, in place.
pub(crate) fn softmax_row(row: &mut [f64]) {
    let top = largest(row);
    row.iter_mut().for_each(|x| *x = (*x - top).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= sum);
}

pub(crate) fn softmax(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    along(call, call.attributes.int_or("axis", -1), softmax_row)
}

pub(crate) fn log_softmax(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    along(call, call.attributes.int_or("axis", -1), |row| {
        let top = largest(row);
        let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
        row.iter_mut().for_each(|x| *x -= top + sum.ln());
    })
}

/// 1 at the first largest element, else 0.
pub(crate) fn hardmax(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    along(call, call.attributes.int_or("axis", -1), |row| {
        let top = largest(row);
        let first = row.iter().position(|x| *x == top);
        row.iter_mut().enumerate().for_each(|(i, x)| *x = f64::from(u8::from(Some(i) == first)));
    })
}

/// `LpNormalization`.
pub(crate) fn lp_normalization(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let p = call.attributes.int_or("p", 2);
    along(call, call.attributes.int_or("axis", -1), |row| {
        let norm = match p {
            1 => row.iter().map(|x| x.abs()).sum::<f64>(),
            _ => row.iter().map(|x| x * x).sum::<f64>().sqrt(),
        };
        row.iter_mut().for_each(|x| *x = if norm == 0.0 { 0.0 } else { *x / norm });
    })
}

/// Mean and one over the standard deviation.
fn moments(row: &[f64], epsilon: f64) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    (mean, 1.0 / (variance + epsilon).sqrt())
}

/// The shape of one number a row, with axes of extent 1 behind `axis`.
fn per_row(shape: &[usize], axis: usize) -> Vec<usize> {
    shape.iter().enumerate().map(|(i, extent)| if i < axis { *extent } else { 1 }).collect()
}

/// Times a scale, and plus a bias, that broadcast.
fn scaled(x: &Tensor, numbers: &mut [f64], scale: Option<&Tensor>, bias: Option<&Tensor>) -> Result<(), Fault> {
    for (operand, adds) in [(scale, false), (bias, true)] {
        let Some(operand) = operand else { continue };
        if broadcast_shapes([x.shape(), operand.shape()])? != x.shape() {
            return Err(Fault::Shape(format!("{operand} does not stretch to {x}")));
        }
        let operand = operand.broadcast(x.shape())?.numbers();
        numbers.iter_mut().zip(operand).for_each(|(x, y)| if adds { *x += y } else { *x *= y });
    }
    Ok(())
}

/// `LayerNormalization`, with mean and inverse deviation of each row on request.
pub(crate) fn layer_norm(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axis = super::axis(call.attributes.int_or("axis", -1), x.rank())?;
    let epsilon = call.attributes.float_or("epsilon", 1e-5);
    let width: usize = x.shape()[axis..].iter().product();
    let mut numbers = x.numbers();
    let (mut means, mut deviations) = (Vec::new(), Vec::new());
    for row in numbers.chunks_mut(width.max(1)) {
        let (mean, inverse) = moments(row, epsilon);
        row.iter_mut().for_each(|x| *x = (*x - mean) * inverse);
        means.push(mean);
        deviations.push(inverse);
    }
    scaled(x, &mut numbers, call.get(1), call.get(2))?;
    let rows = per_row(x.shape(), axis);
    // The moments are in the format that they are computed in.
    let stash = if x.format() == Format::F64 { Format::F64 } else { Format::F32 };
    let mut out = vec![Tensor::of_numbers(x.format(), x.shape(), &numbers)?];
    out.push(Tensor::of_numbers(stash, &rows, &means)?);
    out.push(Tensor::of_numbers(stash, &rows, &deviations)?);
    out.truncate(call.outputs);
    Ok(out)
}

/// `RMSNormalization`.
pub(crate) fn rms_norm(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axis = super::axis(call.attributes.int_or("axis", -1), x.rank())?;
    let epsilon = call.attributes.float_or("epsilon", 1e-5);
    let width: usize = x.shape()[axis..].iter().product();
    let mut numbers = x.numbers();
    for row in numbers.chunks_mut(width.max(1)) {
        let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        row.iter_mut().for_each(|x| *x /= (square + epsilon).sqrt());
    }
    scaled(x, &mut numbers, call.get(1), None)?;
    Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &numbers)?])
}

/// Every group of `width` elements centred over its deviation, times scale and plus bias of its channel.
fn grouped(call: &Call<'_>, width: usize) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let [_, channels, inner] = super::around(x.shape(), 1);
    let (scale, bias) = (call.input(1)?.numbers(), call.input(2)?.numbers());
    if scale.len() != channels || bias.len() != channels {
        return Err(Fault::Shape(format!("scale and bias have one number for each of {channels} channels")));
    }
    let epsilon = call.attributes.float_or("epsilon", 1e-5);
    let mut numbers = x.numbers();
    for group in numbers.chunks_mut(width.max(1)) {
        let (mean, inverse) = moments(group, epsilon);
        group.iter_mut().for_each(|x| *x = (*x - mean) * inverse);
    }
    let channel = |i: usize| i / inner.max(1) % channels;
    numbers.iter_mut().enumerate().for_each(|(i, x)| *x = *x * scale[channel(i)] + bias[channel(i)]);
    Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &numbers)?])
}

fn has_channels(x: &Tensor) -> Result<(), Fault> {
    if x.rank() < 2 { Err(Fault::Shape(format!("{x} has no channels"))) } else { Ok(()) }
}

/// `InstanceNormalization`.
pub(crate) fn instance_norm(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    has_channels(x)?;
    grouped(call, x.shape()[2..].iter().product())
}

/// `GroupNormalization`.
pub(crate) fn group_norm(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    has_channels(x)?;
    let groups = usize::try_from(call.attributes.int_or("num_groups", 0)).unwrap_or(0);
    if groups == 0 || !x.shape()[1].is_multiple_of(groups) {
        return Err(Fault::attribute("num_groups", format!("divides {} channels", x.shape()[1])));
    }
    grouped(call, x.shape()[1..].iter().product::<usize>() / groups)
}

/// `MeanVarianceNormalization`: centred, over the deviation, along axes.
pub(crate) fn mean_variance(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let list = call.attributes.ints("axes").map_or_else(|| vec![0, 2, 3], <[i64]>::to_vec);
    let axes = super::axes(&list, x.rank())?;
    let kept = super::reduce::reduced_shape(x.shape(), &axes, true);
    let along = crate::network::tensor::broadcast_strides(&kept, x.shape());
    let count: usize = axes.iter().map(|axis| x.shape()[*axis]).product();
    let mut rows: Vec<Vec<f64>> = vec![Vec::with_capacity(count); kept.iter().product()];
    let numbers = x.numbers();
    let mut places = Vec::with_capacity(numbers.len());
    crate::network::tensor::for_each_index(x.shape(), |index| places.push(crate::network::tensor::dot(index, &along)));
    places.iter().zip(&numbers).for_each(|(place, x)| rows[*place].push(*x));
    let of: Vec<(f64, f64)> = rows.iter().map(|row| moments(row, 0.0)).collect();
    let centred = |(place, x): (&usize, &f64)| {
        let (mean, inverse) = of[*place];
        (x - mean) / (1.0 / inverse + 1e-9)
    };
    let out: Vec<f64> = places.iter().zip(&numbers).map(centred).collect();
    Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &out)?])
}

/// `LRN`: over a power of the squares of neighbouring channels.
pub(crate) fn local_response(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    has_channels(x)?;
    let size = usize::try_from(call.attributes.int_or("size", 1)).unwrap_or(0).clamp(1, 1 << 20);
    let alpha = call.attributes.float_or("alpha", 1e-4) / size as f64;
    let (beta, bias) = (call.attributes.float_or("beta", 0.75), call.attributes.float_or("bias", 1.0));
    let [images, channels, inner] = super::around(x.shape(), 1);
    let numbers = x.numbers();
    let mut out = numbers.clone();
    for image in 0..images {
        for channel in 0..channels {
            let (first, last) = (channel.saturating_sub((size - 1) / 2), (channel + size / 2).min(channels - 1));
            for at in 0..inner {
                let place = |channel: usize| (image * channels + channel) * inner + at;
                let squares: f64 = (first..=last).map(|c| numbers[place(c)] * numbers[place(c)]).sum();
                out[place(channel)] /= (bias + alpha * squares).powf(beta);
            }
        }
    }
    Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &out)?])
}
