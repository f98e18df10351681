//! Convolutions as mainloops see them: the rows of A are patches of the images, put together where A is read.
//!
//! Hopper's kernels go through K panel by panel: 128 bytes of the channels of one tap, the last one of a tap with zeros behind
//! the channels. Other kernels count elements, tap after tap.

use crate::check::Checked;
use crate::ir::axes::M;
use crate::ir::{Reduction, SinkKind};
use crate::plan::launch::problem;
use crate::plan::{Mainloop, Tile};
use crate::problem::{GradientOf, Operation, Patches, Shape, Windows};
use serde::Serialize;

/// A number of a convolution that kernels are launched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PatchField {
    /// Rows of an image.
    Height,
    /// Pixels of a row.
    Width,
    /// Channels of a pixel.
    Channels,
    /// Pixels of an output image.
    OutputPixels,
    /// Pixels of a row of it.
    OutputWidth,
    /// Pixels that the window moves down.
    StrideY,
    /// Pixels that the window moves to the right.
    StrideX,
    /// Padding above.
    Above,
    /// Padding on the left.
    Left,
    /// Pixels from tap to tap, down.
    DilationY,
    /// Pixels from tap to tap, to the right.
    DilationX,
    /// Taps in a row of the window.
    WindowWidth,
    /// 2^32 over that, rounded up.
    WindowWidthInverse,
    /// Channels of a group.
    GroupChannels,
    /// Filters of a group; channels of X, where those are the columns.
    GroupFilters,
    /// Groups.
    Groups,
    /// Taps of the window but one.
    LastTap,
    /// Positions from pixel to pixel, down.
    SpreadY,
    /// Positions from pixel to pixel, to the right.
    SpreadX,
    /// Taps from one to the next that meets the same remainder, down.
    StepY,
    /// Taps from one to the next that meets the same remainder, to the right.
    StepX,
    /// Rows of the pixels of one remainder, with those that fill up the last tile.
    ResidueRows,
    /// Images.
    Images,
    /// Rows from an image's first to where boxes of an im2col map begin.
    CornerY,
    /// Pixels of a row from an image's first to where they begin.
    CornerX,
    /// K of all parts.
    AllTerms,
    /// Panels of a tap.
    TapPanels,
    /// 2^32 over that, rounded up.
    TapPanelsInverse,
    /// Panels of a batch entry: of all taps or, where K is split, of a part.
    Panels,
}

impl PatchField {
    /// Every one.
    pub const ALL: [PatchField; 29] = [
        PatchField::Height,
        PatchField::Width,
        PatchField::Channels,
        PatchField::OutputPixels,
        PatchField::OutputWidth,
        PatchField::StrideY,
        PatchField::StrideX,
        PatchField::Above,
        PatchField::Left,
        PatchField::DilationY,
        PatchField::DilationX,
        PatchField::WindowWidth,
        PatchField::GroupChannels,
        PatchField::GroupFilters,
        PatchField::Groups,
        PatchField::LastTap,
        PatchField::SpreadY,
        PatchField::SpreadX,
        PatchField::StepY,
        PatchField::StepX,
        PatchField::ResidueRows,
        PatchField::Images,
        PatchField::CornerY,
        PatchField::CornerX,
        PatchField::AllTerms,
        PatchField::TapPanels,
        PatchField::Panels,
        PatchField::WindowWidthInverse,
        PatchField::TapPanelsInverse,
    ];

    /// The name in CUDA.
    pub const fn name(self) -> &'static str {
        match self {
            PatchField::Height => "image_height",
            PatchField::Width => "image_width",
            PatchField::Channels => "channels",
            PatchField::OutputPixels => "output_pixels",
            PatchField::OutputWidth => "output_width",
            PatchField::StrideY => "stride_y",
            PatchField::StrideX => "stride_x",
            PatchField::Above => "above",
            PatchField::Left => "left",
            PatchField::DilationY => "dilation_y",
            PatchField::DilationX => "dilation_x",
            PatchField::WindowWidth => "window_width",
            PatchField::WindowWidthInverse => "window_width_inverse",
            PatchField::GroupChannels => "group_channels",
            PatchField::GroupFilters => "group_filters",
            PatchField::Groups => "groups",
            PatchField::LastTap => "last_tap",
            PatchField::SpreadY => "spread_y",
            PatchField::SpreadX => "spread_x",
            PatchField::StepY => "step_y",
            PatchField::StepX => "step_x",
            PatchField::ResidueRows => "residue_rows",
            PatchField::Images => "images",
            PatchField::CornerY => "corner_y",
            PatchField::CornerX => "corner_x",
            PatchField::AllTerms => "all_terms",
            PatchField::TapPanels => "tap_panels",
            PatchField::TapPanelsInverse => "tap_panels_inverse",
            PatchField::Panels => "panels",
        }
    }

    /// Whether it has more than 32 bits.
    pub(crate) const fn is_long(self) -> bool {
        matches!(self, PatchField::WindowWidthInverse | PatchField::TapPanelsInverse)
    }

    /// Its value for launches on elements of so many bytes, with these extents. Positions may lie before the image.
    pub fn value(self, patches: &Patches, size: usize, shape: Shape) -> i64 {
        let Windows { image, grid, stride, spread, begin, dilation } = patches.windows();
        let of_tap = panels_of_tap(patches, size);
        let window_width = patches.convolution.measures().window[1];
        let value = match self {
            PatchField::Height => image[0],
            PatchField::Width => image[1],
            PatchField::Channels => patches.channels(),
            PatchField::OutputPixels => grid[0] * grid[1],
            PatchField::OutputWidth => grid[1],
            PatchField::StrideY => stride[0],
            PatchField::StrideX => stride[1],
            PatchField::Above => return -begin[0] as i64,
            PatchField::Left => return -begin[1] as i64,
            PatchField::DilationY => dilation[0],
            PatchField::DilationX => dilation[1],
            PatchField::WindowWidth => window_width,
            PatchField::WindowWidthInverse => inverse(window_width),
            PatchField::GroupChannels => patches.channels_of_group(),
            PatchField::GroupFilters => patches.lines_of_group().max(1),
            PatchField::Groups => patches.convolution.measures().groups,
            PatchField::LastTap => patches.convolution.taps() - 1,
            PatchField::SpreadY => spread[0],
            PatchField::SpreadX => spread[1],
            PatchField::StepY => spread[0] / common(spread[0], dilation[0]),
            PatchField::StepX => spread[1] / common(spread[1], dilation[1]),
            PatchField::ResidueRows => (shape.m / (spread[0] * spread[1])).max(1),
            PatchField::Images => patches.convolution.measures().images,
            PatchField::CornerY => return corners(patches).0[0],
            PatchField::CornerX => return corners(patches).0[1],
            PatchField::AllTerms => patches.shape().k,
            PatchField::TapPanels => of_tap,
            PatchField::TapPanelsInverse => inverse(of_tap),
            PatchField::Panels => panels(patches, size, shape),
        };
        value as i64
    }
}

/// The alignment of both operands. What is copied at once lies in one tap, and may begin at any group's channels or filters.
pub(in crate::plan) fn alignment(operation: Operation, aligned: [usize; 2]) -> [usize; 2] {
    let Some(patches) = operation.patches() else { return aligned };
    let (channels, filters) = (patches.convolution.channels_of_group(), patches.convolution.filters_of_group());
    let runs = if patches.gradient.is_some() { [filters, channels] } else { [channels; 2] };
    [0, 1].map(|i| problem::alignment(aligned[i] as u64, [runs[i] * operation.dtype().size(), 0]))
}

/// The greatest common divisor.
const fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}

/// Whether an operation is the gradient of images whose forward window moves by several pixels.
pub(in crate::plan) fn has_residues(operation: Operation) -> bool {
    operation.patches().is_some_and(|patches| patches.windows().spread != [1; 2])
}

/// Whether an epilogue has to see rows in order, without gaps: what reduces along a row, counts rows or packs them. Hopper's
/// kernels move no matrix of single bytes or bits another way.
pub(in crate::plan) fn needs_order(epilogue: &Checked, mainloop: Mainloop) -> bool {
    let in_order = epilogue.graph().sinks().iter().any(|sink| match sink.kind {
        SinkKind::Reduce(Reduction { monoid, operand, .. }) => operand.axes.contains(M) || monoid.counts_elements(),
        SinkKind::Bincount(_) => true,
        SinkKind::Store(_) => false,
    });
    let mut matrices = epilogue.arguments().iter().filter_map(|argument| argument.role.operand());
    in_order || matrices.any(|operand| mainloop.rules().keeps_order(&operand))
}

/// Whether a kernel goes through the rows of a gradient of images by their remainders.
pub(in crate::plan) fn goes_by_residues(operation: Operation, epilogue: &Checked, mainloop: Mainloop) -> bool {
    let rows = operation.patches().map_or(0, |patches| padded_rows(&patches, 512));
    has_residues(operation) && !mainloop.rules().reads_spread() && !needs_order(epilogue, mainloop) && rows <= Shape::LARGEST
}

/// Rows of a gradient of images that goes by remainders, in tiles of so many rows.
pub(in crate::plan) fn padded_rows(patches: &Patches, tile: usize) -> usize {
    let Windows { grid, spread, .. } = patches.windows();
    let of_image = grid[0].div_ceil(spread[0]) * grid[1].div_ceil(spread[1]);
    let rows = (patches.convolution.measures().images * of_image).next_multiple_of(tile);
    rows.saturating_mul(spread[0]).saturating_mul(spread[1])
}

/// Panels of a batch entry's K.
fn panels(patches: &Patches, size: usize, shape: Shape) -> usize {
    match patches.gradient {
        Some(GradientOf::Filters) => shape.k.div_ceil(panel(size)),
        _ if shape.batch > 1 => shape.k / panel(size),
        _ => patches.convolution.taps() * panels_of_tap(patches, size),
    }
}

/// Elements of a panel.
const fn panel(size: usize) -> usize {
    128 / size
}

/// What a quotient by `divisor` is multiplied by: exact for dividends whose product with the divisor is below 2^32.
fn inverse(divisor: usize) -> usize {
    (1usize << 32).div_ceil(divisor.max(1))
}

fn panels_of_tap(patches: &Patches, size: usize) -> usize {
    patches.channels_of_group().div_ceil(panel(size))
}

/// Whether the channels of a tap are whole panels, so that K can be split between any two of them.
pub(in crate::plan) fn has_whole_panels(patches: &Patches, size: usize) -> bool {
    patches.channels_of_group().is_multiple_of(panel(size))
}

/// K as Hopper's kernels go through it: with the zeros that fill up the last panel of each tap.
pub(in crate::plan) fn padded_terms(patches: &Patches, size: usize, shape: Shape) -> usize {
    let [down, right] = patches.windows().spread; // a pixel meets one of so many taps
    panels(patches, size, shape).saturating_mul(panel(size)).div_ceil(down * right)
}

/// The window's corners as an im2col map has them, in pixels: how far the first tap begins before an image (its lower
/// corner), and how far its last place is from the image's last pixel (its upper corner); down and to the right.
pub(crate) fn corners(patches: &Patches) -> ([i64; 2], [i64; 2]) {
    let of = patches.convolution.measures();
    let [above, below, left, right] = of.padding.map(|pixels| pixels as i64);
    let reach = |i: usize| ((of.window[i] - 1) * of.dilation[i]) as i64;
    match patches.gradient {
        Some(GradientOf::Images) if patches.windows().spread != [1; 2] => corners_of_residues(patches),
        Some(GradientOf::Images) => ([above - reach(0), left - reach(1)], [-below, -right]),
        _ => ([-above, -left], [below - reach(0), right - reach(1)]),
    }
}

/// The corners of a gradient of images that goes by remainders. A box begins where the earliest class does, and has as many
/// places as a class has pixels.
fn corners_of_residues(patches: &Patches) -> ([i64; 2], [i64; 2]) {
    let Windows { image, grid, spread, begin, dilation, .. } = patches.windows();
    let window = patches.convolution.measures().window;
    let begins = |i: usize| {
        let taps = |rest: usize| (0..window[i]).map(move |tap| rest + tap * dilation[i]);
        let at = (0..spread[i]).flat_map(taps).map(|at| at as i64 + begin[i] as i64);
        let meeting = at.filter(|at| at.rem_euclid(spread[i] as i64) == 0);
        meeting.map(|at| at / spread[i] as i64).min().unwrap_or_default()
    };
    let lower = [begins(0), begins(1)];
    let upper = [0, 1].map(|i| lower[i] + (grid[i] / spread[i]) as i64 - image[i] as i64);
    (lower, upper)
}

/// The most pixels that an im2col map moves on at once, and where its corners may lie.
const MOST_STRIDE: usize = 8;
const CORNERS: std::ops::RangeInclusive<i64> = -128..=127;
/// Panels of K that quotients are exact for.
const MOST_PANELS: usize = 1 << 16;

/// Why an im2col map cannot describe the patches, if it cannot.
pub(in crate::plan) fn beyond_tma(patches: &Patches, size: usize) -> Option<String> {
    let Windows { grid, stride, spread, .. } = patches.windows();
    let of = patches.convolution.measures();
    let (lower, upper) = corners(patches);
    let panel = panel(size);
    let (channels, lines) = (patches.channels_of_group(), patches.lines_of_group());
    let whole = has_whole_panels(patches, size);
    let rules = [
        (
            of.images == 0 && patches.are_rows() || patches.image_pixels() * channels > 0,
            "images have pixels and channels".to_owned(),
        ),
        ((channels * size).is_multiple_of(16), format!("channels come by 16 bytes, and {channels} of {size} bytes do not")),
        (
            patches.gradient.is_none() || (lines * size).is_multiple_of(16),
            format!("both operands of a gradient come by 16 bytes, and {lines} elements of {size} bytes do not"),
        ),
        (of.groups == 1 || whole, format!("a group's channels come by {panel}")),
        (patches.are_rows() || whole, format!("the channels of a tap are whole pieces of {panel} columns")),
        (
            (0..2).all(|i| grid[i].is_multiple_of(spread[i])),
            "the steps of the forward window divide rows and columns of X".to_owned(),
        ),
        (stride.iter().all(|stride| *stride <= MOST_STRIDE), format!("strides are at most {MOST_STRIDE}")),
        (
            lower.iter().chain(&upper).all(|corner| CORNERS.contains(corner)),
            "a window begins and ends at most 128 pixels outside the image, or inside".to_owned(),
        ),
        (
            patches.convolution.taps().saturating_mul(panels_of_tap(patches, size)) < MOST_PANELS,
            format!("a filter has fewer than {MOST_PANELS} panels of {panel} channels"),
        ),
    ];
    rules.into_iter().find(|(holds, _)| !holds).map(|(_, rule)| format!("its im2col maps have a rule: {rule}"))
}

impl Tile {
    /// Whether its columns may be filters of several groups of a convolution, which read different channels.
    pub(crate) fn spans_groups(&self, operation: Operation) -> bool {
        let grouped = operation.patches().filter(|patches| patches.are_rows() && patches.convolution.measures().groups > 1);
        grouped.is_some_and(|patches| !patches.lines_of_group().is_multiple_of(self.bn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{ConvShape, Convolution};

    fn forward(shape: ConvShape) -> Patches {
        Patches { convolution: Convolution::new(shape).unwrap(), gradient: None }
    }

    #[test]
    fn quotients_are_exact_where_they_are_used() {
        for divisor in [1usize, 2, 3, 5, 7, 11, 63, 64, 100, 255, 8191] {
            for dividend in (0..MOST_PANELS).step_by(7).chain(MOST_PANELS - 20..MOST_PANELS) {
                if dividend * divisor < 1 << 32 {
                    assert_eq!((dividend * inverse(divisor)) >> 32, dividend / divisor, "{dividend} / {divisor}");
                }
            }
        }
    }

    #[test]
    fn maps_have_limits() {
        let base = ConvShape::new(2, [64, 64, 64], [64, 3, 3]).padding([1, 1]);
        let why = |shape: ConvShape| beyond_tma(&forward(shape), 2);
        assert_eq!(why(base), None);
        assert_eq!(why(ConvShape { channels: 8, ..base }), None);
        assert_eq!(why(base.stride([8, 8])), None);
        assert_eq!(why(base.padding([128, 128])), None);
        assert_eq!(why(ConvShape { channels: 128, ..base }.groups(2)), None);
        let refused = |shape: ConvShape, word: &str| assert!(why(shape).is_some_and(|why| why.contains(word)), "{shape}: {word}");
        refused(ConvShape { channels: 3, ..base }, "16 bytes");
        refused(base.stride([9, 1]), "strides");
        refused(base.padding([129, 0]), "128 pixels");
        refused(base.dilation([65, 1]).padding_of([127, 1, 1, 1]), "128 pixels");
        refused(base.groups(2), "group's channels");
        refused(ConvShape { height: 0, ..base.padding([2, 1]) }, "pixels");
    }

    /// Windows of a spread image reach its pixels every so many taps: as many as bring the dilation to whole strides.
    #[test]
    fn taps_step_to_the_next_pixel() {
        for (stride, dilation, step) in [(1, 1, 1), (2, 1, 2), (2, 2, 1), (4, 2, 2), (6, 4, 3), (3, 2, 3), (2, 4, 1)] {
            assert_eq!(stride / common(stride, dilation), step, "{stride} and {dilation}");
            assert!((1..step).all(|taps| taps * dilation % stride != 0) && step * dilation % stride == 0);
        }
    }

    #[test]
    fn corners_are_those_of_the_field() {
        let shape = ConvShape::new(1, [20, 20, 64], [64, 5, 3]).padding_of([2, 1, 0, 3]).dilation([2, 4]);
        assert_eq!(corners(&forward(shape)), ([-2, 0], [1 - 8, 3 - 8]));
    }

    /// A gradient's box begins where the first pixel of a class meets its earliest window, and has a place for each pixel.
    #[test]
    fn corners_of_gradients_are_those_of_what_pixels_meet() {
        for (stride, dilation) in [([1, 1], [1, 2]), ([2, 2], [1, 1]), ([2, 3], [1, 2]), ([3, 2], [2, 1]), ([4, 6], [2, 3])] {
            for padding in [[0; 4], [1; 4], [2, 0, 1, 3], [0, 5, 4, 1]] {
                let shape = ConvShape::new(1, [24, 36, 64], [64, 3, 2]).padding_of(padding).stride(stride).dilation(dilation);
                let convolution = Convolution::new(shape).unwrap();
                let (lower, upper) = corners(&Patches { convolution, gradient: Some(GradientOf::Images) });
                for (i, (pixels, taps)) in [(24, 3), (36, 2)].into_iter().enumerate() {
                    let (step, before) = (stride[i] as i64, padding[2 * i] as i64);
                    let meetings = (0..pixels).flat_map(|pixel| (0..taps).map(move |tap| (pixel, tap * dilation[i] as i64)));
                    let windows = meetings.filter(|(pixel, tap)| (pixel + before - tap) % step == 0);
                    let places = windows.map(|(pixel, tap)| (pixel + before - tap) / step - pixel / step);
                    assert_eq!(places.min(), Some(lower[i]), "{shape}");
                    let windows = convolution.output()[i] as i64;
                    assert_eq!(windows + upper[i] - lower[i], pixels / step, "{shape}");
                }
            }
        }
    }

    /// A convolution of two images, the gradient of its images, and that of its filters.
    #[test]
    fn numbers_of_launches_are_those_of_the_images_that_are_read() {
        let shape = ConvShape::new(2, [9, 10, 96], [64, 3, 2]).padding_of([2, 0, 0, 1]).stride([2, 3]).dilation([1, 2]);
        let convolution = Convolution::new(shape).unwrap();
        let values = |gradient| {
            let patches = Patches { convolution, gradient };
            PatchField::ALL.map(|field| field.value(&patches, 2, patches.shape()))
        };
        let (one, half) = (1i64 << 32, 1i64 << 31);
        assert_eq!(
            values(None),
            [9, 10, 96, 15, 3, 2, 3, 2, 0, 1, 2, 2, 96, 64, 1, 5, 1, 1, 1, 1, 30, 2, -2, 0, 576, 2, 12, half, half]
        );
        assert_eq!(
            values(Some(GradientOf::Images)),
            [5, 3, 64, 90, 10, 1, 1, 0, 2, 1, 2, 2, 64, 96, 1, 5, 2, 3, 2, 3, 30, 2, 0, 0, 384, 1, 6, half, one]
        );
        assert_eq!(
            values(Some(GradientOf::Filters)),
            [9, 10, 96, 15, 3, 2, 3, 2, 0, 1, 2, 2, 96, 64, 1, 5, 1, 1, 1, 1, 64, 2, -2, 0, 30, 2, 1, half, half]
        );
    }
}
