//! Networks on the GPU against PyTorch on the same GPU, with the same weights and inputs.
//!
//! PyTorch computes each network twice, node by node: in the network's format with its own kernels, and in `f64`. Both results
//! in 16 bits are off from the exact one; Postlude's may not be off more than twice as far as PyTorch's.

use crate::networks::{Encoder, Images, encoder, mixer, mlp, mobilenet_v2, noise, resnet, unet, vgg16};
use crate::peer::Peer;
use crate::support::Result;
use postlude::cudarc::driver::CudaStream;
use postlude::network::{Network, Tensor};
use postlude::prelude::*;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// How much farther off than PyTorch a result may be.
const FARTHER: f64 = 2.0;

/// A network by name, and the extents of its input.
type Case = (&'static str, fn(DType) -> Result<Network>, &'static [usize]);

const fn images(format: DType) -> Images {
    Images { format, batch: 8, size: 224, narrow: 1, channels_last: false }
}

const PICTURES: &[usize] = &[8, 3, 224, 224];

const CASES: [Case; 8] = [
    ("ResNet-18", |of| Ok(resnet(images(of), [2, 2, 2, 2], false, 1000)?), PICTURES),
    ("ResNet-50", |of| Ok(resnet(images(of), [3, 4, 6, 3], true, 1000)?), PICTURES),
    ("MobileNetV2", |of| Ok(mobilenet_v2(images(of), 1000)?), PICTURES),
    ("VGG-16", |of| Ok(vgg16(images(of), 1000)?), PICTURES),
    ("U-Net of 4 levels", |of| Ok(unet(images(of), 4)?), PICTURES),
    ("MLP-Mixer of 8 layers", |of| Ok(mixer(images(of), 16, 8, 1000)?), PICTURES),
    (
        "encoder of 12 layers",
        |of| Ok(encoder(Encoder { format: of, batch: 8, length: 128, heads: 12, head: 64, layers: 12 })?),
        &[8, 128, 768],
    ),
    ("MLP 4 x 4096", |of| Ok(mlp(of, 64, 4096, 4)?), &[64, 4096]),
];

/// Root of the mean square, and the largest difference, both over the root of the mean square of what is exact.
fn off(x: &[f64], exact: &[f64]) -> [f64; 2] {
    let rms = |of: &mut dyn Iterator<Item = f64>| (of.map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
    let size = rms(&mut exact.iter().copied());
    let differences = || x.iter().zip(exact).map(|(x, y)| x - y);
    [rms(&mut differences()) / size, differences().fold(0.0, |most: f64, x| most.max(x.abs())) / size]
}

fn read(path: &str) -> Result<Vec<f64>> {
    Ok(std::fs::read(path)?.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap_or_default())).collect())
}

fn one(device: &Device, stream: &Arc<CudaStream>, peer: &mut Peer, folder: &Path, case: &Case, of: DType) -> Result<bool> {
    let (name, build, extents) = case;
    let network = build(of)?;
    let x = Tensor::of_numbers(of, extents, &noise(extents.iter().product(), 77))?;
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (graph, input) = (at("network.json"), at("x"));
    std::fs::write(&graph, network.to_json())?;
    std::fs::write(&input, x.bytes())?;
    let form = json!({ "format": of.to_string(), "shape": extents, "path": input });
    let told = peer.prepare(&json!({ "kind": "numbers", "launches": 1, "path": graph, "inputs": { "x": form } }))?;
    let theirs = |key: &str| read(told[key].as_str().ok_or("the peer named no file")?);
    let (theirs, exact) = (theirs("own")?, theirs("exact")?);
    let mut plan = network.plan(device, &[])?;
    let ours = plan.run(stream, &[("x", x)])?[0].1.numbers();
    if ours.len() != exact.len() || theirs.len() != exact.len() {
        return Err(format!("{} elements, {} and {} of the peer", ours.len(), theirs.len(), exact.len()).into());
    }
    let ([own, own_most], [peer, peer_most]) = (off(&ours, &exact), off(&theirs, &exact));
    // A result that is nowhere a number compares as wrong.
    let good = own <= FARTHER * peer && own_most <= FARTHER * peer_most;
    println!(
        "{name}, {of}: {} kernels; off by {own:.1e} in the mean, {own_most:.1e} most; PyTorch {peer:.1e} and {peer_most:.1e}{}",
        plan.kernels().len(),
        if good { "" } else { ": TOO FAR" }
    );
    Ok(good)
}

/// Compares every network whose name has a text.
///
/// # Errors
/// If one is too far off, or cannot be computed.
pub fn compare(device: &Device, stream: &Arc<CudaStream>, peer: &mut Peer, only: &str) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("postlude-numbers-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut bad = 0;
    for case in CASES.iter().filter(|case| case.0.contains(only)) {
        for of in [F16, BF16] {
            match one(device, stream, peer, &folder, case, of) {
                Ok(good) => bad += usize::from(!good),
                Err(error) => {
                    println!("{}, {of}: {error}", case.0);
                    bad += 1;
                }
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    if bad > 0 { Err(format!("{bad} networks are not what PyTorch computes").into()) } else { Ok(()) }
}
