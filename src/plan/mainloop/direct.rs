//! What the mainloops share that only convolutions have, and that read images directly: `bands`, `depthwise` and
//! `depthwise_filters`. Their tiles are made for the convolution.

use super::rules::{Asked, Number};
use super::tile::Tile;
use crate::plan::request::TileRequest;
use crate::problem::{GradientOf, Operation, Patches};

/// The most blocks of a multiprocessor that are worth waiting for: what a grid has to fill.
const BLOCKS: usize = 4;

/// The most pixels of a thread side by side, and the widest window, where filters have one channel each.
pub(super) const LONGEST_RUN: usize = 8;
pub(super) const WIDEST_WINDOW: usize = 9;

/// How an operation reads images, if it is a convolution or the gradient of its images.
pub(super) fn images(operation: Operation) -> Option<Patches> {
    operation.patches().filter(|patches| patches.gradient != Some(GradientOf::Filters))
}

/// How filters of one channel each read images, or why the operation has none.
pub(super) fn of_one_channel(operation: Operation) -> Result<Patches, String> {
    let patches = images(operation).ok_or("the operation is not a convolution, nor the gradient of its images")?;
    has_one_channel(&patches).map(|()| patches)
}

/// Why filters have more channels than one, or channels have more filters, if that is so.
pub(super) fn has_one_channel(patches: &Patches) -> Result<(), String> {
    let of = &patches.convolution;
    let one = of.channels_of_group() == 1 && of.filters_of_group() == 1;
    if one { Ok(()) } else { Err("it is for convolutions in which each channel has a filter of its own".into()) }
}

/// Why they cannot compute a part of K.
pub(super) fn is_part(asked: &Asked<'_>) -> Option<String> {
    asked.operation.patches().filter(|of| of.shape() != asked.shape).map(|_| "it has all of K".into())
}

/// The rule of both on strips.
pub(super) fn strips(tile: &Tile, strip: usize) -> (bool, &'static str) {
    let bn = tile.bn;
    (bn >= 8 && bn.is_power_of_two() && bn.is_multiple_of(strip), "strips divide the columns, a power of two")
}

/// Full rounds of as many tiles as are resident, a part of one as it fills the multiprocessors, and at least one tile.
pub(super) fn waves(tile: &Tile, request: &TileRequest<'_>) -> f64 {
    let tiles = tile.count(request.shape) as f64;
    let at_once = (request.gpu.multiprocessors * tile.min_blocks.min(BLOCKS)) as f64;
    let on_one = tiles / request.gpu.multiprocessors as f64;
    on_one.max((tiles / at_once).ceil().min(2.0))
}

/// The window, as a kernel knows it when it is compiled.
pub(super) fn window(operation: Operation) -> Vec<Number> {
    let Some(patches) = operation.patches() else { return Vec::new() };
    let (of, windows) = (patches.convolution.measures(), patches.windows());
    let names = ["WINDOW_Y", "WINDOW_X", "STRIDE_X", "DILATION_X"];
    let mut all: Vec<Number> =
        names.into_iter().zip([of.window[0], of.window[1], windows.stride[1], windows.dilation[1]]).collect();
    if windows.spread != [1; 2] {
        all.extend([("SPREAD_Y", windows.spread[0]), ("SPREAD_X", windows.spread[1])]);
    }
    all
}

/// Pixels of a line that a run of windows reads.
pub(super) fn pixels_under(patches: &Patches, run: usize) -> usize {
    let (taps, windows) = (patches.convolution.measures().window[1], patches.windows());
    let (stride, dilation) = (windows.stride[1], windows.dilation[1]);
    let mut under: Vec<usize> = (0..run).flat_map(|q| (0..taps).map(move |s| q * stride + s * dilation)).collect();
    under.sort_unstable();
    under.dedup();
    under.len()
}
