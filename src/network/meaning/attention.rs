//! Attention, as the library defines it.

use crate::args::{HostArgs, Tensor as Claim};
use crate::build::recipes;
use crate::gemm::Gemm;
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::operator::Call;
use crate::network::tensor::Tensor;
use crate::problem::{Attention, Shape};

/// What a node computes, for queries of so many elements.
pub(in crate::network) fn measures(attributes: &Attributes, width: usize) -> Attention {
    let of = Attention::new(width);
    let scale = attributes.float_or("scale", of.scale());
    let of = of.scaled(scale as f32);
    if attributes.flag("is_causal") { of.causal() } else { of }
}

/// `ScaledDotProductAttention`: leading axes are a batch.
pub(crate) fn attention(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let [q, k, v] = [call.input(0)?, call.input(1)?, call.input(2)?];
    let (rank, dtype) = (q.rank(), q.dtype(call.name)?);
    let wrong = || Fault::Shape(format!("{} takes [.., M, D], [.., K, D] and [.., K, N]", call.name));
    if rank < 2 || k.rank() != rank || v.rank() != rank || k.format() != q.format() || v.format() != q.format() {
        return Err(wrong());
    }
    let [m, width, keys, n] = [q.shape()[rank - 2], q.shape()[rank - 1], k.shape()[rank - 2], v.shape()[rank - 1]];
    let batch = q.shape()[..rank - 2].iter().product();
    let leading = |x: &Tensor| x.shape()[..rank - 2] == q.shape()[..rank - 2];
    if !leading(k) || !leading(v) || k.shape()[rank - 1] != width || v.shape()[rank - 2] != keys {
        return Err(wrong());
    }
    let epilogue = recipes::identity(dtype).map_err(|faults| Fault::Value(faults.to_string()))?;
    let mut d = Tensor::blank(q.format(), &[&q.shape()[..rank - 1], &[n]].concat())?;
    let args = HostArgs::new()
        .input("a", Claim::of_bytes(dtype, q.bytes()))
        .input(Attention::KEYS, Claim::of_bytes(dtype, k.bytes()))
        .input("b", Claim::of_bytes(dtype, v.bytes()))
        .output("d", Claim::of_bytes_mut(dtype, d.bytes_mut()));
    let gemm = Gemm::attention(dtype, measures(call.attributes, width), &epilogue);
    gemm.reference(Shape::new(m, n, keys).batched(batch), args).map_err(|errors| Fault::Value(errors.to_string()))?;
    Ok(vec![d])
}
