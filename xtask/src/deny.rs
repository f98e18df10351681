//! `cargo xtask deny`: licences, sources, bans and known faults of the dependencies, as `deny.toml` has them.
//!
//! It uses cargo-deny, and installs it into `target/` at one version. The build takes minutes, so the command is not part
//! of `ci`.

use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::project::{Project, call};
use crate::tools::Tool;

/// cargo-deny. Its configuration is `deny.toml`.
const DENY: Tool = Tool { package: "cargo-deny", version: "0.20.2" };

/// The checks that need no more than the registry's index.
const LOCAL: [&str; 3] = ["bans", "licenses", "sources"];

/// The check that fetches a database of known faults.
const FETCHED: &str = "advisories";

pub fn run(project: &Project, args: &[String]) -> Result {
    // A machine without the database's network still sees the others.
    let (fetched, local): (Vec<&str>, Vec<&str>) = checks(args)?.into_iter().partition(|check| *check == FETCHED);
    let tool = DENY.install(project)?;
    for checks in [local, fetched].iter().filter(|checks| !checks.is_empty()) {
        let mut command = Command::new(&tool);
        command.current_dir(&project.root).stdin(Stdio::null()).args([DENY.subcommand(), "--workspace", "check"]);
        call(command.args(checks))?;
    }
    Ok(())
}

/// The named checks, or all of them.
fn checks(args: &[String]) -> Result<Vec<&str>> {
    let all: Vec<&str> = LOCAL.into_iter().chain([FETCHED]).collect();
    match args.iter().find(|arg| !all.contains(&arg.as_str())) {
        Some(unknown) => Err(Error::new(format!("`deny` knows the checks {}, not `{unknown}`", all.join(", ")))),
        None if args.is_empty() => Ok(all),
        None => Ok(args.iter().map(String::as_str).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_all_or_the_named_ones() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(checks(&[]).ok(), Some(vec!["bans", "licenses", "sources", "advisories"]));
        assert_eq!(checks(&words("sources bans")).ok(), Some(vec!["sources", "bans"]));
        assert!(checks(&words("bans licences")).is_err_and(|error| error.to_string().contains("not `licences`")));
    }
}
