//! Arguments: names bound to memory and numbers, checked against the epilogue's needs before anything runs.
//!
//! The device and the CPU reference use the same list over different buffers. The list borrows its arguments, outputs
//! mutably, so the borrow checker keeps written memory apart from read memory.

mod bind;
mod fault;
mod fit;
mod layout;
mod place;
pub(crate) mod reserve;
mod slot;

pub(crate) use bind::bind;
#[cfg(feature = "cuda")]
pub(crate) use bind::bind_into;
pub(crate) use bind::{Bound, BoundTensor};
pub use fault::{ArgumentError, ArgumentErrors, ArgumentFault};
pub use fit::Misfit;
pub(crate) use fit::{fit_extents, fit_operation};
pub use layout::{LayoutError, MemoryLayout};
pub(crate) use place::laid_out;
pub use reserve::{Reserve, ReserveTag};
pub(crate) use slot::is_unread_operand;
pub use slot::{Slot, SlotKind, slots};

use crate::check::Checked;
use crate::dtype::{DType, Element};
use crate::ir::Constant;
use crate::problem::ScaleField;

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

/// The value passed under a name.
#[derive(Debug)]
pub(crate) enum Given<B> {
    Tensor { tensor: Tensor<B>, writable: bool },
    Scalar(Constant),
}

/// Memory, and the layout of a matrix or vector in it: contiguous, unless [`ld`](IntoTensor::ld) or
/// [`batch_stride`](IntoTensor::batch_stride) set other strides.
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
    /// Its extents and strides, if its owner stated them.
    pub(crate) layout: Option<MemoryLayout>,
    /// The reserve it is part of.
    pub(crate) reserve: Option<ReserveTag>,
}

impl<B> Tensor<B> {
    /// A contiguous buffer that holds `len` elements. Only a buffer's own conversion makes one, because launches rely
    /// on the length.
    pub(crate) fn new(buffer: B, dtype: DType, len: usize, mutable: bool) -> Tensor<B> {
        Tensor { buffer, dtype, len, mutable, leading_dimension: None, batch_stride: None, layout: None, reserve: None }
    }

    /// The same bytes as elements of another format of the same size: `U8` as `E4M3`, where a library passes bytes. With
    /// another size the tensor stays as it is, and the launch reports its format.
    #[must_use]
    pub fn reinterpret(self, dtype: DType) -> Tensor<B> {
        if dtype.bits() == self.dtype.bits() { Tensor { dtype, ..self } } else { self }
    }

    /// The same elements, in the same places, of another buffer.
    pub(crate) fn over<C>(&self, buffer: C) -> Tensor<C> {
        let Tensor { buffer: _, dtype, len, mutable, leading_dimension, batch_stride, layout, reserve } = *self;
        Tensor { buffer, dtype, len, mutable, leading_dimension, batch_stride, layout, reserve }
    }
}

/// A value that can be passed as a tensor over buffers of type `B`: a slice, or a [`Tensor`] with strides of its own.
///
/// ```
/// # use postlude::prelude::*;
/// let (wide, mut d) = (vec![0.0f32; 4 * 10], vec![0.0f32; 4 * 16]);
/// let args = HostArgs::new().input("a", wide.ld(10)).output("d", (&mut d).ld(16));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory that arguments in `{B}` can borrow",
    label = "expected a borrowed slice of elements",
    note = "on the host pass `&vec`, `&array` or a slice, `&mut` as an output; on the device `&CudaSlice` or \
        `&CudaView`, `&mut` as an output"
)]
pub trait IntoTensor<B>: Sized {
    /// The tensor.
    fn into_tensor(self) -> Tensor<B>;

    /// Sets the distance between rows (row-major) or columns (column-major), in elements.
    fn ld(self, elements: usize) -> Tensor<B> {
        Tensor { leading_dimension: Some(elements), ..self.into_tensor() }
    }

    /// Sets the distance between batch entries, in elements; 0 shares an input.
    fn batch_stride(self, elements: usize) -> Tensor<B> {
        Tensor { batch_stride: Some(elements), ..self.into_tensor() }
    }

    /// States extents and strides, instead of `ld` and `batch_stride`. A launch compares the extents with the argument's,
    /// and takes the strides from here. Bit masks count bytes.
    fn laid_out(self, layout: MemoryLayout) -> Tensor<B> {
        Tensor { layout: Some(layout), ..self.into_tensor() }
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
    /// Memory for reading.
    Read(&'a [u8]),
    /// Memory for writing.
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
    /// Elements of a format chosen at run time, as bytes. A remainder too short for an element is ignored.
    pub fn of_bytes(dtype: DType, bytes: &'a [u8]) -> Self {
        Tensor::new(HostBuffer::Read(bytes), dtype, dtype.elements(bytes.len()), false)
    }

    /// The same, for writing.
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

/// A number that can be passed by value. A Rust literal with a decimal point is an `f64` unless something else gives it
/// a type. It takes the type of the scalar: for an `f32` it becomes the nearest one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number that can be passed by value",
    label = "expected an `f32`, an `f64`, an `i32` or a `bool`",
    note = "convert other numbers with `as f32` or `as i32`, half-precision ones with `.to_f32()`: scalars of `F16` \
        and `BF16` are passed as `f32`"
)]
pub trait IntoScalar {
    /// The constant.
    fn into_scalar(self) -> Constant;
}

impl IntoScalar for Constant {
    fn into_scalar(self) -> Constant {
        self
    }
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
    /// An empty list.
    pub fn new() -> Args<B> {
        Args::default()
    }

    /// Memory that a launch reads: `a`, `b`, and the epilogue's loads.
    #[must_use]
    pub fn input(mut self, name: &str, tensor: impl IntoTensor<B>) -> Args<B> {
        self.given.push((name.into(), Given::Tensor { tensor: tensor.into_tensor(), writable: false }));
        self
    }

    /// Memory that a launch writes or updates in place.
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

    /// The list without arguments that an epilogue does not use, so one list serves several epilogues. An argument that
    /// is needed and missing is still an error of the launch.
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
        let is_scale = |name: &str| ScaleField::ALL.iter().any(|field| field.name() == name);
        self.given.retain(|(name, _)| matches!(&**name, "a" | "b") || is_scale(name) || epilogue.argument(name).is_some());
        self
    }

    /// Sets the strides of a tensor that has none of its own.
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

    /// Renames the arguments for which `other` gives another name.
    pub(crate) fn rename(&mut self, other: impl Fn(&str) -> Option<&'static str>) {
        for (name, _) in &mut self.given {
            if let Some(other) = other(name) {
                other.clone_into(name);
            }
        }
    }

    /// The coordinates of the first output element, if the output is a slice or a shard of a larger matrix. Default: 0.
    #[must_use]
    pub fn origin(mut self, row: i32, column: i32, batch: i32) -> Args<B> {
        self.origin = [row, column, batch];
        self
    }
}
