//! The oldest Rust: the library is checked with the `rust-version` that its manifest states.

use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::project::{Project, call};

/// The library with every feature, and with none. Lints know the oldest Rust too, and cover what lies between.
const FORMS: [&str; 2] = ["--all-features", "--no-default-features"];

/// The variable that makes a missing rustup an error, as it is for `.ci/run`.
const REQUIRED: &str = "POSTLUDE_REQUIRE_RUSTUP";

/// Checks the library, after it has installed the toolchain if that is missing.
pub fn check(project: &Project) -> Result {
    let version = &project.oldest_rust;
    say!("Rust {version}");
    if !answers(&mut rustup(["run", version, "rustc", "--version"])) {
        let mut install = rustup(["toolchain", "install", version, "--profile", "minimal", "--no-self-update"]);
        call(&mut install).map_err(|error| Error::new(format!("{error}: Rust {version} is neither here nor to be had")))?;
    }
    FORMS.iter().try_for_each(|form| call(&mut check_of(project, version, form)))
}

/// Why this machine cannot check it: without rustup there is one Rust, which the other steps use.
///
/// # Errors
/// If rustup is required and missing.
pub fn lacks(project: &Project) -> Result<Option<String>> {
    missing(&project.oldest_rust, answers(&mut rustup(["--version"])), std::env::var_os(REQUIRED).is_some())
}

fn missing(version: &str, is_there: bool, required: bool) -> Result<Option<String>> {
    let why = format!("there is no rustup on PATH, which would bring Rust {version}");
    match (is_there, required) {
        (true, _) => Ok(None),
        (false, false) => Ok(Some(why)),
        (false, true) => Err(Error::new(format!("{why}: install rustup, or unset {REQUIRED}"))),
    }
}

/// One check, in a target folder of its own: this Rust cannot read what another has built.
fn check_of(project: &Project, version: &str, form: &str) -> Command {
    let mut check = rustup(["run", version, "cargo", "check", "--package", "postlude"]);
    check.args([form, "--target-dir"]).arg(project.target.join("msrv")).current_dir(&project.root);
    // Nothing runs but macros and build scripts: optimising them takes longer than they do.
    check.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
    check
}

fn rustup<const N: usize>(args: [&str; N]) -> Command {
    let mut rustup = Command::new("rustup");
    rustup.args(args).stdin(Stdio::null());
    rustup
}

/// Whether a program starts and succeeds. Its output is of no interest.
fn answers(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_rustup_is_an_error_only_where_it_is_required() {
        assert_eq!(missing("1.70", true, true).ok(), Some(None));
        assert!(missing("1.70", false, false).is_ok_and(|why| why.is_some_and(|why| why.ends_with("Rust 1.70"))));
        assert!(missing("1.70", false, true).is_err_and(|error| error.to_string().contains("install rustup")));
    }

    #[test]
    fn programs_that_are_not_there_do_not_answer() {
        assert!(!answers(&mut Command::new("postlude-has-no-such-program")));
    }
}
