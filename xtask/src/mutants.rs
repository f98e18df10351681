//! `cargo xtask mutants`: puts small faults into the library, one at a time, and names those that no test sees.
//!
//! It uses cargo-mutants, and installs it into `target/` at one version. There are thousands of faults, and each takes
//! about a minute. So a run takes a sample: evenly spaced faults, beginning at a place that the seed picks. The command
//! is not part of `ci`: a surviving fault is a question, not a failure.

use std::path::Path;
use std::process::Command;

use crate::error::{Context, Error, Result};
use crate::project::{Project, call, capture};
use crate::tools::Tool;

/// cargo-mutants. Its configuration is `xtask/mutants.toml`.
const MUTANTS: Tool = Tool { package: "cargo-mutants", version: "27.1.0" };

/// The default number of faults in a run.
const SAMPLE: usize = 20;

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    sample: Option<usize>,
    seed: usize,
    templates: bool,
    /// The arguments for cargo-mutants besides the configuration.
    extra: Vec<String>,
}

pub fn run(project: &Project, args: &[String]) -> Result {
    let options = parse(args)?;
    if options.templates {
        let mut cargo = project.cargo();
        let test = ["test", "--package", "postlude", "--test", "emulate", "--", "--ignored", "--nocapture"];
        return call(cargo.args(test).env("POSTLUDE_REQUIRE_CXX", "1"));
    }
    let tool = MUTANTS.install(project)?;
    let list = capture(mutants(project, &tool).args(["--list", "--no-shuffle"]).args(&options.extra))?;
    let all = list.lines().count();
    if all == 0 {
        return Err(Error::new("there is nothing to change: do the named files exist?"));
    }
    let (shard, shards) = shard(all, options.sample.unwrap_or(SAMPLE), options.seed);
    say!("{all} faults; about {} of them, of seed {}", all / shards, options.seed);
    let output = project.target.join("mutants");
    std::fs::create_dir_all(&output).context(|| format!("cannot create {}", output.display()))?;
    let mut command = mutants(project, &tool);
    command.args(["--no-shuffle", "--sharding", "round-robin", "--shard", &format!("{shard}/{shards}")]);
    command.args(["--output".as_ref(), output.as_os_str()]).args(&options.extra);
    let status = command.status().context(|| format!("cannot start {}", tool.display()))?;
    let missed = output.join("mutants.out/missed.txt");
    // 2 says that some faults survive, 3 that the tests of some did not end.
    match status.code() {
        Some(0) => Ok(()),
        Some(2 | 3) => Err(Error::new(format!("no test sees these:\n{}", std::fs::read_to_string(&missed).unwrap_or_default()))),
        _ => Err(Error::new(format!(
            "cargo-mutants failed ({status}); what it did is in {}",
            output.join("mutants.out").display()
        ))),
    }
}

fn parse(args: &[String]) -> Result<Options> {
    let (own, extra) = crate::test::split_at_dashes(args);
    let mut options = Options { extra: extra.to_vec(), ..Options::default() };
    let mut own = own.iter();
    while let Some(arg) = own.next() {
        let mut number =
            || own.next().and_then(|text| text.parse().ok()).ok_or_else(|| Error::new(format!("`{arg}` needs a number")));
        match arg.as_str() {
            "--sample" => options.sample = Some(number()?).filter(|sample| *sample > 0),
            "--seed" => options.seed = number()?,
            "--templates" => options.templates = true,
            path if !path.starts_with('-') => options.extra.extend(["--file".into(), path.into()]),
            other => {
                return Err(Error::new(format!(
                    "`mutants` knows `--sample`, `--seed`, `--templates` and files, not `{other}`; cargo-mutants' own \
                     go behind `--`"
                )));
            }
        }
    }
    Ok(options)
}

/// The sample as one of so many parts of all faults.
fn shard(all: usize, sample: usize, seed: usize) -> (usize, usize) {
    let shards = (all / sample.max(1)).max(1);
    (seed % shards, shards)
}

/// cargo-mutants with our configuration, and with the tests' own cache of kernels.
fn mutants(project: &Project, tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(&project.root).env("POSTLUDE_CACHE_DIR", project.target.join("kernel-cache"));
    command.args([MUTANTS.subcommand(), "--package", "postlude", "--config", "xtask/mutants.toml"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let parsed = parse(&words("--sample 5 --seed 3 src/plan/mainloop/sm90a/smem.rs -- --list")).ok();
        let extra = words("--list --file src/plan/mainloop/sm90a/smem.rs");
        assert_eq!(parsed, Some(Options { sample: Some(5), seed: 3, templates: false, extra }));
        assert_eq!(parse(&words("--templates")).ok(), Some(Options { templates: true, ..Options::default() }));
        for wrong in ["--sample", "--sample x", "--seeds 1"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_sample_is_as_large_as_it_is_meant_to_be() {
        assert_eq!(shard(4000, 20, 0), (0, 200));
        assert_eq!(shard(4000, 20, 207), (7, 200));
        assert_eq!(shard(7, 20, 5), (0, 1), "all there are");
    }
}
