//! Planning without a GPU: every class of problems has a kernel, and the plan describes it truthfully.

mod code;
mod formats;
mod images;
#[path = "../support/monoids.rs"]
mod monoids;
mod splits;
mod sums;
mod tiles;

use postlude::args::{ArgumentFault, Misfit, slots};
use postlude::build::recipes;
use postlude::ir::{Op, Order};
use postlude::plan::{
    Choice, Item, KernelPlan, Mainloop, PARAMETER_LIMIT, Phase, Place, PlanError, Preferences, Problem, Schedule, Tile, TileShape,
};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Attention, CustomMonoid, Gemm, Operation, PoolKind, Pooling, Scores};

const TARGETS: [Target; 5] = [Target::SM_75, Target::SM_80, Target::SM_86, Target::SM_89, Target::SM_90A];

fn bias_relu(dtype: DType) -> Epilogue {
    Epilogue::build(|e| {
        let acc = match dtype {
            I32 => e.acc_i32().cast(F32),
            F64 => e.acc_f64().cast(F32),
            _ => e.acc(),
        };
        let d = if matches!(dtype, I32 | F64) { F32 } else { dtype };
        e.store("d", (acc + e.load("bias", F32.over(N))).relu(), d);
    })
    .unwrap()
}

/// The identity over sums of a format.
fn identity_of(dtype: DType) -> Epilogue {
    let floats = dtype.value_type().is_float();
    Epilogue::build(|e| if floats { e.store("d", e.acc(), dtype) } else { e.store("d", e.acc_i32(), dtype) }).unwrap()
}

fn plan(operation: Operation, epilogue: &Epilogue, problem: &Problem, target: Target) -> Result<KernelPlan, PlanError> {
    KernelPlan::new(operation, epilogue.checked(), problem, target, 100, Preferences::default())
}

#[test]
fn every_class_of_problems_has_a_kernel_and_a_source() {
    let shapes = [(1, 1, 0), (1, 4096, 64), (17, 300, 129), (4096, 1, 8), (33, 64, 1), (5000, 5000, 5000)];
    for target in TARGETS {
        for dtype in [F32, F64, F16, BF16, I32] {
            let epilogue = bias_relu(dtype);
            let operations = Layout::ALL
                .map(|layout| Operation::product(dtype, layout))
                .into_iter()
                .chain([Order::RowMajor, Order::ColumnMajor].map(|order| Operation::Pointwise { dtype, order }));
            for operation in operations {
                for (m, n, k) in shapes {
                    for align in [16, 8, 4, 2] {
                        let align = align.max(dtype.size());
                        let problem = Problem::new(m, n, k).align("a", align).align("d", align);
                        let multiplies = matches!(operation, Operation::Product { .. });
                        let problem = if multiplies { problem.align("b", align) } else { problem };
                        let plan = plan(operation, &epilogue, &problem, target)
                            .unwrap_or_else(|e| panic!("{operation:?} {m}x{n}x{k} aligned to {align} for {target}: {e}"));
                        assert!(plan.shared_memory() <= target.shared_memory_per_block_opt_in() as usize);
                        assert!(plan.alignment.iter().all(|a| *a <= 16) && plan.strip <= 16);
                        if (m, align) == (17, 16) {
                            assert!(plan.source().unwrap().text().contains("postlude_kernel"));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn an_impossible_wish_is_refused_with_its_reason() {
    let single = Gemm::new(F32, TN, &bias_relu(F32)).mainloop(Mainloop::Sm80);
    let error = single.kernel_plan(Target::SM_90A, 132, Shape::new(64, 64, 64)).unwrap_err();
    assert!(error.to_string().contains("tf32"), "{error}");
    let integers = Gemm::new(I32, TN, &bias_relu(F32)).kernel_plan(Target::SM_90A, 132, Shape::new(64, 64, 64)).unwrap_err();
    assert!(integers.to_string().contains("acc_i32"), "{integers}");
}

#[test]
fn column_major_outputs_turn_the_problem() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store(
            "d",
            z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh()),
            F16.column_major(),
        );
    })
    .unwrap();
    for target in [Target::SM_80, Target::SM_90A] {
        let plan = Gemm::new(F16, NN, &epilogue).kernel_plan(target, 132, Shape::new(256, 512, 64)).unwrap();
        assert!(plan.transposed);
        assert_eq!(plan.operation, Operation::product(F16, TT));
        assert!(plan.explain().contains("transposed"));
        assert!(target != Target::SM_80 || plan.strip == 8);
    }
}

/// The text of a kernel of Hopper's for a large product.
fn hopper_text(gemm: &Gemm) -> String {
    let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(4096, 4096, 4096)).unwrap();
    plan.source().unwrap().text().to_owned()
}

#[test]
fn a_plan_explains_itself() {
    let plan = Gemm::new(F16, TN, &bias_relu(F16)).kernel_plan(Target::SM_80, 132, Shape::new(4096, 4096, 4096)).unwrap();
    let text = plan.explain();
    for part in ["sm80 128x256x64", "shared memory 147456 bytes", "sm_80 has no wgmma", "times the chosen one"] {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    let Choice { verdicts, .. } = &plan.choice;
    assert!(verdicts.iter().all(|v| !v.reason.to_string().is_empty()));
    assert!(serde_json::to_string(&plan).unwrap().contains("sm_80"));
}

#[test]
fn what_kernels_cannot_count_is_refused() {
    let identity = Epilogue::build(|e| e.store("d", e.acc(), F16)).unwrap();
    let gemm = Gemm::new(F16, TN, &identity);
    let kernel = |k| gemm.kernel_plan(Target::SM_90A, 132, Shape::new(4, 4, k));
    assert!(kernel(Shape::LARGEST).is_ok());
    let error = kernel(Shape::LARGEST + 1).unwrap_err();
    assert!(matches!(error, PlanError::TooLarge(_)) && error.to_string().contains(&Shape::LARGEST.to_string()), "{error}");
}

#[test]
fn arguments_that_are_too_many_for_a_mainloop_leave_the_others() {
    let gemm = |matrices: usize| {
        let sum = Epilogue::build(|e| {
            let sum = (0..matrices).fold(e.acc(), |z, i| z + e.load(&format!("c{i}"), F16));
            e.store("d", sum, F16);
        });
        Gemm::new(F16, TN, &sum.unwrap())
    };
    let kernel = |gemm: Gemm| gemm.kernel_plan(Target::SM_90A, 132, Shape::new(4096, 4096, 512));
    let plan = kernel(gemm(22)).unwrap();
    assert!(plan.tile.mainloop() == Mainloop::Sm80 && plan.params.size <= PARAMETER_LIMIT, "{}", plan.explain());
    let told = plan.explain();
    assert!(told.contains("sm90a") && told.contains("4160 bytes of kernel parameters, of 4096"), "{told}");
    assert_eq!(kernel(gemm(8)).unwrap().tile.mainloop(), Mainloop::Sm90a);
    // The error is for those that no candidate takes: none of the one mainloop, and none at all.
    let forced = kernel(gemm(22).mainloop(Mainloop::Sm90a)).unwrap_err();
    assert_eq!(forced, PlanError::Parameters { size: 4160 });
    let most = kernel(gemm(200)).unwrap_err();
    assert!(matches!(most, PlanError::Parameters { size } if size < 8192), "{most}");
}

#[test]
fn a_device_without_multiprocessors_is_refused() {
    let gemm = Gemm::new(F16, TN, &bias_relu(F16));
    let kernel = |count| gemm.kernel_plan(Target::SM_90A, count, Shape::new(4096, 4096, 512));
    assert!(kernel(1).is_ok());
    let error = kernel(0).unwrap_err();
    assert!(matches!(error, PlanError::NoMultiprocessors(Target::SM_90A)) && error.to_string().contains("sm_90a"), "{error}");
}

#[test]
fn strides_that_no_launch_takes_are_refused() {
    let epilogue = Epilogue::build(|e| {
        let z = (e.acc() + e.load("bias", F16.over(N))) * e.scalar("alpha", F32);
        e.store("m", z.gt(0.0), DType::Bits8);
        e.store("d", z, F16);
    })
    .unwrap();
    let gemm = Gemm::new(F16, TN, &epilogue);
    let problem = || Problem::new(512, 256, 128).batched(2);
    let fault = |problem: Problem| match gemm.kernel_plan(Target::SM_90A, 132, problem) {
        Err(PlanError::Arguments(errors)) => errors.0.into_iter().map(|e| (e.name, e.fault)).next().unwrap(),
        other => panic!("{:?}", other.map(|plan| plan.explain())),
    };
    let (name, unknown) = fault(problem().ld("A", 513));
    assert!(
        name == "A" && matches!(&unknown, ArgumentFault::Unknown { known } if known.contains(&"a".to_owned())),
        "{unknown:?}"
    );
    for (name, least) in [("a", 128), ("d", 256), ("bias", 0), ("alpha", 0)] {
        let (of, short) = fault(problem().ld(name, 3));
        assert!(
            of == name && matches!(short, ArgumentFault::LeadingDimension { least: l, got: 3, .. } if l == least),
            "{short:?}"
        );
    }
    assert!(matches!(fault(problem().ld("m", 513)).1, ArgumentFault::Multiple { got: 513, .. }));
    assert!(matches!(fault(problem().batch_stride("bias", 3)).1, ArgumentFault::BatchStride { got: 3, .. }));
    assert!(matches!(fault(problem().ld("a", usize::MAX)).1, ArgumentFault::TooLarge { .. }));
    for bytes in [0, 3, 24] {
        assert_eq!(fault(problem().align("b", bytes)), ("b".to_owned(), ArgumentFault::Alignment { got: bytes }));
    }
    gemm.kernel_plan(Target::SM_90A, 132, problem().ld("a", 136).batch_stride("b", 0).align("d", 2)).unwrap();
}

/// A launch passes so many bytes and not one more: a block that is exactly full is a kernel, the next scalar is too much.
#[test]
fn a_parameter_block_may_be_full() {
    let plan = |scalars: usize| {
        let epilogue = Epilogue::build(|e| {
            let sum = (0..scalars).fold(e.acc(), |z, i| z + e.scalar(&format!("s{i}"), F32));
            e.store("d", sum, F32);
        });
        Gemm::new(F32, TN, &epilogue.unwrap()).kernel_plan(Target::SM_80, 108, Shape::new(256, 256, 256))
    };
    let most = 2 + (PARAMETER_LIMIT - plan(2).unwrap().params.size) / 4;
    assert_eq!(plan(most).unwrap().params.size, PARAMETER_LIMIT);
    let error = plan(most + 1).unwrap_err();
    assert!(matches!(error, PlanError::Parameters { size } if size > PARAMETER_LIMIT), "{error}");
}

/// Arguments of the epilogue lie behind the operands, and those of a function of scores behind keys and values.
#[test]
fn arguments_have_slots() {
    let scores = Scores::build(|s| s.acc() * s.load("slope", F32.over(L)) + s.load("bias", F16)).unwrap();
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() * e.scalar("scale", F32) + e.load("c", F16), F16)).unwrap();
    let gemm = Gemm::attention(F16, Attention::new(64).scores(&scores), &epilogue);
    let shape = Shape::new(256, 64, 256).batched(2);
    let plan = gemm.kernel_plan(Target::SM_80, 108, shape).unwrap();
    let slots = slots(plan.operation, epilogue.checked(), shape);
    let operands = slots.len() - plan.arguments.len();
    let names: Vec<&str> = plan.all_arguments().map(|argument| &*argument.name).collect();
    assert_eq!(names.len(), plan.arguments.len() + 2);
    for (argument, name) in names.into_iter().enumerate() {
        assert_eq!(&*slots[plan.slot_of(argument, operands)].name, name);
    }
}
