//! Documents from anywhere: an epilogue or an error, never a panic, nothing larger than the document accounts for, and no word of it
//! in the source of a kernel.
//!
//! `cargo xtask fuzz` goes on for minutes, with a limit on the memory. What is worth trying every time lies in `tests/fuzz_seeds`.

#[path = "support/graphs.rs"]
mod graphs;
#[path = "support/monoids.rs"]
mod monoids;
#[path = "support/softcap.rs"]
mod softcap;

use graphs::{Style, arbitrary, well_typed};
use postlude::ir::{Graph, Order, wire};
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Epilogue, Registry};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

fn registry() -> Registry {
    postlude::build::registry().with(softcap::softcap()).with_monoids(monoids::every())
}

/// The source of every kernel that the epilogue has: on each mainloop, as a product and over a matrix.
fn sources(epilogue: &Epilogue) -> Vec<String> {
    let shape = Shape::new(4096, 4096, 4096);
    let kernels = [
        Gemm::pointwise(F32, Order::RowMajor, epilogue),
        Gemm::pointwise(I32, Order::ColumnMajor, epilogue),
        Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Sm80),
        Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Sm90a),
        Gemm::new(F32, NT, epilogue).mainloop(Mainloop::Simt),
    ];
    let plans = kernels.iter().filter_map(|gemm| gemm.kernel_plan(Target::SM_90A, 132, shape).ok());
    plans.map(|plan| plan.source().expect("a plan is printed").text().to_owned()).collect()
}

/// What a reader must keep to, whatever it was given.
fn sound(read: Result<Epilogue, impl std::fmt::Display>, document: &str) -> Result<(), TestCaseError> {
    match read {
        Ok(epilogue) => {
            prop_assert!(epilogue.graph().len() <= document.len());
            let json = epilogue.to_json();
            prop_assert_eq!(
                Epilogue::from_json(&json, &registry()).map_err(|e| TestCaseError::fail(e.to_string()))?,
                epilogue.clone()
            );
            sources(&epilogue);
        }
        Err(error) => prop_assert!(error.to_string().len() < 100_000 && !error.to_string().is_empty()),
    }
    Ok(())
}

/// The value at a random place.
fn place(mut value: &mut Value, path: Vec<Index>) -> &mut Value {
    for index in path {
        let inside = match value {
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => false,
        };
        if !inside {
            break;
        }
        value = match value {
            Value::Array(list) => index.get_mut(list),
            Value::Object(fields) => {
                let at = index.index(fields.len());
                fields.values_mut().nth(at).expect("a field")
            }
            other => other,
        };
    }
    value
}

fn json_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..40).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(&["acc", "apply", "load", "f32", "bool", "gelu", "softcap", "select", "[M,N]", "nan", "inf"][..])
            .prop_map(Value::from),
        prop::collection::vec((0i64..6).prop_map(Value::from), 0..4).prop_map(Value::from),
        Just(serde_json::json!({})),
        Just(serde_json::json!({"postlude": 1, "nodes": [], "sinks": []})),
    ]
}

/// Names that mean something to C++, to the template engine, to the text form, to a shell.
fn hostile() -> impl Strategy<Value = String> {
    let nasty = [
        "\"; } asm(\"trap;\"); //",
        "*/ int x; /*",
        "\\",
        "\"",
        "{{ 7 * 7 }}",
        "{% include \"kernel.cu\" %}",
        "%0",
        "p.arg0",
        "v1",
        "#include </etc/passwd>",
        "postlude:%3",
        "$0",
        "d\u{202e}",
        "a;b",
        "__global__",
        "'",
        "a\\\"b",
        "; store",
        "\u{fffd}",
    ];
    prop_oneof![prop::sample::select(nasty.map(String::from).to_vec()), ".{1,30}", "[a-z\"\\\\{}%#/*;]{1,12}"]
}

/// Gives every name of a document another one, equal names equal ones.
fn renamed(value: &mut Value, names: &mut BTreeMap<String, String>, new: &mut dyn FnMut(usize) -> String) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|inner| renamed(inner, names, new)),
        Value::Object(fields) => {
            let custom = fields.contains_key("fingerprint");
            for (key, inner) in fields {
                match inner {
                    Value::String(name) if key == "name" && !custom => {
                        let count = names.len();
                        *name = names.entry(name.clone()).or_insert_with(|| new(count)).clone();
                    }
                    inner => renamed(inner, names, new),
                }
            }
        }
        _ => {}
    }
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(hostile(), 32)
}

/// The document of a graph twice: with plain names, and with hostile ones in their places.
fn named(graph: &Graph, words: &[String]) -> [Value; 2] {
    let document = serde_json::to_value(wire::Document::of(graph)).unwrap();
    let (mut plain, mut bad) = (document.clone(), document);
    renamed(&mut plain, &mut BTreeMap::new(), &mut |count| format!("n{count}"));
    let mut used = BTreeSet::new();
    renamed(&mut bad, &mut BTreeMap::new(), &mut |count| {
        let word = words[count % words.len()].clone();
        if used.insert(word.clone()) { word } else { format!("{word}{count}") }
    });
    [plain, bad]
}

fn bytes() -> impl Strategy<Value = String> {
    prop_oneof![".{0,200}", "[%0-9a-z=,\"\\[\\]{}: \n]{0,200}"]
}

#[test]
fn the_kept_seeds() {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    for folder in ["json", "text"] {
        let folder = root.join("tests/fuzz_seeds").join(folder);
        let seeds: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(seeds.len() > 10, "{folder:?} holds {} seeds", seeds.len());
        for seed in seeds {
            let text = fs::read_to_string(&seed).unwrap();
            let read = sound(Epilogue::from_json(&text, &registry()), &text)
                .and_then(|()| sound(Epilogue::from_text(&text, &registry()), &text));
            assert!(read.is_ok(), "{seed:?}: {read:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn bytes_as_json(text in bytes()) {
        sound(Epilogue::from_json(&text, &registry()), &text)?;
    }

    #[test]
    fn bytes_as_text(text in bytes()) {
        sound(Epilogue::from_text(&text, &registry()), &text)?;
    }

    #[test]
    fn json_with_other_values_in_it(
        graph in prop_oneof![arbitrary().boxed(), well_typed(Style::everything()).boxed()],
        edits in prop::collection::vec((prop::collection::vec(any::<Index>(), 1..6), json_value()), 0..4),
    ) {
        let mut document = serde_json::to_value(wire::Document::of(&graph)).unwrap();
        for (path, new) in edits {
            *place(&mut document, path) = new;
        }
        let json = document.to_string();
        sound(Epilogue::from_json(&json, &registry()), &json)?;
    }

    #[test]
    fn text_with_other_words_in_it(
        graph in well_typed(Style::everything()),
        edits in prop::collection::vec((any::<Index>(), any::<Index>(), "[%0-9a-z=,.\"\\[\\]: \n;-]{0,8}"), 0..4),
    ) {
        let mut text = Epilogue::from_graph(graph).unwrap().to_string();
        for (from, to, new) in edits {
            let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (from, to) = (*from.get(&ends), *to.get(&ends));
            let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 10));
            if text.is_char_boundary(to) {
                text.replace_range(from..to, &new);
            }
        }
        sound(Epilogue::from_text(&text, &registry()), &text)?;
    }

    /// The source of a kernel does not depend on what its arguments are called.
    #[test]
    fn names_in_json_do_not_reach_the_source(graph in well_typed(Style::everything()), words in words()) {
        let [plain, bad] = named(&graph, &words);
        let read = |document: &Value| Epilogue::from_json(&document.to_string(), &registry());
        let plain = read(&plain).map_err(|error| TestCaseError::fail(error.to_string()))?;
        if let Ok(bad) = read(&bad) {
            prop_assert_eq!(sources(&bad), sources(&plain));
        }
    }

    /// Nor if they come in as text, which has to keep each name within its quotes.
    #[test]
    fn names_in_text_do_not_reach_the_source(graph in well_typed(Style::everything()), words in words()) {
        let [plain, bad] = named(&graph, &words).map(|document| Epilogue::from_json(&document.to_string(), &registry()));
        let (Ok(plain), Ok(bad)) = (plain, bad) else { return Ok(()) };
        let read = Epilogue::from_text(&bad.to_string(), &registry()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&read, &bad);
        prop_assert_eq!(sources(&read), sources(&plain));
    }
}
