//! What a launch refuses: every fault at once, and nothing runs.

use crate::layout::POISON;
use crate::rig::gpu;
use half::f16;
use postlude::args::ArgumentFault;
use postlude::build::recipes;
use postlude::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use postlude::device::{Device, DeviceArgs};
use postlude::gemm::Plan;
use postlude::grad::{Pair, Wrt};
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Error, Gemm};
use std::sync::Arc;

const SHAPE: Shape = Shape::new(64, 48, 32);

struct Rig {
    device: Device,
    stream: Arc<CudaStream>,
    a: CudaSlice<f16>,
    b: CudaSlice<f16>,
    bias: CudaSlice<f16>,
    d: CudaSlice<f16>,
}

fn rig() -> Option<Rig> {
    rig_on(gpu()?)
}

fn rig_on(device: &Device) -> Option<Rig> {
    let device = device.clone();
    let stream = device.context().new_stream().unwrap();
    let ones = |len: usize| stream.clone_htod(&vec![f16::ONE; len]).unwrap();
    let d = stream.clone_htod(&vec![f16::from_bits(u16::from_le_bytes([POISON; 2])); 64 * 48 + 8]).unwrap();
    let (a, b, bias) = (ones(64 * 32 + 8), ones(48 * 32 + 8), ones(48));
    Some(Rig { device, stream: stream.clone(), a, b, bias, d })
}

fn gemm() -> Gemm {
    Gemm::new(F16, TN, &recipes::bias_activation(F16, F16, |z| z.relu()).unwrap())
}

impl Rig {
    fn plan(&self) -> Plan {
        gemm().plan(&self.device, SHAPE).unwrap()
    }

    fn untouched(&self) -> bool {
        self.stream.clone_dtoh(&self.d).unwrap().iter().all(|x| x.to_bits() == 0xFFFF)
    }
}

#[test]
fn bytes_are_elements_of_a_format_chosen_at_run_time() {
    let Some(rig) = rig() else { return };
    let plan = rig.plan();
    let bias: Vec<u8> = (0..48).flat_map(|i| f16::from_f32(i as f32).to_bits().to_le_bytes()).collect();
    let bias = rig.stream.clone_htod(&bias).unwrap();
    let mut d = rig.stream.alloc_zeros::<u8>(2 * 64 * 48).unwrap();
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).input("unused", &rig.b);
    args = args.input("bias", postlude::Tensor::of_device_bytes(F16, &bias));
    args = args.output("d", postlude::Tensor::of_device_bytes(F16, &mut d));
    args = args.used_by(gemm().epilogue().checked());
    plan.execute(&rig.stream, &mut args).unwrap();
    drop(args);
    let d = rig.stream.clone_dtoh(&d).unwrap();
    let d = d.chunks(2).map(|x| f16::from_bits(u16::from_le_bytes([x[0], x[1]])).to_f32());
    assert!(d.enumerate().all(|(i, x)| x == 32.0 + (i % 48) as f32));
    // Memory that was borrowed to be read is not written, and another format is not taken for this one.
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).input("bias", &rig.bias);
    args = args.output("d", postlude::Tensor::of_device_bytes(F32, &bias));
    let found = faults(plan.execute(&rig.stream, &mut args));
    assert!(matches!(&found[..], [(name, ArgumentFault::DType { .. } | ArgumentFault::Shared)] if name == "d"), "{found:?}");
}

/// The faults of a launch that has to fail, by argument.
fn faults(result: Result<(), Error>) -> Vec<(String, ArgumentFault)> {
    match result {
        Err(Error::Arguments(errors)) => errors.0.into_iter().map(|e| (e.name, e.fault)).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_launch_runs() {
    let Some(mut rig) = rig() else { return };
    let plan = rig.plan();
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).input("bias", &rig.bias).output("d", &mut rig.d);
    plan.execute(&rig.stream, &mut args).unwrap();
    let d = rig.stream.clone_dtoh(&rig.d).unwrap();
    assert!(d[..64 * 48].iter().all(|x| x.to_f32() == 33.0) && d[64 * 48..].iter().all(|x| x.is_nan()));
    assert!(plan.explain().contains(&plan.kernel().plan.tile.to_string()), "{}", plan.explain());
}

#[test]
fn every_fault_is_reported_and_nothing_runs() {
    let Some(mut rig) = rig() else { return };
    let plan = rig.plan();
    let wrong = rig.stream.clone_htod(&vec![1f32; 48]).unwrap();
    let mut args = DeviceArgs::new()
        .input("a", (&rig.a).ld(31))
        .input("bias", &wrong)
        .scalar("alpha", 1.0f32)
        .output("d", (&mut rig.d).ld(4000));
    let found = faults(plan.execute(&rig.stream, &mut args));
    drop(args);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "bias", "d", "alpha"], "{found:?}");
    assert!(matches!(found[0].1, ArgumentFault::LeadingDimension { least: 32, got: 31, .. }), "{found:?}");
    assert!(matches!(found[1].1, ArgumentFault::Missing { .. }), "{found:?}");
    assert!(matches!(found[2].1, ArgumentFault::DType { needs: F16, got: F32 }), "{found:?}");
    assert!(matches!(found[3].1, ArgumentFault::TooShort { .. }), "{found:?}");
    assert!(matches!(found[4].1, ArgumentFault::Unknown { .. }), "{found:?}");
    assert!(rig.untouched());
}

#[test]
fn an_output_passed_as_an_input() {
    let Some(mut rig) = rig() else { return };
    let plan = rig.plan();
    let other = rig.stream.clone_htod(&vec![f16::ONE; 64 * 48]).unwrap();
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).input("bias", &rig.bias).input("d", &other);
    assert_eq!(faults(plan.execute(&rig.stream, &mut args)), [("d".to_owned(), ArgumentFault::ReadOnly)]);
    drop(args);
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).input("bias", &rig.bias).output("d", &mut rig.d);
    args = args.origin(i32::MAX - 10, 0, 0);
    let found = faults(plan.execute(&rig.stream, &mut args));
    drop(args);
    assert!(matches!(found[..], [(ref name, ArgumentFault::TooLarge { .. })] if name == "origin"), "{found:?}");
    assert!(rig.untouched());
}

#[test]
fn operands_less_aligned_than_planned() {
    let Some(mut rig) = rig() else { return };
    let plan = rig.plan();
    let (a, b) = (rig.a.slice(1..), rig.b.slice(4..));
    let mut args = DeviceArgs::new().input("a", &a).input("b", &b).input("bias", &rig.bias).output("d", &mut rig.d);
    let found = faults(plan.execute(&rig.stream, &mut args));
    let expected = [(2, "a"), (8, "b")].map(|(got, name)| (name.to_owned(), ArgumentFault::Misaligned { needs: 16, got }));
    assert_eq!(found, expected);
    // A plan for them as they are takes them.
    let plan = gemm().plan_for(&rig.device, SHAPE, &rig.stream, &mut args).unwrap();
    plan.execute(&rig.stream, &mut args).unwrap();
    drop(args);
    assert!(rig.stream.clone_dtoh(&rig.d).unwrap()[..64 * 48].iter().all(|x| x.to_f32() == 33.0));
}

#[test]
fn planning_for_arguments_finds_what_a_launch_would() {
    let Some(mut rig) = rig() else { return };
    let mut args = DeviceArgs::new().input("a", (&rig.a).ld(3)).input("b", &rig.b).output("d", &mut rig.d);
    let found = faults(gemm().plan_for(&rig.device, SHAPE, &rig.stream, &mut args).map(drop));
    let [(a, short), (bias, missing)] = &found[..] else { panic!("{found:?}") };
    assert!(a == "a" && matches!(short, ArgumentFault::LeadingDimension { got: 3, .. }), "{found:?}");
    assert!(bias == "bias" && matches!(missing, ArgumentFault::Missing { .. }), "{found:?}");
}

#[test]
fn misaligned_vectors_need_no_plan_of_their_own_and_outputs_do_on_hopper() {
    let Some(mut rig) = rig() else { return };
    let plan = rig.plan();
    let bias = rig.stream.clone_htod(&vec![f16::ONE; 49]).unwrap();
    let bias = bias.slice(1..);
    let mut d = rig.d.slice_mut(1..);
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).input("bias", &bias).output("d", &mut d);
    let outcome = plan.execute(&rig.stream, &mut args);
    if plan.kernel().plan.tile.mainloop() == Mainloop::Sm90a {
        assert_eq!(faults(outcome), [("d".to_owned(), ArgumentFault::Misaligned { needs: 16, got: 2 })]);
        let plan = gemm().plan_for(&rig.device, SHAPE, &rig.stream, &mut args).unwrap();
        plan.execute(&rig.stream, &mut args).unwrap();
    } else {
        outcome.unwrap();
    }
    drop(args);
    let d = rig.stream.clone_dtoh(&rig.d).unwrap();
    assert!(d[0].is_nan() && d[1..=64 * 48].iter().all(|x| x.to_f32() == 33.0) && d[64 * 48 + 1..].iter().all(|x| x.is_nan()));
}

#[test]
fn values_of_a_reserve_begin_at_elements() {
    let Some(mut rig) = rig() else { return };
    let pair = Epilogue::build(|e| e.store("d", e.acc().gelu_tanh(), F16)).unwrap().backward(Wrt::all()).unwrap();
    let [bytes] = pair.reserve().sizes(SHAPE)[..] else { panic!("gelu saves what it is applied to") };
    let mut arena = rig.stream.clone_htod(&vec![POISON; bytes + 2]).unwrap();
    let plan = Gemm::new(F16, TN, pair.forward()).plan(&rig.device, SHAPE).unwrap();
    let name = pair.reserve().values()[0].name.to_string();
    for from in [1, 2] {
        let mut reserve = pair.reserve().over(SHAPE, vec![arena.slice_mut(from..from + bytes)]).unwrap();
        let args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).output("d", &mut rig.d).saving(&mut reserve);
        let mut args = args;
        if from == 1 {
            let found = faults(plan.execute(&rig.stream, &mut args));
            let between = |fault: &ArgumentFault| matches!(fault, ArgumentFault::BetweenElements { needs: 2.., got: 1 });
            assert!(matches!(&found[..], [(of, fault)] if *of == name && between(fault)), "{found:?}");
        } else {
            let plan = Gemm::new(F16, TN, pair.forward()).plan_for(&rig.device, SHAPE, &rig.stream, &mut args).unwrap();
            plan.execute(&rig.stream, &mut args).unwrap();
        }
        drop(args);
        assert!(from == 2 || rig.untouched());
    }
}

#[test]
fn reserves_of_other_pairs_and_problems() {
    let Some(mut rig) = rig() else { return };
    let pair = |shift: f32| {
        let epilogue = Epilogue::build(|e| e.store("d", (e.acc() + shift).relu(), F16)).unwrap();
        epilogue.backward(Wrt::all()).unwrap()
    };
    let (relu, shifted) = (pair(0.0), pair(1.0));
    let name = |pair: &Pair| pair.reserve().values()[0].name.to_string();
    let reserve = |pair: &Pair, shape: Shape| {
        let buffers = pair.reserve().sizes(shape).into_iter().map(|bytes| rig.stream.clone_htod(&vec![0xffu8; bytes]).unwrap());
        pair.reserve().over(shape, buffers.collect()).unwrap()
    };
    let own = reserve(&relu, SHAPE);
    let wrong = [
        None,
        Some(reserve(&shifted, SHAPE)),
        Some(reserve(&relu, Shape { m: 48, n: 64, ..SHAPE })),
        Some(reserve(&relu, SHAPE.batched(2))),
    ];
    let backward = Gemm::new(F16, TN, relu.backward()).plan(&rig.device, SHAPE).unwrap();
    let outcomes = wrong.iter().map(|reserve| {
        let args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).output("grad_acc", &mut rig.d);
        let mut args = if let Some(reserve) = reserve { args.saved(reserve) } else { args };
        faults(backward.execute(&rig.stream, &mut args))
    });
    let outcomes: Vec<_> = outcomes.collect();
    let missing = |fault: &(String, ArgumentFault)| fault.0 == name(&relu) && matches!(fault.1, ArgumentFault::Missing { .. });
    assert!(matches!(&outcomes[0][..], [fault] if missing(fault)), "{outcomes:?}");
    let foreign =
        |fault: &(String, ArgumentFault)| fault.0 == name(&shifted) && matches!(fault.1, ArgumentFault::ForeignReserve { .. });
    assert!(matches!(&outcomes[1][..], [first, second] if missing(first) && foreign(second)), "{outcomes:?}");
    for outcome in &outcomes[2..] {
        assert!(matches!(&outcome[..], [(of, ArgumentFault::ReserveShape { .. })] if *of == name(&relu)), "{outcomes:?}");
    }
    assert!(rig.untouched());
    // The forward half has nowhere to save to.
    let forward = Gemm::new(F16, TN, relu.forward()).plan(&rig.device, SHAPE).unwrap();
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).output("d", &mut rig.d);
    let found = faults(forward.execute(&rig.stream, &mut args));
    assert!(matches!(&found[..], [fault] if missing(fault)), "{found:?}");
    drop(args);
    assert!(rig.untouched());
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).output("grad_acc", &mut rig.d).saved(&own);
    backward.execute(&rig.stream, &mut args).unwrap();
    drop(args);
    assert!(rig.stream.clone_dtoh(&rig.d).unwrap()[..64 * 48].iter().all(|x| x.to_f32() == 32.0));
}

#[test]
fn streams_order_a_launch_after_what_wrote_its_operands() {
    let Some(mut rig) = rig() else { return };
    let plan = rig.plan();
    let (other, third) = (rig.device.context().new_stream().unwrap(), rig.device.context().new_stream().unwrap());
    for round in 0..20 {
        let value = f16::from_f32(1.0 + round as f32);
        other.memcpy_htod(&vec![value; 48], &mut rig.bias).unwrap();
        let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).input("bias", &rig.bias).output("d", &mut rig.d);
        plan.execute(&rig.stream, &mut args).unwrap();
        drop(args);
        let d = third.clone_dtoh(&rig.d).unwrap();
        assert!(d[..64 * 48].iter().all(|x| x.to_f32() == 32.0 + value.to_f32()), "round {round}");
    }
}

#[test]
fn a_capture_replays() {
    // A launch is nothing but a launch: it can be recorded into a graph. Events of work outside cannot, so the buffers come
    // from a context that keeps none.
    let Some(device) = gpu() else { return };
    let context = CudaContext::new(device.ordinal()).unwrap();
    // SAFETY: everything of this context happens on one stream, in order.
    unsafe { context.disable_event_tracking() };
    let Some(mut rig) = rig_on(&Device::of(&context).unwrap()) else { return };
    let plan = rig.plan();
    rig.stream.synchronize().unwrap();
    rig.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let mut args = DeviceArgs::new().input("a", &rig.a).input("b", &rig.b).input("bias", &rig.bias).output("d", &mut rig.d);
    let launched = plan.execute(&rig.stream, &mut args);
    let graph = rig.stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    drop(args);
    launched.unwrap();
    assert!(rig.untouched(), "recording runs nothing");
    graph.unwrap().expect("a graph of one kernel").launch().unwrap();
    rig.stream.synchronize().unwrap();
    assert!(!rig.untouched());
}
