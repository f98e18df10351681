//! The reader: what it lists, and what it refuses.

use postlude::network::onnx::OnnxError;
use postlude::network::{Network, Operators, Tensor};

#[test]
fn bytes_that_are_no_model() {
    assert!(matches!(Network::from_onnx(b"hello", &Operators::new()), Err(OnnxError::Decode(_))));
    assert!(matches!(Network::from_onnx(b"", &Operators::new()), Err(OnnxError::Decode(_))));
    assert!(Tensor::from_onnx(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x10, 0x01]).is_err());
}
