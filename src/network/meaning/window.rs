//! The geometry that convolutions and pools share: windows that move over the spatial axes.

use crate::network::attribute::Attributes;
use crate::network::fault::Fault;

/// Windows over the spatial axes of a tensor, one entry an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Rows of padding before the first element, and behind the last.
    pub pads: Vec<[usize; 2]>,
    /// How many windows.
    pub out: Vec<usize>,
}

/// A list attribute of one positive number for each spatial axis.
pub(crate) fn positive(attributes: &Attributes, name: &str, rank: usize) -> Result<Vec<usize>, Fault> {
    let Some(list) = attributes.ints(name) else { return Ok(vec![1; rank]) };
    let fits = |x: &i64| usize::try_from(*x).ok().filter(|x| (1..1 << 20).contains(x));
    let all: Option<Vec<usize>> = list.iter().map(fits).collect();
    match all {
        Some(all) if all.len() == rank => Ok(all),
        _ => Err(Fault::attribute(name, format!("has one positive number for each of {rank} axes, not {list:?}"))),
    }
}

/// The padding attribute: first the beginnings, then the ends.
pub(crate) fn pads(attributes: &Attributes, rank: usize) -> Result<Vec<[usize; 2]>, Fault> {
    let Some(list) = attributes.ints("pads") else { return Ok(vec![[0; 2]; rank]) };
    let all: Option<Vec<usize>> = list.iter().map(|x| usize::try_from(*x).ok().filter(|x| *x < 1 << 31)).collect();
    match all {
        Some(all) if all.len() == 2 * rank => Ok((0..rank).map(|axis| [all[axis], all[rank + axis]]).collect()),
        _ => Err(Fault::attribute("pads", format!("has two numbers from 0 on for each of {rank} axes, not {list:?}"))),
    }
}

impl Window {
    /// The windows of a kernel over these extents, as the attributes place them.
    ///
    /// # Errors
    /// If an attribute has another length than there are axes, or no window fits.
    pub fn new(attributes: &Attributes, extents: &[usize], kernel: &[usize]) -> Result<Window, Fault> {
        let rank = extents.len();
        if kernel.len() != rank {
            return Err(Fault::Shape(format!("a kernel of {} axes does not move over {rank}", kernel.len())));
        }
        let (strides, dilations) = (positive(attributes, "strides", rank)?, positive(attributes, "dilations", rank)?);
        let mut pads = pads(attributes, rank)?;
        let mut out = Vec::new();
        let ceil = attributes.flag("ceil_mode");
        for axis in 0..rank {
            let span = (kernel[axis].max(1) - 1) * dilations[axis] + 1;
            let (extent, stride) = (extents[axis], strides[axis]);
            match attributes.text_or("auto_pad", "NOTSET") {
                "NOTSET" => {}
                "VALID" => pads[axis] = [0; 2],
                same @ ("SAME_UPPER" | "SAME_LOWER") => {
                    let needed = (extent.div_ceil(stride).max(1) - 1) * stride + span;
                    let total = needed.saturating_sub(extent);
                    let less = total / 2;
                    pads[axis] = if same == "SAME_UPPER" { [less, total - less] } else { [total - less, less] };
                }
                other => return Err(Fault::attribute("auto_pad", format!("has no value `{other}`"))),
            }
            let padded = extent + pads[axis][0] + pads[axis][1];
            let Some(room) = padded.checked_sub(span) else {
                return Err(Fault::Shape(format!("a window of {span} does not fit into {padded} elements, padding included")));
            };
            let mut count = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
            // A window that begins in the padding behind the last element counts no element.
            if ceil && (count - 1) * stride >= extent + pads[axis][0] {
                count -= 1;
            }
            out.push(count);
        }
        Ok(Window { kernel: kernel.to_vec(), strides, dilations, pads, out })
    }

    /// The element along an axis that a tap of a window lies on, unless that is padding.
    pub fn element(&self, axis: usize, window: usize, tap: usize, extent: usize) -> Option<usize> {
        let at = window * self.strides[axis] + tap * self.dilations[axis];
        at.checked_sub(self.pads[axis][0]).filter(|at| *at < extent)
    }

    /// The offset of the element that a tap of a window lies on, unless that is padding.
    pub fn offset(&self, window: &[usize], tap: &[usize], extents: &[usize]) -> Option<usize> {
        let mut offset = 0;
        for axis in 0..extents.len() {
            offset = offset * extents[axis] + self.element(axis, window[axis], tap[axis], extents[axis])?;
        }
        Some(offset)
    }

    /// Whether a tap lies in a window's padding or on an element, but not behind the padding.
    pub fn is_inside_padding(&self, window: &[usize], tap: &[usize], extents: &[usize]) -> bool {
        (0..extents.len()).all(|axis| {
            let at = window[axis] * self.strides[axis] + tap[axis] * self.dilations[axis];
            at < extents[axis] + self.pads[axis][0] + self.pads[axis][1]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_and_padded() {
        let attributes = Attributes::new().with("pads", vec![1, 0, 1, 2]).with("strides", vec![2, 1]);
        let window = Window::new(&attributes, &[5, 4], &[3, 3]).unwrap();
        assert_eq!(window.out, [3, 4]);
        assert_eq!(window.offset(&[0, 0], &[0, 0], &[5, 4]), None);
        assert_eq!(window.offset(&[1, 1], &[0, 2], &[5, 4]), Some(7));
        let same = Attributes::new().with("auto_pad", "SAME_LOWER").with("strides", vec![2]);
        assert_eq!(Window::new(&same, &[6], &[3]).unwrap().pads, [[1, 0]]);
        assert!(Window::new(&Attributes::new(), &[2], &[3]).is_err());
    }
}
