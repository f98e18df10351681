//! Arguments: names to memory and numbers, checked against what an epilogue needs before anything runs.
//!
//! The same list serves the device and the CPU reference; only the buffers differ. An argument is borrowed for as long as
//! the list lives, outputs mutably, so that the borrow checker keeps what is written apart from what is read.

mod bind;
mod fit;
mod place;
pub(crate) mod reserve;
mod slot;

pub(crate) use bind::bind;
#[cfg(feature = "cuda")]
pub(crate) use bind::bind_into;
pub use bind::{ArgumentError, ArgumentErrors, ArgumentFault};
pub(crate) use bind::{Bound, BoundTensor};
pub use fit::Misfit;
pub(crate) use fit::fit_operation;
pub(crate) use place::laid_out;
pub use reserve::{Reserve, ReserveTag};
pub(crate) use slot::is_unread_operand;
pub use slot::{Slot, SlotKind, slots};

use crate::check::Checked;
use crate::dtype::{DType, Element};
use crate::ir::Constant;

/// Named arguments of one launch, over buffers of type `B`.
///
/// ```
/// use postlude::prelude::*;
/// let (a, b, bias) = (vec![1.0f32; 6], vec![1.0f32; 6], vec![0.5f32; 2]);
/// let mut d = vec![0.0f32; 4];
/// let args = HostArgs::new().input("a", &a).input("b", &b).input("bias", &bias).scalar("boundary", 1).output("d", &mut d);
/// ```
#[derive(Debug)]
pub struct Args<B> {
    pub(crate) given: Vec<(String, Given<B>)>,
    pub(crate) origin: [i32; 3],
}

/// Arguments in host memory, for the CPU reference.
pub type HostArgs<'a> = Args<HostBuffer<'a>>;

/// What was passed under a name.
#[derive(Debug)]
pub(crate) enum Given<B> {
    Tensor { tensor: Tensor<B>, writable: bool },
    Scalar(Constant),
}

/// Memory and how a matrix or vector lies in it: contiguous, unless [`ld`](IntoTensor::ld) or
/// [`batch_stride`](IntoTensor::batch_stride) say otherwise.
#[derive(Debug)]
pub struct Tensor<B> {
    pub(crate) buffer: B,
    pub(crate) dtype: DType,
    /// Elements in the buffer.
    pub(crate) len: usize,
    /// Whether the buffer was borrowed mutably.
    pub(crate) mutable: bool,
    pub(crate) leading_dimension: Option<usize>,
    pub(crate) batch_stride: Option<usize>,
    /// The reserve it is part of.
    pub(crate) reserve: Option<ReserveTag>,
}

impl<B> Tensor<B> {
    /// A buffer that holds `len` elements, contiguous unless said otherwise. Only a buffer's own conversion makes one:
    /// launches rely on its length.
    pub(crate) fn new(buffer: B, dtype: DType, len: usize, mutable: bool) -> Tensor<B> {
        Tensor { buffer, dtype, len, mutable, leading_dimension: None, batch_stride: None, reserve: None }
    }

    /// The same elements, in the same places, of another buffer.
    pub(crate) fn over<C>(&self, buffer: C) -> Tensor<C> {
        let Tensor { buffer: _, dtype, len, mutable, leading_dimension, batch_stride, reserve } = *self;
        Tensor { buffer, dtype, len, mutable, leading_dimension, batch_stride, reserve }
    }
}

/// What can be passed as a tensor over buffers of type `B`: a slice, or a [`Tensor`] with strides of its own.
///
/// ```
/// # use postlude::prelude::*;
/// let (wide, mut d) = (vec![0.0f32; 4 * 10], vec![0.0f32; 4 * 16]);
/// let args = HostArgs::new().input("a", wide.ld(10)).output("d", (&mut d).ld(16));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that arguments in `{B}` can borrow",
    label = "a borrowed slice of elements is wanted here",
    note = "on the host pass `&vec`, `&array` or a slice, `&mut` as an output; on the device `&CudaSlice` or `&CudaView`, `&mut` as an output"
)]
pub trait IntoTensor<B>: Sized {
    /// The tensor.
    fn into_tensor(self) -> Tensor<B>;

    /// The same with this distance between rows (row-major) or columns (column-major), in elements.
    fn ld(self, elements: usize) -> Tensor<B> {
        Tensor { leading_dimension: Some(elements), ..self.into_tensor() }
    }

    /// The same with this distance between batch entries, in elements; 0 shares an input.
    fn batch_stride(self, elements: usize) -> Tensor<B> {
        Tensor { batch_stride: Some(elements), ..self.into_tensor() }
    }
}

impl<B> IntoTensor<B> for Tensor<B> {
    fn into_tensor(self) -> Tensor<B> {
        self
    }
}

/// Host memory, little-endian as the CPU's.
#[derive(Debug)]
pub enum HostBuffer<'a> {
    /// Memory that is read.
    Read(&'a [u8]),
    /// Memory that is written.
    Write(&'a mut [u8]),
}

impl HostBuffer<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            HostBuffer::Read(bytes) => bytes,
            HostBuffer::Write(bytes) => bytes,
        }
    }
}

impl<'a> Tensor<HostBuffer<'a>> {
    /// Elements of a format chosen at run time, as bytes; a rest too short for an element does not count.
    pub fn of_bytes(dtype: DType, bytes: &'a [u8]) -> Self {
        Tensor::new(HostBuffer::Read(bytes), dtype, dtype.elements(bytes.len()), false)
    }

    /// The same, to be written.
    pub fn of_bytes_mut(dtype: DType, bytes: &'a mut [u8]) -> Self {
        let len = dtype.elements(bytes.len());
        Tensor::new(HostBuffer::Write(bytes), dtype, len, true)
    }
}

impl<'a, T: Element> IntoTensor<HostBuffer<'a>> for &'a [T] {
    fn into_tensor(self) -> Tensor<HostBuffer<'a>> {
        Tensor::new(HostBuffer::Read(bytemuck::cast_slice(self)), T::DTYPE, self.len(), false)
    }
}

impl<'a, T: Element> IntoTensor<HostBuffer<'a>> for &'a Vec<T> {
    fn into_tensor(self) -> Tensor<HostBuffer<'a>> {
        self.as_slice().into_tensor()
    }
}

impl<'a, T: Element> IntoTensor<HostBuffer<'a>> for &'a mut [T] {
    fn into_tensor(self) -> Tensor<HostBuffer<'a>> {
        let len = self.len();
        Tensor::new(HostBuffer::Write(bytemuck::cast_slice_mut(self)), T::DTYPE, len, true)
    }
}

impl<'a, T: Element> IntoTensor<HostBuffer<'a>> for &'a mut Vec<T> {
    fn into_tensor(self) -> Tensor<HostBuffer<'a>> {
        self.as_mut_slice().into_tensor()
    }
}

impl<'a, T: Element, const N: usize> IntoTensor<HostBuffer<'a>> for &'a [T; N] {
    fn into_tensor(self) -> Tensor<HostBuffer<'a>> {
        self.as_slice().into_tensor()
    }
}

impl<'a, T: Element, const N: usize> IntoTensor<HostBuffer<'a>> for &'a mut [T; N] {
    fn into_tensor(self) -> Tensor<HostBuffer<'a>> {
        self.as_mut_slice().into_tensor()
    }
}

/// A number that can be passed by value. A Rust `f64`, which every number with a point is that has no other type, has the type of the
/// scalar: of an `f32` it becomes the nearest one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no number that can be passed by value",
    label = "an `f32`, an `f64`, an `i32` or a `bool` is wanted here",
    note = "convert other numbers with `as f32` or `as i32`, half-precision ones with `.to_f32()`: scalars of `F16` and `BF16` are passed as `f32`"
)]
pub trait IntoScalar {
    /// The constant.
    fn into_scalar(self) -> Constant;
}

impl IntoScalar for f32 {
    fn into_scalar(self) -> Constant {
        Constant::F32(self.to_bits())
    }
}

impl IntoScalar for f64 {
    fn into_scalar(self) -> Constant {
        Constant::F64(self.to_bits())
    }
}

impl IntoScalar for i32 {
    fn into_scalar(self) -> Constant {
        Constant::I32(self)
    }
}

impl IntoScalar for bool {
    fn into_scalar(self) -> Constant {
        Constant::Bool(self)
    }
}

impl<B> Default for Args<B> {
    fn default() -> Args<B> {
        Args { given: Vec::new(), origin: [0; 3] }
    }
}

impl<B> Args<B> {
    /// No arguments yet.
    pub fn new() -> Args<B> {
        Args::default()
    }

    /// Memory that is read: `a`, `b`, and what the epilogue loads.
    #[must_use]
    pub fn input(mut self, name: &str, tensor: impl IntoTensor<B>) -> Args<B> {
        self.given.push((name.into(), Given::Tensor { tensor: tensor.into_tensor(), writable: false }));
        self
    }

    /// Memory that is written, or updated in place.
    #[must_use]
    pub fn output(mut self, name: &str, tensor: impl IntoTensor<B>) -> Args<B> {
        self.given.push((name.into(), Given::Tensor { tensor: tensor.into_tensor(), writable: true }));
        self
    }

    /// A scalar by value.
    #[must_use]
    pub fn scalar(mut self, name: &str, value: impl IntoScalar) -> Args<B> {
        self.given.push((name.into(), Given::Scalar(value.into_scalar())));
        self
    }

    /// The same list without what an epilogue does not use: one list for several epilogues. What it needs and the list lacks is an
    /// error of the launch all the same.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let plain = Epilogue::build(|e| e.store("d", e.acc(), F32))?;
    /// let (a, b, bias, mut d) = ([1.0f32], [2.0f32], [3.0f32], [0.0f32]);
    /// let args = HostArgs::new().input("a", &a).input("b", &b).input("bias", &bias).output("d", &mut d);
    /// Gemm::new(F32, TT, &plain).reference(Shape::new(1, 1, 1), args.used_by(plain.checked()))?;
    /// assert_eq!(d, [2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn used_by(mut self, epilogue: &Checked) -> Args<B> {
        self.given.retain(|(name, _)| matches!(&**name, "a" | "b") || epilogue.argument(name).is_some());
        self
    }

    /// The same with strides for a tensor that has none of its own.
    pub(crate) fn strided(mut self, of: &str, leading_dimension: usize, batch_stride: usize) -> Args<B> {
        for (name, given) in &mut self.given {
            if let Given::Tensor { tensor, .. } = given
                && name == of
            {
                tensor.leading_dimension.get_or_insert(leading_dimension);
                tensor.batch_stride.get_or_insert(batch_stride);
            }
        }
        self
    }

    /// Gives arguments other names, where there is one for a name.
    pub(crate) fn rename(&mut self, other: impl Fn(&str) -> Option<&'static str>) {
        for (name, _) in &mut self.given {
            if let Some(other) = other(name) {
                other.clone_into(name);
            }
        }
    }

    /// The coordinates of the first output element, where the output is a slice or a shard of a larger matrix. Default: 0.
    #[must_use]
    pub fn origin(mut self, row: i32, column: i32, batch: i32) -> Args<B> {
        self.origin = [row, column, batch];
        self
    }
}
