//! `cargo xtask bench-gpu`: the benchmark of the products here, or a bundle of it for a machine that has a GPU.

use std::fs;

use crate::error::{Context, Result};
use crate::project::{Project, call};
use crate::{bundle, report, test};

pub fn run(project: &Project, args: &[String]) -> Result {
    let (own, flags) = test::split_at_dashes(args);
    if let Some(unknown) = own.first() {
        return Err(crate::error::Error::new(format!(
            "unknown option `{unknown}` of `bench-gpu`; the benchmark's own go behind `--`"
        )));
    }
    let looks = ["--list", "--help"].iter().any(|word| flags.iter().any(|flag| flag == word));
    if looks {
        let mut cargo = project.cargo();
        return call(cargo.args(["bench", "--package", "postlude", "--bench", "gemm", "--"]).args(flags));
    }
    if !test::has_gpu() {
        let bundle = ["--only", "benches", "--filter", "gemm"].map(str::to_owned);
        bundle::run(project, &bundle)?;
        say!("There is no GPU here. On a machine with one, in this repository with the bundle in it:");
        let flags: String = flags.iter().map(|flag| format!("'{}' ", flag.replace('\'', r"'\''"))).collect();
        let runner = project.target.join("gpu-bundle/run.sh");
        say!("  {} benches gemm -- {flags}--csv gemm.csv", runner.strip_prefix(&project.root).unwrap_or(&runner).display());
        say!("and then here, with the file it wrote:\n  cargo xtask bench-report gemm.csv");
        return Ok(());
    }
    let records = project.target.join("gemm.csv");
    if records.exists() {
        fs::remove_file(&records).context(|| format!("cannot remove {}", records.display()))?;
    }
    let mut cargo = project.cargo();
    cargo.args(["bench", "--package", "postlude", "--bench", "gemm", "--"]).args(flags).arg("--csv").arg(&records);
    // Records from before a failed case are worth reporting.
    let outcome = call(&mut cargo);
    if records.exists() {
        report::run(project, &[records.display().to_string()])?;
    }
    outcome
}
