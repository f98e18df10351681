//! Tensors in host memory: format, shape and elements.

use super::bytes::Bytes;
use super::fault::Fault;
use super::format::Format;
use crate::dtype::{DType, Element};
use std::fmt;
use std::sync::Arc;

/// The most bytes a tensor may have. A shape that asks for more is a fault, and nothing is allocated.
const LIMIT: usize = 1 << 34;

/// A tensor in host memory, row-major and contiguous. Cheap to clone.
///
/// Fusing a network rewrites its weights. Their new elements are computed when they are first read.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    format: Format,
    shape: Vec<usize>,
    bytes: Arc<Bytes>,
}

impl Tensor {
    /// A tensor of these bytes, little-endian.
    ///
    /// # Errors
    /// If the bytes are not those of so many elements.
    pub fn new(format: Format, shape: &[usize], bytes: Vec<u8>) -> Result<Tensor, Fault> {
        let expected = count(format, shape)? * format.size();
        if bytes.len() != expected {
            let given = bytes.len();
            return Err(Fault::Value(format!("{given} bytes are not a tensor {format}{shape:?}, which has {expected}")));
        }
        Ok(Tensor { format, shape: shape.to_vec(), bytes: Arc::new(Bytes::There(bytes)) })
    }

    /// A tensor of a slice's elements.
    ///
    /// ```
    /// use postlude::network::Tensor;
    /// let weights = Tensor::of(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// assert_eq!(weights.to_string(), "f32[2,3]");
    /// # Ok::<(), postlude::network::Fault>(())
    /// ```
    ///
    /// # Errors
    /// If the slice has another length than the shape.
    pub fn of<T: Element>(elements: &[T], shape: &[usize]) -> Result<Tensor, Fault> {
        Tensor::new(T::DTYPE.into(), shape, bytemuck::cast_slice(elements).to_vec())
    }

    /// A tensor of numbers, each rounded as a store rounds.
    ///
    /// # Errors
    /// If there are not as many as the shape has.
    pub fn of_numbers(format: impl Into<Format>, shape: &[usize], numbers: &[f64]) -> Result<Tensor, Fault> {
        let format = format.into();
        let mut out = Tensor::blank(format, shape)?;
        if out.len() != numbers.len() {
            return Err(Fault::Value(format!("{} numbers are not a tensor {format}{shape:?}", numbers.len())));
        }
        let bytes = out.bytes_mut();
        numbers.iter().enumerate().for_each(|(i, x)| format.write(bytes, i, *x));
        Ok(out)
    }

    /// A tensor of integers, each wrapped to the format.
    ///
    /// # Errors
    /// If there are not as many as the shape has.
    pub fn of_integers(format: impl Into<Format>, shape: &[usize], integers: &[i128]) -> Result<Tensor, Fault> {
        let format = format.into();
        let mut out = Tensor::blank(format, shape)?;
        if out.len() != integers.len() {
            return Err(Fault::Value(format!("{} integers are not a tensor {format}{shape:?}", integers.len())));
        }
        let bytes = out.bytes_mut();
        integers.iter().enumerate().for_each(|(i, x)| format.write_integer(bytes, i, *x));
        Ok(out)
    }

    /// A vector of indices, in `i64`: a shape, axes, pads.
    pub fn indices(values: &[i64]) -> Tensor {
        let bytes = bytemuck::cast_slice(values).to_vec();
        Tensor { format: Format::I64, shape: vec![values.len()], bytes: Arc::new(Bytes::There(bytes)) }
    }

    /// One number without axes.
    pub fn scalar(format: impl Into<Format>, x: f64) -> Tensor {
        let format = format.into();
        let mut bytes = vec![0; format.size()];
        format.write(&mut bytes, 0, x);
        Tensor { format, shape: Vec::new(), bytes: Arc::new(Bytes::There(bytes)) }
    }

    /// A tensor whose bytes are zero.
    pub(crate) fn blank(format: Format, shape: &[usize]) -> Result<Tensor, Fault> {
        let bytes = vec![0; count(format, shape)? * format.size()];
        Ok(Tensor { format, shape: shape.to_vec(), bytes: Arc::new(Bytes::There(bytes)) })
    }

    /// The format of the elements.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The format of kernels, or a fault that names the operator that needs one.
    pub(crate) fn dtype(&self, operator: &str) -> Result<DType, Fault> {
        self.format.dtype().ok_or_else(|| Fault::format(operator, self.format))
    }

    /// The extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements' bytes, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, for writing; copied first if another tensor shares them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.bytes).as_mut()
    }

    /// The elements as numbers.
    pub fn numbers(&self) -> Vec<f64> {
        let mut out = vec![0.0; self.len()];
        match self.format.dtype() {
            Some(dtype) => dtype.read_wide(&self.bytes, 0, &mut out),
            None => out.iter_mut().enumerate().for_each(|(i, x)| *x = self.format.read(&self.bytes, i)),
        }
        out
    }

    /// The elements as integers: of floating-point numbers the whole parts.
    pub fn integers(&self) -> Vec<i128> {
        (0..self.len()).map(|i| self.format.read_integer(&self.bytes, i)).collect()
    }

    /// The elements as signed sizes: axes, pads, shapes.
    pub fn sizes(&self) -> Vec<i64> {
        let limit = |x: i128| x.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        self.integers().into_iter().map(limit).collect()
    }

    /// The only element.
    pub(crate) fn only(&self) -> Option<f64> {
        (self.len() == 1).then(|| self.format.read(&self.bytes, 0))
    }

    /// The same elements in another shape of as many.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Tensor, Fault> {
        if count(self.format, shape)? != self.len() {
            return Err(Fault::Shape(format!("{self} has {} elements, which {shape:?} has not", self.len())));
        }
        Ok(Tensor { shape: shape.to_vec(), ..self.clone() })
    }

    /// The tensor whose element at each place is this one's at the index that `source` gives, or the filling.
    ///
    /// # Errors
    /// If the shape is too large.
    pub(crate) fn gathered(
        &self,
        shape: &[usize],
        filling: Option<&Tensor>,
        mut source: impl FnMut(&[usize]) -> Option<usize>,
    ) -> Result<Tensor, Fault> {
        let mut out = Tensor::blank(self.format, shape)?;
        let size = self.format.size();
        let fill: Vec<u8> = filling.map_or_else(|| vec![0; size], |tensor| tensor.bytes[..size].to_vec());
        let bytes = out.bytes_mut();
        let mut at = 0;
        for_each_index(shape, |index| {
            let from = source(index).and_then(|from| self.bytes.get(from * size..(from + 1) * size));
            bytes[at..at + size].copy_from_slice(from.unwrap_or(&fill));
            at += size;
        });
        Ok(out)
    }

    /// Stretched to a shape by NumPy's rules, whose extents agree or are 1 here.
    ///
    /// # Errors
    /// If the shape is too large.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Result<Tensor, Fault> {
        if self.shape == shape {
            return Ok(self.clone());
        }
        let strides = broadcast_strides(&self.shape, shape);
        self.gathered(shape, None, |index| Some(dot(index, &strides)))
    }

    /// The product with factors, one for each place along an axis, rounded once. It is computed when it is first read.
    ///
    /// # Errors
    /// If kernels do not have its format, or there is another number of factors.
    pub(crate) fn scaled(&self, axis: usize, factors: Vec<f64>) -> Result<Tensor, Fault> {
        let dtype = self.dtype("a weight")?;
        if self.shape.get(axis) != Some(&factors.len()) {
            return Err(Fault::Shape(format!("{} factors do not fit axis {axis} of {self}", factors.len())));
        }
        let (from, inner) = (self.bytes.clone(), self.shape[axis + 1..].iter().product());
        let bytes = Bytes::later(move || products(&from, dtype, inner, &factors));
        Ok(Tensor { format: self.format, shape: self.shape.clone(), bytes: Arc::new(bytes) })
    }

    /// The tensor with its second axis behind the others, moved when it is first read: filters as convolutions read them.
    /// `None` without a second axis.
    pub(crate) fn channels_last(&self) -> Option<Tensor> {
        let [outer, channels, rest @ ..] = &self.shape[..] else { return None };
        let shape: Vec<usize> = [outer].into_iter().chain(rest).chain([channels]).copied().collect();
        // With one pixel or one channel the elements stay where they are.
        if self.is_empty() || *channels == 1 || rest.iter().all(|extent| *extent == 1) {
            return Some(Tensor { shape, ..self.clone() });
        }
        let (from, format, channels, image) = (self.bytes.clone(), self.format, *channels, shape[1..].iter().product());
        let bytes = Bytes::later(move || pixels(&from, format.size(), channels, image));
        Some(Tensor { format, shape, bytes: Arc::new(bytes) })
    }
}

/// The products of elements and factors. `inner` elements beside each other have one factor.
fn products(from: &[u8], dtype: DType, inner: usize, factors: &[f64]) -> Vec<u8> {
    let size = dtype.size();
    let mut out = vec![0; from.len()];
    let mut numbers = [0.0f64; 512];
    for (block, bytes) in out.chunks_mut(numbers.len() * size).enumerate() {
        let at = block * numbers.len();
        let numbers = &mut numbers[..bytes.len() / size];
        dtype.read_wide(from, at, numbers);
        let (mut place, mut run, mut rest) = (at / inner % factors.len(), inner - at % inner, &mut *numbers);
        while !rest.is_empty() {
            let (same, behind) = rest.split_at_mut(run.min(rest.len()));
            same.iter_mut().for_each(|x| *x *= factors[place]);
            (place, run, rest) = ((place + 1) % factors.len(), inner, behind);
        }
        dtype.write_wide(bytes, 0, numbers);
    }
    out
}

/// Images of planes, one a channel, as images of pixels. An image has `image` elements.
fn pixels(from: &[u8], size: usize, channels: usize, image: usize) -> Vec<u8> {
    let mut out = vec![0; from.len()];
    for (from, to) in from.chunks_exact(image * size).zip(out.chunks_exact_mut(image * size)) {
        match size {
            1 => planes_to_pixels::<1>(from, to, channels),
            2 => planes_to_pixels::<2>(from, to, channels),
            4 => planes_to_pixels::<4>(from, to, channels),
            _ => planes_to_pixels::<8>(from, to, channels),
        }
    }
    out
}

/// Copies an image of planes, one a channel, to one of pixels. An element has `SIZE` bytes.
fn planes_to_pixels<const SIZE: usize>(from: &[u8], to: &mut [u8], channels: usize) {
    let (from, _) = from.as_chunks::<SIZE>();
    let (to, _) = to.as_chunks_mut::<SIZE>();
    let pixels = from.len() / channels;
    for (channel, plane) in from.chunks_exact(pixels).enumerate() {
        for (to, element) in to[channel..].iter_mut().step_by(channels).zip(plane) {
            *to = *element;
        }
    }
}

/// How many elements a shape has.
///
/// # Errors
/// If they take too many bytes.
pub(crate) fn count(format: Format, shape: &[usize]) -> Result<usize, Fault> {
    // The extents beside a 0 count, too: their strides must not overflow.
    let all = shape.iter().map(|extent| (*extent).max(1)).try_fold(1usize, usize::checked_mul);
    match all.and_then(|all| all.checked_mul(format.size())) {
        Some(bytes) if bytes <= LIMIT => Ok(shape.iter().product()),
        _ => Err(Fault::TooLarge { shape: shape.to_vec() }),
    }
}

/// The distance between neighbours along each axis of a contiguous tensor.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        out[axis - 1] = out[axis] * shape[axis].max(1);
    }
    out
}

/// The strides of a shape within one that it is stretched to: 0 along what is stretched.
pub(crate) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<usize> {
    let own = strides(from);
    let lacking = to.len().saturating_sub(from.len());
    let along = |axis: usize| if axis < lacking || from[axis - lacking] == 1 { 0 } else { own[axis - lacking] };
    (0..to.len()).map(along).collect()
}

/// The offset of an index.
pub(crate) fn dot(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, s)| i * s).sum()
}

/// Calls with the index of every element of a shape, in order.
pub(crate) fn for_each_index(shape: &[usize], mut each: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        each(&index);
        let Some(axis) = (0..shape.len()).rev().find(|axis| index[*axis] + 1 < shape[*axis]) else { return };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// Format and shape.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        write!(f, "{}[{}]", self.format, extents.join(","))
    }
}

/// Format and shape: elements may be many.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({self})")
    }
}
