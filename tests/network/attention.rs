//! Attention: two products with a softmax between them become one kernel, where kernels take such heads.

use crate::fused::agrees;
use crate::graphs::{encoder, tensor};
use postlude::Operation;
use postlude::network::{Network, Tensor};
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
