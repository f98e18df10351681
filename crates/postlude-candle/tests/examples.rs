//! The examples do what they say.
#![allow(missing_docs, reason = "a test binary")]

#[allow(dead_code, reason = "its `main` is not called")]
#[path = "../examples/mnist_mlp.rs"]
mod mnist_mlp;

#[allow(dead_code, reason = "its `main` is not called")]
#[path = "../examples/swap_mlp.rs"]
mod swap_mlp;

/// `tests/gpu.rs` runs the same tests elsewhere.
#[allow(dead_code, reason = "not used there")]
fn device() -> candle_core::Result<candle_core::Device> {
    Ok(candle_core::Device::Cpu)
}

#[test]
fn swapped_networks_have_the_same_logits() {
    for (name, difference) in swap_mlp::compare(&crate::device().expect("a device")).expect("it computes") {
        assert!(difference < 1e-5, "{name} {difference}");
    }
}

#[test]
fn the_network_learns() {
    let (first, last, right) = mnist_mlp::train(&crate::device().expect("a device"), 25).expect("it trains");
    assert!(last < first / 4.0 && right > 0.8, "{first} {last} {right}");
}
