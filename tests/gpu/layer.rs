//! Linear layers: every step of every transposition and of several activations against the oracle, and a chain of two layers on
//! device memory against the same steps on the CPU.

use crate::case::Case;
use crate::files::with_scalars;
use crate::reductions::run_all;
use crate::rig::gpu;
use half::f16;
use postlude::build::Builder;
use postlude::device::{Device, DeviceArgs};
use postlude::grad::Wrt;
use postlude::layer::{Linear, Step};
use postlude::prelude::*;

type Function = for<'g> fn(&'g Builder, Expr<'g>) -> Expr<'g>;

const REGION: Function = |e, z| {
    let bands = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid());
    bands.region(e.column().lt(16), |z| z.relu()).otherwise(|z| z.tanh())
};

/// Every step of a layer behind another like it, with and without accumulation.
fn steps(layer: &Linear, previous: &Linear, rows: usize) -> Vec<Step> {
    let (activation, behind) = (layer.activation_grad(rows).unwrap(), layer.dgrad_into(previous, rows).unwrap());
    let (wgrad, dgrad) = (layer.wgrad(rows).unwrap(), layer.dgrad(rows).unwrap());
    vec![
        layer.forward(rows),
        layer.inference(rows),
        activation.clone(),
        activation.accumulate(&["grad_bias"]).unwrap(),
        wgrad.clone(),
        wgrad.accumulate(&["dw"]).unwrap(),
        dgrad.clone(),
        dgrad.accumulate(&["dx"]).unwrap(),
        behind.clone(),
        behind.accumulate(&["grad_bias"]).unwrap().plus("skip", F16).unwrap(),
    ]
}

fn check(dtype: DType, trans: [bool; 2], f: Function, [rows, inputs, outputs]: [usize; 3]) {
    let order = if trans[0] { F32.column_major().order } else { F32.over(M | N).order };
    // The layer before writes what this one reads.
    let before = Epilogue::build(|e| {
        let y = f(e, e.acc() + e.load("bias", dtype.over(N)));
        e.store("y", y, postlude::Operand { order, ..dtype.into() });
    });
    let previous = Linear::with_epilogue(dtype, [8, inputs], &before.unwrap(), Wrt::all()).unwrap();
    let layer = Linear::new(dtype, [inputs, outputs], f).unwrap().trans_x(trans[0]).trans_w(trans[1]);
    for layer in [layer.clone(), layer.gradients(F32)] {
        let cases = steps(&layer, &previous, rows).into_iter();
        run_all(cases.map(|step| with_scalars(step.gemm(), step.shape(), 100).slack(10.0)).collect());
    }
}

#[test]
fn every_transposition_of_a_layer() {
    for trans in [[false, false], [false, true], [true, false], [true, true]] {
        check(F16, trans, REGION, [264, 72, 136]);
        check(F32, trans, REGION, [131, 33, 47]);
    }
}

#[test]
fn activations_of_a_layer() {
    let functions: [Function; 4] = [|_, z| z, |_, z| z.relu(), |_, z| z.gelu(), |_, z| z.silu()];
    for f in functions {
        check(F16, [false, true], f, [264, 136, 200]);
        check(F32, [false, false], f, [77, 24, 40]);
    }
}

#[test]
fn entries_of_a_layer_with_leading_dimensions() {
    let layer = Linear::new(F16, [40, 72], REGION).unwrap().trans_w(true).batched(3);
    let apart = |step: Step, names: [&str; 3]| {
        names.into_iter().fold(with_scalars(step.gemm(), step.shape(), 20).slack(10.0), |case: Case, name| case.ld(name, 136))
    };
    run_all(vec![
        apart(layer.forward(50), ["a", "b", "y"]),
        apart(layer.activation_grad(50).unwrap(), ["a", "grad_acc", "grad_acc"]),
        apart(layer.wgrad(50).unwrap().accumulate(&["dw"]).unwrap(), ["a", "b", "dw"]),
        apart(layer.dgrad(50).unwrap(), ["a", "b", "dx"]),
    ]);
}

/// The outputs of a network's training step.
#[derive(Debug)]
struct Left {
    y: Vec<f16>,
    dw: [Vec<f32>; 2],
    dbias: [Vec<f32>; 2],
}

struct Network {
    layers: [Linear; 2],
    rows: usize,
    x: Vec<f16>,
    w: [Vec<f16>; 2],
    bias: [Vec<f16>; 2],
    dy: Vec<f16>,
}

impl Network {
    fn new() -> Network {
        let (rows, [inputs, hidden, outputs]) = (520, [64, 200, 104]);
        let first = Linear::new(F16, [inputs, hidden], |e, z| z.region(e.column().lt(100), |z| z.relu()).otherwise(|z| z.gelu()));
        let second = Linear::new(F16, [hidden, outputs], |_, z| z.tanh());
        let layers = [first, second].map(|layer| layer.unwrap().trans_w(true).gradients(F32));
        let mut state = 3u32;
        let mut numbers = |count: usize, scale: f32| -> Vec<f16> {
            let mut number = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f16::from_f32(scale * ((state >> 16) as f32 / 32768.0 - 1.0))
            };
            (0..count).map(|_| number()).collect()
        };
        Network {
            rows,
            x: numbers(rows * inputs, 1.0),
            w: [numbers(inputs * hidden, 0.2), numbers(hidden * outputs, 0.1)],
            bias: [numbers(hidden, 0.5), numbers(outputs, 0.5)],
            dy: numbers(rows * outputs, 1.0),
            layers,
        }
    }

    fn room(&self) -> Left {
        let [[k1, n1], [k2, n2]] = [0, 1].map(|i: usize| self.layers[i].extents());
        // Gradients are added to this.
        let zeros = |count| vec![1.0f32; count];
        Left { y: vec![f16::NAN; self.rows * n2], dw: [zeros(k1 * n1), zeros(k2 * n2)], dbias: [zeros(n1), zeros(n2)] }
    }

    /// forward, forward, activation_grad, wgrad, dgrad_into, wgrad.
    fn steps(&self) -> [Step; 6] {
        let ([first, second], rows) = (&self.layers, self.rows);
        let onto = |step: Result<Step, _>, name| step.and_then(|step: Step| step.accumulate(&[name])).unwrap();
        [
            first.forward(rows),
            second.forward(rows),
            onto(second.activation_grad(rows), "grad_bias"),
            onto(second.wgrad(rows), "dw"),
            onto(second.dgrad_into(first, rows), "grad_bias"),
            onto(first.wgrad(rows), "dw"),
        ]
    }

    fn on_cpu(&self) -> Left {
        let (mut left, [first, second]) = (self.room(), &self.layers);
        let (mut saved1, mut saved2) = (first.reserve(self.rows), second.reserve(self.rows));
        let mut h = vec![f16::NAN; self.rows * first.extents()[1]];
        let (mut dz1, mut dz2) = (h.clone(), left.y.clone());
        let [s1, s2, s3, s4, s5, s6] = self.steps();
        let Left { y, dw: [dw1, dw2], dbias: [db1, db2] } = &mut left;
        let args = HostArgs::new().input("x", &self.x).input("w", &self.w[0]).input("bias", &self.bias[0]);
        s1.reference(args.output("y", &mut h).saving(&mut saved1)).unwrap();
        let args = HostArgs::new().input("x", &h).input("w", &self.w[1]).input("bias", &self.bias[1]);
        s2.reference(args.output("y", y).saving(&mut saved2)).unwrap();
        let args = HostArgs::new().input("dy", &self.dy).output("grad_acc", &mut dz2).output("grad_bias", db2);
        s3.reference(args.saved(&saved2)).unwrap();
        s4.reference(HostArgs::new().input("x", &h).input("dz", &dz2).output("dw", dw2)).unwrap();
        let args = HostArgs::new().input("dz", &dz2).input("w", &self.w[1]).output("grad_acc", &mut dz1).output("grad_bias", db1);
        s5.reference(args.saved(&saved1)).unwrap();
        s6.reference(HostArgs::new().input("x", &self.x).input("dz", &dz1).output("dw", dw1)).unwrap();
        left
    }

    /// The same on device memory, with plans made once. The second of `passes` adds to the first one's results.
    fn on_gpu(&self, device: &Device, passes: usize) -> Result<Left, Box<dyn std::error::Error>> {
        let (stream, [first, second]) = (device.context().new_stream()?, &self.layers);
        let plans = self.steps().iter().map(|step| step.plan(device)).collect::<Result<Vec<_>, _>>()?;
        let upload = |numbers: &[f16]| stream.clone_htod(numbers);
        let (x, dy) = (upload(&self.x)?, upload(&self.dy)?);
        let (w1, w2, bias1, bias2) = (upload(&self.w[0])?, upload(&self.w[1])?, upload(&self.bias[0])?, upload(&self.bias[1])?);
        let room = self.room();
        let mut h = stream.alloc_zeros::<f16>(self.rows * first.extents()[1])?;
        let (mut dz1, mut dz2, mut y) = (h.clone(), upload(&room.y)?, upload(&room.y)?);
        let (mut saved1, mut saved2) = (first.reserve_on(&stream, self.rows)?, second.reserve_on(&stream, self.rows)?);
        let [mut dw1, mut dw2] = [stream.clone_htod(&room.dw[0])?, stream.clone_htod(&room.dw[1])?];
        let [mut db1, mut db2] = [stream.clone_htod(&room.dbias[0])?, stream.clone_htod(&room.dbias[1])?];
        for _ in 0..passes {
            let args = DeviceArgs::new().input("x", &x).input("w", &w1).input("bias", &bias1).output("y", &mut h);
            plans[0].execute(&stream, &mut args.saving(&mut saved1))?;
            let args = DeviceArgs::new().input("x", &h).input("w", &w2).input("bias", &bias2).output("y", &mut y);
            plans[1].execute(&stream, &mut args.saving(&mut saved2))?;
            let args = DeviceArgs::new().input("dy", &dy).output("grad_acc", &mut dz2).output("grad_bias", &mut db2);
            plans[2].execute(&stream, &mut args.saved(&saved2))?;
            plans[3].execute(&stream, &mut DeviceArgs::new().input("x", &h).input("dz", &dz2).output("dw", &mut dw2))?;
            let args = DeviceArgs::new().input("dz", &dz2).input("w", &w2).output("grad_acc", &mut dz1);
            plans[4].execute(&stream, &mut args.output("grad_bias", &mut db1).saved(&saved1))?;
            plans[5].execute(&stream, &mut DeviceArgs::new().input("x", &x).input("dz", &dz1).output("dw", &mut dw1))?;
        }
        // An error on the way names the layer's tensors.
        let error = plans[5].execute(&stream, &mut DeviceArgs::new().input("x", &x).input("dz", &dz1)).unwrap_err().to_string();
        assert!(error.starts_with("argument `dw`: missing"), "{error}");
        stream.synchronize()?;
        Ok(Left {
            y: stream.clone_dtoh(&y)?,
            dw: [stream.clone_dtoh(&dw1)?, stream.clone_dtoh(&dw2)?],
            dbias: [stream.clone_dtoh(&db1)?, stream.clone_dtoh(&db2)?],
        })
    }
}

#[test]
fn a_chain_of_layers_on_device_memory() {
    let Some(device) = gpu() else { return };
    let network = Network::new();
    let expected = network.on_cpu();
    for passes in [1, 2] {
        let found = network.on_gpu(device, passes).unwrap_or_else(|e| panic!("{e}"));
        let near = |what: &str, found: f64, once: f64, tolerance: f64| {
            // Every pass adds the same to the 1 that was there.
            let expected = 1.0 + passes as f64 * (once - 1.0);
            let off = (found - expected).abs() / (1.0 + expected.abs());
            assert!(off < tolerance, "{what} is {found}, not {expected}, in pass {passes}");
        };
        for i in 0..2 {
            found.dw[i].iter().zip(&expected.dw[i]).for_each(|(f, e)| near("dW", f64::from(*f), f64::from(*e), 1e-2));
            found.dbias[i].iter().zip(&expected.dbias[i]).for_each(|(f, e)| near("db", f64::from(*f), f64::from(*e), 1e-2));
        }
        let y = found.y.iter().zip(&expected.y).map(|(f, e)| (f.to_f64() - e.to_f64()).abs());
        assert!(y.fold(0.0, f64::max) < 2e-3);
    }
}
