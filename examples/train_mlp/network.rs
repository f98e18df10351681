//! The network: three layers, the loss and the optimiser, each launch an epilogue.

use super::Result;
use super::eight_bits::EightBits;
use super::launch::{Launch, Machine};
use super::spiral::{CLASSES, FEATURES, Random, Spiral};
use postlude::Gemm;
use postlude::grad::Reserve;
use postlude::layer::Linear;
use postlude::prelude::*;

/// Columns of the hidden layers.
pub const HIDDEN: usize = 48;
/// Columns of the first hidden layer whose activation is a wave.
pub const WAVES: usize = 16;

/// The layers: X (rows x inputs) times W (inputs x outputs), a bias, an activation.
pub struct Layers(pub [Linear; 3]);

impl Layers {
    pub fn new() -> Result<Layers> {
        // A region by columns: some of the hidden values are waves, the others are rectified.
        let first = Linear::new(F32, [FEATURES, HIDDEN], |e, z| {
            z.region(e.column().lt(WAVES as i32), |z| z.sin()).otherwise(|z| z.relu())
        })?;
        let second = Linear::new(F32, [HIDDEN, HIDDEN], |_, z| z.silu())?;
        Ok(Layers([first, second, Linear::new(F32, [HIDDEN, CLASSES], |_, z| z)?]))
    }
}

/// Softmax and cross-entropy, averaged over the rows: the loss, how many rows are right, and the gradient of the logits, in one
/// pass over them. It uses what each row comes to.
pub fn loss(rows: usize) -> Result<Gemm> {
    let epilogue = Epilogue::build(|e| {
        let (z, log_softmax) = (e.acc(), e.acc().log_softmax_over(N));
        let own = e.column().eq(e.load("label", I32.over(M)));
        let share = 1.0 / rows as f32;
        e.store("dz", (log_softmax.exp() - own.select(1.0, 0.0)) * share, F32);
        e.reduce("loss", own.select(log_softmax * -share, 0.0), Monoid::Sum, F32.pointer());
        e.reduce("right", own & e.column().eq(z.argmax_over(N)), Monoid::Count, I32.pointer());
    })?;
    Ok(Gemm::pointwise(F32, Default::default(), &epilogue))
}

/// Adam (Kingma and Ba 2015): a pass over a gradient that updates the parameter and both its moments in place. `scale1` and
/// `scale2` are 1 / (1 - beta^t).
fn adam() -> Result<Gemm> {
    let epilogue = Epilogue::build(|e| {
        let (g, parameter) = (e.acc(), e.load("parameter", F32));
        let m = e.load("m", F32) * 0.9 + g * 0.1;
        let v = e.load("v", F32) * 0.99 + g * g * 0.01;
        let step = m * e.scalar("scale1", F32) / ((v * e.scalar("scale2", F32)).sqrt() + 1e-8);
        e.store("parameter", parameter - step * e.scalar("rate", F32), F32);
        e.store("m", m, F32);
        e.store("v", v, F32);
    })?;
    Ok(Gemm::pointwise(F32, Default::default(), &epilogue))
}

/// A tensor that is trained.
#[derive(Clone)]
pub struct Parameter {
    pub value: Vec<f32>,
    pub gradient: Vec<f32>,
    m: Vec<f32>,
    v: Vec<f32>,
}

impl Parameter {
    fn new(count: usize, mut value: impl FnMut() -> f64) -> Parameter {
        let zeros = || vec![0.0; count];
        Parameter { value: (0..count).map(|_| value() as f32).collect(), gradient: zeros(), m: zeros(), v: zeros() }
    }
}

/// W and b of a layer.
#[derive(Clone)]
pub struct Parameters {
    pub w: Parameter,
    pub bias: Parameter,
}

impl Parameters {
    /// He's initialisation. The first layer's is wider, so that its waves are short enough.
    pub fn new(layers: &Layers, random: &mut Random) -> [Parameters; 3] {
        let gains = [4.0, 2f64.sqrt(), 1.0];
        std::array::from_fn(|i| {
            let [inputs, outputs] = layers.0[i].extents();
            let scale = gains[i] / (inputs as f64).sqrt();
            let w = Parameter::new(inputs * outputs, || scale * random.normal());
            Parameters { w, bias: Parameter::new(outputs, || 0.3 * random.normal()) }
        })
    }
}

/// The results of a training step, before its update.
#[derive(Clone, Copy)]
pub struct Score {
    pub loss: f32,
    /// The share of rows whose largest logit is the correct one.
    pub accuracy: f64,
}

/// How a step computes its gradients.
enum Way {
    Floats(Box<Floats>),
    EightBits(Box<EightBits>),
}

/// Every launch of a training step, planned once.
pub struct Trainer {
    way: Way,
    update: [[Launch; 2]; 3],
    steps: i32,
}

/// The launches that compute gradients in `f32`, and the tensors in between.
struct Floats {
    forward: [Launch; 3],
    loss: Launch,
    wgrad: [Launch; 3],
    /// The gradient of each layer's input, with the derivative of the previous layer.
    dgrad: [Launch; 2],
    reserves: [Reserve<Vec<u8>>; 3],
    hidden: [Vec<f32>; 2],
    logits: Vec<f32>,
    dz: [Vec<f32>; 3],
}

impl Trainer {
    /// A trainer whose gradients are computed in `f32`, or with products of eight bits.
    pub fn new(machine: &Machine, layers: &Layers, rows: usize, eight_bits: bool) -> Result<Trainer> {
        let update = |count: usize| machine.pass(adam()?, Shape::matrix(1, count));
        let updates = |layer: &Linear| -> Result<[Launch; 2]> {
            let [inputs, outputs] = layer.extents();
            Ok([update(inputs * outputs)?, update(outputs)?])
        };
        let [first, second, last] = &layers.0;
        let update = [updates(first)?, updates(second)?, updates(last)?];
        let way = match eight_bits {
            false => Way::Floats(Box::new(Floats::new(machine, layers, rows)?)),
            true => Way::EightBits(Box::new(EightBits::new(machine, layers, rows)?)),
        };
        Ok(Trainer { way, update, steps: 0 })
    }

    /// The loss and every gradient.
    pub fn gradients(&mut self, data: &Spiral, parameters: &mut [Parameters; 3]) -> Result<Score> {
        match &mut self.way {
            Way::Floats(floats) => floats.gradients(data, parameters),
            Way::EightBits(eight_bits) => eight_bits.gradients(data, parameters),
        }
    }

    /// Gradients, and a step of the optimiser.
    pub fn step(&mut self, data: &Spiral, parameters: &mut [Parameters; 3], rate: f32) -> Result<Score> {
        let score = self.gradients(data, parameters)?;
        self.steps += 1;
        let scale = |beta: f32| 1.0 / (1.0 - beta.powi(self.steps));
        for (p, updates) in parameters.iter_mut().zip(&self.update) {
            for (p, update) in [&mut p.w, &mut p.bias].into_iter().zip(updates) {
                let args = HostArgs::new().input("a", &p.gradient).output("parameter", &mut p.value);
                let args = args.output("m", &mut p.m).output("v", &mut p.v);
                update.run(args.scalar("scale1", scale(0.9)).scalar("scale2", scale(0.99)).scalar("rate", rate))?;
            }
        }
        Ok(score)
    }
}

/// Softmax, loss, accuracy and the gradient of the logits: one launch.
pub fn run_loss(loss: &Launch, logits: &[f32], data: &Spiral, dz: &mut [f32]) -> Result<Score> {
    let (mut sum, mut right) = ([0.0f32], [0i32]);
    let args = HostArgs::new().input("a", logits).input("label", &data.labels).output("dz", dz);
    loss.run(args.output("loss", &mut sum).output("right", &mut right))?;
    Ok(Score { loss: sum[0], accuracy: f64::from(right[0]) / data.labels.len() as f64 })
}

impl Floats {
    fn new(machine: &Machine, layers: &Layers, rows: usize) -> Result<Floats> {
        let [first, second, last] = &layers.0;
        let step = |step| machine.step(step);
        let wide = || vec![0.0; rows * HIDDEN];
        Ok(Floats {
            forward: [step(first.forward(rows))?, step(second.forward(rows))?, step(last.forward(rows))?],
            loss: machine.pass(loss(rows)?, Shape::matrix(rows, CLASSES))?,
            wgrad: [step(first.wgrad(rows)?)?, step(second.wgrad(rows)?)?, step(last.wgrad_with_bias(rows)?)?],
            dgrad: [step(second.dgrad_into(first, rows)?)?, step(last.dgrad_into(second, rows)?)?],
            reserves: [first.reserve(rows), second.reserve(rows), last.reserve(rows)],
            hidden: [wide(), wide()],
            logits: vec![0.0; rows * CLASSES],
            dz: [wide(), wide(), vec![0.0; rows * CLASSES]],
        })
    }

    /// The loss and every gradient: four launches for the loss, five after it.
    fn gradients(&mut self, data: &Spiral, [p1, p2, p3]: &mut [Parameters; 3]) -> Result<Score> {
        let [h1, h2] = &mut self.hidden;
        let [reserve1, reserve2, reserve3] = &mut self.reserves;
        let [dz1, dz2, dz3] = &mut self.dz;

        let args = HostArgs::new().input("x", &data.points).input("w", &p1.w.value).input("bias", &p1.bias.value);
        self.forward[0].run(args.output("y", &mut *h1).saving(reserve1))?;
        let args = HostArgs::new().input("x", &*h1).input("w", &p2.w.value).input("bias", &p2.bias.value);
        self.forward[1].run(args.output("y", &mut *h2).saving(reserve2))?;
        let args = HostArgs::new().input("x", &*h2).input("w", &p3.w.value).input("bias", &p3.bias.value);
        self.forward[2].run(args.output("y", &mut self.logits).saving(reserve3))?;

        let score = run_loss(&self.loss, &self.logits, data, dz3)?;

        let args = HostArgs::new().input("x", &*h2).input("dz", &*dz3).output("dw", &mut p3.w.gradient);
        self.wgrad[2].run(args.output("grad_bias", &mut p3.bias.gradient))?;
        let args = HostArgs::new().input("dz", &*dz3).input("w", &p3.w.value).saved(reserve2);
        self.dgrad[1].run(args.output("grad_acc", &mut *dz2).output("grad_bias", &mut p2.bias.gradient))?;
        self.wgrad[1].run(HostArgs::new().input("x", &*h1).input("dz", &*dz2).output("dw", &mut p2.w.gradient))?;
        let args = HostArgs::new().input("dz", &*dz2).input("w", &p2.w.value).saved(reserve1);
        self.dgrad[0].run(args.output("grad_acc", &mut *dz1).output("grad_bias", &mut p1.bias.gradient))?;
        self.wgrad[0].run(HostArgs::new().input("x", &data.points).input("dz", &*dz1).output("dw", &mut p1.w.gradient))?;
        Ok(score)
    }
}

/// The logits of points, with nothing saved.
pub fn logits(machine: &Machine, layers: &Layers, parameters: &[Parameters; 3], points: &[f32]) -> Result<Vec<f32>> {
    let rows = points.len() / FEATURES;
    let mut x = points.to_vec();
    for (layer, p) in layers.0.iter().zip(parameters) {
        let mut y = vec![0.0; rows * layer.extents()[1]];
        let args = HostArgs::new().input("x", &x).input("w", &p.w.value).input("bias", &p.bias.value).output("y", &mut y);
        machine.step(layer.inference(rows))?.run(args)?;
        x = y;
    }
    Ok(x)
}

/// The loss by plain loops in `f64`, with one number of one tensor moved. Gradients are compared with it.
pub fn plain_loss(data: &Spiral, parameters: &[Parameters; 3], (tensor, index, offset): (usize, usize, f64)) -> f64 {
    let moved = |which: usize, values: &[f32]| {
        let mut values: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
        if which == tensor {
            values[index] += offset;
        }
        values
    };
    let tensors: Vec<[Vec<f64>; 2]> =
        (0..3).map(|i| [moved(2 * i, &parameters[i].w.value), moved(2 * i + 1, &parameters[i].bias.value)]).collect();
    let layer = |x: &[f64], i: usize, f: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
        let [w, bias] = &tensors[i];
        let outputs = bias.len();
        let z = |j: usize| x.iter().enumerate().map(|(k, x)| x * w[k * outputs + j]).sum::<f64>() + bias[j];
        (0..outputs).map(|j| f(j, z(j))).collect()
    };
    let rows = data.points.chunks_exact(FEATURES).zip(&data.labels).map(|(point, label)| {
        let x: Vec<f64> = point.iter().map(|x| f64::from(*x)).collect();
        let h1 = layer(&x, 0, &|j, z| if j < WAVES { z.sin() } else { z.max(0.0) });
        let h2 = layer(&h1, 1, &|_, z| z / (1.0 + (-z).exp()));
        let z = layer(&h2, 2, &|_, z| z);
        z.iter().map(|z| z.exp()).sum::<f64>().ln() - z[*label as usize]
    });
    rows.sum::<f64>() / data.labels.len() as f64
}
