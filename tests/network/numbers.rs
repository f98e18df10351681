//! Whole networks with random weights, fused in `f32` and in 16 bits, against the same networks node by node in `f64`.

use crate::networks::{Encoder, Images, encoder, mixer, mobilenet_v2, noise, resnet, unet, vgg16};
use postlude::network::{Network, Tensor};
use postlude::prelude::*;

/// Each network in a format, and the extents of its input.
fn networks(format: DType) -> Vec<(&'static str, Network, Vec<usize>)> {
    let images = Images { format, batch: 2, size: 32, narrow: 16, channels_last: false };
    let of = Encoder { format, batch: 2, length: 12, heads: 2, head: 8, layers: 12 };
    let extents = vec![2, 3, 32, 32];
    vec![
        ("ResNet-18", resnet(images, [2, 2, 2, 2], false, 10).unwrap(), extents.clone()),
        ("ResNet-50", resnet(images, [3, 4, 6, 3], true, 10).unwrap(), extents.clone()),
        ("VGG-16", vgg16(images, 10).unwrap(), extents.clone()),
        ("MobileNetV2", mobilenet_v2(images, 10).unwrap(), extents.clone()),
        ("U-Net", unet(images, 2).unwrap(), extents.clone()),
        ("MLP-Mixer", mixer(images, 8, 4, 10).unwrap(), extents),
        ("encoder of 12 layers", encoder(of).unwrap(), vec![2, 12, 16]),
    ]
}

/// The largest difference, over the largest element.
fn off(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    let largest = y.iter().fold(0.0f64, |largest, y| largest.max(y.abs()));
    assert!(largest > 0.0);
    x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max) / largest
}

#[test]
fn networks_are_what_f64_says() {
    let exact = networks(F64);
    for (format, limit) in [(F32, 5e-6), (F16, 3e-2), (BF16, 0.12)] {
        for ((name, network, extents), (_, exact, _)) in networks(format).iter().zip(&exact) {
            let numbers = noise(extents.iter().product(), 77);
            let input = |format| [("x", Tensor::of_numbers(format, extents, &numbers).unwrap())];
            let expected = exact.run(&input(F64)).unwrap();
            let found = network.fuse().unwrap().run(&input(format)).unwrap();
            let off = off(&found[0].1.numbers(), &expected[0].1.numbers());
            println!("{name} in {format}: off by {off:.1e}");
            assert!(off < limit, "{name} in {format}: off by {off:.1e} of the largest");
        }
    }
}
