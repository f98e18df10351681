//! The sixteen epilogues of cuBLASLt as plain functions, for programs that use cuBLASLt, and as examples.
//!
//! cuBLASLt is column-major: its D with `m` rows is our row-major D with N = `m` columns, and its A, one line for each
//! of those, is our B. Its bias, one value a row, is ours over N. Column `j` of its ReLU mask is row `j` of ours, in
//! [`Bits128`](DType::Bits128): the leading dimension counts bits, is a multiple of 128, and the lowest bit comes
//! first. Its GELU auxiliary is a matrix whose leading dimension is a multiple of 8. Both can be passed between the
//! libraries unchanged.
//!
//! All use Z = alpha A B + beta C (without C, Z = alpha A B), where `alpha` and `beta` are scalars of the launch, and
//! store `d`. Those with a bias add it to Z after scaling. `aux` is the mask, or the argument of GELU. `bgrad` is a sum
//! over M, one value a column; BGRADA and BGRADB sum an unscaled operand over K.
//!
//! # Where the semantics differ from the rest of this library
//!
//! - The mask holds where Z >= 0. The derivative at 0 is therefore 1 here, but 0 in [`grad`](crate::grad) and PyTorch.
//!   The mask does not hold where Z is NaN, although D is NaN there, as in cuBLASLt (seen with `RELU_BIAS` in 13.1).
//! - A bias gradient sums the unrounded D; cuBLASLt sums the stored D. Its gradient has D's format (13.1 rejects f32
//!   beside 16-bit matrices), ours may be f32.
//! - GELU is the tanh form, [`Expr::gelu_tanh`]. Plain [`Expr::gelu`] is the exact form.
//! - If `beta` is 0, C is ignored, as in cuBLASLt: it may hold anything. This is a select, so no gradient reaches C or
//!   `beta` then.
//!
//! # Operands of eight bits
//!
//! [`Formats::fp8`] and [`Formats::int8`] are for products of such operands, and [`Scales`] says which scales they have.
//! `scale_a` and `scale_b` multiply the product, and `scale_d` multiplies what is stored, as cuBLASLt's scale pointers do
//! (its A is our B). `amax` is the largest absolute value of an element before `scale_d` and rounding, as in cuBLASLt. Both
//! scales of operands may be vectors, which is cuBLASLt's `OUTER_VEC_32F`. For integers cuBLASLt has only the scale alpha,
//! and only the epilogue `DEFAULT` beside a D of eight bits. Stores saturate in both libraries.

use crate::build::{Builder, Epilogue, Expr};
use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::ir::axes::{M, N};
use crate::ir::{Monoid, Operand};

/// The formats of an epilogue's matrices and vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// The format of D.
    pub d: DType,
    /// The format of C, if there is one.
    pub c: Option<DType>,
    /// The format of the bias and its gradient.
    pub bias: DType,
    /// The format of GELU's argument. ReLU's mask consists of bits.
    pub aux: DType,
    /// Whether `alpha` and `beta` are scalars of the launch. Otherwise both are 1.
    pub scaled: bool,
    /// What there is besides where A and B have eight bits.
    pub scales: Scales,
}

/// What products of eight bits have besides. A launch may leave out each scale, which then is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Scales {
    /// Whether the accumulator is an `i32`: that of integers.
    pub integers: bool,
    /// `scale_a`, by which A was divided: `F32.pointer()`, or `F32.over(M)`.
    pub a: Option<Operand>,
    /// `scale_b`, by which B was divided: `F32.pointer()`, or `F32.over(N)`.
    pub b: Option<Operand>,
    /// Whether D is multiplied by `scale_d`, one number by device pointer.
    pub d: bool,
    /// Whether `amax` is left, one number by device pointer.
    pub amax: bool,
}

impl Scales {
    const NONE: Scales = Scales { integers: false, a: None, b: None, d: false, amax: false };
}

impl Formats {
    /// One format for all, with scalars and without C.
    pub const fn of(dtype: DType) -> Formats {
        Formats { d: dtype, c: None, bias: dtype, aux: dtype, scaled: true, scales: Scales::NONE }
    }

    /// The formats of a product of `E4M3` and `E5M2`. It takes `alpha`, and `scale_a` and `scale_b` by device pointer. If D
    /// has eight bits too, it takes `scale_d` and leaves `amax`. C, bias and auxiliaries have 16 bits: D's format, or BF16.
    ///
    /// ```
    /// use postlude::compat::cublaslt::{self, Formats};
    /// use postlude::float8::F8E4M3;
    /// use postlude::prelude::*;
    /// let epilogue = cublaslt::relu_bias(Formats::fp8(E4M3))?;
    /// let one = [F8E4M3::from_f32(1.0)];
    /// let (mut d, mut amax) = ([F8E4M3::from_f32(0.0)], [0.0f32]);
    /// let args = HostArgs::new().input("a", &one).input("b", &one).scalar("alpha", 1.0).input("scale_a", &[6.0f32]);
    /// let args = args.input("bias", &[postlude::half::bf16::ZERO]).input("scale_d", &[0.5f32]);
    /// let args = args.output("d", &mut d).output("amax", &mut amax);
    /// Gemm::new(E4M3, TN, &epilogue).reference(Shape::new(1, 1, 1), args)?;
    /// assert_eq!((d[0].to_f32(), amax[0]), (3.0, 6.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fp8(d: DType) -> Formats {
        let narrow = d.is_eight_bits();
        let other = if narrow || d == DType::F32 { DType::BF16 } else { d };
        let one = Some(DType::F32.pointer());
        let scales = Scales { integers: false, a: one, b: one, d: narrow, amax: narrow };
        Formats { d, bias: other, aux: other, scales, ..Formats::of(d) }
    }

    /// The formats of a product of `I8` and `U8`: `alpha`, and a bias of `F32`. The sums are `i32`, and become `f32` before
    /// the rest of the epilogue.
    pub fn int8(d: DType) -> Formats {
        let scales = Scales { integers: true, ..Scales::NONE };
        Formats { d, bias: DType::F32, aux: DType::BF16, scales, ..Formats::of(d) }
    }
}

/// One of the epilogues.
#[derive(Debug)]
pub struct Named {
    /// cuBLASLt's name without `CUBLASLT_EPILOGUE_`.
    pub name: &'static str,
    /// cuBLASLt's number, of `cublasLtEpilogue_t`.
    pub value: u32,
    /// The definition.
    pub doc: &'static str,
    /// Builds it.
    pub build: fn(Formats) -> Result<Epilogue, Diagnostics>,
}

macro_rules! epilogues {
    ($( $(#[doc = $doc:literal])+ $name:ident = $upper:literal $value:literal, |$e:ident, $f:ident| $body:block )*) => {
        $( $(#[doc = $doc])+
        ///
        /// # Errors
        /// If a format is not floating-point.
        #[doc(alias = $upper)]
        #[track_caller]
        pub fn $name(formats: Formats) -> Result<Epilogue, Diagnostics> {
            let $f = formats;
            Epilogue::build_for_caller(file!(), |$e| $body)
        } )*

        /// All epilogues, in the order of their numbers.
        pub static ALL: &[Named] = &[$(Named {
            name: $upper,
            value: $value,
            doc: concat!($($doc),+),
            // Behind a function pointer the caller is unknown, and no user can repair a line of this file.
            build: |formats| $name(formats).map_err(|faults| faults.in_document(&[])),
        }),*];
    };
}

epilogues! {
    /// D = Z.
    default = "DEFAULT" 1, |e, f| { stored(e, f, scaled(e, f)); }
    /// D = max(Z, 0).
    relu = "RELU" 2, |e, f| { stored(e, f, scaled(e, f).relu()); }
    /// D = Z + bias.
    bias = "BIAS" 4, |e, f| { stored(e, f, biased(e, f)); }
    /// D = max(Z + bias, 0).
    relu_bias = "RELU_BIAS" 6, |e, f| { stored(e, f, biased(e, f).relu()); }
    /// D = gelu(Z).
    gelu = "GELU" 32, |e, f| { stored(e, f, scaled(e, f).gelu_tanh()); }
    /// D = gelu(Z + bias).
    gelu_bias = "GELU_BIAS" 36, |e, f| { stored(e, f, biased(e, f).gelu_tanh()); }
    /// D = max(Z, 0), and its mask.
    relu_aux = "RELU_AUX" 130, |e, f| { masked(e, f, scaled(e, f)); }
    /// D = max(Z + bias, 0), and its mask.
    relu_aux_bias = "RELU_AUX_BIAS" 134, |e, f| { masked(e, f, biased(e, f)); }
    /// D = Z where the mask holds, else 0.
    drelu = "DRELU" 136, |e, f| { stored(e, f, unmasked(e, f)); }
    /// D = Z where the mask holds, else 0; bgrad = the sum of D over M.
    drelu_bgrad = "DRELU_BGRAD" 152, |e, f| { summed(e, f, unmasked(e, f)); }
    /// D = gelu(Z); aux = Z.
    gelu_aux = "GELU_AUX" 160, |e, f| { kept(e, f, scaled(e, f)); }
    /// D = gelu(Z + bias); aux = Z + bias.
    gelu_aux_bias = "GELU_AUX_BIAS" 164, |e, f| { kept(e, f, biased(e, f)); }
    /// D = Z gelu'(aux).
    dgelu = "DGELU" 192, |e, f| { stored(e, f, bent(e, f)); }
    /// D = Z gelu'(aux); bgrad = the sum of D over M.
    dgelu_bgrad = "DGELU_BGRAD" 208, |e, f| { summed(e, f, bent(e, f)); }
    /// D = Z; bgrad = the sum over K of cuBLASLt's A, one value for each of its rows. That is our B, one value a
    /// column.
    bgrada = "BGRADA" 256, |e, f| {
        stored(e, f, scaled(e, f));
        e.reduce("bgrad", if f.scales.integers { e.b_i32() } else { e.b() }, Monoid::Sum, f.bias.over(N));
    }
    /// D = Z; bgrad = the sum over K of cuBLASLt's B, one value for each of its columns. That is our A, one value a
    /// row.
    bgradb = "BGRADB" 512, |e, f| {
        stored(e, f, scaled(e, f));
        e.reduce("bgrad", if f.scales.integers { e.a_i32() } else { e.a() }, Monoid::Sum, f.bias.over(M));
    }
}

/// The epilogue with a number of `cublasLtEpilogue_t`.
pub fn by_value(value: u32) -> Option<&'static Named> {
    ALL.iter().find(|named| named.value == value)
}

/// Z = alpha A B + beta C, without C if beta is 0.
fn scaled(e: &Builder, formats: Formats) -> Expr<'_> {
    let Scales { integers, a, b, .. } = formats.scales;
    let z = if integers { e.acc_i32().cast(DType::F32) } else { e.acc() };
    let scale = |name: &'static str, operand: Option<Operand>| operand.map(|operand| e.load_or(name, operand, 1.0));
    let factors = [scale("scale_a", a), scale("scale_b", b), formats.scaled.then(|| e.scalar("alpha", DType::F32))];
    // All of them first: what does not vary along both axes is not multiplied for each element.
    let z = factors.into_iter().flatten().reduce(|x, y| x * y).map_or(z, |factor| z * factor);
    match formats.c {
        Some(c) if formats.scaled => {
            let beta = e.scalar("beta", DType::F32);
            beta.eq(0.0).select(z, z + e.load("c", c) * beta)
        }
        Some(c) => z + e.load("c", c),
        None => z,
    }
}

fn biased(e: &Builder, formats: Formats) -> Expr<'_> {
    scaled(e, formats) + e.load("bias", formats.bias.over(N))
}

/// Stores D, and its largest size before its scale.
fn stored(e: &Builder, formats: Formats, value: Expr<'_>) {
    if formats.scales.amax {
        e.reduce("amax", value, Monoid::AbsMax, DType::F32.pointer());
    }
    let scaled = if formats.scales.d { value * e.load_or("scale_d", DType::F32.pointer(), 1.0) } else { value };
    e.store("d", scaled, formats.d);
}

fn masked(e: &Builder, formats: Formats, z: Expr<'_>) {
    stored(e, formats, z.relu());
    e.store("aux", z.ge(0.0), DType::Bits128);
}

fn unmasked(e: &Builder, formats: Formats) -> Expr<'_> {
    e.load("aux", DType::Bits128).select(scaled(e, formats), 0.0)
}

fn summed(e: &Builder, formats: Formats, value: Expr<'_>) {
    stored(e, formats, value);
    e.reduce("bgrad", value, Monoid::Sum, formats.bias.over(N));
}

fn kept(e: &Builder, formats: Formats, z: Expr<'_>) {
    stored(e, formats, z.gelu_tanh());
    e.store("aux", z, formats.aux);
}

/// Z gelu'(x), with t = tanh(k0 x (1 + k1 x^2)): gelu'(x) = (1 + t) / 2 + x (1 - t^2) k0 (1 + 3 k1 x^2) / 2.
fn bent(e: &Builder, formats: Formats) -> Expr<'_> {
    const K0: f32 = 0.797_884_6;
    const K1: f32 = 0.044_715;
    const FAR: f32 = 16.0;
    // For large |x| t is 1 or -1, and the slope, which would overflow, is 0.
    let x = e.load("aux", formats.aux).clamp(-FAR, FAR);
    let square = x * x;
    let t = (x * square.fma(K0 * K1, K0)).tanh();
    let slope = x * square.fma(1.5 * K0 * K1, 0.5 * K0);
    scaled(e, formats) * slope.fma((-t).fma(t, 1.0), t.fma(0.5, 0.5))
}
