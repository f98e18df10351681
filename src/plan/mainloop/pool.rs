//! Pools as kernels see them: what images and windows measure, as constants of the source.

use crate::ir::{Operand, Order};
use crate::plan::InstrKind;
use crate::plan::request::TileRequest;
use crate::problem::{ConvShape, Operation, PoolKind, Pooling};

/// Taps of a window beyond which threads share them.
const SHARED_TAPS: usize = 16;

/// Whether threads share the taps of a window, so that a tile may have fewer rows than its threads could visit at a time.
pub(super) fn shares_taps(operation: Operation) -> bool {
    operation.pooling().is_some_and(|pooling| has_many_taps(&pooling))
}

fn has_many_taps(pooling: &Pooling) -> bool {
    pooling.windows().taps() > SHARED_TAPS
}

impl TileRequest<'_> {
    /// Whether a pointwise kernel is faster with few columns and many rows: where wider tiles would leave threads without work,
    /// and where matrices lie along rows, so that few lines are touched at a time.
    pub(in crate::plan) fn wants_narrow_tiles(&self) -> bool {
        self.shape.n <= 64 || self.has_turned_matrices()
    }

    /// Whether any matrix that is loaded or stored lies across the strips.
    pub(super) fn has_turned_matrices(&self) -> bool {
        let turned = |operand: &Operand| operand.axes.is_matrix() && operand.order == Order::ColumnMajor;
        let loads = self.program.steps.iter().any(|s| matches!(&s.kind, InstrKind::Load { operand, .. } if turned(operand)));
        let stores = self.program.stores.iter().any(|store| turned(&store.operand));
        loads || stores
    }
}

/// The constants of a pool's kernel. The number of images is that of the launch's rows.
pub(crate) fn constants(pooling: &Pooling) -> [(&'static str, usize); 15] {
    let ConvShape { height, width, window, stride, padding, dilation, .. } = pooling.windows().measures();
    let [rows, columns] = pooling.windows().output();
    [
        ("IMAGE_HEIGHT", height),
        ("IMAGE_WIDTH", width),
        ("OUTPUT_PIXELS", rows * columns),
        ("OUTPUT_WIDTH", columns),
        ("WINDOW_HEIGHT", window[0]),
        ("WINDOW_WIDTH", window[1]),
        ("STRIDE_Y", stride[0]),
        ("STRIDE_X", stride[1]),
        ("ABOVE", padding[0]),
        ("LEFT", padding[2]),
        ("DILATION_Y", dilation[0]),
        ("DILATION_X", dilation[1]),
        ("TAKES_LARGEST", usize::from(pooling.kind() == PoolKind::Max)),
        ("COUNTS_PADDING", usize::from(pooling.kind() == PoolKind::AverageOfTaps)),
        ("SHARES_TAPS", usize::from(has_many_taps(pooling))),
    ]
}
