//! Slots: the arguments that a launch of one operation and epilogue needs, by name, for given extents.

use crate::check::{Argument, Checked, Need, Role};
use crate::dtype::{DType, ValueType};
use crate::ir::axes::{Axes, L, M, N, S};
use crate::ir::{Operand, Order};
use crate::problem::{Attention, Blocks, GradientOf, Operation, ScaleField, Shape};
use std::sync::Arc;

/// One argument of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The name.
    pub name: Arc<str>,
    /// The needed kind.
    pub kind: SlotKind,
    /// Whether a launch may leave it out.
    pub need: Need,
}

/// The kind of argument that a name needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// A number by value.
    Scalar(ValueType),
    /// A table: consecutive elements, as many as are passed.
    Table {
        /// Format.
        dtype: DType,
        /// Whether its elements are counts, which grow.
        written: bool,
    },
    /// `outer` runs of `inner` consecutive elements for each batch entry. The leading dimension separates the runs.
    Memory {
        /// Format.
        dtype: DType,
        /// A description for messages: `M x K, row-major`.
        what: String,
        /// How many runs; 1 for vectors and scalars.
        outer: usize,
        /// Elements in a run.
        inner: usize,
        /// Whether there is a leading dimension.
        matrix: bool,
        /// Whether a run is a row or a column of a matrix.
        order: Order,
        /// Batch entries; `None` if the batch shares the operand.
        batch: Option<usize>,
        /// Whether it is written.
        written: bool,
    },
}

impl SlotKind {
    /// Bytes of an element in memory, which divide its address; 1 for a scalar by value.
    #[cfg(feature = "cuda")]
    pub(crate) fn element_size(&self) -> usize {
        match self {
            SlotKind::Scalar(_) => 1,
            SlotKind::Table { dtype, .. } | SlotKind::Memory { dtype, .. } => dtype.size(),
        }
    }

    /// A matrix that a launch reads.
    fn matrix(dtype: DType, letters: [&str; 2], extents: [usize; 2], order: Order, batch: Option<usize>) -> SlotKind {
        let ([rows, columns], what) = (extents, format!("{} x {}, {}", letters[0], letters[1], order.name().replace('_', "-")));
        let (outer, inner) = match order {
            Order::RowMajor => (rows, columns),
            Order::ColumnMajor => (columns, rows),
        };
        SlotKind::Memory { dtype, what, outer, inner, matrix: true, order, batch, written: false }
    }
}

impl Slot {
    /// Whether a launch may leave it out.
    pub fn may_be_left_out(&self) -> bool {
        self.need != Need::Required
    }

    /// An operand of the operation.
    fn of_operation(name: &str, kind: SlotKind) -> Slot {
        Slot { name: name.into(), kind, need: Need::Required }
    }
}

impl SlotKind {
    fn operand(operand: Operand, shape: Shape, written: bool) -> SlotKind {
        let batch = operand.axes.contains(L).then_some(shape.batch);
        SlotKind::laid(operand, shape, batch, written)
    }

    /// An operand of a function of scores. Heads of one sequence, or sequences, are its batch entries.
    fn of_scores(operand: Operand, attention: &Attention, shape: Shape) -> SlotKind {
        let [m, n] = attention.lengths(shape);
        let entries = [(L, shape.batch), (S, attention.count())].into_iter().filter(|(axis, _)| operand.axes.contains(*axis));
        let batch = entries.map(|(_, extent)| extent).reduce(usize::saturating_mul);
        let mut kind = SlotKind::laid(operand, Shape { m, n, ..shape }, batch, false);
        if let SlotKind::Memory { what, .. } = &mut kind {
            *what = match operand.axes.without(L.union(S)) {
                Axes::MN => format!("queries x keys, {}", operand.order.name().replace('_', "-")),
                M => "one element per query".into(),
                N => "one element per key".into(),
                _ => what.clone(),
            };
        }
        kind
    }

    fn laid(operand: Operand, shape: Shape, batch: Option<usize>, written: bool) -> SlotKind {
        let vector = |inner, what: &str| SlotKind::Memory {
            dtype: operand.dtype,
            what: what.into(),
            outer: 1,
            inner,
            matrix: false,
            order: Order::RowMajor,
            batch,
            written: false,
        };
        let mut kind = match operand.axes.without(L.union(S)) {
            Axes::MN => SlotKind::matrix(operand.dtype, ["M", "N"], [shape.m, shape.n], operand.order, batch),
            M => vector(shape.m, "M elements, one per row"),
            N => vector(shape.n, "N elements, one per column"),
            _ => vector(1, "one element"),
        };
        if let SlotKind::Memory { written: is_written, .. } = &mut kind {
            *is_written = written;
        }
        kind
    }
}

/// Whether a name is that of an operand which the epilogue does not read. It may be passed, and nothing reads it.
pub(crate) fn is_unread_operand(name: &str, slots: &[Slot]) -> bool {
    name == "a" && !slots.iter().any(|slot| &*slot.name == name)
}

/// The scales and zero points of a product's operands: which of [`ScaleField::ALL`] each is, its name, and what it has to be.
/// They are in the order of slots.
fn scales_of(
    operation: Operation,
    scales: [Option<Blocks>; 2],
    shape: Shape,
) -> impl Iterator<Item = (ScaleField, &'static str, SlotKind)> {
    ScaleField::of(operation).map(move |field| {
        let of_a = field.operand == 0;
        let blocks = scales[field.operand].unwrap_or(Blocks::groups(32));
        let [lines, terms] = blocks.counts(if of_a { shape.m } else { shape.n }, shape.k);
        let along = |axis: &str, by: usize| if by == 1 { axis.to_owned() } else { format!("{axis}/{by}") };
        let (across, along) = (along(if of_a { "M" } else { "N" }, blocks.lines), along("K", blocks.terms));
        let (letters, extents) = if of_a { ([&*across, &*along], [lines, terms]) } else { ([&*along, &*across], [terms, lines]) };
        let dtype = field.format(operation);
        (field, field.name(), SlotKind::matrix(dtype, letters, extents, blocks.order(of_a), Some(shape.batch)))
    })
}

/// All arguments of a launch: first the operands of the operation that the epilogue reads, with those of a function of scores,
/// then the epilogue's arguments in order.
pub fn slots(operation: Operation, epilogue: &Checked, shape: Shape) -> Vec<Slot> {
    let batch = Some(shape.batch);
    let mut slots = match operation {
        Operation::Product { a, b, layout, scales } => {
            let mut slots = vec![
                Slot::of_operation("a", SlotKind::matrix(a, ["M", "K"], [shape.m, shape.k], layout.a(), batch)),
                Slot::of_operation("b", SlotKind::matrix(b, ["K", "N"], [shape.k, shape.n], layout.b(), batch)),
            ];
            slots.extend(scales_of(operation, scales, shape).map(|(_, name, kind)| Slot::of_operation(name, kind)));
            slots
        }
        Operation::Convolution { dtype, convolution } => {
            let (channels, filters) = (convolution.measures().channels, convolution.measures().filters);
            let terms = convolution.taps() * convolution.channels_of_group();
            let letters = if convolution.measures().groups == 1 { "R S C" } else { "R S C of a group" };
            let row = Order::RowMajor;
            vec![
                Slot::of_operation("a", SlotKind::matrix(dtype, ["N H W", "C"], [convolution.pixels(), channels], row, batch)),
                Slot::of_operation("b", SlotKind::matrix(dtype, ["K", letters], [filters, terms], row, batch)),
            ]
        }
        Operation::ConvolutionGradient { dtype, convolution, of } => {
            let (measures, [p, q]) = (convolution.measures(), convolution.output());
            let matrix = |name, letters, extents, batch| {
                Slot::of_operation(name, SlotKind::matrix(dtype, letters, extents, Order::RowMajor, batch))
            };
            let (outputs, terms) = (measures.images * p * q, convolution.taps() * convolution.channels_of_group());
            // A group is a batch entry, but no matrix of its own.
            let batch = if of == GradientOf::Filters && measures.groups > 1 { None } else { batch };
            let letters = if measures.groups == 1 { "R S C" } else { "R S C of a group" };
            let b = match of {
                GradientOf::Images => (["K", letters], [measures.filters, terms]),
                GradientOf::Filters => (["N H W", "C"], [convolution.pixels(), measures.channels]),
            };
            vec![matrix("a", ["N P Q", "K"], [outputs, measures.filters], batch), matrix("b", b.0, b.1, batch)]
        }
        Operation::Attention { dtype, attention } => {
            let matrix = |name, letters, extents| {
                Slot::of_operation(name, SlotKind::matrix(dtype, letters, extents, Order::RowMajor, batch))
            };
            let operands = [
                matrix("a", ["M", "width"], [shape.m, attention.width()]),
                matrix("b", ["K", "N"], [shape.k, shape.n]),
                matrix(Attention::KEYS, ["K", "width"], [shape.k, attention.width()]),
            ];
            let of_scores = attention.function().map_or(&[][..], |scores| scores.arguments());
            let of_scores = of_scores.iter().map(|Argument { name, role, need }| {
                let kind = role_kind(*role, |operand, _| SlotKind::of_scores(operand, &attention, shape));
                Slot { name: name.clone(), kind, need: *need }
            });
            operands.into_iter().chain(of_scores).collect()
        }
        // An epilogue that reads no accumulator works on its loads, in place if it likes.
        Operation::Pool { .. } | Operation::Pointwise { .. } if epilogue.accumulator().is_none() => Vec::new(),
        Operation::Pool { dtype, pooling } => {
            let (windows, row) = (pooling.windows(), Order::RowMajor);
            let extents = [windows.pixels(), windows.measures().channels];
            vec![Slot::of_operation("a", SlotKind::matrix(dtype, ["N H W", "C"], extents, row, batch))]
        }
        Operation::Pointwise { dtype, order } => {
            vec![Slot::of_operation("a", SlotKind::matrix(dtype, ["M", "N"], [shape.m, shape.n], order, batch))]
        }
    };
    let kind = |role: Role| role_kind(role, |operand, written| SlotKind::operand(operand, shape, written));
    let slot = |Argument { name, role, need }: &Argument| Slot { name: name.clone(), kind: kind(*role), need: *need };
    slots.extend(epilogue.arguments().iter().map(slot));
    slots
}

/// What an argument in a role has to be. `memory` says it of memory, which is written or not.
fn role_kind(role: Role, memory: impl FnOnce(Operand, bool) -> SlotKind) -> SlotKind {
    match role {
        Role::Scalar(value) => SlotKind::Scalar(value),
        Role::Table(dtype) => SlotKind::Table { dtype, written: false },
        Role::Counts(dtype) => SlotKind::Table { dtype, written: true },
        Role::Input(operand) => memory(operand, false),
        Role::Output(operand) | Role::Update(operand) => memory(operand, true),
    }
}
