//! The documentation is true: its programs, diagnostics, names, links and paths are those of the repository.

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

/// The README shows a printed diagnostic, except its line numbers.
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

/// The README states the manifest's oldest Rust.
#[test]
fn the_oldest_rust_is_the_manifests() {
    let sentence = format!("The oldest Rust is {}.", env!("CARGO_PKG_RUST_VERSION"));
    assert!(README.contains(&sentence), "the README does not say: {sentence}");
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

/// Every file under `folder`, with its text.
fn texts(folder: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                out.push((path.to_string_lossy().replace('\\', "/"), text));
            }
        }
    }
    assert!(!out.is_empty(), "{folder} has no files");
    out.sort();
    out
}

/// The documents a reader starts from, with those under `docs`.
fn documents() -> Vec<(String, String)> {
    let top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "templates/mainloop/CONTRACT.md"];
    let top = top.map(|path| (path.to_owned(), std::fs::read_to_string(path).expect("a document")));
    top.into_iter().chain(texts("docs").into_iter().filter(|(path, _)| path.ends_with(".md"))).collect()
}

/// The anchor that Markdown viewers give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// A link in a document leads to a file that exists, and to a heading of it.
#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in documents() {
        let folder = std::path::Path::new(&path).parent().expect("a folder").to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
            let target = if file.is_empty() { path.clone().into() } else { folder.join(file) };
            let found = match heading {
                None => target.exists(),
                Some(heading) => std::fs::read_to_string(&target)
                    .is_ok_and(|text| text.lines().any(|line| line.starts_with('#') && anchor(line) == heading)),
            };
            if !found {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// A path of the repository that a document shows as code exists.
#[test]
fn shown_paths_exist() {
    let folders = ["src/", "templates/", "tests/", "benches/", "examples/", "xtask/", "docs/"];
    let mut broken = Vec::new();
    // A measurement and an entry of the change log record their day.
    let current = |path: &str| !path.starts_with("docs/measurements/0") && path != "CHANGELOG.md";
    for (path, text) in documents().into_iter().filter(|(path, _)| current(path)) {
        let shown = text.split('`').skip(1).step_by(2).filter(|code| folders.iter().any(|folder| code.starts_with(folder)));
        let placeholder = |code: &str| code.contains(char::is_whitespace) || code.contains("NAME") || code.contains("NNNN");
        let missing = shown.filter(|code| !placeholder(code) && !std::path::Path::new(code).exists());
        broken.extend(missing.map(|code| format!("{path}: {code}")));
    }
    assert!(broken.is_empty(), "paths that do not exist:\n{}", broken.join("\n"));
}

/// Every measurement stands in the list, and has its four sections in order.
#[test]
fn measurements_are_complete() {
    let list = std::fs::read_to_string("docs/measurements/README.md").expect("the list");
    let pages: Vec<_> = texts("docs/measurements").into_iter().filter(|(path, _)| !path.ends_with("README.md")).collect();
    for (number, (path, text)) in (1..).zip(&pages) {
        let name = path.trim_start_matches("docs/measurements/");
        let title = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a title");
        assert!(name.starts_with(&format!("{number:04}-")), "{path}: the next number is {number:04}");
        assert!(list.contains(&format!("- [{number:04}]({name}) {title}\n")), "docs/measurements/README.md lacks {name}");
        let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(sections, ["Question", "Setup", "Result", "Decision"], "{path}");
    }
}

/// The code cites measurements that exist.
#[test]
fn cited_measurements_exist() {
    let mut cited = 0;
    for (path, text) in ["src", "templates", "tests", "benches", "xtask/src"].into_iter().flat_map(texts) {
        for rest in text.split("docs/measurements/0").skip(1) {
            let page: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).collect();
            let Some(end) = page.find(".md") else { continue };
            let page = format!("docs/measurements/0{}.md", &page[..end]);
            assert!(std::path::Path::new(&page).exists(), "{path} cites {page}");
            cited += 1;
        }
    }
    assert!(cited > 10, "citations look different now: this test found {cited}");
}

/// The cells of the table below a heading, without its own two first lines.
fn table<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let section = text.split(&format!("\n## {heading}\n")).nth(1).unwrap_or_else(|| panic!("a section {heading}"));
    let lines = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    lines.skip(2).map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Code spans, of one or two backticks.
fn spans(cell: &str) -> Vec<&str> {
    let (fence, step) = if cell.contains("``") { ("``", 2) } else { ("`", 2) };
    cell.split(fence).skip(1).step_by(step).map(str::trim).collect()
}

/// The lines of the README for users of other libraries are lines of the page, which a test compiles.
#[test]
fn the_cheat_sheet_is_of_the_page() {
    let page = include_str!("../docs/coming_from.md");
    let rows = table(README, "If you come from another library");
    assert!(rows.len() > 8, "the table of the README is not found: {rows:?}");
    for row in rows {
        let [_, theirs, ours] = row[..] else { panic!("three cells: {row:?}") };
        for line in spans(ours) {
            assert!(page.contains(line), "`{theirs}`: docs/coming_from.md lacks `{line}`");
        }
    }
}

/// Ten questions, each answered at most two files away from the README: links lead there, and the last file has the quoted words.
#[test]
fn answers_are_two_files_away() {
    let contributing = include_str!("../CONTRIBUTING.md");
    let rows = table(contributing, "Where to look");
    assert!(rows.len() >= 10, "{} questions", rows.len());
    for row in rows {
        let [question, way, answer] = row[..] else { panic!("three cells: {row:?}") };
        let links: Vec<&str> = way.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()).collect();
        // A link to a heading alone stays in this file.
        let files: Vec<&str> = links.into_iter().map(|file| if file.is_empty() { "CONTRIBUTING.md" } else { file }).collect();
        assert!((1..=2).contains(&files.len()), "{question} {} files", files.len());
        let mut at = ("README.md", README.to_owned());
        for file in files {
            let from = std::path::Path::new(at.0).parent().expect("a folder");
            let linked = at.1.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            let leads = file == at.0 || linked.map(|link| from.join(link)).any(|link| link == std::path::Path::new(file));
            assert!(leads, "{question} {} has no link to {file}", at.0);
            at = (file, std::fs::read_to_string(file).expect("a document"));
        }
        // Line ends are blanks in Markdown.
        let text = at.1.split_whitespace().collect::<Vec<_>>().join(" ");
        let quoted = spans(answer);
        assert!(!quoted.is_empty() && quoted.iter().all(|words| text.contains(words)), "{question} {} lacks {quoted:?}", at.0);
    }
}
