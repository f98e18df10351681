//! Reductions whose results the same epilogue uses: sums, means and largest elements of rows, and what is made of them.
//!
//! The result varies along the axes of the operand that the reduction does not go over, so a sum over N of a matrix is
//! one value for each row, and broadcasts along the row where it is used.
//!
//! One of the axes may be taken in bands: `N.bands(64)` are the columns of a head, and `(M | N).bands(8)` a group of channels
//! of an image, whose pixels are rows. Each band comes to one value, which every element of the band gets.
//!
//! ```
//! use postlude::prelude::*;
//! // The columns of each head over the root of their mean square.
//! Epilogue::build(|e| {
//!     let rstd = (e.acc().mean_square_over(N.bands(64)) + 1e-6).rsqrt();
//!     e.store("d", e.acc() * rstd * e.load("weight", F16.over(N)), F16);
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rows cost least: the threads that share a row read it once. Over both axes (`M | N`) one kernel does it where a block has a
//! whole matrix. What blocks share takes a kernel for each level of reductions, and
//! [`explain`](crate::plan::KernelPlan::explain) has them all.
//!
//! ```
//! use postlude::prelude::*;
//! // A layer norm, from its definition.
//! let epilogue = Epilogue::build(|e| {
//!     let x = e.acc();
//!     let centred = x - x.mean_over(N);
//!     let scale = (centred.mean_square_over(N) + 1e-5).rsqrt();
//!     e.store("d", centred * scale, F32);
//! })?;
//! let (x, mut d) = ([1.0f32, 3.0, 2.0, 6.0], [0.0f32; 4]);
//! let args = HostArgs::new().input("a", &x).output("d", &mut d);
//! Gemm::pointwise(F32, Default::default(), &epilogue).reference(Shape::matrix(2, 2), args)?;
//! assert!(d.iter().zip([-1.0, 1.0, -1.0, 1.0]).all(|(d, exact)| (d - exact).abs() < 1e-5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::expr::{Builder, Expr};
use super::into::IntoElement;
use crate::ir::graph::{Coordinate, Node, NodeId};
use crate::ir::{Monoid, Op, Over};
use std::panic::Location;

impl Builder {
    /// What elements come to along some of the axes M, N and L: a value of the graph, which varies along the other axes
    /// of the elements. [`reduce`](Builder::reduce) stores such a result instead.
    ///
    /// An element is one value, or as many as the monoid takes, in an array. Every element of the output takes part,
    /// whether or not the value varies from one to the next: the sum over N of 1 is N. Bands of an axis
    /// ([`Axes::bands`](crate::ir::Axes::bands)) come to one result each. [`ArgMax`](Monoid::ArgMax) and
    /// [`ArgMin`](Monoid::ArgMin) take the coordinate along the axis for an index, unless one is given.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// # Epilogue::build(|e| {
    /// let scores = e.acc();
    /// let best = e.reduce_over([scores, e.load("label_of", I32.over(N))], Monoid::ArgMax, N);
    /// e.store("is_best", e.load("label_of", I32.over(N)).eq(best), Bool);
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn reduce_over<'g>(&'g self, element: impl IntoElement<'g>, monoid: Monoid, over: impl Into<Over>) -> Expr<'g> {
        self.reduced(element, monoid, over.into(), Location::caller())
    }

    pub(super) fn reduced<'g>(
        &'g self,
        element: impl IntoElement<'g>,
        monoid: Monoid,
        over: Over,
        built_at: &'static Location<'static>,
    ) -> Expr<'g> {
        let mut args: Vec<NodeId> = element.into_values(self, built_at).into_iter().map(|value| value.id).collect();
        if monoid.is_indexed() && args.len() == 1 {
            let index = Coordinate::along(over.axes);
            args.extend(index.map(|index| self.push(Node::Coordinate(index), Some(built_at)).id));
        }
        self.push(Node::Reduce { monoid, over, args }, Some(built_at))
    }
}

macro_rules! reductions {
    ($( $(#[doc = $doc:literal])+ $(#[doc(alias = $alias:literal)])* $method:ident = $monoid:ident; )*) => {
        /// Reductions along axes: see [`Builder::reduce_over`].
        impl<'g> Expr<'g> {
            $(
                $(#[doc = $doc])+
                $(#[doc(alias = $alias)])*
                #[track_caller]
                pub fn $method(self, axes: impl Into<Over>) -> Expr<'g> {
                    self.builder.reduced(self, Monoid::$monoid, axes.into(), Location::caller())
                }
            )*
        }
    };
}

reductions! {
    /// The sum along these axes; 0 of nothing.
    sum_over = Sum;
    /// The product along these axes; 1 of nothing.
    product_over = Product;
    /// The mean along these axes; NaN of nothing.
    mean_over = Mean;
    /// The mean of squared distances from the mean along these axes; NaN of nothing.
    variance_over = Variance;
    /// The largest along these axes; for conditions, whether any holds.
    #[doc(alias = "amax")]
    max_over = Max;
    /// The smallest along these axes; for conditions, whether all hold.
    #[doc(alias = "amin")]
    min_over = Min;
    /// The largest absolute value along these axes; 0 of nothing.
    absmax_over = AbsMax;
    /// The Euclidean norm along these axes; 0 of nothing.
    #[doc(alias = "vector_norm")]
    norm_over = Norm2;
    /// The number of elements that are true, along these axes.
    count_over = Count;
    /// log(sum of e^x) along these axes, without overflow; minus infinity of nothing.
    logsumexp_over = LogSumExp;
    /// The coordinate of the largest element along this axis; the smallest coordinate wins among equals.
    argmax_over = ArgMax;
    /// The coordinate of the smallest element along this axis; the smallest coordinate wins among equals.
    argmin_over = ArgMin;
}

/// What is made of reductions along axes.
impl<'g> Expr<'g> {
    /// The mean of squares along these axes; NaN of nothing.
    #[track_caller]
    pub fn mean_square_over(self, axes: impl Into<Over>) -> Expr<'g> {
        let at = Location::caller();
        self.builder.reduced(self.apply(Op::Mul, &[self], at), Monoid::Mean, axes.into(), at)
    }

    /// Each element's e^x over the sum of all e^x along these axes. What is minus infinity has no share; a row of nothing
    /// else is NaN. A temperature divides, and a mask selects minus infinity: `mask.select(x / t,
    /// f32::NEG_INFINITY).softmax_over(N)`.
    ///
    /// Computed as e^(x - [`logsumexp`](Expr::logsumexp_over)), so that the derivative takes one sum along the axes.
    #[track_caller]
    pub fn softmax_over(self, axes: impl Into<Over>) -> Expr<'g> {
        let at = Location::caller();
        self.less_logsumexp(axes.into(), at).apply(Op::Exp, &[], at)
    }

    /// The logarithm of [`softmax_over`](Expr::softmax_over): x less its log(sum of e^x) along these axes.
    #[track_caller]
    pub fn log_softmax_over(self, axes: impl Into<Over>) -> Expr<'g> {
        self.less_logsumexp(axes.into(), Location::caller())
    }

    fn less_logsumexp(self, axes: Over, at: &'static Location<'static>) -> Expr<'g> {
        self.apply(Op::Sub, &[self.builder.reduced(self, Monoid::LogSumExp, axes, at)], at)
    }
}
