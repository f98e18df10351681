//! The builder and its expression handle.

use super::into::{IntoElement, IntoExpr};
use crate::dtype::{DType, ValueType};
use crate::ir::axes::{M, N};
use crate::ir::graph::{BuiltAt, Constant, Coordinate, Graph, Node, NodeId, Side};
use crate::ir::{CustomOp, Op, Operand, Reduce, Sink, SinkKind};
use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

/// Collects the nodes of one epilogue. The closure of [`Epilogue::build`](crate::Epilogue::build) receives it.
#[derive(Debug, Default)]
pub struct Builder {
    pub(super) graph: RefCell<Graph>,
    /// Places where an expression of another builder was used.
    pub(super) foreign: RefCell<Vec<&'static Location<'static>>>,
}

/// A value of the epilogue under construction: a handle, copied freely.
///
/// Operators and methods add nodes; nothing is computed. Numbers become constants: a Rust `f32` is an `f32` value, an
/// `i32` an `i32` value, and the two do not mix without a [`cast`](Expr::cast). A number without a type, such as the
/// 0.1 in `z * 0.1`, [takes the type of its operand](IntoExpr): `f64` beside an `f64` value, else `f32`. The compiler
/// warns of an unused expression:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use postlude::prelude::*;
/// # Epilogue::build(|e| {
/// e.acc().relu(); // and is not stored
/// e.store("d", e.acc(), F16);
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "an expression does nothing until it is stored or reduced"]
pub struct Expr<'g> {
    pub(super) builder: &'g Builder,
    pub(super) id: NodeId,
    /// The number of a constant that was made of a Rust `f64` and has no operand yet.
    pub(super) number: Option<f64>,
}

impl Builder {
    pub(super) fn push(&self, node: Node, built_at: BuiltAt) -> Expr<'_> {
        self.handle(self.graph.borrow_mut().push(node, built_at))
    }

    /// Runs `build` over an existing graph. The body of a function adds its nodes in this way.
    pub(super) fn over(graph: &mut Graph, build: impl FnOnce(&Builder) -> NodeId) -> NodeId {
        let builder = Builder { graph: RefCell::new(std::mem::take(graph)), foreign: RefCell::default() };
        let id = build(&builder);
        *graph = builder.graph.into_inner();
        id
    }

    pub(super) fn handle(&self, id: NodeId) -> Expr<'_> {
        Expr { builder: self, id, number: None }
    }

    /// Copies the value of a reported expression of another builder. Expressions built on it are then checked with its
    /// real type, and the report contains no consequential errors.
    pub(super) fn adopt(&self, foreign: Expr<'_>) -> Expr<'_> {
        let from = foreign.builder.graph.borrow();
        let needed = from.needed_by([foreign.id]);
        let mut ids: Vec<NodeId> = Vec::new();
        for (id, node) in from.nodes().take(foreign.id.index() + 1) {
            let copy = || self.push(node.map_args(|a| ids[a.index()]), from.built_at(id)).id;
            ids.push(if needed[id.index()] { copy() } else { id });
        }
        self.handle(ids[foreign.id.index()])
    }

    /// Adds the value of another graph's first sink, with expressions of this builder in place of what that graph loads.
    /// `None` if it loads something else.
    pub(crate) fn graft<'g>(&'g self, graph: &Graph, load: impl Fn(&str) -> Option<Expr<'g>>) -> Option<Expr<'g>> {
        let mut ids: Vec<NodeId> = Vec::with_capacity(graph.len());
        for (id, node) in graph.nodes() {
            ids.push(match node {
                Node::Load { name, .. } => load(name)?.id,
                node => self.push(node.map_args(|a| ids[a.index()]), graph.built_at(id)).id,
            });
        }
        Some(self.handle(ids[graph.sinks().first()?.value().index()]))
    }

    /// The result of a closure, and the places where it used expressions of another builder.
    pub(super) fn build(build: impl FnOnce(&Builder)) -> (Graph, Vec<&'static Location<'static>>) {
        let builder = Builder::default();
        build(&builder);
        (builder.graph.into_inner(), builder.foreign.into_inner())
    }

    /// The accumulator of a floating-point product: `f32[M,N,L]`.
    #[doc(alias = "Sm90AccFetch")]
    #[doc(alias = "VisitorAccFetch")]
    #[track_caller]
    pub fn acc(&self) -> Expr<'_> {
        self.push(Node::Accumulator(ValueType::F32), Some(Location::caller()))
    }

    /// The accumulator of an integer product: `i32[M,N,L]`.
    #[track_caller]
    pub fn acc_i32(&self) -> Expr<'_> {
        self.push(Node::Accumulator(ValueType::I32), Some(Location::caller()))
    }

    /// The accumulator of an `f64` product: `f64[M,N,L]`.
    #[track_caller]
    pub fn acc_f64(&self) -> Expr<'_> {
        self.push(Node::Accumulator(ValueType::F64), Some(Location::caller()))
    }

    /// An element of the left operand of a floating-point product, A\[m,k\]: `f32[M,K,L]`. It exists only inside the
    /// product, and can only be summed over K: see [`b`](Builder::b).
    #[track_caller]
    pub fn a(&self) -> Expr<'_> {
        self.push(Node::Element(Side::A, ValueType::F32), Some(Location::caller()))
    }

    /// An element of the right operand of a floating-point product, B\[k,n\]: `f32[K,N,L]`. It exists only inside the
    /// product, and can only be summed over K. The sum is computed beside the product, which reads the element anyway.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// // Behind dW = X^T dZ: the gradient of the bias, the sum of dZ over its rows.
    /// # Epilogue::build(|e| {
    /// e.store("dw", e.acc(), F16);
    /// e.reduce("dbias", e.b(), Monoid::Sum, F32.over(N));
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn b(&self) -> Expr<'_> {
        self.push(Node::Element(Side::B, ValueType::F32), Some(Location::caller()))
    }

    /// An element of the left operand of an integer product: `i32[M,K,L]`. See [`b`](Builder::b).
    #[track_caller]
    pub fn a_i32(&self) -> Expr<'_> {
        self.push(Node::Element(Side::A, ValueType::I32), Some(Location::caller()))
    }

    /// An element of the right operand of an integer product: `i32[K,N,L]`. See [`b`](Builder::b).
    #[track_caller]
    pub fn b_i32(&self) -> Expr<'_> {
        self.push(Node::Element(Side::B, ValueType::I32), Some(Location::caller()))
    }

    /// The row of the output element, counted from the run-time origin: `i32[M]`.
    #[doc(alias = "iota")]
    #[doc(alias = "GEN_INDEX")]
    #[track_caller]
    pub fn row(&self) -> Expr<'_> {
        self.push(Node::Coordinate(Coordinate::Row), Some(Location::caller()))
    }

    /// The column of the output element, counted from the run-time origin: `i32[N]`.
    #[doc(alias = "iota")]
    #[doc(alias = "GEN_INDEX")]
    #[track_caller]
    pub fn column(&self) -> Expr<'_> {
        self.push(Node::Coordinate(Coordinate::Column), Some(Location::caller()))
    }

    /// The batch entry of the output element, counted from the run-time origin: `i32[L]`.
    #[track_caller]
    pub fn batch(&self) -> Expr<'_> {
        self.push(Node::Coordinate(Coordinate::Batch), Some(Location::caller()))
    }

    /// In a function of [`Scores`](crate::Scores): the number of the attention's sequence, from 0: `i32[S]`.
    #[track_caller]
    pub fn sequence(&self) -> Expr<'_> {
        self.push(Node::Coordinate(Coordinate::Sequence), Some(Location::caller()))
    }

    /// A constant.
    #[track_caller]
    pub fn constant<'g>(&'g self, x: impl IntoExpr<'g>) -> Expr<'g> {
        x.into_expr(self, Location::caller())
    }

    /// A scalar passed by value at launch; changing it recompiles nothing. `F16` and `BF16` scalars are passed as `f32`.
    #[doc(alias = "Sm90ScalarBroadcast")]
    #[track_caller]
    pub fn scalar(&self, name: &str, dtype: DType) -> Expr<'_> {
        self.push(Node::scalar(name, dtype.value_type()), Some(Location::caller()))
    }

    /// A scalar that a launch may leave out; its value is then `default`. Leaving it out or passing it recompiles
    /// nothing.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let scaled = Epilogue::build(|e| e.store("d", e.acc() * e.scalar_or("alpha", F32, 1.0), F32))?;
    /// let (a, b, mut d) = ([3.0f32], [2.0f32], [0.0f32]);
    /// let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
    /// Gemm::new(F32, TT, &scaled).reference(Shape::new(1, 1, 1), args)?;
    /// assert_eq!(d, [6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn scalar_or(&self, name: &str, dtype: DType, default: impl Into<Constant>) -> Expr<'_> {
        let value_type = dtype.value_type();
        let default = Some(default.into().meant_as(value_type));
        self.push(Node::Scalar { name: name.into(), value_type, default }, Some(Location::caller()))
    }

    /// An element of an operand in memory, widened to its value type: a matrix (`F16`), a vector (`F16.over(N)`), or one
    /// number by device pointer (`F32.pointer()`). See [`Operand`].
    #[doc(alias = "Sm90SrcFetch")]
    #[doc(alias = "Sm90AuxLoad")]
    #[doc(alias = "Sm90RowBroadcast")]
    #[doc(alias = "Sm90ColBroadcast")]
    #[track_caller]
    pub fn load(&self, name: &str, operand: impl Into<Operand>) -> Expr<'_> {
        self.push(Node::load(name, operand), Some(Location::caller()))
    }

    /// An element of an operand in memory that a launch may leave out: a matrix, a vector, or one number by device
    /// pointer. An operand that is left out behaves like memory full of `default`, rounded to the operand's format.
    ///
    /// One kernel serves both cases: it receives a null pointer, and all its threads branch around the load together.
    /// It reads no memory then. A kernel with such an operand pays for one comparison before each of its loads.
    ///
    /// The default has the type of the operand's values (`f32` for `F16`). A launch does not write an operand that it
    /// leaves out, so an optional operand cannot be updated in place. Its gradient is that of memory full of the
    /// default, and is an ordinary output. Omit the argument from [`Wrt`](crate::grad::Wrt) if you do not need the
    /// gradient.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load_or("bias", F32.over(N), 0.0), F32))?;
    /// let gemm = Gemm::new(F32, TT, &epilogue);
    /// let (a, b, bias, mut d) = ([3.0f32], [2.0f32], [0.5f32], [0.0f32]);
    /// gemm.reference(Shape::new(1, 1, 1), HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d))?;
    /// assert_eq!(d, [6.0]);
    /// let args = HostArgs::new().input("a", &a).input("b", &b).input("bias", &bias).output("d", &mut d);
    /// gemm.reference(Shape::new(1, 1, 1), args)?;
    /// assert_eq!(d, [6.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn load_or(&self, name: &str, operand: impl Into<Operand>, default: impl Into<Constant>) -> Expr<'_> {
        let operand = operand.into();
        let default = Some(default.into().meant_as(operand.dtype.value_type()));
        self.push(Node::Load { name: name.into(), operand, default }, Some(Location::caller()))
    }

    /// An element of a table in memory, at an `i32` index, widened to its value type. The result varies along the index's axes.
    ///
    /// The table has one dimension, and each launch passes one of any length. If the index is negative, or not below
    /// the length, the value is 0 (`false` for `Bool`): nothing outside the table is read. Elements have at least one
    /// byte; for bit masks [`check`](crate::check) reports `E0110`.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// // A leaky ReLU whose slope is the expert's that the row was sent to.
    /// # Epilogue::build(|e| {
    /// let slope = e.gather("slope", F32, e.load("expert", I32.over(M)));
    /// e.store("d", e.acc().gt(0.0).select(e.acc(), e.acc() * slope), F16);
    /// # }).unwrap();
    /// ```
    #[doc(alias = "embedding")]
    #[track_caller]
    pub fn gather<'g>(&'g self, name: &str, dtype: DType, index: impl IntoExpr<'g>) -> Expr<'g> {
        let built_at = Location::caller();
        let args = vec![index.into_expr(self, built_at).id];
        self.push(Node::Gather { name: name.into(), dtype, args }, Some(built_at))
    }

    /// Stores a value as a matrix, rounded once to its format. A store under the name of a loaded matrix of the same
    /// format and order updates it in place. A condition may be stored with one bit an element: `Bits8`, or cuBLASLt's
    /// `Bits128`.
    #[doc(alias = "Sm90AuxStore")]
    #[doc(alias = "Sm90ReLUAuxStore")]
    #[track_caller]
    pub fn store<'g>(&'g self, name: &str, value: impl IntoExpr<'g>, operand: impl Into<Operand>) {
        let (operand, built_at) = (operand.into(), Location::caller());
        let value = value.beside(operand.dtype == DType::F64, self, built_at).id;
        self.graph.borrow_mut().sink(Sink::new(name, value, SinkKind::Store(operand)), Some(built_at));
    }

    /// Adds 1, for every element of the output, to the entry of a table of `i32` that an index names: NumPy's `bincount`.
    ///
    /// The table has one dimension, and each launch passes one of any length, which is not cleared: counts of several
    /// launches add up. An index that is negative, or not below the length, counts nowhere. Sums of integers do not depend on
    /// their order, so the counts are deterministic. [`histogram`](Builder::histogram) counts magnitudes with it.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// // How many elements of each column are in each eighth of [0, 1).
    /// # Epilogue::build(|e| {
    /// let y = e.acc().sigmoid();
    /// e.store("d", y, F16);
    /// e.bincount("histograms", e.column() * 8 + (y * 8.0).floor().cast(I32));
    /// # }).unwrap();
    /// ```
    #[doc(alias = "scatter_add")]
    #[track_caller]
    pub fn bincount<'g>(&'g self, name: &str, index: impl IntoExpr<'g>) {
        let built_at = Location::caller();
        let index = index.into_expr(self, built_at).id;
        let kind = SinkKind::Bincount(DType::I32.pointer());
        self.graph.borrow_mut().sink(Sink::new(name, index, kind), Some(built_at));
    }

    /// Reduces a value over every axis that the operand does not vary along, and stores the result, rounded once.
    ///
    /// `F32.over(N)` reduces over M (and the batch), `F32.over(M)` over N, `F32.pointer()` over everything;
    /// `.batched()` keeps batch entries apart. See [`Reduction`](crate::ir::Reduction). A reduction is deterministic,
    /// unless the monoid is [`atomic`](crate::ir::Monoid::atomic). It overwrites its memory, unless it is to
    /// [`accumulate`](crate::ir::Monoid::accumulate).
    ///
    /// An element is one value, or an array of as many values as the monoid takes.
    /// [`ArgMax`](crate::ir::Monoid::ArgMax) and [`ArgMin`](crate::ir::Monoid::ArgMin) take a value and an `i32` index.
    /// By default the index is the coordinate along the reduced axis: the column for a result over M, the row for one
    /// over N, the batch entry for one over both. If M and N are both reduced, you have to pass the index. It may be
    /// any value, such as a loaded label.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// # Epilogue::build(|e| {
    /// let logits = e.acc() + e.load("bias", F32.over(N));
    /// e.reduce("class", logits, Monoid::ArgMax, I32.over(M)); //                              the best column of each row
    /// e.reduce("label", [logits, e.load("label_of", I32.over(N))], Monoid::ArgMax, I32.over(M));
    /// e.reduce("mean", logits, Monoid::Mean, F32.over(M));
    /// e.reduce("positive", logits.gt(0.0), Monoid::Count, I32.over(M));
    /// # }).unwrap();
    /// ```
    ///
    /// If the table has no suitable monoid, [build](crate::CustomMonoid::build) one from expressions.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// # Epilogue::build(|e| {
    /// let g = e.load("active", Bits8).select(e.acc(), 0.0);
    /// e.store("dz", g, F16);
    /// e.reduce("dbias", g, Monoid::Sum, F32.over(N));
    /// e.reduce("amax", g, Monoid::AbsMax.atomic(), F32.pointer());
    /// # }).unwrap();
    /// ```
    #[doc(alias = "Sm90RowReduction")]
    #[doc(alias = "Sm90ColReduction")]
    #[doc(alias = "Sm90ScalarReduction")]
    #[track_caller]
    pub fn reduce<'g>(&'g self, name: &str, element: impl IntoElement<'g>, with: impl Into<Reduce>, operand: impl Into<Operand>) {
        let (with, operand, built_at) = (with.into(), operand.into(), Location::caller());
        let f64 = operand.dtype == DType::F64;
        let values = element.into_values(self, built_at).into_iter();
        let mut values: Vec<NodeId> = values.map(|value| value.beside(f64, self, built_at).id).collect();
        if with.monoid.is_indexed() && values.len() == 1 {
            // No coordinate of the graph counts the elements of both axes.
            let index = match (operand.axes.contains(M), operand.axes.contains(N)) {
                (true, false) => Some(Coordinate::Column),
                (false, true) => Some(Coordinate::Row),
                (true, true) => Some(Coordinate::Batch),
                (false, false) => None,
            };
            values.extend(index.map(|index| self.push(Node::Coordinate(index), Some(built_at)).id));
        }
        self.graph.borrow_mut().sink(Sink { name: name.into(), values, kind: with.to(operand) }, Some(built_at));
    }

    /// Applies a custom primitive.
    #[doc(alias = "Sm90Compute")]
    #[track_caller]
    pub fn custom<'g, const A: usize>(&'g self, op: &Arc<CustomOp>, args: [Expr<'g>; A]) -> Expr<'g> {
        let built_at = Location::caller();
        let args = args.into_iter().map(|a| a.into_expr(self, built_at).id).collect();
        self.push(Node::Custom { op: op.clone(), args }, Some(built_at))
    }
}

impl<'g> Expr<'g> {
    /// The value of a constant.
    pub(super) fn constant(self) -> Option<f64> {
        match self.builder.graph.borrow().node(self.id) {
            Node::Constant(constant) => Some(constant.value()),
            _ => None,
        }
    }

    /// The number in the listing of the epilogue under construction.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// The type of the value.
    pub(crate) fn value_type(self) -> ValueType {
        self.builder.graph.borrow().value_type(self.id)
    }

    pub(super) fn apply(self, op: Op, rest: &[Expr<'g>], built_at: &'static Location<'static>) -> Expr<'g> {
        let args = std::iter::once(self.id).chain(rest.iter().map(|r| r.id)).collect();
        self.builder.push(Node::Apply { op, args }, Some(built_at))
    }

    pub(super) fn binary(self, op: Op, right: impl IntoExpr<'g>, built_at: &'static Location<'static>) -> Expr<'g> {
        let f64 = self.is_f64() || right.is_f64();
        let [left, right] = [self.beside(f64, self.builder, built_at), right.beside(f64, self.builder, built_at)];
        left.apply(op, &[right], built_at)
    }

    /// Converts to another type (`F32`, `F64`, `I32`, `Bool`), or rounds once to the precision of a narrower format. `F16`,
    /// `BF16`, `E4M3` and `E5M2` give an `f32` value, the integers `I8` and `U8` an `i32`. Formats of eight bits saturate.
    #[track_caller]
    pub fn cast(self, to: DType) -> Expr<'g> {
        let at = Location::caller();
        match self.number {
            Some(_) if to == DType::F64 => self.beside(true, self.builder, at),
            _ => self.apply(Op::cast(to), &[], at),
        }
    }
}
