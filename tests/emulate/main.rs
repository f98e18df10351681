//! Kernels on a processor: the rendered text is compiled as C++ and compared with the reference, without a GPU.
//!
//! This covers `simt`, `gemv`, `pointwise`, `depthwise`, `depthwise_filters` and, with tensor cores, `bands`, `bands_filters` and
//! `attention`, with the epilogue, the order of tiles, the guards at the edges, masks and reductions that all mainloops share.
//! `cuda.hpp` says how. Two launches in opposite orders of blocks have to agree bit by bit. Neither proves anything about a GPU's
//! timing.

mod eight_bits;
mod fast;
#[path = "../support/monoids.rs"]
mod monoids;
mod program;
mod rows;
mod widen;

use postlude::args::{HostArgs, Slot, SlotKind, Tensor, slots};
use postlude::build::recipes;
use postlude::check::Argument;
use postlude::plan::{Mainloop, Math, Passes, Place, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Attention, Blocks, GradientOf, Scores};
use postlude::{PoolKind, Pooling};
use program::Program;

/// Numbers from -2 to 2 in steps that products keep exact for a while.
fn bytes(dtype: DType, count: usize, seed: usize) -> Vec<u8> {
    let mut state = (seed as u32).wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let mut out = Vec::new();
    while out.len() < dtype.bytes(count) {
        let eighths = (next() % 33) as i32 - 16;
        match dtype {
            F32 => out.extend((eighths as f32 / 8.0).to_le_bytes()),
            F64 => out.extend((f64::from(eighths) / 8.0).to_le_bytes()),
            F16 => out.extend(postlude::half::f16::from_f32(eighths as f32 / 8.0).to_le_bytes()),
            BF16 => out.extend(postlude::half::bf16::from_f32(eighths as f32 / 8.0).to_le_bytes()),
            I32 => out.extend((eighths * 12_345).to_le_bytes()),
            E4M3 => out.push(postlude::float8::F8E4M3::from_f32(eighths as f32 / 8.0).to_bits()),
            E5M2 => out.push(postlude::float8::F8E5M2::from_f32(eighths as f32 / 8.0).to_bits()),
            I8 => out.push((eighths * 7) as u8),
            U8 => out.push((eighths * 7 + 112) as u8),
            Bool => out.push((next() % 2) as u8),
            I4 | U4 | Bits8 | Bits128 => out.push(next() as u8),
        }
    }
    out
}

/// Elements of a table.
const TABLE: usize = 11;

/// Values of a buffer, as far as they belong to it: of runs that are longer than they need to be not the rest, but of
/// masks whole bytes, whose last bits are written as zeros.
fn values(kind: &SlotKind, bytes: &[u8]) -> Vec<f64> {
    let SlotKind::Memory { dtype, outer, inner, batch, .. } = kind else { return Vec::new() };
    let ld = inner.next_multiple_of(dtype.run());
    let at = |i: usize| match dtype {
        F32 => f64::from(f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap())),
        F64 => f64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap()),
        F16 => postlude::half::f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f64(),
        BF16 => postlude::half::bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f64(),
        I32 => f64::from(i32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap())),
        E4M3 => postlude::float8::F8E4M3::from_bits(bytes[i]).to_f64(),
        E5M2 => postlude::float8::F8E5M2::from_bits(bytes[i]).to_f64(),
        I8 => f64::from(bytes[i] as i8),
        U8 => f64::from(bytes[i]),
        Bool => f64::from(bytes[i]),
        I4 | U4 => f64::from(bytes[i / 2] >> (i % 2 * 4) & 15),
        Bits8 | Bits128 => f64::from(bytes[i / 8] >> (i % 8) & 1),
    };
    let runs = outer * batch.unwrap_or(1);
    let taken = inner.next_multiple_of(dtype.packed());
    (0..runs).flat_map(|run| (0..taken).map(move |i| run * ld + i)).map(at).collect()
}

/// An epilogue with its operation, tried on shapes and rasters. Its outputs are within a relative error of the
/// reference.
struct Case {
    name: &'static str,
    gemm: Gemm,
    shapes: Vec<Shape>,
    rasters: &'static [i32],
    tolerance: f64,
}

/// Whether a case was tried.
#[derive(PartialEq, Eq)]
enum Tried {
    Passed,
    /// The machine has no compiler.
    Skipped,
}

impl Case {
    /// Compiles the case's kernels and compares their outputs with the reference. `change` edits their text first: see
    /// `mutants`.
    fn run(&self, name: &str, change: &dyn Fn(&str) -> String) -> Result<Tried, String> {
        // One kernel serves a class of problems: a kernel is compiled once and tried on every shape of its class.
        let mut programs: Vec<(String, Program)> = Vec::new();
        for &shape in &self.shapes {
            // Blocks that go from tile to tile: of a single multiprocessor each has several.
            let few = self.name.starts_with("bands") || self.name.ends_with("_in_turns");
            let plan = self.gemm.kernel_plan(Target::SM_80, if few { 1 } else { 108 }, shape).unwrap();
            let mut texts = Vec::new();
            for plan in plan.before.iter().chain([&plan]) {
                let text = plan.source().unwrap().text().to_owned();
                if !programs.iter().any(|(known, _)| *known == text) {
                    let name = format!("{name}_{}", programs.len());
                    let Some(program) = Program::of(&name, plan.clone(), &change(&text))? else { return Ok(Tried::Skipped) };
                    programs.push((text.clone(), program));
                }
                texts.push(text);
            }
            let of = |text: &String| &programs.iter().find(|(known, _)| known == text).unwrap().1;
            self.launch(&Kernels { programs: texts.iter().map(of).collect(), passes: plan.passes.as_deref() }, shape)?;
        }
        Ok(Tried::Passed)
    }

    /// With all optional arguments, without them, and with every other one.
    fn launch(&self, kernels: &Kernels, shape: Shape) -> Result<(), String> {
        // Of a scalar the launch writes the default: the kernel sees no difference.
        let may = |argument: &&Argument| argument.need.default().is_some() && argument.role.operand().is_some();
        let scores = self.gemm.operation().attention().and_then(|attention| attention.function());
        let of_scores = scores.map_or(&[][..], |scores| scores.arguments());
        let optional = self.gemm.epilogue().arguments().iter().chain(of_scores).filter(may);
        let names: Vec<&str> = optional.map(|argument| &*argument.name).collect();
        let odd = |odd: usize| names.iter().copied().skip(odd).step_by(2).collect();
        self.launch_without(kernels, shape, &[])?;
        let some: Vec<Vec<&str>> = if names.is_empty() { Vec::new() } else { vec![names.clone(), odd(0), odd(1)] };
        some.iter().try_for_each(|names| self.launch_without(kernels, shape, names))
    }

    fn launch_without(&self, kernels: &Kernels, shape: Shape, left_out: &[&str]) -> Result<(), String> {
        let slots = slots(self.gemm.operation(), self.gemm.epilogue().checked(), shape);
        let is_left_out = |slot: &Slot| left_out.contains(&&*slot.name);
        let mut before = Vec::new();
        for (seed, slot) in slots.iter().enumerate() {
            before.push(match &slot.kind {
                _ if is_left_out(slot) => Vec::new(),
                SlotKind::Memory { dtype, outer, inner, batch, .. } => {
                    bytes(*dtype, inner.next_multiple_of(dtype.run()) * outer * batch.unwrap_or(1), seed + 1)
                }
                SlotKind::Table { dtype, .. } => bytes(*dtype, TABLE, seed + 1),
                SlotKind::Scalar(_) => Vec::new(),
            });
        }
        let (mut expected, mut args) = (before.clone(), HostArgs::new());
        for ((slot, bytes), input) in slots.iter().zip(&mut expected).zip(&before) {
            args = match &slot.kind {
                _ if is_left_out(slot) => args,
                SlotKind::Scalar(_) => args.scalar(&slot.name, 0.75),
                SlotKind::Table { dtype, written: true } | SlotKind::Memory { dtype, written: true, .. } => {
                    args.output(&slot.name, Tensor::of_bytes_mut(*dtype, bytes))
                }
                SlotKind::Table { dtype, .. } | SlotKind::Memory { dtype, .. } => {
                    args.input(&slot.name, Tensor::of_bytes(*dtype, input))
                }
            };
        }
        self.gemm.reference(shape, args).unwrap();
        for &raster in self.rasters {
            let launches = kernels.launch(&slots, shape, raster, &before)?;
            for (turn, launched) in launches.iter().enumerate() {
                for ((slot, expected), found) in
                    slots.iter().zip(&expected).zip(launched).filter(|((slot, _), _)| !is_left_out(slot))
                {
                    let (expected, found) = (values(&slot.kind, expected), values(&slot.kind, found));
                    let same =
                        |e: f64, f: f64| e == f || (e - f).abs() <= self.tolerance * e.abs().max(1.0) || e.is_nan() && f.is_nan();
                    if let Some(at) = expected.iter().zip(&found).position(|(e, f)| !same(*e, *f)) {
                        let (tile, name, found, expected) = (kernels.tile(), &slot.name, found[at], expected[at]);
                        let place = format!("launch {turn}, {shape}, without {left_out:?}, raster {raster}, {tile}");
                        return Err(format!("`{name}`[{at}] is {found}, not {expected}: {place}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The kernels of a plan, the plan's own last.
struct Kernels<'p> {
    programs: Vec<&'p Program>,
    passes: Option<&'p Passes>,
}

impl Kernels<'_> {
    fn tile(&self) -> Tile {
        self.programs[self.programs.len() - 1].plan().tile
    }

    /// The contents of the user's buffers after two launches.
    fn launch(&self, slots: &[Slot], shape: Shape, raster: i32, before: &[Vec<u8>]) -> Result<[Vec<Vec<u8>>; 2], String> {
        const SCALAR: f32 = 0.75;
        let Some(passes) = self.passes else { return self.programs[0].launch(slots, shape, raster, before, SCALAR) };
        let mut interim: Vec<Vec<u8>> = vec![Vec::new(); passes.interim.len()];
        let mut given = [before.to_vec(), before.to_vec()];
        for (number, (pass, program)) in passes.passes.iter().zip(&self.programs).enumerate() {
            let (own, places) = (pass.slots(shape), passes.places(number, slots, shape));
            let room = |kind: &SlotKind| match kind {
                SlotKind::Memory { dtype, outer, inner, batch, .. } => {
                    vec![0xaa; dtype.bytes(inner * outer * batch.unwrap_or(1))]
                }
                SlotKind::Table { .. } | SlotKind::Scalar(_) => Vec::new(),
            };
            let bytes = own.iter().zip(&places).map(|(slot, place)| match *place {
                Place::Given(slot) => before[slot].clone(),
                Place::Interim(index) if interim[index].is_empty() => room(&slot.kind),
                Place::Interim(index) => interim[index].clone(),
            });
            let launched = program.launch(&own, shape, raster, &bytes.collect::<Vec<_>>(), SCALAR)?;
            for (turn, buffers) in launched.into_iter().enumerate() {
                for (place, buffer) in places.iter().zip(buffers) {
                    match *place {
                        Place::Given(slot) => given[turn][slot] = buffer,
                        Place::Interim(index) => interim[index] = buffer,
                    }
                }
            }
        }
        Ok(given)
    }
}

fn shapes(extents: &[(usize, usize, usize)]) -> Vec<Shape> {
    extents.iter().map(|&(m, n, k)| Shape::new(m, n, k)).collect()
}

/// Edges in every direction, less than a tile, no K elements; and batch entries.
fn edges() -> Vec<Shape> {
    let mut all = shapes(&[(150, 200, 33), (5, 7, 3), (129, 65, 0)]);
    all.push(Shape::new(40, 72, 20).batched(3));
    all
}

/// Matrices, vectors and a number, in every layout: each element once, whatever the order of tiles.
fn layout(name: &'static str, layout: Layout) -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load("rows", F32.over(M)) + e.load("columns", F32.over(N)) * e.scalar("by", F32);
        e.store("d", (z + e.load("c", F32)).relu() - e.load("turned", F32.column_major()), F32);
    });
    let shapes = if layout == TN { edges() } else { shapes(&[(150, 200, 33), (96, 72, 20)]) };
    Case { name, gemm: Gemm::new(F32, layout, &epilogue.unwrap()), shapes, rasters: &[2, -2], tolerance: 1e-5 }
}

/// A filter for each channel: runs of several pixels, a channel that no strip is full of, padding on one side.
fn depthwise(name: &'static str, dtype: DType, shape: ConvShape) -> Case {
    convolution(name, dtype, shape.groups(shape.channels), Mainloop::Depthwise)
}

/// The same on lines in shared memory.
fn lines(name: &'static str, dtype: DType, shape: ConvShape) -> Case {
    convolution(name, dtype, shape.groups(shape.channels), Mainloop::DepthwiseLines)
}

/// The same where each block has several tiles, with sums over pixels or without. The numbers are pixels of a thread, threads
/// along a row, bands, rows of a band, and lines of the ring.
fn lines_in_turns(name: &'static str, shape: ConvShape, [run, across, groups, rows, stages]: [usize; 5], sums: bool) -> Case {
    let convolution = postlude::Convolution::new(shape.groups(shape.channels)).unwrap();
    let epilogue = Epilogue::build(|e| {
        let z = (e.acc() + e.load("bias", F32.over(N)) + e.load("residual", F16)).relu();
        e.store("d", z, F32);
        if sums {
            e.reduce("sums", z, Monoid::Sum, F32.over(N));
            e.reduce("most", z, Monoid::Max, F32.over(L));
        }
    });
    let taps = shape.window[0] * shape.window[1];
    let line = (across * run - 1) * shape.stride[1] + shape.window[1];
    let own = TileShape::DepthwiseLines { run, across, groups, rows, stages, line, taps };
    let bm = groups * rows * convolution.output()[1];
    let tile = Tile { bm, bn: 16, shape: own, threads: (groups * across * 8).next_multiple_of(32), min_blocks: 2 };
    let gemm = Conv::of(F16, convolution, &epilogue.unwrap()).gemm().clone().tile(tile);
    Case { name, gemm, shapes: vec![convolution.shape()], rasters: &[1], tolerance: 2e-5 }
}

/// Large windows behind a long epilogue, in tiles of several passes and long runs.
fn depthwise_in_passes(name: &'static str, run: usize, passes: usize) -> Case {
    let shape = ConvShape::new(5, [9, 14, 40], [40, 5, 5]).padding([2, 2]).groups(40);
    let epilogue = Epilogue::build(|e| {
        let z = (0..24).fold(e.acc() + e.load("bias", F32.over(N)), |z, _| z.tanh() + z.erf() * 0.5);
        e.store("d", z, F32);
    });
    let conv = Conv::new(F16, shape, &epilogue.unwrap()).unwrap();
    let own = TileShape::Depthwise { run, taps: 25 };
    let tile = Tile { bm: 32 * run * passes, bn: 32, shape: own, threads: 128, min_blocks: 1 };
    Case { name, gemm: conv.gemm().clone().tile(tile), shapes: vec![conv.shape()], rasters: &[1], tolerance: 1e-3 }
}

/// Few channels: windows at even and at odd elements, whole lines and others, lines of several images in a tile.
fn bands(name: &'static str, dtype: DType, shape: ConvShape) -> Case {
    Case { tolerance: 1e-4, ..convolution(name, dtype, shape, Mainloop::Bands) }
}

/// A tile whose threads have several groups of rows, which pass through shared memory one after the other.
fn large_tile() -> Case {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", F32), F32)).unwrap();
    let gemm = Gemm::new(F32, TN, &epilogue);
    let large = gemm.kernel_plan(Target::SM_80, 108, Shape::new(4096, 4096, 512)).unwrap();
    let tile = large.choice.candidates().map(|(tile, _)| tile).find(|tile| tile.bm == 128 && tile.bn == 128).unwrap();
    let shapes = shapes(&[(150, 140, 20)]);
    Case { name: "large_tile", gemm: gemm.tile(tile), shapes, rasters: &[1], tolerance: 1e-5 }
}

/// Operands of 16 bits, whose runs begin anywhere, or where all of them can be moved in pieces of 16 bytes.
fn halves() -> Case {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", BF16).max(e.acc()), F16)).unwrap();
    let shapes = shapes(&[(67, 45, 31), (64, 130, 2), (96, 160, 64)]);
    Case { name: "halves", gemm: Gemm::new(F16, TN, &epilogue).mainloop(Mainloop::Simt), shapes, rasters: &[3], tolerance: 1e-3 }
}

/// Fast spellings in a product; [`fast`](mod@fast) has every one of them. Arguments of sine and cosine are up to some
/// thousand turns.
fn fast() -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        e.store("turned", (z * 64.0).sin() + (z * 32.0).cos(), F32);
        e.store("scaled", (z * 0.0625).exp() + (z.abs() + 1.0).log() * z.tanh(), F32);
        e.store("rooted", (z.abs() + 0.5).sqrt() + (z * z + 1.0).recip(), F32);
    });
    let gemm = Gemm::new(F32, TN, &epilogue.unwrap()).math(Math::Fast);
    Case { name: "fast", gemm, shapes: shapes(&[(40, 60, 33)]), rasters: &[1], tolerance: 1e-4 }
}

/// Integers wrap; division is total.
fn integers() -> Case {
    let epilogue = Epilogue::build(|e| {
        let (z, c) = (e.acc_i32(), e.load("c", I32));
        e.store("d", z * c - e.load("by", I32.over(N)), I32);
        e.store("quotient", z / c + z % c, I32.column_major());
        e.bincount("counts", z % 16);
    });
    let shapes = shapes(&[(50, 70, 33)]);
    Case { name: "integers", gemm: Gemm::new(I32, NT, &epilogue.unwrap()), shapes, rasters: &[-2], tolerance: 0.0 }
}

/// Operands of eight bits in a layout, loads and stores of all four formats, along and across strips, and vectors of them.
fn eight_bits(name: &'static str, (a, b): (DType, DType), layout: Layout, mainloop: Mainloop, shapes: Vec<Shape>) -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = if a.value_type().is_float() { e.acc() } else { e.acc_i32().cast(F32) * 0.001 };
        let z =
            z * e.load("rows", E4M3.over(M)) + e.load("columns", E5M2.over(N)) + e.load("level", I8.over(M)).cast(F32) * 0.125;
        let z = z + e.load("c", E5M2) - e.load("turned", U8.column_major()).cast(F32) * 0.5 + e.load_or("point", E4M3, 1.5);
        e.store("d", z, F32);
        e.store("e4m3", z * 64.0, E4M3);
        e.store("e5m2", z * 1e4, E5M2.column_major());
        e.store("i8", z * 4.0, I8);
        e.store("u8", (z * 16.0).cast(I32), U8.column_major());
        e.store(
            "rounded",
            (z * 3.0).cast(E4M3) + (z * 0.1).cast(E5M2) + (z * 5.0).cast(I8).cast(F32) + z.cast(U8).cast(F32),
            F32,
        );
        e.reduce("amax", z, Monoid::AbsMax, F32.pointer());
        e.reduce("largest", z, Monoid::Max, E4M3.over(N));
    });
    let gemm = Gemm::mixed(a, b, layout, &epilogue.unwrap()).mainloop(mainloop);
    Case { name, gemm, shapes, rasters: &[2], tolerance: 0.0 }
}

/// Extents that end inside of blocks.
fn odd() -> Vec<Shape> {
    vec![Shape::new(150, 200, 133), Shape::new(40, 72, 97).batched(2)]
}

/// An operand of fewer bits beside one of 16, with scales and zero points of blocks.
fn widened(name: &'static str, (a, b): (DType, DType), layout: Layout, blocks: Option<Blocks>, shapes: Vec<Shape>) -> Case {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", F32.over(N)), F32)).unwrap();
    let scales = if a.size() == 2 { [None, blocks] } else { [blocks, None] };
    let gemm = Gemm::of(postlude::Operation::Product { a, b, layout, scales }, &epilogue).mainloop(Mainloop::Simt);
    Case { name, gemm, shapes, rasters: &[2], tolerance: 1e-5 }
}

/// Few rows beside weights of fewer bits, on each tile of these extents.
fn widened_rows(name: &'static str, (a, b): (DType, DType), blocks: Option<Blocks>, [bm, bn]: [usize; 2]) -> Case {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", F32.over(N)), F32)).unwrap();
    let gemm = Gemm::of(postlude::Operation::Product { a, b, layout: TN, scales: [None, blocks] }, &epilogue);
    let plan = gemm.clone().mainloop(Mainloop::Gemv).kernel_plan(Target::SM_80, 108, Shape::new(bm, 512, 1024)).unwrap();
    // Not every list has every width.
    let tile = Tile { bn, ..plan.choice.candidates().find(|(tile, _)| tile.bm == bm).expect("a tile").0 };
    // Whole steps and parts of one, a step that lies behind the end, lines that are no multiple of anything, and no K.
    // A thread has one strip, so the largest tiles need strips of four columns.
    let odd = |n: usize| if bm * bn <= tile.threads { n } else { n.next_multiple_of(4) };
    let mut all = shapes(&[(bm, 2 * bn, 1024), (bm - 3, odd(37), 700), (1, odd(3), 70), (bm, odd(bn + 1), 6), (2, bn, 0)]);
    all.push(Shape::new(5, 40, 202).batched(2));
    Case { name, gemm: gemm.tile(tile), shapes: all, rasters: &[2], tolerance: 1e-4 }
}

/// Both operands of eight bits with scales of blocks.
fn scaled(name: &'static str, blocks: [Blocks; 2], layout: Layout, shapes: Vec<Shape>) -> Case {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", F32.over(N)), F32)).unwrap();
    let gemm = Gemm::block_scaled([E4M3, E5M2], layout, blocks, &epilogue).mainloop(Mainloop::Simt);
    Case { name, gemm, shapes, rasters: &[2], tolerance: 1e-5 }
}

/// Doubles in every layout, split into strips of two and of one. A rounding to single precision on the way would be off
/// by more than 1e-13.
fn doubles(name: &'static str, layout: Layout) -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = (e.acc_f64() + e.load("bias", F64.over(N)) * e.scalar("by", F64)) * 0.1;
        let c = e.load("c", F64.column_major());
        e.store("d", z.max(c).min_num(z + 1.0) + e.gather("table", F64, e.column()), F64);
        e.store("smooth", (z * 0.1).tanh() * e.load("rows", F64.over(M)) + z.sin().gelu().cast(F32).cast(F64) * 1e-9, F64);
        e.store("half", z.cast(F16), F16);
        e.store("brain", z.cast(BF16), BF16);
        // Near a tie of half precision, from which it differs by less than single precision shows.
        e.store("tie", (e.load("bias", F64.over(N)) * 1e-11 + 2049.0).cast(F16), F16);
        e.store("whole", (z * 1e3).cast(I32), I32);
        e.store("mask", z.gt(c), Bits8);
    });
    let shapes = if layout == TN { edges() } else { shapes(&[(150, 200, 33), (96, 71, 20)]) };
    Case {
        name,
        gemm: Gemm::new(F64, layout, &epilogue.unwrap()).mainloop(Mainloop::Simt),
        shapes,
        rasters: &[2],
        tolerance: 1e-13,
    }
}

/// The same of reductions, each over doubles.
fn reductions_of_doubles() -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc_f64() * 0.1;
        e.store("d", z, F64);
        e.reduce("sums", z, Monoid::Sum, F64.over(N));
        e.reduce("added", z, Monoid::Sum.atomic(), F64.over(M));
        e.reduce("largest", z, Monoid::Max, F64.over(M | L));
        e.reduce("smallest", z, Monoid::Min, F64.pointer());
        e.reduce("amax", z, Monoid::AbsMax, F64.over(N | L));
        e.reduce("lse", z, Monoid::LogSumExp, F64.over(M));
        e.reduce("more", z * e.load("c", F64), Monoid::Sum.accumulate(), F64.over(N));
        e.reduce("product", z * 0.01 + 1.0, Monoid::Product, F64.over(M | N));
        e.reduce("mean", z, Monoid::Mean, F64.pointer());
        e.reduce("squares", z, Monoid::SumSquares, F64.over(M));
        e.reduce("norm", z, Monoid::Norm2, F64.over(N));
        e.reduce("first", z, Monoid::ArgMax, I32.over(M));
        e.reduce("last", z, Monoid::ArgMin, I32.over(N));
    });
    let gemm = Gemm::new(F64, TN, &epilogue.unwrap());
    Case { name: "reductions_of_doubles", gemm, shapes: edges(), rasters: &[1], tolerance: 1e-13 }
}

/// The last tile combines the partial results in one order: of rows, columns, entries, everything, with every monoid.
fn reductions() -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        e.store("d", z, F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
        e.reduce("added", z, Monoid::Sum.atomic(), F32.over(M));
        e.reduce("largest", z, Monoid::Max, F32.over(M | L));
        e.reduce("smallest", z, Monoid::Min, F32.pointer());
        e.reduce("amax", z, Monoid::AbsMax, F32.over(N | L));
        e.reduce("lse", z, Monoid::LogSumExp, F32.over(M));
        e.reduce("more", z * e.load("c", F32), Monoid::Sum.accumulate(), F32.over(N));
        e.reduce("product", z * 0.0625 + 1.0, Monoid::Product, F32.over(M | N));
        e.reduce("any", z.gt(8.0), Monoid::Max, Bool.over(N));
        e.reduce("whole", z.cast(I32), Monoid::Sum, I32.over(M));
        e.reduce("least", z.cast(I32), Monoid::Min, I32.over(M));
    });
    Case { name: "reductions", gemm: Gemm::new(F32, TN, &epilogue.unwrap()), shapes: edges(), rasters: &[1], tolerance: 2e-5 }
}

/// Masks are read and written along either axis, and end inside of a byte.
fn masks() -> Case {
    let epilogue = Epilogue::build(|e| {
        let keep = e.load("keep", Bits8).select(e.acc(), -e.acc());
        let turned = e.load("turned", Bits8.column_major()).cast(F32);
        let z = e.load("columns", Bits8.over(N)).select(keep, keep + turned) + e.load("rows", Bits8.over(M)).cast(F32);
        e.store("d", z, F32);
        e.store("across", z.gt(0.0), Bits8);
        e.store("down", z.lt(0.5), Bits8.column_major());
        e.store("wide", z.ge(1.0), Bits128);
    });
    Case { name: "masks", gemm: Gemm::new(F32, TT, &epilogue.unwrap()), shapes: edges(), rasters: &[2], tolerance: 1e-5 }
}

/// Tables along every axis. Some indices are outside the table, on either side.
fn gathers() -> Case {
    let epilogue = Epilogue::build(|e| {
        let loaded = |name, axes| e.load(name, I32.over(axes)) / 12_345;
        let z = e.acc() * e.gather("by_row", F16, loaded("rows", M)) + e.gather("by_column", BF16, loaded("columns", N));
        let z = z + e.gather("by_element", F32, loaded("index", M | N)) + e.gather("by_distance", F32, e.column() - e.row());
        let z = z + e.gather("by_entry", I32, e.batch()).cast(F32) * 0.001 + e.gather("by_row", F16, e.constant(10));
        let smooth = e.gather("smooth", Bool, e.row() % 12);
        e.store("d", z.region(smooth, |z| z.sigmoid()).otherwise(|z| z.tanh() + z), F32);
    });
    Case { name: "gathers", gemm: Gemm::new(F32, TN, &epilogue.unwrap()), shapes: edges(), rasters: &[2], tolerance: 1e-5 }
}

/// Operands that a launch may leave out, of every phase, order and width of an element.
fn left_out(name: &'static str, gemm: impl Fn(&Epilogue) -> Gemm, shapes: Vec<Shape>) -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load_or("scale", F32.pointer(), 0.5) * e.load_or("rows", F16.over(M), 1.25);
        let z = z + e.load_or("columns", F16.over(N).batched(), 0.1) + e.load_or("level", I32.over(N), -3).cast(F32) * 1e-4;
        let z = z + e.load_or("c", BF16, -2.0) - e.load_or("turned", F32.column_major(), 0.75);
        let kept = e.load_or("keep", Bits8, true).select(z, 0.0) + e.load_or("masked", Bits8.over(N), true).cast(F32);
        let kept = e.load_or("lit", Bits8.over(M).batched(), false).select(kept, -kept);
        e.store("d", e.load_or("on", Bool.column_major(), true).select(kept, e.load("other", F32)), F32);
        e.reduce("sums", kept, Monoid::Sum, F32.over(N));
    });
    Case { name, gemm: gemm(&epilogue.unwrap()), shapes, rasters: &[2], tolerance: 2e-5 }
}

/// Heads whose queries, keys and values end anywhere, with all that an epilogue may do behind them.
fn attention(name: &'static str, dtype: DType, of: Attention, bm: usize, shapes: Vec<Shape>) -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load("rows", F32.over(M)) + e.load("bias", F32.over(N)) + e.load("residual", dtype);
        e.store("d", e.row().lt(70).select(z, z.tanh()), F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
        // Rows that are reduced must not have gaps between sequences.
        if of.sequences(1) == of || shapes[0].m.is_multiple_of(256) {
            e.reduce("largest", z, Monoid::Max, F32.over(M));
        }
    });
    let gemm = Gemm::attention(dtype, of, &epilogue.unwrap());
    let plan = gemm.kernel_plan(Target::SM_80, 108, shapes[0]).unwrap();
    let tile = plan.choice.candidates().map(|(tile, _)| tile).find(|tile| tile.bm == bm).expect("a tile");
    // Sums of many rows add up what the weights lost when they were rounded.
    let tolerance = if dtype == F16 { 3e-3 } else { 2e-2 };
    Case { name, gemm: gemm.tile(tile), shapes, rasters: &[2], tolerance }
}

fn attentions() -> Vec<Case> {
    let batched = |m, n, k| Shape::new(m, n, k).batched(2);
    vec![
        attention("attention_plain", F16, Attention::new(64), 64, vec![batched(100, 64, 130), Shape::new(64, 64, 64)]),
        attention("attention_causal", BF16, Attention::new(64).causal(), 32, vec![batched(77, 64, 77), batched(70, 64, 200)]),
        attention("attention_narrow", F16, Attention::new(24).scaled(0.5), 32, vec![batched(33, 40, 70), Shape::new(5, 8, 0)]),
        attention("attention_wide", F16, Attention::new(128), 128, vec![Shape::new(130, 104, 90)]),
        attention("attention_sequences", F16, Attention::new(64).sequences(3), 64, vec![batched(3 * 50, 64, 3 * 70)]),
        attention(
            "attention_causal_sequences",
            BF16,
            Attention::new(32).sequences(4).causal(),
            32,
            vec![batched(4 * 37, 32, 4 * 37)],
        ),
        attention("attention_whole_tiles", F16, Attention::new(32).sequences(2), 128, vec![Shape::new(2 * 128, 32, 2 * 80)]),
        attention("attention_columns", F16, Attention::new(64), 64, vec![Shape::new(40, 200, 100)]),
    ]
    .into_iter()
    .chain(functions_of_scores())
    .collect()
}

/// Functions of scores with every kind of argument, on tiles whose lanes hold one and several fragments of queries.
fn functions_of_scores() -> Vec<Case> {
    let batched = |m, n, k| Shape::new(m, n, k).batched(2);
    let scores = |build: for<'g> fn(&'g Builder) -> Expr<'g>| Scores::build(build).unwrap();
    let vectors = scores(|s| {
        let bias = s.load("slopes", F32.over(L)) * (s.column() - s.row()).cast(F32) * 0.125 + s.load("queries", F32.over(M | S));
        let padding = s.load("seen", Bool.over(N | S)).select(0.0, f32::NEG_INFINITY);
        s.acc() + bias + padding + s.load_or("keys_of_heads", F16.over(N | L), 0.5) + s.load("entry", F32.over(L | S))
    });
    let matrices = scores(|s| {
        let bias = s.load("of_heads", F16) + s.load("both", F32.over(M | N | L | S)) * s.scalar("by", F32);
        let turned = s.load_or("turned", F32.over(M | N | S).column_major(), 0.25);
        (s.load("mask", Bits8.over(M | N)) & s.row().ne(3)).select(s.acc() + bias - turned, f32::NEG_INFINITY)
    });
    let cap = scores(|s| {
        let back = s.row() - s.column();
        let near = (back.ge(-4) & back.lt(30)) | s.sequence().eq(1);
        near.select((s.acc() * 0.25).tanh() * 4.0, f32::NEG_INFINITY)
    });
    let window = scores(|s| {
        let back = s.row() - s.column();
        (back.ge(-3) & back.lt(20) & s.column().lt(100)).select(s.acc(), f32::NEG_INFINITY)
    });
    let regions = scores(|s| {
        let z = s.acc().region(s.row().lt(20), |z| z.sigmoid() * 3.0).otherwise(|z| z.tanh().exp());
        z + s.gather("table", F32, (s.column() - s.row()) % 6 + 5)
    });
    let negative = scores(|s| s.column().lt(9).select(f32::MIN, s.acc() - 1e9));
    let of = |width: usize, scores: &Scores| Attention::new(width).scores(scores);
    vec![
        attention("scores_vectors", F16, of(64, &vectors), 64, vec![batched(100, 64, 130)]),
        attention("scores_vectors_of_sequences", BF16, of(32, &vectors).sequences(3), 128, vec![batched(3 * 50, 32, 3 * 71)]),
        attention("scores_matrices", F16, of(64, &matrices), 32, vec![batched(70, 64, 90), batched(33, 64, 77)]),
        attention("scores_matrices_of_sequences", F16, of(64, &matrices).sequences(2), 64, vec![batched(2 * 40, 64, 2 * 70)]),
        attention("scores_causal", F16, of(64, &cap).causal().sequences(2), 64, vec![batched(2 * 77, 64, 2 * 77)]),
        attention("scores_window", F16, of(64, &window), 64, vec![batched(300, 64, 400), batched(70, 64, 40)]),
        attention(
            "scores_window_of_sequences",
            F16,
            of(64, &window).sequences(2).causal(),
            32,
            vec![batched(2 * 150, 64, 2 * 130)],
        ),
        attention("scores_regions", F16, of(24, &regions), 128, vec![batched(130, 40, 70), Shape::new(5, 8, 0)]),
        attention("scores_negative", F16, of(64, &negative), 64, vec![Shape::new(70, 64, 9), Shape::new(70, 64, 80)]),
    ]
}

/// A few rows against a matrix that passes through once.
fn few_rows(name: &'static str, layout: Layout, rows: usize) -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        e.store("d", z, F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let gemm = Gemm::new(F32, layout, &epilogue.unwrap()).mainloop(Mainloop::Gemv);
    let shapes = shapes(&[(rows, 67, 45), (rows, 300, 1030), (rows, 8, 0), (rows, 128, 64)]);
    Case { name, gemm, shapes, rasters: &[1], tolerance: 1e-4 }
}

/// A few rows of doubles.
fn few_doubles(name: &'static str, layout: Layout, rows: usize) -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc_f64() * 0.1 + e.load("bias", F64.over(N));
        e.store("d", z, F64);
        e.reduce("sums", z, Monoid::Sum, F64.over(N));
    });
    let gemm = Gemm::new(F64, layout, &epilogue.unwrap()).mainloop(Mainloop::Gemv);
    let shapes = shapes(&[(rows, 67, 45), (rows, 300, 1030), (rows, 8, 0), (rows, 128, 64)]);
    Case { name, gemm, shapes, rasters: &[1], tolerance: 1e-13 }
}

/// A matrix of doubles, and one of floats with doubles beside it.
fn pointwise_doubles(name: &'static str, dtype: DType, order: Order) -> Case {
    let epilogue = Epilogue::build(|e| {
        let z = if dtype == F64 { e.acc_f64() } else { e.acc().cast(F64) };
        e.store("d", (z + e.load("c", F64)).exp() / 3.0, F64);
        e.store("single", z.cast(F32), F32);
    });
    let shapes = vec![Shape::new(150, 201, 0), Shape::new(40, 72, 0).batched(3)];
    Case { name, gemm: Gemm::pointwise(dtype, order, &epilogue.unwrap()), shapes, rasters: &[1, -2], tolerance: 1e-13 }
}

/// A convolution whose epilogue has a region of each image, a residual and a reduction.
fn convolution(name: &'static str, dtype: DType, shape: ConvShape, mainloop: Mainloop) -> Case {
    let convolution = postlude::Convolution::new(shape).unwrap();
    let epilogue = Epilogue::build(|e| {
        let at = convolution.pixel(e);
        let inside = at.y.ge(1).and(at.x.lt(4)).and(at.image.ne(1));
        let z = e.acc() + e.load("bias", F32.over(N)) + e.load("residual", F32);
        e.store("d", z.region(inside, |z| z.sigmoid() + z).otherwise(|z| z.tanh()), F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let gemm = Conv::of(dtype, convolution, &epilogue.unwrap()).gemm().clone().mainloop(mainloop);
    Case { name, gemm, shapes: vec![convolution.shape()], rasters: &[2], tolerance: 2e-5 }
}

/// A gradient of a convolution, which is added to what is there.
fn gradient(name: &'static str, dtype: DType, shape: ConvShape, of: GradientOf) -> Case {
    let convolution = postlude::Convolution::new(shape).unwrap();
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * 0.125 + e.load("before", F32);
        e.store("d", z, F32);
        e.reduce("columns", z, Monoid::Sum, F32.over(N));
        if of == GradientOf::Filters {
            e.reduce("bias", e.a(), Monoid::Sum, F32.over(M | L));
        }
    });
    let conv = Conv::gradient(dtype, convolution, of, &epilogue.unwrap());
    let gemm = conv.gemm().clone().mainloop(Mainloop::Simt);
    Case { name, gemm, shapes: vec![conv.shape()], rasters: &[2], tolerance: 2e-5 }
}

/// The gradient of images under a filter for each channel, on the mainloop for that.
fn depthwise_gradient(name: &'static str, dtype: DType, shape: ConvShape) -> Case {
    let case = gradient(name, dtype, shape, GradientOf::Images);
    Case { gemm: case.gemm.mainloop(Mainloop::Depthwise), ..case }
}

/// The same on lines in shared memory.
fn lines_of_gradient(name: &'static str, dtype: DType, shape: ConvShape) -> Case {
    let case = gradient(name, dtype, shape.groups(shape.channels), GradientOf::Images);
    Case { gemm: case.gemm.mainloop(Mainloop::DepthwiseLines), ..case }
}

/// The same without sums, so that threads load matrices ahead, or blocks have several tiles; behind a relu or as it is.
fn lines_of_plain_gradient(name: &'static str, dtype: DType, shape: ConvShape, masked: bool) -> Case {
    let convolution = postlude::Convolution::new(shape.groups(shape.channels)).unwrap();
    let epilogue = Epilogue::build(|e| {
        let z = if masked { e.load("saved", F16).gt(0.0).select(e.acc(), 0.0) } else { e.acc() };
        e.store("d", z, F32);
    });
    let conv = Conv::gradient(dtype, convolution, GradientOf::Images, &epilogue.unwrap());
    let gemm = conv.gemm().clone().mainloop(Mainloop::DepthwiseLines);
    Case { name, gemm, shapes: vec![conv.shape()], rasters: &[1], tolerance: 2e-5 }
}

/// The gradient of the filters of channels that have one each: as a plan chooses it, or with few threads and parts of K that end
/// anywhere. Something is reduced over its columns, or nothing.
fn filters_of_channels(
    name: &'static str,
    dtype: DType,
    shape: ConvShape,
    own: Option<(TileShape, usize)>,
    reduces: bool,
) -> Case {
    let convolution = postlude::Convolution::new(shape.groups(shape.channels)).unwrap();
    let epilogue = Epilogue::build(|e| {
        let sum = if dtype == F64 { e.acc_f64().cast(F32) } else { e.acc() };
        let z = sum * e.load("scale", F32.over(L)) + e.load("before", F32) + e.load("tap", F32.over(N));
        e.store("d", z, F32);
        e.store("turned", z, F16.column_major());
        if reduces {
            e.reduce("columns", z, Monoid::Sum, F32.over(N));
            e.reduce("largest", z, Monoid::Max, F32.over(M | L));
            e.store("mask", z.gt(0.0), Bits8);
        }
    });
    let conv = Conv::gradient(dtype, convolution, GradientOf::Filters, &epilogue.unwrap());
    let gemm = conv.gemm().clone().mainloop(Mainloop::DepthwiseFilters);
    let plan = gemm.kernel_plan(Target::SM_80, 108, conv.shape()).unwrap();
    let gemm = match own {
        None => gemm,
        Some((shape, threads)) => gemm.tile(Tile { bm: threads / (plan.tile.bn / plan.strip), shape, threads, ..plan.tile }),
    };
    Case { name, gemm, shapes: vec![conv.shape()], rasters: &[1], tolerance: 2e-5 }
}

/// The gradient of the filters of few channels, whose K end inside of a step or of a line, in one piece.
fn filters_of_few(name: &'static str, dtype: DType, shape: ConvShape) -> Case {
    let convolution = postlude::Convolution::new(shape).unwrap();
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * 0.125 + e.load("before", F32) + e.load("filter", F32.over(M));
        e.store("d", z, F32);
        e.reduce("columns", z, Monoid::Sum, F32.over(N));
        e.reduce("rows", z, Monoid::Sum, F32.over(M));
    });
    let conv = Conv::gradient(dtype, convolution, GradientOf::Filters, &epilogue.unwrap());
    let gemm = conv.gemm().clone().mainloop(Mainloop::BandsFilters).split_k(1);
    Case { name, gemm, shapes: vec![conv.shape()], rasters: &[2], tolerance: 1e-4 }
}

fn gradients_of_few_channels() -> Vec<Case> {
    vec![
        filters_of_few("few_filters_stem", F16, ConvShape::new(3, [21, 24, 3], [40, 7, 7]).stride([2, 2]).padding([3, 3])),
        filters_of_few(
            "few_filters_odd",
            BF16,
            ConvShape::new(5, [19, 17, 3], [40, 3, 4]).stride([1, 2]).padding_of([0, 2, 1, 3]),
        ),
        filters_of_few("few_filters_copies", F16, ConvShape::new(5, [13, 16, 3], [72, 3, 3]).padding([1, 1])),
        filters_of_few(
            "few_filters_apart",
            F16,
            ConvShape::new(40, [6, 5, 4], [24, 3, 2]).padding([2, 1]).dilation([2, 3]).stride([3, 1]),
        ),
        filters_of_few("few_filters_one", BF16, ConvShape::new(3, [30, 40, 1], [24, 5, 5]).padding([2, 2]).stride([1, 2])),
        filters_of_few("few_filters_many", F16, ConvShape::new(2, [30, 23, 16], [136, 3, 3]).padding([1, 1])),
        filters_of_few("few_filters_nothing", F16, ConvShape::new(0, [30, 23, 4], [16, 3, 3])),
    ]
}

/// Vectors of channels of 16, 8, 4 and 2 bytes, lines that stay and lines that do not, rows of the window in turns, channels that
/// no vector is full of, and parts of K that have nothing.
fn gradients_of_channels() -> Vec<Case> {
    let base = ConvShape::new(3, [9, 12, 40], [40, 3, 3]).padding([1, 1]);
    let own = |vector, lanes, run, rows, window, parts| TileShape::DepthwiseFilters { vector, lanes, run, rows, window, parts };
    let apart = ConvShape { channels: 10, filters: 10, window: [5, 4], ..base }.padding_of([2, 0, 0, 3]);
    let odd = ConvShape { channels: 33, filters: 33, ..base };
    let large = ConvShape { channels: 8, filters: 8, window: [11, 7], ..base }.padding([5, 3]);
    vec![
        filters_of_channels("channel_filters_chosen", F16, base, None, true),
        filters_of_channels("channel_filters_plain", F16, base, None, false),
        filters_of_channels("channel_filters_in_parts", F16, base, Some((own(8, 4, 4, 3, [3, 3], 7), 64)), false),
        filters_of_channels("channel_filters_of_one", BF16, base, Some((own(2, 32, 6, 3, [3, 3], 1), 32)), true),
        filters_of_channels("channel_filters_strided", F16, base.stride([2, 2]), Some((own(4, 8, 3, 3, [3, 3], 5), 64)), false),
        filters_of_channels("channel_filters_wide_strides", BF16, base.stride([3, 3]).padding([2, 2]), None, false),
        filters_of_channels("channel_filters_apart", F32, apart.stride([3, 2]).dilation([1, 3]), None, false),
        filters_of_channels(
            "channel_filters_dilated",
            F16,
            apart.dilation([2, 2]),
            Some((own(2, 4, 1, 2, [5, 4], 60), 32)),
            true,
        ),
        filters_of_channels("channel_filters_odd", BF16, odd.dilation([2, 1]), None, true),
        filters_of_channels("channel_filters_doubles", F64, ConvShape { channels: 6, filters: 6, ..base }, None, false),
        filters_of_channels("channel_filters_large", F16, large, Some((own(8, 1, 2, 4, [11, 7], 3), 64)), false),
        filters_of_channels("channel_filters_one_pixel", F16, ConvShape { window: [1, 1], ..base }.padding([0, 0]), None, false),
        filters_of_channels("channel_filters_nothing", F16, ConvShape { images: 0, ..base }, None, true),
    ]
}

/// Units of 16, 8, 4 and 2 bytes, windows that move by several pixels, groups, and nothing.
fn gradients() -> Vec<Case> {
    use GradientOf::{Filters, Images};
    let base = ConvShape::new(3, [9, 10, 8], [40, 3, 3]);
    let strided = base.padding_of([2, 0, 0, 1]).stride([2, 3]);
    let groups = ConvShape { channels: 24, filters: 36, ..base }.groups(6).padding([1, 1]).stride([1, 2]);
    let odd = ConvShape { channels: 5, filters: 7, window: [5, 2], ..base }.stride([3, 3]).padding([4, 1]);
    let apart = ConvShape::new(2, [13, 16, 10], [10, 5, 4]).padding_of([2, 0, 0, 3]).stride([3, 2]).dilation([1, 3]);
    vec![
        gradient("grad_images_plain", F32, base, Images),
        gradient("grad_images_strided", F16, strided, Images),
        gradient("grad_images_dilated", F32, ConvShape { channels: 6, ..base }.dilation([2, 3]).padding([1, 3]), Images),
        gradient("grad_images_odd", F16, odd, Images),
        gradient("grad_images_groups", F16, groups, Images),
        gradient("grad_images_depthwise", F32, ConvShape { channels: 40, ..base }.groups(40).padding([1, 1]), Images),
        depthwise_gradient("grad_images_of_channels", F32, ConvShape { channels: 40, ..base }.groups(40).padding([1, 1])),
        depthwise_gradient("grad_images_of_channels_strided", F16, ConvShape { channels: 40, ..base }.groups(40).stride([2, 2])),
        depthwise_gradient("grad_images_of_channels_apart", F32, apart.groups(10)),
        gradient("grad_images_far", F32, base.stride([9, 9]).padding([9, 12]), Images),
        gradient("grad_images_product", F32, ConvShape { window: [1, 1], ..base }, Images),
        gradient("grad_images_nothing", F32, ConvShape { filters: 0, ..base }, Images),
        gradient("grad_filters_plain", F32, base, Filters),
        gradient("grad_filters_strided", F16, strided, Filters),
        gradient("grad_filters_dilated", F32, ConvShape { channels: 6, ..base }.dilation([2, 3]).padding([1, 3]), Filters),
        gradient("grad_filters_odd", F16, odd, Filters),
        gradient("grad_filters_groups", F16, groups, Filters),
        gradient("grad_filters_depthwise", F32, ConvShape { channels: 40, ..base }.groups(40).padding([1, 1]), Filters),
        gradient("grad_filters_product", F32, ConvShape { window: [1, 1], ..base }, Filters),
        gradient("grad_filters_nothing", F32, ConvShape { images: 0, ..base }, Filters),
    ]
}

/// Channels that are copied 16, 8, 4 and 2 bytes at a time; windows that reach over one side, or lie all in the padding.
fn convolutions() -> Vec<Case> {
    let base = ConvShape::new(3, [9, 10, 8], [40, 3, 3]);
    let simt = |name, dtype, shape| convolution(name, dtype, shape, Mainloop::Simt);
    vec![
        simt("conv_plain", F32, base),
        simt("conv_padded", F16, base.padding_of([2, 0, 0, 1]).stride([2, 1])),
        simt("conv_dilated", F32, ConvShape { channels: 6, ..base }.dilation([2, 3]).padding([1, 3])),
        convolution(
            "conv_few",
            F16,
            ConvShape { channels: 3, window: [5, 2], ..base }.stride([3, 3]).padding([4, 1]),
            Mainloop::Simt,
        ),
        convolution(
            "conv_groups",
            F32,
            ConvShape { channels: 8, filters: 256, ..base }.groups(2).padding([1, 1]),
            Mainloop::Simt,
        ),
        simt("conv_narrow_groups", F16, ConvShape { channels: 16, ..base }.groups(4).padding([1, 1])),
        convolution(
            "conv_depthwise",
            F32,
            ConvShape { channels: 40, ..base }.groups(40).padding([1, 1]).stride([2, 1]),
            Mainloop::Simt,
        ),
        simt("conv_far", F32, base.stride([9, 9]).padding([9, 12])),
        simt("conv_line", F16, ConvShape::line(2, [70, 4], [33, 5]).padding([0, 2])),
        simt("conv_product", F32, ConvShape { window: [1, 1], ..base }),
        simt("conv_nothing", F32, ConvShape { channels: 0, ..base }),
    ]
}

/// A pool behind whose windows stand a bias, a residual and a reduction.
fn pool(name: &'static str, dtype: DType, kind: PoolKind, windows: ConvShape) -> Case {
    let pooling = Pooling::new(kind, windows).unwrap();
    let epilogue = Epilogue::build(|e| {
        let z = (e.acc() + e.load("bias", F32.over(N)) + e.load("residual", dtype)).relu();
        e.store("d", z, F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let gemm = Gemm::pool(dtype, pooling, &epilogue.unwrap());
    Case { name, gemm, shapes: vec![pooling.shape()], rasters: &[1, -2], tolerance: 2e-5 }
}

/// Without a reduction, a tile has fewer rows than threads that share taps.
fn pool_in_few_rows(name: &'static str, dtype: DType, kind: PoolKind, windows: ConvShape, rows: usize) -> Case {
    let case = pool(name, dtype, kind, windows);
    let epilogue = Epilogue::build(|e| e.store("d", (e.acc() + e.load("residual", dtype)).relu(), F32));
    let gemm = Gemm::pool(dtype, case.gemm.operation().pooling().unwrap(), &epilogue.unwrap());
    let tile = Tile { bm: rows, bn: 64, shape: TileShape::Pointwise, threads: 128, min_blocks: 1 };
    Case { gemm: gemm.tile(tile), ..case }
}

fn pools() -> Vec<Case> {
    let base = ConvShape::windows(2, [9, 8, 40], [3, 3]);
    let whole = ConvShape { window: [9, 8], ..base };
    vec![
        pool("pool_largest", F32, PoolKind::Max, base.stride([2, 2]).padding([1, 1])),
        pool("pool_of_halves", F16, PoolKind::Max, base.padding_of([2, 0, 0, 1])),
        pool("pool_of_bfloats", BF16, PoolKind::Max, base.dilation([2, 3])),
        pool("pool_of_few", F16, PoolKind::Max, ConvShape { channels: 5, ..base }),
        pool("pool_mean", F16, PoolKind::Average, base.padding([1, 1])),
        pool("pool_mean_of_taps", F32, PoolKind::AverageOfTaps, base.padding([2, 1])),
        pool("pool_of_images", F16, PoolKind::Average, whole),
        pool("pool_of_many_images", F32, PoolKind::Average, ConvShape { images: 70, channels: 72, ..whole }),
        pool("pool_largest_of_images", F16, PoolKind::Max, ConvShape { images: 19, ..whole }),
        pool("pool_of_large_windows", F32, PoolKind::Max, ConvShape { window: [5, 5], ..base }.padding([2, 2])),
        pool_in_few_rows("pool_in_one_row", F16, PoolKind::Average, ConvShape { images: 5, channels: 136, ..whole }, 1),
        pool_in_few_rows(
            "pool_in_two_rows",
            F32,
            PoolKind::AverageOfTaps,
            ConvShape { window: [5, 4], ..base }.padding([2, 1]),
            2,
        ),
        pool_in_few_rows("pool_in_four_rows", BF16, PoolKind::Max, ConvShape { images: 7, channels: 20, ..whole }, 4),
    ]
}

/// No product: a matrix in either order.
fn pointwise(name: &'static str, order: Order) -> Case {
    let gemm = Gemm::pointwise(F32, order, &recipes::residual(F32, F32, |z| z.relu()).unwrap());
    let shapes = vec![Shape::new(150, 201, 0), Shape::new(40, 72, 0).batched(3)];
    Case { name, gemm, shapes, rasters: &[1, -2], tolerance: 1e-6 }
}

fn cases() -> Vec<Case> {
    let rows = ConvShape::new(9, [12, 14, 72], [72, 3, 3]).padding([1, 1]);
    let taps = ConvShape::new(5, [9, 13, 38], [38, 4, 2]).padding([2, 2]);
    let wide = ConvShape::new(7, [6, 8, 40], [40, 5, 5]).padding([2, 2]);
    let steps = ConvShape::new(4, [9, 9, 16], [16, 3, 3]).stride([1, 2]);
    let by_two = ConvShape::new(3, [12, 16, 24], [24, 3, 3]).stride([2, 2]).padding([1, 1]);
    let wide_by_two = ConvShape::new(2, [10, 14, 20], [20, 5, 5]).stride([2, 2]).padding([2, 2]);
    let one_side = ConvShape::new(3, [9, 11, 8], [8, 4, 5]).stride([2, 3]).padding_of([3, 0, 0, 2]);
    vec![
        layout("layout_tn", TN),
        layout("layout_nn", NN),
        layout("layout_nt", NT),
        layout("layout_tt", TT),
        depthwise("depthwise_halves", F16, ConvShape::new(3, [11, 14, 72], [72, 3, 3]).padding([1, 1])),
        depthwise("depthwise_floats", F32, ConvShape::new(2, [13, 16, 10], [10, 5, 4]).padding_of([2, 0, 0, 3]).stride([3, 2])),
        depthwise("depthwise_apart", BF16, ConvShape::new(2, [9, 15, 33], [33, 2, 3]).padding([1, 2]).dilation([3, 2])),
        lines("depthwise_lines", F16, ConvShape::new(3, [11, 14, 72], [72, 3, 3]).padding([1, 1])),
        lines("depthwise_lines_floats", F32, ConvShape::new(2, [13, 16, 10], [10, 5, 4]).padding_of([2, 0, 0, 3]).stride([3, 2])),
        lines("depthwise_lines_pairs", BF16, ConvShape::new(5, [16, 12, 34], [34, 7, 6]).padding_of([6, 3, 1, 5]).stride([2, 1])),
        lines("depthwise_lines_bytes", E5M2, ConvShape::new(3, [9, 9, 20], [20, 4, 1]).padding([1, 0]).stride([4, 1])),
        lines_in_turns("depthwise_rows_in_turns", rows, [7, 2, 2, 6, 4], false),
        lines_in_turns("depthwise_sums_in_turns", rows, [7, 2, 2, 6, 4], true),
        lines_in_turns("depthwise_wide_in_turns", wide, [4, 2, 2, 3, 4], true),
        lines_in_turns("depthwise_lines_in_turns", taps, [8, 2, 2, 2, 6], false),
        lines_in_turns("depthwise_steps_in_turns", steps, [4, 1, 4, 1, 3], false),
        lines_of_gradient("depthwise_lines_by_two", F16, by_two),
        lines_of_gradient(
            "depthwise_lines_by_odd",
            F32,
            ConvShape::new(2, [11, 13, 10], [10, 3, 3]).stride([2, 3]).padding([1, 1]),
        ),
        lines_of_gradient("depthwise_lines_apart", BF16, ConvShape::new(3, [9, 16, 6], [6, 2, 1]).stride([3, 2])),
        lines_of_plain_gradient("depthwise_lines_of_dy", F16, by_two, false),
        lines_of_plain_gradient("depthwise_lines_masked", F16, by_two, true),
        lines_of_plain_gradient("depthwise_lines_wide", F16, wide_by_two, true),
        lines_of_plain_gradient("depthwise_lines_sides", E5M2, one_side, true),
        lines_of_plain_gradient("depthwise_lines_cut", F16, ConvShape { images: 1, height: 7, ..one_side }, false),
        depthwise_in_passes("depthwise_long_runs", 7, 2),
        depthwise_in_passes("depthwise_passes", 2, 4),
        bands("bands_stem", F16, ConvShape::new(4, [21, 24, 3], [40, 7, 7]).stride([2, 2]).padding([3, 3])),
        bands("bands_odd", BF16, ConvShape::new(5, [19, 17, 3], [40, 3, 4]).stride([1, 2]).padding_of([0, 2, 1, 3])),
        bands("bands_copies", F16, ConvShape::new(5, [13, 16, 3], [72, 3, 3]).padding([1, 1])),
        bands("bands_apart", F16, ConvShape::new(40, [6, 5, 4], [24, 3, 2]).padding([2, 1]).dilation([2, 3]).stride([3, 1])),
        bands("bands_one", BF16, ConvShape::new(3, [30, 40, 1], [24, 5, 5]).padding_of([2, 2, 2, 2]).stride([1, 2])),
        large_tile(),
        halves(),
        fast(),
        integers(),
        eight_bits("eight_bits_e4m3", (E4M3, E4M3), TN, Mainloop::Simt, edges()),
        eight_bits("eight_bits_e5m2", (E5M2, E5M2), NT, Mainloop::Simt, shapes(&[(150, 200, 33), (96, 72, 20)])),
        eight_bits("eight_bits_i8", (I8, I8), TT, Mainloop::Simt, edges()),
        eight_bits("eight_bits_u8", (U8, U8), NN, Mainloop::Simt, shapes(&[(150, 200, 33), (96, 72, 20)])),
        eight_bits("eight_bits_row_e4m3", (E4M3, E4M3), TN, Mainloop::Gemv, shapes(&[(1, 67, 45), (3, 128, 64)])),
        eight_bits("eight_bits_mixed", (E5M2, E4M3), NT, Mainloop::Simt, shapes(&[(96, 80, 32)])),
        eight_bits("eight_bits_row_mixed", (U8, I8), NN, Mainloop::Gemv, shapes(&[(3, 77, 45)])),
        eight_bits("eight_bits_row_i8", (I8, I8), TT, Mainloop::Gemv, shapes(&[(1, 67, 45), (3, 128, 64)])),
        widened("widened_i4", (F16, I4), TN, Some(Blocks::groups(32)), edges()),
        widened("widened_u4", (F16, U4), NN, Some(Blocks::groups(64).with_zero_points().scales_as(F16)), odd()),
        widened("widened_a", (U4, BF16), TT, None, odd()),
        widened("widened_i8", (BF16, I8), NT, Some(Blocks::groups(32).with_zero_points()), edges()),
        widened("widened_e4m3", (F16, E4M3), TT, Some(Blocks::squares(32)), odd()),
        widened_rows("widened_row_i4", (F16, I4), Some(Blocks::groups(64)), [8, 32]),
        widened_rows("widened_row_u4", (BF16, U4), Some(Blocks::groups(128).with_zero_points().scales_as(F16)), [16, 64]),
        widened_rows("widened_row_i8", (F16, I8), None, [8, 16]),
        widened_rows("widened_row_u8", (BF16, U8), Some(Blocks::groups(32).with_zero_points()), [16, 32]),
        widened_rows("widened_row_bytes", (BF16, I8), None, [8, 64]),
        widened_rows("widened_row_e4m3", (F16, E4M3), Some(Blocks::squares(32)), [16, 16]),
        widened_rows("widened_row_e5m2", (F16, E5M2), None, [8, 32]),
        widened_rows("widened_row_nibbles", (F16, U4), None, [16, 32]),
        scaled("scaled_e4m3", [Blocks::groups(32), Blocks::squares(64)], TN, edges()),
        scaled("scaled_both", [Blocks::squares(32), Blocks::groups(96).scales_as(BF16)], NT, odd()),
        reductions(),
        masks(),
        gathers(),
        left_out("left_out_simt", |e| Gemm::new(F32, TN, e).mainloop(Mainloop::Simt), edges()),
        left_out("left_out_gemv", |e| Gemm::new(F32, NT, e).mainloop(Mainloop::Gemv), shapes(&[(3, 67, 45), (3, 128, 64)])),
        left_out("left_out_pointwise", |e| Gemm::pointwise(F32, Order::RowMajor, e), edges()),
        left_out("left_out_columns", |e| Gemm::pointwise(F32, Order::ColumnMajor, e), edges()),
        doubles("doubles_tn", TN),
        doubles("doubles_nn", NN),
        doubles("doubles_nt", NT),
        doubles("doubles_tt", TT),
        reductions_of_doubles(),
        few_doubles("doubles_row_along_k", TN, 1),
        few_doubles("doubles_rows_along_k", NN, 4),
        few_doubles("doubles_row_along_n", TT, 1),
        few_doubles("doubles_rows_along_n", NT, 3),
        pointwise_doubles("doubles_in_rows", F64, Order::RowMajor),
        pointwise_doubles("doubles_in_columns", F64, Order::ColumnMajor),
        pointwise_doubles("doubles_beside_floats", F32, Order::RowMajor),
        few_rows("row_along_k", TN, 1),
        few_rows("rows_along_k", NN, 4),
        few_rows("row_along_n", TT, 1),
        few_rows("rows_along_n", NT, 3),
        pointwise("pointwise_rows", Order::RowMajor),
        pointwise("pointwise_columns", Order::ColumnMajor),
    ]
    .into_iter()
    .chain(rows::all())
    .chain(convolutions())
    .chain(gradients())
    .chain(gradients_of_channels())
    .chain(gradients_of_few_channels())
    .chain(pools())
    .chain(attentions())
    .collect()
}

/// Runs the cases whose names begin so.
fn check(names: &str) {
    let (mut tried, cases) = (0, cases());
    for case in cases.iter().filter(|case| case.name.starts_with(names)) {
        if let Err(fault) = case.run(case.name, &str::to_owned) {
            panic!("{}: {fault}", case.name);
        }
        tried += 1;
    }
    assert!(tried > 0, "no case is named {names}");
}

macro_rules! checks {
    ($($test:ident: $names:literal;)*) => { $(#[test] fn $test() { check($names) })* };
}

checks! {
    products_where_k_is_contiguous_of_both: "layout_tn";
    products_where_k_is_contiguous_of_one: "layout_nn";
    products_where_k_is_contiguous_of_the_other: "layout_tt";
    products_where_k_is_contiguous_of_none: "layout_nt";
    tiles_of_several_slabs: "large_tile";
    operands_of_16_bits: "halves";
    fast_spellings: "fast";
    integers_wrap: "integers";
    reductions_of_every_kind: "reductions";
    numbers_of_eight_bits: "eight_bits";
    operands_that_are_widened: "widened";
    operands_in_scaled_blocks: "scaled";
    doubles_of_every_kind: "doubles";
    masks_of_either_order: "masks";
    tables_along_every_axis: "gathers";
    operands_that_are_left_out: "left_out";
    filters_of_one_channel: "depthwise";
    images_of_few_channels: "bands";
    a_few_rows: "row";
    matrices_without_a_product: "pointwise";
    rows_that_are_patches_of_images: "conv_";
    gradients_of_images: "grad_images";
    gradients_of_filters: "grad_filters";
    gradients_of_filters_of_one_channel: "channel_filters";
    gradients_of_filters_of_few_channels: "few_filters";
    windows_that_become_one_number: "pool_";
    attention_without_scores_in_memory: "attention_";
    functions_of_scores_in_attention: "scores_";
    rows_that_wait_for_what_they_come_to: "stages";
    matrices_that_wait_for_what_they_come_to: "whole_matrices";
    bands_that_wait_for_what_they_come_to: "groups_";
    kernels_that_wait_for_each_other: "passes";
}

/// Blocks of Hopper's kernels stay and go from tile to tile: together they reach each of them once, whatever the
/// raster, the cluster and the number of blocks. The consumers of a block go the way that its producer goes, clusters
/// stay together, and where edge tiles are shifted none reaches beyond the output.
#[test]
fn blocks_of_hopper_reach_every_tile_once() {
    if let Err(fault) = walk(&str::to_owned) {
        panic!("{fault}");
    }
}

fn walk(change: &dyn Fn(&str) -> String) -> Result<Tried, String> {
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F16);
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(N));
    });
    // Large, and few rows, where blocks share K.
    let shapes = [Shape::new(4096, 4096, 256), Shape::new(4096, 48, 14336)];
    for (which, epilogue) in [recipes::identity(F16).unwrap(), summed.unwrap()].into_iter().enumerate() {
        let plans = shapes.map(|shape| Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_90A, 132, shape).unwrap());
        let mut kinds = Vec::new();
        for (plan, tile, raster) in
            plans.iter().flat_map(|plan| plan.choice.candidates().map(move |(tile, raster)| (plan, tile, raster)))
        {
            let TileShape::Sm90a { consumers, schedule, cluster, splits_k, .. } = tile.shape else { panic!("{tile}") };
            if kinds.contains(&(consumers, schedule, cluster, splits_k)) {
                continue;
            }
            kinds.push((consumers, schedule, cluster, splits_k));
            let plan = plan.with_tile(tile, raster, "").unwrap();
            let (mut launches, mut said) = (String::new(), Vec::new());
            let (bm, bn) = (tile.bm, tile.bn);
            for (m, n) in
                [(bm, bn), (1, 1), (3 * bm + 8, 5 * bn), (7 * bm - 1, 2 * bn + 1), (bm + 1, 9 * bn - 8), (10 * bm, 6 * bn + 3)]
            {
                for batch in [1, 3] {
                    let shape = Shape::new(m, n, 64).batched(batch);
                    let [edge_row, edge_column] = plan.edge_tiles(shape);
                    let blocks = plan.grid(shape).unwrap()[0] as usize;
                    for blocks in [blocks, blocks.min(2 * tile.cluster()), blocks.min(7 * tile.cluster())] {
                        for raster in [1, 2, 3, 64, -1, -2, -5] {
                            let launch = format!("{m} {n} {batch} {raster} {edge_row} {edge_column} {blocks}");
                            launches += &format!("{launch}\n");
                            said.push(launch);
                        }
                    }
                }
            }
            let name = format!("walk_{which}_{}", kinds.len());
            let text = change(plan.source().unwrap().text());
            let Some(found) = program::walk(&name, &text, &plan, &launches)? else { return Ok(Tried::Skipped) };
            said.push("positions".into());
            assert_eq!(found.lines().count(), said.len(), "{found}");
            for (launch, found) in said.iter().zip(found.lines()) {
                if !found.ends_with("ok") {
                    return Err(format!("{tile}: {launch}: {found}"));
                }
            }
        }
        assert!(kinds.len() >= 5, "single, cooperative and in turns, alone and in clusters: {kinds:?}");
        assert!(kinds.iter().filter(|kind| kind.3).count() >= 2, "pairs and fours that share K: {kinds:?}");
    }
    Ok(Tried::Passed)
}

/// Faults in the rendered text, one at a time, to see that some case fails: on demand, by `cargo xtask mutants
/// --templates`. Each line of `mutants.txt` names a case, a text, and its replacement.
#[test]
#[ignore = "takes a compilation for every fault: cargo xtask mutants --templates"]
fn mutants_of_templates_do_not_live() {
    let (mut alive, cases) = (Vec::new(), cases());
    for (number, line) in
        include_str!("mutants.txt").lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let [name, from, to] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("line {}: `{line}`", number + 1) };
        // A fault stands in kernels of its kind once, and in others not at all.
        let found = std::cell::Cell::new(false);
        let change = |text: &str| {
            let count = text.matches(from).count();
            assert!(count <= 1, "line {}: `{from}` stands in a kernel {count} times", number + 1);
            found.set(found.get() || count == 1);
            text.replace(from, to)
        };
        let tried = match cases.iter().find(|case| case.name == name) {
            Some(case) => case.run("mutant", &change),
            None if name == "walk" => walk(&change),
            None => panic!("line {}: no case {name}", number + 1),
        };
        assert!(found.get(), "line {}: `{from}` is in no kernel", number + 1);
        match tried {
            Ok(Tried::Passed) => alive.push(line),
            Ok(Tried::Skipped) => return,
            Err(fault) => eprintln!("{line}\n    {}", fault.lines().next().unwrap_or_default()),
        }
    }
    assert!(alive.is_empty(), "these faults live:\n{}", alive.join("\n"));
}
