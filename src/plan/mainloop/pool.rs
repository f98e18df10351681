//! Pools as kernels see them: what images and windows measure, as constants of the source.

use crate::problem::{ConvShape, PoolKind, Pooling};

/// The constants of a pool's kernel. The number of images is that of the launch's rows.
pub(crate) fn constants(pooling: &Pooling) -> [(&'static str, usize); 14] {
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
    ]
}
