//! Every activation against its formula, written out in `f64`.

use crate::support::Points;
use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::ir::{Constant, Node, Order};
use postlude::reference::{Precision, run};
use postlude::{DType, Epilogue, HostArgs, Operation};

type Formula = fn(f64, &[f64]) -> f64;

fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

fn softplus(x: f64) -> f64 {
    if x > 40.0 { x } else { x.exp().ln_1p() }
}

/// With the parameters to test at.
fn formula(name: &str) -> (&'static [f64], Formula) {
    match name {
        "relu" => (&[], |x, _| if x < 0.0 { 0.0 } else { x }),
        "relu6" => (&[], |x, _| if x.is_nan() { x } else { x.clamp(0.0, 6.0) }),
        "clamp" => (&[-0.75, 1.25], |x, p| if x.is_nan() { x } else { x.clamp(p[0], p[1]) }),
        "leaky_relu" | "prelu" => (&[0.125], |x, p| if x > 0.0 { x } else { p[0] * x }),
        "elu" => (&[1.5], |x, p| if x > 0.0 { x } else { p[0] * x.exp_m1() }),
        "selu" => (&[], |x, _| {
            let (scale, alpha) = (1.050_700_987_355_480_5, 1.673_263_242_354_377_2);
            scale * if x > 0.0 { x } else { alpha * x.exp_m1() }
        }),
        "celu" => (&[1.5], |x, p| if x > 0.0 { x } else { p[0] * (x / p[0]).exp_m1() }),
        "sigmoid" => (&[], |x, _| sigmoid(x)),
        "log_sigmoid" => (&[], |x, _| -softplus(-x)),
        "silu" => (&[], |x, _| x * sigmoid(x)),
        "gelu" | "gelu_erf" => (&[], |x, _| x * 0.5 * (1.0 + libm::erf(x / 2f64.sqrt()))),
        "gelu_tanh" => (&[], |x, _| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }),
        "gelu_quick" => (&[], |x, _| x * sigmoid(1.702 * x)),
        "hardswish" => (&[], |x, _| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0)),
        "hardsigmoid" => (&[], |x, _| (x + 3.0).clamp(0.0, 6.0) / 6.0),
        "hardtanh" => (&[], |x, _| x.clamp(-1.0, 1.0)),
        "softplus" => (&[0.5], |x, p| softplus(p[0] * x) / p[0]),
        "softsign" => (&[], |x, _| x / (1.0 + x.abs())),
        "mish" => (&[], |x, _| x * softplus(x).tanh()),
        "relu_squared" => (&[], |x, _| if x < 0.0 { 0.0 } else { x * x }),
        "softshrink" => (&[0.5], |x, p| if x.is_nan() { x } else { x - x.clamp(-p[0], p[0]) }),
        "threshold" => (&[0.25, -2.0], |x, p| if x > p[0] { x } else { p[1] }),
        "snake" => (&[0.75], |x, p| x + (p[0] * x).sin().powi(2) / p[0]),
        "swish" => (&[], |x, _| x * sigmoid(x)),
        "swish_beta" => (&[1.5], |x, p| x * sigmoid(p[0] * x)),
        "hardshrink" => (&[0.5], |x, p| if x > p[0] || x < -p[0] || x.is_nan() { x } else { 0.0 }),
        "shrink" => (&[0.25, 0.5], |x, p| match x {
            x if x < -p[1] => x + p[0],
            x if x > p[1] => x - p[0],
            x => x * 0.0,
        }),
        "tanhshrink" => (&[], |x, _| x - x.tanh()),
        "hardsigmoid_with" => (&[0.25, 0.5], |x, p| if x.is_nan() { x } else { (p[0] * x + p[1]).clamp(0.0, 1.0) }),
        "scaled_tanh" => (&[1.5, 0.75], |x, p| p[0] * (p[1] * x).tanh()),
        "thresholded_relu" => (&[0.25], |x, p| if x > p[0] || x.is_nan() { x } else { 0.0 }),
        "affine" => (&[1.5, -0.25], |x, p| p[0] * x + p[1]),
        "parametric_softplus" => (&[1.5, 0.5], |x, p| p[0] * softplus(p[1] * x)),
        "rrelu" => (&[0.125, 0.375], |x, p| if x > 0.0 { x } else { (p[0] + p[1]) / 2.0 * x }),
        other => panic!("write the formula of `{other}` here"),
    }
}

fn inputs() -> Vec<f64> {
    let edges = [1e-45f32, 1e-20, 1e-3, 0.25, 0.5, 0.75, 1.0, 1.25, 2.0, 3.0, 6.0, 8.0, 20.0, 100.0, 1e4, 1e18, f32::INFINITY];
    let edges = edges.into_iter().flat_map(|x| [-x, x]).chain([0.0, -0.0, f32::NAN]);
    edges.chain((-400..400).map(|i| i as f32 * 0.0173)).map(f64::from).collect()
}

fn points(function: &'static postlude::ir::Function, value: ValueType, parameters: &[f64], x: &[f64]) -> Points {
    let mut points = Points::new(x.len());
    let mut args = vec![points.load("x", value, x)];
    args.extend(parameters.iter().map(|p| points.graph.push(Node::Constant(Constant::of(value, *p)), None)));
    let y = points.graph.push(Node::Call { function, args }, None);
    points.store("y", y, value.storage());
    points
}

#[test]
fn every_activation_is_its_formula() {
    let x = inputs();
    for &function in activation::ALL {
        let (parameters, formula) = formula(function.name);
        assert_eq!(parameters.len() + 1, function.parameters.len(), "{}", function.name);
        let [points, doubles] = [ValueType::F32, ValueType::F64].map(|value| points(function, value, parameters, &x));
        let (exact, rounded) = (points.exact().remove(0), points.run(Precision::F32).remove(0));
        let double = doubles.run(Precision::F32).remove(0);
        for i in 0..x.len() {
            let expected = formula(x[i], parameters);
            // Constants are `f32`s, which explains the tolerance of the exact value.
            for (what, got, expected, tolerance) in [
                ("exact", exact[i], expected, 3e-7),
                ("f32", rounded[i], f64::from(expected as f32), 2e-6),
                ("f64", double[i], expected, 4e-15),
            ] {
                let near = (got - expected).abs() <= tolerance * expected.abs() + tolerance;
                let fits = if expected.is_finite() { near } else { got == expected || (got.is_nan() && expected.is_nan()) };
                assert!(fits, "{} of {} ({what}) is {got}, not {expected}", function.name, x[i]);
            }
        }
    }
}

#[test]
fn nan_stays_nan() {
    for &function in activation::ALL.iter().filter(|f| f.name != "threshold") {
        let (parameters, _) = formula(function.name);
        assert!(
            points(function, ValueType::F32, parameters, &[f64::NAN]).run(Precision::F32)[0][0].is_nan(),
            "{}",
            function.name
        );
    }
}

#[test]
fn a_call_means_its_body() {
    let epilogue = Epilogue::build(|e| e.store("y", e.load("x", DType::F32).mish(), DType::F32)).unwrap();
    let x = inputs();
    let mut inlined = Points::new(x.len());
    inlined.load("x", ValueType::F32, &x);
    inlined.graph = postlude::pass::inline(epilogue.checked()).graph().clone();
    let mut called = Points::new(x.len());
    called.load("x", ValueType::F32, &x);
    called.graph = epilogue.graph().clone();
    let bits = |p: &Points| p.run(Precision::F32)[0].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&called), bits(&inlined));
}

fn point() -> Operation {
    Operation::Pointwise { dtype: DType::F32, order: Order::RowMajor }
}

#[test]
fn functions_of_whole_numbers_take_integers() {
    let x = [-9, -3, -1, 0, 1, 2, 3, 7, i32::MAX, i32::MIN];
    let epilogue = Epilogue::build(|e| {
        let x = e.load("x", DType::I32);
        e.store("relu", x.relu(), DType::I32);
        e.store("clamp", x.clamp(-2, 2), DType::I32);
        e.store("relu6", x.relu6(), DType::I32);
        e.store("leaky", x.leaky_relu(3), DType::I32);
        e.store("shrunk", x.hardshrink(2), DType::I32);
        e.store("acc", e.acc(), DType::F32);
    });
    let epilogue = epilogue.unwrap();
    let (zeros, mut acc) = ([0f32; 10], [0f32; 10]);
    let mut out = [[0i32; 10]; 5];
    let [relu, clamp, relu6, leaky, shrunk] = &mut out;
    let args = HostArgs::new().input("a", &zeros).input("x", &x).output("acc", &mut acc).output("relu", relu);
    let args = args.output("clamp", clamp).output("relu6", relu6).output("leaky", leaky).output("shrunk", shrunk);
    run(point(), epilogue.checked(), postlude::Shape::new(2, 5, 0), args, Precision::F32).unwrap();
    type Formula = fn(i32) -> i32;
    let formulas: [Formula; 5] = [
        |x| x.max(0),
        |x| x.clamp(-2, 2),
        |x| x.clamp(0, 6),
        |x| if x > 0 { x } else { x.wrapping_mul(3) },
        |x| if (-2..=2).contains(&x) { 0 } else { x },
    ];
    for (got, formula) in out.iter().zip(formulas) {
        // The magnitude of the least integer is that integer, which is below every limit.
        let expected: Vec<i32> = x.iter().map(|x| formula(*x)).collect();
        assert_eq!(got[..9], expected[..9]);
    }
    let text = Epilogue::build(|e| e.store("d", e.acc_i32().sigmoid(), DType::F32)).unwrap_err().to_string();
    assert!(text.contains("`sigmoid` takes f32 operands"), "{text}");
    let text = Epilogue::build(|e| e.store("d", e.acc_i32().clamp(0.0, 1), DType::I32)).unwrap_err().to_string();
    assert!(text.contains("`clamp` takes operands all f32 or all i32"), "{text}");
}
