//! File tests: one text file an epilogue, under `tests/epilogues`.
//!
//! ```text
//! ; test: check print roundtrip
//! ; What this epilogue is, in a sentence or two.
//!
//! %0 = acc f32
//! store "d" f16[M,N,L], %0
//!
//! ;= print
//! ;> %0: f32[M,N,L] = acc f32
//! ;> store "d" f16[M,N,L], %0
//! ```
//!
//! The first line names the modes, which are the rows of [`MODES`]; each makes one test, `mode::folder/file`. A mode that
//! gives a text is compared with its block (`;= mode`, then lines behind `;> `) at the end of the file. All of it is
//! comment to the text form, so that a file is an epilogue as it stands.
//!
//! `BLESS=1 cargo test --test filetests` rewrites the blocks; `cargo test --test filetests -- print::` runs one mode.

#[path = "support/diff.rs"]
mod diff;
#[path = "support/evaluation.rs"]
mod evaluation;
#[path = "support/monoids.rs"]
mod monoids;
#[path = "support/softcap.rs"]
mod softcap;

use libtest_mimic::{Arguments, Failed, Trial};
use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::grad::Wrt;
use postlude::ir::SinkKind;
use postlude::target::Target;
use postlude::{DType, Epilogue, Gemm, Layout, Op, Registry, Scores, Shape};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The result of a mode.
#[allow(dead_code, reason = "no mode needs more than Rust yet")]
enum Outcome {
    /// It holds; there is nothing to compare.
    Holds,
    /// A text, to be compared with the file's block.
    Text(String),
    /// It could not run here, and why. The file's block stays as it is.
    Skipped(String),
}

/// A way to run a file.
struct Mode {
    name: &'static str,
    run: fn(&Case) -> Result<Outcome, String>,
}

/// Every mode. To add one, add a row and name it in the first line of the files it is for.
const MODES: &[Mode] = &[
    Mode { name: "check", run: check },
    Mode { name: "scores", run: scores },
    Mode { name: "print", run: print },
    Mode { name: "roundtrip", run: roundtrip },
    Mode { name: "dot", run: dot },
    Mode { name: "eval", run: eval },
    Mode { name: "grad", run: grad },
    Mode { name: "cuda", run: cuda },
    Mode { name: "hopper", run: hopper },
    Mode { name: "scored", run: scored },
];

/// One file.
#[derive(Clone)]
struct Case {
    name: String,
    path: PathBuf,
    modes: Vec<String>,
    /// Everything before the first block.
    text: String,
    blocks: BTreeMap<String, String>,
}

impl Case {
    fn read(root: &Path, path: &Path) -> Result<Case, String> {
        let name = path.strip_prefix(root).unwrap_or(path).with_extension("").display().to_string().replace('\\', "/");
        let fault = |what: &str| format!("{name}: {what}");
        let all = fs::read_to_string(path).map_err(|e| fault(&e.to_string()))?.replace("\r\n", "\n");
        let modes = all.lines().next().and_then(|line| line.strip_prefix("; test:"));
        let modes = modes.ok_or_else(|| fault("the first line is `; test:` and modes"))?;
        let modes: Vec<String> = modes.split_whitespace().map(str::to_owned).collect();
        if let Some(unknown) = modes.iter().find(|m| !MODES.iter().any(|mode| mode.name == **m)) {
            return Err(fault(&format!("there is no mode `{unknown}`")));
        }
        let mut case = Case { name: name.clone(), path: path.into(), modes, text: String::new(), blocks: BTreeMap::new() };
        let mut block: Option<&mut String> = None;
        for line in all.lines() {
            if let Some(mode) = line.strip_prefix(";= ") {
                block = Some(case.blocks.entry(mode.trim().to_owned()).or_default());
            } else if let Some(block) = &mut block {
                if line.is_empty() {
                    continue;
                }
                let line = line.strip_prefix(";>").filter(|l| l.is_empty() || l.starts_with(' '));
                let line = line.ok_or_else(|| fault("behind the first `;= mode` only lines behind `;> ` may stand"))?;
                block.push_str(line.strip_prefix(' ').unwrap_or(line));
                block.push('\n');
            } else {
                case.text.push_str(line);
                case.text.push('\n');
            }
        }
        case.text.truncate(case.text.trim_end().len());
        case.text.push('\n');
        Ok(case)
    }

    fn epilogue(&self) -> Result<Epilogue, String> {
        Epilogue::from_text(&self.text, &registry()).map_err(|e| e.to_string())
    }

    /// Runs one mode and compares its result with its block.
    fn test(&self, mode: &Mode) -> Result<(), Failed> {
        match (mode.run)(self)? {
            Outcome::Skipped(why) => eprintln!("{}::{} skipped: {why}", mode.name, self.name),
            Outcome::Holds => {}
            Outcome::Text(text) => {
                let (empty, text) = (String::new(), with_line_end(text));
                let expected = self.blocks.get(mode.name).unwrap_or(&empty);
                if *expected != text {
                    let diff = diff::lines(expected, &text);
                    return Err(
                        format!("{}: `;= {}` differs (BLESS=1 rewrites it)\n{diff}", self.path.display(), mode.name).into()
                    );
                }
            }
        }
        Ok(())
    }

    /// Rewrites the blocks with the present results.
    fn bless(&mut self) -> Result<(), String> {
        let mut blocks = BTreeMap::new();
        let mut out = self.text.clone();
        for mode in MODES.iter().filter(|mode| self.modes.iter().any(|m| m == mode.name)) {
            let text = match (mode.run)(self).map_err(|e| format!("{}: {e}", self.name))? {
                Outcome::Holds => continue,
                Outcome::Text(text) => with_line_end(text),
                Outcome::Skipped(_) => self.blocks.get(mode.name).cloned().unwrap_or_default(),
            };
            let _ = writeln!(out, "\n;= {}", mode.name);
            for line in text.lines() {
                let _ = writeln!(out, "{}", format!(";> {line}").trim_end());
            }
            blocks.insert(mode.name.to_owned(), text);
        }
        self.blocks = blocks;
        fs::write(&self.path, out).map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

fn with_line_end(text: String) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The activations, and the custom primitive of the tests.
fn registry() -> Registry {
    postlude::build::registry().with(softcap::softcap()).with_monoids(monoids::every())
}

/// The result of the check: the arguments of a launch, or the diagnostics.
fn check(case: &Case) -> Result<Outcome, String> {
    Ok(Outcome::Text(match Epilogue::from_text(&case.text, &registry()) {
        Ok(epilogue) => epilogue.arguments().iter().map(|a| format!("{a}\n")).collect(),
        Err(error) => error.to_string(),
    }))
}

/// What the check says of it as a function of scores.
fn scores(case: &Case) -> Result<Outcome, String> {
    Ok(Outcome::Text(match Scores::from_text(&case.text, &registry()) {
        Ok(scores) => scores.arguments().iter().map(|a| format!("{a}\n")).collect(),
        Err(error) => error.to_string(),
    }))
}

/// The listing.
fn print(case: &Case) -> Result<Outcome, String> {
    Ok(Outcome::Text(case.epilogue()?.to_string()))
}

/// From text to text, and from text through JSON to text.
fn roundtrip(case: &Case) -> Result<Outcome, String> {
    let epilogue = case.epilogue()?;
    let same = |what: &str, again: &Epilogue| {
        if *again == epilogue && again.to_string() == epilogue.to_string() {
            return Ok(());
        }
        Err(format!("{what} changed the epilogue:\n{}", diff::lines(&epilogue.to_string(), &again.to_string())))
    };
    same("text", &Epilogue::from_text(&epilogue.to_string(), &registry()).map_err(|e| e.to_string())?)?;
    let json = epilogue.to_json();
    let read = Epilogue::from_json(&json, &registry()).map_err(|e| e.to_string())?;
    same("JSON", &read)?;
    if read.to_json() == json { Ok(Outcome::Holds) } else { Err("JSON differs when it is written again".into()) }
}

/// The drawing.
fn dot(case: &Case) -> Result<Outcome, String> {
    Ok(Outcome::Text(case.epilogue()?.to_dot()))
}

/// The reference's results on a small, fixed problem.
fn eval(case: &Case) -> Result<Outcome, String> {
    Ok(Outcome::Text(evaluation::evaluate(&case.epilogue()?)?))
}

/// The derivative with respect to everything: its saved values, and the backward epilogue.
fn grad(case: &Case) -> Result<Outcome, String> {
    let pair = match case.epilogue()?.backward(Wrt::all()) {
        Ok(pair) => pair,
        Err(error) => return Ok(Outcome::Text(error.to_string())),
    };
    Ok(Outcome::Text(format!("{}{}", pair.reserve().explain(Shape::new(1024, 1024, 1)), pair.backward())))
}

/// The epilogue's part of the kernel, for a product that fits its accumulator. Empty functions of the contract are left
/// out.
fn cuda(case: &Case) -> Result<Outcome, String> {
    spelled(case, Target::SM_80)
}

/// The same for Hopper, whose kernels stage matrices in shared memory, and combine all tiles of a total themselves.
fn hopper(case: &Case) -> Result<Outcome, String> {
    spelled(case, Target::SM_90A)
}

fn spelled(case: &Case, target: Target) -> Result<Outcome, String> {
    let epilogue = case.epilogue()?;
    let dtype = match epilogue.checked().accumulator() {
        Some(value @ (ValueType::I32 | ValueType::F64)) => value.storage(),
        _ => DType::F16,
    };
    let plan = Gemm::new(dtype, Layout::TN, &epilogue).kernel_plan(target, 132, Shape::new(1024, 1024, 1024));
    let source = plan.map_err(|e| e.to_string())?.source().map_err(|e| e.to_string())?;
    let called = source.text().find("// ---- functions that are called");
    let from = called.or_else(|| source.text().find("struct TileValues")).ok_or("the kernel has no epilogue")?;
    let reduces = epilogue.checked().graph().sinks().iter().any(|s| matches!(s.kind, SinkKind::Reduce(_)));
    let end = if reduces { "// How many visits" } else { "DEVICE void epilogue_row_end" };
    let to = source.text().find(end).ok_or("the epilogue has no end")?;
    // The kernel's own line numbers depend on the prelude, which is irrelevant here.
    let resumed = |line: &str| line.starts_with("#line") && line.ends_with("\"kernel.cu\"");
    let lines =
        source.text()[from..to].trim_end().lines().map(|line| if resumed(line) { "#line ... \"kernel.cu\"" } else { line });
    Ok(Outcome::Text(lines.collect::<Vec<_>>().join("\n")))
}

/// The functions of scores in an attention whose scores become what the file says.
fn scored(case: &Case) -> Result<Outcome, String> {
    let scores = Scores::from_text(&case.text, &registry()).map_err(|e| e.to_string())?;
    let epilogue = postlude::build::recipes::identity(DType::F16).map_err(|e| e.to_string())?;
    let gemm = Gemm::attention(DType::F16, postlude::Attention::new(64).scores(&scores), &epilogue);
    let plan = gemm.kernel_plan(Target::SM_80, 108, Shape::new(1024, 64, 1024).batched(4)).map_err(|e| e.to_string())?;
    let source = plan.source().map_err(|e| e.to_string())?;
    let from = source.text().find("namespace scores {").ok_or("the kernel has no function of scores")?;
    let end = "\n}\n}";
    let to = source.text()[from..].find(end).ok_or("the functions of scores have no end")?;
    Ok(Outcome::Text(source.text()[from..from + to + end.len()].to_owned()))
}

/// Every file under a folder, sorted.
fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "evt") {
            out.push(path);
        }
    }
}

/// Every primitive, every activation and every rule that text can break stands in some file.
fn coverage(cases: &[Case]) -> Result<(), Failed> {
    let listings: String = cases.iter().filter(|c| !c.name.starts_with("errors/")).map(|c| c.text.as_str()).collect();
    let errors: String =
        cases.iter().flat_map(|c| [c.blocks.get("check"), c.blocks.get("scores")]).flatten().map(String::as_str).collect();
    let names = Op::ALL.iter().map(|op| op.name()).chain(activation::ALL.iter().map(|f| f.name));
    let mut missing: Vec<String> = names.filter(|name| !listings.contains(&format!("= {name} "))).map(str::to_owned).collect();
    let rules = include_str!("../src/check/mod.rs").lines().filter_map(|l| l.strip_prefix("//! | E")).map(|l| &l[..4]);
    // Text has one builder and one definition of a name, is refused before it is too large, and has the functions of its reader.
    let elsewhere = ["0105", "0106", "0108", "0109", "0205", "0206"];
    let rules = rules.filter(|rule| !elsewhere.contains(rule)).filter(|rule| !errors.contains(&format!("error[E{rule}]")));
    missing.extend(rules.map(|rule| format!("E{rule}")));
    if missing.is_empty() { Ok(()) } else { Err(format!("no file has {}", missing.join(", ")).into()) }
}

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into())).join("tests/epilogues");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let (mut cases, mut trials) = (Vec::new(), Vec::new());
    let broken = |name: String, why: String| Trial::test(name, move || Err(why.into()));
    for path in paths {
        match Case::read(&root, &path) {
            Ok(case) => cases.push(case),
            Err(why) => trials.push(broken(format!("read::{}", path.display()), why)),
        }
    }
    if env::var_os("BLESS").is_some_and(|v| v == "1") && !arguments.list {
        for case in &mut cases {
            if let Err(why) = case.bless() {
                trials.push(broken(format!("bless::{}", case.name), why));
            }
        }
    }
    for case in &cases {
        for mode in MODES.iter().filter(|mode| case.modes.iter().any(|m| m == mode.name)) {
            let case = case.clone();
            trials.push(Trial::test(format!("{}::{}", mode.name, case.name), move || case.test(mode)));
        }
    }
    if cases.is_empty() {
        trials.push(broken("read::epilogues".into(), format!("no file under {}", root.display())));
    }
    trials.push(Trial::test("coverage", move || coverage(&cases)));
    libtest_mimic::run(&arguments, trials).exit();
}
