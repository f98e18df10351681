//! Bit masks: stored, loaded and updated on every mainloop, in both formats and orders.

use crate::case::Case;
use crate::hopper::{cooperative, is_hopper, one_consumer, ping_pong};
use crate::rig::gpu;
use half::f16;
use postlude::device::DeviceArgs;
use postlude::grad::Wrt;
use postlude::ir::Order;
use postlude::plan::{Mainloop, Tile};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{DType, Epilogue, Gemm, HostArgs};

/// Ragged in every way: within a byte, within the bytes of a chunk, hardly a byte, and one where nothing is.
const SHAPES: [Shape; 6] = [
    Shape::new(136, 72, 40),
    Shape::new(72, 136, 40),
    Shape::new(131, 67, 45),
    Shape::new(1, 33, 8),
    Shape::new(33, 1, 8),
    Shape::new(260, 391, 24),
];

fn everywhere(epilogue: &Epilogue, run: impl Fn(Case)) {
    for gemm in [
        Gemm::new(F16, TN, epilogue),
        Gemm::new(F16, NN, epilogue).mainloop(Mainloop::Sm80),
        Gemm::new(F32, TT, epilogue).tf32(true),
        Gemm::new(BF16, NT, epilogue).mainloop(Mainloop::Simt),
        Gemm::pointwise(F16, Order::RowMajor, epilogue),
        Gemm::pointwise(F32, Order::ColumnMajor, epilogue),
    ] {
        for shape in SHAPES {
            run(Case::new(&gemm, shape));
            run(Case::new(&gemm, shape.batched(2)));
        }
    }
}

/// The leading dimension of a mask whose runs have so many elements, with `more` runs' worth of room.
fn wider(dtype: DType, inner: usize, more: usize) -> usize {
    inner.next_multiple_of(dtype.run()) + more * dtype.run()
}

fn matrix(dtype: DType, order: Order) -> Operand {
    Operand { order, ..dtype.into() }
}

/// Whether one of two conditions holds.
fn differ<'g>(a: Expr<'g>, b: Expr<'g>) -> Expr<'g> {
    (a & !b) | (!a & b)
}

/// Masks in and out in one order, beside a `d` of another or the same.
fn masked(order: Order, d: Operand) -> Epilogue {
    Epilogue::build(|e| {
        let keep = e.load("keep", matrix(Bits8, order));
        let shared = e.load("shared", Operand { order, ..Bits128.over(M | N) });
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F16.over(N));
        let z = (keep & !e.load("columns", Bits8.over(N))).select(z, -z);
        e.store("d", (shared | e.load("rows", Bits128.over(M))).select(z, z * 0.5), d);
        e.store("active", z.gt(0.0), matrix(Bits128, order));
        e.store("kept", differ(keep, z.lt(0.25)), matrix(Bits8, order));
    })
    .unwrap()
}

/// As they lie by themselves, in wider matrices, and off by some bytes.
fn run_masked(case: Case, order: Order) {
    let inner = if order == Order::RowMajor { case.shape.n } else { case.shape.m };
    case.run();
    let wide = |case: Case, more| {
        let case = case.ld("keep", wider(Bits8, inner, more)).ld("kept", wider(Bits8, inner, 3 * more));
        case.ld("active", wider(Bits128, inner, more)).ld("shared", wider(Bits128, inner, 2 * more))
    };
    wide(case.clone(), 1).offset("kept", 24).offset("keep", 8).offset("active", 128).origin(3, -5, 1).run();
    wide(case, 8).offset("kept", 64).offset("shared", 16).offset("active", 32).offset("d", 1).run();
}

#[test]
fn along_rows() {
    for d in [F16, F32] {
        everywhere(&masked(Order::RowMajor, d.into()), |case| run_masked(case, Order::RowMajor));
    }
}

#[test]
fn along_columns() {
    let epilogue = masked(Order::ColumnMajor, F32.column_major());
    let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_80, 108, SHAPES[0]).unwrap();
    assert!(plan.transposed, "the plan computes the transposed problem");
    everywhere(&epilogue, |case| run_masked(case, Order::ColumnMajor));
}

#[test]
fn across_the_other_matrices() {
    let epilogue = masked(Order::ColumnMajor, F32.into());
    let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_80, 108, SHAPES[0]).unwrap();
    assert!(!plan.transposed, "most bytes are d's");
    everywhere(&epilogue, |case| run_masked(case, Order::ColumnMajor));
    everywhere(&masked(Order::RowMajor, F32.column_major()), |case| run_masked(case, Order::RowMajor));
}

#[test]
fn strips_of_any_width() {
    // As wide as a byte without other matrices; as narrow as one column, where `d` is aligned to nothing.
    let masks = Epilogue::build(|e| e.store("mask", e.acc().gt(0.0), Bits8)).unwrap();
    everywhere(&masks, |case| case.run());
    for (d, offset, strip) in [(F16, 0, 8), (F16, 4, 4), (F16, 1, 2), (F32, 0, 4), (F32, 2, 2), (F32, 1, 1)] {
        let epilogue = Epilogue::build(|e| {
            e.store("d", e.acc(), d);
            e.store("mask", e.acc().gt(0.0) & e.load("keep", Bits8), Bits8);
        });
        let gemm = Gemm::new(F16, TN, &epilogue.unwrap());
        for gemm in [gemm.clone().mainloop(Mainloop::Sm80), gemm.mainloop(Mainloop::Simt)] {
            for shape in [Shape::new(67, 136, 40), Shape::new(136, 200, 24).batched(3)] {
                let case = Case::new(&gemm, shape).offset("d", offset);
                let plan = gemm.kernel_plan(Target::SM_90A, 132, case.problem(&case.buffers())).unwrap();
                assert_eq!(plan.strip, strip, "{}", plan.explain());
                case.run();
            }
        }
    }
}

#[test]
fn updated_in_place() {
    for (order, dtype) in [(Order::RowMajor, Bits8), (Order::ColumnMajor, Bits8), (Order::RowMajor, Bits128)] {
        for d in [F32.into(), F32.column_major()] {
            let epilogue = Epilogue::build(|e| {
                let mask = e.load("mask", matrix(dtype, order));
                e.store("d", mask.select(e.acc(), 0.0), d);
                e.store("mask", differ(mask, e.acc().gt(0.0)), matrix(dtype, order));
            })
            .unwrap();
            everywhere(&epilogue, |case| {
                let inner = if order == Order::RowMajor { case.shape.n } else { case.shape.m };
                case.clone().run();
                case.ld("mask", wider(dtype, inner, 1)).offset("mask", 8).run();
            });
        }
    }
}

#[test]
fn in_regions() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let mask = e.load("mask", Bits8);
        let upper = e.row().lt(e.scalar("boundary", I32));
        let y = z.region(upper, |z| mask.select(z.tanh(), z.erf())).otherwise(|z| mask.select(z.exp().sin(), z));
        // A vector of bits picks rows, and another picks columns.
        let y = y.region(e.load("rows", Bits128.over(M)), |y| y.sigmoid()).otherwise(|y| y);
        let y = y.region(e.load("columns", Bits8.over(N)), |y| y.tanh()).otherwise(|y| y);
        e.store("d", y, F16);
        e.store("over", upper & z.gt(0.5) | mask & z.lt(0.0), Bits8);
    })
    .unwrap();
    everywhere(&epilogue, |case| case.scalar("boundary", 40).slack(4.0).run());
}

#[test]
fn few_rows_and_columns() {
    for order in [Order::RowMajor, Order::ColumnMajor] {
        let epilogue = masked(order, F16.into());
        for layout in [TN, NN] {
            for dtype in [F16, F32] {
                let gemm = Gemm::new(dtype, layout, &epilogue).mainloop(Mainloop::Gemv);
                for (m, n, k) in [(1, 264, 512), (2, 133, 301), (4, 1000, 64), (3, 7, 5), (200, 1, 64), (65, 4, 33)] {
                    run_masked(Case::new(&gemm, Shape::new(m, n, k)), order);
                }
            }
        }
    }
}

#[test]
fn as_the_accumulator() {
    let epilogue: Epilogue = "%0 = acc bool\n%1 = load \"bias\" f32[N]\n%2 = const f32 -1.5\n%3 = select %0, %1, %2\n\
                              store \"d\" f16[M,N,L], %3\nstore \"mask\" bits128[M,N,L], %0\n"
        .parse()
        .unwrap();
    for order in [Order::RowMajor, Order::ColumnMajor] {
        for dtype in [Bits8, Bits128, Bool] {
            let gemm = Gemm::pointwise(dtype, order, &epilogue);
            for shape in SHAPES.into_iter().flat_map(|s| [s, s.batched(3)]) {
                let case = Case::new(&gemm, shape);
                case.run();
                let inner = if order == Order::RowMajor { shape.n } else { shape.m };
                case.ld("a", wider(dtype, inner, 1)).offset("a", 16).run();
            }
        }
    }
}

/// From eight columns in a chunk to 64, in strips of 2 to 16; several tiles a block.
fn on_hopper_tiles(mask: Order, d: Operand) {
    if !is_hopper() {
        return;
    }
    let tiles: [(Tile, &[Shape]); 8] = [
        (ping_pong(128, 192, 5), &[Shape::new(2312, 1544, 72), Shape::new(520, 777, 200)]),
        (ping_pong(128, 128, 6), &[Shape::new(520, 392, 72).batched(2), Shape::new(391, 260, 264)]),
        (cooperative(128, 256, 4), &[Shape::new(520, 776, 264), Shape::new(131, 1030, 72)]),
        (cooperative(256, 192, 3), &[Shape::new(520, 776, 72), Shape::new(260, 391, 0)]),
        (cooperative(128, 96, 6), &[Shape::new(520, 776, 72), Shape::new(67, 129, 72).batched(3)]),
        (cooperative(128, 80, 6), &[Shape::new(520, 776, 72), Shape::new(130, 165, 72)]),
        (one_consumer(16, 8), &[Shape::new(1032, 16, 72), Shape::new(131, 37, 128)]),
        (one_consumer(8, 8), &[Shape::new(520, 8, 520), Shape::new(129, 15, 72)]),
    ];
    let epilogue = masked(mask, d);
    for (tile, shapes) in tiles {
        let gemm = Gemm::new(F16, TN, &epilogue).tile(tile);
        shapes.iter().for_each(|shape| run_masked(Case::new(&gemm, *shape), mask));
    }
}

#[test]
fn on_hopper_tiles_along_rows() {
    on_hopper_tiles(Order::RowMajor, F16.into());
}

#[test]
fn on_hopper_tiles_along_columns() {
    on_hopper_tiles(Order::ColumnMajor, F16.column_major());
}

#[test]
fn on_hopper_tiles_across_rows() {
    on_hopper_tiles(Order::ColumnMajor, F32.into());
}

#[test]
fn on_hopper_tiles_across_columns() {
    on_hopper_tiles(Order::RowMajor, F32.column_major());
}

#[test]
fn on_hopper_tiles_alone() {
    if !is_hopper() {
        return;
    }
    // Nothing but masks: no chunk of anything goes through shared memory on its way out.
    let masks = Epilogue::build(|e| {
        let z = e.acc();
        e.store("up", z.gt(0.25), Bits128);
        e.store("down", z.lt(-0.25), Bits8.column_major());
    })
    .unwrap();
    for tile in [ping_pong(128, 192, 5), cooperative(128, 64, 8)] {
        Case::new(&Gemm::new(BF16, NT, &masks).tile(tile), Shape::new(392, 520, 72)).run();
    }
}

/// Integers so small that sums are exact: whatever adds them up, in whatever order, agrees to the bit.
fn small(count: usize, seed: u64) -> Vec<f16> {
    let mut rng = crate::layout::Rng(seed);
    (0..count).map(|_| f16::from_f32((rng.bits() % 9) as f32 - 4.0)).collect()
}

#[test]
fn what_a_forward_launch_saves_a_backward_launch_reads() {
    let Some(device) = gpu() else { return };
    let stream = device.context().default_stream();
    for masks in [Bits8, Bits128] {
        let epilogue = Epilogue::build(|e| e.store("d", (e.acc() + e.load("bias", F16.over(N))).relu(), F16)).unwrap();
        let pair = epilogue.backward(Wrt::accumulator().masks(masks)).unwrap();
        assert_eq!(pair.reserve().bits_per_element(), 1);
        for (shape, layout) in [(Shape::new(392, 520, 72), TN), (Shape::new(131, 67, 33), NN), (Shape::new(264, 136, 64), NT)] {
            let forward = Gemm::new(F16, layout, pair.forward());
            let backward = Gemm::pointwise(F16, Order::RowMajor, pair.backward());
            let (a, b) = (small(shape.m * shape.k, 1), small(shape.k * shape.n, 2));
            let (bias, upstream) = (small(shape.n, 3), small(shape.m * shape.n, 4));
            let (mut d, mut dz) = (vec![f16::NAN; shape.m * shape.n], vec![f16::NAN; shape.m * shape.n]);

            let mut reserve = pair.reserve().allocate(shape);
            let args = HostArgs::new().input("a", &a).input("b", &b).input("bias", &bias).output("d", &mut d);
            forward.reference(shape, args.saving(&mut reserve)).unwrap();
            let args = HostArgs::new().input("a", &upstream).output("grad_acc", &mut dz).saved(&reserve);
            backward.reference(Shape { k: 0, ..shape }, args).unwrap();

            let on = |host: &[f16]| stream.clone_htod(host).unwrap();
            let [a, b, bias, upstream] = [&a, &b, &bias, &upstream].map(|host| on(host));
            let (mut device_d, mut device_dz) = (on(&d), on(&dz));
            let sizes = pair.reserve().sizes(shape);
            let buffers = sizes.iter().map(|bytes| stream.alloc_zeros::<u8>(*bytes).unwrap()).collect();
            let mut device_reserve = pair.reserve().over(shape, buffers).unwrap();
            let mut args = DeviceArgs::new().input("a", &a).input("b", &b).input("bias", &bias).output("d", &mut device_d);
            args = args.saving(&mut device_reserve);
            forward.plan(device, shape).unwrap().execute(&stream, &mut args).unwrap();
            drop(args);
            let mut args = DeviceArgs::new().input("a", &upstream).output("grad_acc", &mut device_dz).saved(&device_reserve);
            backward.plan(device, Shape { k: 0, ..shape }).unwrap().execute(&stream, &mut args).unwrap();
            drop(args);

            assert!(
                stream.clone_dtoh(&device_d).unwrap() == d && stream.clone_dtoh(&device_dz).unwrap() == dz,
                "{masks} {shape}"
            );
            for ((name, host), (_, device)) in reserve.buffers().zip(device_reserve.buffers()) {
                assert!(stream.clone_dtoh(device).unwrap() == *host, "{name} of {masks} {shape}");
            }
            assert!(dz.contains(&f16::ZERO) && dz.iter().any(|x| *x != f16::ZERO));
        }
    }
}
