//! The documentation shows what the library does: programs, diagnostics and names in it are those of the code.

use postlude::prelude::*;

const README: &str = include_str!("../README.md");

/// The fenced blocks of a Markdown text whose fence opens with `info`.
fn blocks<'a>(text: &'a str, info: &str) -> Vec<&'a str> {
    let opening = format!("```{info}\n");
    text.split(&opening).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// The program of the README is the quickstart.
#[test]
fn the_readme_shows_the_quickstart() {
    let quickstart = include_str!("../examples/quickstart.rs");
    let program = blocks(README, "rust,no_run")[0];
    let body =
        program.split("std::error::Error>> {\n").nth(1).and_then(|s| s.split("    println!").next()).expect("a main function");
    assert!(quickstart.contains(body), "not in examples/quickstart.rs:\n{body}");
}

/// The diagnostic of the README is one that is printed, but for the place in this file.
#[test]
fn the_readme_shows_a_real_diagnostic() {
    let diagnostics = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let first_rows = e.row().lt(e.scalar("boundary", F32));
        e.store("d", z.region(first_rows, |z| z.sigmoid()).otherwise(|z| z.tanh()), F16.over(N));
    })
    .expect_err("a row is no f32, and a vector no output");
    let here = |line: &str| match line.split_once("--> ") {
        Some((before, _)) => format!("{before}--> src/model.rs"),
        None => line.to_owned(),
    };
    let printed: Vec<String> = diagnostics.to_string().lines().map(here).collect();
    let shown: Vec<String> = blocks(README, "text")[0].lines().map(here).collect();
    assert_eq!(shown, printed, "the README should show:\n{diagnostics}");
}

/// The commands stand in the README as they are typed.
#[test]
fn the_readme_names_both_commands() {
    assert_eq!(blocks(README, "sh"), ["cargo run --release --example region_activation\n", "cargo xtask test\n"]);
}

/// Features are told apart.
#[test]
fn every_feature_is_in_the_readme() {
    let manifest = include_str!("../Cargo.toml");
    let features = manifest.split("[features]\n").nth(1).and_then(|s| s.split("\n\n").next()).expect("features");
    for line in features.lines().filter(|line| !line.starts_with('#') && !line.starts_with("default")) {
        let name = line.split(' ').next().expect("a name");
        assert!(README.contains(&format!("| `{name}`")), "the README lacks feature {name}");
    }
}

/// The difference that CONTRIBUTING shows is in the code.
#[test]
fn the_example_of_an_activation_is_true() {
    let diff = blocks(include_str!("../CONTRIBUTING.md"), "diff")[0];
    let code = [include_str!("../src/build/activation.rs"), include_str!("reference/activations.rs")].concat();
    let added = diff.lines().filter(|line| !line.starts_with("+++")).filter_map(|line| line.strip_prefix('+'));
    added.for_each(|line| assert!(code.contains(line), "not in the code: {line}"));
}

/// README and crate documentation say what there is of things that many users look for.
#[test]
fn a_search_is_answered() {
    let crate_documentation = include_str!("../src/lib.rs");
    let wanted = ["softmax", "layer norm", "RMS norm", "argmax", "top-k", "SwiGLU", "dropout", "int8", "fp8", "convolution"];
    for (name, text) in [("README", README), ("crate documentation", crate_documentation)] {
        for word in wanted {
            assert!(text.contains(word), "the {name} does not say what there is of {word}");
        }
    }
}

/// The README names each example and each reduction.
#[test]
fn the_readme_knows_what_is_there() {
    for entry in std::fs::read_dir("examples").expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        let shown = README.contains(&format!("`{name}`")) || README.contains(&format!("--example {name}\n"));
        assert!(shown || name == "support", "the README lacks example {name}");
    }
    let row = README.lines().find(|line| line.starts_with("| reductions |")).expect("a row of the table");
    for monoid in Monoid::ALL {
        // In words, where the name is not one.
        let word = match monoid {
            Monoid::SumSquares => "sum of squares",
            Monoid::Norm2 => "norm",
            _ => monoid.name(),
        };
        assert!(row.contains(word), "the README lacks reduction {word}");
    }
}
