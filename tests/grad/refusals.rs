//! Refusals to differentiate: each names the reason and the cure.

use crate::softcap::softcap;
use postlude::dtype::ValueType;
use postlude::grad::{GradError, Keep, Wrt};
use postlude::ir::{Function, Graph, Node, NodeId, Op, Sink, SinkKind};
use postlude::prelude::*;
use postlude::{Builder, CustomOp};
use std::sync::Arc;

fn refused(build: impl FnOnce(&Builder), wrt: Wrt) -> String {
    let epilogue = Epilogue::build(build).unwrap_or_else(|e| panic!("{e}"));
    epilogue.backward(wrt).expect_err("it has no derivative").to_string()
}

#[test]
fn a_custom_primitive_without_a_derivative() {
    let at = line!() + 1;
    let build = |e: &Builder| e.store("d", e.custom(&softcap(), [e.acc(), e.load("cap", F32.over(N))]), F32);
    let found = refused(build, Wrt::all());
    assert!(found.starts_with("custom primitive `softcap` has no derivative with respect to its operand 1 (used at "), "{found}");
    assert!(
        found.contains(&format!("{}:{at}:", file!())) && found.ends_with("add one with `CustomOp::partial(1, ..)`"),
        "{found}"
    );
    // It is not asked for where the operand needs no gradient.
    let epilogue = Epilogue::build(build).unwrap();
    assert!(epilogue.backward(Wrt::accumulator()).is_ok());
    // Nor where no gradient comes in.
    let dead = Epilogue::build(|e| {
        build(e);
        e.store("count", e.custom(&softcap(), [e.acc(), e.load("cap", F32.over(N))]).gt(1.0), Bool);
        e.store("c", e.acc(), F32);
    });
    assert!(dead.unwrap().backward(Wrt::all().detached("d")).is_ok());
    let none = Arc::new(CustomOp::new("hard", 1, "rintf($0)", |x| x[0].round_ties_even()).unwrap());
    let found = refused(|e| e.store("d", e.custom(&none, [e.acc()]), F32), Wrt::all());
    assert!(found.starts_with("custom primitive `hard` has no derivative with respect to its operand 0"), "{found}");
}

/// The gradient of a table would be scattered; the index has none. Beside it a table is a constant.
#[test]
fn a_table_that_is_gathered_from() {
    let build = |e: &Builder| {
        let slope = e.gather("slope", F32, e.load("expert", I32.over(M)));
        e.store("d", (e.acc() * slope).tanh() + e.load("bias", F32.over(N)), F32);
    };
    for wrt in [Wrt::arguments(["slope"]), Wrt::all().format("slope", F32)] {
        let found = refused(build, wrt);
        assert!(found.contains("`slope`"), "{found}");
    }
    let found = refused(build, Wrt::arguments(["bias", "slope"]));
    assert!(
        found.starts_with("argument `slope` is a table") && found.ends_with("leave it out, and the table is a constant"),
        "{found}"
    );
    assert!(matches!(
        Epilogue::build(build).unwrap().backward(Wrt::arguments(["slope"])),
        Err(GradError::Table { name }) if name == "slope"
    ));
    let found = refused(build, Wrt::arguments(["expert"]));
    assert!(found.starts_with("argument `expert` holds i32 values"), "{found}");
    let pair = Epilogue::build(build).unwrap().backward(Wrt::all()).unwrap();
    let names: Vec<String> = pair.backward().arguments().iter().map(|a| a.name.to_string()).collect();
    assert!(names.contains(&"slope".into()) && names.contains(&"grad_bias".into()), "{names:?}");
    assert!(!names.iter().any(|name| name == "grad_slope"), "{names:?}");
}

static REVERSE: Function = Function {
    name: "reverse",
    doc: "x, whose gradient is turned round.",
    parameters: &["x"],
    body: |_, args| args[0],
    gradient: Some(|graph, _, _, g| vec![Some(graph.apply(Op::Neg, &[g]))]),
};

/// The same by way of another function.
static THROUGH: Function = Function {
    name: "through",
    body: |graph, args| graph.push(Node::Call { function: &PLAIN, args: args.to_vec() }, None),
    ..REVERSE
};

static PLAIN: Function = Function { name: "plain", gradient: None, ..REVERSE };

/// Twice the first; the second counts for nothing.
static TWICE: Function = Function {
    name: "twice",
    doc: "2 x.",
    parameters: &["x", "y"],
    body: |graph, args| {
        let two = graph.constant_f32(2.0);
        graph.apply(Op::Mul, &[args[0], two])
    },
    gradient: Some(|graph, _, _, g| {
        let two = graph.constant_f32(2.0);
        vec![Some(graph.apply(Op::Mul, &[g, two])), None]
    }),
};

/// D = the function of the accumulator and of what `rest` makes of it.
fn of_function(function: &'static Function, rest: impl Fn(&mut Graph, NodeId) -> Vec<NodeId>) -> Epilogue {
    let mut graph = Graph::new();
    let acc = graph.push(Node::Accumulator(ValueType::F32), None);
    let args = [vec![acc], rest(&mut graph, acc)].concat();
    let value = graph.push(Node::Call { function, args }, None);
    graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
    Epilogue::from_graph(graph).unwrap()
}

/// Its value is the argument, so nothing would tell where its derivative belongs: the identity's was taken in silence.
#[test]
fn a_derivative_of_an_argument_itself() {
    for function in [&REVERSE, &THROUGH] {
        let found = of_function(function, |_, _| Vec::new()).backward(Wrt::all()).unwrap_err();
        let expected = format!(
            "function `{}` has a derivative of its own, but its value is one of its arguments, which has another: make it a \
             `CustomOp` with `partial`s, whose value is distinct",
            function.name
        );
        assert_eq!(found.to_string(), expected);
    }
    assert!(of_function(&PLAIN, |_, _| Vec::new()).backward(Wrt::all()).is_ok());
    // A call whose argument equals its value is still a value of its own.
    let twice = of_function(&TWICE, |graph, acc| {
        let two = graph.constant_f32(2.0);
        vec![graph.apply(Op::Mul, &[acc, two])]
    });
    let backward = twice.backward(Wrt::all()).unwrap().backward().to_string();
    assert!(backward.contains("mul"), "{backward}");
}

#[test]
fn names() {
    let build = |e: &Builder| e.store("d", e.load("mask", Bool).select(e.acc(), e.load("x", F16)), F16);
    assert_eq!(refused(build, Wrt::arguments(["y"])), "the epilogue has no argument `y` that has a gradient; it has x");
    assert_eq!(refused(build, Wrt::all().and("y")), "the epilogue has no argument `y` that has a gradient; it has x");
    assert_eq!(
        refused(build, Wrt::arguments(["mask"])),
        "argument `mask` holds bool values, which have no gradient: leave it out"
    );
    assert_eq!(
        refused(build, Wrt::arguments([])),
        "there is nothing to differentiate with respect to: name an argument, or use `Wrt::all()`"
    );
    assert_eq!(refused(build, Wrt::all().through("e")), "the epilogue has no argument `e` that is an output; it has d");
    assert_eq!(
        refused(build, Wrt::all().keeps("x")),
        "the epilogue has no argument `x` that is stored and could be kept; it has d"
    );
    assert_eq!(
        refused(|e| e.store("d", e.acc() + e.load("grad_acc", F16), F16), Wrt::accumulator()),
        "the epilogue has an argument `grad_acc`, a name that its gradients need: build it with another name, or edit \
         the epilogue's text"
    );
    assert_eq!(
        refused(|e| e.store("d", e.acc() + e.load("acc", F16), F16), Wrt::all()),
        "the epilogue has an argument `acc`, a name that its gradients need: build it with another name, or edit the \
         epilogue's text"
    );
    // The longest names that leave room for those of the gradients, and one letter more.
    let named = |argument: usize, output: usize| {
        let (x, s) = ("x".repeat(argument), "s".repeat(output));
        Epilogue::build(|e| {
            e.store(&"d".repeat(64), e.acc() + e.load(&x, F16), F16);
            e.reduce(&s, e.acc(), Monoid::Sum, F32.over(N));
        })
        .unwrap()
        .backward(Wrt::all())
        .map_err(|e| e.to_string())
    };
    let long = |prefix: &str, letter: &str, most: usize| {
        let name = letter.repeat(most + 1);
        format!(
            "the name of the gradient of `{name}` begins with `{prefix}`, which makes it too long: use a name of at most {most} \
             characters"
        )
    };
    assert!(named(59, 55).is_ok());
    assert_eq!(named(60, 55).unwrap_err(), long("grad_", "x", 59));
    assert_eq!(named(59, 56).unwrap_err(), long("upstream_", "s", 55));
    let z = Wrt::all().format("z", F32);
    assert_eq!(refused(build, z), "the epilogue has no argument `z` that is differentiated with respect to; it has acc, x");
}

#[test]
fn outputs() {
    assert_eq!(
        refused(|e| e.store("d", e.acc().gt(0.0), Bool), Wrt::all()),
        "no gradient comes in as a matrix, which is the backward epilogue's accumulator: store a floating-point value \
         as f32, f64, f16 or bf16"
    );
    let amax = |e: &Builder| {
        e.store("d", e.acc(), F16);
        e.reduce("amax", e.acc(), Monoid::AbsMax, F32.pointer());
    };
    assert_eq!(
        refused(amax, Wrt::all()),
        "a gradient cannot come in through `amax`: among reductions only sums, of elements and of their squares, have \
         gradients; leave it out with `Wrt::detached`"
    );
    assert!(Epilogue::build(amax).unwrap().backward(Wrt::all().detached("amax")).is_ok());
    assert_eq!(
        refused(amax, Wrt::all().detached("amax").through("amax")),
        "a gradient cannot come in through `amax`: it is not a matrix of floating-point values; choose one that is \
         stored as f32, f64, f16 or bf16"
    );
    assert_eq!(
        refused(amax, Wrt::all().through("d").detached("d").detached("amax")),
        "a gradient cannot come in through `d`: it is detached as well; name it in `Wrt::through` or in \
         `Wrt::detached`, not in both"
    );
    let shared = |e: &Builder| e.store("d", e.load("x", F32.over(N)) * 2.0, F32.over(M | N));
    assert!(refused(shared, Wrt::all()).starts_with("a gradient cannot come in through `d`: the batch shares it"));
}

#[test]
fn formats_and_pins() {
    let build = |e: &Builder| e.store("d", e.acc().relu(), F16);
    assert_eq!(
        refused(build, Wrt::all().format("acc", I32)),
        "`the gradient of acc` cannot be kept as i32: a gradient is f32, f16 or bf16"
    );
    assert_eq!(
        refused(build, Wrt::all().masks(F16)),
        "`a saved condition` cannot be kept as f16: use `Bits8`, `Bits128` or `Bool`"
    );
    let mut acc = None;
    let epilogue = Epilogue::build(|e| {
        acc = Some(e.acc().id());
        build(e);
    });
    let wrong = epilogue.unwrap().backward(Wrt::all().pin(acc.unwrap(), Keep::As(Bool))).unwrap_err();
    assert!(matches!(wrong, GradError::Format { dtype: Bool, .. }), "{wrong}");
}
