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

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(operator: &str, inputs: usize, attributes: Attributes) -> Draft {
        let inputs = (0..inputs).map(|i| Given::Named(format!("x{i}"))).collect();
        Draft { operator: operator.into(), inputs, attributes }
    }

    fn indices(list: &[i64]) -> Given {
        Given::Constant(Tensor::indices(list))
    }

    fn number(x: f64) -> Given {
        Given::Constant(Tensor::scalar(Format::F32, x))
    }

    #[test]
    fn attributes_become_the_inputs_that_they_are_now() {
        let (none, x, gap) = (Attributes::new, Given::Named("x0".into()), Given::Named(String::new()));
        for (operator, attributes, behind) in [
            ("Squeeze", none().with("axes", vec![0, 2]), vec![indices(&[0, 2])]),
            ("Unsqueeze", none().with("axes", 1i64), vec![indices(&[1])]),
            ("ReduceMax", none().with("axes", vec![1]), vec![indices(&[1])]),
            ("Split", none().with("split", vec![2, 3]), vec![indices(&[2, 3])]),
            ("Reshape", none().with("shape", vec![6, -1]), vec![indices(&[6, -1])]),
            ("TopK", none().with("k", 5i64), vec![indices(&[5])]),
            (
                "Slice",
                none().with("starts", vec![1]).with("ends", vec![4]).with("axes", vec![2]),
                vec![indices(&[1]), indices(&[4]), indices(&[2])],
            ),
            ("Slice", none().with("starts", vec![1]).with("ends", vec![4]), vec![indices(&[1]), indices(&[4])]),
            ("Slice", none().with("starts", vec![1]).with("axes", vec![0]), vec![indices(&[1]), gap.clone(), indices(&[0])]),
            ("Pad", none().with("pads", vec![0, 1]).with("value", 2.5f32), vec![indices(&[0, 1]), number(2.5)]),
            ("Pad", none().with("pads", vec![0, 1]), vec![indices(&[0, 1])]),
            ("Clip", none().with("min", -1.0f32).with("max", 6.0f32), vec![number(-1.0), number(6.0)]),
            ("Clip", none().with("max", 6.0f32), vec![gap.clone(), number(6.0)]),
            ("Clip", none().with("min", 0.0f32), vec![number(0.0)]),
            ("Dropout", none().with("ratio", 0.5f32).with("is_test", 1i64), vec![]),
            ("BatchNormalization", none().with("spatial", 1i64).with("is_test", 1i64).with("consumed_inputs", vec![0]), vec![]),
            ("Relu", none().with("consumed_inputs", vec![0]).with("broadcast", 1i64).with("round_mode", "x"), vec![]),
        ] {
            let mut draft = draft(operator, 1, attributes);
            upgrade(&mut draft, 6).unwrap();
            let expected: Vec<Given> = [x.clone()].into_iter().chain(behind).collect();
            assert_eq!((draft.inputs, draft.attributes), (expected, none()), "{operator}");
        }
    }

    #[test]
    fn inputs_of_now_stay_as_they_are() {
        for (operator, inputs) in [("Squeeze", 2), ("Slice", 5), ("Clip", 3), ("Pad", 3), ("TopK", 2)] {
            let mut draft = draft(operator, inputs, Attributes::new().with("axis", 1i64));
            let before = draft.inputs.clone();
            upgrade(&mut draft, 13).unwrap();
            assert_eq!((draft.inputs, draft.attributes), (before, Attributes::new().with("axis", 1i64)), "{operator}");
        }
        // From opset 7 on these names would be attributes of somebody else.
        let mut kept = draft("Custom", 1, Attributes::new().with("broadcast", 1i64));
        upgrade(&mut kept, 7).unwrap();
        assert_eq!(kept.attributes, Attributes::new().with("broadcast", 1i64));
        let mut ended = draft("Resize", 2, Attributes::new());
        ended.inputs.extend([Given::Named(String::new()), Given::Named(String::new())]);
        upgrade(&mut ended, 13).unwrap();
        assert_eq!(ended.inputs.len(), 2, "inputs that are left out at the end");
    }

    /// Files of before attributes had types.
    #[test]
    fn values_tell_the_type_that_is_not_written() {
        let none = messages::Attribute::default;
        for (message, value) in [
            (messages::Attribute { ints: vec![2, 3], ..none() }, Some(Attribute::Ints(vec![2, 3]))),
            (messages::Attribute { floats: vec![0.5], ..none() }, Some(Attribute::Floats(vec![0.5]))),
            (messages::Attribute { f: Some(1.5), ..none() }, Some(Attribute::Float(1.5))),
            (messages::Attribute { i: Some(7), ..none() }, Some(Attribute::Int(7))),
            (messages::Attribute { s: Some(b"same".to_vec()), ..none() }, Some(Attribute::Text("same".into()))),
            (none(), None),
        ] {
            assert_eq!(untyped(&message), value);
        }
    }

    #[test]
    fn formats_have_names() {
        for (operator, attribute) in [("Cast", "to"), ("BitCast", "to"), ("EyeLike", "dtype"), ("QuantizeLinear", "output_dtype")]
        {
            let renamed = |number: i64| {
                let mut draft = draft(operator, 1, Attributes::new().with(attribute, number));
                upgrade(&mut draft, 13).map(|()| draft.attributes)
            };
            assert_eq!(renamed(1).unwrap(), Attributes::new().with(attribute, "f32"), "{operator}");
            assert_eq!(renamed(10).unwrap(), Attributes::new().with(attribute, "f16"), "{operator}");
            assert_eq!(renamed(0).unwrap(), Attributes::new(), "{operator}");
            assert!(renamed(999).is_err(), "{operator}");
        }
        let before = ["Softmax", "LogSoftmax", "Hardmax", "Relu"].map(|operator| [12, 13].map(|opset| flattens(operator, opset)));
        assert_eq!(before, [[true, false], [true, false], [true, false], [false, false]]);
    }
}
