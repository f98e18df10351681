//! The Hopper mainloop: every schedule, tile and cluster, every way an operand of the epilogue is staged.

use crate::case::Case;
use crate::rig::{gpu, rig};
use postlude::build::recipes;
use postlude::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use postlude::cudarc::nvrtc::Ptx;
use postlude::device::Device;
use postlude::jit::{Options, Source};
use postlude::plan::{Priority, Schedule, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{DType, Gemm};

fn tile(bm: usize, bn: usize, stages: usize, consumers: usize, schedule: Schedule) -> Tile {
    let shape = TileShape::Sm90a { bk: 64, stages, consumers, schedule, cluster: [1, 1], splits_k: false };
    Tile { bm, bn, shape, threads: 128 * (1 + consumers), min_blocks: 1 }
}

pub fn cooperative(bm: usize, bn: usize, stages: usize) -> Tile {
    tile(bm, bn, stages, 2, Schedule::Cooperative)
}

pub fn ping_pong(bm: usize, bn: usize, stages: usize) -> Tile {
    tile(bm, bn, stages, 2, Schedule::PingPong)
}

fn with(tile: Tile, change: impl FnOnce(&mut usize, &mut [usize; 2])) -> Tile {
    let TileShape::Sm90a { mut bk, stages, consumers, schedule, mut cluster, splits_k } = tile.shape else { return tile };
    change(&mut bk, &mut cluster);
    Tile { shape: TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k }, ..tile }
}

pub fn one_consumer(bn: usize, stages: usize) -> Tile {
    with(tile(64, bn, stages, 1, Schedule::Cooperative), |bk, _| *bk = 128)
}

/// The stand-in for a GPU may be another.
pub fn is_hopper() -> bool {
    rig().is_some_and(|rig| rig.target().0 == Target::SM_90A)
}

/// Several tiles a block, ragged everywhere; hardly one tile; narrow outputs. A and B are aligned in every layout.
const SHAPES: [Shape; 5] = [
    Shape::new(2312, 1544, 200),
    Shape::new(520, 776, 264),
    Shape::new(40, 24, 72),
    Shape::new(8, 1032, 520),
    Shape::new(1032, 16, 72),
];

fn run(layouts: &[Layout], tiles: &[Tile], epilogue: &Epilogue, dtype: DType) {
    if !is_hopper() {
        return;
    }
    for tile in tiles {
        for layout in layouts {
            for shape in SHAPES {
                Case::new(&Gemm::new(dtype, *layout, epilogue).tile(*tile).transposed(false), shape).run();
            }
        }
    }
}

/// Every kind of tile and epilogue with the product transposed: what lies row by row is then moved column by column.
#[test]
fn transposed_products() {
    if !is_hopper() {
        return;
    }
    let residual = recipes::residual(F16, F16, |z| z.relu()).unwrap();
    let several = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N)) * e.load("scale", F32.over(M));
        e.store("d", z.gelu_tanh(), F16);
        e.store("mask", z.gt(0.0), Bool);
        e.store("wide", e.row().lt(37).select(z.sigmoid(), z), F32);
    });
    let tiles = [ping_pong(128, 160, 6), cooperative(128, 208, 5), cooperative(128, 144, 6), one_consumer(64, 6)];
    for epilogue in [&residual, &several.unwrap()] {
        for tile in &tiles {
            for layout in Layout::ALL {
                for shape in SHAPES {
                    Case::new(&Gemm::new(F16, layout, epilogue).tile(*tile).transposed(true), shape).run();
                }
            }
        }
    }
}

#[test]
fn ping_pong_tiles() {
    let tiles = [ping_pong(128, 192, 5), ping_pong(128, 128, 6), ping_pong(64, 256, 5), ping_pong(192, 128, 5)];
    run(&Layout::ALL, &tiles, &recipes::residual(F16, F16, |z| z.relu()).unwrap(), F16);
}

/// Both consumers' chunks in one place: two matrices that are written, without any that is read; one of either; one
/// that is read, and none written; and an output that no tensor map describes. Tiles that are named have their stages,
/// also where the epilogue outlasts the products, as it does where K is short.
#[test]
fn chunks_of_both_consumers_in_one_place() {
    let two = |wide: DType| {
        Epilogue::build(|e| {
            let z = e.acc() + e.load("bias", F16.over(N));
            e.store("input", z, wide);
            e.store("d", z.gelu_tanh(), F16);
        })
        .unwrap()
    };
    let residual = recipes::residual(F16, F16, |z| z.relu()).unwrap();
    let read = Epilogue::build(|e| e.reduce("r", e.acc() * e.load("c", F32), Monoid::Sum, F32.over(N))).unwrap();
    let cases = [
        (ping_pong(128, 128, 6), read),
        (ping_pong(128, 192, 5), two(F16)),
        (ping_pong(128, 192, 5), residual.clone()),
        (ping_pong(128, 128, 6), residual),
        (ping_pong(64, 256, 5), two(BF16)),
    ];
    for (tile, epilogue) in cases {
        let gemm = Gemm::new(F16, TN, &epilogue).tile(tile);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, SHAPES[0]).unwrap();
        assert_eq!(plan.staging.as_ref().unwrap().chunk_rings, 1, "{}", plan.explain());
        run(&[TN, NT], &[tile], &epilogue, F16);
        if is_hopper() {
            Case::new(&gemm, Shape::new(2048, 1536, 64)).run();
            if epilogue.arguments().iter().any(|argument| &*argument.name == "d") {
                Case::new(&gemm, SHAPES[0]).ld("d", 1545).run();
            }
        }
    }
}

/// Chunks row by row, because the cache does not hold the epilogue's matrices: all widths, both orders, and a mask;
/// with shared and separate chunk buffers; ragged, and batched.
#[test]
fn chunks_row_by_row() {
    let mixed = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F16.over(N)) + e.load("c", F32);
        e.store("d", z * e.load("aux", BF16.column_major()), F32);
        e.store("positive", z.gt(e.constant(0.0)), Bits8);
    });
    let residual = recipes::residual(F16, F16, |z| z.relu()).unwrap();
    let cases = [
        (residual.clone(), 6, 1, Shape::new(3656, 3672, 136)),
        (residual, 6, 1, Shape::new(520, 776, 72).batched(34)),
        (mixed.unwrap(), 3, 2, Shape::new(2376, 2248, 200)),
    ];
    for (epilogue, stages, rings, shape) in cases {
        let gemm = Gemm::new(F16, TN, &epilogue).tile(ping_pong(128, 128, stages));
        let plan = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
        assert!(plan.chunks_by_rows() && plan.staging.as_ref().unwrap().chunk_rings == rings, "{}", plan.explain());
        if is_hopper() {
            Case::new(&gemm, shape).run();
        }
    }
}

#[test]
fn cooperative_tiles() {
    let tiles = [cooperative(128, 256, 4), cooperative(256, 128, 4), cooperative(128, 192, 5), cooperative(256, 192, 3)];
    run(&Layout::ALL, &tiles, &recipes::bias_activation(BF16, BF16, |z| z.relu()).unwrap(), BF16);
}

/// Delayed stores: with several tiles a block, with one, and with none for some; with fewer blocks of K than chunks,
/// and without K elements.
#[test]
fn results_that_leave_under_the_next_products() {
    if !is_hopper() {
        return;
    }
    let identity = recipes::identity(F16).unwrap();
    let scaled = Epilogue::build(|e| e.store("d", e.acc() * e.scalar("alpha", F32), BF16.column_major())).unwrap();
    let tiles = [
        (cooperative(128, 256, 4), [1, 1]),
        (cooperative(128, 256, 4), [2, 1]),
        (cooperative(256, 128, 4), [1, 2]),
        (cooperative(128, 224, 4), [2, 1]),
        (cooperative(128, 256, 2), [1, 1]),
    ];
    let shapes = [SHAPES[0], SHAPES[2], Shape::new(2312, 4616, 8), Shape::new(3080, 2056, 328)];
    for (tile, cluster) in tiles {
        let tile = with(tile, |_, c| *c = cluster);
        for (shape, layout) in shapes.into_iter().zip(Layout::ALL) {
            Case::new(&Gemm::new(F16, layout, &identity).tile(tile), shape).run();
        }
        for k in [0, 136] {
            let gemm = Gemm::new(BF16, TN, &scaled).tile(tile);
            let case = Case::new(&gemm, Shape::new(264, 520, k).batched(70)).scalar("alpha", 0.75f32);
            case.run();
            case.ld("d", 280).run();
        }
    }
}

/// Blocks in lockstep: cluster 1x1 and 2x1, with many tiles, a batch, fewer tiles in the last round, and one.
#[test]
fn blocks_in_step() {
    if !is_hopper() {
        return;
    }
    let epilogue = recipes::residual(F16, F16, |z| z.relu()).unwrap();
    let sums = Epilogue::build(|e| {
        e.store("d", e.acc(), F16);
        e.reduce("sum", e.acc(), Monoid::Sum, F32.over(N));
    })
    .unwrap();
    let pair = with(ping_pong(128, 128, 4), |_, cluster| *cluster = [2, 1]);
    for tile in [ping_pong(128, 128, 4), pair, cooperative(128, 64, 8), one_consumer(32, 8)] {
        for (shape, epilogue) in
            SHAPES.into_iter().chain([Shape::new(520, 776, 264).batched(70)]).zip([&epilogue, &sums].into_iter().cycle())
        {
            Case::new(&Gemm::new(F16, TN, epilogue).tile(tile).lockstep(true), shape).run();
        }
    }
}

/// A kernel of the test's own.
fn kernel(device: &Device, text: impl Into<String>, name: &str) -> CudaFunction {
    let cubin = device.cache().compile(&Source::new(text, name), &device.target(), &Options::new()).unwrap();
    let module = device.context().load_module(Ptx::from_binary(cubin.bytes.to_vec())).unwrap();
    module.load_function(name).unwrap()
}

fn single_threads(blocks: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 }
}

/// Results do not tell whether blocks wait for each other, nor whether the next launch finds the count as this one did;
/// a kernel of nothing but the steps does: of whole and broken rounds, a batch, one tile, and more blocks than there is
/// room for, which give each other up.
#[test]
fn steps_count_and_put_the_count_back() {
    let Some(device) = gpu().filter(|device| device.target() == Target::SM_90A) else { return };
    let text = include_str!("steps.cu").replace("STEP\n", include_str!("../../templates/mainloop/sm90a/lockstep.cuh"));
    let function = kernel(device, text, "steps");
    let stream = device.context().default_stream();
    let (mut progress, mut early) = (stream.alloc_zeros::<u32>(1).unwrap(), stream.alloc_zeros::<u32>(1).unwrap());
    for (blocks, [rows, columns, batch]) in
        [(132, [66u32, 8, 1]), (132, [7, 31, 3]), (100, [10, 10, 1]), (1, [1, 1, 1]), (1, [3, 3, 1]), (20_000, [200, 101, 1])]
    {
        for launch in 0..3 {
            let mut arguments = stream.launch_builder(&function);
            arguments.arg(&rows).arg(&columns).arg(&batch).arg(&mut progress).arg(&mut early);
            // SAFETY: the kernel takes these five, and touches nothing but the two counts, which are one element each.
            unsafe { arguments.launch(single_threads(blocks)) }.unwrap();
            let counts = [&progress, &early].map(|count| stream.clone_dtoh(count).unwrap());
            assert_eq!(counts, [[0], [0]], "{blocks} blocks, {rows} x {columns} x {batch} tiles, launch {launch}");
        }
    }
}

/// The evict-first cache policy equals the one that the instruction makes.
#[test]
fn a_policy_of_the_cache() {
    let Some(device) = gpu().filter(|device| device.target() == Target::SM_90A) else { return };
    let text = "extern \"C\" __global__ void make(unsigned long long* policy) {\n\
                asm(\"createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\" : \"=l\"(*policy));\n}\n";
    let function = kernel(device, text, "make");
    let stream = device.context().default_stream();
    let mut made = stream.alloc_zeros::<u64>(1).unwrap();
    // SAFETY: the kernel's one thread writes the one element that it is given the address of.
    unsafe { stream.launch_builder(&function).arg(&mut made).launch(single_threads(1)) }.unwrap();
    assert_eq!(stream.clone_dtoh(&made).unwrap(), [Priority::EvictFirst.policy()]);
}

#[test]
fn small_tiles() {
    let tiles = [cooperative(128, 64, 8), cooperative(128, 96, 6), cooperative(128, 32, 8), cooperative(128, 128, 6)];
    run(&Layout::ALL, &tiles, &recipes::residual(F16, F16, |z| z.gelu()).unwrap(), F16);
}

/// Tiles that pass through shared memory in halves, whose lines are not a power of two: 16 and 32 bits, both orders, in
/// and out.
#[test]
fn halves_of_tiles() {
    let tiles = [
        cooperative(128, 144, 6),
        cooperative(128, 176, 5),
        cooperative(128, 112, 7),
        cooperative(128, 80, 8),
        ping_pong(64, 80, 6),
    ];
    run(&Layout::ALL, &tiles, &recipes::residual(F16, F16, |z| z.relu()).unwrap(), F16);
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N)) + e.load("c", F32) * e.load("aux", BF16.column_major());
        e.store("d", z, F32);
        e.store("t", z.tanh(), F16.column_major());
    })
    .unwrap();
    run(&[TN], &tiles, &epilogue, BF16);
    let across = [one_consumer(64, 6), cooperative(128, 64, 8)].map(|tile| with(tile, |_, cluster| *cluster = [1, 2]));
    run(&Layout::ALL, &across, &recipes::residual(F16, F16, |z| z.relu()).unwrap(), F16);
}

/// Rows of a chunk of one piece of 16 bytes to sixteen, halves of tiles among them, in formats of every size: nothing
/// is read, so lanes move it.
#[test]
fn what_lanes_move() {
    let shared =
        [(64, 8), (96, 6), (32, 8), (144, 6), (176, 5), (112, 7), (80, 8)].map(|(bn, stages)| cooperative(128, bn, stages));
    let single = [(8, 8), (16, 8), (32, 8), (64, 6)].map(|(bn, stages)| one_consumer(bn, stages));
    let tiles = [shared.as_slice(), &single].concat();
    let relu = recipes::bias_activation(F16, F16, |z| z.relu()).unwrap();
    let both = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(M));
        e.store("d", z, F32);
        e.store("t", z.tanh(), BF16);
    });
    let signs = Epilogue::build(|e| e.store("d", e.acc().gt(e.constant(0.0)), Bool));
    for (epilogue, shape) in [(relu, SHAPES[0]), (both.unwrap(), SHAPES[0]), (signs.unwrap(), SHAPES[4])] {
        for tile in &tiles {
            let plan =
                Gemm::new(F16, TN, &epilogue).tile(*tile).transposed(false).kernel_plan(Target::SM_90A, 132, shape).unwrap();
            assert_eq!(plan.staging.unwrap().direct_store, !(shape == SHAPES[4] && tile.bn == 8), "{tile}");
        }
        run(&[TN, NT], &tiles, &epilogue, F16);
    }
}

/// Epilogues that take long to compile stand in the code for half of a tile's columns.
#[test]
fn heavy_epilogues() {
    let ping_pongs = [ping_pong(128, 192, 5), ping_pong(128, 160, 6), ping_pong(128, 144, 6), ping_pong(64, 256, 5)];
    let cooperatives = [cooperative(128, 256, 4), cooperative(256, 176, 3), cooperative(128, 80, 8), cooperative(128, 64, 8)];
    let epilogue = recipes::residual(F16, F16, |z| z.gelu_erf() + z.tanh()).unwrap();
    run(&[Layout::TN], &[ping_pongs, cooperatives].concat(), &epilogue, F16);
}

#[test]
fn single_consumers() {
    let tiles = [(8, 8), (16, 8), (32, 8), (64, 6), (128, 4)].map(|(bn, stages)| one_consumer(bn, stages));
    run(&Layout::ALL, &tiles, &recipes::residual(F16, F16, |z| z.relu()).unwrap(), F16);
}

#[test]
fn clusters() {
    let tiles = [cooperative(128, 256, 4), ping_pong(128, 192, 5), cooperative(256, 128, 4)];
    let tiles = tiles.map(|tile| [[2, 1], [1, 2]].map(|cluster| with(tile, |_, c| *c = cluster))).concat();
    run(&Layout::ALL, &tiles, &recipes::bias_activation(F16, F16, |z| z.relu()).unwrap(), F16);
}

/// With one block of K a block is done while the other one's arrivals may still be on their way to its barriers. Leaving
/// then is an error of the launch, in some launches of many: it was, in `128x64` with a cluster.
#[test]
fn blocks_of_a_cluster_wait_for_each_others_arrivals() {
    let Some(device) = gpu().filter(|_| is_hopper()) else { return };
    let stream = device.context().new_stream().unwrap();
    let (m, n, k) = (2272, 1784, 16);
    let [a, b] = [m * k, n * k].map(|len| stream.alloc_zeros::<half::f16>(len).unwrap());
    let mut d = stream.alloc_zeros::<half::f16>(m * n).unwrap();
    let gemm = Gemm::new(F16, TN, &recipes::identity(F16).unwrap());
    let shape = Shape::new(m, n, k);
    let fitting = gemm.kernel_plan(device.target(), device.gpu(), shape).unwrap();
    let is_cluster = |tile: &Tile| matches!(tile.shape, TileShape::Sm90a { cluster, .. } if cluster != [1, 1]);
    let clusters: Vec<Tile> = fitting.choice.candidates().map(|(tile, _)| tile).filter(is_cluster).collect();
    assert!(clusters.len() > 10, "{}", clusters.len());
    for tile in clusters {
        let gemm = gemm.clone().tile(tile);
        let plan = gemm.plan(device, shape).unwrap();
        for _ in 0..300 {
            plan.execute(&stream, &mut Args::new().input("a", &a).input("b", &b).output("d", &mut d)).unwrap();
        }
        stream.synchronize().unwrap_or_else(|error| panic!("{tile}: {error}"));
        Case::new(&gemm, shape).run();
    }
}

/// Every format, both orders, in and out, with vectors over both axes: more than the staging of two deep rings holds.
#[test]
fn every_kind_of_operand() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load("row_scale", F32.over(M)) + e.load("bias", BF16.over(N));
        let z = z + e.load("c", F16) * e.load("aux", F32.column_major());
        let z = e.load("mask", Bool).select(z, -z);
        e.store("d", z, F16);
        e.store("t", z.tanh(), BF16.column_major());
        e.store("wide", z, F32);
    })
    .unwrap();
    run(&[TN, NT], &[ping_pong(128, 128, 6), cooperative(128, 64, 8), cooperative(128, 256, 4)], &epilogue, F16);
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("c", BF16.column_major());
        e.store("wide", z, F32.column_major());
        e.store("mask", z.lt(0.0), Bool.column_major());
        e.store("positive", z.gt(0.0), Bool);
    })
    .unwrap();
    run(&[TT, NN], &[ping_pong(128, 128, 6), cooperative(128, 64, 8)], &epilogue, BF16);
}

/// Outputs inside wider matrices, off by an element, and with odd leading dimensions: no tensor map can describe them,
/// or TMA would clip them at 16 bytes instead of at the element.
#[test]
fn neighbours_stay_untouched() {
    if !is_hopper() {
        return;
    }
    for by_columns in [false, true] {
        let matrix = || if by_columns { F16.column_major() } else { F16.into() };
        let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", matrix()), matrix())).unwrap();
        for tile in [ping_pong(128, 128, 6), cooperative(128, 64, 8)] {
            for (m, n) in [(200, 264), (201, 263), (197, 257), (131, 70), (70, 131)] {
                for (ld, offset) in [(0, 0), (8, 0), (24, 8), (9, 0), (8, 1), (1, 3)] {
                    let inner = if by_columns { m } else { n };
                    let gemm = Gemm::new(F16, TN, &epilogue).tile(tile);
                    let case = Case::new(&gemm, Shape::new(m, n, 72));
                    let wide = inner.next_multiple_of(8) + ld;
                    case.ld("d", wide).offset("d", offset).ld("c", wide + 8).offset("c", offset).run();
                }
            }
        }
    }
}

/// Without K the ring of stages holds what the kernel before left in shared memory.
#[test]
fn nothing_to_multiply_is_zero() {
    if !is_hopper() {
        return;
    }
    for tile in [ping_pong(128, 128, 6), cooperative(128, 64, 8)] {
        let gemm = Gemm::new(F16, TN, &recipes::identity(F16).unwrap()).tile(tile);
        Case::new(&gemm, Shape::new(2048, 2048, 512)).fill("a", |_, _| f64::NAN).run();
        Case::new(&gemm, Shape::new(2048, 2048, 0)).run();
    }
}

#[test]
fn batches() {
    if !is_hopper() {
        return;
    }
    let epilogue = recipes::residual(F16, F16, |z| z.relu()).unwrap();
    let pair = with(cooperative(128, 64, 8), |_, cluster| *cluster = [2, 1]);
    for tile in [ping_pong(128, 128, 6), cooperative(128, 64, 8), pair] {
        let gemm = Gemm::new(F16, TN, &epilogue).tile(tile);
        for k in [0, 64, 200] {
            let case = Case::new(&gemm, Shape::new(136, 200, k).batched(5));
            case.run();
            case.clone().batch_stride("a", 0).run();
            case.clone().ld("a", 5 * 208).batch_stride("a", 208).run();
            case.ld("d", 5 * 200).batch_stride("d", 200).batch_stride("residual", 0).run();
        }
    }
}
