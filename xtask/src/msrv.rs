//! The oldest Rust: the library is checked with the `rust-version` that its manifest states.

use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::project::{Project, call};

/// The library with every feature, and with none. Lints know the oldest Rust too, and cover what lies between.
const FORMS: [&str; 2] = ["--all-features", "--no-default-features"];

/// The variable that makes a missing toolchain an error.
const REQUIRED: &str = "POSTLUDE_REQUIRE_RUSTUP";

/// Checks the library with a toolchain that is there.
pub fn check(project: &Project) -> Result {
    let version = &project.oldest_rust;
    say!("Rust {version}");
    FORMS.iter().try_for_each(|form| call(&mut check_of(project, version, form)))
}

/// Why this machine cannot check it, after an attempt to install the toolchain: rustup is missing, or cannot fetch it.
///
/// # Errors
/// If the toolchain is required and missing.
pub fn lacks(project: &Project) -> Result<Option<String>> {
    let version = &project.oldest_rust;
    let why = if !answers(&mut rustup(["--version"])) {
        Some(format!("PATH lacks rustup, which would bring Rust {version}"))
    } else if answers(&mut rustup(["run", version, "rustc", "--version"])) {
        None
    } else {
        let mut install = rustup(["toolchain", "install", version, "--profile", "minimal", "--no-self-update"]);
        call(&mut install).err().map(|error| format!("rustup cannot fetch Rust {version}: {error}"))
    };
    missing(why, std::env::var_os(REQUIRED).is_some())
}

fn missing(why: Option<String>, required: bool) -> Result<Option<String>> {
    match why {
        Some(why) if required => Err(Error::new(format!("{why}: provide it, or unset {REQUIRED}"))),
        why => Ok(why),
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
    fn a_missing_toolchain_is_an_error_only_where_it_is_required() {
        let why = || Some("PATH lacks rustup".to_owned());
        assert_eq!(missing(None, true).ok(), Some(None));
        assert_eq!(missing(why(), false).ok(), Some(why()));
        assert!(missing(why(), true).is_err_and(|error| error.to_string().contains("PATH lacks rustup: provide it")));
    }

    #[test]
    fn programs_that_are_not_there_do_not_answer() {
        assert!(!answers(&mut Command::new("postlude-has-no-such-program")));
    }
}
