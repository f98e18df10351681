//! Programs of others, each installed into `target/` at one version.

use std::path::PathBuf;
use std::process::Command;

use crate::error::Result;
use crate::project::{Project, call};

/// A subcommand of cargo, as its package names it.
pub struct Tool {
    /// `cargo-NAME`.
    pub package: &'static str,
    pub version: &'static str,
}

impl Tool {
    /// The program, installed if it is missing or has another version.
    pub fn install(&self, project: &Project) -> Result<PathBuf> {
        let root = project.target.join("tools");
        let program = root.join("bin").join(format!("{}{}", self.package, std::env::consts::EXE_SUFFIX));
        let asked = Command::new(&program).args([self.subcommand(), "--version"]).output();
        let is_there = asked.is_ok_and(|output| self.is_named_by(&String::from_utf8_lossy(&output.stdout)));
        if !is_there {
            let mut cargo = project.cargo();
            cargo.args(["install", "--locked", "--force", self.package, "--version", self.version, "--root"]).arg(&root);
            call(&mut cargo)?;
        }
        Ok(program)
    }

    /// The word behind `cargo`, which the program takes as its first argument.
    pub fn subcommand(&self) -> &'static str {
        self.package.strip_prefix("cargo-").unwrap_or(self.package)
    }

    /// Whether the program's answer about its version names this one.
    fn is_named_by(&self, answer: &str) -> bool {
        answer.split_whitespace().next_back() == Some(self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_version_is_not_the_tool() {
        let tool = Tool { package: "cargo-deny", version: "0.20.2" };
        assert_eq!(tool.subcommand(), "deny");
        assert!(tool.is_named_by("cargo-deny 0.20.2\n"));
        for other in ["cargo-deny 0.20.1\n", "cargo-deny 10.20.2", ""] {
            assert!(!tool.is_named_by(other), "{other}");
        }
    }
}
