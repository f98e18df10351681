//! Tuning: whatever it finds, results stay right, the user's memory as it was, and the next plan knows.

use crate::rig::gpu;
use half::f16;
use postlude::build::recipes;
use postlude::cudarc::driver::{CudaSlice, CudaStream};
use postlude::device::{Device, DeviceArgs};
use postlude::ir::Order;
use postlude::jit::Cache;
use postlude::plan::Problem;
use postlude::prelude::*;
use postlude::tune::{Autotune, Outcome, Tuning};
use postlude::{Epilogue, Error, Gemm};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SHAPE: Shape = Shape::new(190, 264, 129);

/// The GPU with a kernel cache in a directory.
fn device(directory: &Path) -> Option<Device> {
    Some(gpu()?.with_cache(Cache::at(directory.join("cache"))).unwrap())
}

/// Small integers, so that every order of summation gives the same.
fn integers(stream: &Arc<CudaStream>, count: usize) -> CudaSlice<f16> {
    let data: Vec<f16> = (0..count).map(|i| f16::from_f32((i * 7 % 5) as f32 - 2.0)).collect();
    stream.clone_htod(&data).unwrap()
}

/// Exactly one tile runs from now on.
fn sound(tuning: &Tuning) {
    let chosen = tuning.trials.iter().filter(|t| matches!(t.outcome, Outcome::Wins | Outcome::Stays)).count();
    assert_eq!(chosen, 1, "{tuning}");
    assert!(tuning.trials.iter().all(|t| !matches!(t.outcome, Outcome::Disagrees(_) | Outcome::Fails(_))), "{tuning}");
    assert!(tuning.trials[0].time.is_some_and(|t| t.low > 0.0 && t.low <= t.median && t.median <= t.high), "{tuning}");
}

#[test]
fn memory_stays_and_results_are_right() {
    // Written: an output with room between its rows, a mask, and an update in place.
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store("d", z, F16);
        e.store("active", z.gt(0.0), Bool);
        e.store("state", z + e.load("state", F32), F32);
    })
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(directory.path()) else { return };
    for (gemm, k) in [(Gemm::new(F16, TN, &epilogue), 129), (Gemm::pointwise(F16, Order::RowMajor, &epilogue), 264)] {
        let stream = device.context().new_stream().unwrap();
        let (a, b, bias) = (integers(&stream, 190 * k), integers(&stream, 264 * k), integers(&stream, 264));
        let (wide, before) = (280, stream.clone_htod(&vec![f16::NAN; 190 * 280 + 3]).unwrap());
        let (mut d, mut active) = (before.clone(), stream.clone_htod(&vec![7u8; 190 * 264]).unwrap());
        let mut state = stream.clone_htod(&(0..190 * 264).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        let states = stream.clone_dtoh(&state).unwrap();
        let pointwise = k == 264;
        let mut plan;
        let mut results = Vec::new();
        {
            let mut view = d.slice_mut(3..);
            let args = DeviceArgs::new().input("a", &a).input("bias", &bias).output("d", (&mut view).ld(wide));
            let args = args.output("active", &mut active).output("state", &mut state);
            let mut args = if pointwise { args } else { args.input("b", &b) };
            plan = gemm.plan_for(&device, SHAPE, &stream, &mut args).unwrap();
            let tuning = plan.autotune(&stream, &mut args, Autotune::new().rounds(5)).unwrap();
            sound(&tuning);
            assert!(tuning.kept.is_ok() && plan.explain().contains(&tuning.to_string()), "{}", plan.explain());
        }
        let bits = |x: &CudaSlice<f16>| stream.clone_dtoh(x).unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&d) == bits(&before), "d");
        assert!(stream.clone_dtoh(&active).unwrap().iter().all(|x| *x == 7), "active");
        assert!(stream.clone_dtoh(&state).unwrap() == states, "state");
        // The present kernel computes the same as the previous one.
        let untuned = gemm.plan(gpu().unwrap(), Problem::from(SHAPE).ld("d", wide).align("d", 2)).unwrap();
        for plan in [&plan, &untuned] {
            let mut view = d.slice_mut(3..);
            let args = DeviceArgs::new().input("a", &a).input("bias", &bias).output("d", (&mut view).ld(wide));
            let args = args.output("active", &mut active).output("state", &mut state);
            let mut args = if pointwise { args } else { args.input("b", &b) };
            plan.execute(&stream, &mut args).unwrap_or_else(|e| panic!("{e}"));
            drop(args);
            results.push((bits(&d), stream.clone_dtoh(&active).unwrap()));
            stream.memcpy_htod(&states, &mut state).unwrap();
        }
        assert!(results[0] == results[1] && results[0].0 != bits(&before), "tuned and untuned differ");
    }
}

#[test]
fn the_next_process_knows() {
    let directory = tempfile::tempdir().unwrap();
    let Some(first) = device(directory.path()) else { return };
    let stream = first.context().default_stream();
    let gemm = Gemm::new(F16, TT, &recipes::bias_activation(F16, F16, |z| z.gelu()).unwrap());
    let (a, b, bias) = (integers(&stream, 256 * 256), integers(&stream, 256 * 256), integers(&stream, 256));
    let mut d = stream.alloc_zeros::<f16>(256 * 256).unwrap();
    let mut args = DeviceArgs::new().input("a", &a).input("b", &b).input("bias", &bias).output("d", &mut d);
    let shape = Shape::new(256, 256, 256);
    let mut plan = gemm.plan(&first, shape).unwrap();
    assert!(!plan.explain().contains("tuned"), "{}", plan.explain());
    let tuning = plan.autotune(&stream, &mut args, Autotune::default()).unwrap();
    sound(&tuning);
    println!("{tuning}");
    let again = device(directory.path()).unwrap();
    for (shape, known) in [(shape, true), (Shape::new(255, 256, 248), true), (Shape::new(256, 256, 320), false)] {
        let plan = gemm.plan(&again, shape).unwrap();
        assert_eq!(plan.explain().contains("tuned: "), known, "{shape}\n{}", plan.explain());
        assert!(!known || plan.kernel().plan.tile == tuning.winner().unwrap().candidate.tile);
    }
    // Damage costs the knowledge, nothing else.
    let notes = directory.path().join("cache/v1/notes");
    let shard = std::fs::read_dir(notes).unwrap().next().unwrap().unwrap().path();
    let note = std::fs::read_dir(shard).unwrap().next().unwrap().unwrap().path();
    std::fs::write(note, "damaged").unwrap();
    let plan = gemm.plan(&device(directory.path()).unwrap(), shape).unwrap();
    assert!(!plan.explain().contains("tuned: "), "{}", plan.explain());
}

#[test]
fn a_budget_of_nothing_tries_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(directory.path()) else { return };
    let stream = device.context().default_stream();
    let gemm = Gemm::new(F32, TT, &recipes::identity(F32).unwrap());
    let a = stream.alloc_zeros::<f32>(128 * 128).unwrap();
    let mut d = stream.alloc_zeros::<f32>(128 * 128).unwrap();
    let shape = Shape::new(128, 128, 128);
    let mut plan = gemm.plan(&device, shape).unwrap();
    let tile = plan.kernel().plan.tile;
    let mut args = DeviceArgs::new().input("a", &a).input("b", &a).output("d", &mut d);
    let tuning = plan.autotune(&stream, &mut args, Autotune::new().budget(Duration::ZERO)).unwrap();
    sound(&tuning);
    assert!(tuning.trials.len() > 1 && tuning.trials[1..].iter().all(|t| matches!(t.outcome, Outcome::Untried(_))), "{tuning}");
    assert_eq!((plan.kernel().plan.tile, tuning.rounds), (tile, 3));
    let alone = plan.autotune(&stream, &mut args, Autotune::new().candidates(1).rounds(2)).unwrap();
    assert!(alone.rounds == 2 && alone.trials.iter().all(|trial| trial.candidate.tile == tile), "{alone}");
}

#[test]
fn faults_are_those_of_a_launch() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(directory.path()) else { return };
    let stream = device.context().default_stream();
    let gemm = Gemm::new(F32, TT, &recipes::identity(F32).unwrap());
    let mut plan = gemm.plan(&device, Shape::new(8, 8, 8)).unwrap();
    let a = stream.alloc_zeros::<f32>(64).unwrap();
    let mut args = DeviceArgs::new().input("a", &a).input("d", &a);
    match plan.autotune(&stream, &mut args, Autotune::new()) {
        Err(Error::Arguments(errors)) => assert_eq!(errors.0.len(), 2, "{errors}"),
        other => panic!("{other:?}"),
    }
}
