//! Gradients with products of eight bits, as Transformer Engine's HYBRID recipe has them: X and W in e4m3, dZ in e5m2, with
//! scales from the largest magnitudes of the last steps. The first layer, which reads two coordinates, stays in `f32`.

use super::Result;
use super::launch::{Launch, Machine};
use super::network::{HIDDEN, Layers, Parameters, Score, loss, run_loss};
use super::spiral::{CLASSES, Spiral};
use postlude::build::recipes;
use postlude::float8::{F8E4M3, F8E5M2};
use postlude::grad::Reserve;
use postlude::prelude::*;

/// Steps whose largest magnitudes decide about a scale.
const HISTORY: usize = 16;

/// The scales of tensors of one format, and the largest magnitudes from which they follow: a row for each tensor.
struct Scales {
    pass: Launch,
    history: Vec<f32>,
    now: Vec<f32>,
}

impl Scales {
    fn new(machine: &Machine, format: DType, tensors: usize) -> Result<Scales> {
        // Half of the format's range is left for what grows from one step to the next.
        let epilogue = recipes::delayed_scale(format, 1)?;
        let pass = machine.pass(Gemm::pointwise(F32, Order::RowMajor, &epilogue), Shape::matrix(tensors, HISTORY))?;
        Ok(Scales { pass, history: vec![0.0; tensors * HISTORY], now: vec![1.0; tensors] })
    }

    /// The scales of a step, each with the place of its tensor's largest magnitude.
    fn begin(&mut self, step: usize) -> Result<Vec<(&[f32], &mut [f32])>> {
        let mut inverse = vec![0.0f32; self.now.len()];
        let args = HostArgs::new().input("a", &self.history).output("scale", &mut self.now);
        self.pass.run(args.output("inverse", &mut inverse))?;
        let at = step % HISTORY;
        let places = self.history.chunks_exact_mut(HISTORY).map(|row| &mut row[at..=at]);
        Ok(self.now.chunks_exact(1).zip(places).collect())
    }
}

/// The launches that compute gradients, and the tensors in between.
pub struct EightBits {
    forward: [Launch; 3],
    loss: Launch,
    /// dZ of the last layer, and its sum.
    last: Launch,
    wgrad: [Launch; 3],
    dgrad: [Launch; 2],
    /// The weights of the last two layers become eight bits.
    weights: [Launch; 2],
    /// The hidden values and weights, two each; then dZ of the last two layers.
    scales: [Scales; 2],
    reserves: [Reserve<Vec<u8>>; 3],
    x: [Vec<F8E4M3>; 2],
    w: [Vec<F8E4M3>; 2],
    dz: [Vec<F8E5M2>; 2],
    logits: Vec<f32>,
    dy: Vec<f32>,
    dz1: Vec<f32>,
    steps: usize,
}

impl EightBits {
    pub fn new(machine: &Machine, layers: &Layers, rows: usize) -> Result<EightBits> {
        let [first, second, last] = &layers.0;
        let (second, last) = (&second.clone().fp8()?, &last.clone().fp8()?);
        let step = |step| machine.step(step);
        let weights = |count: usize| {
            machine.pass(Gemm::pointwise(F32, Order::RowMajor, &recipes::quantize(E4M3)?), Shape::matrix(1, count))
        };
        let (zero, none) = (F8E4M3::from_f32(0.0), F8E5M2::from_f32(0.0));
        Ok(EightBits {
            forward: [
                step(first.forward(rows).quantize("y", E4M3)?)?,
                step(second.forward(rows).quantize("y", E4M3)?)?,
                step(last.forward(rows))?,
            ],
            loss: machine.pass(loss(rows)?, Shape::matrix(rows, CLASSES))?,
            last: step(last.activation_grad(rows)?)?,
            wgrad: [step(first.wgrad(rows)?)?, step(second.wgrad(rows)?)?, step(last.wgrad(rows)?)?],
            dgrad: [step(second.dgrad_into(first, rows)?)?, step(last.dgrad_into(second, rows)?)?],
            weights: [weights(HIDDEN * HIDDEN)?, weights(HIDDEN * CLASSES)?],
            scales: [Scales::new(machine, E4M3, 4)?, Scales::new(machine, E5M2, 2)?],
            reserves: [first.reserve(rows), second.reserve(rows), last.reserve(rows)],
            x: [vec![zero; rows * HIDDEN], vec![zero; rows * HIDDEN]],
            w: [vec![zero; HIDDEN * HIDDEN], vec![zero; HIDDEN * CLASSES]],
            dz: [vec![none; rows * HIDDEN], vec![none; rows * CLASSES]],
            logits: vec![0.0; rows * CLASSES],
            dy: vec![0.0; rows * CLASSES],
            dz1: vec![0.0; rows * HIDDEN],
            steps: 0,
        })
    }

    /// The loss and every gradient: two launches for scales, two for weights, four for the loss, six after it.
    pub fn gradients(&mut self, data: &Spiral, [p1, p2, p3]: &mut [Parameters; 3]) -> Result<Score> {
        let [of_values, of_gradients] = &mut self.scales;
        let mut values = of_values.begin(self.steps)?.into_iter();
        let mut gradients = of_gradients.begin(self.steps)?.into_iter();
        let mut value = || values.next().ok_or("four tensors have scales");
        let [(x2_scale, x2_amax), (w2_scale, w2_amax), (x3_scale, x3_amax), (w3_scale, w3_amax)] =
            [value()?, value()?, value()?, value()?];
        let mut gradient = || gradients.next().ok_or("two gradients have scales");
        let [(dz2_scale, dz2_amax), (dz3_scale, dz3_amax)] = [gradient()?, gradient()?];
        self.steps += 1;
        let ([x2, x3], [w2, w3], [dz2, dz3], dz1) = (&mut self.x, &mut self.w, &mut self.dz, &mut self.dz1);
        let [reserve1, reserve2, reserve3] = &mut self.reserves;

        let args = HostArgs::new().input("a", &p2.w.value).input("d_scale", w2_scale).output("d", &mut *w2);
        self.weights[0].run(args.output("d_amax", w2_amax))?;
        let args = HostArgs::new().input("a", &p3.w.value).input("d_scale", w3_scale).output("d", &mut *w3);
        self.weights[1].run(args.output("d_amax", w3_amax))?;

        let args = HostArgs::new().input("x", &data.points).input("w", &p1.w.value).input("bias", &p1.bias.value);
        let args = args.input("y_scale", x2_scale).output("y", &mut *x2).output("y_amax", x2_amax);
        self.forward[0].run(args.saving(reserve1))?;
        let args = HostArgs::new().input("x", &*x2).input("w", &*w2).input("bias", &p2.bias.value).input("x_scale", x2_scale);
        let args = args.input("w_scale", w2_scale).input("y_scale", x3_scale).output("y", &mut *x3).output("y_amax", x3_amax);
        self.forward[1].run(args.saving(reserve2))?;
        let args = HostArgs::new().input("x", &*x3).input("w", &*w3).input("bias", &p3.bias.value).input("x_scale", x3_scale);
        self.forward[2].run(args.input("w_scale", w3_scale).output("y", &mut self.logits).saving(reserve3))?;

        let score = run_loss(&self.loss, &self.logits, data, &mut self.dy)?;

        let args = HostArgs::new().input("dy", &self.dy).input("grad_acc_scale", dz3_scale).output("grad_acc", &mut *dz3);
        let args = args.output("grad_acc_amax", dz3_amax).output("grad_bias", &mut p3.bias.gradient);
        self.last.run(args.saved(reserve3))?;
        let args = HostArgs::new().input("x", &*x3).input("dz", &*dz3).output("dw", &mut p3.w.gradient);
        self.wgrad[2].run(args.input("x_scale", x3_scale).input("dz_scale", dz3_scale))?;
        let args = HostArgs::new().input("dz", &*dz3).input("w", &*w3).input("dz_scale", dz3_scale).input("w_scale", w3_scale);
        let args = args.input("grad_acc_scale", dz2_scale).output("grad_acc", &mut *dz2).output("grad_acc_amax", dz2_amax);
        self.dgrad[1].run(args.output("grad_bias", &mut p2.bias.gradient).saved(reserve2))?;
        let args = HostArgs::new().input("x", &*x2).input("dz", &*dz2).output("dw", &mut p2.w.gradient);
        self.wgrad[1].run(args.input("x_scale", x2_scale).input("dz_scale", dz2_scale))?;
        let args = HostArgs::new().input("dz", &*dz2).input("w", &*w2).input("dz_scale", dz2_scale).input("w_scale", w2_scale);
        self.dgrad[0].run(args.output("grad_acc", &mut *dz1).output("grad_bias", &mut p1.bias.gradient).saved(reserve1))?;
        let args = HostArgs::new().input("x", &data.points).input("dz", &*dz1).output("dw", &mut p1.w.gradient);
        self.wgrad[0].run(args)?;
        Ok(score)
    }
}
