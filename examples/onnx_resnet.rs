//! ResNet-50 with random weights: built here, written as an ONNX file, read back, fused, drawn and run.
//!
//! The file has 53 convolutions, as many batch norms, 49 ReLUs and 16 additions. Norms go into the filters, and everything
//! else that is elementwise into a convolution's epilogue. Images keep their channels side by side from the first kernel to
//! the last, so nothing is copied in between.
//!
//! ```text
//! $ cargo run --release --features onnx --example onnx_resnet
//! 175 nodes in a file of ...
//! 57 kernels: 53 convolutions, 2 pools, 1 product, 1 copy
//! kernels that are elementwise alone: 0
//! ...
//! launches   57 instead of 176
//! ...
//! largest difference to the network node by node: 0.0... of the largest
//! Runs on the CPU: ...
//! Drawings: target/onnx_resnet.dot, target/onnx_resnet_fused.dot and target/onnx_resnet.svg
//! ```

#[path = "support/networks.rs"]
#[allow(dead_code, reason = "tests and the benchmark use the rest")]
mod networks;

use networks::{Images, compute, noise, resnet};
use postlude::Operation;
use postlude::network::fuse::Fused;
use postlude::network::{Network, Operators, Tensor};
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The network of the paper has images of 224 pixels and `narrow` of 1. This one computes in moments without a GPU.
const IMAGES: Images = Images { format: F16, batch: 2, size: 64, narrow: 8, channels_last: false };

/// Kernels by what they compute, in words.
fn counted(fused: &Fused) -> String {
    let count = |of: fn(Operation) -> bool| fused.kernels().filter(|kernel| of(kernel.gemm.operation())).count();
    let convolutions = count(|operation| matches!(operation, Operation::Convolution { .. }));
    let pools = count(|operation| matches!(operation, Operation::Pool { .. }));
    let products = count(|operation| matches!(operation, Operation::Product { .. }));
    let copies = count(|operation| matches!(operation, Operation::Pointwise { .. }));
    format!("{convolutions} convolutions, {pools} pools, {products} product, {copies} copy")
}

/// Kernels of which every node is elementwise.
fn elementwise(fused: &Fused) -> usize {
    let graph = fused.network().graph();
    fused.kernels().filter(|kernel| kernel.nodes.iter().all(|node| graph.node(*node).kind().word() == "pointwise")).count()
}

/// Builds, writes, reads, fuses, draws and runs the network.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let file = networks::folder()?.join("onnx_resnet.onnx");
    let built = resnet(IMAGES, [3, 4, 6, 3], true, 10)?;
    std::fs::write(&file, built.to_onnx()?)?;
    let network = Network::from_onnx_file(&file, &Operators::new())?;
    let bytes = std::fs::metadata(&file)?.len();
    writeln!(out, "{} nodes in a file of {:.1} MB", built.graph().nodes().count(), bytes as f64 / 1e6)?;

    let fused = network.fuse()?;
    writeln!(out, "{} kernels: {}", fused.kernels().count(), counted(&fused))?;
    writeln!(out, "kernels that are elementwise alone: {}", elementwise(&fused))?;
    write!(out, "{}", fused.explain())?;

    let Images { batch, size, .. } = IMAGES;
    let x = Tensor::of_numbers(F16, &[batch, 3, size, size], &noise(batch * 3 * size * size, 1))?;
    let (y, place) = compute(&network, &x)?;
    let exact = network.run(&[("x", x)])?[0].1.numbers();
    let worst = y.numbers().iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let largest = exact.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    writeln!(out, "largest difference to the network node by node: {:.4} of the largest", worst / largest)?;
    writeln!(out, "Runs on {place}")?;
    networks::draw("onnx_resnet", &network, &fused)?;
    writeln!(out, "Drawings: target/onnx_resnet.dot, target/onnx_resnet_fused.dot and target/onnx_resnet.svg")?;
    Ok(())
}

#[allow(dead_code, reason = "the tests run the example's other function")]
fn main() -> Result<()> {
    run(&mut std::io::stdout())
}
