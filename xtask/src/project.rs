//! The repository: where it is, what it builds, and how to call cargo in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::{Context, Error, Result};

/// One checkout of Postlude.
pub struct Project {
    pub root: PathBuf,
    /// Where cargo builds: `target/`, unless the user's configuration says otherwise.
    pub target: PathBuf,
    /// The targets of the library's package.
    pub targets: Vec<Target>,
    /// The oldest Rust that builds the library, as its manifest states it.
    pub oldest_rust: String,
}

/// Something cargo builds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Described")]
pub struct Target {
    /// `lib`, `test`, `bench` or `example`.
    pub kind: String,
    pub name: String,
}

/// A target as cargo describes it: a library has a kind for each form of it.
#[derive(Deserialize)]
struct Described {
    kind: Vec<String>,
    name: String,
}

impl TryFrom<Described> for Target {
    type Error = &'static str;

    fn try_from(described: Described) -> std::result::Result<Self, Self::Error> {
        let kind = described.kind.into_iter().next().ok_or("a target without a kind")?;
        Ok(Self { kind, name: described.name })
    }
}

/// The answer of `cargo metadata`, as far as it matters here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
    /// Packages that are never published need not state one.
    rust_version: Option<String>,
}

impl Metadata {
    fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::new(format!("`cargo metadata` answered in an unknown form: {error}")))
    }

    /// The targets of the published package, and its `rust-version`.
    fn library(self) -> Result<(Vec<Target>, String)> {
        let library = self.packages.into_iter().find(|package| package.name == "postlude");
        let library = library.ok_or_else(|| Error::new("`cargo metadata` knows no package `postlude`"))?;
        let oldest_rust = library.rust_version.ok_or_else(|| Error::new("the package `postlude` states no `rust-version`"))?;
        Ok((library.targets, oldest_rust))
    }
}

impl Project {
    /// Finds the checkout this program belongs to.
    pub fn open() -> Result<Self> {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| Error::new("run this as `cargo xtask ...`"))?;
        let root = Path::new(&package).parent().ok_or_else(|| Error::new("the tooling's package has no parent folder"))?;
        let root = root.to_path_buf();
        let mut project = Self { root, target: PathBuf::new(), targets: Vec::new(), oldest_rust: String::new() };
        let metadata = Metadata::read(&project.capture(&["metadata", "--no-deps", "--format-version=1"])?)?;
        project.target.clone_from(&metadata.target_directory);
        (project.targets, project.oldest_rust) = metadata.library()?;
        Ok(project)
    }

    /// The cargo that runs this program, to be started in the repository.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        cargo.current_dir(&self.root).stdin(Stdio::null());
        cargo
    }

    /// Runs cargo to its end and returns its standard output. Its messages go to the terminal.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_the_library_builds() {
        let metadata = r#"{"packages":[
            {"name":"xtask","targets":[{"kind":["bin"],"name":"xtask"}],"rust_version":null},
            {"name":"postlude","rust_version":"1.70.1",
             "targets":[{"kind":["lib"],"name":"postlude"},{"kind":["test"],"name":"files","test":true}]}
        ],"target_directory":"/t"}"#;
        let target = |kind: &str, name: &str| Target { kind: kind.into(), name: name.into() };
        let read = Metadata::read(metadata).ok();
        assert_eq!(read.as_ref().map(|metadata| metadata.target_directory.as_path()), Some(Path::new("/t")));
        let library = read.and_then(|metadata| metadata.library().ok());
        assert_eq!(library, Some((vec![target("lib", "postlude"), target("test", "files")], "1.70.1".to_owned())));
    }

    #[test]
    fn strange_answers_are_errors() {
        let why = |text: &str| Metadata::read(text).and_then(Metadata::library).err().map(|error| error.to_string());
        let lacks = why(r#"{"packages":[],"target_directory":"/t"}"#);
        assert_eq!(lacks.as_deref(), Some("`cargo metadata` knows no package `postlude`"));
        let ageless = why(r#"{"packages":[{"name":"postlude","targets":[],"rust_version":null}],"target_directory":"/t"}"#);
        assert_eq!(ageless.as_deref(), Some("the package `postlude` states no `rust-version`"));
        let kindless = r#"{"packages":[{"name":"postlude","targets":[{"kind":[],"name":"x"}]}],"target_directory":"/t"}"#;
        for (text, word) in [("[]", "unknown form"), (kindless, "a target without a kind")] {
            assert!(why(text).is_some_and(|why| why.contains(word)), "{text}");
        }
    }

    #[test]
    fn spells_commands_without_folders() {
        let mut command = Command::new("/some/where/cargo");
        command.args(["test", "--workspace"]);
        assert_eq!(spell(&command), "cargo test --workspace");
    }
}
