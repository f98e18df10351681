//! Older versions of operators, written as the newest: attributes that became inputs, axes that were flattened.

use super::messages;
use crate::network::attribute::{Attribute, Attributes};
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::tensor::Tensor;

/// A node that is being read.
#[derive(Debug)]
pub(super) struct Draft {
    pub operator: String,
    pub inputs: Vec<Given>,
    pub attributes: Attributes,
}

/// An input of a draft.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    /// A tensor of the file, or none where the name is empty.
    Named(String),
    /// A constant that was an attribute.
    Constant(Tensor),
}

impl Draft {
    /// Moves attributes to inputs from `first` on. `None` leaves one out.
    fn move_ints(&mut self, names: &[&str], first: usize) {
        if names.iter().all(|name| self.attributes.get(name).is_none()) {
            return;
        }
        self.inputs.truncate(first);
        for name in names {
            self.inputs.push(match self.attributes.0.remove(*name) {
                Some(Attribute::Ints(list)) => Given::Constant(Tensor::indices(&list)),
                Some(Attribute::Int(x)) => Given::Constant(Tensor::indices(&[x])),
                _ => Given::Named(String::new()),
            });
        }
    }

    /// Moves number attributes to inputs from `first` on.
    fn move_floats(&mut self, names: &[&str], first: usize) {
        if names.iter().all(|name| self.attributes.get(name).is_none()) {
            return;
        }
        self.inputs.truncate(first);
        for name in names {
            self.inputs.push(match self.attributes.0.remove(*name) {
                Some(Attribute::Float(x)) => Given::Constant(Tensor::scalar(Format::F32, f64::from(x))),
                _ => Given::Named(String::new()),
            });
        }
    }

    fn drop_attributes(&mut self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.attributes.0.remove(*name)));
    }

    /// Replaces ONNX's number of a format by its name.
    fn name_format(&mut self, attribute: &str) -> Result<(), Fault> {
        let Some(number) = self.attributes.int(attribute) else { return Ok(()) };
        self.drop_attributes(&[attribute]);
        // 0 is the default, as if it were left out.
        if number != 0 {
            let format = super::tensor::format(i32::try_from(number).unwrap_or(0))?;
            self.attributes = std::mem::take(&mut self.attributes).with(attribute, format.name());
        }
        Ok(())
    }
}

/// Writes a node of some opset as the table has it.
///
/// # Errors
/// If it names a format that networks do not have.
pub(super) fn upgrade(draft: &mut Draft, opset: i64) -> Result<(), Fault> {
    match draft.operator.as_str() {
        "Squeeze" | "Unsqueeze" => draft.move_ints(&["axes"], 1),
        name if name.starts_with("Reduce") => draft.move_ints(&["axes"], 1),
        "Split" => draft.move_ints(&["split"], 1),
        "Reshape" => draft.move_ints(&["shape"], 1),
        "TopK" => draft.move_ints(&["k"], 1),
        "Slice" => draft.move_ints(&["starts", "ends", "axes"], 1),
        "Pad" => {
            let value = draft.attributes.0.remove("value");
            draft.move_ints(&["pads"], 1);
            if let Some(Attribute::Float(x)) = value {
                draft.inputs.push(Given::Constant(Tensor::scalar(Format::F32, f64::from(x))));
            }
        }
        "Clip" => draft.move_floats(&["min", "max"], 1),
        "Dropout" => draft.drop_attributes(&["ratio", "is_test"]),
        "BatchNormalization" => draft.drop_attributes(&["spatial", "is_test", "consumed_inputs"]),
        "Cast" | "BitCast" => draft.name_format("to")?,
        "EyeLike" => draft.name_format("dtype")?,
        "QuantizeLinear" | "DequantizeLinear" => {
            draft.name_format("output_dtype")?;
            draft.drop_attributes(&["precision"]);
        }
        _ => {}
    }
    draft.drop_attributes(&["round_mode"]);
    if opset < 7 {
        draft.drop_attributes(&["broadcast", "consumed_inputs"]);
    }
    while draft.inputs.last().is_some_and(|input| *input == Given::Named(String::new())) {
        draft.inputs.pop();
    }
    Ok(())
}

/// Whether the node normalises all axes from its own on, as these operators did before opset 13.
pub(super) fn flattens(operator: &str, opset: i64) -> bool {
    opset < 13 && matches!(operator, "Softmax" | "LogSoftmax" | "Hardmax")
}

/// The attributes of a message. One of a type that networks do not have is left to the caller.
pub(super) fn attributes(
    message: &messages::Node,
    mut tensor: impl FnMut(&messages::Tensor) -> Result<Tensor, super::OnnxError>,
) -> Result<(Attributes, bool), super::OnnxError> {
    let mut out = Attributes::new();
    let mut complete = true;
    for attribute in &message.attribute {
        let name = attribute.name.clone().unwrap_or_default();
        let value = match attribute.kind.unwrap_or(0) {
            1 => attribute.f.map(Attribute::Float),
            2 => attribute.i.map(Attribute::Int),
            3 => attribute.s.as_ref().map(|text| Attribute::Text(String::from_utf8_lossy(text).into_owned())),
            4 => attribute.t.as_ref().map(&mut tensor).transpose()?.map(Attribute::Tensor),
            6 => Some(Attribute::Floats(attribute.floats.clone())),
            7 => Some(Attribute::Ints(attribute.ints.clone())),
            // Files of before the type was written.
            0 => untyped(attribute),
            _ => None,
        };
        complete &= value.is_some();
        out.0.extend(value.map(|value| (name, value)));
    }
    Ok((out, complete))
}

fn untyped(attribute: &messages::Attribute) -> Option<Attribute> {
    if !attribute.ints.is_empty() {
        return Some(Attribute::Ints(attribute.ints.clone()));
    }
    if !attribute.floats.is_empty() {
        return Some(Attribute::Floats(attribute.floats.clone()));
    }
    let text = attribute.s.as_ref().map(|text| Attribute::Text(String::from_utf8_lossy(text).into_owned()));
    attribute.f.map(Attribute::Float).or(attribute.i.map(Attribute::Int)).or(text)
}
