//! The type of an edge: a format, and a shape whose extents may be symbols or not known yet.

use super::fault::Fault;
use super::format::Format;
use super::tensor::Tensor;
use std::fmt;
use std::sync::Arc;

/// An extent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// So many elements.
    Known(usize),
    /// As many as this name will be bound to; equal names are equal extents.
    Symbol(Arc<str>),
    /// Not known before the network runs, or not derived.
    Unknown,
}

impl Dim {
    /// The extent, if it is a number.
    pub fn known(&self) -> Option<usize> {
        if let Dim::Known(extent) = self { Some(*extent) } else { None }
    }
}

impl From<usize> for Dim {
    fn from(extent: usize) -> Dim {
        Dim::Known(extent)
    }
}

impl From<i32> for Dim {
    /// A negative number is no extent, and stands for one that is not known.
    fn from(extent: i32) -> Dim {
        usize::try_from(extent).map_or(Dim::Unknown, Dim::Known)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Dim {
        Dim::Symbol(name.into())
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(extent) => write!(f, "{extent}"),
            Dim::Symbol(name) => f.write_str(name),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

/// A shape that a program writes: an array or slice of extents, or a tuple of numbers and names: `("batch", 128, 768)`.
pub trait IntoDims {
    /// The extents.
    fn into_dims(self) -> Vec<Dim>;
}

impl<const N: usize, D: Into<Dim>> IntoDims for [D; N] {
    fn into_dims(self) -> Vec<Dim> {
        self.into_iter().map(Into::into).collect()
    }
}

impl IntoDims for &[usize] {
    fn into_dims(self) -> Vec<Dim> {
        self.iter().copied().map(Dim::Known).collect()
    }
}

impl IntoDims for Vec<Dim> {
    fn into_dims(self) -> Vec<Dim> {
        self
    }
}

macro_rules! tuples {
    ($(($($name:ident)+))*) => { $(
        impl<$($name: Into<Dim>),+> IntoDims for ($($name,)+) {
            fn into_dims(self) -> Vec<Dim> {
                #[allow(non_snake_case, reason = "a name for each place of the tuple")]
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    )* };
}

tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) }

/// The type of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// The format of its elements.
    pub format: Format,
    /// Its extents; `None` where not even their number is known.
    pub dims: Option<Vec<Dim>>,
}

impl Type {
    /// A type with these extents.
    pub fn new(format: impl Into<Format>, dims: impl IntoDims) -> Type {
        Type { format: format.into(), dims: Some(dims.into_dims()) }
    }

    /// A type whose shape is not known.
    pub fn unshaped(format: Format) -> Type {
        Type { format, dims: None }
    }

    /// The type of a tensor.
    pub fn of(tensor: &Tensor) -> Type {
        Type::new(tensor.format(), tensor.shape())
    }

    /// The extents, if all of them are numbers.
    pub fn shape(&self) -> Option<Vec<usize>> {
        self.dims.as_ref()?.iter().map(Dim::known).collect()
    }

    /// How many axes, if that is known.
    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(Vec::len)
    }

    /// Whether a tensor may have this type: what is known agrees.
    pub fn admits(&self, tensor: &Tensor) -> bool {
        let extents = |dims: &Vec<Dim>| {
            let agree = |(dim, extent): (&Dim, &usize)| dim.known().is_none_or(|known| known == *extent);
            dims.len() == tensor.rank() && dims.iter().zip(tensor.shape()).all(agree)
        };
        self.format == tensor.format() && self.dims.as_ref().is_none_or(extents)
    }

    /// Bytes of such a tensor, if its shape is known.
    pub fn bytes(&self) -> Option<usize> {
        self.shape()?.iter().try_fold(self.format.size(), |bytes, extent| bytes.checked_mul(*extent))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dims {
            Some(dims) => {
                let extents: Vec<String> = dims.iter().map(ToString::to_string).collect();
                write!(f, "{}[{}]", self.format, extents.join(","))
            }
            None => write!(f, "{}[..]", self.format),
        }
    }
}

/// The extent of two that are stretched to each other.
fn stretched(a: &Dim, b: &Dim) -> Option<Dim> {
    match (a, b) {
        (Dim::Known(1), other) | (other, Dim::Known(1)) => Some(other.clone()),
        (Dim::Known(a), Dim::Known(b)) => (a == b).then_some(Dim::Known(*a)),
        (Dim::Symbol(a), Dim::Symbol(b)) if a == b => Some(Dim::Symbol(a.clone())),
        // A number other than 1 is what the other has to be, if anything fits.
        (Dim::Known(a), _) | (_, Dim::Known(a)) => Some(Dim::Known(*a)),
        _ => Some(Dim::Unknown),
    }
}

/// The extents that shapes are stretched to by NumPy's rules.
///
/// # Errors
/// If two extents differ and none is 1.
pub(crate) fn broadcast<'a>(shapes: impl IntoIterator<Item = &'a [Dim]> + Clone) -> Result<Vec<Dim>, Fault> {
    let rank = shapes.clone().into_iter().map(<[Dim]>::len).max().unwrap_or(0);
    let mut out = vec![Dim::Known(1); rank];
    for shape in shapes {
        for (axis, dim) in shape.iter().enumerate() {
            let at = &mut out[rank - shape.len() + axis];
            *at = stretched(at, dim).ok_or_else(|| Fault::Shape(format!("extents {at} and {dim} do not broadcast")))?;
        }
    }
    Ok(out)
}

/// The same for numbers.
///
/// # Errors
/// If two extents differ and none is 1.
pub(crate) fn broadcast_shapes<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Result<Vec<usize>, Fault> {
    let dims: Vec<Vec<Dim>> = shapes.into_iter().map(|shape| shape.into_dims()).collect();
    let joined = broadcast(dims.iter().map(Vec::as_slice))?;
    Ok(joined.iter().filter_map(Dim::known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_as_numpys() {
        let join = |a: Vec<Dim>, b: Vec<Dim>| broadcast([a.as_slice(), b.as_slice()]);
        assert_eq!(join((2, 1, 3).into_dims(), (4, 1).into_dims()), Ok((2, 4, 3).into_dims()));
        assert_eq!(join(("n", 3).into_dims(), (1, 3).into_dims()), Ok(("n", 3).into_dims()));
        assert_eq!(join(("n", 3).into_dims(), ("n", 1).into_dims()), Ok(("n", 3).into_dims()));
        assert_eq!(join(("n",).into_dims(), ("m",).into_dims()), Ok(vec![Dim::Unknown]));
        assert!(join((2, 3).into_dims(), (4,).into_dims()).is_err());
    }
}
