//! What a reduction goes over: axes, one of them perhaps in bands.

use super::axes::{Axes, K, M, N, S};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The axes that a reduction goes over. It may take one of them, M or N, in *bands*: so many neighbouring rows or columns come to
/// one result, and the last band may have fewer.
///
/// ```
/// use postlude::prelude::*;
/// assert_eq!(Over::from(M | N).to_string(), "[M,N]");
/// assert_eq!((M | N).bands(8).to_string(), "[M,N/8]");
/// assert_eq!(M.bands(8).to_string(), "[M/8]");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Over {
    /// The axes.
    pub axes: Axes,
    /// The axis of the bands, M or N, and the rows or columns of one.
    pub band: Option<(Axes, usize)>,
}

impl Axes {
    /// These axes, with N in bands of so many columns, or M in bands of so many rows if N is not among them. The result of such a
    /// reduction varies from band to band, so it varies along that axis.
    #[must_use]
    pub const fn bands(self, extent: usize) -> Over {
        Over { axes: self, band: Some((if self.contains(N) { N } else { M }, extent)) }
    }
}

impl Over {
    /// The axes along which a result varies, if the elements vary along these.
    pub const fn kept(self, axes: Axes) -> Axes {
        let kept = axes.without(self.axes);
        match self.band {
            Some((axis, _)) => kept.union(axis),
            None => kept,
        }
    }

    /// Whether a value that varies along these axes differs among the elements of one result.
    pub(crate) fn varies(self, axes: Axes) -> bool {
        self.axes.without(axes) != self.axes
    }

    /// The same reduction seen from the transposed problem.
    pub const fn transposed(self) -> Over {
        let band = match self.band {
            Some((axis, extent)) => Some((axis.transposed(), extent)),
            None => None,
        };
        Over { axes: self.axes.transposed(), band }
    }

    /// The rows or columns of a band along an axis.
    pub fn band_along(self, axis: Axes) -> Option<usize> {
        self.band.filter(|(of, _)| *of == axis).map(|(_, extent)| extent)
    }

    /// Whether there is such a reduction: over some axes of the output, one of which has bands of at least one element.
    pub fn is_meaningful(self) -> bool {
        let band = |(axis, extent): (Axes, usize)| self.axes.contains(axis) && (axis == M || axis == N) && extent > 0;
        self.axes != Axes::NONE && !self.axes.contains(K) && !self.axes.contains(S) && self.band.is_none_or(band)
    }

    /// Parses the inside of `[M,N/8,L]`.
    pub fn from_letters(letters: &str) -> Option<Over> {
        let mut band = None;
        let mut plain = Vec::new();
        for letter in letters.split(',') {
            let (letter, extent) = letter.split_once('/').map_or((letter, None), |(letter, extent)| (letter, Some(extent)));
            if let Some(extent) = extent {
                let axis = Axes::from_letters(letter).filter(|_| band.is_none())?;
                band = Some((axis, extent.trim().parse().ok()?));
            }
            plain.push(letter);
        }
        Some(Over { axes: Axes::from_letters(&plain.join(","))?, band })
    }
}

impl From<Axes> for Over {
    fn from(axes: Axes) -> Over {
        Over { axes, band: None }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let band = |axis| self.band_along(axis).map_or_else(String::new, |extent| format!("/{extent}"));
        let letters = Axes::LETTERS.iter().filter(|(axis, _)| self.axes.contains(*axis));
        let letters: Vec<_> = letters.map(|(axis, letter)| format!("{letter}{}", band(*axis))).collect();
        write!(f, "[{}]", letters.join(","))
    }
}

impl Serialize for Over {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Over {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Over, D::Error> {
        let text = String::deserialize(d)?;
        text.strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .and_then(Over::from_letters)
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a list of axes such as [M,N/8,L]")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::axes::L;
    use super::*;

    #[test]
    fn every_set_prints_parses_and_transposes() {
        for axes in [M, N, L, M | N, N | L, M | N | L] {
            for over in [Over::from(axes), axes.bands(1), axes.bands(320)] {
                assert_eq!(over.transposed().transposed(), over);
                if !over.is_meaningful() {
                    continue;
                }
                let text = over.to_string();
                assert_eq!(Over::from_letters(&text[1..text.len() - 1]), Some(over));
                assert_eq!(serde_json::from_str::<Over>(&serde_json::to_string(&over).unwrap()).unwrap(), over);
            }
        }
        assert_eq!((M | N).bands(8).transposed().to_string(), "[M/8,N]");
        assert_eq!((M | N | L).bands(8).kept(Axes::MNL), N);
        assert!(!N.bands(0).is_meaningful() && !L.bands(2).is_meaningful());
        assert_eq!(Over::from_letters("M/2,N/8"), None);
        assert_eq!(Over::from_letters("N/x"), None);
    }
}
