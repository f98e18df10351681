//! Attributes: what a node is told beside its tensors.

use super::tensor::Tensor;
use std::collections::BTreeMap;
use std::fmt;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f32),
    /// A word.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// A tensor.
    Tensor(Tensor),
}

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeType {
    /// An integer.
    Int,
    /// A number.
    Float,
    /// A word.
    Text,
    /// Integers.
    Ints,
    /// Numbers.
    Floats,
    /// A tensor.
    Tensor,
}

impl Attribute {
    /// Its type.
    pub fn kind(&self) -> AttributeType {
        match self {
            Attribute::Int(_) => AttributeType::Int,
            Attribute::Float(_) => AttributeType::Float,
            Attribute::Text(_) => AttributeType::Text,
            Attribute::Ints(_) => AttributeType::Ints,
            Attribute::Floats(_) => AttributeType::Floats,
            Attribute::Tensor(_) => AttributeType::Tensor,
        }
    }
}

impl AttributeType {
    /// The type in words.
    pub fn words(self) -> &'static str {
        match self {
            AttributeType::Int => "an integer",
            AttributeType::Float => "a number",
            AttributeType::Text => "a word",
            AttributeType::Ints => "a list of integers",
            AttributeType::Floats => "a list of numbers",
            AttributeType::Tensor => "a tensor",
        }
    }
}

macro_rules! into_attribute {
    ($($from:ty => $make:expr),* $(,)?) => { $(
        impl From<$from> for Attribute {
            fn from(value: $from) -> Attribute {
                let make: fn($from) -> Attribute = $make;
                make(value)
            }
        }
    )* };
}

into_attribute! {
    i64 => Attribute::Int, f32 => Attribute::Float, String => Attribute::Text, &str => |text| Attribute::Text(text.to_owned()),
    Vec<i64> => Attribute::Ints, &[i64] => |list| Attribute::Ints(list.to_vec()), Vec<f32> => Attribute::Floats,
    Tensor => Attribute::Tensor,
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Int(x) => write!(f, "{x}"),
            Attribute::Float(x) => write!(f, "{x:?}"),
            Attribute::Text(text) => write!(f, "{text:?}"),
            Attribute::Ints(list) => write!(f, "{list:?}"),
            Attribute::Floats(list) => write!(f, "{list:?}"),
            Attribute::Tensor(tensor) => write!(f, "{tensor}"),
        }
    }
}

/// The attributes of a node, by name. The check compares names and types with the operator's row, so what reads them
/// here takes a missing one for its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(pub(crate) BTreeMap<String, Attribute>);

impl Attributes {
    /// None.
    pub fn new() -> Attributes {
        Attributes::default()
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Attribute>) -> Attributes {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Each of them, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The attribute of that name.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.get(name)
    }

    /// The integer of that name.
    pub fn int(&self, name: &str) -> Option<i64> {
        if let Some(Attribute::Int(x)) = self.get(name) { Some(*x) } else { None }
    }

    /// The integer of that name, or its default.
    pub fn int_or(&self, name: &str, default: i64) -> i64 {
        self.int(name).unwrap_or(default)
    }

    /// Whether the integer of that name is not 0.
    pub fn flag(&self, name: &str) -> bool {
        self.int_or(name, 0) != 0
    }

    /// The number of that name, or its default.
    pub fn float_or(&self, name: &str, default: f32) -> f64 {
        f64::from(if let Some(Attribute::Float(x)) = self.get(name) { *x } else { default })
    }

    /// The word of that name, or its default.
    pub fn text_or<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        if let Some(Attribute::Text(text)) = self.get(name) { text } else { default }
    }

    /// The integers of that name.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        if let Some(Attribute::Ints(list)) = self.get(name) { Some(list) } else { None }
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        if let Some(Attribute::Tensor(tensor)) = self.get(name) { Some(tensor) } else { None }
    }
}
