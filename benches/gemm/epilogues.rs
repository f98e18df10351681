//! The kernels of the contests.

use crate::Result;
use crate::case::{Case, Fused, Group, boundary};
use crate::operands::{Begins, Operands};
use crate::support;
use postlude::cudarc::driver::CudaStream;
use postlude::gemm::Plan;
use postlude::ir::Order;
use postlude::plan::Tile;
use postlude::prelude::*;
use std::sync::Arc;

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
    let gemm = Gemm::new(case.dtype, case.layout, epilogue).tf32(case.group == Group::Tf32);
    gemm.constant_operands(decoding.then_some(Side::B))
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

    /// The same with the order of the tiles, whether blocks keep lockstep, and whether the product is transposed.
    pub fn name_and_raster(&self) -> String {
        let lockstep = if self.is_in_lockstep() { ", lockstep" } else { "" };
        let transposed = if self.is_transposed() { ", transposed" } else { "" };
        format!("{}, groups of {}{lockstep}{transposed}", self.name(), self.raster())
    }

    pub fn is_transposed(&self) -> bool {
        self.plan.kernel().plan.product().transposed
    }

    pub fn is_in_lockstep(&self) -> bool {
        self.plan.kernel().plan.lockstep
    }

    pub fn raster(&self) -> i32 {
        self.plan.kernel().plan.raster
    }

    /// Whether they run alike.
    pub fn is_like(&self, other: &Kernel) -> bool {
        let tiles = |kernel: &Kernel| (kernel.tile(), kernel.raster(), kernel.is_transposed());
        let all = |kernel: &Kernel| (tiles(kernel), kernel.parts(), kernel.is_in_lockstep());
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
    support::at_once(wanted, |(gemm, shape)| drop(gemm.compile(device.cache(), device.target(), device.gpu(), *shape)));
}
