//! Products of quantised numbers: how many kernels, and that they compute what the nodes do.

use crate::graphs::{numbers, tensor};
use postlude::network::{Attributes, Format, Network, NetworkBuilder, Tensor, Value};
use postlude::prelude::*;

/// Numbers that look random, the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Numbers over the range of a format of eight bits.
fn eight_bits(format: DType, shape: &[usize], seed: u64) -> Tensor {
    let of = |x: &f64| match format {
        U8 => 127.5 + 127.5 * x,
        I8 => 127.0 * x,
        _ => 4.0 * x,
    };
    Tensor::of_numbers(format, shape, &numbers(shape.iter().product(), seed).iter().map(of).collect::<Vec<_>>()).unwrap()
}

/// Scales near a hundredth. Those that are powers of two make every product and sum exact.
fn scales(count: usize, seed: u64, exact: bool) -> Vec<f64> {
    numbers(count, seed).iter().map(|x| if exact { (-(6.5 + x).round()).exp2() } else { 0.01 + 0.009 * x }).collect()
}

fn number<'g>(g: &'g NetworkBuilder, format: DType, x: f64) -> Value<'g> {
    g.constant("number", Tensor::scalar(format, x))
}

fn along(axis: i64) -> Attributes {
    Attributes::new().with("axis", axis)
}

/// The kernels and the nodes of a network, which agree: numbers of eight bits to one step, others to rounding. With `exact`
/// to the bit.
fn agrees(network: &Network, inputs: &[(&str, Tensor)], exact: bool, what: &str) {
    let fused = network.fuse().unwrap();
    assert_eq!(fused.unserved().count(), 0, "{what}\n{}", fused.explain());
    let (nodes, kernels) = (network.run(inputs).unwrap(), fused.run(inputs).unwrap());
    for ((name, x), (_, y)) in nodes.iter().zip(&kernels) {
        assert_eq!((x.format(), x.shape()), (y.format(), y.shape()), "{what}, {name}");
        let (x, y) = (x, y.numbers());
        for (x, y, format) in x.numbers().into_iter().zip(y).map(|(a, b)| (a, b, x.format())) {
            // A step of e4m3 is up to an eighth of the number.
            let step = match format {
                Format::I8 | Format::U8 => 1.0,
                Format::E4M3 => 2f64.powi(-9).max(x.abs() / 8.0),
                Format::F16 => 1e-3 * (1.0 + x.abs()),
                _ => 1e-5 * (1.0 + x.abs()),
            };
            assert!((x - y).abs() <= if exact { 0.0 } else { step }, "{what}, {name}: {x} and {y}\n{}", fused.explain());
        }
    }
}

/// x W + b of quantised numbers, with the activation, quantised.
fn layer<'g>(g: &'g NetworkBuilder, x: Value<'g>, at: usize, [from, to]: [usize; 2], exact: bool) -> Value<'g> {
    let seed = 10 * at as u64;
    let w = g.constant(&format!("w{at}"), eight_bits(I8, &[from, to], seed));
    let scale = Tensor::of_numbers(F32, &[to], &scales(to, seed + 1, exact)).unwrap();
    let w = w.apply("DequantizeLinear", &[g.constant(&format!("s{at}"), scale)], along(1));
    let bias = numbers(to, seed + 2).iter().map(|x| (x * 64.0).round() / 32.0).collect::<Vec<_>>();
    let bias = g.constant(&format!("b{at}"), Tensor::of_numbers(F32, &[to], &bias).unwrap());
    (x.matmul(w) + bias).relu()
}

#[test]
fn three_quantised_layers_are_three_kernels() {
    for exact in [true, false] {
        let scale = if exact { 0.0625 } else { 0.05 };
        let network = Network::build(|g| {
            let mut x = g.input("x", I8, (12, 24)).apply("DequantizeLinear", &[number(g, F32, scale)], Attributes::new());
            for (at, sizes) in [[24, 40], [40, 32], [32, 8]].into_iter().enumerate() {
                x = layer(g, x, at, sizes, exact);
                if at < 2 {
                    let parameters = [number(g, F32, scale), number(g, I8, 0.0)];
                    x = x.apply("QuantizeLinear", &parameters, Attributes::new());
                    x = x.apply("DequantizeLinear", &parameters, Attributes::new());
                }
            }
            g.output("y", x);
        })
        .unwrap();
        let fused = network.fuse().unwrap();
        println!("{}", fused.explain());
        assert_eq!((fused.kernels().count(), fused.unserved().count()), (3, 0), "{}", fused.explain());
        let of_bytes = |kernel: &postlude::network::fuse::Kernel| kernel.gemm.operation().dtypes() == [I8, I8];
        assert!(fused.kernels().all(of_bytes), "{}", fused.explain());
        // Between the layers nothing has more than eight bits.
        assert_eq!(
            fused.memory().sum,
            (12usize * 40).next_multiple_of(256) + (12usize * 32).next_multiple_of(256) + 12 * 8 * 4 + 128
        );
        let (simple, did) = network.simplified();
        assert_eq!((did.quantised, did.unquantised), (3, Vec::new()));
        let inputs = [("x", eight_bits(I8, &[12, 24], 1))];
        if exact {
            agrees(&network, &inputs, true, "powers of two");
        } else {
            // A step of the first layer moves what is behind it, so each layer is held to its own nodes.
            agrees(&simple, &inputs, false, "any scales");
        }
    }
}

/// What a residual adds is read as it lies, in eight bits, and dequantised where it is added.
#[test]
fn residuals_stay_narrow() {
    let network = Network::build(|g| {
        let parameters = [number(g, F32, 0.0625), number(g, I8, 0.0)];
        let x = g.input("x", I8, (12, 16)).apply("DequantizeLinear", &parameters, Attributes::new());
        let y = layer(g, x, 0, [16, 16], true).apply("QuantizeLinear", &parameters, Attributes::new());
        let y = y.apply("DequantizeLinear", &parameters, Attributes::new());
        let z = layer(g, y, 1, [16, 16], true) + y;
        g.output("z", z.apply("QuantizeLinear", &parameters, Attributes::new()));
    })
    .unwrap();
    let fused = network.fuse().unwrap();
    assert_eq!((fused.kernels().count(), fused.unserved().count()), (2, 0), "{}", fused.explain());
    // 12 x 16 bytes twice.
    assert_eq!(fused.memory().sum, 2 * 256, "{}", fused.explain());
    assert!(fused.explain().contains("it has fewer bytes than what"), "{}", fused.explain());
    agrees(&network, &[("x", eight_bits(I8, &[12, 16], 1))], true, "a residual");
}

/// A random product of quantised numbers with a random chain behind it, its input, and both in words.
fn random(dice: &mut Dice, exact: bool) -> (Network, (&'static str, Tensor), String) {
    let kind = ["MatMul", "Gemm", "Conv"][dice.below(3)];
    let float = dice.below(4) == 0;
    let x_format = if float { E4M3 } else { [I8, U8][dice.below(2)] };
    let conv = kind == "Conv";
    let turned = kind == "Gemm" && dice.flip();
    let (m, k, n) = (1 + dice.below(9), 4 * (1 + dice.below(9)), 4 * (1 + dice.below(6)));
    let w_zero = !float && dice.flip();
    let w_format = if float {
        E4M3
    } else if w_zero {
        U8
    } else {
        I8
    };
    let pads = conv && dice.flip() && (float || x_format == I8);
    let (x_shape, w_shape) = match (conv, turned) {
        (true, _) => (vec![2, k, 5, 6], vec![n, k, 1 + 2 * usize::from(pads), 3]),
        (_, true) => (vec![m, k], vec![n, k]),
        _ if kind == "MatMul" && dice.flip() => (vec![2, m, k], vec![k, n]),
        _ => (vec![m, k], vec![k, n]),
    };
    let channel = i64::from(!conv && !turned);
    let x_zero = if float || pads || dice.flip() {
        0.0
    } else if x_format == U8 {
        131.0
    } else {
        -3.0
    };
    let (each, quantises, bias) = (dice.flip(), dice.flip(), dice.flip());
    // Images of bytes without signs come from a node that quantises them.
    let from_reals = conv && x_format == U8;
    let what =
        format!("{kind} of {x_format} {x_shape:?} less {x_zero} by {w_format} {w_shape:?}, {each} {quantises} {bias} {pads}");
    let mut seed = || dice.below(1 << 20) as u64;
    let scale = scales(1, seed(), exact)[0];
    let network = Network::build(|g| {
        let parameters = [number(g, F32, scale), number(g, x_format, x_zero)];
        let mut x = g.input("x", if from_reals { F32 } else { x_format }, x_shape.as_slice());
        if from_reals {
            x = x.apply("QuantizeLinear", &parameters, Attributes::new());
        }
        let x = x.apply("DequantizeLinear", &parameters, Attributes::new());
        let w = g.constant("w", eight_bits(w_format, &w_shape, seed()));
        let count = if each { n } else { 1 };
        let w_scale =
            Tensor::of_numbers(F32, if each { vec![n] } else { Vec::new() }.as_slice(), &scales(count, seed(), exact)).unwrap();
        let mut of_w = vec![g.constant("w_scale", w_scale)];
        if w_zero {
            let zeros = Tensor::of_numbers(U8, if each { vec![n] } else { Vec::new() }.as_slice(), &vec![128.0; count]).unwrap();
            of_w.push(g.constant("w_zero", zeros));
        }
        let w = w.apply("DequantizeLinear", &of_w, along(channel));
        let mut operands = vec![w];
        if bias && kind != "MatMul" {
            let bias: Vec<f64> = numbers(n, seed()).iter().map(|x| (x * 64.0).round() / 32.0).collect();
            operands.push(g.constant("bias", Tensor::of_numbers(F32, &[n], &bias).unwrap()));
        }
        let attributes = match kind {
            "Gemm" => Attributes::new().with("transB", i64::from(turned)).with("alpha", 0.5f32).with("beta", 2.0f32),
            "Conv" if pads => Attributes::new().with("pads", vec![1, 1, 1, 1]).with("strides", vec![1, 2]),
            _ => Attributes::new(),
        };
        let mut y = x.apply(kind, &operands, attributes).relu();
        if quantises {
            let to = if float { E4M3 } else { U8 };
            y = y.apply(
                "QuantizeLinear",
                &[number(g, F32, 0.25), number(g, to, if float { 0.0 } else { 7.0 })],
                Attributes::new(),
            );
        }
        g.output("y", y);
    });
    let x = if from_reals { tensor(F32, &x_shape, seed()) } else { eight_bits(x_format, &x_shape, seed()) };
    (network.unwrap(), ("x", x), what)
}

#[test]
fn random_products_of_quantised_numbers() {
    for seed in 0..200 {
        let exact = seed % 2 == 0;
        let (network, input, what) = random(&mut Dice(seed), exact);
        let (_, did) = network.simplified();
        assert_eq!((did.quantised, &did.unquantised[..]), (1, &[][..]), "{what}");
        // Sums of fp8 products are exact in `f64` alone.
        agrees(&network, &[input], exact && !what.contains("e4m3"), &what);
        // Images come and leave as planes, and some are quantised first.
        let most = if what.starts_with("Conv") { 4 } else { 1 };
        assert!(network.fuse().unwrap().kernels().count() <= most, "{what}\n{}", network.fuse().unwrap().explain());
    }
}

#[test]
fn operators_of_quantised_numbers() {
    let network = Network::build(|g| {
        let (x, images) = (g.input("x", U8, (3, 5, 8)), g.input("images", I8, (2, 4, 5, 5)));
        let (w, filters) =
            (g.constant("w", eight_bits(I8, &[8, 12], 1)), g.constant("filters", eight_bits(I8, &[6, 4, 3, 3], 2)));
        let each = |name: &str, count: usize, seed: u64| {
            g.constant(name, Tensor::of_numbers(F32, &[count], &scales(count, seed, false)).unwrap())
        };
        let (out, zero) = (number(g, F32, 0.9), number(g, U8, 120.0));
        let of_x = [number(g, F32, 0.02), number(g, U8, 119.0)];
        let of_w = [w, each("w_scale", 12, 3), g.constant("w_zero", Tensor::of_numbers(I8, &[12], &[0.0; 12]).unwrap())];
        g.output(
            "product",
            g.apply("QLinearMatMul", &[x, of_x[0], of_x[1], of_w[0], of_w[1], of_w[2], out, zero], Attributes::new()),
        );
        let bias = g.constant("bias", Tensor::of_integers(I32, &[6], &[-900, 1200, 0, 5, -77, 3000]).unwrap());
        let (no, scale) = (number(g, I8, 0.0), number(g, F32, 0.03));
        let operands = [images, scale, no, filters, each("filter_scale", 6, 4), no, out, zero, bias];
        g.output("images", g.apply("QLinearConv", &operands, Attributes::new().with("pads", vec![1, 1, 1, 1])));
        g.output("sums", g.apply("MatMulInteger", &[x, w, of_x[1]], Attributes::new()));
        g.output("image_sums", g.apply("ConvInteger", &[images, filters, number(g, I8, -5.0)], Attributes::new()));
    })
    .unwrap();
    let (_, did) = network.simplified();
    assert_eq!((did.quantised, did.unquantised), (4, Vec::new()));
    let inputs = [("x", eight_bits(U8, &[3, 5, 8], 5)), ("images", eight_bits(I8, &[2, 4, 5, 5], 6))];
    agrees(&network, &inputs, false, "operators");
    // Sums of integers are the same to the bit.
    let (nodes, kernels) = (network.run(&inputs).unwrap(), network.fuse().unwrap().run(&inputs).unwrap());
    assert_eq!(nodes[2..], kernels[2..]);
}

#[test]
fn a_transposition_of_dequantised_weights_and_half_precision() {
    let network = Network::build(|g| {
        let x = g.input("x", I8, (2, 4, 8)).apply("DequantizeLinear", &[number(g, F16, 0.03)], Attributes::new());
        // As quantisation-aware training exports them: weights that are quantised in the network, output after output.
        let parameters = |format: DType| {
            let scale = Tensor::of_numbers(format, &[6], &[0.01, 0.02, 0.03, 0.01, 0.02, 0.03]).unwrap();
            [g.constant("scale", scale), g.constant("zero", Tensor::of_numbers(I8, &[6], &[0.0; 6]).unwrap())]
        };
        let w = g.constant("w", tensor(F16, &[6, 8], 2)).apply("QuantizeLinear", &parameters(F16), along(0));
        let w = w.apply("DequantizeLinear", &parameters(F16), along(0)).transpose(&[1, 0]);
        g.output("y", x.reshape(&[8, 8]).matmul(w).relu());
    })
    .unwrap();
    let fused = network.fuse().unwrap();
    assert_eq!((fused.kernels().count(), fused.unserved().count()), (1, 0), "{}", fused.explain());
    assert_eq!(fused.kernels().next().unwrap().gemm.operation(), postlude::Operation::product(I8, TN));
    agrees(&network, &[("x", eight_bits(I8, &[2, 4, 8], 1))], false, "f16");
}

/// What stays as it is, and why.
#[test]
fn reasons_are_given() {
    let reason = |build: &dyn Fn(&NetworkBuilder)| {
        let network = Network::build(build).unwrap();
        let (_, did) = network.simplified();
        assert_eq!((did.quantised, did.unquantised.len()), (0, 1));
        let why = did.unquantised[0].1;
        assert!(network.fuse().unwrap().explain().contains(&format!("is not a product of eight bits: {why}")));
        why
    };
    let none = Attributes::new;
    let one_sided = reason(&|g| {
        let w = g.constant("w", eight_bits(I8, &[8, 4], 1)).apply("DequantizeLinear", &[number(g, F32, 0.1)], none());
        g.output("y", g.input("x", F32, (2, 8)).matmul(w));
    });
    assert_eq!(one_sided, "one of its operands alone is quantised");
    let summed = reason(&|g| {
        let scale = g.constant("s", Tensor::of_numbers(F32, &[8], &[0.1; 8]).unwrap());
        let w = g.constant("w", eight_bits(I8, &[8, 4], 1)).apply("DequantizeLinear", &[scale], along(0));
        g.output("y", g.input("x", I8, (2, 8)).apply("DequantizeLinear", &[number(g, F32, 0.1)], none()).matmul(w));
    });
    assert_eq!(summed, "its weights have scales along the axis that is summed");
    let rows = reason(&|g| {
        let scale = g.constant("s", Tensor::of_numbers(F32, &[2], &[0.1; 2]).unwrap());
        let w = g.constant("w", eight_bits(I8, &[8, 4], 1)).apply("DequantizeLinear", &[number(g, F32, 0.1)], none());
        g.output("y", g.input("x", I8, (2, 8)).apply("DequantizeLinear", &[scale], along(0)).matmul(w));
    });
    assert_eq!(rows, "its first operand has several scales or zero points");
    let dynamic = reason(&|g| {
        let w = g.constant("w", eight_bits(I8, &[8, 4], 1));
        g.output("y", g.apply("MatMulInteger", &[g.input("x", U8, (2, 8)), w, g.input("zero", U8, [0usize; 0])], none()));
    });
    assert_eq!(dynamic, "a scale or a zero point is not a constant");
    let border = reason(&|g| {
        let (x, w) = (g.input("x", I8, (1, 2, 4, 4)), g.constant("w", eight_bits(I8, &[3, 2, 3, 3], 1)));
        g.output("y", g.apply("ConvInteger", &[x, w, number(g, I8, 1.0)], none().with("pads", vec![1, 1, 1, 1])));
    });
    assert_eq!(border, "a border counts as 0, which its zero point is not");
    let signs = reason(&|g| {
        let (x, w) = (g.input("x", U8, (1, 2, 4, 4)), g.constant("w", eight_bits(I8, &[3, 2, 3, 3], 1)));
        g.output("y", g.apply("ConvInteger", &[x, w], none()));
    });
    assert_eq!(signs, "kernels have no convolution of u8 and i8");
    let zeros = reason(&|g| {
        let w = g.constant("w", eight_bits(I8, &[8, 4], 1));
        g.output("y", g.apply("MatMulInteger", &[g.input("x", I8, (2, 8)), w, number(g, I8, 0.0), number(g, I8, 100.0)], none()));
    });
    assert_eq!(zeros, "its weights less their zero point do not fit into eight bits");
    let unknown = reason(&|g| {
        let (x, w) = (g.input("x", I8, (2, 8)), g.input("w", I8, (8, 4)));
        g.output("y", g.apply("MatMulInteger", &[x, w, number(g, I8, 3.0)], none()));
    });
    assert_eq!(unknown, "its zero point is not 0, and the sums of its weights are not known");
    for (x, w) in [(I32, I32), (I32, I8), (E4M3, I8)] {
        let formats = reason(&|g| {
            let part = |name: &str, format: DType, shape: (usize, usize)| {
                g.input(name, format, shape).apply("DequantizeLinear", &[number(g, F32, 0.1)], none())
            };
            g.output("y", part("x", x, (2, 8)).matmul(part("w", w, (8, 4))));
        });
        assert_eq!(formats, "kernels multiply neither of its formats by the other", "{x} and {w}");
    }
    let vector = reason(&|g| {
        let w = g.constant("w", eight_bits(I8, &[8, 4], 1));
        g.output("y", g.apply("MatMulInteger", &[g.input("x", I8, (8,)), w], none()));
    });
    assert_eq!(vector, "an operand is a vector");
    let sums = |terms: usize| {
        move |g: &NetworkBuilder| {
            let [x, w] = [("x", [1, terms]), ("w", [terms, 1])].map(|(name, shape)| g.input(name, U8, shape));
            g.output("y", g.apply("MatMulInteger", &[x, w], none()));
        }
    };
    assert_eq!(reason(&sums((1 << 16) + 1)), "sums of so many products do not fit into 32 bits");
    assert_eq!(Network::build(sums(1 << 16)).unwrap().simplified().1.quantised, 1);
    // What is subtracted from the sums is the bias with the other sign.
    let wide = reason(&|g| {
        let bias = g.constant("bias", Tensor::of(&[1, i32::MIN, 3], &[3]).unwrap());
        let (x, w) = (g.input("x", I8, (1, 2, 4, 4)), g.constant("w", eight_bits(I8, &[3, 2, 3, 3], 1)));
        let [scale, zero] = [number(g, F32, 0.5), number(g, I8, 0.0)];
        g.output("y", g.apply("QLinearConv", &[x, scale, zero, w, scale, zero, scale, zero, bias], none()));
    });
    assert_eq!(wide, "its bias and zero point do not fit into 32 bits");
}
