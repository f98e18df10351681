//! Reductions: a tile reduces its own elements, and the tiles' results are combined in the order of the tiles. So the
//! result does not depend on the number of threads, or on which thread took which tile.

use super::Shape;
use super::eval::Frame;
use super::gemm::Product;
use super::memory::{Arguments, Format, OperandView, Strides};
use super::piece::{EvalTile, Source};
use crate::dtype::ValueType;
use crate::ir::axes::{Axes, L, M, N};
use crate::ir::{Monoid, NodeId, Side};
use std::sync::OnceLock;

/// One reduction.
pub(super) struct Reducer {
    pub source: Source,
    /// The other values of an element.
    pub others: Vec<NodeId>,
    pub monoid: Monoid,
    /// Whether elements count with their absolute values, as in the magnitude of a sum.
    pub absolute: bool,
    /// The type of the reduced values.
    pub value: ValueType,
    /// The axes of the result.
    pub axes: Axes,
    /// One of them, if so many neighbours along it come to one result, which all of them get.
    pub band: Option<(Axes, usize)>,
    pub memory: usize,
    pub format: Format,
    pub strides: Strides,
    /// The numbers in memory, if they take part besides the elements.
    pub onto: Option<OperandView>,
    /// The states of each tile, in the order of the result.
    pub partials: Vec<OnceLock<Vec<f64>>>,
}

impl Reducer {
    /// Extents of the part of the result that lies in a tile, or of the whole result.
    fn extents(&self, rows: usize, columns: usize) -> [usize; 2] {
        let along = |axis, extent| if self.axes.contains(axis) { extent } else { 1 };
        [along(M, rows), along(N, columns)]
    }

    /// The identity states for one tile's result.
    pub fn begin(&self, tile: &EvalTile) -> Vec<f64> {
        let [rows, columns] = self.extents(tile.rows.len(), tile.columns.len());
        self.monoid.identity(self.value).repeat(rows * columns)
    }

    /// Takes the elements of one row of a tile.
    pub fn row(&self, partial: &mut [f64], frame: &Frame, row: usize, columns: usize) {
        if matches!(self.source, Source::Element(_)) {
            return; // Tiles do not have its elements.
        }
        let [_, width] = self.extents(1, columns);
        let start = if self.axes.contains(M) { row * width } else { 0 };
        let at = |values: &[f64], column: usize| values[column.min(values.len() - 1)];
        let words = self.monoid.numbers();
        let mut element = vec![0.0; 1 + self.others.len()];
        for column in 0..columns {
            let x = match self.source {
                Source::Value(id) => at(frame.value(id), column),
                // The product of two `f32`s is exact in `f64`.
                Source::Product([a, b]) => at(frame.value(a), column) * at(frame.value(b), column),
                Source::Magnitude | Source::Element(_) => 0.0,
            };
            element[0] = if self.absolute { x.abs() } else { x };
            element[1..].iter_mut().zip(&self.others).for_each(|(to, id)| *to = at(frame.value(*id), column));
            let place = start + if width == 1 { 0 } else { column };
            self.monoid.take(self.value, &mut partial[place * words..][..words], &element);
        }
    }

    /// Combines the tiles, which come in the order of `partials`, and writes the result. If an axis has no extent, no
    /// tile covers the result. It is then the identity, or stays unchanged if the reduction accumulates.
    pub fn finish(&self, arguments: &Arguments, product: Option<&Product>, shape: Shape, tiles: impl Iterator<Item = EvalTile>) {
        if self.onto.is_some() && shape.is_empty() {
            return;
        }
        let [rows, columns] = self.extents(shape.m, shape.n);
        let entries = if self.axes.contains(L) { shape.batch } else { 1 };
        let words = self.monoid.numbers();
        let mut states = self.monoid.identity(self.value).repeat(rows * columns * entries);
        if let (Source::Element(side), Some(product), false) = (self.source, product, shape.is_empty()) {
            self.elements(&mut states, side, arguments, product, shape);
        }
        for (tile, partial) in tiles.zip(&self.partials) {
            let Some(partial) = partial.get() else { continue };
            let [_, width] = self.extents(tile.rows.len(), tile.columns.len());
            for (i, state) in partial.chunks_exact(words).enumerate() {
                let along = |axis, at| if self.axes.contains(axis) { at } else { 0 };
                let (row, column) = (along(M, tile.rows.start + i / width), along(N, tile.columns.start + i % width));
                let place = (along(L, tile.batch) * rows + row) * columns + column;
                self.monoid.join(self.value, &mut states[place * words..][..words], state);
            }
        }
        // For sums of operands' elements the tiles hold identities.
        let place = |strides: Strides, i: usize| {
            strides.index(i / columns.max(1) % rows.max(1), i % columns.max(1), i / (rows * columns).max(1))
        };
        if let Some(onto) = &self.onto {
            for (i, state) in states.chunks_exact_mut(words).enumerate() {
                let mut there = [0.0];
                arguments.read(onto, place(onto.strides, i), 1, &mut there);
                let there = if self.absolute { there[0].abs() } else { there[0] };
                self.monoid.take(self.value, state, &[there]);
            }
        }
        let size = self.format.bytes(1);
        let mut bytes = vec![0; rows * columns * entries * size];
        let along = |axis, extent| if self.axes.contains(axis) { 1 } else { extent };
        let others = [along(M, shape.m), along(N, shape.n), along(L, shape.batch)];
        let count = |extent: usize| others.map(|extent| extent as f64).iter().product::<f64>() * extent as f64;
        let widths = self.join_bands(&mut states, [rows, columns]);
        for (i, state) in states.chunks_exact(words).enumerate() {
            self.format.write(&mut bytes, i, self.monoid.result(state, count(widths.get(i).copied().unwrap_or(1))));
        }
        let runs = bytes.chunks_exact(size).enumerate().map(|(i, bytes)| (place(self.strides, i) * size, bytes));
        arguments.write(self.memory, runs);
    }

    /// Gives every element of a band the state of the whole band. Returns the elements of each one's band; none without bands.
    fn join_bands(&self, states: &mut [f64], [rows, columns]: [usize; 2]) -> Vec<usize> {
        let Some((axis, extent)) = self.band else { return Vec::new() };
        let words = self.monoid.numbers();
        let count = states.len() / words.max(1);
        let mut widths = vec![0; count];
        let (step, length) = if axis == M { (columns, rows) } else { (1, columns) };
        for first in (0..count).filter(|i| (i / step % length).is_multiple_of(extent)) {
            let elements = extent.min(length - first / step % length);
            let mut whole = self.monoid.identity(self.value);
            let at = |element: usize| (first + element * step) * words;
            (0..elements).for_each(|element| self.monoid.join(self.value, &mut whole, &states[at(element)..][..words]));
            for element in 0..elements {
                states[at(element)..][..words].copy_from_slice(&whole);
                widths[first + element * step] = elements;
            }
        }
        widths
    }

    /// The sums of an operand's elements over K, and over the batch unless the result is batched.
    fn elements(&self, states: &mut [f64], side: Side, arguments: &Arguments, product: &Product, shape: Shape) {
        let (operand, step) = product.operand(side);
        let lines = if side == Side::A { shape.m } else { shape.n };
        let mut terms = vec![0.0; shape.k];
        for (entry, line) in (0..shape.batch).flat_map(|entry| (0..lines).map(move |line| (entry, line))) {
            let [row, column] = if side == Side::A { [line, 0] } else { [0, line] };
            arguments.read(operand, operand.strides.index(row, column, entry), step, &mut terms);
            let (place, words) = (if self.axes.contains(L) { entry * lines + line } else { line }, self.monoid.numbers());
            let state = &mut states[place * words..][..words];
            for term in &terms {
                let x = if self.absolute { term.abs() } else { *term };
                self.monoid.take(self.value, state, &[x]);
            }
        }
    }
}
