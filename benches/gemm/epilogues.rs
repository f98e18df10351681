//! The epilogues of the contests, and their kernels.

use crate::Result;
use crate::case::{Case, Fused, Group, boundary};
use crate::operands::{Begins, Operands};
use postlude::build::{activation, recipes};
use postlude::compat::cublaslt::{self, Formats};
use postlude::cudarc::driver::CudaStream;
use postlude::dtype::ValueType;
use postlude::gemm::Plan;
use postlude::ir::{Function, Graph, Node, Order, Sink, SinkKind};
use postlude::plan::Tile;
use postlude::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

impl Fused {
    /// As one kernel with the product.
    pub fn epilogue(self, dtype: DType) -> Result<Epilogue> {
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
    pub fn pointwise(self, dtype: DType) -> Result<Epilogue> {
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
fn activated(dtype: DType, function: &'static Function) -> Result<Epilogue> {
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

/// The sum of each column of a matrix, which is D or, where the product's epilogue sums it, B; and its extents.
pub fn sums(case: &Case, fused: Fused) -> Result<(Gemm, Shape, Begins)> {
    let epilogue = Epilogue::build(|e| e.reduce("bgrad", e.acc(), Monoid::Sum, F32.over(N)))?;
    let Shape { m, n, k, .. } = case.shape;
    let (order, rows, begins) = match fused {
        Fused::BiasSum => (case.layout.b(), k, Begins::OperandB),
        _ => (Order::RowMajor, m, Begins::Stored),
    };
    Ok((Gemm::pointwise(case.dtype, order, &epilogue), Shape::new(rows, n, 0), begins))
}

/// The operation of a case with one of its epilogues.
pub fn product(case: &Case, fused: Fused) -> Result<Gemm> {
    Ok(over(case, &fused.epilogue(case.dtype)?))
}

/// The same whose sums are added up in any order.
pub fn atomic(case: &Case, fused: Fused) -> Result<Gemm> {
    Ok(over(case, &fused.epilogue(case.dtype)?.atomic()))
}

fn over(case: &Case, epilogue: &Epilogue) -> Gemm {
    // Decoding multiplies by weights, which no kernel writes.
    let decoding = match case.group {
        Group::Few => true,
        Group::FewPlain => false,
        _ => case.shape.m <= 128,
    };
    Gemm::new(case.dtype, case.layout, epilogue).constant_operands(decoding.then_some(Side::B))
}

/// The pointwise operation that is left of an epilogue.
pub fn pointwise(case: &Case, fused: Fused) -> Result<Gemm> {
    Ok(Gemm::pointwise(case.dtype, Order::RowMajor, &fused.pointwise(case.dtype)?))
}

/// A kernel of ours, ready to launch.
pub struct Kernel {
    plan: Plan,
    begins: Begins,
    boundary: i32,
}

impl Kernel {
    pub fn new(device: &Device, gemm: &Gemm, shape: Shape, begins: Begins) -> Result<Kernel> {
        Ok(Kernel { plan: gemm.plan(device, shape)?, begins, boundary: boundary(shape.m) as i32 })
    }

    pub fn tile(&self) -> Tile {
        self.plan.kernel().plan.product().tile
    }

    /// How many parts of K there are.
    pub fn parts(&self) -> usize {
        self.plan.kernel().plan.split.as_ref().map_or(1, |split| split.parts)
    }

    /// The tile, and the parts of K if it is split.
    pub fn name(&self) -> String {
        match self.parts() {
            1 => self.tile().to_string(),
            parts => format!("{}, K in {parts} parts", self.tile()),
        }
    }

    /// The same with the order of the tiles, and whether blocks keep lockstep.
    pub fn name_and_raster(&self) -> String {
        format!("{}, groups of {}{}", self.name(), self.raster(), if self.is_in_step() { ", in step" } else { "" })
    }

    pub fn is_in_step(&self) -> bool {
        self.plan.kernel().plan.lockstep
    }

    pub fn raster(&self) -> i32 {
        self.plan.kernel().plan.raster
    }

    /// Whether they run alike.
    pub fn is_like(&self, other: &Kernel) -> bool {
        let all = |kernel: &Kernel| (kernel.tile(), kernel.raster(), kernel.parts(), kernel.is_in_step());
        all(self) == all(other)
    }

    pub fn launch(&self, stream: &Arc<CudaStream>, operands: &mut Operands, turn: usize) -> Result<()> {
        let arguments = &self.plan.kernel().plan.arguments;
        let mut args = operands.args(turn, self.begins, arguments);
        if arguments.iter().any(|a| &*a.name == "boundary") {
            args = args.scalar("boundary", self.boundary);
        }
        Ok(self.plan.execute(stream, &mut args)?)
    }
}

/// Compiles many kernels at once into the device's cache. A kernel that fails is reported where it is needed.
pub fn precompile(device: &Device, wanted: &[(Gemm, Shape)]) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(wanted.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((gemm, shape)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = gemm.compile(device.cache(), device.target(), device.gpu(), *shape);
                }
            });
        }
    });
}
