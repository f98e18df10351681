//! Rules of the source: imports between modules, sizes of files and lines, places of `unsafe` and of the table's variants.
//!
//! The rules are explained in `docs/architecture.md`.

#[path = "support/circles.rs"]
mod circles;

use circles::Files;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every module, and the modules it may name besides itself. A row names rows above it alone, so modules form no circle. `lib`
/// only re-exports.
const MAY_KNOW: [(&str, &[&str]); 27] = [
    ("dtype", &[]),
    ("target", &[]),
    ("source", &["target"]),
    ("ir", &["dtype"]),
    ("check", &["ir", "dtype"]),
    ("pass", &["check", "ir", "dtype"]),
    ("problem", &["check", "ir", "pass", "dtype"]),
    ("build", &["ir", "check", "dtype", "problem"]),
    ("args", &["check", "ir", "dtype", "problem"]),
    ("compat", &["args", "build", "check", "ir", "dtype", "problem"]),
    ("calibrate", &["dtype"]),
    ("grad", &["build", "check", "ir", "pass", "dtype", "args", "problem"]),
    ("parallel", &[]),
    ("reference", &["check", "ir", "pass", "parallel", "dtype", "args", "problem"]),
    ("plan", &["check", "ir", "dtype", "args", "pass", "problem", "target"]),
    ("emit", &["check", "plan", "ir", "problem", "source", "dtype"]),
    ("jit", &["source", "target"]),
    ("device", &["args", "dtype", "ir", "jit", "plan", "problem", "source", "target"]),
    ("dlpack", &["args", "device", "dtype"]),
    ("tune", &["dtype", "jit", "parallel", "plan", "problem"]),
    ("weights", &["dtype", "problem"]),
    ("error", &["args", "build", "check", "device", "dtype", "emit", "grad", "ir", "jit", "plan", "problem"]),
    (
        "gemm",
        &[
            "args",
            "build",
            "check",
            "device",
            "dtype",
            "emit",
            "error",
            "ir",
            "jit",
            "parallel",
            "pass",
            "plan",
            "problem",
            "reference",
            "source",
            "target",
            "tune",
            "weights",
        ],
    ),
    ("layer", &["args", "build", "check", "compat", "device", "dtype", "error", "gemm", "grad", "ir", "plan", "problem", "tune"]),
    ("network", &["args", "build", "device", "dtype", "error", "gemm", "grad", "ir", "parallel", "plan", "problem", "tune"]),
    ("lib", EVERYTHING),
    ("bin", EVERYTHING),
];

const EVERYTHING: &[&str] = &[
    "dtype",
    "target",
    "source",
    "ir",
    "check",
    "build",
    "problem",
    "pass",
    "args",
    "compat",
    "calibrate",
    "grad",
    "parallel",
    "reference",
    "plan",
    "emit",
    "jit",
    "device",
    "dlpack",
    "tune",
    "weights",
    "error",
    "gemm",
    "layer",
    "network",
];

/// The largest a file may be, in lines.
const LARGEST: usize = 500;

/// Tables, which hold rows and no code.
const TABLES: [&str; 1] = ["src/ir/op/table.rs"];

/// The longest a line may be, in columns. It is rustfmt's width.
const WIDEST: usize = 130;

/// Files whose lines are checked by their extension: the others are data.
const WRAPPED: [&str; 6] = ["rs", "cuh", "cu", "hpp", "py", "sh"];

struct File {
    /// Below the repository root, with forward slashes.
    path: String,
    text: String,
}

impl File {
    /// The top module it belongs to.
    fn module(&self) -> &str {
        let inside = self.path.trim_start_matches("src/");
        inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
    }

    /// Lines of code with their numbers: comments, documentation, strings and unit tests left out.
    fn code(&self) -> impl Iterator<Item = (usize, String)> {
        let is_tests = |line: &&str| ["#[cfg(test)]", "mod tests {"].contains(line);
        let lines = self.text.lines().take_while(move |line| !is_tests(line)).enumerate();
        lines.filter(|(_, line)| !line.trim_start().starts_with("//")).map(|(i, line)| (i + 1, without_strings(line)))
    }
}

/// A line without what stands in double quotes, and without the comment behind the code.
fn without_strings(line: &str) -> String {
    let mut out = String::new();
    let (mut inside, mut escaped) = (false, false);
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '/' if !inside && characters.peek() == Some(&'/') => break,
            '"' if !escaped => inside = !inside,
            _ if !inside => out.push(c),
            _ => {}
        }
        escaped = inside && c == '\\' && !escaped;
    }
    out
}

fn root() -> PathBuf {
    let set = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    if set.join("src/lib.rs").is_file() { set } else { PathBuf::from(".") }
}

fn files(folder: &str) -> Vec<File> {
    fn walk(root: &Path, folder: &Path, out: &mut Vec<File>) {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(root, &path, out);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
                out.push(File { path, text });
            }
        }
    }
    let root = root();
    let mut out = Vec::new();
    walk(&root, &root.join(folder), &mut out);
    assert!(!out.is_empty(), "{folder} has no files");
    out
}

/// The modules that a line of code names behind `crate::`.
fn named(line: &str) -> BTreeSet<String> {
    let names = line.split("crate::").skip(1).flat_map(|rest| {
        // `crate::{a, b::c}` as well as `crate::a`.
        let list = rest.strip_prefix('{').map_or(rest, |list| list);
        let parts: Vec<&str> = if rest.starts_with('{') { list.split(',').collect() } else { vec![list] };
        parts
            .into_iter()
            .map(|part| part.trim().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>())
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// Fails with every broken rule.
fn report(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn modules_know_only_what_they_may() {
    let mut broken = Vec::new();
    for (at, (module, may)) in MAY_KNOW.iter().enumerate().filter(|(_, (module, _))| !matches!(*module, "lib" | "bin")) {
        for below in may.iter().filter(|name| !MAY_KNOW[..at].iter().any(|(above, _)| above == *name)) {
            broken.push(format!("`{module}` may know `{below}`, which does not stand above it in the list"));
        }
    }
    // Unit tests in files of their own may use what is above.
    for file in files("src").into_iter().filter(|file| !file.path.contains("/tests/")) {
        let Some((_, may)) = MAY_KNOW.iter().find(|(module, _)| *module == file.module()) else {
            broken.push(format!("{}: a module without a rule: add one to tests/architecture.rs", file.path));
            continue;
        };
        for (number, line) in file.code() {
            for name in named(&line) {
                // Names that are not modules are re-exports at the root. Only the entry points may use them.
                let allowed = name == file.module() || may.contains(&name.as_str());
                let front = matches!(file.module(), "lib" | "bin");
                if !allowed && !front {
                    broken.push(format!("{}:{number}: `{}` must not know `{name}`", file.path, file.module()));
                }
            }
        }
    }
    report(broken);
}

/// The modules whose files name one another without circles.
const WITHOUT_CIRCLES: [&str; 5] = ["device", "jit", "layer", "plan", "reference"];

/// The crate's files as their names are resolved.
fn resolved(files: &[File]) -> Files {
    let code = |file: &File| file.code().map(|(_, line)| line + "\n").collect();
    let tested = |file: &&File| !file.path.contains("/tests") && !file.path.starts_with("src/bin/");
    Files::new(files.iter().filter(tested).map(|file| (file.path.clone(), code(file))))
}

#[test]
fn files_name_one_another_without_circles() {
    let files = resolved(&files("src"));
    let mut broken = Vec::new();
    for module in WITHOUT_CIRCLES {
        for circle in files.circles(&format!("src/{module}/")) {
            broken.push(format!("a circle of {} files in `{module}`:\n{}", circle.len(), files.explain(&circle)));
        }
    }
    report(broken);
}

#[test]
fn the_template_engine_and_cuda_stay_in_their_modules() {
    let rules: [(&str, &[&str]); 4] = [
        ("tera", &["src/emit/"]),
        (
            "cudarc",
            &["src/jit/", "src/device/", "src/dlpack.rs", "src/lib.rs", "src/gemm.rs", "src/gemm/", "src/layer/", "src/network/"],
        ),
        ("libloading", &["src/jit/", "src/device/"]),
        ("matrixmultiply", &["src/reference/"]),
    ];
    let mut broken = Vec::new();
    for file in files("src") {
        for (name, places) in rules {
            let uses = file.code().find(|(_, line)| line.contains(&format!("{name}::")));
            if let (Some((number, _)), false) = (uses, places.iter().any(|place| file.path.starts_with(place))) {
                broken.push(format!("{}:{number}: only {} may use {name}", file.path, places.join(", ")));
            }
        }
    }
    report(broken);
}

#[test]
fn files_stay_readable() {
    let all = files("src").into_iter().chain(files("templates"));
    let long = all.filter(|file| file.text.lines().count() > LARGEST && !TABLES.contains(&file.path.as_str()));
    report(long.map(|file| format!("{}: {} lines; split it at {LARGEST}", file.path, file.text.lines().count())).collect());
}

/// Whether a line is wider than it may be. A row of a Markdown table in documentation cannot be wrapped.
fn is_too_wide(line: &str) -> bool {
    let table = ["//! |", "/// |"].iter().any(|row| line.trim_start().starts_with(row));
    line.chars().count() > WIDEST && !table
}

#[test]
fn lines_stay_readable() {
    let folders = ["src", "templates", "tests", "benches", "examples", "xtask"];
    let checked = |file: &File| {
        let extension = file.path.rsplit_once('.').map_or("", |(_, extension)| extension);
        WRAPPED.contains(&extension)
    };
    let mut broken = Vec::new();
    for file in folders.into_iter().flat_map(files).filter(checked) {
        let wide = file.text.lines().zip(1..).filter(|(line, _)| is_too_wide(line));
        broken.extend(
            wide.map(|(line, number)| format!("{}:{number}: {} columns; wrap it at {WIDEST}", file.path, line.chars().count())),
        );
    }
    report(broken);
}

#[test]
fn unsafe_stands_where_it_can_be_checked() {
    let allowed = ["src/device/", "src/dlpack.rs", "src/jit/nvrtc.rs", "src/jit/locate.rs", "src/reference/gemm.rs"];
    let mut broken = Vec::new();
    for file in files("src") {
        for (number, line) in file.code() {
            let word = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == "unsafe");
            if word && !allowed.iter().any(|place| file.path.starts_with(place)) {
                broken.push(format!("{}:{number}: `unsafe` stands only in {}", file.path, allowed.join(", ")));
            }
        }
    }
    report(broken);
}

/// Whether a line asks which variant of a table something is: a comparison, or a pattern, which a value that is made is
/// not. `table` is the enum with its colons, such as `Op::`.
fn asks_for_a_variant(line: &str, table: &str) -> bool {
    line.match_indices(table).any(|(at, _)| {
        let before = line[..at].trim_end();
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let after = line[at + table.len()..].trim_start_matches(name).trim_start();
        let compared = ["==", "!=", "|", "@ ("].iter().any(|sign| before.ends_with(sign));
        let matched = ["=>", "|", "if ", ", args }"].iter().any(|sign| after.starts_with(sign));
        let field = after.starts_with(',') && [".. }", "} =>", "} if "].iter().any(|sign| after.contains(sign));
        !line[..at].ends_with(name) && (compared || matched || field)
    })
}

#[test]
fn nobody_but_the_table_matches_on_a_row() {
    let tables = [("Op::", "src/ir/op/", "src/ir/op/table.rs"), ("Monoid::", "src/ir/monoid", "src/ir/monoid.rs")];
    let mut broken = Vec::new();
    for file in files("src") {
        for (variant, _, table) in tables.into_iter().filter(|(_, place, _)| !file.path.starts_with(place)) {
            let asks = file.code().filter(|(_, line)| asks_for_a_variant(line, variant));
            broken.extend(asks.map(|(number, _)| {
                format!("{}:{number}: put what is particular to one `{variant}` into its row in {table}", file.path)
            }));
        }
    }
    report(broken);
}

#[test]
fn circles_are_found_behind_re_exports() {
    let circles = |files: &[(&str, &str)]| {
        let files = Files::new(files.iter().map(|(path, code)| (format!("src/{path}"), (*code).to_owned())));
        files.circles("src/a/").into_iter().map(|circle| circle.join(" ")).collect::<Vec<_>>()
    };
    let contents = ("a/mod.rs", "mod b; mod c; pub use b::B; pub(crate) use c::{C as D, make};");
    let straight = [contents, ("a/b.rs", "pub struct B;"), ("a/c.rs", "use super::B; pub struct C(B); pub fn make() {}")];
    assert!(circles(&straight).is_empty());
    for code in [
        "use crate::a::D; pub struct B(D);",
        "use super::{D as E}; pub struct B(E);",
        "pub struct B(super::c::C);",
        "use super::*; pub struct B(D);",
        "pub struct B; fn f() { crate::a::make(); }",
        "pub struct B; mod inner { use super::super::c; fn f() { c::make() } }",
    ] {
        assert_eq!(circles(&[contents, ("a/b.rs", code), straight[2]]), ["src/a/b.rs src/a/c.rs"], "{code}");
    }
    // A file that does more than re-export is in the circle, and a name of another module or crate is not.
    let does = ("a/mod.rs", "mod b; mod c; pub use c::C; pub struct B; impl B { fn c(self) -> C { C(self) } }");
    assert_eq!(circles(&[does, straight[2]]), ["src/a/c.rs src/a/mod.rs"]);
    assert!(
        circles(&[contents, ("a/b.rs", "use std::c::C; use crate::z::Z; pub struct B;"), ("z.rs", "pub struct Z;")]).is_empty()
    );
}

/// The mainloops by their variants' names, each with the beginning of its room's path.
fn rooms(names: &str) -> Vec<(String, String)> {
    let variants = names.split_once("pub enum Mainloop {").and_then(|(_, rest)| rest.split_once('}')).expect("the enum").0;
    let names = variants.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.is_empty());
    let names = names.map(|name| name.trim_end_matches(',').to_owned());
    // Words of a file's name are separated.
    let letter = |(at, c): (usize, char)| {
        let separator = if at > 0 && c.is_uppercase() { "_" } else { "" };
        format!("{separator}{}", c.to_lowercase())
    };
    let file = |name: &str| name.chars().enumerate().map(letter).collect::<String>();
    names.map(|name| (name.clone(), format!("src/plan/mainloop/{}", file(&name)))).collect()
}

#[test]
fn nobody_but_its_room_names_a_mainloop() {
    // The enums themselves, and the table that lists the rooms.
    let lists = ["name.rs", "tile.rs", "table.rs"].map(|file| format!("src/plan/mainloop/{file}"));
    let files = files("src");
    let rooms = rooms(&files.iter().find(|file| file.path == lists[0]).expect("the enum's file").text);
    assert!(rooms.len() > 5, "{rooms:?}");
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| !lists.contains(&file.path)) {
        for (variant, _) in rooms.iter().filter(|(_, room)| !file.path.starts_with(room)) {
            let names = |line: &str| {
                let behind = |table: &str| {
                    line.split(table).skip(1).any(|rest| rest.split(|c: char| !c.is_alphanumeric()).next() == Some(variant))
                };
                behind("TileShape::") || behind("Mainloop::")
            };
            broken.extend(file.code().filter(|(_, line)| names(line)).map(|(number, _)| {
                format!("{}:{number}: put what is particular to `{variant}` into its room, as an answer to `Rules`", file.path)
            }));
        }
    }
    report(broken);
}

#[test]
fn the_page_shows_the_rules() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let rows = MAY_KNOW.iter().filter(|(_, may)| *may != EVERYTHING);
    let rows = rows.map(|(module, may)| format!("| `{module}` | {} |\n", list(may)).replace("|  |", "| |"));
    report(rows.filter(|row| !page.contains(row.as_str())).map(|row| format!("docs/architecture.md lacks {row}")).collect());
}

#[test]
fn the_rules_see_what_they_should() {
    assert_eq!(named("use crate::{ir, plan::Tile};").into_iter().collect::<Vec<_>>(), ["ir", "plan"]);
    assert_eq!(named("let x = crate::jit::compiler(); crate::gemm::Gemm").into_iter().collect::<Vec<_>>(), ["gemm", "jit"]);
    let asks = [
        "Op::Mul => x,",
        "op: op @ (Op::Add | Op::Sub),",
        "Node::Apply { op: Op::Mul, args } if x",
        "if *op == Op::Not {",
        "Op::Add | Op::Sub =>",
    ];
    let makes =
        ["graph.apply(Op::Add, &[a, b])", "Node::Apply { op: Op::Not, args: vec![a] }", "CustomOp::new(x) => y", "Op::cast(to)"];
    let op = |line: &&str| asks_for_a_variant(line, "Op::");
    assert!(asks.iter().all(op) && !makes.iter().any(op));
    let asks = [
        "(monoid == Monoid::Sum && x)",
        "SinkKind::Reduce(Reduction { monoid: Monoid::Sum, operand, .. }) => {",
        "Node::Reduce { monoid: Monoid::LogSumExp, over, ref args } => x,",
        "matches!(monoid, Monoid::Max | Monoid::Min)",
    ];
    let makes = ["Reduce::from(Monoid::Sum).to(operand)", "Some(Monoid::Custom(custom))", "filter_map(Monoid::custom);"];
    let monoid = |line: &&str| asks_for_a_variant(line, "Monoid::");
    assert!(asks.iter().all(monoid) && !makes.iter().any(monoid));
    assert_eq!(without_strings(r#"f("crate::x \" unsafe", y) // unsafe"#), "f(, y) ");
    let wide = "x".repeat(WIDEST + 1);
    assert!(is_too_wide(&wide) && is_too_wide(&format!("/// {wide}")));
    assert!(!is_too_wide(&wide[1..]) && !is_too_wide(&format!("    /// | {wide} |")));
}
