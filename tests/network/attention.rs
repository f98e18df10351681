//! Attention: two products with a softmax between them become one kernel, where kernels take such heads.

use crate::fused::agrees;
use crate::graphs::{encoder, padded_encoder, tensor};
use postlude::Operation;
use postlude::network::{Attributes, Format, Network, NetworkBuilder, Tensor, Value};
use postlude::prelude::*;

/// The attentions among the kernels of a network.
fn attentions(network: &Network) -> usize {
    let fused = network.fuse().unwrap();
    assert_eq!(fused.unserved().count(), 0, "{}", fused.explain());
    fused.kernels().filter(|kernel| matches!(kernel.gemm.operation(), Operation::Attention { .. })).count()
}

/// Heads of queries, keys and values as they come, `[batch, heads, length, width]`.
fn heads(format: DType, shape: [usize; 4], keys: usize, scaled: bool) -> Network {
    let [batch, heads, queries, width] = shape;
    Network::build(|g| {
        let q = g.input("q", format, (batch, heads, queries, width));
        let k = g.input("k", format, (batch, heads, keys, width));
        let v = g.input("v", format, (batch, heads, keys, width));
        let scores = q.matmul(k.transpose(&[0, 1, 3, 2]));
        let scores = if scaled { scores / g.number(format, 4.0) } else { scores };
        g.output("y", scores.softmax(-1).matmul(v).tanh());
    })
    .unwrap()
}

fn inputs(format: DType, [batch, heads, queries, width]: [usize; 4], keys: usize) -> [(&'static str, Tensor); 3] {
    let of = |length: usize, seed| tensor(format, &[batch, heads, length, width], seed);
    [("q", of(queries, 1)), ("k", of(keys, 2)), ("v", of(keys, 3))]
}

#[test]
fn heads_as_they_come() {
    for (format, shape, keys, scaled) in
        [(F16, [2, 3, 5, 16], 7, true), (BF16, [1, 2, 9, 8], 9, true), (F16, [2, 1, 6, 24], 4, false)]
    {
        let network = heads(format, shape, keys, scaled);
        let fused = network.fuse().unwrap();
        assert_eq!((attentions(&network), fused.kernels().count()), (1, 1), "{}", fused.explain());
        assert!(fused.explain().contains("1 attentions take the place"), "{}", fused.explain());
        agrees(&network, &inputs(format, shape, keys), if format == F16 { 4e-3 } else { 3e-2 });
    }
}

#[test]
fn what_no_kernel_takes_stays_two_products() {
    // A format, a width between two multiples of 16 bytes, and a head that is too wide.
    for (format, width) in [(F32, 16), (F16, 12), (F16, 136)] {
        let network = heads(format, [1, 2, 5, width], 6, true);
        assert_eq!(attentions(&network), 0);
        agrees(&network, &inputs(format, [1, 2, 5, width], 6), 4e-3);
    }
}

#[test]
fn scores_that_somebody_reads_stay() {
    let network = Network::build(|g| {
        let (q, k, v) = (g.input("q", F16, (2, 5, 16)), g.input("k", F16, (2, 16, 6)), g.input("v", F16, (2, 6, 8)));
        let weights = q.matmul(k).softmax(-1);
        g.output("weights", weights);
        g.output("y", weights.matmul(v));
    })
    .unwrap();
    assert_eq!(attentions(&network), 0);
    let inputs = [("q", tensor(F16, &[2, 5, 16], 1)), ("k", tensor(F16, &[2, 16, 6], 2)), ("v", tensor(F16, &[2, 6, 8], 3))];
    agrees(&network, &inputs, 4e-3);
}

/// Heads beside each other in the rows of a projection, and several sequences: no copy of them is made.
#[test]
fn encoder_layers() {
    for batch in [1, 3] {
        let network = encoder(F16, batch, 6, 2, 16);
        let fused = network.fuse().unwrap();
        assert_eq!(attentions(&network), 1, "{}", fused.explain());
        let copies = fused.kernels().filter(|kernel| matches!(kernel.gemm.operation(), Operation::Pointwise { .. })).count();
        assert_eq!((copies, fused.kernels().count()), (2, 7), "two norms, and no copy\n{}", fused.explain());
    }
}

/// The scores of heads with something between the products, `[batch, heads, queries, keys]`.
type Between = for<'g> fn(&'g NetworkBuilder, Value<'g>) -> Value<'g>;

const SHAPE: [usize; 4] = [2, 3, 5, 16];
const KEYS: usize = 7;

fn between(between: Between) -> Network {
    let [batch, heads, queries, width] = SHAPE;
    Network::build(|g| {
        let q = g.input("q", F16, (batch, heads, queries, width));
        let k = g.input("k", F16, (batch, heads, KEYS, width));
        let v = g.input("v", F16, (batch, heads, KEYS, width));
        let scores = between(g, q.matmul(k.transpose(&[0, 1, 3, 2])) / g.number(F16, 4.0));
        g.output("y", scores.softmax(-1).matmul(v));
    })
    .unwrap()
}

fn to(format: &str) -> Attributes {
    Attributes::new().with("to", format)
}

/// Ones, but for some of a few keys at the end.
fn seen(format: DType, shape: &[usize]) -> Tensor {
    let numbers: Vec<f64> = (0..shape.iter().product()).map(|i| f64::from(u8::from(i % 7 < 3 + i / 7 % 4))).collect();
    Tensor::of_numbers(format, shape, &numbers).unwrap()
}

/// What is fused is one kernel of attention, and the fused network computes the same.
fn fused(network: &Network, further: &[(&'static str, Tensor)]) {
    let fused = network.fuse().unwrap();
    assert_eq!((attentions(network), fused.kernels().count()), (1, 1), "{}", fused.explain());
    assert!(fused.explain().contains("with a function of scores"), "{}", fused.explain());
    let inputs: Vec<(&'static str, Tensor)> = inputs(F16, SHAPE, KEYS).into_iter().chain(further.iter().cloned()).collect();
    agrees(network, &inputs, 1e-2);
}

#[test]
fn masks_biases_and_caps_are_functions_of_scores() {
    let [batch, heads, queries, _] = SHAPE;
    // (1 - mask) * -10000, as BERT's exports have it.
    let padded = between(|g, scores| {
        let mask = g.input("mask", F16, (SHAPE[0], 1, 1, KEYS));
        scores + (g.number(F16, 1.0) - mask) * g.number(F16, -10000.0)
    });
    fused(&padded, &[("mask", seen(F16, &[batch, 1, 1, KEYS]))]);
    let chosen = between(|g, scores| {
        let mask = g.input("mask", Bool, (SHAPE[0], 1, SHAPE[2], KEYS));
        mask.apply("Where", &[scores, g.number(F16, -1e4)], Attributes::new())
    });
    fused(&chosen, &[("mask", seen(Bool, &[batch, 1, queries, KEYS]))]);
    let biased = between(|g, scores| scores + g.input("bias", F16, (SHAPE[1], SHAPE[2], KEYS)));
    fused(&biased, &[("bias", tensor(F16, &[heads, queries, KEYS], 8))]);
    let of_all =
        between(|g, scores| scores + g.input("bias", BF16, (SHAPE[0], SHAPE[1], SHAPE[2], KEYS)).apply("Cast", &[], to("f16")));
    fused(&of_all, &[("bias", tensor(BF16, &[batch, heads, queries, KEYS], 8))]);
    let capped = between(|g, scores| (scores / g.number(F16, 2.0)).tanh() * g.number(F16, 2.0));
    fused(&capped, &[]);
    let several = between(|g, scores| {
        let slopes = g.input("slopes", F16, (SHAPE[1], 1, 1)) * g.input("distances", F16, (SHAPE[2], KEYS));
        (scores + slopes).tanh() * scores
    });
    let further = [("slopes", tensor(F16, &[heads, 1, 1], 4)), ("distances", tensor(F16, &[queries, KEYS], 5))];
    fused(&several, &further);
    // Every other key of a wider bias: its elements do not lie side by side.
    let strided = between(|g, scores| {
        let range = [0, i64::MAX, 3, 2].map(|at| g.indices(&[at]));
        scores + g.input("bias", F16, (SHAPE[0], 1, SHAPE[2], 2 * KEYS)).apply("Slice", &range, Attributes::new())
    });
    fused(&strided, &[("bias", tensor(F16, &[batch, 1, queries, 2 * KEYS], 9))]);
}

/// Casts to f32 around the softmax, as exports of 16-bit models have them.
#[test]
fn a_softmax_in_more_bits() {
    let [batch, heads, queries, width] = SHAPE;
    let network = Network::build(|g| {
        let q = g.input("q", F16, (batch, heads, queries, width));
        let k = g.input("k", F16, (batch, heads, KEYS, width));
        let v = g.input("v", F16, (batch, heads, KEYS, width));
        let scores = (q.matmul(k.transpose(&[0, 1, 3, 2])) * g.number(F16, 0.25)).apply("Cast", &[], to("f32"));
        g.output("y", scores.softmax(-1).apply("Cast", &[], to("f16")).matmul(v));
    });
    let network = network.unwrap();
    let explained = network.fuse().unwrap().explain();
    assert!(attentions(&network) == 1 && !explained.contains("function of scores"), "{explained}");
    agrees(&network, &inputs(F16, SHAPE, KEYS), 1e-2);
}

/// An encoder whose sequences are padded: heads beside each other, and a mask for each sequence.
#[test]
fn padded_encoder_layers() {
    for batch in [1, 3] {
        let network = padded_encoder(F16, batch, 6, 2, 16);
        let fused = network.fuse().unwrap();
        assert_eq!(attentions(&network), 1, "{}", fused.explain());
        assert_eq!(fused.kernels().count(), 7, "no kernel for the mask\n{}", fused.explain());
        let mask: Vec<f64> = (0..batch * 6).map(|i| f64::from(u8::from(i % 6 < 3 + i / 6))).collect();
        let mask = Tensor::of_numbers(F16, &[batch, 1, 1, 6], &mask).unwrap();
        agrees(&network, &[("x", tensor(F16, &[batch, 6, 32], 1)), ("mask", mask)], 2e-2);
    }
}

#[test]
fn what_stands_between_and_is_no_function_is_named() {
    let explained = |network: &Network| {
        assert_eq!(attentions(network), 0);
        network.fuse().unwrap().explain()
    };
    let read = between(|g, scores| {
        g.output("scores", scores);
        scores + g.number(F16, 1.0)
    });
    assert!(explained(&read).contains("something else reads the scores"), "{}", explained(&read));
    let reduced = between(|_, scores| scores - scores.apply("ReduceMax", &[], Attributes::new()));
    let why = explained(&reduced);
    assert!(why.contains("something else reads the scores"), "{why}");
    let wide = heads(F16, [1, 2, 5, 136], 6, true);
    assert!(explained(&wide).contains("heads of up to 128 elements"), "{}", explained(&wide));
}

/// The operator by itself: every head has a softmax of its own scores.
#[test]
fn the_operator_is_two_products_and_a_softmax() {
    let ([batch, heads, queries, width], keys) = ([2, 3, 5, 4], 7);
    let of = |length: usize, seed| tensor(F32, &[batch, heads, length, width], seed);
    let inputs = [("q", of(queries, 1)), ("k", of(keys, 2)), ("v", of(keys, 3))];
    let by_operator = Network::build(|g| {
        let q = g.input("q", F32, ("b", heads, "queries", width));
        let [k, v] = ["k", "v"].map(|name| g.input(name, F32, ("b", heads, "keys", width)));
        g.output("y", g.apply("ScaledDotProductAttention", &[q, k, v], Attributes::new().with("scale", 0.5)));
    });
    let found = by_operator.unwrap().run(&inputs).unwrap();
    let plain = Network::build(|g| {
        let [q, k, v] = [("q", queries), ("k", keys), ("v", keys)].map(|(name, n)| g.input(name, F32, (batch, heads, n, width)));
        let scores = q.matmul(k.transpose(&[0, 1, 3, 2])) * g.number(F32, 0.5);
        g.output("y", scores.softmax(-1).matmul(v));
    });
    let expected = plain.unwrap().run(&inputs).unwrap();
    let (found, expected) = (&found[0].1, &expected[0].1);
    assert_eq!(found.shape(), expected.shape());
    assert!(found.numbers().iter().zip(expected.numbers()).all(|(x, y)| (x - y).abs() < 1e-5), "{found:?}, not {expected:?}");
}

/// Queries, keys and values as they come, and a node of the operator.
fn operator(shapes: [&[usize]; 3], formats: [DType; 3]) -> Result<Network, String> {
    let network = Network::build(|g| {
        let [q, k, v] = [0, 1, 2].map(|i| g.input(["q", "k", "v"][i], formats[i], shapes[i]));
        g.output("y", g.apply("ScaledDotProductAttention", &[q, k, v], Attributes::new()));
    });
    network.map_err(|error| error.to_string())
}

#[test]
fn the_operator_takes_heads_that_fit_each_other() {
    for (q, k, v, y) in [
        (&[4, 8][..], &[5, 8][..], &[5, 3][..], &[4, 3][..]),
        (&[2, 4, 8], &[2, 5, 8], &[2, 5, 3], &[2, 4, 3]),
        (&[2, 3, 4, 8], &[2, 3, 5, 8], &[2, 3, 5, 6], &[2, 3, 4, 6]),
    ] {
        for format in [F16, BF16, F32] {
            let network = operator([q, k, v], [format; 3]).unwrap();
            let (_, of) = network.outputs().next().unwrap();
            assert_eq!((of.format, of.shape()), (format.into(), Some(y.to_vec())));
        }
    }
    for (q, k, v) in [
        (&[8][..], &[8][..], &[8][..]),
        (&[4, 8], &[1, 5, 8], &[5, 3]),
        (&[4, 8], &[5, 8], &[1, 5, 3]),
        (&[2, 4, 8], &[3, 5, 8], &[2, 5, 3]),
        (&[2, 4, 8], &[2, 5, 8], &[3, 5, 3]),
        (&[2, 3, 4, 8], &[2, 1, 5, 8], &[2, 3, 5, 3]),
        (&[2, 3, 4, 8], &[2, 3, 5, 8], &[2, 1, 5, 3]),
        (&[4, 8], &[5, 7], &[5, 3]),
        (&[4, 8], &[5, 8], &[6, 3]),
    ] {
        let error = operator([q, k, v], [F16; 3]).unwrap_err();
        assert!(error.contains("takes [.., M, D], [.., K, D] and [.., K, N]"), "{error}");
    }
    for formats in [[F16, F32, F16], [F16, F16, BF16], [F64; 3], [I32; 3]] {
        let error = operator([&[4, 8], &[5, 8], &[5, 3]], formats).unwrap_err();
        assert!(error.contains("takes f16, bf16 or f32, one format for all"), "{error}");
    }
}

/// Extents that no type says are compared when the network runs.
#[test]
fn heads_of_unknown_extents_have_to_fit_when_they_come() {
    let network = Network::build(|g| {
        let [q, k, v] = ["q", "k", "v"].map(|name| {
            let shape = g.input(&format!("shape_{name}"), Format::I64, (format!("axes_{name}").as_str(),));
            g.apply("Reshape", &[g.input(name, F32, (format!("elements_{name}").as_str(),)), shape], Attributes::new())
        });
        g.output("y", g.apply("ScaledDotProductAttention", &[q, k, v], Attributes::new()));
    });
    let network = network.unwrap();
    let run = |shapes: [&[usize]; 3]| {
        let names = [["q", "shape_q"], ["k", "shape_k"], ["v", "shape_v"]];
        let inputs = names.iter().zip(shapes).enumerate().flat_map(|(seed, (&[name, of], shape))| {
            let extents: Vec<i64> = shape.iter().map(|extent| *extent as i64).collect();
            [(name, tensor(F32, &[shape.iter().product()], seed as u64 + 1)), (of, Tensor::indices(&extents))]
        });
        network.run(&inputs.collect::<Vec<_>>()).map(|outputs| outputs[0].1.shape().to_vec())
    };
    assert_eq!(run([&[4, 8], &[5, 8], &[5, 3]]).unwrap(), [4, 3]);
    assert_eq!(run([&[2, 4, 8], &[2, 5, 8], &[2, 5, 3]]).unwrap(), [2, 4, 3]);
    for shapes in [
        [&[8][..], &[8], &[8]],
        [&[4, 8], &[1, 5, 8], &[5, 3]],
        [&[4, 8], &[5, 8], &[1, 5, 3]],
        [&[2, 4, 8], &[3, 5, 8], &[2, 5, 3]],
        [&[2, 4, 8], &[2, 5, 8], &[3, 5, 3]],
        [&[4, 8], &[5, 7], &[5, 3]],
        [&[4, 8], &[5, 8], &[6, 3]],
    ] {
        let error = run(shapes).unwrap_err().to_string();
        assert!(error.contains("takes [.., M, D], [.., K, D] and [.., K, N]"), "{shapes:?}: {error}");
    }
}

/// Kernels have keys and values of each head.
#[test]
fn heads_with_the_keys_of_others_stay_two_products() {
    for (heads, keys, values, taken) in [
        (&[2, 3][..], &[2, 3][..], &[2, 3][..], 1),
        (&[2, 3], &[2, 1], &[2, 3], 0),
        (&[2, 3], &[2, 3], &[2, 1], 0),
        (&[1, 2, 3], &[1, 2, 3], &[1, 2, 3], 1),
        (&[1, 2, 3], &[1, 2, 1], &[1, 2, 3], 0),
        (&[1, 2, 3], &[1, 2, 3], &[1, 2, 1], 0),
    ] {
        let [q, k, v] = [(heads, 5), (keys, 7), (values, 7)].map(|(leading, length)| [leading, &[length, 16]].concat());
        let network = Network::build(|g| {
            let turned: Vec<i64> = (0..k.len() as i64 - 2).chain([k.len() as i64 - 1, k.len() as i64 - 2]).collect();
            let scores = g.input("q", F16, q.as_slice()).matmul(g.input("k", F16, k.as_slice()).transpose(&turned));
            g.output("y", (scores * g.number(F16, 0.25)).softmax(-1).matmul(g.input("v", F16, v.as_slice())));
        })
        .unwrap();
        let fused = network.fuse().unwrap();
        let attentions = fused.kernels().filter(|kernel| matches!(kernel.gemm.operation(), Operation::Attention { .. }));
        assert_eq!(attentions.count(), taken, "{heads:?} {keys:?} {values:?}\n{}", fused.explain());
        agrees(&network, &[("q", tensor(F16, &q, 1)), ("k", tensor(F16, &k, 2)), ("v", tensor(F16, &v, 3))], 1e-2);
    }
}
