//! Convolutions: windows laid out as columns, multiplied by the reference.

use super::product::{centred, matrices, requantised, widened};
use super::window::{Window, pads, positive};
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::operator::Call;
use crate::network::tensor::{Tensor, for_each_index};

/// The extents of a convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub images: usize,
    /// Channels of a group of the input.
    pub channels: usize,
    /// Output channels of a group.
    pub filters: usize,
    pub groups: usize,
    pub spatial: Vec<usize>,
    pub window: Window,
}

impl Extents {
    /// The extents of a convolution of such an image with such filters.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn new(attributes: &Attributes, x: &[usize], w: &[usize]) -> Result<Extents, Fault> {
        let groups = usize::try_from(attributes.int_or("group", 1)).ok().filter(|groups| *groups > 0);
        let groups = groups.ok_or_else(|| Fault::attribute("group", "is a positive number"))?;
        let rank = x.len();
        let fits = rank >= 3 && w.len() == rank && w[1].checked_mul(groups) == Some(x[1]) && w[0].is_multiple_of(groups);
        if !fits {
            return Err(Fault::Shape(format!("filters {w:?} in {groups} groups do not fit an image {x:?}")));
        }
        if let Some(shape) = attributes.ints("kernel_shape")
            && !shape.iter().copied().eq(w[2..].iter().map(|extent| *extent as i64))
        {
            return Err(Fault::attribute("kernel_shape", format!("is {shape:?}, and the filters are {:?}", &w[2..])));
        }
        let window = Window::new(attributes, &x[2..], &w[2..])?;
        let (images, channels, filters) = (x[0], w[1], w[0] / groups);
        Ok(Extents { images, channels, filters, groups, spatial: x[2..].to_vec(), window })
    }

    /// The shape of the result.
    pub fn shape(&self) -> Vec<usize> {
        [self.images, self.groups * self.filters].into_iter().chain(self.window.out.iter().copied()).collect()
    }
}

/// A part of a tensor's bytes as a matrix.
fn matrix(tensor: &Tensor, at: usize, [rows, columns]: [usize; 2]) -> Result<Tensor, Fault> {
    let size = rows * columns * tensor.format().size();
    let bytes = tensor.bytes().get(at * size..(at + 1) * size).unwrap_or_default();
    Tensor::new(tensor.format(), &[rows, columns], bytes.to_vec())
}

/// The windows of one group of one image as columns: a row for each channel and tap.
fn columns(x: &Tensor, at: usize, e: &Extents) -> Result<Tensor, Fault> {
    let size = x.format().size();
    let image: usize = e.spatial.iter().product();
    let (taps, windows): (usize, usize) = (e.window.kernel.iter().product(), e.window.out.iter().product());
    let mut out = Tensor::blank(x.format(), &[e.channels * taps, windows])?;
    // The same for every channel.
    let offsets = offsets(e);
    let bytes = out.bytes_mut();
    let first = at * e.channels * image;
    for channel in 0..e.channels {
        let from = &x.bytes()[(first + channel * image) * size..][..image * size];
        let to = &mut bytes[channel * taps * windows * size..][..taps * windows * size];
        for (offset, to) in offsets.iter().zip(to.chunks_exact_mut(size)) {
            if let Some(offset) = offset {
                to.copy_from_slice(&from[offset * size..][..size]);
            }
        }
    }
    Ok(out)
}

/// A convolution of numbers of one format, accumulated as the reference accumulates, rounded to `to`.
///
/// # Errors
/// If image and filters do not fit.
pub(crate) fn convolution(attributes: &Attributes, x: &Tensor, w: &Tensor, to: Format) -> Result<Tensor, Fault> {
    let e = Extents::new(attributes, x.shape(), w.shape())?;
    if x.format() != w.format() {
        return Err(Fault::Format(format!("Conv takes an image and filters of one format, not {x} and {w}")));
    }
    let k = e.channels * e.window.kernel.iter().product::<usize>();
    let shape = e.shape();
    let mut bytes = Vec::with_capacity(Tensor::blank(to, &shape)?.bytes().len());
    for image in 0..e.images {
        for group in 0..e.groups {
            let columns = columns(x, image * e.groups + group, &e)?;
            bytes.extend_from_slice(matrices(&matrix(w, group, [e.filters, k])?, &columns, to)?.bytes());
        }
    }
    Tensor::new(to, &shape, bytes)
}

/// Adds one number to each channel.
fn with_bias(y: &Tensor, bias: Option<&Tensor>, to: Format) -> Result<Tensor, Fault> {
    let mut numbers = y.numbers();
    if let Some(bias) = bias {
        let [_, channels, inner] = super::around(y.shape(), 1);
        if bias.len() != channels {
            return Err(Fault::Shape(format!("a bias {bias} does not fit {channels} channels")));
        }
        let bias = bias.numbers();
        numbers.iter_mut().enumerate().for_each(|(i, x)| *x += bias[i / inner.max(1) % channels]);
    }
    Tensor::of_numbers(to, y.shape(), &numbers)
}

/// What a sum of numbers of a format is held in.
fn wide(format: Format) -> Format {
    if matches!(format, Format::F16 | Format::BF16) { Format::F32 } else { format }
}

/// `Conv`.
pub(crate) fn conv(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, w) = (call.input(0)?, call.input(1)?);
    let Some(bias) = call.get(2) else { return Ok(vec![convolution(call.attributes, x, w, x.format())?]) };
    let y = convolution(call.attributes, x, w, wide(x.format()))?;
    Ok(vec![with_bias(&y, Some(bias), x.format())?])
}

/// `ConvInteger`: less zero points, in `i32`.
pub(crate) fn conv_integer(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, w) = (centred(call.input(0)?, call.get(2), 1)?, centred(call.input(1)?, call.get(3), 0)?);
    Ok(vec![convolution(call.attributes, &x, &w, Format::I32)?])
}

/// `WideConv`.
pub(crate) fn wide_conv(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let [x, w] = widened(call.input(0)?, call.input(1)?)?;
    Ok(vec![convolution(call.attributes, &x, &w, x.format())?])
}

/// `QLinearConv`.
pub(crate) fn qlinear_conv(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, w) = (centred(call.input(0)?, call.get(2), 1)?, centred(call.input(3)?, call.get(5), 0)?);
    let sums = with_bias(&convolution(call.attributes, &x, &w, Format::I32)?, call.get(8), Format::I32)?;
    let scales = [call.input(1)?, call.input(4)?, call.input(6)?];
    Ok(vec![requantised(&sums, scales, call.input(7)?, 1)?])
}

/// The offset in a channel that each tap of each window lies on, tap by tap; `None` in the padding.
fn offsets(e: &Extents) -> Vec<Option<usize>> {
    let mut offsets = Vec::new();
    for_each_index(&e.window.kernel, |tap| {
        for_each_index(&e.window.out, |window| offsets.push(e.window.offset(window, tap, &e.spatial)));
    });
    offsets
}

/// Calls with the places of an image's element, of a filter's and of a result's wherever a convolution multiplies the first two
/// and adds to the third.
fn for_each_product(e: &Extents, mut each: impl FnMut(usize, usize, usize)) {
    let (image, windows): (usize, usize) = (e.spatial.iter().product(), e.window.out.iter().product());
    let taps: usize = e.window.kernel.iter().product();
    let offsets = offsets(e);
    for (n, filter) in (0..e.images).flat_map(|n| (0..e.groups * e.filters).map(move |filter| (n, filter))) {
        let to = (n * e.groups * e.filters + filter) * windows;
        for channel in 0..e.channels {
            let from = ((n * e.groups + filter / e.filters) * e.channels + channel) * image;
            let weights = (filter * e.channels + channel) * taps;
            for (place, offset) in offsets.iter().enumerate() {
                if let Some(offset) = offset {
                    each(from + offset, weights + place / windows, to + place % windows);
                }
            }
        }
    }
}

/// The extents of a convolution whose result has a gradient `dy`.
fn of_gradient(call: &Call<'_>, dy: &Tensor, x: &[usize], w: &[usize]) -> Result<Extents, Fault> {
    let e = Extents::new(call.attributes, x, w)?;
    if e.shape() != dy.shape() {
        return Err(Fault::Shape(format!("{dy} is not the gradient of a convolution of {x:?} with {w:?}")));
    }
    Ok(e)
}

/// The shape of the images whose convolution has a gradient.
///
/// # Errors
/// If filters and attributes do not say one.
pub(crate) fn shape_of_images(attributes: &Attributes, dy: &[usize], w: &[usize]) -> Result<Vec<usize>, Fault> {
    let (spatial, groups) = (asked_extents(attributes, "image_shape")?, attributes.int_or("group", 1));
    let channels = usize::try_from(groups).ok().and_then(|groups| w.get(1)?.checked_mul(groups));
    let (Some(images), Some(channels)) = (dy.first(), channels) else {
        return Err(Fault::Shape(format!("{dy:?} and filters {w:?} are not those of a convolution")));
    };
    Ok([*images, channels].into_iter().chain(spatial).collect())
}

/// The shape of the filters whose convolution of some images has a gradient.
///
/// # Errors
/// If images and attributes do not say one.
pub(crate) fn shape_of_filters(attributes: &Attributes, dy: &[usize], x: &[usize]) -> Result<Vec<usize>, Fault> {
    let (window, groups) = (asked_extents(attributes, "kernel_shape")?, attributes.int_or("group", 1));
    let channels = usize::try_from(groups).ok().and_then(|groups| x.get(1)?.checked_div(groups));
    let (Some(filters), Some(channels)) = (dy.get(1), channels) else {
        return Err(Fault::Shape(format!("{dy:?} and images {x:?} are not those of a convolution")));
    };
    Ok([*filters, channels].into_iter().chain(window).collect())
}

fn asked_extents(attributes: &Attributes, name: &str) -> Result<Vec<usize>, Fault> {
    let list = attributes.ints(name).ok_or_else(|| Fault::attribute(name, "is missing"))?;
    let all: Result<Vec<usize>, _> = list.iter().map(|extent| usize::try_from(*extent)).collect();
    all.map_err(|_| Fault::attribute(name, format!("has extents, not {list:?}")))
}

/// `ConvImageGradient`: the gradient of the images, from that of the result and the filters.
pub(crate) fn image_gradient(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (dy, w) = (call.input(0)?, call.input(1)?);
    let shape = shape_of_images(call.attributes, dy.shape(), w.shape())?;
    let e = of_gradient(call, dy, &shape, w.shape())?;
    let mut sums = vec![0.0; crate::network::tensor::count(Format::F64, &shape)?];
    let (gradients, weights) = (dy.numbers(), w.numbers());
    for_each_product(&e, |image, weight, result| sums[image] += gradients[result] * weights[weight]);
    Ok(vec![Tensor::of_numbers(dy.format(), &shape, &sums)?])
}

/// `ConvFilterGradient`: the gradient of the filters, from that of the result and the images.
pub(crate) fn filter_gradient(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (dy, x) = (call.input(0)?, call.input(1)?);
    let shape = shape_of_filters(call.attributes, dy.shape(), x.shape())?;
    let e = of_gradient(call, dy, x.shape(), &shape)?;
    let mut sums = vec![0.0; crate::network::tensor::count(Format::F64, &shape)?];
    let (gradients, numbers) = (dy.numbers(), x.numbers());
    for_each_product(&e, |image, weight, result| sums[weight] += gradients[result] * numbers[image]);
    Ok(vec![Tensor::of_numbers(dy.format(), &shape, &sums)?])
}

/// The geometry of a transposed convolution: strides, dilations, pads and extents of the result.
pub(crate) struct Transposed {
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    pub pads: Vec<[usize; 2]>,
    pub out: Vec<usize>,
}

impl Transposed {
    /// The geometry over these extents.
    ///
    /// # Errors
    /// If an attribute does not fit.
    pub fn new(attributes: &Attributes, extents: &[usize], kernel: &[usize]) -> Result<Transposed, Fault> {
        let rank = extents.len();
        let (strides, dilations) = (positive(attributes, "strides", rank)?, positive(attributes, "dilations", rank)?);
        let mut pads = pads(attributes, rank)?;
        let list = |name: &str| attributes.ints(name).map(<[i64]>::to_vec);
        let more = list("output_padding").unwrap_or_else(|| vec![0; rank]);
        let asked = list("output_shape");
        if more.len() != rank || asked.as_ref().is_some_and(|shape| shape.len() != rank) {
            return Err(Fault::attribute("output_padding", format!("has a number for each of {rank} axes, as `output_shape`")));
        }
        let auto = attributes.text_or("auto_pad", "NOTSET");
        let mut out = Vec::new();
        for axis in 0..rank {
            let (stride, span) = (strides[axis], (kernel[axis].max(1) - 1) * dilations[axis] + 1);
            let padding = usize::try_from(more[axis]).ok().filter(|x| *x < 1 << 31);
            let padding = padding.ok_or_else(|| Fault::attribute("output_padding", "is 0 or more"))?;
            let full = (extents[axis].max(1) - 1) * stride + padding + span;
            let wanted = match (&asked, auto) {
                (Some(shape), _) => Some(usize::try_from(shape[axis]).unwrap_or(0)),
                (None, "SAME_UPPER" | "SAME_LOWER") => Some(extents[axis] * stride),
                _ => None,
            };
            if let Some(wanted) = wanted {
                let total = full.saturating_sub(wanted);
                let less = total / 2;
                pads[axis] = if auto == "SAME_UPPER" { [less, total - less] } else { [total - less, less] };
                out.push(wanted);
            } else {
                let taken = pads[axis][0] + pads[axis][1];
                let left = full.checked_sub(taken);
                out.push(left.ok_or_else(|| Fault::attribute("pads", format!("take {taken} of {full} elements")))?);
            }
        }
        Ok(Transposed { strides, dilations, pads, out })
    }
}

/// `ConvTranspose`: every element spreads its filter over the result.
pub(crate) fn conv_transpose(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (x, w) = (call.input(0)?, call.input(1)?);
    let groups = usize::try_from(call.attributes.int_or("group", 1)).unwrap_or(0);
    let fits = x.rank() >= 3 && w.rank() == x.rank() && w.shape()[0] == x.shape()[1] && groups > 0;
    if !fits || !x.shape()[1].is_multiple_of(groups) {
        return Err(Fault::Shape(format!("filters {w} in {groups} groups do not fit an image {x}")));
    }
    let (images, channels) = (x.shape()[0], x.shape()[1] / groups);
    let (filters, spatial, kernel) = (w.shape()[1], &x.shape()[2..], &w.shape()[2..]);
    let t = Transposed::new(call.attributes, spatial, kernel)?;
    let shape: Vec<usize> = [images, groups * filters].into_iter().chain(t.out.iter().copied()).collect();
    let mut sums = vec![0.0; crate::network::tensor::count(Format::F64, &shape)?];
    let (numbers, weights) = (x.numbers(), w.numbers());
    let (image, taps, result): (usize, usize, usize) =
        (spatial.iter().product(), kernel.iter().product(), t.out.iter().product());
    let place = |index: &[usize], tap: &[usize]| {
        let mut offset = 0;
        for axis in 0..t.out.len() {
            let at = (index[axis] * t.strides[axis] + tap[axis] * t.dilations[axis]).checked_sub(t.pads[axis][0])?;
            offset = offset * t.out[axis] + Some(at).filter(|at| *at < t.out[axis])?;
        }
        Some(offset)
    };
    let mut places = Vec::new();
    for_each_index(spatial, |index| for_each_index(kernel, |tap| places.push(place(index, tap))));
    for n in 0..images {
        for channel in 0..groups * channels {
            let group = channel / channels;
            for filter in 0..filters {
                let to = &mut sums[((n * groups + group) * filters + filter) * result..][..result];
                let from = &numbers[(n * groups * channels + channel) * image..][..image];
                let weights = &weights[(channel * filters + filter) * taps..][..taps];
                for (at, value) in from.iter().enumerate() {
                    for (tap, weight) in weights.iter().enumerate() {
                        if let Some(place) = places[at * taps + tap] {
                            to[place] += value * weight;
                        }
                    }
                }
            }
        }
    }
    let y = Tensor::of_numbers(Format::F64, &shape, &sums)?;
    Ok(vec![with_bias(&y, call.get(2), x.format())?])
}
