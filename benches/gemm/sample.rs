//! A sample of shapes that nobody picked, each with an epilogue and a layout: what the survey measures.

use crate::case::Fused;
use postlude::prelude::*;

/// How many shapes are drawn: of any extents, and of multiples of 64, whose rows begin at cache lines.
const DRAWN: usize = 300;
const DRAWN_AT_LINES: usize = 160;

/// Multiply-adds of the largest product, and elements of the largest matrix.
const LARGEST: (f64, usize) = (5e11, 1 << 30);

/// Outputs and K of the layers of open models: projections, the two halves of the block behind attention, vocabularies.
const LAYERS: [[usize; 2]; 34] = [
    // Llama 3 8B and 70B, Mistral 7B.
    [6144, 4096],
    [4096, 4096],
    [28672, 4096],
    [4096, 14336],
    [128_256, 4096],
    [10240, 8192],
    [8192, 8192],
    [57344, 8192],
    [8192, 28672],
    [32768, 4096],
    // Qwen 2.5 7B and 72B.
    [4608, 3584],
    [3584, 3584],
    [37888, 3584],
    [3584, 18944],
    [59136, 8192],
    [8192, 29568],
    // Gemma 2 9B.
    [8192, 3584],
    [3584, 4096],
    [28672, 3584],
    [3584, 14336],
    // DeepSeek V3's dense layers.
    [24576, 1536],
    [7168, 16384],
    [36864, 7168],
    [7168, 18432],
    // GPT-2, BERT-large, ViT-L.
    [2304, 768],
    [768, 768],
    [3072, 768],
    [768, 3072],
    [50264, 768],
    [3072, 1024],
    [1024, 1024],
    [4096, 1024],
    [1024, 4096],
    [30528, 1024],
];

/// Rows in front of them.
const ROWS: [usize; 14] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Shapes drawn log-uniformly, then each layer with some numbers of rows, then drawn shapes whose rows begin at cache lines.
pub fn shapes() -> Vec<[usize; 3]> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    // 8 to 32768, and 64 to 16384.
    let extent = |uniform: f64| ((3.0 + 12.0 * uniform).exp2() / 8.0).round() as usize * 8;
    let at_lines = |uniform: f64| ((6.0 + 8.0 * uniform).exp2() / 64.0).round() as usize * 64;
    let fits = |[m, n, k]: &[usize; 3]| {
        (m * n * k) as f64 <= LARGEST.0 && [m * n, m * k, n * k].into_iter().all(|elements| elements <= LARGEST.1)
    };
    let mut drawn = |count: usize, extent: &dyn Fn(f64) -> usize| -> Vec<[usize; 3]> {
        std::iter::from_fn(|| Some([(); 3].map(|()| extent(uniform())))).filter(fits).take(count).collect()
    };
    let mut shapes = drawn(DRAWN, &extent);
    let further = drawn(DRAWN_AT_LINES, &at_lines);
    for (i, [n, k]) in LAYERS.into_iter().enumerate() {
        shapes.extend([0, 5, 9].map(|step| [ROWS[(i + step) % ROWS.len()], n, k]).into_iter().filter(fits));
    }
    shapes.extend(further);
    shapes
}

/// The epilogue and the layout of a shape, by its place.
pub fn form(place: usize) -> (Fused, Layout) {
    let epilogues = [Fused::Identity, Fused::Relu, Fused::Identity, Fused::Gelu, Fused::Residual, Fused::Regions, Fused::Heavy];
    (epilogues[place % epilogues.len()], [TN, TN, NN, TN, TN, TN, NN][place / epilogues.len() % 7])
}
