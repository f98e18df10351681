//! One layer: all of its steps, over activations and regions, transpositions, leading dimensions, batches, accumulation.

use crate::matrix::{Lies, Matrix, Numbers, near};
use postlude::build::Builder;
use postlude::layer::Linear;
use postlude::prelude::*;

const ROWS: usize = 5;
const INPUTS: usize = 4;
const OUTPUTS: usize = 6;

/// An f, and the same as a plain function of row, column, entry and z.
type Function = (for<'g> fn(&'g Builder, Expr<'g>) -> Expr<'g>, fn(usize, usize, usize, f64) -> f64);

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

fn gelu_tanh(z: f64) -> f64 {
    0.5 * z * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (z + 0.044_715 * z * z * z)).tanh())
}

const FUNCTIONS: [Function; 8] = [
    (|_, z| z, |_, _, _, z| z),
    (|_, z| z.relu(), |_, _, _, z| z.max(0.0)),
    (|_, z| z.tanh(), |_, _, _, z| z.tanh()),
    (|_, z| z.gelu_tanh(), |_, _, _, z| gelu_tanh(z)),
    (|_, z| z.silu(), |_, _, _, z| z * sigmoid(z)),
    (
        |e, z| z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh()),
        |i, _, _, z| if i < 2 { sigmoid(z) } else { z.tanh() },
    ),
    (
        |e, z| z.region(e.column().lt(4), |z| z.relu()).otherwise(|z| z.gelu_tanh()),
        |_, j, _, z| if j < 4 { z.max(0.0) } else { gelu_tanh(z) },
    ),
    (
        |e, z| z.region(((e.row() + e.column()) % 2).eq(e.batch()), |z| z.tanh()).otherwise(|z| z * 0.5),
        |i, j, l, z| if (i + j) % 2 == l { z.tanh() } else { z * 0.5 },
    ),
];

#[derive(Clone, Debug)]
struct Problem {
    x: Matrix,
    w: Matrix,
    bias: Vec<f32>,
    /// The gradient of Y.
    upstream: Matrix,
}

impl Problem {
    fn new(seed: u64, [trans_x, trans_w]: [bool; 2], gap: usize, entries: usize) -> Problem {
        let mut numbers = Numbers(seed);
        let mut matrix =
            |rows, columns, transposed| Matrix::new(rows, columns, Lies { transposed, gap, entries }, |_, _, _| numbers.number());
        let (x, w) = (matrix(ROWS, INPUTS, trans_x), matrix(INPUTS, OUTPUTS, trans_w));
        let upstream = matrix(ROWS, OUTPUTS, false);
        Problem { x, w, bias: (0..OUTPUTS).map(|_| numbers.number()).collect(), upstream }
    }

    fn z(&self, l: usize, i: usize, j: usize) -> f64 {
        (0..INPUTS).map(|k| self.x.at(l, i, k) * self.w.at(l, k, j)).sum::<f64>() + f64::from(self.bias[j])
    }

    /// The derivative of f at an element, by a central difference.
    fn slope(&self, f: Function, l: usize, i: usize, j: usize) -> f64 {
        let (z, h) = (self.z(l, i, j), 1e-6);
        (f.1(i, j, l, z + h) - f.1(i, j, l, z - h)) / (2.0 * h)
    }

    /// The weighted sum of all outputs.
    fn loss(&self, f: Function) -> f64 {
        self.upstream.places().into_iter().map(|(l, i, j)| f.1(i, j, l, self.z(l, i, j)) * self.upstream.at(l, i, j)).sum()
    }

    /// The derivative of the loss by one number, by a central difference of a step so small that no kink lies in between, and
    /// by which an `f32` of few bits can move exactly.
    fn difference(&self, f: Function, change: impl Fn(&mut Problem, f32)) -> f64 {
        let h = 1.0 / 131_072.0;
        let at = |h| {
            let mut moved = self.clone();
            change(&mut moved, h);
            moved.loss(f)
        };
        (at(h) - at(-h)) / (2.0 * f64::from(h))
    }
}

fn with_scalars<'a>(args: HostArgs<'a>, step: &postlude::layer::Step) -> HostArgs<'a> {
    let wants = step.gemm().epilogue().arguments().iter().any(|a| &*a.name == "boundary");
    if wants { args.scalar("boundary", 2) } else { args }
}

/// Every step of one layer. With `held`, gradients are added to that.
fn check(f: Function, trans: [bool; 2], gap: usize, entries: usize, held: Option<f32>, seed: u64) {
    let p = Problem::new(seed, trans, gap, entries);
    let layer = Linear::new(F32, [INPUTS, OUTPUTS], f.0).unwrap();
    let layer = layer.trans_x(trans[0]).trans_w(trans[1]).batched(entries);
    let what = format!("{}, {trans:?}, gap {gap}, {entries} entries, onto {held:?}", layer.pair().forward());
    let lies = Lies { transposed: false, gap, entries };
    let empty = held.unwrap_or(f32::NAN);
    let base = f64::from(held.unwrap_or(0.0));

    let mut y = Matrix::new(ROWS, OUTPUTS, lies, |_, _, _| f32::NAN);
    let mut reserve = layer.reserve(ROWS);
    for saves in [false, true] {
        let step = if saves { layer.forward(ROWS) } else { layer.inference(ROWS) };
        let args = HostArgs::new().input("x", p.x.read()).input("w", p.w.read()).input("bias", &p.bias).output("y", y.write());
        let args = if saves { args.saving(&mut reserve) } else { args };
        step.reference(with_scalars(args, &step)).unwrap_or_else(|e| panic!("{e}\n{what}"));
        y.check(&what, |l, i, j| f.1(i, j, l, p.z(l, i, j)));
    }

    let accumulate = |step: postlude::layer::Step, name| if held.is_some() { step.accumulate(&[name]).unwrap() } else { step };
    let mut dz = Matrix::new(ROWS, OUTPUTS, lies, |_, _, _| f32::NAN);
    let mut dbias = vec![empty; OUTPUTS];
    let step = accumulate(layer.activation_grad(ROWS).unwrap(), "grad_bias");
    let args = HostArgs::new().input("dy", p.upstream.read()).output("grad_acc", dz.write()).output("grad_bias", &mut dbias);
    step.reference(with_scalars(args.saved(&reserve), &step)).unwrap_or_else(|e| panic!("{e}\n{what}"));
    dz.check(&what, |l, i, j| p.upstream.at(l, i, j) * p.slope(f, l, i, j));
    for (j, found) in dbias.iter().enumerate() {
        let expected = base + p.difference(f, |p, h| p.bias[j] += h);
        near(&format!("{what}\ndb[{j}]"), f64::from(*found), expected);
    }

    let move_in = |of: fn(&mut Problem) -> &mut Matrix, l, i, j| {
        p.difference(f, move |p, h| {
            let matrix = of(p);
            let at = matrix.index(l, i, j);
            matrix.data[at] += h;
        })
    };
    let mut dw = Matrix::new(INPUTS, OUTPUTS, Lies { transposed: trans[1], ..lies }, |_, _, _| empty);
    let step = accumulate(layer.wgrad(ROWS).unwrap(), "dw");
    let args = HostArgs::new().input("x", p.x.read()).input("dz", dz.read()).output("dw", dw.write());
    step.reference(args).unwrap_or_else(|e| panic!("{e}\n{what}"));
    dw.check(&what, |l, i, j| base + move_in(|p| &mut p.w, l, i, j));

    let mut dx = Matrix::new(ROWS, INPUTS, Lies { transposed: trans[0], ..lies }, |_, _, _| empty);
    let step = accumulate(layer.dgrad(ROWS).unwrap(), "dx");
    let args = HostArgs::new().input("dz", dz.read()).input("w", p.w.read()).output("dx", dx.write());
    step.reference(args).unwrap_or_else(|e| panic!("{e}\n{what}"));
    dx.check(&what, |l, i, j| base + move_in(|p| &mut p.x, l, i, j));
}

const TRANSPOSITIONS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

#[test]
fn every_activation_has_its_gradients() {
    for (seed, f) in FUNCTIONS.into_iter().enumerate() {
        check(f, [false, false], 0, 1, None, seed as u64);
        check(f, [false, true], 3, 2, Some(0.75), seed as u64 + 100);
    }
}

#[test]
fn every_transposition_leading_dimension_batch_and_accumulation() {
    for (seed, trans) in TRANSPOSITIONS.into_iter().enumerate() {
        for gap in [0, 5] {
            for entries in [1, 3] {
                for held in [None, Some(-1.5)] {
                    check(FUNCTIONS[6], trans, gap, entries, held, seed as u64 * 31 + gap as u64);
                }
            }
        }
    }
}

#[test]
fn an_empty_batch_of_rows_has_no_gradient() {
    let layer = Linear::new(F32, [2, 3], |_, z| z.tanh()).unwrap();
    let (mut dw, mut held) = ([f32::NAN; 6], [4.0f32; 6]);
    let none: [f32; 0] = [];
    fn args<'a>(none: &'a [f32; 0], dw: &'a mut [f32; 6]) -> HostArgs<'a> {
        HostArgs::new().input("x", none).input("dz", none).output("dw", dw)
    }
    layer.wgrad(0).unwrap().reference(args(&none, &mut dw)).unwrap();
    assert_eq!(dw, [0.0; 6]);
    layer.wgrad(0).unwrap().accumulate(&["dw"]).unwrap().reference(args(&none, &mut held)).unwrap();
    assert_eq!(held, [4.0; 6]);
    let (reserve, mut dbias) = (layer.reserve(0), [1.0f32, 2.0, 3.0]);
    let mut dz: [f32; 0] = [];
    let args = HostArgs::new().input("dy", &none).output("grad_acc", &mut dz).output("grad_bias", &mut dbias).saved(&reserve);
    layer.activation_grad(0).unwrap().accumulate(&["grad_bias"]).unwrap().reference(args).unwrap();
    assert_eq!(dbias, [1.0, 2.0, 3.0]);
}

#[test]
fn gradients_in_another_format_are_rounded_once_at_the_end() {
    use postlude::half::f16;
    let layer = Linear::new(F16, [1, 1], |_, z| z).unwrap().gradients(F32);
    let one = |x: f32| [f16::from_f32(x)];
    // 2049 is not an f16, and adding 1 to 2048 in f16 changes nothing.
    let (x, dz, mut dw) = (one(1.0), one(1.0), [2048.0f32]);
    let step = layer.wgrad(1).unwrap().accumulate(&["dw"]).unwrap();
    step.reference(HostArgs::new().input("x", &x).input("dz", &dz).output("dw", &mut dw)).unwrap();
    assert_eq!(dw, [2049.0]);
    let (mut back, mut dbias) = (one(0.0), [2048.0f32]);
    let reserve = layer.reserve(1);
    let step = layer.activation_grad(1).unwrap().accumulate(&["grad_bias"]).unwrap();
    let args = HostArgs::new().input("dy", &dz).output("grad_acc", &mut back).output("grad_bias", &mut dbias);
    step.reference(args.saved(&reserve)).unwrap();
    assert_eq!((back, dbias), (one(1.0), [2049.0]));
}

#[test]
fn a_kept_output_is_saved_once() {
    let epilogue = Epilogue::build(|e| e.store("y", (e.acc() + e.load("bias", F32.over(N))).tanh(), F32)).unwrap();
    let layer = Linear::with_epilogue(F32, [2, 2], &epilogue, postlude::grad::Wrt::all().keeps("y")).unwrap();
    assert!(layer.pair().reserve().is_empty());
    let (y, dy, mut dz, mut dbias) = ([0.5f32, 0.0], [1.0f32, 2.0], [0.0f32; 2], [0.0f32; 2]);
    let args = HostArgs::new().input("dy", &dy).input("y", &y).output("grad_acc", &mut dz).output("grad_bias", &mut dbias);
    layer.activation_grad(1).unwrap().reference(args).unwrap();
    assert_eq!((dz, dbias), ([0.75, 2.0], [0.75, 2.0]));
}

/// If each batch entry has its own bias, the product that computes the weight gradient sums each entry's.
#[test]
fn a_bias_of_each_entry_has_a_gradient_of_each_entry() {
    let epilogue = Epilogue::build(|e| e.store("y", e.acc() + e.load("bias", F32.over(N).batched()), F32)).unwrap();
    let layer = Linear::with_epilogue(F32, [1, 2], &epilogue, Wrt::all()).unwrap().batched(2);
    let (x, dz) = ([1.0f32, 2.0, 3.0, 4.0], [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let (mut dw, mut dbias) = ([f32::NAN; 4], [f32::NAN; 4]);
    let args = HostArgs::new().input("x", &x).input("dz", &dz).output("dw", &mut dw).output("grad_bias", &mut dbias);
    layer.wgrad_with_bias(2).unwrap().reference(args).unwrap();
    assert_eq!((dw, dbias), ([7.0, 10.0, 43.0, 50.0], [4.0, 6.0, 12.0, 14.0]));
}
