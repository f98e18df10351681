//! Spaces: the rows, columns and batch of a kernel, and how a tensor lies in them.

use super::view::{View, collapsed};
use crate::build::{Builder, Expr};
use crate::dtype::DType;
use crate::ir::axes::{Axes, L, M, N};
use crate::ir::{Operand, Order};
use crate::network::graph::EdgeId;
use crate::problem::Shape;
use std::collections::BTreeSet;

/// The axes of a kernel's output, in the order in which the kernel counts them, in three runs: those of the batch, those of
/// rows, those of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Space {
    /// The extents as the network sees them.
    pub shape: Vec<usize>,
    /// The axes as the kernel counts them.
    order: Vec<usize>,
    /// Where the axes of rows begin in that order, and those of columns.
    pub rows: usize,
    pub columns: usize,
}

/// How a kernel reads a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// As an operand with strides.
    Operand { operand: Operand, ld: Option<usize>, batch_stride: Option<usize> },
    /// As a table, at an index that is computed from coordinates.
    Table,
}

/// Order and leading dimension of a matrix with these strides.
pub(super) fn matrix(rows: usize, columns: usize, [row, column]: [usize; 2]) -> Option<(Order, usize)> {
    match (row, column) {
        (row, 0 | 1) if column == 1 || columns == 1 => {
            (rows == 1 || row >= columns).then_some((Order::RowMajor, if rows == 1 { columns } else { row }))
        }
        (0 | 1, column) if row == 1 || rows == 1 => {
            (columns == 1 || column >= rows).then_some((Order::ColumnMajor, column.max(rows)))
        }
        _ => None,
    }
}

/// The axes, order and leading dimension of an operand with these strides along rows and columns, of which 0 is none.
pub(super) fn operand_of(rows: usize, columns: usize, strides: [usize; 2]) -> Option<(Axes, Order, Option<usize>)> {
    match strides {
        [0, 0] => Some((Axes::NONE, Order::RowMajor, None)),
        [0, 1] => Some((N, Order::RowMajor, None)),
        [1, 0] => Some((M, Order::RowMajor, None)),
        [row, 1] if row >= columns => Some((Axes::MN, Order::RowMajor, Some(row))),
        [1, column] if column >= rows => Some((Axes::MN, Order::ColumnMajor, Some(column))),
        _ => None,
    }
}

impl Space {
    pub fn new(shape: &[usize], rows: usize, columns: usize) -> Space {
        Space::ordered(shape, (0..shape.len()).collect(), rows, columns)
    }

    /// A space that counts the axes in another order.
    pub fn ordered(shape: &[usize], order: Vec<usize>, rows: usize, columns: usize) -> Space {
        Space { shape: shape.to_vec(), order, rows, columns }
    }

    /// The axes as a result lies best, the last one's elements side by side: in order, if the kernel counts them so. Otherwise
    /// entries of the batch lie beside each other, inside of lines.
    pub fn memory_order(&self) -> Vec<usize> {
        if self.order.is_sorted() {
            return self.order.clone();
        }
        let (batch, lines, columns) =
            (&self.order[..self.rows], &self.order[self.rows..self.columns], &self.order[self.columns..]);
        [lines, batch, columns].concat()
    }

    fn extent(&self, from: usize, to: usize) -> usize {
        self.order[from..to].iter().map(|axis| self.shape[*axis]).product()
    }

    /// Extents and strides of a tensor in the kernel's order.
    fn dims(&self, view: &View) -> Vec<(usize, usize)> {
        self.order.iter().map(|axis| view.dims[*axis]).collect()
    }

    /// Rows, columns and batch, without K.
    pub fn extents(&self) -> Shape {
        let batch = self.extent(0, self.rows);
        Shape::matrix(self.extent(self.rows, self.columns), self.extent(self.columns, self.shape.len())).batched(batch)
    }

    /// Whether an axis of the network is of the kernel's columns or of its rows.
    pub fn axes_of(&self, axis: usize) -> Axes {
        if self.order[self.columns..].contains(&axis) { N } else { M }
    }

    /// Whether these axes are the rows, there is no batch, and all others are columns. Axes of extent 1 do not count.
    pub fn counts_rows(&self, axes: &[usize]) -> bool {
        let counted = |of: &[usize]| of.iter().copied().filter(|axis| self.shape[*axis] != 1).collect::<BTreeSet<usize>>();
        self.extent(0, self.rows) == 1 && counted(&self.order[..self.columns]) == counted(axes)
    }

    /// The strides of a tensor along batch, rows and columns, if each has one: 0 where nothing varies.
    fn strides(&self, view: &View) -> Option<[usize; 3]> {
        let dims = self.dims(view);
        let part = |from: usize, to: usize| collapsed(&dims[from..to]);
        Some([part(0, self.rows)?, part(self.rows, self.columns)?, part(self.columns, self.shape.len())?])
    }

    /// The order, leading dimension and batch stride of a matrix that a kernel writes there, if it can.
    pub fn written(&self, view: &View) -> Option<(Order, usize, usize)> {
        let [batch, row, column] = self.strides(view)?;
        let Shape { m, n, .. } = self.extents();
        let (order, ld) = matrix(m, n, [row, column])?;
        Some((order, ld, batch))
    }

    /// How a tensor of these axes, stretched to the space, is read.
    pub fn place(&self, view: &View, dtype: DType) -> Placement {
        let Some([batch, row, column]) = self.strides(view) else { return Placement::Table };
        let Shape { m, n, .. } = self.extents();
        let Some((axes, order, ld)) = operand_of(m, n, [row, column]) else { return Placement::Table };
        let axes = if batch == 0 { axes } else { axes.union(L) };
        let batch_stride = (batch != 0).then_some(batch);
        Placement::Operand { operand: Operand { dtype, axes, order }, ld, batch_stride }
    }

    /// A coordinate of the output along one of the network's axes.
    pub fn coordinate<'g>(&self, e: &'g Builder, axis: usize) -> Expr<'g> {
        let mut strides = vec![(1, 0); self.shape.len()];
        strides[axis] = (self.shape[axis], 1);
        // A tensor whose elements say how far along the axis they are.
        let dims = self.shape.iter().zip(strides).map(|(extent, (_, stride))| (*extent, stride)).collect();
        let (root, source) = (EdgeId::new(0), EdgeId::new(0));
        self.index(e, &View { root, source, offset: 0, dims })
    }

    /// The place of an element in the root's memory, from the coordinates of the output.
    pub fn index<'g>(&self, e: &'g Builder, view: &View) -> Expr<'g> {
        let mut sum: Option<Expr<'g>> = None;
        let dims = self.dims(view);
        let runs = [(0, self.rows), (self.rows, self.columns), (self.columns, self.shape.len())];
        for (run, (from, to)) in runs.into_iter().enumerate() {
            let mut inner = 1usize;
            // Axes that have one stride together take one division less.
            let mut at = to;
            while at > from {
                let mut begin = at - 1;
                while begin > from && collapsed(&dims[begin - 1..at]).is_some() {
                    begin -= 1;
                }
                let extent: usize = self.extent(begin, at);
                let stride = collapsed(&dims[begin..at]).unwrap_or(0);
                if stride != 0 && extent > 1 {
                    let coordinate = match run {
                        0 => e.batch(),
                        1 => e.row(),
                        _ => e.column(),
                    };
                    let whole = self.extent(from, begin) == 1;
                    let shifted = if inner == 1 { coordinate } else { coordinate / inner as i32 };
                    let digit = if whole { shifted } else { shifted % extent as i32 };
                    let term = if stride == 1 { digit } else { digit * stride as i32 };
                    sum = Some(sum.map_or(term, |sum| sum + term));
                }
                inner *= extent;
                at = begin;
            }
        }
        let offset = view.offset as i32;
        match sum {
            Some(sum) if offset == 0 => sum,
            Some(sum) => sum + offset,
            None => e.constant(offset),
        }
    }

    /// The space over a shape in which tensors lie best: fewest tables, then no batch, then about a thousand columns. The
    /// first `written` are stored, so they must be no tables. Where rows are functions, `columns` says at which axis they begin,
    /// and axes keep their order.
    pub fn for_tensors(shape: &[usize], views: &[(View, DType)], written: usize, columns: Option<usize>) -> Space {
        const WIDTH: usize = 1024;
        let rank = shape.len();
        let mut orders: Vec<Vec<usize>> = vec![(0..rank).collect()];
        for order in views.iter().filter(|_| columns.is_none()).map(|(view, _)| view.order()) {
            if !orders.contains(&order) {
                orders.push(order);
            }
        }
        let mut best: Option<((usize, usize, usize), Space)> = None;
        let starts = columns.map_or(0..rank + 1, |columns| columns..columns + 1);
        for (order, columns) in orders.iter().flat_map(|order| starts.clone().map(move |columns| (order, columns))) {
            for rows in 0..=columns {
                let space = Space::ordered(shape, order.clone(), rows, columns);
                let tables = views.iter().filter(|(view, dtype)| space.place(view, *dtype) == Placement::Table).count();
                let lost = views[..written].iter().any(|(view, _)| space.written(view).is_none());
                let Shape { n, batch, .. } = space.extents();
                let key = (tables + if lost { views.len() } else { 0 }, usize::from(batch > 1), n.abs_diff(WIDTH));
                if best.as_ref().is_none_or(|(least, _)| key < *least) {
                    best = Some((key, space));
                }
            }
        }
        best.map_or_else(|| Space::new(shape, 0, rank.saturating_sub(1)), |(_, space)| space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_a_vector_over_rows() {
        // [2, 3, 4, 5] with one number a channel: a batch of images, a row for each channel.
        let shape = [2, 3, 4, 5];
        let (x, scale) = (View::whole(EdgeId::new(0), &shape), View::whole(EdgeId::new(1), &[3, 1, 1]));
        let scale = scale.stretched(&shape).unwrap();
        let space = Space::for_tensors(&shape, &[(x, DType::F32), (scale.clone(), DType::F32)], 1, None);
        assert_eq!((space.rows, space.columns), (1, 2));
        assert_eq!(
            space.place(&scale, DType::F32),
            Placement::Operand { operand: DType::F32.over(M), ld: None, batch_stride: None }
        );
        assert_eq!(Space::new(&shape, 0, 3).place(&scale, DType::F32), Placement::Table);
    }

    #[test]
    fn one_row_or_column_lies_in_any_order() {
        let (rows, columns) = (Order::RowMajor, Order::ColumnMajor);
        for (extents, strides, found) in [
            ([3, 4], [4, 1], Some((rows, 4))),
            ([3, 4], [9, 1], Some((rows, 9))),
            ([3, 4], [2, 1], None),
            ([3, 4], [1, 3], Some((columns, 3))),
            ([3, 4], [1, 2], None),
            ([3, 4], [8, 2], None),
            // A single row has no distance to the next one, and a single column no neighbour.
            ([1, 4], [0, 1], Some((rows, 4))),
            ([1, 4], [7, 1], Some((rows, 4))),
            ([1, 4], [0, 5], Some((columns, 5))),
            ([3, 1], [6, 0], Some((rows, 6))),
            ([3, 1], [6, 1], Some((rows, 6))),
            ([3, 1], [1, 0], Some((rows, 1))),
            ([3, 4], [4, 0], None),
            ([3, 4], [0, 3], None),
        ] {
            let [m, n] = extents;
            assert_eq!(matrix(m, n, strides), found, "{m} x {n} at {strides:?}");
        }
    }
}
