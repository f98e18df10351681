//! Axes: the whole shape system.
//!
//! A value of the graph varies along a subset of {M, N, L}: rows, columns and batch. The accumulator varies along all
//! three, a bias over N along N only, a scalar along none. Operands with different axes join by union; this one rule is
//! broadcasting. It also determines where a value is computed: once per tile (no axis, or L), per column (N), per row
//! (M), or per element (M and N).
//!
//! The product adds up along a fourth axis, K, which its result does not have. Only the elements of its operands vary
//! along K, and they can only be summed over K.
//!
//! The scores of an attention have a fifth one, S: its sequences. Only a function of scores has values that vary along it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::BitOr;

/// A subset of {M, N, L}, or of {M, K, L} and {K, N, L} for an element of an operand of the product, or of {M, N, L, S} for a
/// value behind the scores of an attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axes(u8);

/// Rows of the output.
pub const M: Axes = Axes(1);
/// Columns of the output.
pub const N: Axes = Axes(2);
/// The batch.
pub const L: Axes = Axes(4);
/// K elements of the product.
pub const K: Axes = Axes(8);
/// The sequences of an attention.
pub const S: Axes = Axes(16);

impl Axes {
    /// No axis: one value for the whole launch.
    pub const NONE: Axes = Axes(0);
    /// A matrix, the same for every batch entry.
    pub const MN: Axes = Axes(3);
    /// A batch of matrices.
    pub const MNL: Axes = Axes(7);

    /// The axes in the order in which they are written.
    pub(super) const LETTERS: [(Axes, &'static str); 5] = [(M, "M"), (K, "K"), (N, "N"), (L, "L"), (S, "S")];

    /// Whether every axis of `other` is in `self`.
    pub const fn contains(self, other: Axes) -> bool {
        self.0 & other.0 == other.0
    }

    /// The axes of `self` that are not in `other`.
    pub const fn without(self, other: Axes) -> Axes {
        Axes(self.0 & !other.0)
    }

    /// Every axis of either set: the axes of joined operands.
    pub const fn union(self, other: Axes) -> Axes {
        Axes(self.0 | other.0)
    }

    /// Whether this is a matrix, that is, varies along both M and N.
    pub const fn is_matrix(self) -> bool {
        self.contains(Axes::MN)
    }

    /// M and N exchanged: the same value seen from the transposed problem.
    pub const fn transposed(self) -> Axes {
        Axes((self.0 & 28) | ((self.0 & 1) << 1) | ((self.0 & 2) >> 1))
    }

    /// Parses the inside of `[M,N,L]`, in that order; K follows M, and S comes last.
    pub fn from_letters(letters: &str) -> Option<Axes> {
        let (mut axes, mut left) = (Axes::NONE, &Axes::LETTERS[..]);
        if letters.trim().is_empty() {
            return Some(axes);
        }
        for letter in letters.split(',').map(str::trim) {
            let place = left.iter().position(|(_, l)| *l == letter)?;
            axes = axes | left[place].0;
            left = &left[place + 1..];
        }
        Some(axes)
    }
}

impl BitOr for Axes {
    type Output = Axes;
    fn bitor(self, other: Axes) -> Axes {
        self.union(other)
    }
}

impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters: Vec<_> = Axes::LETTERS.iter().filter(|(a, _)| self.contains(*a)).map(|(_, l)| *l).collect();
        write!(f, "[{}]", letters.join(","))
    }
}

impl Serialize for Axes {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Axes {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Axes, D::Error> {
        let text = String::deserialize(d)?;
        text.strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .and_then(Axes::from_letters)
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a list of axes such as [M,N,L]")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subset_prints_parses_and_transposes() {
        for bits in 0..32 {
            let axes = Axes(bits);
            let text = axes.to_string();
            assert_eq!(Axes::from_letters(&text[1..text.len() - 1]), Some(axes));
            assert_eq!(axes.transposed().transposed(), axes);
            assert_eq!(serde_json::from_str::<Axes>(&serde_json::to_string(&axes).unwrap()).unwrap(), axes);
        }
        assert_eq!((M | L).transposed(), N | L);
        assert_eq!((M | K | L).transposed(), K | N | L);
        assert_eq!((M | K | L).to_string(), "[M,K,L]");
        assert_eq!(Axes::from_letters("N,M"), None);
        assert_eq!(Axes::from_letters("M,M"), None);
        assert_eq!(Axes::from_letters("M,"), None);
    }
}
