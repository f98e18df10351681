//! Hostile documents: whatever JSON or text comes in, the answer is a value, never a panic, and nothing gets in that was
//! not written by the rules.

#[path = "support/graphs.rs"]
mod graphs;
#[path = "support/monoids.rs"]
mod monoids;
#[path = "support/softcap.rs"]
mod softcap;

use graphs::HOSTILE_NAMES;
use postlude::CustomOp;
use postlude::build::{Epilogue, registry};
use postlude::ir::graph::Constant;
use postlude::ir::text::{self, MAX_NODES};
use postlude::ir::wire::{Document, WireError};
use postlude::ir::{Graph, Node, Operand, Sink, SinkKind};
use postlude::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// Reads JSON as a graph, without the check.
fn read(json: &Value, registry: &Registry) -> Result<Graph, WireError> {
    serde_json::from_value::<Document>(json.clone())?.into_graph(registry)
}

/// The message of a document that must be refused.
fn refused(json: &Value) -> String {
    read(json, &registry()).expect_err("the document is at fault").to_string()
}

fn document(nodes: Value, sinks: Value) -> Value {
    json!({ "postlude": 1, "nodes": nodes, "sinks": sinks })
}

fn store(name: &str, value: u32) -> Value {
    json!({ "name": name, "value": value, "kind": { "store": { "dtype": "f16", "axes": "[M,N,L]", "order": "row_major" } } })
}

/// An epilogue with a node of every kind.
fn sample() -> Epilogue {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let y = e.row().lt(e.scalar("boundary", I32)).select(z.gelu_tanh(), e.custom(&softcap::softcap(), [z, z.max(30.0)]));
        e.store("d", y, F16);
        e.store("mask", y.gt(0.0) & true, Bool.column_major());
        e.store("i", e.row() * 2 + e.column() + e.batch(), I32);
    })
    .unwrap()
}

fn sample_registry() -> Registry {
    registry().with(softcap::softcap()).with_monoids(monoids::every())
}

#[test]
fn the_form_is_pinned() {
    let epilogue = Epilogue::build(|e| {
        let y = (e.acc() + e.load("bias", F16.over(N))).relu();
        e.store("d", e.row().lt(3).select(y, 0.5), BF16.column_major());
    })
    .unwrap();
    let expected = json!({
        "postlude": 1,
        "nodes": [
            { "acc": "f32" },
            { "load": { "name": "bias", "operand": { "dtype": "f16", "axes": "[N]", "order": "row_major" } } },
            { "apply": ["add", [0, 1]] },
            { "call": ["relu", [2]] },
            { "coordinate": "row" },
            { "const": { "i32": 3 } },
            { "apply": ["lt", [4, 5]] },
            { "const": { "f32": "0.5" } },
            { "apply": ["select", [6, 3, 7]] },
        ],
        "sinks": [
        { "name": "d", "value": 8, "kind": { "store": { "dtype": "bf16", "axes": "[M,N,L]", "order": "column_major" } } }
    ],
    });
    assert_eq!(serde_json::from_str::<Value>(&epilogue.to_json()).unwrap(), expected);
}

#[test]
fn the_form_of_what_may_be_left_out_is_pinned() {
    let operand = json!({ "dtype": "f16", "axes": "[N]", "order": "row_major" });
    let nodes = json!([
        { "acc": "f32" },
        { "load_or": { "name": "bias", "operand": operand, "default": { "f32": "0.1" } } },
        { "scalar_or": { "name": "beta", "value_type": "i32", "default": { "i32": -3 } } },
        { "apply": ["to_f32", [2]] },
        { "apply": ["mul", [1, 3]] },
        { "apply": ["add", [0, 4]] },
    ]);
    let written = document(nodes, json!([store("d", 5)]));
    let epilogue = Epilogue::from_json(&written.to_string(), &registry()).unwrap();
    let built = Epilogue::build(|e| {
        let z = e.acc();
        let step = e.load_or("bias", F16.over(N), 0.1) * e.scalar_or("beta", I32, -3).cast(F32);
        e.store("d", z + step, F16);
    });
    assert_eq!(epilogue, built.unwrap());
    assert_eq!(serde_json::from_str::<Value>(&epilogue.to_json()).unwrap(), written);
    // A default of another type is read, and refused by the check.
    let of_another_type = written.to_string().replace(r#"{"i32":-3}"#, r#"{"bool":true}"#);
    let fault = Epilogue::from_json(&of_another_type, &registry()).unwrap_err().to_string();
    assert!(fault.contains("error[E0111]: the default of an argument of i32 is of type bool"), "{fault}");
}

#[test]
fn the_version_is_the_one_this_library_writes() {
    for version in [0, 2, u32::MAX] {
        let mut json = document(json!([{ "acc": "f32" }]), json!([store("d", 0)]));
        json["postlude"] = version.into();
        assert!(matches!(read(&json, &registry()), Err(WireError::Version(v)) if v == version));
    }
    assert!(refused(&json!({ "nodes": [], "sinks": [] })).contains("postlude"));
}

#[test]
fn references_point_backwards() {
    let after =
        document(json!([{ "acc": "f32" }, { "apply": ["add", [0, 2]] }, { "coordinate": "row" }]), json!([store("d", 1)]));
    assert_eq!(refused(&after), "node 1: it uses node 2, which is not before it");
    let itself = document(json!([{ "apply": ["neg", [0]] }]), json!([store("d", 0)]));
    assert_eq!(refused(&itself), "node 0: it uses node 0, which is not before it");
    let nowhere = document(json!([{ "acc": "f32" }, { "call": ["relu", [4294967295u32]] }]), json!([store("d", 1)]));
    assert!(refused(&nowhere).starts_with("node 1: it uses node 4294967295"));
    let sink = document(json!([{ "acc": "f32" }]), json!([store("d", 1)]));
    assert_eq!(refused(&sink), "sink 0 stores node 1, which does not exist");
    for negative in [json!(-1), json!(1.5), json!(4294967296u64), json!("0"), json!(null)] {
        let json = document(json!([{ "acc": "f32" }, { "apply": ["neg", [negative]] }]), json!([store("d", 1)]));
        assert!(refused(&json).starts_with("not an epilogue document"));
    }
}

#[test]
fn unknown_words_are_refused() {
    let nodes = [
        json!({ "apply": ["ad", [0, 0]] }),
        json!({ "apply": ["relu", [0]] }),
        json!({ "call": ["add", [0, 0]] }),
        json!({ "call": ["gelo", [0]] }),
        json!({ "acc": "f16" }),
        json!({ "coordinate": "depth" }),
        json!({ "const": { "f64": 1.0 } }),
        json!({ "const": { "f32": 1.0 } }),
        json!({ "const": { "f32": "inf" } }),
        json!({ "const": { "f32": "0x+1234567" } }),
        json!({ "const": { "i32": 2147483648u32 } }),
        json!({ "const": { "f32": "1.0", "i32": 1 } }),
        json!({ "scalar": { "name": "s", "value_type": "f16" } }),
        json!({ "load": { "name": "x", "operand": { "dtype": "f8", "axes": "[N]" } } }),
        json!({ "load": { "name": "x", "operand": { "dtype": "f16", "axes": "[N,M]" } } }),
        json!({ "load": { "name": "x", "operand": { "dtype": "f16", "axes": "[,N]" } } }),
        json!({ "load": { "name": "x", "operand": { "dtype": "f16", "axes": "N" } } }),
        json!({ "load": { "name": "x", "operand": { "dtype": "f16", "axes": "[N]", "order": "blocked" } } }),
        json!({ "asm": "trap;" }),
        json!("acc"),
        json!(null),
        json!({}),
    ];
    for node in nodes {
        let json = document(json!([{ "acc": "f32" }, node]), json!([store("d", 1)]));
        assert!(read(&json, &registry()).is_err(), "{json}");
    }
}

#[test]
fn misspelt_words_are_told_what_was_meant() {
    let load = |dtype: &str| json!({ "load": { "name": "x", "operand": { "dtype": dtype, "axes": "[N]" } } });
    for (node, end) in [
        (json!({ "apply": ["ad", [0, 0]] }), "did you mean `add`?"),
        (json!({ "call": ["gelo", [0]] }), "did you mean `gelu`?"),
        (json!({ "call": ["add", [0, 0]] }), "`add` is a primitive: apply it instead of calling it"),
        (json!({ "coordinate": "rows" }), "did you mean `row`?"),
        (json!({ "gathr": {} }), "did you mean `gather`?"),
        (load("bf61"), "did you mean `bf16`?"),
    ] {
        let message = refused(&document(json!([{ "acc": "f32" }, node]), json!([store("d", 1)])));
        assert!(message.ends_with(end), "{message}");
    }
    let reduce = json!({ "monoid": "summ", "operand": { "dtype": "f32", "axes": "[N]" } });
    let sinks = json!([{ "name": "d", "value": 0, "kind": { "reduce": reduce } }]);
    let message = refused(&document(json!([{ "acc": "f32" }]), sinks));
    assert!(message.ends_with("; did you mean `sum`?"), "{message}");
    for (line, end) in [
        ("%1 = raw", "did you mean `row`?"),
        ("%1 = load \"x\" bf61[N]", "did you mean `bf16`?"),
        ("reduce \"s\" maxx f32[N], %0", "did you mean `max`?"),
    ] {
        let message = text::parse(&format!("%0 = acc f32\n{line}"), &registry()).unwrap_err().message;
        assert!(message.ends_with(end), "{message}");
    }
}

#[test]
fn unknown_fields_are_refused_at_every_level() {
    let good = || {
        let load = json!({ "load": { "name": "x", "operand": { "dtype": "f16", "axes": "[N]", "order": "row_major" } } });
        let custom = json!({ "custom": { "name": "softcap", "fingerprint": "4021cf10b8083b89", "args": [0, 1] } });
        document(json!([{ "acc": "f32" }, load, custom]), json!([store("d", 2)]))
    };
    assert!(read(&good(), &sample_registry()).is_ok());
    for path in [
        "",
        "/nodes/1",
        "/nodes/1/load",
        "/nodes/1/load/operand",
        "/nodes/2/custom",
        "/sinks/0",
        "/sinks/0/kind",
        "/sinks/0/kind/store",
    ] {
        let mut json = good();
        json.pointer_mut(path).unwrap()["cuda"] = "1.0f".into();
        let error = read(&json, &sample_registry()).expect_err(path).to_string();
        assert!(error.starts_with("not an epilogue document"), "{path}: {error}");
    }
    for path in ["/nodes", "/sinks", "/sinks/0/name", "/sinks/0/value", "/sinks/0/kind", "/nodes/1/load/operand/axes"] {
        let mut json = good();
        let (parent, key) = path.rsplit_once('/').unwrap();
        json.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
        assert!(read(&json, &sample_registry()).is_err(), "{path}");
    }
    let twice = r#"{"postlude":1,"postlude":1,"nodes":[],"sinks":[]}"#;
    assert!(Epilogue::from_json(twice, &registry()).is_err());
}

#[test]
fn huge_documents_are_refused() {
    let nodes: Vec<Value> = (0..=MAX_NODES).map(|i| json!({ "const": { "i32": i } })).collect();
    assert!(matches!(read(&document(json!(nodes), json!([])), &registry()), Err(WireError::TooLarge(_))));
    let sinks: Vec<Value> = (0..MAX_NODES).map(|i| store(&format!("d{i}"), 0)).collect();
    assert!(matches!(read(&document(json!([{ "acc": "f32" }]), json!(sinks)), &registry()), Err(WireError::TooLarge(_))));
    // Equal nodes of a document count too.
    let nodes: String = (0..=MAX_NODES).map(|i| format!("%{i} = row\n")).collect();
    assert!(text::parse(&nodes, &registry()).unwrap_err().message.starts_with("more than 4096"));
    let stores: String = (0..=MAX_NODES).map(|i| format!("store \"d{i}\" f16[M,N,L], %0\n")).collect();
    let error = text::parse(&format!("%0 = acc f32\n{stores}"), &registry()).unwrap_err();
    assert_eq!(error.line, MAX_NODES + 1);
    // The permitted number is read, in negligible time.
    let chain: String = (1..MAX_NODES - 1).map(|i| format!("%{i} = neg %{}\n", i - 1)).collect();
    let document = format!("%0 = acc f32\n{chain}store \"d\" f16[M,N,L], %{}\n", MAX_NODES - 2);
    let epilogue: Epilogue = document.parse().unwrap();
    assert_eq!(epilogue.graph().len(), MAX_NODES - 1);
    assert_eq!(Epilogue::from_json(&epilogue.to_json(), &registry()).unwrap(), epilogue);
}

#[test]
fn one_huge_line_is_refused() {
    let operands = vec!["%0"; 200_000].join(", ");
    for line in [
        format!("%1 = add {operands}"),
        format!("%1 = custom softcap#4021cf10b8083b89 {operands}"),
        format!("%1 = load \"{}\" f16[N]", "x".repeat(1_000_000)),
        format!("%1 = {}", "x".repeat(1_000_000)),
        format!("%{} = row", "9".repeat(1_000_000)),
        format!("%1 = load \"x\" f16[{}]", "M,".repeat(500_000)),
        format!("%1: {} = tanh %0", "f".repeat(1_000_000)),
        format!("%1 = const f32 {}", "9".repeat(1_000_000)),
    ] {
        let text = format!("%0 = acc f32\n{line}\nstore \"d\" f16[M,N,L], %1\n");
        let error = Epilogue::from_text(&text, &sample_registry()).unwrap_err().to_string();
        assert!(error.len() < 2000, "{} characters", error.len());
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{\"nodes\":", "}"), ("{\"postlude\":1,\"nodes\":[{\"apply\":[\"add\",", "]}]}")] {
        let json = format!("{}{}", open.repeat(100_000), close.repeat(100_000));
        assert!(Epilogue::from_json(&json, &registry()).is_err());
    }
    let unknown = format!("{{\"postlude\":1,\"nodes\":[],\"sinks\":[],\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Epilogue::from_json(&unknown, &registry()).is_err());
}

#[test]
fn custom_primitives_come_from_the_program_alone() {
    let (json, text) = (sample().to_json(), sample().to_string());
    assert!(!json.contains("tanhf") && !text.contains("tanhf"), "a document carries source");
    assert_eq!(Epilogue::from_json(&json, &sample_registry()).unwrap(), sample());
    assert_eq!(Epilogue::from_text(&text, &sample_registry()).unwrap(), sample());

    let missing = "custom primitive `softcap` is not in the registry";
    assert!(Epilogue::from_json(&json, &registry()).unwrap_err().to_string().contains(missing));
    assert!(Epilogue::from_text(&text, &registry()).unwrap_err().to_string().contains(missing));

    let other = CustomOp::new("softcap", 2, "$0 * $1", |x| x[0] * x[1]).unwrap();
    let redefined = registry().with(Arc::new(other));
    let message = "custom primitive `softcap` is registered with another definition";
    assert!(Epilogue::from_json(&json, &redefined).unwrap_err().to_string().contains(message));
    assert!(Epilogue::from_text(&text, &redefined).unwrap_err().to_string().contains(message));

    let fingerprint = format!("{:016x}", softcap::softcap().fingerprint());
    for forged in ["", "0", "xyz", "+021cf10b8083b89", "4021CF10B8083B89", &fingerprint[1..], &format!("0{fingerprint}")] {
        assert!(Epilogue::from_json(&json.replace(&fingerprint, forged), &sample_registry()).is_err(), "{forged}");
        assert!(Epilogue::from_text(&text.replace(&fingerprint, forged), &sample_registry()).is_err(), "{forged}");
    }
}

#[test]
fn constants_keep_their_bits() {
    let floats = [
        0,
        1,
        0x8000_0000,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x3dcc_cccd,
        0x7f7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7f80_0001,
        0x7fc0_0000,
        0xffc0_1234,
        0xffff_ffff,
    ];
    let mut graph = Graph::new();
    let constants = floats.map(Constant::F32).into_iter().chain([i32::MIN, -1, i32::MAX].map(Constant::I32));
    for constant in constants.chain([true, false].map(Constant::Bool)) {
        graph.push(Node::Constant(constant), None);
    }
    let text = text::print(&graph, |_| None);
    assert_eq!(text::parse(&text, &registry()).unwrap().graph, graph);
    let json = serde_json::to_value(Document::of(&graph)).unwrap();
    assert_eq!(read(&json, &registry()).unwrap(), graph);
    // Every bit pattern, by the thousand.
    for i in 0..200_000u32 {
        let bits = i.wrapping_mul(0x9e37_79b9);
        assert_eq!(text::parse_f32(&text::format_f32(bits)), Some(bits), "{bits:#x}");
    }
}

/// Whether a character is invisible, or makes its neighbours look like something else.
fn unseen(c: char) -> bool {
    c.is_control() || "\u{200b}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}\u{e0061}".contains(c)
}

#[test]
fn hostile_names_are_refused_or_stay_quoted() {
    for name in HOSTILE_NAMES {
        let mut graph = Graph::new();
        let load = graph.push(Node::load(*name, F16), None);
        let scalar = graph.push(Node::scalar(format!("{name}2"), F32.value_type()), None);
        let value = graph.apply(postlude::Op::Mul, &[load, scalar]);
        let kind = SinkKind::Store(Operand::from(F16));
        graph.sink(Sink::new(format!("{name}3"), value, kind), None);

        // The text form has a line for each node and store, whatever the names hold.
        let text = text::print(&graph, |_| None);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.chars().all(|c| c == '\n' || !unseen(c)), "{text:?}");
        assert_eq!(text::parse(&text, &registry()).unwrap().graph, graph);
        assert_eq!(read(&serde_json::to_value(Document::of(&graph)).unwrap(), &registry()).unwrap(), graph);
        // So has the drawing: three nodes, two edges to them, a sink and its edge.
        let dot = postlude::ir::dot::dot(&graph, |_| String::new());
        assert_eq!(dot.lines().count(), 3 + 3 + 2 + 2 + 1, "{dot}");
        assert!(dot.lines().all(|l| l.ends_with(';') || l.ends_with('{') || l == "}"), "{dot}");
        assert!(dot.chars().all(|c| c == '\n' || !unseen(c)), "{dot:?}");

        let control = name.chars().any(unseen);
        match Epilogue::from_graph(graph) {
            Ok(epilogue) => {
                assert!(!control && !name.is_empty() && !["a", "b"].contains(name));
                assert_eq!(epilogue.to_string().parse::<Epilogue>().unwrap(), epilogue);
            }
            Err(diagnostics) => {
                assert!(control || name.is_empty() || ["a", "b"].contains(name) || name.chars().count() > 60, "{diagnostics}");
                assert!(diagnostics.iter().all(|d| d.code() == "E0102"), "{diagnostics}");
                assert!(diagnostics.to_string().chars().all(|c| c == '\n' || !unseen(c)), "{diagnostics}");
            }
        }
    }
}

#[test]
fn messages_hold_no_control_characters_of_the_document() {
    for line in [
        "%1 = \u{1b}[31mred %0",
        "%1: \u{1b}[31m = tanh %0",
        "%1 = custom \u{7}#0123456789abcdef %0",
        "\u{0}",
        "%1 = load \"\u{1}",
        "%1 = tanh\u{202e} %0",
        "%1: \u{2066}f32 = tanh %0",
        "%1 = custom soft\u{200b}cap#0123456789abcdef %0",
        "%1 = load \"x\u{2028}\" f16[N]",
        "%1 = load \"x\" f\u{e0061}16[N]",
        "reduce \"x\" su\u{202e}m f32[N], %0",
        "x\u{2028}y",
    ] {
        let text = format!("%0 = acc f32\n{line}\nstore \"d\" f16[M,N,L], %0\n");
        let error = text.parse::<Epilogue>().unwrap_err().to_string();
        assert!(error.chars().all(|c| c == '\n' || !unseen(c)), "{error:?}");
    }
    let bad = "x\u{202e}y\u{2028}\u{7f}";
    let sinks = || json!([store("d", 0)]);
    for document in [
        document(json!([{ bad: "f32" }]), sinks()),
        document(json!([{ "acc": bad }]), sinks()),
        document(json!([{ "acc": "f32" }, { "apply": [bad, [0]] }]), sinks()),
        document(json!([{ "acc": "f32" }, { "call": [bad, [0]] }]), sinks()),
        document(json!([{ "acc": "f32" }, { "custom": { "name": bad, "fingerprint": bad, "args": [0] } }]), sinks()),
        document(json!([{ "acc": "f32" }]), json!([store(bad, 0)])),
        json!({ bad: 1 }),
        json!(bad),
    ] {
        let error = Epilogue::from_json(&document.to_string(), &registry()).unwrap_err().to_string();
        assert!(error.chars().all(|c| c == '\n' || !unseen(c)), "{error:?}");
    }
    let huge = document(json!([{ "acc": "y".repeat(1 << 20) }]), sinks());
    assert!(Epilogue::from_json(&huge.to_string(), &registry()).unwrap_err().to_string().len() < 2000);
}

#[test]
fn what_editors_leave_in_text_is_read() {
    let read = |text: &str| text::parse(text, &sample_registry()).unwrap_or_else(|e| panic!("{e}")).graph;
    let plain = read("%0 = acc f32\nstore \"d\" f16[M,N,L], %0\nreduce \"s\" sum atomic accumulate f32[N,L], %0\n");
    let other = read("\u{feff}%0 = acc f32\r\n\tstore\t\"d\"  f16[M,N,L], %0\r\nreduce \"s\" sum accumulate atomic f32[N,L], %0");
    assert_eq!(plain, other);
}

#[test]
fn broken_lines_are_refused_with_their_line() {
    for line in [
        "%1",
        "%1 =",
        "%1 = ",
        "= tanh %0",
        "1 = tanh %0",
        "%x = tanh %0",
        "%-1 = tanh %0",
        "%+1 = tanh %0",
        "%1 = tanh 0",
        "%1 = tanh %0 %0",
        "%1 = tanh %0,",
        "%1 = tanh ,%0",
        "%1 = acc",
        "%1 = acc f8",
        "%1 = acc f32 f32",
        "%1 = const",
        "%1 = const f32",
        "%1 = const f32 nan",
        "%1 = const f32 1e99",
        "%1 = const i32 1.0",
        "%1 = const bool 1",
        "%1 = row 0",
        "%1 = scalar f32",
        "%1 = scalar \"s\"",
        "%1 = scalar s f32",
        "%1 = load \"x f16[N]",
        "%1 = load \"x\"",
        "%1 = load \"x\" f16",
        "%1 = load \"x\" f16]N[",
        "%1 = load \"x\" f16[Q]",
        "%1 = load \"x\" f16[N] sideways",
        "%1 = custom",
        "%1 = custom softcap %0",
        "%1 = custom #0 %0",
        "store",
        "store d f16[N], %0",
        "store \"d\" f16[M,N]",
        "store \"d\", %0",
        "store \"d\" f16[M,N,L], %0, %0",
        "load \"x\" f16[N]",
        "store \"\\ud800\" f16[M,N,L], %0",
        "reduce \"d\" sum atomic atomic f32[N,L], %0",
    ] {
        let error = text::parse(&format!("; comment\n\n%0 = acc f32\n{line}\n"), &sample_registry());
        let error = error.map(|p| p.graph).expect_err(line);
        assert_eq!(error.line, 4, "{line}: {error}");
        assert!(!error.message.is_empty());
    }
}

#[test]
fn no_cut_or_flipped_document_panics() {
    let (json, text) = (sample().to_json(), sample().to_string());
    let registry = sample_registry();
    for (document, read) in [
        (&json, (|d, r| drop(Epilogue::from_json(d, r).map_err(|e| e.to_string()))) as fn(&str, &Registry)),
        (&text, |d, r| drop(Epilogue::from_text(d, r).map_err(|e| e.to_string()))),
    ] {
        for at in 0..document.len() {
            read(&document[..at], &registry);
            read(&document[at..], &registry);
            for byte in *b"\0\"\\%,:=[]{}09 \nxMN-" {
                let mut bytes = document.clone().into_bytes();
                bytes[at] = byte;
                read(&String::from_utf8(bytes).unwrap(), &registry);
            }
        }
    }
}

#[test]
fn an_epilogue_is_a_value_of_serde() {
    let epilogue = postlude::build::recipes::bias_activation(DType::F16, DType::F16, |z| z.gelu()).unwrap();
    let value = serde_json::to_value(&epilogue).unwrap();
    assert_eq!(serde_json::from_value::<Epilogue>(value.clone()).unwrap(), epilogue);
    let mut broken = value;
    broken["sinks"] = serde_json::json!([]);
    assert!(serde_json::from_value::<Epilogue>(broken).unwrap_err().to_string().contains("E0101"));
}

#[test]
fn a_format_without_names_of_fields_holds_all_of_them() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N)) * e.scalar("scale", F32);
        let z = z + e.load_or("more", F16.over(N), 0.1) * e.scalar_or("beta", F32, f32::NAN) - e.load_or("c", F16, -0.0);
        let z = e.load_or("keep", Bits8, true).select(z, z * e.load_or("level", I32.over(M), i32::MIN).cast(F32));
        e.store("d", e.row().lt(3).select(z.gelu(), 0.5), F16);
        e.reduce("sum", z, Monoid::Sum, F32.over(N));
        e.reduce("any", z.gt(0.0), Monoid::Max, Bool.pointer());
        e.reduce("onto", z, Monoid::Sum.atomic().accumulate(), F32.over(M).batched());
        e.reduce("of_b", e.b(), Monoid::Sum.accumulate(), F32.over(N));
    })
    .unwrap();
    let bytes = postcard::to_allocvec(&epilogue).unwrap();
    assert_eq!(postcard::from_bytes::<Epilogue>(&bytes).unwrap(), epilogue);
    // JSON stays as it was before reductions could accumulate: it is what caches are keyed by.
    let value = serde_json::to_value(&epilogue).unwrap();
    let fields = |sink: usize| value["sinks"][sink]["kind"]["reduce"].as_object().unwrap().len();
    assert_eq!([fields(1), fields(3)], [3, 4]);
}
