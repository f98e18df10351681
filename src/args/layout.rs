//! Memory of any origin: extents and strides, as NumPy, PyTorch and DLPack state them, and the slot that they fit.

use super::{ArgumentFault, SlotKind};
use crate::dtype::DType;
use crate::ir::Order;

/// Extents and strides of a tensor with up to three axes, outermost first: batch, rows, columns.
///
/// NumPy, PyTorch and DLPack describe memory in this way. A launch derives leading dimension, batch stride and order from
/// it, and compares the extents with those of the argument. Strides count elements.
///
/// ```
/// use postlude::prelude::*;
/// use postlude::args::MemoryLayout;
/// let epilogue = postlude::build::recipes::identity(F32)?;
/// let (a, b, mut d) = ([1.0f32, 2.0], [3.0f32, 4.0, 5.0, 6.0], [0.0f32; 2]);
/// // B is a transposed view: its columns lie side by side.
/// let transposed = MemoryLayout::new(&[2, 2], &[1, 2])?;
/// let args = HostArgs::new().input("a", &a).input("b", b.laid_out(transposed)).output("d", &mut d);
/// Gemm::new(F32, Layout::of(Order::RowMajor, transposed.order().unwrap()), &epilogue).reference(Shape::new(1, 2, 2), args)?;
/// assert_eq!(d, [11.0, 17.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryLayout {
    rank: usize,
    extents: [usize; MemoryLayout::AXES],
    strides: [usize; MemoryLayout::AXES],
    /// Elements from the first to the last.
    span: usize,
}

/// Why extents and strides describe no tensor that a launch could take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// More axes than batch, rows and columns.
    #[error("a tensor has up to three axes (batch, rows, columns), got {got}: merge the leading ones")]
    Axes {
        /// The given number of axes.
        got: usize,
    },
    /// Extents and strides differ in number.
    #[error("{extents} extents and {strides} strides: state one stride for each extent")]
    Lengths {
        /// The number of extents.
        extents: usize,
        /// The number of strides.
        strides: usize,
    },
    /// An axis that runs backwards.
    #[error("axis {axis} has stride {got}: a stride is not negative; copy the tensor")]
    Negative {
        /// The axis, from 0.
        axis: usize,
        /// Its stride.
        got: isize,
    },
    /// Elements beyond the range of addresses.
    #[error("the tensor's last element lies beyond 2^63 bytes")]
    TooLarge,
}

impl MemoryLayout {
    /// The most axes: batch, rows and columns.
    pub const AXES: usize = 3;

    /// The layout of these extents and strides, outermost axis first, strides in elements.
    ///
    /// # Errors
    /// If there are more than three axes, or a stride is negative, or an element lies beyond 2^63 bytes.
    pub fn new(extents: &[usize], strides: &[isize]) -> Result<MemoryLayout, LayoutError> {
        if extents.len() != strides.len() {
            return Err(LayoutError::Lengths { extents: extents.len(), strides: strides.len() });
        }
        if extents.len() > MemoryLayout::AXES {
            return Err(LayoutError::Axes { got: extents.len() });
        }
        let mut layout = MemoryLayout { rank: extents.len(), extents: [1; 3], strides: [0; 3], span: 1 };
        let largest = i64::MAX as usize / DType::F64.size();
        for (axis, (extent, stride)) in extents.iter().zip(strides).enumerate() {
            let negative = |_| LayoutError::Negative { axis, got: *stride };
            layout.extents[axis] = *extent;
            // A stride along one element, or none, is never used.
            layout.strides[axis] = if *extent > 1 { usize::try_from(*stride).map_err(negative)? } else { 0 };
            let along = extent.saturating_sub(1).checked_mul(layout.strides[axis]);
            let span = along.and_then(|along| along.checked_add(layout.span)).filter(|span| *span <= largest);
            layout.span = span.ok_or(LayoutError::TooLarge)?;
        }
        if extents.contains(&0) {
            layout.span = 0;
        }
        Ok(layout)
    }

    /// The layout of a tensor whose last axis is contiguous, without gaps.
    ///
    /// # Errors
    /// If there are more than three axes, or an element lies beyond 2^63 bytes.
    pub fn contiguous(extents: &[usize]) -> Result<MemoryLayout, LayoutError> {
        let mut strides = [1isize; MemoryLayout::AXES];
        let strides = strides.get_mut(..extents.len()).ok_or(LayoutError::Axes { got: extents.len() })?;
        for axis in (1..extents.len()).rev() {
            let extent = isize::try_from(extents[axis].max(1)).map_err(|_| LayoutError::TooLarge)?;
            strides[axis - 1] = strides[axis].checked_mul(extent).ok_or(LayoutError::TooLarge)?;
        }
        MemoryLayout::new(extents, strides)
    }

    /// The extents, outermost first.
    pub fn extents(&self) -> &[usize] {
        &self.extents[..self.rank]
    }

    /// The strides in elements; 0 along an axis of at most one element.
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.rank]
    }

    /// Elements from the first to the last, gaps included. A buffer has to hold as many.
    pub fn span(&self) -> usize {
        self.span
    }

    /// The order of the last two axes; row-major if both orders describe it. `None` if neither axis is contiguous.
    pub fn order(&self) -> Option<Order> {
        let last = |back: usize| self.rank.checked_sub(back).map_or((1, 0), |axis| (self.extents[axis], self.strides[axis]));
        let contiguous = |(extent, stride): (usize, usize)| extent <= 1 || stride == 1;
        let ((rows, pitch), columns) = (last(2), last(1));
        // One column lies in either order: the distance between rows decides.
        if contiguous(columns) && (columns.0 > 1 || rows <= 1 || pitch != 1) {
            Some(Order::RowMajor)
        } else if contiguous((rows, pitch)) {
            Some(if columns.0 <= 1 { Order::RowMajor } else { Order::ColumnMajor })
        } else {
            None
        }
    }

    /// Leading dimension and batch stride for a slot. Axes of one element do not count, and an input without a batch axis
    /// is shared by the batch.
    pub(super) fn place(&self, kind: &SlotKind, given: DType) -> Result<(Option<usize>, Option<usize>), ArgumentFault> {
        let (dtype, what, outer, inner, matrix, order, batch, written) = match kind {
            SlotKind::Memory { dtype, what, outer, inner, matrix, order, batch, written } => {
                (*dtype, what, *outer, *inner, *matrix, *order, *batch, *written)
            }
            SlotKind::Table { .. } if self.strides.iter().all(|stride| *stride <= 1) => return Ok((None, None)),
            SlotKind::Table { .. } => {
                return Err(ArgumentFault::Strides { what: "a table of one axis".into(), got: self.strides().to_vec() });
            }
            SlotKind::Scalar(_) => return Ok((None, None)),
        };
        // Elements that share a byte are passed as bytes.
        let packs = if dtype.is_packed() && !given.is_packed() { dtype.packed() } else { 1 };
        let inner = if packs > 1 { dtype.bytes(inner.next_multiple_of(dtype.run())) } else { inner };
        let (outer, inner) = ((outer, Along::Outer), (inner, Along::Inner));
        let [first, second] = match (matrix, order) {
            (true, Order::RowMajor) => [Some(outer), Some(inner)],
            (true, Order::ColumnMajor) => [Some(inner), Some(outer)],
            (false, _) => [None, Some(inner)],
        };
        let all = [batch.map(|batch| (batch, Along::Batch)), first, second];
        // Launches come through here: nothing is allocated.
        let needs = |shared: bool| all.into_iter().skip(usize::from(shared)).flatten().filter(|(extent, _)| *extent != 1);
        let got = || self.extents().iter().copied().zip(self.strides().iter().copied()).filter(|(extent, _)| *extent != 1);
        let matches = |shared: bool| needs(shared).map(|axis| axis.0).eq(got().map(|axis| axis.0));
        let shared = !matches(false) && !written && batch.is_some();
        if !matches(shared) {
            let (what, needs) = (what.clone(), all.into_iter().flatten().map(|axis| axis.0).collect());
            return Err(ArgumentFault::Extents { what, needs, got: self.extents().to_vec() });
        }
        let stride = |of: Along| needs(shared).zip(got()).find(|((_, along), _)| *along == of).map(|(_, (_, stride))| stride);
        if stride(Along::Inner).is_some_and(|stride| stride != 1) && self.span > 0 {
            return Err(ArgumentFault::Strides { what: what.clone(), got: self.strides().to_vec() });
        }
        let batch_stride = if shared { Some(0) } else { stride(Along::Batch).map(|stride| stride * packs) };
        let ld = stride(Along::Outer).map(|stride| stride * packs).filter(|_| self.span > 0);
        Ok((ld, batch_stride.filter(|_| batch != Some(1))))
    }
}

/// The part of a slot that an axis runs along.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Along {
    Batch,
    Outer,
    Inner,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(order: Order, batch: Option<usize>, written: bool) -> SlotKind {
        let (outer, inner) = if order == Order::RowMajor { (3, 5) } else { (5, 3) };
        SlotKind::Memory { dtype: DType::F16, what: "M x N".into(), outer, inner, matrix: true, order, batch, written }
    }

    fn placed(extents: &[usize], strides: &[isize], kind: &SlotKind) -> Result<(Option<usize>, Option<usize>), ArgumentFault> {
        MemoryLayout::new(extents, strides).expect("a layout").place(kind, DType::F16)
    }

    #[test]
    fn strides_become_leading_dimensions_and_batch_strides() {
        let (rows, columns) = (matrix(Order::RowMajor, None, false), matrix(Order::ColumnMajor, None, false));
        assert_eq!(placed(&[3, 5], &[8, 1], &rows), Ok((Some(8), None)));
        assert_eq!(placed(&[1, 3, 5], &[99, 8, 1], &rows), Ok((Some(8), None)));
        assert_eq!(placed(&[3, 5], &[1, 4], &columns), Ok((Some(4), None)));
        assert!(matches!(placed(&[3, 5], &[1, 4], &rows), Err(ArgumentFault::Strides { .. })));
        assert!(matches!(placed(&[5, 3], &[3, 1], &rows), Err(ArgumentFault::Extents { .. })));
        assert!(matches!(placed(&[15], &[1], &rows), Err(ArgumentFault::Extents { .. })));
        let batch = matrix(Order::RowMajor, Some(2), false);
        assert_eq!(placed(&[2, 3, 5], &[15, 5, 1], &batch), Ok((Some(5), Some(15))));
        assert_eq!(placed(&[3, 5], &[5, 1], &batch), Ok((Some(5), Some(0))), "the batch shares it");
        let written = matrix(Order::RowMajor, Some(2), true);
        assert!(matches!(placed(&[3, 5], &[5, 1], &written), Err(ArgumentFault::Extents { .. })), "no output is shared");
    }

    #[test]
    fn vectors_have_one_axis_that_counts() {
        let (dtype, what, order) = (DType::F32, String::new(), Order::RowMajor);
        let vector = SlotKind::Memory { dtype, what, outer: 1, inner: 7, matrix: false, order, batch: None, written: false };
        for (extents, strides) in [(&[7][..], &[1][..]), (&[7, 1], &[1, 1]), (&[1, 7], &[7, 1])] {
            assert_eq!(placed(extents, strides, &vector), Ok((None, None)), "{extents:?}");
        }
        assert!(matches!(placed(&[7], &[2], &vector), Err(ArgumentFault::Strides { .. })));
        assert!(matches!(placed(&[7, 1], &[3, 1], &vector), Err(ArgumentFault::Strides { .. })));
    }

    #[test]
    fn elements_of_tables_lie_side_by_side() {
        let table = SlotKind::Table { dtype: DType::F32, written: false };
        assert_eq!(placed(&[7], &[1], &table), Ok((None, None)));
        assert_eq!(placed(&[1], &[9], &table), Ok((None, None)), "one element has no neighbour");
        assert!(matches!(placed(&[7], &[2], &table), Err(ArgumentFault::Strides { got, .. }) if got == [2]));
        assert!(matches!(placed(&[2, 7], &[7, 1], &table), Err(ArgumentFault::Strides { .. })), "a table has one axis");
        assert_eq!(placed(&[7], &[2], &SlotKind::Scalar(crate::dtype::ValueType::F32)), Ok((None, None)));
    }

    #[test]
    fn masks_of_bits_are_passed_as_bytes() {
        let (dtype, what, order) = (DType::Bits8, String::new(), Order::RowMajor);
        let mask = SlotKind::Memory { dtype, what, outer: 3, inner: 20, matrix: true, order, batch: None, written: true };
        assert_eq!(placed(&[3, 3], &[4, 1], &mask), Ok((Some(32), None)));
        assert!(matches!(placed(&[3, 20], &[20, 1], &mask), Err(ArgumentFault::Extents { .. })));
    }

    #[test]
    fn orders_and_spans() {
        let of = |extents: &[usize], strides: &[isize]| MemoryLayout::new(extents, strides).expect("a layout");
        assert_eq!(of(&[3, 5], &[5, 1]).order(), Some(Order::RowMajor));
        assert_eq!(of(&[3, 5], &[1, 3]).order(), Some(Order::ColumnMajor));
        assert_eq!(of(&[3, 5], &[10, 2]).order(), None);
        assert_eq!(of(&[1, 5], &[1, 1]).order(), Some(Order::RowMajor));
        assert_eq!(of(&[1, 5], &[1, 4]).order(), Some(Order::ColumnMajor));
        assert_eq!((of(&[3, 5], &[8, 1]).span(), of(&[0, 5], &[8, 1]).span(), of(&[], &[]).span()), (21, 0, 1));
        assert_eq!(MemoryLayout::contiguous(&[2, 3, 5]), Ok(of(&[2, 3, 5], &[15, 5, 1])));
    }

    #[test]
    fn what_no_launch_takes_is_an_error() {
        assert_eq!(MemoryLayout::new(&[1; 4], &[1; 4]), Err(LayoutError::Axes { got: 4 }));
        assert_eq!(MemoryLayout::new(&[2], &[-1]), Err(LayoutError::Negative { axis: 0, got: -1 }));
        assert_eq!(MemoryLayout::new(&[2], &[1, 1]), Err(LayoutError::Lengths { extents: 1, strides: 2 }));
        assert_eq!(MemoryLayout::new(&[usize::MAX, 2], &[2, 1]), Err(LayoutError::TooLarge));
        assert_eq!(MemoryLayout::contiguous(&[usize::MAX, 2]), Err(LayoutError::TooLarge));
    }
}
