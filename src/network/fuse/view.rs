//! Views: an edge as a part of another edge's memory, in another shape or order.

use crate::network::graph::{EdgeId, Node};
use crate::network::meaning::layout;
use crate::network::operator::{Kind, Moves};
use crate::network::tensor::{Tensor, strides};

/// Where the elements of an edge lie: in the memory of `root`, from `offset` on, a stride for each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The edge whose memory it is.
    pub root: EdgeId,
    /// The edge that is computed there: the root, or a part of it.
    pub source: EdgeId,
    /// Elements before the first.
    pub offset: usize,
    /// Extent and stride of each axis.
    pub dims: Vec<(usize, usize)>,
}

/// The axes of images as kernels want them: channels, the second axis, side by side.
pub(super) fn channels_last(rank: usize) -> Vec<usize> {
    if rank < 3 { (0..rank).collect() } else { std::iter::once(0).chain(2..rank).chain([1]).collect() }
}

impl View {
    /// All of an edge's own memory.
    pub(super) fn whole(root: EdgeId, shape: &[usize]) -> View {
        View { root, source: root, offset: 0, dims: shape.iter().copied().zip(strides(shape)).collect() }
    }

    /// All of an edge's own memory, whose elements lie along these axes, the last one side by side.
    pub(super) fn ordered(root: EdgeId, shape: &[usize], order: &[usize]) -> View {
        let mut view = View { root, source: root, offset: 0, dims: shape.iter().map(|extent| (*extent, 0)).collect() };
        let inner: Vec<usize> = order.iter().map(|axis| shape[*axis]).collect();
        order.iter().zip(strides(&inner)).for_each(|(axis, stride)| view.dims[*axis].1 = stride);
        view
    }

    /// The axes as their elements lie in memory: the last one's side by side. Axes of extent 1 come first, unless all lie in
    /// order.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut axes: Vec<usize> =
            (0..self.dims.len()).filter(|axis| self.dims[*axis].0 != 1 && self.dims[*axis].1 != 0).collect();
        axes.sort_by_key(|axis| std::cmp::Reverse(self.dims[*axis].1));
        if axes.is_sorted() {
            return (0..self.dims.len()).collect();
        }
        let still: Vec<usize> = (0..self.dims.len()).filter(|axis| !axes.contains(axis)).collect();
        still.into_iter().chain(axes).collect()
    }

    /// The extents.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.dims.iter().map(|(extent, _)| *extent).collect()
    }

    /// Whether the elements lie side by side, in order. Those of an empty tensor do.
    pub(super) fn is_contiguous(&self) -> bool {
        self.dims.iter().any(|(extent, _)| *extent == 0) || collapsed(&self.dims).is_some_and(|stride| stride <= 1)
    }

    /// The same elements in another shape, if strides can say so.
    pub(super) fn reshaped(&self, shape: &[usize]) -> Option<View> {
        if self.is_contiguous() {
            return Some(View { offset: self.offset, source: self.source, ..View::whole(self.root, shape) });
        }
        // Axes of extent 1 come and go, neighbours with one stride are one axis, and an axis may fall apart into several.
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for (extent, stride) in self.dims.iter().filter(|(extent, _)| *extent != 1) {
            match joined.last_mut() {
                Some(outer) if outer.1 == extent * stride => *outer = (outer.0 * extent, *stride),
                _ => joined.push((*extent, *stride)),
            }
        }
        let mut dims = Vec::new();
        let mut from = joined.iter();
        let mut open: Option<(usize, usize)> = None;
        for extent in shape {
            if *extent == 1 {
                dims.push((1, 0));
                continue;
            }
            let (left, stride) = match open.take() {
                Some(open) => open,
                None => *from.next()?,
            };
            if left == 0 || !left.is_multiple_of(*extent) {
                return None;
            }
            let rest = left / extent;
            dims.push((*extent, stride * rest));
            open = (rest > 1).then_some((rest, stride));
        }
        (open.is_none() && from.next().is_none()).then_some(View { dims, ..self.clone() })
    }

    /// The shape with axes of extent 1 where it is stretched, of stride 0.
    pub(super) fn stretched(&self, shape: &[usize]) -> Option<View> {
        let lacking = shape.len().checked_sub(self.dims.len())?;
        let dims: Option<Vec<(usize, usize)>> = shape
            .iter()
            .enumerate()
            .map(|(axis, extent)| match axis.checked_sub(lacking).map(|axis| self.dims[axis]) {
                None | Some((1, _)) => Some((*extent, 0)),
                Some((own, stride)) => (own == *extent).then_some((*extent, stride)),
            })
            .collect();
        Some(View { dims: dims?, ..self.clone() })
    }

    /// The pixels of a view of blocks with each axis that blocks join as two. Another view has none.
    pub(super) fn blocks(&self, node: &Node) -> Option<View> {
        let b = usize::try_from(node.attributes.int_or("blocksize", 0)).ok().filter(|b| *b > 0)?;
        let [n, c, h, w] = self.shape()[..] else { return None };
        let Kind::View(Moves::Blocks { gathers }) = node.kind() else { return None };
        let (split, order) = match (gathers, node.attributes.text_or("mode", "DCR")) {
            (true, _) => ([n, c, h / b, b, w / b, b], [0, 3, 5, 1, 2, 4]),
            (_, "CRD") => ([n, c / (b * b), b, b, h, w], [0, 1, 4, 2, 5, 3]),
            _ => ([n, b, b, c / (b * b), h, w], [0, 3, 4, 1, 5, 2]),
        };
        let split = self.reshaped(&split)?;
        Some(View { dims: order.map(|axis| split.dims[axis]).to_vec(), ..split })
    }

    /// The first output of a view operator, or another of a split, if strides can say so.
    pub(super) fn behind(&self, node: &Node, output: usize, shape: &[usize], constants: &[Option<&Tensor>]) -> Option<View> {
        let constant = |index: usize| constants.get(index).copied().flatten().map(Tensor::sizes);
        let Kind::View(moves) = node.kind() else {
            let hands_on = node.operator_name() == "Dropout" && output == 0 && node.inputs.get(2).copied().flatten().is_none();
            // A reduction that goes over one element each.
            return match node.kind() {
                Kind::Reduction(_) => self.reshaped(shape),
                _ => hands_on.then(|| self.clone()),
            };
        };
        match moves {
            Moves::Nothing => Some(self.clone()),
            Moves::Shape | Moves::Units => self.reshaped(shape),
            Moves::Order => {
                let order = layout::permutation(node.attributes.ints("perm"), self.dims.len()).ok()?;
                Some(View { dims: order.into_iter().map(|axis| self.dims[axis]).collect(), ..self.clone() })
            }
            Moves::Stretch => self.stretched(shape),
            Moves::Slice => {
                let (starts, ends) = (constant(1)?, constant(2)?);
                let slices = layout::slices(&self.shape(), &starts, &ends, constant(3), constant(4)).ok()?;
                let mut view = self.clone();
                for ((begin, step, count), (extent, stride)) in slices.into_iter().zip(&mut view.dims) {
                    let step = usize::try_from(step).ok()?;
                    view.offset += usize::try_from(begin).ok()? * *stride;
                    (*extent, *stride) = (count, *stride * step);
                }
                Some(view)
            }
            Moves::Split => {
                let axis = crate::network::meaning::axis(node.attributes.int_or("axis", 0), self.dims.len()).ok()?;
                let parts = layout::split_extents(self.dims[axis].0, constant(1), node.outputs.len()).ok()?;
                let mut view = self.clone();
                view.offset += parts[..output].iter().sum::<usize>() * view.dims[axis].1;
                view.dims[axis].0 = parts[output];
                Some(view)
            }
            Moves::Join | Moves::Blocks { .. } | Moves::Bits => None,
        }
    }
}

/// The one stride that neighbouring axes have together, if there is one: 0 where nothing varies.
pub(super) fn collapsed(dims: &[(usize, usize)]) -> Option<usize> {
    let mut varying = dims.iter().rev().filter(|(extent, _)| *extent != 1);
    let Some((extent, stride)) = varying.next() else { return Some(0) };
    let mut next = extent * stride;
    for (extent, own) in varying {
        if *own != next {
            return None;
        }
        next = own * extent;
    }
    Some(*stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_strides() {
        // [2, 5, 12] as three heads of four, heads first.
        let x = View::whole(EdgeId::new(0), &[2, 5, 12]);
        let heads = x.reshaped(&[2, 5, 3, 4]).unwrap();
        let turned = View { dims: [0, 2, 1, 3].map(|axis| heads.dims[axis]).to_vec(), ..heads };
        assert_eq!(turned.dims, [(2, 60), (3, 4), (5, 12), (4, 1)]);
        assert!(!turned.is_contiguous() && turned.reshaped(&[2, 15, 4]).is_none());
        assert_eq!(turned.reshaped(&[2, 3, 5, 2, 2]).unwrap().dims[3..], [(2, 2), (2, 1)]);
        assert_eq!(collapsed(&turned.dims[2..]), None);
        assert_eq!(collapsed(&[(4, 3), (3, 1)]), Some(1));
        assert_eq!(collapsed(&[(4, 0), (3, 0)]), Some(0));
    }
}
