//! Patches: how a convolution and its gradients read images through a window. All three are products, with another operand
//! made of patches, or with other images.
//!
//! | | A | B | rows | columns | K |
//! | --- | --- | --- | --- | --- | --- |
//! | convolution | patches of X | filters | output pixels | filters | taps, channels |
//! | gradient of the images | patches of dY | filters, the window turned by half a circle | pixels of X | channels | taps, filters |
//! | gradient of the filters | dY | patches of X | filters | taps, channels | output pixels |
//!
//! The gradient of the images is a convolution of dY that moves by one pixel, over a dY with zeros between its pixels where the
//! forward window moved by several. A group of a gradient of the filters is a batch entry.

use super::{Convolution, Layout, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The operand of a convolution that a gradient belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GradientOf {
    /// The images: dX of dY and the filters.
    Images,
    /// The filters: dW of dY and X.
    Filters,
}

impl GradientOf {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            GradientOf::Images => "images",
            GradientOf::Filters => "filters",
        }
    }
}

impl fmt::Display for GradientOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An operation that reads patches of images: a convolution, or one of its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Patches {
    /// The convolution.
    pub convolution: Convolution,
    /// The gradient, if it is one.
    pub gradient: Option<GradientOf>,
}

/// How windows lie in the images that are read. Pairs go down and to the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Rows and columns of an image.
    pub image: [usize; 2],
    /// Windows of an image.
    pub grid: [usize; 2],
    /// Positions from window to window.
    pub stride: [usize; 2],
    /// Positions from pixel to pixel of the image. What lies between is zero.
    pub spread: [usize; 2],
    /// The position of the first window's first tap, counted from the image's first pixel.
    pub begin: [isize; 2],
    /// Positions from tap to tap.
    pub dilation: [usize; 2],
}

impl Patches {
    /// How the windows lie.
    pub fn windows(&self) -> Windows {
        let of = self.convolution.measures();
        let [above, _, left, _] = of.padding;
        let before = [above, left].map(usize::cast_signed);
        let (image, grid, dilation) = ([of.height, of.width], self.convolution.output(), of.dilation);
        if self.gradient == Some(GradientOf::Images) {
            let begin = [0, 1].map(|i| before[i] - ((of.window[i] - 1) * dilation[i]).cast_signed());
            return Windows { image: grid, grid: image, stride: [1; 2], spread: of.stride, begin, dilation };
        }
        Windows { image, grid, stride: of.stride, spread: [1; 2], begin: before.map(|pixels| -pixels), dilation }
    }

    /// The product's extents. Each group of a gradient of the filters is a batch entry.
    pub fn shape(&self) -> Shape {
        let (of, forward) = (self.convolution.measures(), self.convolution.shape());
        match self.gradient {
            None => forward,
            Some(GradientOf::Images) => {
                let terms = self.convolution.taps().saturating_mul(self.convolution.filters_of_group());
                Shape::new(self.convolution.pixels(), of.channels, terms)
            }
            Some(GradientOf::Filters) => Shape::new(self.convolution.filters_of_group(), forward.k, forward.m).batched(of.groups),
        }
    }

    /// How the product's operands lie.
    pub const fn layout(&self) -> Layout {
        match self.gradient {
            None => Layout::TN,
            Some(GradientOf::Images) => Layout::TT,
            Some(GradientOf::Filters) => Layout::NT,
        }
    }

    /// Channels of a pixel of the images that are read.
    pub const fn channels(&self) -> usize {
        match self.gradient {
            Some(GradientOf::Images) => self.convolution.measures().filters,
            _ => self.convolution.measures().channels,
        }
    }

    /// Channels of a group, of the images that are read.
    pub const fn channels_of_group(&self) -> usize {
        match self.gradient {
            Some(GradientOf::Images) => self.convolution.filters_of_group(),
            _ => self.convolution.channels_of_group(),
        }
    }

    /// Lines of a group in the other operand: filters, or channels of X.
    pub const fn lines_of_group(&self) -> usize {
        match self.gradient {
            Some(GradientOf::Images) => self.convolution.channels_of_group(),
            _ => self.convolution.filters_of_group(),
        }
    }

    /// Pixels of all images that are read.
    pub fn image_pixels(&self) -> usize {
        let [height, width] = self.windows().image;
        self.convolution.measures().images * height * width
    }

    /// Whether A is made of patches. Otherwise B is.
    pub const fn are_rows(&self) -> bool {
        !matches!(self.gradient, Some(GradientOf::Filters))
    }

    /// The first position under a window, and its image.
    pub(crate) fn window_at(&self, window: usize) -> ([isize; 2], usize) {
        let Windows { grid: [rows, columns], stride, begin, .. } = self.windows();
        let (image, inside) = (window / (rows * columns), window % (rows * columns));
        let at = |i: usize, place: usize| (place * stride[i]).cast_signed() + begin[i];
        ([at(0, inside / columns), at(1, inside % columns)], image)
    }

    /// The pixel under a tap of the window that begins there; `None` where there is none.
    pub(crate) fn pixel_under(&self, (begin, image): ([isize; 2], usize), tap: usize) -> Option<usize> {
        let Windows { image: extents, spread, dilation, .. } = self.windows();
        let width = self.convolution.measures().window[1];
        let taps = [tap / width, tap % width];
        let along = |i: usize| {
            let at = usize::try_from(begin[i] + (taps[i] * dilation[i]).cast_signed()).ok()?;
            (at.is_multiple_of(spread[i]) && at / spread[i] < extents[i]).then_some(at / spread[i])
        };
        Some((image * extents[0] + along(0)?) * extents[1] + along(1)?)
    }

    /// The tap of a filter that meets a tap of the window.
    pub(crate) const fn tap_of_filter(&self, tap: usize) -> usize {
        match self.gradient {
            Some(GradientOf::Images) => self.convolution.taps() - 1 - tap,
            _ => tap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ConvShape;

    #[test]
    fn gradients_of_images_turn_the_window() {
        let shape = ConvShape::new(2, [9, 10, 8], [6, 3, 2]).padding_of([2, 0, 0, 1]).stride([2, 3]).dilation([1, 2]);
        let convolution = Convolution::new(shape).unwrap();
        let [forward, images] = [None, Some(GradientOf::Images)].map(|gradient| Patches { convolution, gradient });
        let mut pairs = Vec::new();
        for (window, tap) in (0..forward.shape().m).flat_map(|window| (0..6).map(move |tap| (window, tap))) {
            pairs.extend(forward.pixel_under(forward.window_at(window), tap).map(|pixel| (pixel, tap, window)));
        }
        let mut found = Vec::new();
        for (pixel, tap) in (0..images.shape().m).flat_map(|pixel| (0..6).map(move |tap| (pixel, tap))) {
            let window = images.pixel_under(images.window_at(pixel), tap);
            found.extend(window.map(|window| (pixel, images.tap_of_filter(tap), window)));
        }
        pairs.sort_unstable();
        found.sort_unstable();
        assert_eq!(pairs, found, "each pixel meets the windows that it was under");
    }
}
