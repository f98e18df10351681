//! Other libraries' orders of images and filters, and the ones of convolutions here.

/// Moves the middle axis of `[outer, middle, inner]` behind the last one.
fn last<T: Copy>(elements: &[T], [outer, middle, inner]: [usize; 3]) -> Option<Vec<T>> {
    let count = outer.checked_mul(middle)?.checked_mul(inner)?;
    if elements.len() != count {
        return None;
    }
    let of = |o: usize| (0..inner).flat_map(move |i| (0..middle).map(move |m| (o * middle + m) * inner + i));
    Some((0..outer).flat_map(of).map(|index| elements[index]).collect())
}

/// NHWC images of NCHW ones, whose extents are `[n, c, h, w]`: PyTorch's `contiguous` to its `channels_last`.
///
/// On a device the recipe [`nchw_to_nhwc`](crate::build::recipes::nchw_to_nhwc) does the same.
///
/// ```
/// use postlude::problem::{nchw_to_nhwc, nhwc_to_nchw};
/// let planes = [1, 2, 3, 4, 10, 20, 30, 40]; // one image of two channels
/// let pixels = nchw_to_nhwc(&planes, [1, 2, 2, 2]).expect("as many elements");
/// assert_eq!(pixels, [1, 10, 2, 20, 3, 30, 4, 40]);
/// assert_eq!(nhwc_to_nchw(&pixels, [1, 2, 2, 2]).as_deref(), Some(&planes[..]));
/// assert_eq!(nhwc_to_nchw(&pixels, [1, 2, 2, 3]), None);
/// ```
///
/// `None` if there is another number of elements.
pub fn nchw_to_nhwc<T: Copy>(images: &[T], [n, c, h, w]: [usize; 4]) -> Option<Vec<T>> {
    last(images, [n, c, h.checked_mul(w)?])
}

/// NCHW images of NHWC ones; the extents are `[n, c, h, w]`. `None` if there is another number of elements.
pub fn nhwc_to_nchw<T: Copy>(images: &[T], [n, c, h, w]: [usize; 4]) -> Option<Vec<T>> {
    last(images, [n, h.checked_mul(w)?, c])
}

/// KRSC filters of OIHW ones, whose extents are `[k, c, r, s]`: PyTorch's `weight`. C are the channels of a group.
///
/// ```
/// use postlude::problem::oihw_to_krsc;
/// let planes = [1, 2, 3, 4, 10, 20, 30, 40]; // one filter of two channels
/// assert_eq!(oihw_to_krsc(&planes, [1, 2, 2, 2]).as_deref(), Some(&[1, 10, 2, 20, 3, 30, 4, 40][..]));
/// assert_eq!(oihw_to_krsc(&planes, [1, 2, 2, 3]), None);
/// ```
///
/// `None` if there is another number of elements.
pub fn oihw_to_krsc<T: Copy>(filters: &[T], [k, c, r, s]: [usize; 4]) -> Option<Vec<T>> {
    last(filters, [k, c, r.checked_mul(s)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_become_pixels_and_back() {
        let [n, c, h, w] = [2, 3, 4, 5];
        let name = |image: usize, channel: usize, row: usize, column: usize| [image, channel, row, column];
        let planes: Vec<[usize; 4]> =
            (0..n * c * h * w).map(|i| name(i / (w * h * c), i / (w * h) % c, i / w % h, i % w)).collect();
        let pixels: Vec<[usize; 4]> =
            (0..n * h * w * c).map(|i| name(i / (c * w * h), i % c, i / (c * w) % h, i / c % w)).collect();
        assert_eq!(nchw_to_nhwc(&planes, [n, c, h, w]).as_ref(), Some(&pixels));
        assert_eq!(oihw_to_krsc(&planes, [n, c, h, w]).as_ref(), Some(&pixels));
        assert_eq!(nhwc_to_nchw(&pixels, [n, c, h, w]).as_ref(), Some(&planes));
        for extents in [[n, c, h, w + 1], [n, usize::MAX, h, w], [n, c, usize::MAX, w]] {
            assert_eq!(nchw_to_nhwc(&planes, extents), None);
            assert_eq!(oihw_to_krsc(&planes, extents), None);
            assert_eq!(nhwc_to_nchw(&pixels, extents), None);
        }
    }
}
