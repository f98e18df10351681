//! Whether an epilogue fits an operation.

use crate::check::Checked;
use crate::dtype::{DType, ValueType};
use crate::ir::Side;
use crate::problem::{Attention, Blocks, Layout, Operation, ScaleField, Shape};

/// Why an epilogue does not fit an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// The epilogue reads another accumulator than the operation computes.
    #[error("the epilogue reads an accumulator of type {wants}, but operands of {dtype} accumulate in {has}: \
        {cure}", cure = cure(*has))]
    Accumulator {
        /// The accumulator that the epilogue reads.
        wants: ValueType,
        /// The operation's accumulator.
        has: ValueType,
        /// The operands' format.
        dtype: DType,
    },
    /// A format that cannot be multiplied.
    #[error(
        "operands of {0} cannot be multiplied; use f32, f64, f16, bf16, e4m3, e5m2, i32, i8 or u8, or i4 or u4 beside f16 or bf16"
    )]
    Operands(DType),
    /// Two formats that cannot be multiplied with each other.
    #[error(
        "a of {a} and b of {b} cannot be multiplied: only e4m3 and e5m2 may be mixed, and i8 and u8, and f16 or bf16 with a \
         format of eight or four bits; store both in one format"
    )]
    Mixed {
        /// Format of A.
        a: DType,
        /// Format of B.
        b: DType,
    },
    /// An operand of four bits whose pairs do not lie along K.
    #[error("`{}` of {dtype} has two elements of K in a byte, and K is not contiguous in {layout}: store it with K contiguous",
        side.name())]
    Packed {
        /// The operand.
        side: Side,
        /// Its format.
        dtype: DType,
        /// The layout.
        layout: Layout,
    },
    /// Blocks that break a rule.
    #[error("`{}` has blocks of {blocks}: {rule}", side.name())]
    Blocks {
        /// The operand.
        side: Side,
        /// Its blocks.
        blocks: Blocks,
        /// The rule that they break.
        rule: &'static str,
    },
    /// Blocks of an operand that has no scales along K.
    #[error("`{}` of {dtype} beside {other} has no blocks: only e4m3 and e5m2 have, and weights of eight or four bits beside \
        f16 or bf16; multiply by scales of rows and columns in the epilogue", side.name())]
    Unscaled {
        /// The operand.
        side: Side,
        /// Its format.
        dtype: DType,
        /// The other operand's.
        other: DType,
    },
    /// A sum of an operand whose elements a scale or a wider format stands between.
    #[error("the epilogue sums `{}` over K, and one operand is scaled or widened: sum it with `Gemm::pointwise`", side.name())]
    WidenedSum {
        /// The operand.
        side: Side,
    },
    /// An argument of the epilogue with the name of scales.
    #[error("the operation itself has an argument `{name}`: give the epilogue's another name")]
    ScaleName {
        /// The name.
        name: &'static str,
    },
    /// An attention that breaks a rule.
    #[error("an attention of {attention}: {rule}")]
    Attention {
        /// The attention.
        attention: Attention,
        /// The rule.
        rule: &'static str,
    },
    /// An argument of a function of scores with the name of another argument.
    #[error(
        "a function of scores has an argument `{name}`, and the attention or its epilogue has one, too: give it another name"
    )]
    ScoreName {
        /// The name.
        name: &'static str,
    },
    /// Extents of an attention that are not those of whole sequences.
    #[error("a launch of {got} was asked for, and M and K are not those of whole sequences: {attention}")]
    Sequences {
        /// The attention.
        attention: Attention,
        /// The extents that were asked for.
        got: Shape,
    },
    /// A format that an attention does not have.
    #[error("queries, keys and values of {0} have no attention; use f16 or bf16, or f32 on the CPU")]
    Attended(DType),
    /// A sum of an operand's elements beside an attention.
    #[error(
        "the epilogue sums `{}` over K, and an attention has no such sums: reduce it by itself with `Gemm::pointwise`",
        side.name()
    )]
    AttentionSum {
        /// The operand.
        side: Side,
    },
    /// Extents that are not the convolution's, or the pool's.
    #[error("a launch of {got} was asked for, and the images make it {needs}: `Conv::shape` and `Pooling::shape` have it")]
    Extents {
        /// The operation's extents.
        needs: Shape,
        /// The extents that were asked for.
        got: Shape,
    },
    /// A sum of an operand's elements beside a convolution. Only the gradient of the filters has one, of dY.
    #[error(
        "the epilogue sums `{}` over K, and a convolution has no such sums yet, but for those of `a` beside the gradient of its \
         filters: reduce the operand by itself with `Gemm::pointwise`",
        side.name()
    )]
    ConvolutionSum {
        /// The operand.
        side: Side,
    },
    /// A format that cannot be pooled.
    #[error("images of {0} cannot be pooled; use f32, f16 or bf16")]
    Pooled(DType),
    /// A sum of an operand's elements without a product.
    #[error(
        "the epilogue sums `{}`, an operand of a product, and a pointwise operation has none: reduce `acc()` instead, \
         which is the matrix",
        side.name()
    )]
    NoProduct {
        /// The operand.
        side: Side,
    },
}

fn cure(has: ValueType) -> &'static str {
    match has {
        ValueType::F32 => "use `acc()`",
        ValueType::F64 => "use `acc_f64()`",
        ValueType::I32 => "use `acc_i32()` and cast it",
        ValueType::Bool => "load the matrix instead, as in `e.load(\"mask\", Bool)`; a document reads it as `acc bool`",
    }
}

/// Whether an epilogue fits an operation, on any device.
pub(crate) fn fit_operation(operation: Operation, epilogue: &Checked) -> Result<(), Misfit> {
    let (dtype, has) = (operation.dtype(), operation.accumulator());
    fit_formats(operation, epilogue)?;
    if let Some((attention, rule)) = operation.attention().and_then(|attention| Some((attention, attention.broken_rule()?))) {
        return Err(Misfit::Attention { attention, rule });
    }
    match (operation, epilogue.summed_operand()) {
        (Operation::Product { .. }, _) if operation.widened().is_some() => {}
        (Operation::Attention { .. }, _) if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) => {
            return Err(Misfit::Attended(dtype));
        }
        (Operation::Attention { .. }, Some(side)) => return Err(Misfit::AttentionSum { side }),
        (Operation::Attention { .. }, _) if epilogue.argument(Attention::KEYS).is_some() => {
            return Err(Misfit::ScaleName { name: Attention::KEYS });
        }
        (Operation::Attention { attention, .. }, _) if shared_name(attention, epilogue).is_some() => {
            return Err(Misfit::ScoreName { name: shared_name(attention, epilogue).unwrap_or_default() });
        }
        _ if operation.multiplies() && !dtype.multiplies() => return Err(Misfit::Operands(dtype)),
        (_, Some(side)) if operation.patches().is_some_and(|patches| patches.are_rows() || side == Side::B) => {
            return Err(Misfit::ConvolutionSum { side });
        }
        (Operation::Pool { .. }, _) if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) => {
            return Err(Misfit::Pooled(dtype));
        }
        (Operation::Pool { .. } | Operation::Pointwise { .. }, Some(side)) => return Err(Misfit::NoProduct { side }),
        _ => {}
    }
    match epilogue.accumulator() {
        Some(wants) if wants != has => Err(Misfit::Accumulator { wants, has, dtype }),
        _ => Ok(()),
    }
}

/// The name of an argument of a function of scores that something else has, too.
fn shared_name(attention: Attention, epilogue: &Checked) -> Option<&'static str> {
    let mut names = attention.function()?.arguments().iter().map(|argument| &*argument.name);
    names.find(|name| *name == Attention::KEYS || epilogue.argument(name).is_some())
}

/// Whether the formats of a product go together, and with the blocks of its operands.
fn fit_formats(operation: Operation, epilogue: &Checked) -> Result<(), Misfit> {
    let Operation::Product { a, b, layout, scales } = operation else { return Ok(()) };
    let widened = operation.widened();
    if a != b && !a.mixes_with(b) && widened.is_none() {
        return Err(Misfit::Mixed { a, b });
    }
    for (i, side) in [Side::A, Side::B].into_iter().enumerate() {
        let (dtype, other) = (operation.dtypes()[i], operation.dtypes()[1 - i]);
        if dtype.is_four_bits() && !operation.k_contiguous()[i] {
            return Err(Misfit::Packed { side, dtype, layout });
        }
        let Some(blocks) = scales[i] else { continue };
        if widened != Some(i) && (widened.is_some() || !dtype.sums_coarsely()) {
            return Err(Misfit::Unscaled { side, dtype, other });
        }
        if let Some(rule) = blocks.broken_rule(dtype) {
            return Err(Misfit::Blocks { side, blocks, rule });
        }
    }
    if let Some(side) = epilogue.summed_operand().filter(|_| widened.is_some() || operation.is_scaled()) {
        return Err(Misfit::WidenedSum { side });
    }
    match ScaleField::of(operation).find(|field| epilogue.argument(field.name()).is_some()) {
        Some(field) => Err(Misfit::ScaleName { name: field.name() }),
        None => Ok(()),
    }
}

/// Whether a launch of an operation may have these extents.
pub(crate) fn fit_extents(operation: Operation, shape: Shape) -> Result<(), Misfit> {
    if let Some(attention) = operation.attention().filter(|attention| !attention.fits(shape)) {
        return Err(Misfit::Sequences { attention, got: shape });
    }
    match operation.extents() {
        Some(needs) if needs != shape => Err(Misfit::Extents { needs, got: shape }),
        _ => Ok(()),
    }
}
