//! Quantising and back, as ONNX defines them.

use super::expr::{Builder, Expr};
use super::into::IntoExpr;
use crate::dtype::{DType, ValueType};
use crate::ir::{Axes, Op};
use std::panic::Location;

impl Builder {
    /// Counts the magnitudes of a value in equally wide bins from 0 to `range`, for a calibration.
    ///
    /// The table `name` has `bins + 1` elements of `i32`, the last of which counts elements beyond the range. It grows from
    /// launch to launch. NaN counts nowhere. [`Histogram::of_counts`](crate::calibrate::Histogram::of_counts) reads it.
    ///
    /// With `along` [`N`](crate::ir::axes::N) every column has a histogram of its own, one behind the other, and with
    /// [`M`](crate::ir::axes::M) every row. Without axes, [`Axes::NONE`], there is one.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// use postlude::calibrate::{Histogram, Method};
    /// use postlude::ir::Axes;
    /// let epilogue = Epilogue::build(|e| {
    ///     let y = e.acc().relu();
    ///     e.histogram("magnitudes", y, e.scalar("range", F32), 256, Axes::NONE);
    ///     e.store("d", y, F32);
    /// })?;
    /// let (a, b, mut d, mut counts) = ([1.0f32, 2.0], [3.0f32, -0.5], [0.0f32; 4], [0i32; 257]);
    /// let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d).scalar("range", 6.0f32);
    /// Gemm::new(F32, TT, &epilogue).reference(Shape::new(2, 2, 1), args.output("magnitudes", &mut counts))?;
    /// let histogram = Histogram::of_counts(6.0, &counts)?;
    /// assert_eq!((histogram.elements(), histogram.beyond()), (4, 0));
    /// assert_eq!([0, 128, 255].map(|bin| histogram.counts()[bin]), [2, 1, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn histogram<'g>(&'g self, name: &str, value: Expr<'g>, range: impl IntoExpr<'g>, bins: u16, along: Axes) {
        let range = range.into_expr(self, Location::caller());
        let most = f32::from(bins);
        let magnitude = value.abs();
        let bin = (magnitude * (most / range)).floor().min(most - 1.0);
        let bin = magnitude.le(range).select(bin, most);
        let first = match (along.contains(crate::ir::axes::N), along.contains(crate::ir::axes::M)) {
            (true, _) => Some(self.column()),
            (false, true) => Some(self.row()),
            (false, false) => None,
        };
        let index = bin.cast(DType::I32);
        let index = first.map_or(index, |first| first * (i32::from(bins) + 1) + index);
        self.bincount(name, value.is_nan().select(-1, index));
    }
}

impl<'g> Expr<'g> {
    /// The number that stands for a real one in a format of eight bits: `x / scale + zero_point`, which saturates. ONNX's
    /// `QuantizeLinear`.
    ///
    /// For an integer format (`I8`, `U8`) the quotient is rounded to the nearest integer, ties to even, before the zero
    /// point is added; the result is an `i32` value, and NaN gives 0. For a floating-point one (`E4M3`, `E5M2`) it is
    /// rounded to that format, which has no zero point: give 0. Scale and zero point vary along whatever axes they like;
    /// a scale of 0 gives the ends of the range.
    ///
    /// The scale divides, as in ONNX. cuBLASLt's D scale and PyTorch's `scale_result` multiply: write `(z *
    /// scale).cast(E4M3)` for those, or store `z * scale`. A quotient is not always the product with a reciprocal, and
    /// where only narrow results are stored it is [fast](crate::Gemm::math), so that a tie may fall the other way.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let epilogue = Epilogue::build(|e| {
    ///     let y = e.acc().relu();
    ///     e.reduce("amax", y, Monoid::AbsMax, F32.pointer()); // of the real numbers, for the next scale
    ///     e.store("d", y.quantize(U8, e.load("y_scale", F32.pointer()), e.load("y_zero_point", U8.pointer())), U8);
    /// })?;
    /// # assert_eq!(epilogue.arguments().len(), 4);
    /// # Ok::<(), postlude::Diagnostics>(())
    /// ```
    #[doc(alias = "QuantizeLinear")]
    #[track_caller]
    pub fn quantize(self, to: DType, scale: impl IntoExpr<'g>, zero_point: impl IntoExpr<'g>) -> Expr<'g> {
        let at = Location::caller();
        let quotient = self.binary(Op::Div, scale, at);
        let zero_point = zero_point.into_expr(self.builder, at);
        let whole = if to.value_type() == ValueType::I32 { quotient.apply(Op::Round, &[], at) } else { quotient };
        // In floating point: an `i32` might wrap where this saturates.
        let moved = if zero_point.constant() == Some(0.0) { whole } else { whole.binary(Op::Add, zero_point.as_f32(at), at) };
        moved.apply(Op::cast(to), &[], at)
    }

    /// The real number that a quantised one stands for: `(x - zero_point) * scale`, an `f32` value. ONNX's `DequantizeLinear`.
    ///
    /// The difference of integers is taken as such, and wraps at 32 bits; so this is also what sums of products of
    /// integers become.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let epilogue = Epilogue::build(|e| {
    ///     let residual = e.load("residual", U8).dequantize(e.load("scale", F32.pointer()), e.load("zero_point", U8.pointer()));
    ///     e.store("d", e.acc() + residual, F16);
    /// })?;
    /// # assert_eq!(epilogue.arguments().len(), 4);
    /// # Ok::<(), postlude::Diagnostics>(())
    /// ```
    #[doc(alias = "DequantizeLinear")]
    #[track_caller]
    pub fn dequantize(self, scale: impl IntoExpr<'g>, zero_point: impl IntoExpr<'g>) -> Expr<'g> {
        let at = Location::caller();
        let zero_point = zero_point.into_expr(self.builder, at);
        let centred = if zero_point.constant() == Some(0.0) { self } else { self.binary(Op::Sub, zero_point, at) };
        centred.as_f32(at).binary(Op::Mul, scale, at)
    }

    /// An integer as the number that it is; anything else stays what it is.
    fn as_f32(self, at: &'static Location<'static>) -> Expr<'g> {
        let value = self.builder.graph.borrow().value_type(self.id);
        if value == ValueType::I32 { self.apply(Op::ToF32, &[], at) } else { self }
    }
}
