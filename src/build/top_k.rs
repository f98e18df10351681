//! The largest elements of a row, one after another.

use super::expr::Expr;
use super::into::IntoExpr;
use crate::ir::axes::Axes;
use crate::ir::graph::{Coordinate, Node};
use crate::ir::{Monoid, Op};
use std::panic::Location;

/// The k largest elements along an axis: see [`Expr::top_k_over`].
#[derive(Clone, Debug)]
pub struct TopK<'g> {
    /// The elements, the largest first. Minus infinity where there are fewer than k.
    pub values: Vec<Expr<'g>>,
    /// Their coordinates along the axis, as `i32`; -1 where there are fewer than k.
    pub indices: Vec<Expr<'g>>,
    /// Whether an element is one of them.
    pub selected: Expr<'g>,
}

impl<'g> Expr<'g> {
    /// The `k` largest elements along this axis, M or N, the largest first: their values, their coordinates, and which elements
    /// they are. The smallest coordinate comes first among equals, and NaN is larger than any number, as in `torch.topk`.
    ///
    /// Each of them is a [reduction](crate::Builder::reduce_over) of the elements that come after the one before. A kernel holds
    /// a row in registers meanwhile, so memory is read once. Code and compile time grow with `k`, which should be 32 at most.
    ///
    /// The elements have to be floating-point. Gradients of the values go to the elements that were chosen.
    ///
    /// A router of a mixture of experts, which takes the two best of each row and the softmax of both:
    ///
    /// ```
    /// use postlude::prelude::*;
    /// let router = Epilogue::build(|e| {
    ///     let best = e.acc().top_k_over(N, 2);
    ///     let second = (best.values[1] - best.values[0]).sigmoid();
    ///     for (i, weight) in [1.0 - second, second].into_iter().enumerate() {
    ///         e.store(&format!("expert{i}"), best.indices[i], I32.over(M).batched());
    ///         e.store(&format!("weight{i}"), weight, F32.over(M).batched());
    ///     }
    /// })?;
    /// let scores = [0.5f32, 3.0, -1.0, 3.0, /* */ 1.0, 0.0, 0.0, -2.0];
    /// let [mut first, mut second] = [[0i32; 2]; 2];
    /// let [mut most, mut rest] = [[0f32; 2]; 2];
    /// let args = HostArgs::new().input("a", &scores);
    /// let args = args.output("expert0", &mut first).output("expert1", &mut second);
    /// let args = args.output("weight0", &mut most).output("weight1", &mut rest);
    /// Gemm::pointwise(F32, Default::default(), &router).reference(Shape::matrix(2, 4), args)?;
    /// assert_eq!((first, second), ([1, 0], [3, 1]));
    /// assert_eq!((most[0], rest[0]), (0.5, 0.5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "topk")]
    #[doc(alias = "Sm90TopKSoftmaxColReduction")]
    #[track_caller]
    pub fn top_k_over(self, axis: Axes, k: usize) -> TopK<'g> {
        let (e, at) = (self.builder, Location::caller());
        let number = |x: i32| x.into_expr(e, at);
        // Axes without a coordinate are refused by the reductions, which take one.
        let coordinate = e.push(Node::Coordinate(Coordinate::along(axis).unwrap_or(Coordinate::Column)), Some(at));
        let none = self.apply(Op::IsNan, &[], at);
        let (mut values, mut indices) = (Vec::with_capacity(k), Vec::with_capacity(k));
        // Which elements come after those that were taken.
        let mut left: Option<Expr<'g>> = None;
        for _ in 0..k {
            let (value, place) = match left {
                None => (self, e.reduced(self, Monoid::ArgMax, axis.into(), at)),
                Some(left) => {
                    let value = left.apply(Op::Select, &[self, f32::NEG_INFINITY.into_expr(e, at)], at);
                    // Behind every other coordinate, so that an element of minus infinity that is left comes before it.
                    let behind = left.apply(Op::Select, &[coordinate, number(i32::MAX)], at);
                    (value, e.reduced([value, behind], Monoid::ArgMax, axis.into(), at))
                }
            };
            let value = e.reduced(value, Monoid::Max, axis.into(), at);
            left = Some(after(self, none, coordinate, [value, place], at));
            values.push(value);
            // Nothing was left.
            indices.push(place.binary(Op::Eq, i32::MAX, at).apply(Op::Select, &[number(-1), place], at));
        }
        let selected = left.map_or_else(|| e.constant(false), |left| left.apply(Op::Not, &[], at));
        TopK { values, indices, selected }
    }
}

/// Whether an element comes after another one that was taken, with its coordinate: it is smaller, or as large and further on. NaN
/// is larger than any number.
fn after<'g>(
    x: Expr<'g>,
    none: Expr<'g>,
    coordinate: Expr<'g>,
    [value, index]: [Expr<'g>; 2],
    at: &'static Location<'static>,
) -> Expr<'g> {
    let both = |one: Expr<'g>, two: Expr<'g>| one.apply(Op::And, &[two], at);
    let either = |one: Expr<'g>, two: Expr<'g>| one.apply(Op::Or, &[two], at);
    let further = coordinate.apply(Op::Gt, &[index], at);
    let of_number = either(x.apply(Op::Lt, &[value], at), both(x.apply(Op::Eq, &[value], at), further));
    let of_none = both(value.apply(Op::IsNan, &[], at), either(none.apply(Op::Not, &[], at), further));
    // A kernel computes elements again for each reduction. Were one rounded another way then, it would not be taken twice.
    both(either(of_number, of_none), coordinate.apply(Op::Ne, &[index], at))
}
