//! Networks of images: how many kernels, and that they compute what the nodes do.

use crate::fused::agrees;
use crate::graphs::tensor;
use crate::networks::{Images, mobilenet_v2, resnet, unet, vgg16};
use postlude::network::{Attributes, Format, Network, Tensor};
use postlude::prelude::*;

const SMALL: Images = Images { format: F32, batch: 2, size: 32, narrow: 16, channels_last: false };

fn kernels(network: &Network) -> usize {
    let fused = network.fuse().unwrap();
    assert_eq!(fused.unserved().count(), 0, "{}", fused.explain());
    fused.kernels().count()
}

/// Kernels of which the only node is pointwise.
fn lonely(network: &Network) -> usize {
    let fused = network.fuse().unwrap();
    let graph = fused.network().graph();
    fused.kernels().filter(|kernel| kernel.nodes.iter().all(|id| graph.node(*id).kind().word() == "pointwise")).count()
}

#[test]
fn a_convolution_takes_bias_norm_residual_and_activation() {
    let network = Network::build(|g| {
        let (x, residual) = (g.input("x", F32, (2, 3, 5, 6)), g.input("residual", F32, (2, 4, 2, 6)));
        let (w, b) = (g.constant("w", tensor(F32, &[4, 3, 3, 2], 2)), g.constant("b", tensor(F32, &[4], 3)));
        let place = Attributes::new().with("pads", vec![1, 0, 0, 1]).with("strides", vec![2, 1]);
        let z = g.apply("Conv", &[x, w, b], place);
        let scale = g.input("scale", F32, (4, 1, 1));
        g.output("y", (z * scale + residual).relu());
    })
    .unwrap();
    let fused = network.fuse().unwrap();
    println!("{}", fused.explain());
    // The images come as planes and leave as planes: a copy before, and one behind.
    assert_eq!((fused.kernels().count(), fused.unserved().count()), (3, 0), "{}", fused.explain());
    let inputs = [
        ("x", tensor(F32, &[2, 3, 5, 6], 1)),
        ("residual", tensor(F32, &[2, 4, 2, 6], 4)),
        ("scale", tensor(F32, &[4, 1, 1], 5)),
    ];
    agrees(&network, &inputs, 1e-6);
}

#[test]
fn lines_and_groups_and_filters_of_the_caller() {
    let network = Network::build(|g| {
        let (x, w) = (g.input("x", F32, (2, 6, 9)), g.input("w", F32, (4, 3, 3)));
        let y = g.apply("Conv", &[x, w], Attributes::new().with("group", 2).with("dilations", vec![2]));
        let v = g.constant("v", tensor(F32, &[4, 1, 2], 7));
        g.output("y", g.apply("Conv", &[y.relu(), v], Attributes::new().with("group", 4)));
    })
    .unwrap();
    assert_eq!(kernels(&network), 5); // copies of x and w, two convolutions, a copy of the result
    agrees(&network, &[("x", tensor(F32, &[2, 6, 9], 1)), ("w", tensor(F32, &[4, 3, 3], 2))], 1e-6);
}

#[test]
fn pools_of_every_kind() {
    for (operator, attributes) in [
        (
            "MaxPool",
            Attributes::new().with("kernel_shape", vec![3, 2]).with("strides", vec![2, 1]).with("pads", vec![1, 0, 1, 1]),
        ),
        ("MaxPool", Attributes::new().with("kernel_shape", vec![2, 2]).with("strides", vec![2, 2]).with("ceil_mode", 1)),
        ("AveragePool", Attributes::new().with("kernel_shape", vec![3, 3]).with("pads", vec![1, 1, 1, 1])),
        (
            "AveragePool",
            Attributes::new().with("kernel_shape", vec![3, 3]).with("pads", vec![1, 1, 1, 1]).with("count_include_pad", 1),
        ),
        ("AveragePool", Attributes::new().with("kernel_shape", vec![2, 2]).with("strides", vec![2, 2]).with("ceil_mode", 1)),
        ("GlobalAveragePool", Attributes::new()),
        ("GlobalMaxPool", Attributes::new()),
    ] {
        let network = Network::build(|g| {
            let x = g.input("x", F32, (2, 5, 7, 3)).transpose(&[0, 3, 1, 2]);
            let y = g.apply(operator, &[x], attributes.clone());
            g.output("y", (y + g.constant("b", tensor(F32, &[3, 1, 1], 3))).relu().transpose(&[0, 2, 3, 1]));
        })
        .unwrap();
        let fused = network.fuse().unwrap();
        assert_eq!((fused.kernels().count(), fused.unserved().count()), (1, 0), "{operator}\n{}", fused.explain());
        agrees(&network, &[("x", tensor(F32, &[2, 5, 7, 3], 1))], 1e-6);
    }
}

#[test]
fn a_mean_over_pixels_is_a_pool() {
    for keep in [0, 1] {
        let network = Network::build(|g| {
            let x = g.input("x", F32, (2, 5, 7, 3)).transpose(&[0, 3, 1, 2]);
            let means = g.apply("ReduceMean", &[x, g.indices(&[2, 3])], Attributes::new().with("keepdims", keep));
            g.output("y", means.sigmoid());
        })
        .unwrap();
        assert_eq!(kernels(&network), 1);
        agrees(&network, &[("x", tensor(F32, &[2, 5, 7, 3], 1))], 1e-6);
    }
}

#[test]
fn resnets() {
    let inputs = [("x", tensor(F32, &[2, 3, 32, 32], 1))];
    let small = resnet(SMALL, [2, 2, 2, 2], false, 10).unwrap();
    // A copy of the images, 20 convolutions, two pools and the classes.
    assert_eq!((kernels(&small), lonely(&small)), (24, 0));
    agrees(&small, &inputs, 1e-4);
    let large = resnet(SMALL, [3, 4, 6, 3], true, 10).unwrap();
    println!("{}", large.fuse().unwrap().explain());
    assert_eq!((kernels(&large), lonely(&large)), (57, 0));
    agrees(&large, &inputs, 1e-4);
    let memory = large.fuse().unwrap().memory().clone();
    assert!(memory.peak as f64 <= 1.1 * memory.bound as f64, "{memory:?}");
    let last = resnet(Images { channels_last: true, ..SMALL }, [3, 4, 6, 3], true, 10).unwrap();
    assert_eq!((kernels(&last), lonely(&last)), (56, 0));
}

#[test]
fn vgg() {
    let network = vgg16(SMALL, 10).unwrap();
    // A copy of the images, 13 convolutions, 5 pools, and the linear layers: a pixel is left, so flattening needs no copy.
    assert_eq!((kernels(&network), lonely(&network)), (22, 0));
    agrees(&network, &[("x", tensor(F32, &[2, 3, 32, 32], 1))], 1e-4);
    // With more pixels it needs one.
    let network = vgg16(Images { size: 64, batch: 1, ..SMALL }, 10).unwrap();
    assert_eq!(kernels(&network), 23);
    agrees(&network, &[("x", tensor(F32, &[1, 3, 64, 64], 1))], 1e-4);
}

#[test]
fn mobilenet() {
    let network = mobilenet_v2(SMALL, 10).unwrap();
    // A copy, 52 convolutions, a pool and the classes.
    assert_eq!((kernels(&network), lonely(&network)), (55, 0));
    agrees(&network, &[("x", tensor(F32, &[2, 3, 32, 32], 1))], 1e-4);
}

#[test]
fn a_unet_concatenates_in_place() {
    let network = unet(SMALL, 3).unwrap();
    println!("{}", network.fuse().unwrap().explain());
    // A copy of the images, 18 convolutions in pairs and 3 between them, 3 pools, 3 kernels that spread pixels, and a copy of
    // the result. Concatenations have none.
    assert_eq!((kernels(&network), lonely(&network)), (1 + 14 + 3 + 1 + 3 + 3 + 1, 0));
    agrees(&network, &[("x", tensor(F32, &[2, 3, 32, 32], 1))], 1e-4);
}

#[test]
fn parts_of_a_concatenation_lie_in_place_or_are_copied() {
    let network = Network::build(|g| {
        let (x, y) = (g.input("x", F32, (2, 3, 4)), g.input("y", F32, (2, 5, 4)));
        let w = g.constant("w", tensor(F32, &[4, 4], 1));
        let product = x.matmul(w);
        let beside = |parts: &[postlude::network::Value<'_>], axis: i64| -> Attributes {
            assert!(parts.len() > 1);
            Attributes::new().with("axis", axis)
        };
        // Between batches a product cannot write, an input has to be copied, and one part is there twice.
        let rows = [product, y, product];
        g.output("rows", g.apply("Concat", &rows, beside(&rows, 1)).relu());
        // Both parts are results of one kernel.
        let both = [product.relu(), product.sigmoid()];
        g.output("both", g.apply("Concat", &both, beside(&both, -1)));
        let deep = g.apply("Concat", &[y.relu(), g.apply("Concat", &[y.tanh(), y.exp()], beside(&both, 0))], beside(&both, 0));
        g.output("deep", deep);
        // A part that another part is computed from.
        let first = y * y;
        g.output("grown", g.apply("Concat", &[first, first.softmax(-1)], beside(&both, 2)));
    })
    .unwrap();
    let fused = network.fuse().unwrap();
    assert_eq!(fused.unserved().count(), 0, "{}", fused.explain());
    agrees(&network, &[("x", tensor(F32, &[2, 3, 4], 1)), ("y", tensor(F32, &[2, 5, 4], 2))], 1e-6);
}

#[test]
fn blocks_borders_and_indices() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2, 4, 6, 3));
        let last = x.transpose(&[0, 3, 1, 2]);
        for (name, of) in
            [("planes", x), ("last", g.apply("Conv", &[last, g.constant("v", tensor(F32, &[8, 3, 1, 1], 3))], Attributes::new()))]
        {
            let block = |operator: &str, mode: &str| {
                let attributes = Attributes::new().with("blocksize", 2);
                let attributes = if operator == "DepthToSpace" { attributes.with("mode", mode) } else { attributes };
                g.output(&format!("{name} {operator} {mode}"), g.apply(operator, &[of], attributes));
            };
            block("DepthToSpace", "DCR");
            block("DepthToSpace", "CRD");
            if name == "last" {
                block("SpaceToDepth", "");
            }
            let border = g.apply("Pad", &[of, g.indices(&[0, 1, 2, 0, 0, -1, 1, 3])], Attributes::new());
            g.output(&format!("{name} border"), border + g.number(F32, 1.0));
        }
        let seven = g.apply("Pad", &[x, g.indices(&[1, 2]), g.number(F32, 7.0), g.indices(&[-1])], Attributes::new());
        g.output("seven", seven);
        let table = g.constant("table", tensor(F32, &[7, 5], 4));
        let (ids, more) = (g.input("ids", Format::I64, (2, 3)), g.input("more", I32, [3]));
        g.output("words", (g.apply("Gather", &[table, ids], Attributes::new()) + g.input("places", F32, (3, 5))).softmax(-1));
        g.output("more_words", g.apply("Gather", &[table, more], Attributes::new()));
    })
    .unwrap();
    let fused = network.fuse().unwrap();
    assert_eq!(fused.unserved().count(), 0, "{}", fused.explain());
    let inputs = [
        ("x", tensor(F32, &[2, 4, 6, 3], 1)),
        ("ids", Tensor::of_integers(Format::I64, &[2, 3], &[0, 6, -1, 3, 3, -7]).unwrap()),
        ("more", Tensor::of(&[2i32, -2, 6], &[3]).unwrap()),
        ("places", tensor(F32, &[3, 5], 2)),
    ];
    agrees(&network, &inputs, 1e-6);
}

/// The squares of a channel and of its neighbours, as far as there are any, divide it.
/// Norms of channels, and of groups of them, take in what is before and behind. Planes of a caller are rows of one kernel; behind
/// a convolution, channels lie side by side.
#[test]
fn norms_of_channels() {
    for (name, groups) in [("InstanceNormalization", None), ("GroupNormalization", Some(2)), ("GroupNormalization", Some(6))] {
        let norm =
            || groups.map_or_else(Attributes::new, |groups| Attributes::new().with("num_groups", groups)).with("epsilon", 0.1);
        for shape in [&[2usize, 6, 5, 3][..], &[3, 6, 7], &[2, 6]] {
            let alone = Network::build(|g| {
                let x = g.input("x", F32, shape);
                let (scale, bias) = (g.constant("scale", tensor(F32, &[6], 2)), g.constant("bias", tensor(F32, &[6], 3)));
                let y = g.apply(name, &[(x * x).sigmoid(), scale, bias], norm());
                g.output("y", y.relu() + x);
            });
            let alone = alone.unwrap();
            assert_eq!(kernels(&alone), 1, "{}", alone.fuse().unwrap().explain());
            agrees(&alone, &[("x", tensor(F32, shape, 1))], 2e-5);
        }
        let behind = Network::build(|g| {
            let x = g.input("x", F32, (2, 3, 6, 5));
            let w = g.constant("w", tensor(F32, &[6, 3, 3, 3], 4));
            let (scale, bias) = (g.input("scale", F32, (6,)), g.input("bias", F32, (6,)));
            let z = g.apply("Conv", &[x, w], Attributes::new().with("pads", vec![1, 1, 1, 1]));
            g.output("y", g.apply(name, &[z, scale, bias], norm()).sigmoid());
        });
        let behind = behind.unwrap();
        assert_eq!(kernels(&behind), 4, "copies before and behind: {}", behind.fuse().unwrap().explain());
        let inputs = [("x", tensor(F32, &[2, 3, 6, 5], 1)), ("scale", tensor(F32, &[6], 2)), ("bias", tensor(F32, &[6], 3))];
        agrees(&behind, &inputs, 2e-5);
        // A kernel has a tile for each channel, or each group of them.
        for kernel in behind.fuse().unwrap().kernels() {
            let plan = kernel.gemm.kernel_plan(postlude::target::Target::SM_90A, 132, kernel.shape);
            assert!(plan.is_ok(), "{}", plan.unwrap_err());
        }
    }
}

#[test]
fn a_local_response_is_over_the_squares_of_neighbours() {
    let network = Network::build(|g| {
        let attributes = Attributes::new().with("size", 3).with("alpha", 3.0f32).with("beta", 1.0f32);
        g.output("y", g.apply("LRN", &[g.input("x", F32, (1, 3, 1, 1))], attributes));
    })
    .unwrap();
    let x = Tensor::of(&[2.0f32, 4.0, 6.0], &[1, 3, 1, 1]).unwrap();
    let y = network.run(&[("x", x)]).unwrap()[0].1.numbers();
    for (found, expected) in y.iter().zip([2.0 / 21.0, 4.0 / 57.0, 6.0 / 53.0]) {
        assert!((found - expected).abs() < 1e-6, "{y:?}");
    }
}

/// A mean that counts the padding has windows within it. A kernel takes no window that reaches further.
#[test]
fn means_that_count_the_padding_stay_within_it() {
    for (size, dilation, ceil, served) in
        [(4, 1, 0, true), (5, 1, 1, true), (6, 1, 1, false), (4, 1, 1, false), (5, 2, 1, true), (6, 2, 0, true), (6, 2, 1, false)]
    {
        let network = Network::build(|g| {
            let of = Attributes::new().with("kernel_shape", vec![3, 3]).with("strides", vec![2, 2]);
            let of = of.with("dilations", vec![dilation, dilation]);
            let of = of.with("pads", vec![1, 1, 1, 1]).with("count_include_pad", 1).with("ceil_mode", ceil);
            g.output("y", g.input("x", F32, (1, 8, size, size)).apply("AveragePool", &[], of));
        })
        .unwrap();
        let fused = network.fuse().unwrap();
        let unserved: Vec<String> = fused.unserved().map(|(_, why)| why.to_string()).collect();
        assert_eq!(unserved.is_empty(), served, "{size}, {dilation}: {unserved:?}");
        assert!(unserved.iter().all(|why| why.contains("behind the padding")), "{unserved:?}");
        agrees(&network, &[("x", tensor(F32, &[1, 8, size, size], 1))], 1e-5);
    }
}
