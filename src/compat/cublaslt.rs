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
//! - Scales and maxima of 8-bit formats have no counterpart yet.

use crate::build::{Builder, Epilogue, Expr};
use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::ir::Monoid;
use crate::ir::axes::{M, N};

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
}

impl Formats {
    /// One format for all, with scalars and without C.
    pub const fn of(dtype: DType) -> Formats {
        Formats { d: dtype, c: None, bias: dtype, aux: dtype, scaled: true }
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
    default = "DEFAULT" 1, |e, f| { e.store("d", scaled(e, f), f.d); }
    /// D = max(Z, 0).
    relu = "RELU" 2, |e, f| { e.store("d", scaled(e, f).relu(), f.d); }
    /// D = Z + bias.
    bias = "BIAS" 4, |e, f| { e.store("d", biased(e, f), f.d); }
    /// D = max(Z + bias, 0).
    relu_bias = "RELU_BIAS" 6, |e, f| { e.store("d", biased(e, f).relu(), f.d); }
    /// D = gelu(Z).
    gelu = "GELU" 32, |e, f| { e.store("d", scaled(e, f).gelu_tanh(), f.d); }
    /// D = gelu(Z + bias).
    gelu_bias = "GELU_BIAS" 36, |e, f| { e.store("d", biased(e, f).gelu_tanh(), f.d); }
    /// D = max(Z, 0), and its mask.
    relu_aux = "RELU_AUX" 130, |e, f| { masked(e, f, scaled(e, f)); }
    /// D = max(Z + bias, 0), and its mask.
    relu_aux_bias = "RELU_AUX_BIAS" 134, |e, f| { masked(e, f, biased(e, f)); }
    /// D = Z where the mask holds, else 0.
    drelu = "DRELU" 136, |e, f| { e.store("d", unmasked(e, f), f.d); }
    /// D = Z where the mask holds, else 0; bgrad = the sum of D over M.
    drelu_bgrad = "DRELU_BGRAD" 152, |e, f| { summed(e, f, unmasked(e, f)); }
    /// D = gelu(Z); aux = Z.
    gelu_aux = "GELU_AUX" 160, |e, f| { kept(e, f, scaled(e, f)); }
    /// D = gelu(Z + bias); aux = Z + bias.
    gelu_aux_bias = "GELU_AUX_BIAS" 164, |e, f| { kept(e, f, biased(e, f)); }
    /// D = Z gelu'(aux).
    dgelu = "DGELU" 192, |e, f| { e.store("d", bent(e, f), f.d); }
    /// D = Z gelu'(aux); bgrad = the sum of D over M.
    dgelu_bgrad = "DGELU_BGRAD" 208, |e, f| { summed(e, f, bent(e, f)); }
    /// D = Z; bgrad = the sum over K of cuBLASLt's A, one value for each of its rows. That is our B, one value a
    /// column.
    bgrada = "BGRADA" 256, |e, f| {
        e.store("d", scaled(e, f), f.d);
        e.reduce("bgrad", e.b(), Monoid::Sum, f.bias.over(N));
    }
    /// D = Z; bgrad = the sum over K of cuBLASLt's B, one value for each of its columns. That is our A, one value a
    /// row.
    bgradb = "BGRADB" 512, |e, f| {
        e.store("d", scaled(e, f), f.d);
        e.reduce("bgrad", e.a(), Monoid::Sum, f.bias.over(M));
    }
}

/// The epilogue with a number of `cublasLtEpilogue_t`.
pub fn by_value(value: u32) -> Option<&'static Named> {
    ALL.iter().find(|named| named.value == value)
}

/// Z = alpha A B + beta C, without C if beta is 0.
fn scaled(e: &Builder, formats: Formats) -> Expr<'_> {
    let z = if formats.scaled { e.acc() * e.scalar("alpha", DType::F32) } else { e.acc() };
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

fn masked(e: &Builder, formats: Formats, z: Expr<'_>) {
    e.store("d", z.relu(), formats.d);
    e.store("aux", z.ge(0.0), DType::Bits128);
}

fn unmasked(e: &Builder, formats: Formats) -> Expr<'_> {
    e.load("aux", DType::Bits128).select(scaled(e, formats), 0.0)
}

fn summed(e: &Builder, formats: Formats, value: Expr<'_>) {
    e.store("d", value, formats.d);
    e.reduce("bgrad", value, Monoid::Sum, formats.bias.over(N));
}

fn kept(e: &Builder, formats: Formats, z: Expr<'_>) {
    e.store("d", z.gelu_tanh(), formats.d);
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
