//! The saved values: the fewest bits, under the user's rules, and only the right reserve is accepted.

use postlude::args::ArgumentFault;
use postlude::build::activation;
use postlude::compat::cublaslt::{self, Formats};
use postlude::dtype::ValueType;
use postlude::grad::{GradError, Keep, Pair, Wrt};
use postlude::ir::{Function, Graph, Node, NodeId, Op, Sink, SinkKind};
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{Builder, CustomOp, HostArgs, Operation};
use std::sync::Arc;

fn pair(build: impl FnOnce(&Builder), wrt: Wrt) -> Pair {
    Epilogue::build(build).unwrap_or_else(|e| panic!("{e}")).backward(wrt).unwrap()
}

fn bits(build: impl Fn(Expr<'_>) -> Expr<'_>) -> usize {
    pair(|e| e.store("d", build(e.acc() + e.load("bias", F16.over(N))), F16), Wrt::all()).reserve().bits_per_element()
}

/// As above, where the caller keeps the output.
fn bits_kept(build: impl Fn(Expr<'_>) -> Expr<'_>) -> usize {
    let wrt = Wrt::all().keeps("d");
    pair(|e| e.store("d", build(e.acc() + e.load("bias", F16.over(N))), F16), wrt).reserve().bits_per_element()
}

#[test]
fn each_activation_saves_what_it_has_to() {
    // Bits, and bits if the caller keeps the output.
    let expected = |name: &str| match name {
        "relu" => (1, 0),
        // An output that was rounded may be 6 where the value was not.
        "relu6" | "hardtanh" | "clamp" | "hardsigmoid" | "softshrink" | "leaky_relu" | "prelu" | "threshold" | "hardshrink"
        | "shrink" | "hardsigmoid_with" | "thresholded_relu" | "rrelu" => (1, 1),
        "affine" => (0, 0),
        "sigmoid" | "elu" | "selu" | "celu" | "softplus" | "log_sigmoid" => (16, 0),
        // The value, and on which side of 0 it is.
        "relu_squared" => (17, 17),
        _ => (16, 16),
    };
    let mut wrong = Vec::new();
    for function in activation::ALL {
        let mut graph = Graph::new();
        let acc = graph.push(Node::Accumulator(ValueType::F32), None);
        // Parameters are constants: the gradient of one that varies would need its factor.
        let parameters = function.parameters[1..].iter().map(|p| graph.constant_f32(if *p == "low" { -1.0 } else { 0.5 }));
        let args: Vec<NodeId> = std::iter::once(acc).chain(parameters).collect();
        let value = graph.push(Node::Call { function, args }, None);
        graph.sink(Sink::new("d", value, SinkKind::Store(F16.into())), None);
        let epilogue = Epilogue::from_graph(graph).unwrap();
        let bits = |wrt: Wrt| epilogue.backward(wrt).unwrap().reserve().bits_per_element();
        let found = (bits(Wrt::all()), bits(Wrt::all().keeps("d")));
        if found != expected(function.name) {
            wrong.push((function.name, found));
        }
    }
    assert!(wrong.is_empty(), "saved, and saved beside a kept output: {wrong:?}");
}

/// A kept output tells on which side of 0 its value was. It does not tell a remainder: a value that is rounded to 0 has another.
#[test]
fn a_kept_output_tells_signs_alone() {
    let bits = |of: fn(Expr<'_>) -> Expr<'_>| {
        let build = |e: &Builder| {
            e.store("z", e.acc(), F16);
            e.store("d", e.acc() * of(e.acc()), F32);
        };
        pair(build, Wrt::all().keeps("z")).reserve().bits_per_element()
    };
    assert_eq!(bits(|z| z.gt(0.0).select(z, 2.0)), 0);
    let turned = |e: &Builder| {
        e.store("z", e.acc(), F16);
        e.store("d", e.acc() * e.constant(0.0).lt(e.acc()).select(e.acc(), 2.0), F32);
    };
    assert_eq!(pair(turned, Wrt::all().keeps("z")).reserve().bits_per_element(), 0);
    assert_ne!(bits(|z| 0.0 % z), 0);
    assert_ne!(bits(|z| z % 0.0), 0);
}

#[test]
fn a_mask_of_relu_that_the_caller_keeps_is_saved_once() {
    let build = |e: &Builder| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store("d", z.relu(), F16);
        e.store("active", z.gt(0.0), Bits8);
        e.store("far", z.gt(1.0), Bits8);
    };
    let bits = |wrt| pair(build, wrt).reserve().bits_per_element();
    assert_eq!(bits(Wrt::all().keeps("far")), 1);
    // No other comparison with 0 will do.
    let others: [fn(Expr<'_>) -> Expr<'_>; 4] = [|z| z.lt(0.0), |z| z.le(0.0), |z| z.eq(0.0), |z| z.ne(0.0)];
    for other in others {
        let build = |e: &Builder| {
            e.store("d", e.acc().relu(), F16);
            e.store("other", other(e.acc()), Bits8);
        };
        assert_eq!(pair(build, Wrt::all().keeps("other")).reserve().bits_per_element(), 1);
    }
    assert_eq!(bits(Wrt::all().keeps("d")), 0);
    let kept = pair(build, Wrt::all().keeps("active"));
    assert_eq!(kept.reserve().bits_per_element(), 0);
    assert_eq!(*kept.forward(), Epilogue::build(build).unwrap());
    // Where z is positive, zero, negative or NaN.
    let (a, bias, mut d) = ([2.0f32, 0.0, -1.0, f32::NAN], [half::f16::ZERO; 4], [half::f16::ZERO; 4]);
    let (shape, operation) = (Shape::new(1, 4, 0), Operation::Pointwise { dtype: F32, order: Default::default() });
    let (mut active, mut far, mut reserve) = ([0u8], [0u8], kept.reserve().allocate(shape));
    let args = HostArgs::new().input("a", &a).input("bias", &bias).output("d", &mut d).output("far", &mut far);
    let args = args.output("active", &mut active).saving(&mut reserve);
    run(operation, kept.forward().checked(), shape, args, Precision::F32).unwrap();
    assert_eq!(active, [0b0001]);
    let mut dz = [half::f16::ZERO; 4];
    let mut dbias = dz;
    let args = HostArgs::new().input("a", &[1.0f32; 4]).input("active", &active).output("grad_acc", &mut dz);
    let args = args.output("grad_bias", &mut dbias).saved(&reserve);
    run(operation, kept.backward().checked(), shape, args, Precision::F32).unwrap();
    assert_eq!(dz.map(f32::from), [1.0, 0.0, 0.0, 0.0]);
}

/// cuBLASLt's mask is `z >= 0`: where z is 0 the gradient of the ReLU is the mask's.
#[test]
fn a_mask_of_cublaslt_that_the_caller_keeps_is_the_condition() {
    let epilogue = cublaslt::relu_aux_bias(Formats::of(F16)).unwrap();
    let bits = |wrt| epilogue.backward(wrt).unwrap().reserve().bits_per_element();
    assert_eq!(bits(Wrt::accumulator()), 1);
    assert_eq!(bits(Wrt::accumulator().keeps("aux")), 0);
    let pair = epilogue.backward(Wrt::arguments(["bias"]).keeps("aux")).unwrap();
    assert_eq!(*pair.forward(), epilogue);
    assert!(pair.backward().to_string().contains("load \"aux\" bits128"), "{}", pair.backward());
    // A mask that is not kept is not a condition: the ReLU's own is saved.
    let own = epilogue.backward(Wrt::accumulator()).unwrap();
    assert!(own.reserve().values()[0].value.contains("= gt "), "{:?}", own.reserve().values());
}

/// Two conditions are two bits, and a value that they select is sixteen.
#[test]
fn values_weigh_what_they_take() {
    let build = |e: &Builder| {
        let z = e.acc();
        e.store("d", z * z.gt(0.0).select(1.0, z.gt(-1.0).select(0.5, 0.25)), F16);
    };
    let found = pair(build, Wrt::all());
    assert_eq!(found.reserve().bits_per_element(), 2, "{}", found.forward());
}

#[test]
fn what_follows_from_arguments_and_places_costs_nothing() {
    let none = pair(
        |e| {
            let z = e.acc() * e.load("scale", F16.over(M)) + e.load("residual", F16);
            let causal = e.column().le(e.row());
            e.store("d", causal.select(z, 0.0) * e.scalar("alpha", F32), F16);
        },
        Wrt::accumulator(),
    );
    assert!(none.reserve().is_empty() && none.reserve().values().is_empty(), "{}", none.forward());
    assert_eq!(none.reserve().bytes(Shape::new(100, 100, 1)), 0);
    // Behind a region of ReLU the condition on places is free, that on values one bit.
    assert_eq!(bits(|z| z.relu()), 1);
    let masked = pair(|e| e.store("d", e.row().lt(5).select(e.acc().relu(), 0.0), F16), Wrt::all());
    assert_eq!(masked.reserve().bits_per_element(), 1);
    assert!(masked.backward().to_string().contains("bool[M] = lt "), "{}", masked.backward());
    // It is said which is which.
    let [free] = masked.reserve().free() else { panic!("{:?}", masked.reserve().free()) };
    assert!(free.why == "a condition on coordinates" && free.value.contains("bool[M] = lt "), "{free:?}");
    let text = masked.reserve().explain(Shape::new(8, 8, 0));
    assert!(text.contains(&format!("  0 bits: a condition on coordinates\n    {}\n", free.value)), "{text}");
    let why = |build: fn(&Builder)| pair(build, Wrt::accumulator()).reserve().free().iter().map(|f| f.why).collect::<Vec<_>>();
    let moving = |e: &Builder| {
        let border = e.row().lt(e.scalar("border", I32));
        e.store("d", border.select(e.acc() * e.load("scale", F16.over(M)), 0.0) * e.row().cast(F32), F16);
    };
    assert_eq!(why(moving), ["a condition on coordinates and arguments", "an argument", "from coordinates"]);
    assert!(why(|e| e.store("d", e.acc().relu(), F16)).is_empty());
}

#[test]
fn outputs_that_are_kept_are_free() {
    assert_eq!((bits(|z| z.tanh()), bits_kept(|z| z.tanh())), (16, 0));
    assert_eq!((bits(|z| z.exp()), bits_kept(|z| z.exp())), (16, 0));
    assert_eq!((bits(|z| z.sqrt()), bits_kept(|z| z.sqrt())), (16, 0));
    assert_eq!((bits(|z| z.gelu()), bits_kept(|z| z.gelu())), (16, 16));
    // A copy of its argument, stored for another purpose, serves as well.
    let with_z = pair(
        |e| {
            let z = e.acc() + e.load("bias", F16.over(N));
            e.store("z", z, F16);
            e.store("d", z.gelu(), F16);
        },
        Wrt::all().keeps("z"),
    );
    assert_eq!(with_z.reserve().bits_per_element(), 0);
    assert!(with_z.reserve().values()[0].is_output && with_z.backward().to_string().contains("load \"z\" f16[M,N,L]"));
}

#[test]
fn one_output_serves_a_region_of_sigmoid_and_of_tanh() {
    let build = |e: &Builder| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store("d", z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh()), F16);
    };
    let saved = pair(build, Wrt::all());
    assert_eq!(saved.reserve().bits_per_element(), 16);
    assert_eq!(saved.reserve().values()[0].why, "the output");
    assert_eq!(pair(build, Wrt::all().keeps("d")).reserve().bits_per_element(), 0);
    let backward = saved.backward().to_string();
    assert!(!backward.contains("tanh") && !backward.contains("exp"), "{backward}");
    // If one arm needs its argument, both have it.
    let mixed = |e: &Builder| {
        e.store("d", e.acc().region(e.row().lt(3), |z| z.sigmoid()).otherwise(|z| z.gelu()), F16);
    };
    assert_eq!(pair(mixed, Wrt::all()).reserve().bits_per_element(), 16);
}

#[test]
fn the_user_decides() {
    let build = |e: &Builder| e.store("d", (e.acc() + e.load("bias", F16.over(N))).gelu(), F16);
    assert_eq!(pair(build, Wrt::all().exact()).reserve().bits_per_element(), 32);
    let relu = |e: &Builder| e.store("d", e.acc().relu(), F16);
    assert_eq!(pair(relu, Wrt::all().masks(Bits128)).reserve().values()[0].operand, Operand::from(Bits128));
    assert_eq!(pair(relu, Wrt::all().masks(Bool)).reserve().bits_per_element(), 8);
    // The accumulator itself in f32, and the bias added again.
    let mut acc = None;
    let epilogue = Epilogue::build(|e| {
        acc = Some(e.acc().id());
        build(e);
    })
    .unwrap();
    let acc = acc.unwrap();
    let pinned = epilogue.backward(Wrt::all().pin(acc, Keep::As(F32))).unwrap();
    assert_eq!(pinned.reserve().values()[0].operand, Operand::from(F32));
    assert_eq!((pinned.reserve().values()[0].why, pinned.reserve().bits_per_element()), ("pinned", 32));
    assert!(pinned.backward().to_string().contains("load \"bias\" f16[N]"));
    // Nothing may be saved.
    let pins = epilogue.graph().nodes().fold(Wrt::all(), |wrt, (id, _)| wrt.pin(id, Keep::Recompute));
    // The values behind derivatives cannot be pinned by number; the sum and the accumulator are not enough to forbid
    // it.
    match epilogue.backward(pins) {
        Ok(pair) => assert!(pair.reserve().bits_per_element() > 16, "{}", pair.forward()),
        Err(e) => assert!(matches!(e, GradError::Pinned)),
    }
    let identity = Epilogue::build(|e| e.store("d", e.acc() * e.acc(), F16)).unwrap();
    let everything = identity.graph().nodes().fold(Wrt::all(), |wrt, (id, _)| wrt.pin(id, Keep::Recompute));
    assert!(matches!(identity.backward(everything), Err(GradError::Pinned)));
}

#[test]
fn sizes_are_those_of_memory() {
    let relu = pair(|e| e.store("d", e.acc().relu(), F16), Wrt::all());
    let plan = relu.reserve();
    assert_eq!(plan.bytes(Shape::new(4096, 4096, 1)), 4096 * 4096 / 8);
    assert_eq!(plan.bytes(Shape::new(3, 9, 1).batched(2)), 3 * 2 * 2);
    assert_eq!(plan.sizes(Shape::new(3, 9, 1)), [6]);
    // Lines of the other bit masks are multiples of 128 bits.
    let lines = pair(|e| e.store("d", e.acc().relu(), F16), Wrt::all().masks(Bits128));
    assert_eq!(lines.reserve().bytes(Shape::new(3, 9, 1)), 3 * 16);
    assert_eq!(lines.reserve().bytes(Shape::new(3, 129, 1).batched(2)), 2 * 3 * 32);
    let turned = pair(|e| e.store("d", e.acc().relu(), Operand::from(F16).column_major()), Wrt::all());
    assert_eq!(turned.reserve().bytes(Shape::new(3, 9, 1)), 9);
    assert_eq!(plan.allocate(Shape::new(3, 9, 1)).buffers().map(|(_, b)| b.len()).collect::<Vec<_>>(), [6]);
    let text = plan.explain(Shape::new(64, 64, 1));
    let expected = format!(
        "\
reserve       1 bit an element, 512 bytes for 64 x 64 x 1
  {}  bits8[M,N,L], 1 bit: a condition
    %3: bool[M,N,L] = gt %1, %2
recomputed    nothing
",
        plan.values()[0].name
    );
    assert_eq!(text, expected);
}

/// Runs both halves of a pair; the reserve goes from the first to the second.
fn both(first: &Pair, second: &Pair, made_for: Shape, shape: Shape) -> Result<Vec<f32>, Vec<(String, ArgumentFault)>> {
    let operation = Operation::Pointwise { dtype: F32, order: Default::default() };
    let mut reserve = first.reserve().allocate(made_for);
    let a: Vec<f32> = (0..made_for.m * made_for.n).map(|i| i as f32 - 3.0).collect();
    let mut d = vec![0.0f32; a.len()];
    let args = HostArgs::new().input("a", &a).output("d", &mut d).saving(&mut reserve);
    run(operation, first.forward().checked(), made_for, args, Precision::F32).unwrap();
    let g = vec![1.0f32; shape.m * shape.n];
    let mut dz = vec![0.0f32; g.len()];
    let args = HostArgs::new().input("a", &g).output("grad_acc", &mut dz).saved(&reserve);
    let faults = |e: postlude::args::ArgumentErrors| e.0.into_iter().map(|e| (e.name, e.fault)).collect();
    run(operation, second.backward().checked(), shape, args, Precision::F32).map_err(faults).map(|()| dz)
}

#[test]
fn a_reserve_that_is_read_is_not_written() {
    let relu = pair(|e| e.store("d", e.acc().relu(), F32), Wrt::all());
    let shape = Shape::new(1, 1, 0);
    let (reserve, mut d) = (relu.reserve().allocate(shape), [0.0f32]);
    let args = HostArgs::new().input("a", &[1.0f32]).output("d", &mut d).saved(&reserve);
    let operation = Operation::Pointwise { dtype: F32, order: Default::default() };
    let errors = run(operation, relu.forward().checked(), shape, args, Precision::F32).unwrap_err();
    assert_eq!(errors.0[0].fault, ArgumentFault::Saved { reserve: reserve.tag() });
    assert!(errors.to_string().ends_with("which this epilogue writes: pass it with `saving`"), "{errors}");
}

#[test]
fn only_the_right_reserve_is_taken() {
    let relu = pair(|e| e.store("d", e.acc().relu(), F32), Wrt::all());
    let shifted = pair(|e| e.store("d", (e.acc() + 1.0).relu(), F32), Wrt::all());
    let shape = Shape::new(2, 4, 0);
    assert_eq!(both(&relu, &relu, shape, shape).unwrap(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    // K belongs to another product.
    assert!(both(&relu, &relu, shape, Shape::new(2, 4, 77)).is_ok());
    let faults = both(&relu, &shifted, shape, shape).unwrap_err();
    assert!(
        matches!(&faults[..], [(missing, ArgumentFault::Missing { .. }), (foreign, ArgumentFault::ForeignReserve { .. })]
        if *missing == *shifted.reserve().values()[0].name && *foreign == *relu.reserve().values()[0].name),
        "{faults:?}"
    );
    for other in [Shape::new(4, 2, 0), Shape::new(2, 3, 0), Shape::new(1, 4, 0), Shape::new(2, 4, 0).batched(1).transposed()] {
        let faults = both(&relu, &relu, shape, other).unwrap_err();
        assert!(matches!(&faults[..], [(_, ArgumentFault::ReserveShape { .. })]), "{faults:?}");
    }
    // Forgotten.
    let mut dz = [0.0f32; 8];
    let args = HostArgs::new().input("a", &[1.0f32; 8]).output("grad_acc", &mut dz);
    let operation = Operation::Pointwise { dtype: F32, order: Default::default() };
    let error = run(operation, relu.backward().checked(), shape, args, Precision::F32).unwrap_err();
    let name = &relu.reserve().values()[0].name;
    let cure = "pass all of it with `.saved(&reserve)`, a `Reserve` of this `backward()` pair";
    let missing = format!("argument `{name}`: missing; it needs memory of bits8, M x N, row-major, of the reserve: {cure}");
    assert_eq!(error.to_string(), missing);
    assert_eq!(dz, [0.0; 8]);
    let mut d = [7.0f32; 8];
    let args = HostArgs::new().input("a", &[1.0f32; 8]).output("d", &mut d);
    let error = run(operation, relu.forward().checked(), shape, args, Precision::F32).unwrap_err();
    assert!(matches!(&error.0[..], [e] if e.name == **name && matches!(e.fault, ArgumentFault::Missing { .. })), "{error}");
    assert!(error.to_string().contains("`.saving(&mut reserve)`"), "{error}");
    assert_eq!(d, [7.0; 8]);
    // Memory from elsewhere under the same name belongs to no pair: its bits are believed.
    let mask = [0b0110u8, 0b1001];
    let mask = postlude::Tensor::of_bytes(Bits8, &mask);
    let args = HostArgs::new().input("a", &[1.0f32; 8]).output("grad_acc", &mut dz).input(name, mask);
    run(operation, relu.backward().checked(), shape, args, Precision::F32).unwrap();
    assert_eq!(dz, [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
    // A buffer of one's own that is too short.
    let short = relu.reserve().over(shape, vec![vec![0u8; 1]]).unwrap();
    let args = HostArgs::new().input("a", &[1.0f32; 8]).output("grad_acc", &mut dz).saved(&short);
    let error = run(operation, relu.backward().checked(), shape, args, Precision::F32).unwrap_err();
    assert!(
        matches!(error.0[..], [postlude::args::ArgumentError { fault: ArgumentFault::TooShort { needs: 12, got: 8, .. }, .. }]),
        "{error}"
    );
    assert!(relu.reserve().over(shape, vec![vec![0u8; 1]; 2]).is_err());
}

#[test]
fn a_partial_derivative_takes_what_its_spelling_uses() {
    let scale = CustomOp::new("scale", 2, "$0 * $1", |x| x[0] * x[1]);
    let scale = scale.and_then(|op| op.partial(0, "$1", |x| x[1])?.partial(1, "$0", |x| x[0])).unwrap();
    let scale = Arc::new(scale);
    let of_acc = pair(|e| e.store("d", e.custom(&scale, [e.acc(), e.load("w", F32.over(N))]), F32), Wrt::accumulator());
    assert!(of_acc.reserve().is_empty(), "{}", of_acc.reserve().explain(Shape::new(2, 4, 0)));
    let (mut dz, dy, w) = ([0.0f32; 8], [1.0f32; 8], [2.0f32, 3.0, 4.0, 5.0]);
    let args = HostArgs::new().input("a", &dy).input("w", &w).output("grad_acc", &mut dz);
    let operation = Operation::Pointwise { dtype: F32, order: Default::default() };
    run(operation, of_acc.backward().checked(), Shape::new(2, 4, 0), args, Precision::F32).unwrap();
    assert_eq!(dz, [2.0, 3.0, 4.0, 5.0, 2.0, 3.0, 4.0, 5.0]);
    let text = of_acc.backward().to_json();
    let registry = postlude::build::registry().with(scale.clone());
    assert_eq!(Epilogue::from_json(&text, &registry).unwrap(), *of_acc.backward());
}

#[test]
fn the_fingerprint_is_of_graph_and_plan() {
    let relu = |e: &Builder| e.store("d", e.acc().relu(), F16);
    let one = pair(relu, Wrt::all());
    assert_eq!(one.reserve().fingerprint(), pair(relu, Wrt::all()).reserve().fingerprint());
    assert_ne!(one.reserve().fingerprint(), pair(relu, Wrt::all().masks(Bool)).reserve().fingerprint());
    assert_ne!(one.reserve().fingerprint(), pair(|e| e.store("d", e.acc().relu(), BF16), Wrt::all()).reserve().fingerprint());
    // A function counts by its body, since its name may occur twice in two programs.
    const SHIFTED: Function = Function {
        name: "mine",
        doc: "e^x, or e^(x + 1).",
        parameters: &["x"],
        body: |graph, x| graph.apply(Op::Exp, x),
        gradient: None,
    };
    static ONE: Function = SHIFTED;
    static OTHER: Function = Function {
        body: |graph, x| {
            let one = graph.constant_f32(1.0);
            let more = graph.apply(Op::Add, &[x[0], one]);
            graph.apply(Op::Exp, &[more])
        },
        ..SHIFTED
    };
    let [first, second] = [&ONE, &OTHER].map(|function| {
        let mut graph = Graph::new();
        let acc = graph.push(Node::Accumulator(ValueType::F32), None);
        let value = graph.push(Node::Call { function, args: vec![acc] }, None);
        graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
        Epilogue::from_graph(graph).unwrap().backward(Wrt::all()).unwrap()
    });
    assert_ne!(first.reserve().fingerprint(), second.reserve().fingerprint());
    // A pair that was written down and read again is the same.
    let read: Epilogue = one.backward().to_string().parse().unwrap();
    assert_eq!(read, *one.backward());
    let read = Epilogue::from_json(&one.forward().to_json(), &postlude::build::registry()).unwrap();
    assert_eq!(read, *one.forward());
}

#[test]
fn more_bytes_than_there_are_is_as_many_as_can_be_counted() {
    let epilogue = Epilogue::build(|e| {
        e.store("y", e.acc() * e.load("c", F32), F32);
        e.store("c", e.acc(), F32);
    });
    let pair = epilogue.unwrap().backward(Wrt::all().through("y").detached("c")).unwrap();
    let shape = Shape::new(Shape::LARGEST, Shape::LARGEST, 1).batched(1024);
    assert_eq!((pair.reserve().sizes(shape), pair.reserve().bytes(shape)), (vec![usize::MAX; 2], usize::MAX));
    assert!(pair.reserve().explain(shape).contains(&usize::MAX.to_string()));
}

/// Reserves over device memory, without a copy: this need only compile.
#[cfg(feature = "cuda")]
#[allow(dead_code, reason = "there may be no device")]
fn a_reserve_over_device_memory(
    plan: &postlude::grad::ReservePlan,
    buffers: Vec<postlude::cudarc::driver::CudaSlice<u8>>,
    use_it: impl FnOnce(DeviceArgs<'_>, bool),
) {
    let mut reserve = plan.over(Shape::new(8, 8, 8), buffers).unwrap();
    use_it(DeviceArgs::new().saving(&mut reserve), true);
}
