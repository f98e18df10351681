//! The cases on a GPU, if kernels serve every node.

use crate::{agrees, data, tensor};
use postlude::device::Device;
use postlude::network::{Network, NetworkPlanError, Operators, Tensor};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What became of a case.
enum Outcome {
    Agrees,
    /// Nothing was launched: the reader or the planner says why not.
    Left(String),
    Fails(String),
}

fn device() -> Option<Device> {
    match Device::find() {
        Ok(device) => Some(device),
        Err(error) => {
            assert!(std::env::var_os("POSTLUDE_REQUIRE_GPU").is_none(), "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// The tensors of a set of data whose names begin so.
fn tensors(set: &Path, kind: &str) -> Result<Vec<Tensor>, String> {
    let paths = (0..).map(|index| set.join(format!("{kind}_{index}.pb"))).take_while(|path| path.is_file());
    paths.map(|path| tensor(&path)).collect()
}

/// Runs a case twice, since the second run meets what the first one left.
fn case(device: &Device, folder: &Path) -> Outcome {
    let left = |why: &dyn ToString| Outcome::Left(why.to_string().lines().next().unwrap_or_default().to_owned());
    let bytes = match std::fs::read(folder.join("model.onnx")) {
        Ok(bytes) => bytes,
        Err(error) => return left(&error),
    };
    let network = match Network::from_onnx(&bytes, &Operators::new()) {
        Ok(network) => network,
        Err(error) => return left(&error),
    };
    let mut plan = match network.plan(device, &[]) {
        Ok(plan) => plan,
        Err(error @ (NetworkPlanError::Unserved(_) | NetworkPlanError::Fuse(_))) => return left(&error),
        Err(error) => return Outcome::Fails(error.to_string()),
    };
    let stream = device.context().default_stream();
    let mut run = |set: &Path| {
        let names: Vec<String> = network.inputs().map(|(name, _)| name.to_owned()).collect();
        let inputs: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(tensors(set, "input")?).collect();
        for _ in 0..2 {
            let outputs = plan.run(&stream, &inputs).map_err(|error| error.to_string())?;
            let expected = tensors(set, "output")?;
            if outputs.len() != expected.len() {
                return Err(format!("gives {} outputs of {}", outputs.len(), expected.len()));
            }
            for ((name, output), expected) in outputs.iter().zip(expected) {
                agrees(output, &expected).map_err(|why| format!("{name} {why}"))?;
            }
        }
        Ok::<_, String>(())
    };
    let sets = (0..).map(|i| folder.join(format!("test_data_set_{i}"))).take_while(|set| set.is_dir());
    for set in sets {
        if let Err(why) = run(&set) {
            return Outcome::Fails(why);
        }
    }
    Outcome::Agrees
}

/// Prints every case that fails. `conformance.txt` says which cases pass on the CPU: only those are tried.
#[test]
#[ignore = "compiles a thousand kernels for a GPU"]
fn cases_agree_on_a_gpu() {
    let (Some(data), Some(device)) = (data(), device()) else { return };
    let passing = include_str!("conformance.txt").lines().filter(|line| !line.contains(": "));
    let folder = |name: &str| {
        let (suite, case) = name.split_once('/')?;
        let folders = [data.join(suite).join(format!("test_{case}")), data.join(suite).join(case)];
        folders.into_iter().find(|folder| folder.is_dir())
    };
    let cases: Vec<(&str, PathBuf)> = passing.filter_map(|name| Some((name, folder(name)?))).collect();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, folder)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = case(&device, folder);
            outcomes.lock().expect("no thread has panicked").push((*name, outcome));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let outcomes = outcomes.into_inner().expect("no thread has panicked");
    let (mut agree, mut left, mut failed) = (0, 0, 0);
    for (name, outcome) in &outcomes {
        match outcome {
            Outcome::Agrees => agree += 1,
            Outcome::Left(why) => {
                left += 1;
                println!("left     {name}: {why}");
            }
            Outcome::Fails(why) => {
                failed += 1;
                println!("fails    {name}: {why}");
            }
        }
    }
    println!("{agree} of {} cases agree on the GPU, {left} have no kernels, {failed} fail", outcomes.len());
    assert!(agree > 0 && failed == 0, "{failed} cases fail");
}
