//! Pools: what their images and windows measure, and how a window becomes one number.

use super::patches::Patches;
use super::{ConvFault, ConvShape, Convolution, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a window of pixels becomes one, channel by channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The largest element of the image, a NaN if there is one, and minus infinity of nothing but padding.
    Max,
    /// The mean of the elements of the image.
    Average,
    /// The sum over the number of taps: padding counts as zeros.
    AverageOfTaps,
}

impl fmt::Display for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoolKind::Max => "largest",
            PoolKind::Average => "mean",
            PoolKind::AverageOfTaps => "mean with padding",
        })
    }
}

/// A pool: windows that move over the channels of NHWC images, each of which becomes one number.
///
/// To an epilogue it is an accumulator of M = N P Q rows, one for each output pixel, and C columns.
///
/// ```
/// use postlude::prelude::*;
/// use postlude::{ConvShape, PoolKind, Pooling};
/// // One image of 2 x 4 pixels with one channel, and windows of 2 x 2.
/// let windows = ConvShape::windows(1, [2, 4, 1], [2, 2]).stride([2, 2]);
/// let pooling = Pooling::new(PoolKind::Max, windows)?;
/// let epilogue = Epilogue::build(|e| e.store("d", e.acc() * 10.0, F32))?;
/// let (image, mut d) = ([1.0f32, 2.0, 3.0, 4.0, 8.0, 7.0, 6.0, 5.0], [0.0f32; 2]);
/// let args = HostArgs::new().input("a", &image).output("d", &mut d);
/// Gemm::pool(F32, pooling, &epilogue).reference(pooling.shape(), args)?;
/// assert_eq!(d, [80.0, 60.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pooling {
    kind: PoolKind,
    windows: Convolution,
}

impl Pooling {
    /// Checks that the numbers of the windows fit together. Each channel is pooled by itself, whatever filters and groups the
    /// shape has.
    ///
    /// # Errors
    /// As [`Convolution::new`].
    pub fn new(kind: PoolKind, windows: ConvShape) -> Result<Pooling, ConvFault> {
        // Windows over nothing have no group, and a group of nothing is one.
        let (filters, groups) = (windows.channels, windows.channels.max(1));
        Ok(Pooling { kind, windows: Convolution::new(ConvShape { filters, groups, ..windows })? })
    }

    /// The pool that takes each image to one pixel.
    ///
    /// # Errors
    /// As [`Pooling::new`]. An image without pixels has no window.
    pub fn global(kind: PoolKind, images: usize, [height, width, channels]: [usize; 3]) -> Result<Pooling, ConvFault> {
        Pooling::new(kind, ConvShape::windows(images, [height, width, channels], [height, width]))
    }

    /// How a window becomes one number.
    pub const fn kind(&self) -> PoolKind {
        self.kind
    }

    /// The windows, as those of a convolution whose filters each read a channel of their own.
    pub const fn windows(&self) -> Convolution {
        self.windows
    }

    /// The extents that an epilogue sees: M output pixels and N channels. There is no K.
    pub fn shape(&self) -> Shape {
        let Shape { m, n, .. } = self.windows.shape();
        Shape::matrix(m, n)
    }

    /// The pool of one window: `read` gives the element of a pixel of the images, and `round` rounds sums, which are taken tap
    /// after tap.
    pub(crate) fn pooled(&self, row: usize, mut read: impl FnMut(usize) -> f64, round: impl Fn(f64) -> f64) -> f64 {
        let patches = Patches { convolution: self.windows, gradient: None };
        let at = patches.window_at(row);
        let elements = (0..self.windows.taps()).filter_map(|tap| patches.pixel_under(at, tap)).map(&mut read);
        match self.kind {
            PoolKind::Max => elements.fold(f64::NEG_INFINITY, |most, x| if x > most || x.is_nan() { x } else { most }),
            PoolKind::Average => {
                let (sum, count) = elements.fold((0.0, 0.0), |(sum, count), x| (round(sum + x), count + 1.0));
                round(sum / count)
            }
            PoolKind::AverageOfTaps => round(elements.fold(0.0, |sum, x| round(sum + x)) / self.windows.taps() as f64),
        }
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConvShape { images, height, width, channels, window: [r, s], stride, padding, dilation, .. } =
            self.windows.measures();
        write!(f, "{} of {r} x {s} pixels, {images} x {height} x {width} x {channels}", self.kind)?;
        if stride != [1; 2] {
            write!(f, ", stride {} x {}", stride[0], stride[1])?;
        }
        if padding != [0; 4] {
            let [above, below, left, right] = padding;
            write!(f, ", padding {above}, {below}, {left}, {right}")?;
        }
        if dilation == [1; 2] { Ok(()) } else { write!(f, ", dilation {} x {}", dilation[0], dilation[1]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_pooled_each_by_itself() {
        let pool = Pooling::new(PoolKind::Max, ConvShape::windows(2, [5, 7, 3], [3, 3]).stride([2, 2]).padding([1, 1])).unwrap();
        assert_eq!(pool.shape(), Shape::matrix(2 * 3 * 4, 3));
        assert_eq!(pool.to_string(), "largest of 3 x 3 pixels, 2 x 5 x 7 x 3, stride 2 x 2, padding 1, 1, 1, 1");
        assert_eq!(Pooling::global(PoolKind::Average, 2, [5, 7, 3]).unwrap().shape(), Shape::matrix(2, 3));
        assert!(Pooling::global(PoolKind::Average, 2, [0, 7, 3]).is_err());
        assert!(Pooling::global(PoolKind::Average, 0, [5, 7, 0]).unwrap().shape().is_empty());
    }

    #[test]
    fn padding_counts_only_where_it_should() {
        let windows = ConvShape::windows(1, [2, 2, 1], [2, 2]).padding([1, 1]);
        let of = |kind, row, x: [f64; 4]| Pooling::new(kind, windows).unwrap().pooled(row, |pixel| x[pixel], |x| x);
        let x = [-1.0, 2.0, 3.0, 4.0];
        assert_eq!(of(PoolKind::Max, 0, x), -1.0);
        assert_eq!([of(PoolKind::Average, 0, x), of(PoolKind::AverageOfTaps, 0, x)], [-1.0, -0.25]);
        assert_eq!([of(PoolKind::Average, 1, x), of(PoolKind::AverageOfTaps, 4, x)], [0.5, 2.0]);
        assert!(
            of(PoolKind::Max, 4, [f64::NAN, 2.0, 3.0, 4.0]).is_nan() && of(PoolKind::Max, 4, [5.0, f64::NAN, 3.0, 4.0]).is_nan()
        );
    }
}
