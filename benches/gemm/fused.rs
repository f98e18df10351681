//! The epilogues of the contests. The tests of the choice of tiles have them from here, too.

use crate::case::Fused;
use postlude::build::{activation, recipes};
use postlude::compat::cublaslt::{self, Formats};
use postlude::dtype::ValueType;
use postlude::ir::{Function, Graph, Node, Sink, SinkKind};
use postlude::prelude::*;
use std::error::Error;

type Built = Result<Epilogue, Box<dyn Error>>;

impl Fused {
    /// As one kernel with the product.
    pub fn epilogue(self, dtype: DType) -> Built {
        let bias_activation = |f: fn(Expr<'_>) -> Expr<'_>| recipes::bias_activation(dtype, dtype, f);
        Ok(match self {
            Fused::Identity => recipes::identity(dtype)?,
            Fused::Activation(place) => activated(dtype, activation::ALL[place])?,
            Fused::Relu => bias_activation(|z| z.relu())?,
            Fused::Gelu => bias_activation(|z| z.gelu_tanh())?,
            Fused::Residual => Epilogue::build(|e| e.store("d", e.acc() + e.load("c", dtype), dtype))?,
            Fused::Regions => recipes::split_rows(dtype, dtype, |z| z.sigmoid(), |z| z.tanh())?,
            Fused::Heavy => Epilogue::build(|e| {
                let z = e.acc() + e.load("bias", dtype.over(N));
                e.store("d", z.silu() * e.load("c", dtype) * e.load("row_scale", F32.over(M)), dtype);
            })?,
            Fused::ReluMask => cublaslt::relu_aux_bias(formats(dtype))?,
            Fused::GeluInput => cublaslt::gelu_aux_bias(formats(dtype))?,
            Fused::MaskSum => cublaslt::drelu_bgrad(Formats { bias: F32, ..formats(dtype) })?,
            Fused::GeluSum => cublaslt::dgelu_bgrad(Formats { bias: F32, ..formats(dtype) })?,
            Fused::BiasSum => cublaslt::bgrada(Formats { bias: F32, ..formats(dtype) })?,
        })
    }

    /// The rest of it, over a matrix that already has its bias.
    pub fn pointwise(self, dtype: DType) -> Built {
        Ok(match self {
            Fused::Regions => Epilogue::build(|e| {
                let first = e.row().lt(e.scalar("boundary", I32));
                e.store("d", e.acc().region(first, |z| z.sigmoid()).otherwise(|z| z.tanh()), dtype);
            })?,
            Fused::Heavy => Epilogue::build(|e| {
                e.store("d", e.acc().silu() * e.load("c", dtype) * e.load("row_scale", F32.over(M)), dtype);
            })?,
            Fused::ReluMask => cublaslt::relu_aux(formats(dtype))?,
            // Its argument is already stored.
            Fused::GeluInput => cublaslt::gelu(formats(dtype))?,
            Fused::MaskSum => cublaslt::drelu(formats(dtype))?,
            Fused::GeluSum => cublaslt::dgelu(formats(dtype))?,
            Fused::BiasSum => recipes::identity(dtype)?,
            other => other.epilogue(dtype)?,
        })
    }
}

/// D = an activation of acc. Its parameters are those that most use: a factor is 1, and a slope or a bound is not.
fn activated(dtype: DType, function: &'static Function) -> Built {
    let mut graph = Graph::new();
    let mut args = vec![graph.push(Node::Accumulator(ValueType::F32), None)];
    for (place, name) in function.parameters.iter().enumerate().skip(1) {
        let is_factor = matches!(*name, "alpha" | "beta");
        args.push(graph.constant_f32(if is_factor { 1.0 } else { 0.25 * place as f32 }));
    }
    let value = graph.push(Node::Call { function, args }, None);
    graph.sink(Sink::new("d", value, SinkKind::Store(dtype.into())), None);
    Ok(Epilogue::from_graph(graph)?)
}

/// The epilogues of training steps.
fn formats(dtype: DType) -> Formats {
    Formats { scaled: false, ..Formats::of(dtype) }
}
