//! Convolutions: what their images, filters and windows measure, and the product that they are.

use super::Shape;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a convolution measures: images, filters, and how the window moves. One-dimensional ones have a height of 1.
///
/// Activations are NHWC: for each image its rows, of each row its pixels, of each pixel its channels. Filters are KRSC: for
/// each filter the rows of its window, of each row its taps, of each tap the channels of its group.
///
/// ```
/// use postlude::{Convolution, ConvShape};
/// let first = ConvShape::new(32, [224, 224, 3], [64, 7, 7]).stride([2, 2]).padding([3, 3]);
/// assert_eq!(Convolution::new(first)?.output(), [112, 112]);
/// # Ok::<(), postlude::problem::ConvFault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvShape {
    /// Images (N). May be 0.
    pub images: usize,
    /// Rows of an image (H).
    pub height: usize,
    /// Pixels of a row (W).
    pub width: usize,
    /// Channels of a pixel (C).
    pub channels: usize,
    /// Filters (K): channels of an output pixel.
    pub filters: usize,
    /// Rows and columns of a filter's window (R and S).
    pub window: [usize; 2],
    /// Pixels that the window moves down and to the right.
    pub stride: [usize; 2],
    /// Pixels of zeros above, below, left and right of each image.
    pub padding: [usize; 4],
    /// Pixels from one tap of the window to the next, down and to the right.
    pub dilation: [usize; 2],
    /// Groups: each takes an equal part of the channels to an equal part of the filters.
    pub groups: usize,
}

impl ConvShape {
    /// Images of H x W x C, and K filters of R x S: a stride and a dilation of 1, no padding, one group.
    pub const fn new(images: usize, [height, width, channels]: [usize; 3], [filters, r, s]: [usize; 3]) -> ConvShape {
        let (window, stride, padding, dilation) = ([r, s], [1; 2], [0; 4], [1; 2]);
        ConvShape { images, height, width, channels, filters, window, stride, padding, dilation, groups: 1 }
    }

    /// A one-dimensional convolution: lines of `length` x C, and K filters of S.
    pub const fn line(lines: usize, [length, channels]: [usize; 2], [filters, s]: [usize; 2]) -> ConvShape {
        ConvShape::new(lines, [1, length, channels], [filters, 1, s])
    }

    /// Windows of R x S over each channel by itself: those of a pool, or of a depthwise convolution with one filter a channel.
    pub const fn windows(images: usize, [height, width, channels]: [usize; 3], [r, s]: [usize; 2]) -> ConvShape {
        let shape = ConvShape::new(images, [height, width, channels], [channels, r, s]);
        // A group of no channels is one.
        shape.groups(if channels == 0 { 1 } else { channels })
    }

    /// Sets the distances that the window moves down and to the right.
    #[must_use]
    pub const fn stride(self, stride: [usize; 2]) -> ConvShape {
        ConvShape { stride, ..self }
    }

    /// Sets the padding above and below, and the padding left and right.
    #[must_use]
    pub const fn padding(self, [rows, columns]: [usize; 2]) -> ConvShape {
        self.padding_of([rows, rows, columns, columns])
    }

    /// Sets the padding above, below, left and right.
    #[must_use]
    pub const fn padding_of(self, padding: [usize; 4]) -> ConvShape {
        ConvShape { padding, ..self }
    }

    /// Sets the distances between taps, down and to the right.
    #[must_use]
    pub const fn dilation(self, dilation: [usize; 2]) -> ConvShape {
        ConvShape { dilation, ..self }
    }

    /// Sets the number of groups.
    #[must_use]
    pub const fn groups(self, groups: usize) -> ConvShape {
        ConvShape { groups, ..self }
    }
}

impl fmt::Display for ConvShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConvShape { images, height, width, channels, filters, window, stride, padding, dilation, groups } = *self;
        write!(f, "{images} x {height} x {width} x {channels}, {filters} filters of {} x {}", window[0], window[1])?;
        if stride != [1; 2] {
            write!(f, ", stride {} x {}", stride[0], stride[1])?;
        }
        if padding != [0; 4] {
            let [above, below, left, right] = padding;
            write!(f, ", padding {above}, {below}, {left}, {right}")?;
        }
        if dilation != [1; 2] {
            write!(f, ", dilation {} x {}", dilation[0], dilation[1])?;
        }
        if groups == 1 { Ok(()) } else { write!(f, ", {groups} groups") }
    }
}

/// Why there is no such convolution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvFault {
    /// A window without taps, or one that does not move.
    #[error("{what} of {} x {}: both are at least 1", got[0], got[1])]
    Zero {
        /// Which pair of numbers.
        what: &'static str,
        /// Down and to the right.
        got: [usize; 2],
    },
    /// Groups that do not divide channels or filters.
    #[error("{groups} groups of {of} {what}: the groups have to be equal, and at least one")]
    Groups {
        /// How many groups.
        groups: usize,
        /// Channels or filters.
        what: &'static str,
        /// How many of them.
        of: usize,
    },
    /// A window that lies nowhere inside the padded image.
    #[error(
        "the window spans {window} pixels {along}, and the padded image has {image}: pad the image, or take a smaller window"
    )]
    Window {
        /// Down, or to the right.
        along: &'static str,
        /// Pixels from the first tap to the last.
        window: usize,
        /// Pixels of the image with its padding.
        image: usize,
    },
    /// A number that kernels cannot count.
    #[error("the convolution is too large: {what} may be at most {} (`Shape::LARGEST`)", Shape::LARGEST)]
    TooLarge {
        /// What has no place.
        what: &'static str,
    },
}

/// A convolution whose numbers fit together: a product of M = N P Q rows, one for each output pixel, and K columns.
///
/// The product's A is made of the image: row `(n, p, q)` holds the pixels under the window at that output pixel, tap after
/// tap, zeros where the window reaches beyond the image. Nothing of this size is ever stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "ConvShape", into = "ConvShape")]
pub struct Convolution(ConvShape);

impl From<Convolution> for ConvShape {
    fn from(convolution: Convolution) -> ConvShape {
        convolution.0
    }
}

impl TryFrom<ConvShape> for Convolution {
    type Error = ConvFault;

    fn try_from(shape: ConvShape) -> Result<Convolution, ConvFault> {
        Convolution::new(shape)
    }
}

impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Elements of a product of extents, if kernels can count them.
fn counted(extents: impl IntoIterator<Item = usize>) -> Option<usize> {
    let product = extents.into_iter().try_fold(1usize, usize::checked_mul)?;
    (product <= Shape::LARGEST).then_some(product)
}

/// Pixels from the first tap to the last.
const fn span(window: usize, dilation: usize) -> usize {
    (window - 1).saturating_mul(dilation).saturating_add(1)
}

impl Convolution {
    /// Checks that the numbers fit together.
    ///
    /// # Errors
    /// If a window, stride or dilation is 0, groups do not divide channels and filters, the window spans more than the padded
    /// image, or an extent is too large. No images, channels or filters are legal.
    pub fn new(shape: ConvShape) -> Result<Convolution, ConvFault> {
        let ConvShape { images, height, width, channels, filters, window, stride, padding, dilation, groups } = shape;
        for (what, got) in [("a window", window), ("a stride", stride), ("a dilation", dilation)] {
            if got.contains(&0) {
                return Err(ConvFault::Zero { what, got });
            }
        }
        for (what, of) in [("channels", channels), ("filters", filters)] {
            if groups == 0 || !of.is_multiple_of(groups) {
                return Err(ConvFault::Groups { groups, what, of });
            }
        }
        let numbers = [images, height, width, channels, filters, window[0], window[1], dilation[0], dilation[1]];
        if numbers.into_iter().chain(stride).chain(padding).any(|number| number > Shape::LARGEST) {
            return Err(ConvFault::TooLarge { what: "each number" });
        }
        let [above, below, left, right] = padding;
        let padded = [height + above + below, width + left + right];
        for (i, along) in ["down", "to the right"].into_iter().enumerate() {
            if padded[i] > Shape::LARGEST {
                return Err(ConvFault::TooLarge { what: "the padded image" });
            }
            let window = span(window[i], dilation[i]);
            if window > padded[i] {
                return Err(ConvFault::Window { along, window, image: padded[i] });
            }
        }
        let convolution = Convolution(shape);
        let [p, q] = convolution.output();
        counted([images, p, q]).ok_or(ConvFault::TooLarge { what: "the output pixels of all images" })?;
        counted([images, height, width]).ok_or(ConvFault::TooLarge { what: "the pixels of all images" })?;
        let terms = [window[0], window[1], channels / groups];
        counted(terms).ok_or(ConvFault::TooLarge { what: "the elements of a filter" })?;
        Ok(convolution)
    }

    /// What it was made from.
    pub const fn measures(&self) -> ConvShape {
        self.0
    }

    /// Rows and columns of an output image (P and Q).
    pub fn output(&self) -> [usize; 2] {
        let ConvShape { height, width, window, stride, padding: [above, below, left, right], dilation, .. } = self.0;
        let along = |image: usize, i: usize| (image - span(window[i], dilation[i])) / stride[i] + 1;
        [along(height + above + below, 0), along(width + left + right, 1)]
    }

    /// Taps of the window: R times S.
    pub const fn taps(&self) -> usize {
        self.0.window[0] * self.0.window[1]
    }

    /// Channels that a filter reads: C over the groups.
    pub const fn channels_of_group(&self) -> usize {
        self.0.channels / self.0.groups
    }

    /// Filters of a group.
    pub const fn filters_of_group(&self) -> usize {
        self.0.filters / self.0.groups
    }

    /// Pixels of all images: runs of `a`.
    pub const fn pixels(&self) -> usize {
        self.0.images * self.0.height * self.0.width
    }

    /// The product's extents: M output pixels, N filters, K elements of a filter.
    pub fn shape(&self) -> Shape {
        let [p, q] = self.output();
        Shape::new(self.0.images * p * q, self.0.filters, self.taps() * self.channels_of_group())
    }

    /// Whether it reads each pixel once, in order: an ordinary product of pixels and filters.
    pub fn is_product(&self) -> bool {
        let ConvShape { window, stride, padding, groups, .. } = self.0;
        window == [1; 2] && stride == [1; 2] && padding == [0; 4] && groups == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_counted_as_the_field_does() {
        let of = |shape: ConvShape| Convolution::new(shape).unwrap().output();
        assert_eq!(of(ConvShape::new(1, [56, 56, 64], [64, 3, 3]).padding([1, 1])), [56, 56]);
        assert_eq!(of(ConvShape::new(1, [56, 55, 64], [64, 3, 3]).padding([1, 1]).stride([2, 2])), [28, 28]);
        assert_eq!(of(ConvShape::new(1, [9, 10, 8], [8, 3, 2]).padding_of([2, 0, 0, 1]).dilation([2, 3])), [7, 8]);
        assert_eq!(of(ConvShape::line(3, [100, 8], [8, 5]).stride([1, 5])), [1, 20]);
    }

    #[test]
    fn faults_name_the_culprit() {
        let base = ConvShape::new(2, [8, 9, 4], [6, 3, 3]);
        let of = |shape: ConvShape| Convolution::new(shape).unwrap_err().to_string();
        assert_eq!(of(base.stride([1, 0])), "a stride of 1 x 0: both are at least 1");
        assert_eq!(of(base.dilation([0, 1])), "a dilation of 0 x 1: both are at least 1");
        assert_eq!(of(ConvShape { window: [0, 3], ..base }), "a window of 0 x 3: both are at least 1");
        assert_eq!(of(base.groups(4)), "4 groups of 6 filters: the groups have to be equal, and at least one");
        assert_eq!(of(base.groups(3)), "3 groups of 4 channels: the groups have to be equal, and at least one");
        assert_eq!(of(base.groups(0)), "0 groups of 4 channels: the groups have to be equal, and at least one");
        let wide = of(base.dilation([1, 5]));
        assert!(wide.starts_with("the window spans 11 pixels to the right, and the padded image has 9"), "{wide}");
        let large = |shape| assert!(matches!(Convolution::new(shape), Err(ConvFault::TooLarge { .. })), "{shape}");
        large(ConvShape::new(1 << 20, [64, 64, 1], [1, 1, 1]));
        large(ConvShape::new(1, [1, usize::MAX, 1], [1, 1, 1]));
        large(ConvShape::new(1, [1, 1, 1], [1, 1, 1]).padding([1 << 31, 0]));
        large(ConvShape::new(0, [1 << 20, 1 << 20, 1 << 12], [1, 1 << 10, 1 << 10]));
        assert!(matches!(Convolution::new(base.dilation([usize::MAX, 1])), Err(ConvFault::TooLarge { .. })));
    }

    #[test]
    fn nothing_is_legal() {
        let base = ConvShape::new(2, [8, 9, 4], [6, 3, 3]);
        for empty in [ConvShape { images: 0, ..base }, ConvShape { channels: 0, ..base }, ConvShape { filters: 0, ..base }] {
            let shape = Convolution::new(empty).unwrap().shape();
            assert!(shape.m * shape.n * shape.k == 0, "{empty}");
        }
    }

    #[test]
    fn a_document_cannot_lie() {
        let good = Convolution::new(ConvShape::new(1, [4, 4, 2], [3, 2, 2])).unwrap();
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<Convolution>(&text).unwrap(), good);
        assert!(serde_json::from_str::<Convolution>(&text.replace("\"groups\":1", "\"groups\":2")).is_err());
    }
}
