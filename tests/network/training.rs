//! Training: networks whose every step is compared with differences, node by node and fused; what the fused backward network
//! is made of.

use crate::graphs::{self, Named, scaled as weight, tensor};
use postlude::network::fuse::Fused;
use postlude::network::{Attributes, Format, Network, Tensor};
use postlude::prelude::*;

/// A network with a loss, its weights, and what else it takes.
pub struct Model {
    network: Network,
    weights: Vec<Named>,
    data: Vec<Named>,
}

/// Three layers of six points, as [`graphs::mlp`] makes them.
pub fn mlp(format: DType) -> Model {
    let (batch, sizes) = (6, [5, 8, 7, 4]);
    let (weights, data) = graphs::mlp_inputs(format, batch, sizes);
    Model { network: graphs::mlp(format, batch, sizes), weights, data }
}

/// Two convolutions with biases, a max pool, a norm of inference, a linear layer, and the cross-entropy of classes.
pub fn cnn(format: DType) -> Model {
    let network = Network::build(|g| {
        let (x, class) = (g.input("x", format, (4, 2, 6, 6)), g.input("class", Format::I64, (4,)));
        let (c1, d1) = (g.input("c1", format, (4, 2, 3, 3)), g.input("d1", format, (4,)));
        let (c2, d2) = (g.input("c2", format, (5, 4, 2, 2)), g.input("d2", format, (5,)));
        let (w, b) = (g.input("w", format, (20, 3)), g.input("b", format, (3,)));
        let scale = g.input("scale", format, (4,));
        let [shift, mean, variance] =
            [0.1, 0.2, 1.5].map(|x| g.constant("norm", Tensor::of_numbers(format, &[4], &[x; 4]).unwrap()));
        let z = g.apply("Conv", &[x, c1, d1], Attributes::new().with("pads", vec![1, 1, 1, 1]));
        let z = g.apply("BatchNormalization", &[z, scale, shift, mean, variance], Attributes::new()).relu();
        let place = Attributes::new().with("kernel_shape", vec![2, 2]).with("strides", vec![2, 2]);
        let z = g.apply("MaxPool", &[z], place);
        let z = g.apply("Conv", &[z, c2, d2], Attributes::new()).tanh();
        let scores = g.apply("Gemm", &[z.apply("Flatten", &[], Attributes::new()), w, b], Attributes::new());
        g.output("loss", g.apply("SoftmaxCrossEntropyLoss", &[scores, class], Attributes::new()));
    });
    let ones = |n: usize, x: f64| Tensor::of_numbers(format, &[n], &vec![x; n]).unwrap();
    Model {
        network: network.unwrap(),
        weights: vec![
            ("c1", weight(format, &[4, 2, 3, 3], 1)),
            ("d1", ones(4, 0.1)),
            ("c2", weight(format, &[5, 4, 2, 2], 2)),
            ("d2", ones(5, -0.1)),
            ("w", weight(format, &[20, 3], 3)),
            ("b", ones(3, 0.0)),
            ("scale", ones(4, 1.0)),
        ],
        data: vec![("x", tensor(format, &[4, 2, 6, 6], 9)), ("class", Tensor::indices(&[0, 2, 1, 2]))],
    }
}

impl Model {
    fn inputs(&self) -> Vec<Named> {
        self.data.iter().chain(&self.weights).cloned().collect()
    }

    fn names(&self) -> Vec<&'static str> {
        self.weights.iter().map(|(name, _)| *name).collect()
    }

    fn training(&self) -> Network {
        self.network.backward("loss", &self.names()).unwrap()
    }

    fn loss(&self, inputs: &[Named]) -> f64 {
        self.network.run(inputs).unwrap()[0].1.numbers()[0]
    }

    /// Compares gradients of some elements of every weight with central differences.
    fn check(&self, gradients: &[(String, Tensor)], tolerance: f64) {
        for (at, (name, x)) in self.weights.iter().enumerate() {
            let gradient = &gradients[1 + at];
            assert_eq!(gradient.0, format!("grad_{name}"));
            for place in (0..x.len()).step_by(1 + x.len() / 5) {
                let moved = |by: f64| {
                    let mut numbers = x.numbers();
                    numbers[place] += by;
                    let moved = Tensor::of_numbers(x.format(), x.shape(), &numbers).unwrap();
                    let swap = |(known, tensor): Named| if known == *name { (known, moved.clone()) } else { (known, tensor) };
                    self.loss(&self.inputs().into_iter().map(swap).collect::<Vec<_>>())
                };
                let step = 1e-6;
                let (difference, own) = ((moved(step) - moved(-step)) / (2.0 * step), gradient.1.numbers()[place]);
                assert!((own - difference).abs() <= tolerance * (1.0 + difference.abs()), "{name}[{place}]: {own}, {difference}");
            }
        }
    }

    /// Steps of gradient descent with a closure that computes loss and gradients; the losses.
    fn train(
        &mut self,
        steps: usize,
        rate: f64,
        mut run: impl FnMut(&[Named]) -> Vec<(String, Tensor)>,
        checks: bool,
    ) -> Vec<f64> {
        let mut losses = Vec::new();
        for _ in 0..steps {
            let outputs = run(&self.inputs());
            losses.push(outputs[0].1.numbers()[0]);
            if checks {
                self.check(&outputs, 1e-6);
            }
            for ((_, x), (_, gradient)) in self.weights.iter_mut().zip(&outputs[1..]) {
                let next: Vec<f64> = x.numbers().iter().zip(gradient.numbers()).map(|(x, g)| x - rate * g).collect();
                *x = Tensor::of_numbers(x.format(), x.shape(), &next).unwrap();
            }
        }
        losses
    }
}

fn falls(losses: &[f64], to: f64) {
    assert!(losses.last().unwrap() < &(to * losses[0]), "{losses:?}");
}

#[test]
fn an_mlp_learns_node_by_node() {
    let mut model = mlp(F64);
    let training = model.training();
    let losses = model.train(12, 1.0, |inputs| training.run(inputs).unwrap(), true);
    falls(&losses, 0.5);
}

#[test]
fn an_mlp_learns_fused() {
    let mut model = mlp(F64);
    let fused = model.training().fuse().unwrap();
    let losses = model.train(12, 1.0, |inputs| fused.run(inputs).unwrap(), true);
    falls(&losses, 0.5);
    // In the format of a GPU, the same within rounding.
    let mut narrow = mlp(F32);
    let fused = narrow.training().fuse().unwrap();
    for (x, y) in losses.iter().zip(narrow.train(12, 1.0, |inputs| fused.run(inputs).unwrap(), false)) {
        assert!((x - y).abs() < 1e-4, "{x} and {y}");
    }
}

#[test]
fn a_cnn_learns() {
    let mut model = cnn(F64);
    let training = model.training();
    let losses = model.train(8, 0.5, |inputs| training.run(inputs).unwrap(), true);
    falls(&losses, 0.6);
    let mut fused_model = cnn(F64);
    let fused = fused_model.training().fuse().unwrap();
    let fused_losses = fused_model.train(8, 0.5, |inputs| fused.run(inputs).unwrap(), true);
    for (x, y) in losses.iter().zip(&fused_losses) {
        assert!((x - y).abs() < 1e-9, "{x} and {y}");
    }
}

/// The operators of each kernel.
fn titles(fused: &Fused) -> Vec<String> {
    fused.kernels().map(|kernel| kernel.title(fused.network())).collect()
}

#[test]
fn derivatives_stand_behind_products() {
    let fused = mlp(F32).training().fuse().unwrap();
    println!("{}", fused.explain());
    assert_eq!(fused.unserved().count(), 0, "{}", fused.explain());
    let titles = titles(&fused);
    // Three products forward and five backward, a kernel of the softmax and its gradient, and one of the loss.
    let products: Vec<&String> = titles.iter().filter(|title| title.contains("MatMul")).collect();
    assert_eq!(products.len(), 8, "{}", fused.explain());
    // The derivative of each activation, and the sum of a bias, are in the product that computes its gradient.
    let with = |what: &str| products.iter().filter(|title| title.contains(what)).count();
    assert_eq!((with("Gelu'0"), with("Relu'0"), with("ReduceSum")), (1, 1, 2), "{}", fused.explain());
    assert!(
        titles.iter().all(|title| title.contains("MatMul") || !title.contains('\'') || title.contains("Reduce")),
        "{titles:?}"
    );
    assert!(titles.len() <= 13, "{}", fused.explain());
    // ReLU's derivative follows from its result, so what was before it is written nowhere; GELU's does not.
    let written = |kernel: usize| fused.kernels().nth(kernel).unwrap().accesses.iter().filter(|access| access.written).count();
    assert_eq!((written(0), written(1)), (2, 1), "{}", fused.explain());
}

#[test]
fn convolutions_have_kernels_for_gradients() {
    let fused = cnn(F32).training().fuse().unwrap();
    println!("{}", fused.explain());
    let unserved: Vec<&str> = fused.unserved().map(|(node, _)| node.operator_name()).collect();
    assert_eq!(
        unserved,
        ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLossGradient", "MaxPoolGradient"],
        "{}",
        fused.explain()
    );
    let titles = titles(&fused);
    // The images of the first convolution have no gradient.
    let with = |what: &str| titles.iter().filter(|title| title.contains(what)).count();
    assert_eq!((with("ConvImageGradient"), with("ConvFilterGradient")), (1, 2), "{titles:?}");
}

#[test]
fn formats_of_16_bits_train() {
    for format in [F16, BF16] {
        let mut model = mlp(format);
        let fused = model.training().fuse().unwrap();
        let losses = model.train(12, 1.0, |inputs| fused.run(inputs).unwrap(), false);
        falls(&losses, 0.6);
    }
}

#[test]
fn extents_may_stay_open() {
    let network = Network::build(|g| {
        let (x, w, b) = (g.input("x", F32, ("batch", 3)), g.input("w", F32, (3, 2)), g.input("b", F32, (2,)));
        let y = (x.matmul(w) + b).sigmoid().softmax(-1);
        g.output("loss", (y * y).apply("ReduceMean", &[], Attributes::new().with("keepdims", 0)));
    })
    .unwrap();
    let training = network.backward("loss", &["x", "w", "b"]).unwrap();
    assert_eq!(training.symbols().len(), 1);
    let types: Vec<String> = training.outputs().map(|(_, of)| of.to_string()).collect();
    assert_eq!(types, ["f32[]", "f32[batch,3]", "f32[3,2]", "f32[2]"]);
    let inputs = [("x", tensor(F32, &[4, 3], 1)), ("w", tensor(F32, &[3, 2], 2)), ("b", tensor(F32, &[2], 3))];
    let (open, bound) = (training.run(&inputs).unwrap(), network.bind(&[("batch", 4)]).unwrap());
    let bound = bound.backward("loss", &["x", "w", "b"]).unwrap().run(&inputs).unwrap();
    for ((name, x), (_, y)) in open.iter().zip(&bound) {
        let near = x.numbers().iter().zip(y.numbers()).all(|(x, y)| (x - y).abs() < 1e-6);
        assert!(near && x.shape() == y.shape(), "{name}");
    }
}

#[test]
fn gradients_of_gradients() {
    // The second derivative of x^3 is 6 x.
    let network = Network::build(|g| {
        let x = g.input("x", F64, (3,));
        g.output("y", x * x * x + x.tanh());
    })
    .unwrap();
    let once = network.backward_through(&["y"], &["x"]).unwrap();
    let twice = once.backward_through(&["grad_x"], &["x"]).unwrap();
    let x = [0.5f64, -1.0, 2.0];
    let inputs = [
        ("x", Tensor::of(&x, &[3]).unwrap()),
        ("upstream_y", Tensor::of(&[1.0f64; 3], &[3]).unwrap()),
        ("upstream_grad_x", Tensor::of(&[1.0f64; 3], &[3]).unwrap()),
    ];
    for (x, found) in x.iter().zip(twice.run(&inputs).unwrap()[1].1.numbers()) {
        let (t, expected) = (x.tanh(), 6.0 * x);
        assert!((found - (expected - 2.0 * t * (1.0 - t * t))).abs() < 1e-9, "{found}");
    }
}

#[test]
fn training_networks_are_written_and_read() {
    let training = mlp(F32).training();
    let read = Network::from_json(&training.to_json(), &Default::default()).unwrap();
    assert_eq!(read, training);
    let (plain, did) = training.simplified();
    assert!(did.after <= did.before);
    let inputs = mlp(F32).inputs();
    assert_eq!(plain.run(&inputs).unwrap(), training.run(&inputs).unwrap());
}
