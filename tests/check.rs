//! Diagnostics of graphs built in Rust: they name the line of Rust, print the listing with carets, and end with the cure.

#[path = "support/diff.rs"]
mod diff;
#[path = "support/softcap.rs"]
mod softcap;

use postlude::build::recipes;
use postlude::check::{Role, Severity};
use postlude::compat::cublaslt::{self, Formats};
use postlude::dtype::ValueType;
use postlude::ir::{Constant, Function, Graph, Node, NodeId, Sink, SinkKind};
use postlude::layer::{Linear, LinearError};
use postlude::plan::Problem;
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Builder, CustomOp, Diagnostics, Op};
use std::sync::Arc;

/// The diagnostics of a graph that must have some.
fn faults(build: impl FnOnce(&Builder)) -> Diagnostics {
    Epilogue::build(build).expect_err("the graph is at fault")
}

fn codes(diagnostics: &Diagnostics) -> Vec<&'static str> {
    diagnostics.iter().map(|d| d.code()).collect()
}

fn assert_text(found: &Diagnostics, expected: &str) {
    let found = found.to_string();
    assert!(found == expected, "\n{}", diff::lines(expected, &found));
}

/// `file:line` of the line that is `down` lines below the call of this.
#[track_caller]
fn line(down: u32) -> String {
    format!("{}:{}", file!(), std::panic::Location::caller().line() + down)
}

#[test]
fn an_integer_and_a_float_do_not_mix() {
    let at = line(2);
    let found = faults(|e| {
        let y = e.acc() * e.row();
        e.store("d", y, F16);
    });
    let expected = format!(
        "\
error[E0201]: `mul` takes operands all f32 or all i32
  --> {at}:17
   |
   | %2 = mul %0, %1
   |          ^^  ^^ i32[M]
   |          |
   |          f32[M,N,L]
   |
   = help: insert `.cast(F32)` on an integer, or write a constant in the other operand's type (`2.0`, not `2`)

1 error in the epilogue"
    );
    assert_text(&found, &expected);
}

#[test]
fn an_epilogue_stores_something() {
    let at = line(1);
    let found = Epilogue::build(|e| {
        let _forgotten = e.acc().relu();
    });
    let expected = format!(
        "\
error[E0101]: the epilogue stores nothing
  --> {at}:17
   |
   = help: end it with `e.store(\"d\", value, F16)`

1 error in the epilogue"
    );
    assert_text(&found.unwrap_err(), &expected);
}

#[test]
fn a_load_is_used() {
    let at = line(2);
    let found = faults(|e| {
        let _bias = e.load("bias", F16.over(N));
        e.store("d", e.acc(), F16);
    });
    let expected = format!(
        "\
error[E0104]: argument `bias` reaches no sink
  --> {at}:23
   |
   | %0 = load \"bias\" f16[N]
   |           ^^^^^^ never used
   |
   = help: use it, or remove it: otherwise a launch would have to pass it without effect

1 error in the epilogue"
    );
    assert_text(&found, &expected);
}

#[test]
fn an_unused_argument_may_be_a_warning() {
    let at = line(2);
    let (epilogue, warnings) = Epilogue::build_lenient(|e| {
        let [bias, _gain] = ["bias", "gain"].map(|name| e.load(name, F16.over(N)));
        let _index = e.gather("table", F32, e.load("index", I32.over(M)));
        let _ = (e.scalar("alpha", F32), e.load_or("beta", F32.pointer(), 1.0));
        e.store("d", e.acc() + bias, F16);
    })
    .unwrap();
    let expected = format!(
        "\
warning[E0104]: argument `gain` reaches no sink
  --> {at}:59
   |
   | %1 = load \"gain\" f16[N]
   |           ^^^^^^ never used
   |
   = help: use it, or remove it: a launch may pass it, and nothing reads it"
    );
    let found = warnings[0].to_string();
    assert!(found == expected, "\n{}", diff::lines(&expected, &found));
    assert!(warnings.iter().all(|warning| warning.severity() == Severity::Warning && warning.code() == "E0104"));
    let arguments: Vec<String> = epilogue.arguments().iter().map(ToString::to_string).collect();
    let unused = ["gain: f16[N] input", "index: i32[M] input", "table: f32 table", "alpha: f32 scalar", "beta: f32[] input"];
    let expected: Vec<String> = unused.iter().map(|argument| format!("{argument} (unused)")).collect();
    assert_eq!(warnings.len(), unused.len());
    assert_eq!(arguments[2..], expected);
    // The check does not look at the layout of unused arguments.
    let gemm = Gemm::new(F16, TN, &epilogue);
    let shape = Shape::new(64, 48, 32);
    let said = Problem::from(shape).ld("gain", 3).batch_stride("alpha", 1).align("beta", 3);
    let plan = |problem| gemm.kernel_plan(Target::SM_80, 108, problem).unwrap().source().unwrap();
    assert_eq!(plan(said), plan(shape.into()));
    // Without them it is a graph like any other.
    let plain = Epilogue::build(|e| {
        let bias = e.load("bias", F16.over(N));
        e.store("d", e.acc() + bias, F16);
    });
    assert_eq!(epilogue.to_string(), plain.unwrap().to_string());
    assert_eq!(epilogue.to_string().parse::<Epilogue>().unwrap().arguments(), &epilogue.arguments()[..2]);
    // Without unused arguments there is no warning, and errors stay errors.
    let (again, warnings) = Epilogue::from_graph_lenient(epilogue.graph()).unwrap();
    assert_eq!((again.arguments(), warnings.len()), (&epilogue.arguments()[..2], 0));
    let found = Epilogue::build_lenient(|e| {
        let _bias = e.load("bias", F16.over(N));
        e.store("d", e.acc() + e.row(), F16);
    });
    assert_eq!(codes(&found.unwrap_err()), ["E0201"]);
}

#[test]
fn a_second_meaning_points_at_the_first() {
    let at = line(2);
    let found = faults(|e| {
        let x = e.load("x", F16.over(N));
        let y = e.load("x", F16.over(M));
        e.store("d", e.acc() + x + y, F16);
    });
    let (first, second) = (format!("{at}:19"), format!("{}:19", below(&at, 1)));
    let expected = format!(
        "\
error[E0103]: `x` has two meanings: f16[N] input and f16[M] input
  --> {second}
   |
   | %1 = load \"x\" f16[M]
   |               ^^^^^^ f16[M] input
   |
   = note: it is first used here: `%0 = load \"x\" f16[N]`
       at {first}
   = help: give each argument a name of its own

1 error in the epilogue"
    );
    assert_text(&found, &expected);
}

#[test]
fn a_default_is_of_its_argument_s_type() {
    let at = line(2);
    let found = faults(|e| {
        let z = e.acc() + e.load_or("bias", F16.over(N), 0);
        e.store("d", z * e.scalar_or("count", I32, 1.0).cast(F32), F16);
    });
    let (first, second) = (format!("{at}:29"), format!("{}:28", below(&at, 1)));
    let expected = format!(
        "\
error[E0111]: the default of an argument of f32 is of type i32
  --> {first}
   |
   | %1 = load \"bias\" f16[N] or i32 0
   |                  ^^^^^^    ^^^^^
   |                  |
   |                  holds f32 values
   |
   = help: write a floating-point number, such as `0.0`

error[E0111]: the default of an argument of i32 is of type f64
  --> {second}
   |
   | %3 = scalar \"count\" i32 or f64 1.0
   |                     ^^^    ^^^^^^^
   |                     |
   |                     holds i32 values
   |
   = help: write an integer, such as `0`

2 errors in the epilogue"
    );
    assert_text(&found, &expected);
}

/// The place some lines below another.
fn below(at: &str, down: u32) -> String {
    let (file, number) = at.rsplit_once(':').unwrap();
    format!("{file}:{}", number.parse::<u32>().unwrap() + down)
}

#[test]
fn every_fault_is_reported_at_once_and_none_that_only_follows() {
    let at = line(2);
    let found = faults(|e| {
        let bad = e.acc() + e.column();
        let consequence = bad.gelu() * 2.0;
        let _unused = e.scalar("unused", F32);
        e.store("d", consequence, F16);
        e.store("d", e.acc(), F16);
        e.store("v", e.acc(), F16.over(N));
        e.store("i", e.acc(), I32);
    });
    assert_eq!(codes(&found), ["E0201", "E0104", "E0103", "E0301", "E0303"]);
    let lines: Vec<_> = found.iter().map(|d| d.built_at().unwrap().rsplit_once(':').unwrap().0.to_owned()).collect();
    assert_eq!(lines, [0, 2, 4, 5, 6].map(|down| below(&at, down)));
    assert!(found.to_string().ends_with("\n\n5 errors in the epilogue"));
}

#[test]
fn operators_methods_and_numbers_name_the_line_of_their_caller() {
    type Case = (fn(&Builder), u32);
    let cases: &[Case] = &[
        (|e| e.store("d", e.acc() + 1, F16), line!()),
        (|e| e.store("d", 1 + e.acc(), F16), line!()),
        (|e| e.store("d", e.acc().max(2), F16), line!()),
        (|e| e.store("d", -e.acc().lt(0.0), F16), line!()),
        (|e| e.store("d", !e.acc(), F16), line!()),
        (|e| e.store("d", e.acc() & true, F16), line!()),
        (|e| e.store("d", e.acc().leaky_relu(1), F16), line!()),
        (|e| e.store("d", e.row().gelu(), F16), line!()),
        (|e| e.store("d", e.acc().fma(1, 2), F16), line!()),
        (|e| e.store("d", e.acc().select(1.0, 2.0), F16), line!()),
        (|e| e.store("d", e.acc().region(e.acc(), |z| z.relu()).otherwise(|z| z), F16), line!()),
        (|e| e.store("d", e.custom(&softcap::softcap(), [e.acc(), e.row()]), F16), line!()),
        (|e| e.store("d", e.acc().lt(0.0), F16), line!()),
    ];
    for (build, line) in cases {
        let found = faults(*build);
        let at = found.iter().next().unwrap().built_at().unwrap();
        assert!(at.starts_with(&format!("{}:{line}:", file!())), "expected line {line}:\n{found}");
    }
}

#[test]
fn an_expression_of_another_builder_is_reported_where_it_is_used() {
    let mut inner = None;
    let at = line(4);
    let outer = Epilogue::build(|outer| {
        let z = outer.acc() + outer.load("bias", F16.over(N));
        inner = Some(faults(|e| {
            let y = e.acc() * z;
            e.store("d", y.lt(e.row().cast(F32)).select(y, 0.0), F16);
        }));
        outer.store("d", z, F16);
    });
    // It has the type it has over there, so nothing else is reported; and the outer one is as it was.
    let expected = format!(
        "\
error[E0105]: an expression of another builder is used here
  --> {at}:21
   |
   = help: build every expression of an epilogue with the builder handed to its own closure

1 error in the epilogue"
    );
    assert_text(&inner.unwrap(), &expected);
    assert_eq!(outer.unwrap().arguments().len(), 2);
}

#[test]
fn an_expression_of_another_builder_is_found_wherever_it_stands() {
    let _ = Epilogue::build(|outer| {
        let (z, row) = (outer.acc(), outer.row());
        // The operator belongs to its left operand: `row` makes its sum over there, which is seen when it comes back.
        let cases: Vec<Diagnostics> = vec![
            faults(|e| e.store("d", z, F16)),
            faults(|e| e.store("d", z + e.acc(), F16)),
            faults(|e| e.store("d", e.acc().max(z), F16)),
            faults(|e| e.store("d", e.acc().fma(1.0, z), F16)),
            faults(|e| e.store("d", e.acc().elu(z), F16)),
            faults(|e| e.store("d", 1.0 - z, F16)),
            faults(|e| e.store("d", e.row().lt(row + 1).select(e.acc(), 0.0), F16)),
            faults(|e| e.store("d", e.custom(&softcap::softcap(), [e.acc(), z]), F16)),
            faults(|e| e.store("d", e.acc().region(row.lt(3), |z| z).otherwise(|z| z), F16)),
            faults(|e| e.store("d", e.acc().region(e.row().lt(3), |_| z).otherwise(|z| z), F16)),
            faults(|e| e.store("d", e.acc().region(e.row().lt(3), |z| z).otherwise(|_| z), F16)),
        ];
        for found in &cases {
            assert_eq!(codes(found), ["E0105"], "{found}");
            assert!(found.iter().next().unwrap().built_at().unwrap().starts_with(file!()), "{found}");
        }
    });
}

#[test]
fn one_name_of_a_custom_primitive_is_one_definition() {
    let softcap = |cuda| Arc::new(CustomOp::new("softcap", 1, cuda, |x| x[0].tanh()).unwrap());
    let (exact, fast) = (softcap("tanhf($0)"), softcap("__tanhf($0)"));
    let at = line(2);
    let found = faults(|e| {
        let (y, z) = (e.custom(&exact, [e.acc()]), e.custom(&exact, [e.acc() * 2.0]));
        let w = e.custom(&fast, [y + z]);
        e.store("d", w, F16);
    });
    assert_eq!(codes(&found), ["E0108"]);
    let fault = found.iter().next().unwrap();
    assert!(fault.built_at().unwrap().starts_with(&below(&at, 1)), "{found}");
    assert!(found.to_string().contains("^^^^^^^ another definition"), "{found}");
    assert!(found.to_string().contains(&format!("at {at}:")), "{found}");
    // One definition that was made twice is one.
    assert!(Epilogue::build(|e| e.store("d", e.custom(&exact, [e.custom(&softcap("tanhf($0)"), [e.acc()])]), F16)).is_ok());
}

/// 2 x.
const TWICE: Function = Function {
    name: "twice",
    doc: "2 x.",
    parameters: &["x"],
    body: |graph, args| graph.apply(Op::Add, &[args[0], args[0]]),
    gradient: None,
};

fn call(graph: &mut Graph, function: &'static Function, args: &[NodeId]) -> NodeId {
    graph.push(Node::Call { function, args: args.to_vec() }, None)
}

/// D = these functions of the accumulator, one after the other.
fn calling(functions: &[&'static Function]) -> Result<Epilogue, Diagnostics> {
    let mut graph = Graph::new();
    let acc = graph.push(Node::Accumulator(ValueType::F32), None);
    let value = functions.iter().fold(acc, |x, function| call(&mut graph, function, &vec![x; function.parameters.len()]));
    graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
    Epilogue::from_graph(graph)
}

/// Code and message of the one fault of an epilogue that calls these.
#[track_caller]
fn fault_of(functions: &[&'static Function]) -> (&'static str, String) {
    let found = calling(functions).unwrap_err();
    let fault = found.iter().next().unwrap();
    assert_eq!(found.iter().count(), 1, "{found}");
    assert!(!fault.cure().is_empty());
    (fault.code(), fault.message().to_owned())
}

#[test]
fn one_name_of_a_function_is_one_definition() {
    static ONE: Function = TWICE;
    static OTHER: Function = Function { body: |_, args| args[0], ..TWICE };
    static RELU: Function = Function { name: "relu", ..TWICE };
    static ADD: Function = Function { name: "add", ..TWICE };
    static WORDS: Function = Function { name: "two words", ..TWICE };
    static ACC: Function = Function { name: "acc", ..TWICE };
    static NOTHING: Function = Function { name: "", ..TWICE };
    static TURNED: Function = Function { name: "pay\u{202e}eet", ..TWICE };
    static DOUBLE: Function = Function { name: "twice\u{200b}", ..TWICE };
    let relu = postlude::build::registry().function("relu").unwrap();
    let fault = |code, message: &str| (code, message.to_owned());
    assert_eq!(fault_of(&[&ONE, &OTHER, &ONE]), fault("E0108", "`twice` names two functions"));
    for functions in [&[&RELU][..], &[&RELU, relu], &[relu, &RELU]] {
        assert_eq!(fault_of(functions), fault("E0108", "`relu` is an activation, and this is another function"));
    }
    assert_eq!(fault_of(&[&ADD, &ONE, &ADD]), fault("E0109", "`add` is a primitive, and this is a function"));
    for (function, name) in
        [(&WORDS, "two words"), (&ACC, "acc"), (&NOTHING, ""), (&TURNED, "pay\\u{202e}eet"), (&DOUBLE, "twice\\u{200b}")]
    {
        assert!(!calling(&[function]).unwrap_err().to_string().contains(['\u{202e}', '\u{200b}']));
        assert_eq!(fault_of(&[function]), fault("E0109", &format!("`{name}` is not a name for a function")));
    }
    // A program with the function can read back a valid graph.
    let epilogue = calling(&[&ONE, relu, &ONE]).unwrap();
    let registry = Registry::of(&[&ONE, relu]);
    assert_eq!(Epilogue::from_text(&epilogue.to_string(), &registry).unwrap(), epilogue);
    assert_eq!(Epilogue::from_json(&epilogue.to_json(), &registry).unwrap(), epilogue);
    // A custom primitive is written as one, and may have the name.
    let custom = Arc::new(CustomOp::new("relu", 1, "$0", |x| x[0]).unwrap());
    assert!(Epilogue::build(|e| e.store("d", e.custom(&custom, [e.acc().relu()]), F16)).is_ok());
}

#[test]
fn a_body_keeps_the_rules() {
    static INTEGER: Function = Function { body: |graph, args| graph.apply(Op::ToI32, args), ..TWICE };
    static MIXED: Function = Function {
        body: |graph, args| {
            let integer = graph.apply(Op::ToI32, args);
            graph.apply(Op::Add, &[args[0], integer])
        },
        ..TWICE
    };
    static COUNT: Function = Function { body: |graph, args| graph.apply(Op::Add, args), ..TWICE };
    static LOADS: Function = Function { body: |graph, _| graph.push(Node::load("x", F32), None), ..TWICE };
    static GATHERS: Function = Function {
        body: |graph, _| {
            let index = graph.push(Node::Constant(Constant::I32(0)), None);
            graph.push(Node::Gather { name: "x".into(), dtype: F32, args: vec![index] }, None)
        },
        ..TWICE
    };
    static STORES: Function = Function {
        body: |graph, args| {
            graph.sink(Sink::new("e", args[0], SinkKind::Store(F32.into())), None);
            args[0]
        },
        ..TWICE
    };
    static FOREIGN: Function = Function {
        body: |_, _| {
            let mut other = Graph::new();
            (0..9).map(|i| other.constant_f32(i as f32)).last().unwrap()
        },
        ..TWICE
    };
    static EMPTIES: Function = Function {
        body: |graph, args| {
            *graph = Graph::new();
            args[0]
        },
        ..TWICE
    };
    static CALLS: Function = Function { name: "calls", body: |graph, args| call(graph, &INTEGER, args), ..TWICE };
    static MISCALLS: Function = Function { body: |graph, args| call(graph, &CALLS, &[args[0], args[0]]), ..TWICE };
    static CONSTANT: Function = Function { parameters: &[], body: |graph, _| graph.constant_f32(3.0), ..TWICE };
    let expect = |functions: &[&'static Function], message: &str| {
        assert_eq!(fault_of(functions), ("E0205", format!("the body of `twice`{message}")));
    };
    expect(&[&INTEGER], " gives i32, and a function's value is f32");
    expect(&[&CALLS, &CALLS], ", which `calls` calls, gives i32, and a function's value is f32");
    expect(&[&MIXED], " is wrong: `add` takes operands all f32 or all i32");
    expect(&[&COUNT], " is wrong: `add` takes 2 operands, not 1");
    expect(&[&LOADS], " uses `load`, which is not one of its arguments");
    expect(&[&GATHERS], " uses `gather`, which is not one of its arguments");
    expect(&[&STORES], " stores something");
    expect(&[&FOREIGN], " gives a value of another graph");
    expect(&[&EMPTIES], " gives a value of another graph");
    let miscalls = calling(&[&MISCALLS]).unwrap_err();
    assert_eq!(codes(&miscalls), ["E0205", "E0205"]);
    assert!(miscalls.to_string().contains("the body of `twice` is wrong: `calls` takes 1 operand, not 2"), "{miscalls}");
    let found = calling(&[&MIXED]).unwrap_err();
    let expected = "\
error[E0205]: the body of `twice` is wrong: `add` takes operands all f32 or all i32
   |
   | %1 = twice %0
   |      ^^^^^
   |
   = note: it is this line of the body: `%2 = add %0, %1`
   = help: insert `.cast(F32)` on an integer, or write a constant in the other operand's type (`2.0`, not `2`)

1 error in the epilogue";
    assert_text(&found, expected);
    // A wrong count of arguments is that of the call: the body is never handed it.
    let mut graph = Graph::new();
    let acc = graph.push(Node::Accumulator(ValueType::F32), None);
    static FINE: Function = TWICE;
    let value = call(&mut graph, &FINE, &[]);
    graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
    graph.sink(Sink::new("e", acc, SinkKind::Store(F32.into())), None);
    assert_eq!(codes(&Epilogue::from_graph(graph).unwrap_err()), ["E0202"]);
    assert!(calling(&[&FINE]).is_ok() && calling(&[&CONSTANT]).is_ok());
}

#[test]
fn a_function_does_not_call_itself() {
    static SELF: Function = Function { body: |graph, args| call(graph, &SELF, args), ..TWICE };
    static PING: Function = Function { name: "ping", body: |graph, args| call(graph, &PONG, args), ..TWICE };
    static PONG: Function = Function { name: "pong", body: |graph, args| call(graph, &PING, args), ..TWICE };
    static INTO: Function = Function { name: "into", body: |graph, args| call(graph, &PING, args), ..TWICE };
    // Twice on the way, and no circle.
    static LEAF: Function = Function { name: "leaf", ..TWICE };
    static FOUR: Function = Function {
        name: "four",
        body: |graph, args| {
            let two = call(graph, &LEAF, args);
            call(graph, &LEAF, &[two])
        },
        ..TWICE
    };
    let expect = |functions: &[&'static Function], message: &str| assert_eq!(fault_of(functions), ("E0206", message.to_owned()));
    expect(&[&SELF], "`twice` calls itself");
    expect(&[&PING], "`ping` calls itself through `pong`");
    expect(&[&INTO, &PONG], "`ping` calls itself through `pong`");
    assert!(calling(&[&FOUR, &LEAF]).is_ok());
}

#[test]
fn diagnostics_are_gone_through_by_reference() {
    let found = faults(|e| e.store("", e.acc() + e.row().cast(F32) * e.load("", F32), F16));
    let seen: Vec<&str> = (&found).into_iter().map(|d| d.code()).collect();
    assert_eq!(seen, codes(&found));
    assert!(seen.len() > 1, "{found}");
}

#[test]
fn unwrap_prints_the_diagnostics_as_they_are() {
    let found = faults(|e| e.store("d", e.row(), F16));
    assert_eq!(format!("{found:?}"), format!("\n{found}"));
}

#[test]
fn a_huge_name_does_not_flood_the_screen() {
    let name = "x".repeat(100_000);
    let found = faults(|e| e.store(&name, e.acc() + e.row().cast(F32) * e.load(&name, F32), F16));
    assert_eq!(codes(&found), ["E0102", "E0102", "E0304"]);
    assert!(found.to_string().len() < 4000, "{found}");
}

#[test]
fn arguments_come_in_the_order_of_first_use() {
    let epilogue = Epilogue::build(|e| {
        let c = e.load("c", F32);
        let y = e.acc() * e.scalar("alpha", F16) + e.load("bias", BF16.over(N)) + c;
        e.store("d", y, F16);
        e.store("c", y + c, F32);
    })
    .unwrap();
    let arguments: Vec<_> = epilogue.arguments().iter().map(|a| (&*a.name, a.role)).collect();
    let expected = [
        ("c", Role::Update(F32.into())),
        ("alpha", Role::Scalar(ValueType::F32)),
        ("bias", Role::Input(BF16.over(N))),
        ("d", Role::Output(F16.into())),
    ];
    assert_eq!(arguments, expected);
}

#[test]
fn an_order_means_nothing_on_a_vector() {
    let epilogue = |bias: Operand| recipe_with(bias).unwrap();
    assert_eq!(epilogue(F16.over(N)), epilogue(F16.over(N).column_major()));
    // Loaded twice, once in each spelling, it is one argument.
    let both = Epilogue::build(|e| {
        let y = e.acc() + e.load("bias", F16.over(N)) * e.load("bias", F16.over(N).column_major());
        e.store("d", y, F16);
    });
    assert_eq!(both.unwrap().arguments().len(), 2);
}

fn recipe_with(bias: Operand) -> Result<Epilogue, Diagnostics> {
    Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", bias), F16))
}

#[test]
fn recipes_pass_and_say_what_is_wrong_with_a_format() {
    assert!(recipes::identity(F16).is_ok());
    assert!(recipes::linear_combination(F16, F16).is_ok());
    assert!(recipes::bias_activation(BF16, BF16, |z| z.gelu()).is_ok());
    assert!(recipes::residual(F16, F32, |z| z.silu()).is_ok());
    assert!(recipes::scaled(BF16).is_ok());
    assert!(recipes::split_rows(F16, F16, |z| z.sigmoid(), |z| z.tanh()).is_ok());
    assert_eq!(codes(&recipes::identity(I32).unwrap_err()), ["E0303"]);
    assert_eq!(codes(&recipes::bias_activation(I32, F16, |z| z).unwrap_err()), ["E0201"]);
}

/// The line, of this file, that each fault is reported at, less that of the call.
fn lines_below(call: u32, found: &Diagnostics) -> Vec<u32> {
    let line = |at: &str| -> u32 {
        let mut parts = at.rsplitn(3, ':').skip(1);
        let line = parts.next().unwrap().parse().unwrap();
        assert_eq!(parts.next(), Some(file!()), "{at}");
        line
    };
    found.iter().map(|d| line(d.built_at().unwrap()) - call).collect()
}

/// A caller of a recipe cannot repair the recipe's file.
#[test]
fn what_a_recipe_is_given_wrong_is_reported_where_it_is_called() {
    let formats = Formats { d: I32, c: Some(I32), bias: F16, aux: F16, scaled: true, scales: Default::default() };
    let call = line!();
    let found = [
        recipes::identity(I32),
        recipes::linear_combination(I32, F16),
        recipes::bias_activation(I32, F16, |z| z),
        recipes::residual(I32, F16, |z| z),
        recipes::scaled(I32),
        recipes::split_rows(I32, F16, |z| z, |z| z),
        cublaslt::gelu_aux_bias(formats),
    ];
    for (i, found) in (2..).zip(found) {
        let found = found.unwrap_err();
        assert!(lines_below(call, &found).iter().all(|line| *line == i), "line {i} below the call:\n{found}");
    }
    let call = line!();
    let within = recipes::split_rows(
        F16,
        F16,
        |z| z.select(1.0, 2.0), // which is no condition
        |z| z.tanh(),
    );
    assert_eq!(lines_below(call, &within.unwrap_err()), [4], "what a closure builds stands in the closure");
    let call = line!();
    let layer = Linear::new(F16, [16, 16], |e, z| z.lt(e.row()));
    let Err(LinearError::Check(found)) = layer else { panic!("{layer:?}") };
    assert_eq!(lines_below(call, &found), [1]);
}

#[test]
fn a_graph_has_an_end() {
    let error = Epilogue::build(|e| {
        let x = (0..5000).fold(e.acc(), |x, i| x + i as f32);
        e.store("d", x, F32);
    });
    let diagnostics = error.unwrap_err();
    let codes: Vec<&str> = diagnostics.iter().map(|d| d.code()).collect();
    assert_eq!(codes, ["E0106"]);
}

/// Messages about unchecked names show their characters.
#[test]
fn messages_show_what_is_not_seen_in_names() {
    const BAD: &str = "pay\u{202e}eet\u{2028}";
    const SHOWN: &str = "pay\\u{202e}eet\\u{2028}";
    let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F32)).unwrap();
    let mut d = [0.0f32; 4];
    let (a, b) = ([0.0f32; 4], [0.0f32; 4]);
    let args = HostArgs::new().input("a", &a).input("b", &b).input(BAD, &a).output("d", &mut d);
    let unknown = Gemm::new(F32, TN, &epilogue).reference(Shape::new(2, 2, 2), args);
    let messages = [
        unknown.unwrap_err().to_string(),
        epilogue.backward(Wrt::arguments([BAD])).unwrap_err().to_string(),
        CustomOp::new(BAD, 1, "$0", |x| x[0]).unwrap_err().to_string(),
    ];
    for message in messages {
        assert!(message.contains(SHOWN) && !message.contains(['\u{202e}', '\u{2028}']), "{message}");
    }
}

/// The constants of a graph.
fn constants(build: impl FnOnce(&Builder)) -> Vec<Constant> {
    let epilogue = Epilogue::build(build).unwrap_or_else(|e| panic!("{e}"));
    epilogue.graph().nodes().filter_map(|(_, node)| if let Node::Constant(c) = node { Some(*c) } else { None }).collect()
}

#[test]
fn a_number_has_the_type_of_what_it_meets() {
    let (single, double) = (|x: f64| Constant::of(ValueType::F32, x), |x: f64| Constant::of(ValueType::F64, x));
    assert_eq!(constants(|e| e.store("d", 2.0 * e.acc() * 0.1, F32)), [single(2.0), single(0.1)]);
    assert_eq!(constants(|e| e.store("d", e.acc_f64() * 0.1, F64)), [double(0.1)]);
    assert_eq!(constants(|e| e.store("d", e.acc_f64().fma(0.3, -0.7).max(0.1), F64)), [double(0.3), double(-0.7), double(0.1)]);
    assert_eq!(constants(|e| e.store("d", e.acc_f64().clamp(0.1, 0.2).leaky_relu(0.3), F64)), [0.1, 0.2, 0.3].map(double));
    // The other arm says what an arm is, of a select and of a region; a condition does not.
    let conditional = |e: &Builder| e.store("d", e.acc_f64().gt(0.1).select(0.2, e.acc_f64()), F64);
    assert_eq!(constants(conditional), [double(0.1), double(0.2)]);
    let region = |e: &Builder| {
        let z = e.acc_f64();
        e.store("d", z.region(z.gt(0.1), |z| z).otherwise(|_| e.constant(0.2)), F64);
    };
    assert!(constants(region).ends_with(&[double(0.2)]));
    // The format that it is stored in counts, too; a sum of numbers alone has single precision.
    assert_eq!(constants(|e| e.store("d", 0.1, F64)), [double(0.1)]);
    assert!(constants(|e| e.reduce("d", 0.1, Monoid::Sum, F64.over(N))).contains(&double(0.1)));
    assert_eq!(constants(|e| e.store("d", e.constant(0.1) + 0.2, F32)), [single(0.1), single(0.2)]);
    assert!(constants(|e| e.store("d", e.constant(0.1) * e.acc_f64(), F64)).contains(&double(0.1)));
    assert!(constants(|e| e.store("d", e.sum([0.1, 0.2]) + e.acc(), F32)).contains(&single(0.2)));
    let mut in_place = constants(|e| {
        let mut z = e.acc_f64();
        z += 0.1;
        z *= 0.2;
        e.store("d", -z, F64);
    });
    in_place.sort_by(|a, b| a.value().total_cmp(&b.value()));
    assert_eq!(in_place, [double(0.1), double(0.2)]);
}

#[test]
fn a_number_of_another_type_than_an_f64_is_told_how_to_be_one() {
    let found = faults(|e| e.store("d", 0.1 * e.acc_f64(), F64));
    assert_eq!(codes(&found), ["E0201"]);
    assert!(found.to_string().contains("to the left of an operator is an f32"), "{found}");
    let found = faults(|e| e.store("d", e.acc_f64() * 0.1f32, F64));
    assert!(found.to_string().contains("so is one that ends in `f32`"), "{found}");
    let found = faults(|e| e.store("d", e.acc_f64() + e.load("bias", F32.over(N)), F64));
    assert!(found.to_string().contains("insert `.cast(F64)`"), "{found}");
    // Infinity is not what was written.
    let found = faults(|e| e.store("d", e.acc() * 1e39, F32));
    assert!(codes(&found).contains(&"E0201") && found.to_string().contains("f64"), "{found}");
    let found = faults(|e| e.store("d", e.acc_f64() + e.acc().cast(F64), F64));
    assert_eq!(codes(&found), ["E0203"]);
    assert!(found.to_string().contains("`acc_f64()`"), "{found}");
}

#[test]
fn functions_over_doubles_are_those_whose_bodies_are() {
    static TWICE: Function = Function {
        name: "twice",
        doc: "Twice the value.",
        parameters: &["x"],
        body: |graph, args| graph.apply(Op::Add, &[args[0], args[0]]),
        gradient: None,
    };
    static HALF: Function = Function {
        name: "half",
        doc: "Half of the value, a single-precision one.",
        body: |graph, args| {
            let half = graph.constant_f32(0.5);
            graph.apply(Op::Mul, &[args[0], half])
        },
        ..TWICE
    };
    let stored = |function: &'static Function| {
        let mut graph = Graph::new();
        let acc = graph.push(Node::Accumulator(ValueType::F64), None);
        let value = graph.push(Node::Call { function, args: vec![acc] }, None);
        graph.sink(Sink::new("d", value, SinkKind::Store(F64.into())), None);
        Epilogue::from_graph(graph)
    };
    stored(&TWICE).unwrap_or_else(|e| panic!("{e}"));
    let found = stored(&HALF).expect_err("a body of single precision");
    assert!(codes(&found).contains(&"E0201") && found.to_string().contains("`half` takes f32 operands"), "{found}");
}

#[test]
fn monoids_of_a_program_have_no_doubles() {
    use postlude::CustomMonoid;
    use postlude::build::MonoidError;
    let of = |takes: DType, by: fn(Expr<'_>) -> Expr<'_>| {
        CustomMonoid::build("most", [takes], [0.0f32], |_, [x]| [by(x)], |_, [a], [b]| [a.max(b)], |_, [s]| s)
    };
    assert!(of(F32, |x| x.abs()).is_ok());
    let value = of(F64, |x| x.cast(F32)).unwrap_err();
    assert!(matches!(&value, MonoidError::Double { .. }) && value.to_string().contains("value 0 of an element"), "{value}");
    let inside = of(F32, |x| x.cast(F64).abs().cast(F32)).unwrap_err();
    assert!(matches!(&inside, MonoidError::Double { .. }) && inside.to_string().contains("`lift`"), "{inside}");
}
