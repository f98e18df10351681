//! The cases on a GPU, if kernels serve every node.

use crate::{data, folder, kernels, passing};
use postlude::device::Device;
use postlude::network::{Network, NetworkPlanError, Operators};
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

/// Runs a case twice, since the second run meets what the first one left.
fn case(device: &Device, folder: &Path) -> Outcome {
    let left = |why: &dyn ToString| Outcome::Left(why.to_string().lines().next().unwrap_or_default().to_owned());
    let all = Network::from_onnx(&std::fs::read(folder.join("model.onnx")).unwrap_or_default(), &Operators::new());
    let (all, network) = match (all, kernels::network(folder)) {
        (Ok(all), Ok(network)) => (all, network),
        (Err(error), _) => return Outcome::Fails(error.to_string()),
        (_, Err(error)) => return Outcome::Fails(error),
    };
    let mut plan = match network.plan(device, &[]) {
        Ok(plan) if plan.fused().kernels().count() == 0 => return left(&"no node is left to compute"),
        Ok(plan) => plan,
        Err(NetworkPlanError::Unserved(nodes)) => return left(&format!("{} {}", nodes[0].operator, nodes[0].why)),
        Err(NetworkPlanError::Fuse(error)) => return left(&error),
        Err(error) => return Outcome::Fails(error.to_string()),
    };
    let stream = device.context().default_stream();
    for set in kernels::sets(folder) {
        let ran = kernels::inputs(&set, &all, &network).and_then(|inputs| {
            (0..2).try_for_each(|_| {
                let outputs = plan.run(&stream, &inputs).map_err(|error| error.to_string())?;
                kernels::agree(&outputs, &set)
            })
        });
        if let Err(why) = ran {
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
    let cases: Vec<(&str, PathBuf)> = passing().filter_map(|name| Some((name, folder(&data, name)?))).collect();
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
