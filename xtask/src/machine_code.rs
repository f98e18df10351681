//! `cargo xtask machine-code COMMIT [--texts]`: which kernels have other instructions, or texts, than at another commit.
//!
//! The set of kernels is that of `tests/machine_code.rs`, or of `tests/kernel_texts.rs`, as each side has it. The other commit
//! is checked out below `target/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Context, Error, Result};
use crate::nvrtc::{self, Nvrtc};
use crate::project::{Project, call};

/// What is compared, and the test that writes its digests to the file that a variable names.
struct Compared {
    word: &'static str,
    test: &'static str,
    variable: &'static str,
    compiles: bool,
}

const INSTRUCTIONS: Compared =
    Compared { word: "instructions", test: "machine_code", variable: "POSTLUDE_MACHINE_CODE", compiles: true };
const TEXTS: Compared = Compared { word: "texts", test: "kernel_texts", variable: "POSTLUDE_KERNEL_TEXTS", compiles: false };

pub fn run(project: &Project, args: &[String]) -> Result {
    let (commit, what) = match args {
        [commit] => (commit, &INSTRUCTIONS),
        [commit, texts] if texts == "--texts" => (commit, &TEXTS),
        _ => return Err(Error::new("`machine-code` takes a commit to compare with: `cargo xtask machine-code main [--texts]`")),
    };
    let folder = project.target.join("machine-code");
    std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let before = before(project, &folder, commit, what)?;
    let after = digests(project, &project.root, &folder.join("after.tsv"), what)?;
    let (same, changed, missing) = compare(&before, &after);
    for line in changed.iter().chain(&missing) {
        say!("{line}");
    }
    say!("{same} kernels have the same {}, {} others, {} are on one side only", what.word, changed.len(), missing.len());
    if changed.is_empty() { Ok(()) } else { Err(Error::new(format!("{} differ", what.word))) }
}

/// The digests of another commit, in a checkout of its own that is removed again.
fn before(project: &Project, folder: &Path, commit: &str, what: &Compared) -> Result<BTreeMap<String, String>> {
    let tree = folder.join("tree");
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(&project.root).args(args);
        git
    };
    let path = tree.to_string_lossy().into_owned();
    // What a run that was interrupted has left.
    let _ = git(&["worktree", "remove", "--force", &path]).output();
    call(&mut git(&["worktree", "add", "--detach", "--quiet", &path, commit]))?;
    let found = digests(project, &tree, &folder.join("before.tsv"), what);
    call(&mut git(&["worktree", "remove", "--force", &path]))?;
    found
}

/// Runs the test in a checkout, and reads what it has written.
fn digests(project: &Project, tree: &Path, file: &PathBuf, what: &Compared) -> Result<BTreeMap<String, String>> {
    let mut cargo = project.cargo();
    cargo.current_dir(tree).args(["test", "--package", "postlude", "--test", what.test, "--", "--ignored", "digests"]);
    cargo.env("CARGO_TARGET_DIR", project.target.join("machine-code/target")).env(what.variable, file);
    if what.compiles {
        cargo.env("POSTLUDE_REQUIRE_NVRTC", "1");
        if let Nvrtc::Folder(folder) = nvrtc::find_or_fetch(project)? {
            cargo.env("POSTLUDE_NVRTC_PATH", folder);
        }
    }
    call(&mut cargo)?;
    let text = std::fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
    Ok(text.lines().filter_map(|line| line.split_once('\t')).map(|(name, code)| (name.into(), code.into())).collect())
}

/// How many kernels are the same, and a line for each that differs, and for each that only one side has.
fn compare(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> (usize, Vec<String>, Vec<String>) {
    let (mut same, mut changed, mut missing) = (0, Vec::new(), Vec::new());
    let bytes = |code: &str| code.split('\t').next().unwrap_or_default().to_owned();
    for (name, old) in before {
        match after.get(name) {
            Some(new) if new == old => same += 1,
            Some(new) => changed.push(format!("{name}: {} bytes, before {}", bytes(new), bytes(old))),
            None => missing.push(format!("{name}: only before")),
        }
    }
    missing.extend(after.keys().filter(|name| !before.contains_key(*name)).map(|name| format!("{name}: only now")));
    (same, changed, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named() {
        let side = |rows: &[(&str, &str)]| rows.iter().map(|(name, code)| ((*name).into(), (*code).into())).collect();
        let before: BTreeMap<String, String> = side(&[("a", "16\t1"), ("b", "32\t2"), ("c", "48\t3")]);
        let after = side(&[("a", "16\t1"), ("b", "64\t9"), ("d", "48\t3")]);
        let (same, changed, missing) = compare(&before, &after);
        assert_eq!((same, changed), (1, vec!["b: 64 bytes, before 32".to_owned()]));
        assert_eq!(missing, ["c: only before", "d: only now"]);
    }
}
