//! Monoids that tests define: one of two words, one of two values, one of three words and of one on integers.

#![allow(dead_code, reason = "each test crate uses its part")]

use postlude::CustomMonoid;
use postlude::prelude::*;

/// How many, their mean, and the sum of their squared distances from it: their variance.
pub fn variance() -> Monoid {
    CustomMonoid::build(
        "variance",
        [F32],
        [0.0, 0.0, 0.0],
        |e, [x]| [e.constant(1.0), x, e.constant(0.0)],
        |_, [n, mean, square], [k, other, more]| {
            let (count, delta) = (n + k, other - mean);
            let share = k / count.max(1.0);
            [count, mean + delta * share, square + more + delta * delta * n * share]
        },
        |_, [n, _, square]| square / n,
    )
    .expect("a monoid")
}

/// The mean, with a division for each element.
pub fn mean() -> Monoid {
    CustomMonoid::build(
        "mean",
        [F32],
        [0.0, 0.0],
        |e, [x]| [e.constant(1.0), x],
        |_, [n, mean], [k, other]| [n + k, mean + (other - mean) * (k / (n + k).max(1.0))],
        |_, [_, mean]| mean,
    )
    .expect("a monoid")
}

/// The largest less the smallest.
pub fn spread() -> Monoid {
    CustomMonoid::build(
        "spread",
        [F32],
        [f32::INFINITY, f32::NEG_INFINITY],
        |_, [x]| [x, x],
        |_, [low, high], [l, h]| [low.min(l), high.max(h)],
        |_, [low, high]| high - low,
    )
    .expect("a monoid")
}

/// The mean of values by their weights.
pub fn weighted() -> Monoid {
    CustomMonoid::build(
        "weighted",
        [F32, F32],
        [0.0, 0.0],
        |_, [x, weight]| [x * weight, weight],
        |_, [x, weight], [y, other]| [x + y, weight + other],
        |_, [x, weight]| x / weight,
    )
    .expect("a monoid")
}

/// The bits that any integer has.
pub fn bits() -> Monoid {
    CustomMonoid::build("bits", [I32], [0], |_, [x]| [x], |_, [a], [b]| [a | b], |_, [s]| s).expect("a monoid")
}

/// All of them.
pub fn every() -> [Monoid; 4] {
    [variance(), spread(), weighted(), bits()]
}
