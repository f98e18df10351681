//! Attention, as the library defines it.

use crate::args::{HostArgs, Tensor as Claim};
use crate::build::recipes;
use crate::dtype::DType;
use crate::gemm::Gemm;
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::operator::{Call, Scored, Site};
use crate::network::tensor::Tensor;
use crate::network::types::Type;
use crate::problem::{Attention, Scores, Shape};

/// What a node computes, for queries of so many elements.
pub(in crate::network) fn measures(attributes: &Attributes, width: usize) -> Attention {
    let of = Attention::new(width);
    let scale = attributes.float_or("scale", of.scale());
    let of = of.scaled(scale as f32);
    if attributes.flag("is_causal") { of.causal() } else { of }
}

/// The types of an attention's outputs, of one with a function of scores, too.
pub(in crate::network) fn types(site: &Site<'_>) -> Result<Vec<Type>, Fault> {
    let row = Scored::row().ok_or_else(|| Fault::Unsupported(site.name.to_owned()))?;
    row.types(&Site { inputs: &site.inputs[..3.min(site.inputs.len())], ..*site })
}

/// `ScaledDotProductAttention`: leading axes are a batch.
pub(crate) fn attention(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    computed(call, None, &[])
}

/// The same with a function of scores, whose inputs are stretched to the scores' shape.
pub(in crate::network) fn scored(call: &Call<'_>, scored: &Scored) -> Result<Vec<Tensor>, Fault> {
    let (q, k) = (call.input(0)?, call.input(1)?);
    if q.rank() < 2 || k.rank() < 2 {
        return Err(wrong(call));
    }
    let shape = [&q.shape()[..q.rank() - 1], &k.shape()[k.rank() - 2..k.rank() - 1]].concat();
    let mut inputs: Vec<(String, DType, Tensor)> = Vec::new();
    for index in 0..scored.inputs {
        let input = call.input(3 + index)?;
        inputs.push((format!("x{index}"), input.dtype(call.name)?, input.broadcast(&shape)?));
    }
    let function = scored.function(|s, index| Some(s.load(&inputs[index].0, inputs[index].1)))?;
    computed(call, Some(function), &inputs)
}

fn wrong(call: &Call<'_>) -> Fault {
    Fault::Shape(format!("{} takes [.., M, D], [.., K, D] and [.., K, N]", call.name))
}

/// The attention with a function of scores, if there is one, and its arguments.
fn computed(call: &Call<'_>, function: Option<Scores>, inputs: &[(String, DType, Tensor)]) -> Result<Vec<Tensor>, Fault> {
    let [q, k, v] = [call.input(0)?, call.input(1)?, call.input(2)?];
    let (rank, dtype) = (q.rank(), q.dtype(call.name)?);
    // Formats are known when the network is built, but extents may not be.
    if rank < 2 || k.rank() != rank || v.rank() != rank {
        return Err(wrong(call));
    }
    let [m, width, keys, n] = [q.shape()[rank - 2], q.shape()[rank - 1], k.shape()[rank - 2], v.shape()[rank - 1]];
    let batch = q.shape()[..rank - 2].iter().product();
    let leading = |x: &Tensor| x.shape()[..rank - 2] == q.shape()[..rank - 2];
    if !leading(k) || !leading(v) || k.shape()[rank - 1] != width || v.shape()[rank - 2] != keys {
        return Err(wrong(call));
    }
    let epilogue = recipes::identity(dtype).map_err(|faults| Fault::Value(faults.to_string()))?;
    let mut d = Tensor::blank(q.format(), &[&q.shape()[..rank - 1], &[n]].concat())?;
    let args = HostArgs::new()
        .input("a", Claim::of_bytes(dtype, q.bytes()))
        .input(Attention::KEYS, Claim::of_bytes(dtype, k.bytes()))
        .input("b", Claim::of_bytes(dtype, v.bytes()))
        .output("d", Claim::of_bytes_mut(dtype, d.bytes_mut()));
    let args = inputs.iter().fold(args, |args, (name, dtype, tensor)| args.input(name, Claim::of_bytes(*dtype, tensor.bytes())));
    let of = measures(call.attributes, width);
    let of = function.map_or(of, |function| of.scores(&function));
    let gemm = Gemm::attention(dtype, of, &epilogue);
    gemm.reference(Shape::new(m, n, keys).batched(batch), args).map_err(|errors| Fault::Value(errors.to_string()))?;
    Ok(vec![d])
}
