//! Pools: a window of elements becomes one.

use super::window::Window;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::operator::Call;
use crate::network::tensor::{Tensor, for_each_index};

/// The windows of a pool over an image.
///
/// # Errors
/// If image and kernel do not fit.
pub(crate) fn window(call_attributes: &crate::network::Attributes, shape: &[usize]) -> Result<Window, Fault> {
    let Some(spatial) = shape.get(2..).filter(|spatial| !spatial.is_empty()) else {
        return Err(Fault::Shape(format!("a pool takes images, channels and spatial axes, not {shape:?}")));
    };
    let kernel = super::window::positive(call_attributes, "kernel_shape", spatial.len())?;
    if call_attributes.ints("kernel_shape").is_none() {
        return Err(Fault::attribute("kernel_shape", "is missing"));
    }
    Window::new(call_attributes, spatial, &kernel)
}

/// Every window of every channel: `each` gets the channel's first element, and the offsets of the window's elements with
/// whether they count, `None` in the padding.
fn pooled(x: &Tensor, w: &Window, mut each: impl FnMut(usize, &[Option<usize>], usize)) {
    let spatial = &x.shape()[2..];
    let image: usize = spatial.iter().product();
    let (mut windows, mut counted) = (Vec::new(), Vec::new());
    for_each_index(&w.out, |window| {
        let mut offsets = Vec::new();
        let mut count = 0;
        for_each_index(&w.kernel, |tap| {
            offsets.push(w.offset(window, tap, spatial));
            count += usize::from(w.is_inside_padding(window, tap, spatial));
        });
        windows.push(offsets);
        counted.push(count);
    });
    for channel in 0..x.shape()[0] * x.shape()[1] {
        windows.iter().zip(&counted).for_each(|(offsets, count)| each(channel * image, offsets, *count));
    }
}

fn shape(x: &Tensor, w: &Window) -> Vec<usize> {
    x.shape()[..2].iter().chain(&w.out).copied().collect()
}

/// The offset of the first largest element of a window.
fn first_largest(numbers: &[f64], offsets: &[Option<usize>]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for offset in offsets.iter().flatten() {
        let better = |best: usize| numbers[*offset] > numbers[best] || numbers[*offset].is_nan();
        if best.is_none_or(better) {
            best = Some(*offset);
        }
    }
    best
}

/// `MaxPool`, with the places of the largest elements on request.
pub(crate) fn max(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let w = window(call.attributes, x.shape())?;
    let numbers = x.numbers();
    let (mut largest, mut places) = (Vec::new(), Vec::new());
    let spatial = x.shape()[2..].to_vec();
    let by_columns = call.attributes.flag("storage_order");
    pooled(x, &w, |first, offsets, _| {
        let best = first_largest(&numbers[first..], offsets);
        largest.push(best.map_or(f64::NEG_INFINITY, |best| numbers[first + best]));
        let place = best.map_or(0, |best| {
            let at = if by_columns { by_column(best, &spatial) } else { best };
            first + at
        });
        places.push(place as i128);
    });
    let shape = shape(x, &w);
    let mut out = vec![Tensor::of_numbers(x.format(), &shape, &largest)?];
    if call.outputs > 1 {
        out.push(Tensor::of_integers(Format::I64, &shape, &places)?);
    }
    Ok(out)
}

/// A row-major offset as the column-major one of the same element.
fn by_column(offset: usize, shape: &[usize]) -> usize {
    let (mut rest, mut index) = (offset, vec![0; shape.len()]);
    for axis in (0..shape.len()).rev() {
        index[axis] = rest % shape[axis];
        rest /= shape[axis];
    }
    index.iter().zip(shape).rev().fold(0, |at, (i, extent)| at * extent + i)
}

/// `AveragePool`.
pub(crate) fn average(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let w = window(call.attributes, x.shape())?;
    let numbers = x.numbers();
    let padding_counts = call.attributes.flag("count_include_pad");
    let mut means = Vec::new();
    pooled(x, &w, |first, offsets, inside| {
        let sum: f64 = offsets.iter().flatten().map(|offset| numbers[first + offset]).sum();
        let count = if padding_counts { inside } else { offsets.iter().flatten().count() };
        means.push(sum / count as f64);
    });
    Ok(vec![Tensor::of_numbers(x.format(), &shape(x, &w), &means)?])
}

/// The p-norm.
fn norm(p: f64, elements: impl Iterator<Item = f64>) -> f64 {
    elements.map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p)
}

/// `LpPool`.
pub(crate) fn lp(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let w = window(call.attributes, x.shape())?;
    let (numbers, p) = (x.numbers(), call.attributes.int_or("p", 2) as f64);
    let mut norms = Vec::new();
    pooled(x, &w, |first, offsets, _| norms.push(norm(p, offsets.iter().flatten().map(|offset| numbers[first + offset]))));
    Ok(vec![Tensor::of_numbers(x.format(), &shape(x, &w), &norms)?])
}

/// One number of all spatial elements of a channel.
fn global(call: &Call<'_>, of: impl Fn(&[f64]) -> f64) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    if x.rank() < 2 {
        return Err(Fault::Shape(format!("a pool takes images and channels, not {x}")));
    }
    let image: usize = x.shape()[2..].iter().product();
    let mut shape = x.shape().to_vec();
    shape[2..].fill(1);
    let values: Vec<f64> = x.numbers().chunks(image.max(1)).map(of).collect();
    Ok(vec![Tensor::of_numbers(x.format(), &shape, &values)?])
}

/// `GlobalAveragePool`.
pub(crate) fn global_average(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    global(call, |image| image.iter().sum::<f64>() / image.len() as f64)
}

/// `GlobalMaxPool`.
pub(crate) fn global_max(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    global(call, |image| image.iter().copied().fold(f64::NEG_INFINITY, |a, b| if b.is_nan() { b } else { a.max(b) }))
}

/// `GlobalLpPool`.
pub(crate) fn global_lp(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let p = call.attributes.int_or("p", 2) as f64;
    global(call, |image| norm(p, image.iter().copied()))
}

/// The gradient of the images of a pool: `each` gets the sums, the channel's first element, the offsets of a window's elements,
/// how many count in the padding, and the gradient of the window's result.
fn gradient(
    call: &Call<'_>,
    mut each: impl FnMut(&mut [f64], usize, &[Option<usize>], usize, f64),
) -> Result<Vec<Tensor>, Fault> {
    let (x, dy) = (call.input(0)?, call.input(1)?);
    let w = window(call.attributes, x.shape())?;
    if dy.shape() != shape(x, &w) {
        return Err(Fault::Shape(format!("{dy} is not the gradient of a pool of {x}")));
    }
    let (mut sums, mut incoming) = (vec![0.0; x.len()], dy.numbers().into_iter());
    pooled(x, &w, |first, offsets, inside| each(&mut sums, first, offsets, inside, incoming.next().unwrap_or(0.0)));
    Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &sums)?])
}

/// `MaxPoolGradient`: to the first largest element of each window.
pub(crate) fn max_gradient(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let numbers = call.input(0)?.numbers();
    gradient(call, |sums, first, offsets, _, g| {
        if let Some(best) = first_largest(&numbers[first..], offsets) {
            sums[first + best] += g;
        }
    })
}

/// `AveragePoolGradient`: in equal parts to the elements of each window.
pub(crate) fn average_gradient(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let padding_counts = call.attributes.flag("count_include_pad");
    gradient(call, |sums, first, offsets, inside, g| {
        let count = if padding_counts { inside } else { offsets.iter().flatten().count() };
        offsets.iter().flatten().for_each(|offset| sums[first + offset] += g / count as f64);
    })
}

/// `LpPoolGradient`: by the share of each element in the norm; 0 where that is 0.
pub(crate) fn lp_gradient(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (numbers, p) = (call.input(0)?.numbers(), call.attributes.int_or("p", 2) as f64);
    gradient(call, |sums, first, offsets, _, g| {
        let whole = norm(p, offsets.iter().flatten().map(|offset| numbers[first + offset]));
        for offset in offsets.iter().flatten().filter(|_| whole != 0.0) {
            let x = numbers[first + offset];
            sums[first + offset] += if x == 0.0 { 0.0 } else { g * x.signum() * (x.abs() / whole).powf(p - 1.0) };
        }
    })
}
