//! The repository: where it is, what it builds, and how to call cargo in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Context, Error, Result};
use crate::json;

/// One checkout of Postlude.
pub struct Project {
    pub root: PathBuf,
    /// Where cargo builds: `target/`, unless the user's configuration says otherwise.
    pub target: PathBuf,
    /// What the library's package builds.
    pub targets: Vec<Target>,
}

/// Something cargo builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `lib`, `test`, `bench` or `example`.
    pub kind: String,
    pub name: String,
}

impl Project {
    /// Finds the checkout this program belongs to.
    pub fn open() -> Result<Self> {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| Error::new("run this as `cargo xtask ...`"))?;
        let root = Path::new(&package).parent().ok_or_else(|| Error::new("the tooling's package has no parent folder"))?;
        let mut project = Self { root: root.to_path_buf(), target: PathBuf::new(), targets: Vec::new() };
        let metadata = project.capture(&["metadata", "--no-deps", "--format-version=1"])?;
        let strange = || Error::new("`cargo metadata` answered in an unknown form");
        project.target = json::field(&metadata, "target_directory").and_then(json::string).ok_or_else(strange)?.into();
        project.targets = library_targets(&metadata).ok_or_else(strange)?;
        Ok(project)
    }

    /// The cargo that runs this program, to be started in the repository.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        cargo.current_dir(&self.root).stdin(Stdio::null());
        cargo
    }

    /// Runs cargo to its end and returns its standard output; what it says on the way goes to the terminal.
    pub fn capture(&self, args: &[&str]) -> Result<String> {
        let mut cargo = self.cargo();
        cargo.args(args);
        capture(&mut cargo)
    }
}

/// Runs a command with the terminal as its output.
pub fn call(command: &mut Command) -> Result {
    let name = spell(command);
    let status = command.status().context(|| format!("cannot start `{name}`"))?;
    if status.success() { Ok(()) } else { Err(Error::new(format!("`{name}` failed ({status})"))) }
}

/// Runs a command and returns its standard output.
pub fn capture(command: &mut Command) -> Result<String> {
    let name = spell(command);
    let output = command.stderr(Stdio::inherit()).output().context(|| format!("cannot start `{name}`"))?;
    if !output.status.success() {
        return Err(Error::new(format!("`{name}` failed ({})", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as a person would type it: the program without its folder, then its arguments.
pub fn spell(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words: Vec<_> = std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// What the published package builds, out of `cargo metadata`.
fn library_targets(metadata: &str) -> Option<Vec<Target>> {
    let packages = json::elements(json::field(metadata, "packages")?);
    let is_library = |package: &&&str| json::field(package, "name").and_then(json::string).as_deref() == Some("postlude");
    let package = packages.iter().find(is_library)?;
    let target = |target: &str| {
        let kind = json::string(json::elements(json::field(target, "kind")?).first()?)?;
        Some(Target { kind, name: json::string(json::field(target, "name")?)? })
    };
    json::elements(json::field(package, "targets")?).into_iter().map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_the_library_builds() {
        let metadata = r#"{"packages":[
            {"name":"xtask","targets":[{"kind":["bin"],"name":"xtask"}]},
            {"name":"postlude","targets":[{"kind":["lib"],"name":"postlude"},{"kind":["test"],"name":"files","test":true}]}
        ],"target_directory":"/t"}"#;
        let target = |kind: &str, name: &str| Target { kind: kind.into(), name: name.into() };
        assert_eq!(library_targets(metadata), Some(vec![target("lib", "postlude"), target("test", "files")]));
        assert_eq!(library_targets(r#"{"packages":[]}"#), None);
    }

    #[test]
    fn spells_commands_without_folders() {
        let mut command = Command::new("/some/where/cargo");
        command.args(["test", "--workspace"]);
        assert_eq!(spell(&command), "cargo test --workspace");
    }
}
