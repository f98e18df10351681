//! The custom primitive that the tests register: `limit * tanh(x / limit)`, the soft cap of attention scores.

use postlude::CustomOp;
use std::sync::Arc;

/// The primitive, with the derivative with respect to its first operand.
pub fn softcap() -> Arc<CustomOp> {
    let op = CustomOp::new("softcap", 2, "$1 * tanhf($0 / $1)", |x| x[1] * (x[0] / x[1]).tanh());
    let partial = |x: &[f64]| 1.0 - (x[0] / x[1]).tanh().powi(2);
    Arc::new(op.and_then(|op| op.partial(0, "1.0f - tanhf($0 / $1) * tanhf($0 / $1)", partial)).expect("the spelling is sound"))
}
