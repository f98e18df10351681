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
//! Drawings: target/onnx_resnet.dot and target/onnx_resnet_fused.dot
//! ```

#[path = "support/networks.rs"]
#[allow(dead_code, reason = "tests and the benchmark use the rest")]
mod networks;

use networks::{Images, noise, resnet};
use postlude::Operation;
use postlude::network::fuse::Fused;
use postlude::network::{Network, Operators, Tensor};
use postlude::prelude::*;
use std::io::Write;
use std::path::PathBuf;

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

/// Runs the network on the GPU if there is one, else kernel by kernel on the CPU. Says which it was.
fn compute(network: &Network, x: &Tensor) -> Result<(Tensor, String)> {
    let inputs = [("x", x.clone())];
    #[cfg(feature = "cuda")]
    let why = match Device::new(0) {
        Ok(device) if postlude::jit::compiler().is_ok() => {
            let stream = device.context().default_stream();
            let outputs = network.plan(&device, &[])?.run(&stream, &inputs)?;
            return Ok((outputs[0].1.clone(), format!("the GPU: {device}")));
        }
        Ok(_) => "no compiler".to_owned(),
        Err(why) => why.to_string(),
    };
    #[cfg(not(feature = "cuda"))]
    let why = "built without the feature `cuda`".to_owned();
    let outputs = network.fuse()?.run(&inputs)?;
    Ok((outputs[0].1.clone(), format!("the CPU: {why}")))
}

/// Builds, writes, reads, fuses, draws and runs the network.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let folder = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("onnx_resnet.onnx");
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
    std::fs::write(folder.join("onnx_resnet.dot"), network.to_dot())?;
    std::fs::write(folder.join("onnx_resnet_fused.dot"), fused.to_dot())?;
    writeln!(out, "Drawings: target/onnx_resnet.dot and target/onnx_resnet_fused.dot")?;
    Ok(())
}

#[allow(dead_code, reason = "the tests run the example's other function")]
fn main() -> Result<()> {
    run(&mut std::io::stdout())
}
