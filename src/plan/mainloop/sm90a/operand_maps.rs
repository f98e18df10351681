//! The tensor maps of A and B.

use crate::dtype::DType;
use crate::ir::Order;
use crate::plan::mainloop::sm90a::widened::{self, panel_terms};
use crate::plan::{MapSource, Swizzle, TensorMap, Tile, TileShape};
use crate::problem::{Layout, Operation};

/// Whether A passes through registers: `wgmma` reads tf32 from shared memory with K contiguous only, and from registers any A.
/// An A of fewer bits is widened there.
pub(crate) fn passes_registers(operation: Operation) -> bool {
    let strided = operation.dtype() == DType::F32 && operation.patches().is_none() && !operation.k_contiguous()[0];
    strided || widened::in_registers(operation)
}

/// The maps of A and B: boxes of 128 bytes of K, or of M or N if K is the strided axis. Under multicast each block of a
/// cluster fetches half of a box. Blocks that share K fetch everything that they multiply.
pub(super) fn operand_maps(tile: &Tile, operation: Operation, layout: Layout) -> Vec<TensorMap> {
    let dtypes = operation.dtypes();
    let sources = match operation.patches() {
        Some(patches) if patches.are_rows() => [MapSource::Patches, MapSource::Filters],
        Some(_) => [MapSource::Operand(0), MapSource::Patches],
        None => [MapSource::Operand(0), MapSource::Operand(1)],
    };
    let [cluster_m, cluster_n] = match tile.shape {
        TileShape::Sm90a { cluster, splits_k: false, .. } => cluster,
        _ => [1; 2],
    };
    let operands = [
        (tile.bm, layout.a() == Order::RowMajor, cluster_n),
        (tile.multiplied_columns(), layout.b() == Order::ColumnMajor, cluster_m),
    ];
    let map = |(i, (extent, k_major, shared)): (usize, (usize, bool, usize))| TensorMap {
        source: sources[i],
        dtype: dtypes[i],
        box_inner: panel_terms(dtypes[i]),
        box_outer: if k_major { extent } else { panel_terms(dtypes[i]) } / shared,
        swizzle: Swizzle::B128,
        required: true,
    };
    let mut maps: Vec<_> = operands.into_iter().enumerate().map(map).collect();
    if let Some(weights) = widened::map(tile, operation) {
        maps[0] = weights;
    }
    maps
}
