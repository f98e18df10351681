//! Monoids: what a reduction combines elements with. One row each: name, doc, the types it takes, its identity, value and
//! combination; the enum, the names in text and JSON and the tests follow.

use crate::dtype::ValueType;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// The name, in text, JSON and messages.
    pub name: &'static str,
    /// What it computes.
    pub doc: &'static str,
    /// The types of value it reduces.
    pub takes: &'static [ValueType],
    /// What no elements reduce to, as a value of one of the types it takes.
    pub identity: fn(ValueType) -> f64,
    /// What an element counts as.
    pub lift: fn(f64) -> f64,
    /// Combines two. Exact where its result is; of numbers in any order within rounding.
    pub combine: fn(f64, f64) -> f64,
    /// The same for integers, whose sums and products wrap.
    pub combine_i32: fn(i32, i32) -> i32,
    /// Its struct in `templates/prelude/monoids.cuh`, over the type of value.
    pub cuda: &'static str,
    /// Issue slots of taking one element in, roughly.
    pub cost: u32,
}

macro_rules! monoids {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $name:literal, $takes:expr, identity $identity:expr, lift $lift:expr,
        combine $combine:expr, i32 $combine_i32:expr, cuda $cuda:literal costs $cost:literal; )*) => {
        /// What a reduction combines elements with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Monoid { $( $(#[doc = $doc])+ #[serde(rename = $name)] $variant, )* }

        static TABLE: &[Row] = &[$( Row {
            name: $name,
            doc: concat!($($doc),+),
            takes: $takes,
            identity: $identity,
            lift: $lift,
            combine: $combine,
            combine_i32: $combine_i32,
            cuda: $cuda,
            cost: $cost,
        } ),*];

        impl Monoid {
            /// Every monoid, in table order.
            pub const ALL: [Monoid; [$($name),*].len()] = [$(Monoid::$variant),*];
        }
    };
}

use ValueType::{Bool, F32, I32};

/// The larger, or NaN if either is. +0 is larger than -0, as on a GPU: `f64::max` leaves that open.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b || (a == b && b.is_sign_negative()) {
        a
    } else {
        b
    }
}

/// The smaller, or NaN if either is. -0 is smaller than +0.
pub(super) fn smaller(a: f64, b: f64) -> f64 {
    -larger(-a, -b)
}

monoids! {
    /// The sum; 0 of nothing. The sum of a product `a * b` is taken of the exact product, which a kernel computes with one
    /// fused multiply-add an element. Integers wrap.
    Sum = "sum", &[F32, I32], identity |_| 0.0, lift |x| x, combine |a, b| a + b, i32 i32::wrapping_add,
        cuda "Sum" costs 1;
    /// The product; 1 of nothing. Integers wrap.
    Product = "product", &[F32, I32], identity |_| 1.0, lift |x| x, combine |a, b| a * b, i32 i32::wrapping_mul,
        cuda "Product" costs 1;
    /// The largest; of nothing minus infinity, the least integer, or false. NaN if any element is NaN. Of conditions it is
    /// whether any holds.
    Max = "max", &[F32, I32, Bool], identity |t| match t { F32 => f64::NEG_INFINITY, I32 => f64::from(i32::MIN), Bool => 0.0 },
        lift |x| x, combine larger, i32 i32::max, cuda "Max" costs 1;
    /// The smallest; of nothing infinity, the largest integer, or true. NaN if any element is NaN. Of conditions it is
    /// whether all hold.
    Min = "min", &[F32, I32, Bool], identity |t| match t { F32 => f64::INFINITY, I32 => f64::from(i32::MAX), Bool => 1.0 },
        lift |x| x, combine smaller, i32 i32::min, cuda "Min" costs 1;
    /// The largest absolute value; 0 of nothing. NaN if any element is NaN. The least integer, whose absolute value is no
    /// `i32`, counts as the largest.
    AbsMax = "absmax", &[F32, I32], identity |_| 0.0, lift f64::abs, combine larger, i32 i32::max,
        cuda "AbsMax" costs 2;
    /// log(sum of e^x), computed without overflow; minus infinity of nothing.
    LogSumExp = "logsumexp", &[F32], identity |_| f64::NEG_INFINITY, lift |x| x, combine |a, b| {
        let (high, low) = if a > b { (a, b) } else { (b, a) };
        // Equal infinities have no difference.
        if high == low && high.is_infinite() || low == f64::NEG_INFINITY { larger(a, b) } else { high + (low - high).exp().ln_1p() }
    }, i32 i32::max, cuda "LogSumExp" costs 24;
}

impl Monoid {
    /// The row.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The monoid of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Monoid> {
        Monoid::ALL.into_iter().find(|m| m.name() == name)
    }

    /// What no elements of a type reduce to.
    pub fn identity(self, value: ValueType) -> f64 {
        (self.row().identity)(value)
    }

    /// What one element counts as.
    pub fn lift(self, value: ValueType, x: f64) -> f64 {
        let lifted = (self.row().lift)(x);
        if value == ValueType::I32 { f64::from(lifted as i32) } else { lifted }
    }

    /// Combines two of a type: numbers in `f64`, integers wrapping.
    pub fn combine(self, value: ValueType, a: f64, b: f64) -> f64 {
        match value {
            ValueType::I32 => f64::from((self.row().combine_i32)(a as i32, b as i32)),
            _ => (self.row().combine)(a, b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_monoid_in_every_type_it_takes() {
        let samples = |value: ValueType| match value {
            F32 => vec![f64::NEG_INFINITY, -70000.0, -2.5, -0.0, 0.0, 0.25, 3.0, 88.0, f64::INFINITY, f64::NAN],
            I32 => [i32::MIN, i32::MIN + 1, -7, -1, 0, 1, 9, i32::MAX].map(f64::from).to_vec(),
            Bool => vec![0.0, 1.0],
        };
        for monoid in Monoid::ALL {
            assert_eq!(Monoid::from_name(monoid.name()), Some(monoid));
            assert_eq!(serde_json::to_string(&monoid).unwrap(), format!("\"{}\"", monoid.name()));
            assert!(monoid.row().doc.trim().len() > 8);
            for &value in monoid.row().takes {
                let unit = monoid.identity(value);
                for x in samples(value) {
                    let x = monoid.lift(value, x);
                    let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
                    assert!(same(monoid.combine(value, unit, x), x), "{monoid:?} of {x} and its identity {unit}");
                    assert!(same(monoid.combine(value, x, unit), x), "{monoid:?} of its identity {unit} and {x}");
                    for y in samples(value) {
                        let y = monoid.lift(value, y);
                        assert!(same(monoid.combine(value, x, y), monoid.combine(value, y, x)), "{monoid:?} of {x}, {y}");
                    }
                }
            }
        }
    }

    #[test]
    fn edges_are_defined() {
        assert_eq!(Monoid::AbsMax.lift(I32, f64::from(i32::MIN)), f64::from(i32::MAX));
        assert_eq!(Monoid::Sum.combine(I32, f64::from(i32::MAX), 1.0), f64::from(i32::MIN));
        assert!(Monoid::Max.combine(F32, f64::NAN, 1.0).is_nan() && Monoid::Min.combine(F32, 1.0, f64::NAN).is_nan());
        for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
            let signs = [Monoid::Max, Monoid::Min].map(|monoid| monoid.combine(F32, a, b).is_sign_negative());
            assert_eq!(signs, [false, true], "{a:?} and {b:?}");
        }
        let lse = |a, b| Monoid::LogSumExp.combine(F32, a, b);
        assert_eq!(lse(f64::NEG_INFINITY, f64::NEG_INFINITY), f64::NEG_INFINITY);
        assert_eq!(lse(f64::INFINITY, f64::INFINITY), f64::INFINITY);
        assert!((lse(1000.0, 1000.0) - 1000.0 - 2f64.ln()).abs() < 1e-9);
        assert!(lse(f64::NAN, 0.0).is_nan() && lse(f64::NAN, f64::NEG_INFINITY).is_nan());
    }
}
