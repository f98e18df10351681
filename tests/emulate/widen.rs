//! The kernel that copies an operand of fewer bits as one of 16, scaled: every element of the copy is what the reference makes
//! of it, rounded once.

use crate::program::Copying;
use postlude::emit::render_repack;
use postlude::plan::{Mainloop, Repack};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Blocks, DType, Operation};

/// Lines of B with gaps behind them, for two entries.
struct Weights {
    dtype: DType,
    lines: usize,
    run: usize,
    ld: usize,
}

fn check(name: &str, a: DType, b: DType, layout: Layout, blocks: Option<Blocks>, [n, k]: [usize; 2]) {
    let epilogue = postlude::build::recipes::identity(F32).unwrap();
    let operation = Operation::Product { a, b, layout, scales: [None, blocks] };
    let gemm = Gemm::of(operation, &epilogue).mainloop(Mainloop::Sm80);
    let plan = gemm.kernel_plan(Target::SM_80, 108, Shape::new(64, n, k)).unwrap();
    let repack = plan.repack.expect("a copy");
    let k_contiguous = layout.b() == Order::ColumnMajor;
    let (lines, run) = if k_contiguous { (n, k) } else { (k, n) };
    let of = Weights { dtype: b, lines, run, ld: run.next_multiple_of(b.run()) + 2 * b.run() };
    let entries = 2;
    let bytes: Vec<u8> = (0..b.bytes(of.ld * of.lines * entries)).map(|i| (i * 37 + i / 7 + 11) as u8).collect();
    let shape = blocks.unwrap_or(Blocks::groups(32));
    let [across, along] = shape.counts(n, k);
    let count = across * along * entries;
    let (mut scales, zero_format) = (vec![0; shape.dtype.bytes(count)], Blocks::zero_format(b));
    let mut zeros = vec![0; zero_format.bytes(count)];
    for i in 0..count {
        shape.dtype.write(&mut scales, i, 0.25 + (i * 13 % 29) as f64 / 32.0);
        zero_format.write(&mut zeros, i, (i * 5 % 9) as f64);
    }
    let ld = repack.ld(of.run);
    let units = ld * 2 / 16;
    let blocks_of_grid = (of.run.div_ceil(8) * of.lines * entries).div_ceil(Repack::THREADS * Repack::UNITS);
    let scale_ld = if shape.lines == 1 { across } else { along };
    // Buffers: weights, scales, zero points, the copy.
    let mut copying = Copying::new(render_repack(&repack).unwrap().text(), [blocks_of_grid as u64, 1, 1]);
    copying.skip(64).address(0).address(3);
    copying.long(of.ld).long(of.ld * of.lines).long(units).long(units * of.lines);
    copying.int(of.lines).int(of.run).int(entries).int(blocks_of_grid);
    copying.address(1).long(scale_ld).long(across * along).address(2).long(scale_ld).long(across * along);
    let copy = vec![0xffu8; ld * 2 * of.lines * entries];
    let Some(written) = copying.run(name, &[bytes.clone(), scales.clone(), zeros.clone(), copy]).unwrap() else { return };
    for (turn, buffers) in written.iter().enumerate() {
        for entry in 0..entries {
            for line in 0..of.lines {
                for i in 0..of.run {
                    let (column, term) = if k_contiguous { (line, i) } else { (i, line) };
                    let stored = of.dtype.read(&bytes, (entry * of.lines + line) * of.ld + i);
                    let at = match shape.lines {
                        1 => term / shape.terms * across + column,
                        lines => column / lines * along + term / shape.terms,
                    };
                    let at = entry * across * along + at;
                    let zero = if shape.zero_points { zero_format.read(&zeros, at) } else { 0.0 };
                    let scale = if blocks.is_some() { shape.dtype.read(&scales, at) } else { 1.0 };
                    let expected = repack.dtype.round(f64::from(((stored - zero) * scale) as f32));
                    let found = repack.dtype.read(&buffers[3], (entry * of.lines + line) * ld + i);
                    let same = expected == found || expected.is_nan() && found.is_nan();
                    assert!(same, "{name}, launch {turn}: {found} at {entry}, {line}, {i}, not {expected}");
                }
            }
        }
    }
}

#[test]
fn copies_are_what_the_reference_reads() {
    let groups = Blocks::groups;
    check("copy_i4", F16, I4, TN, Some(groups(32)), [37, 131]);
    check("copy_u4", BF16, U4, TN, Some(groups(64).with_zero_points().scales_as(F16)), [16, 256]);
    check("copy_plain_i4", BF16, I4, TN, None, [5, 70]);
    check("copy_i8", F16, I8, TT, Some(groups(32).with_zero_points()), [45, 67]);
    check("copy_u8", F16, U8, TN, None, [33, 40]);
    check("copy_e4m3", BF16, E4M3, TT, Some(Blocks::squares(32)), [70, 40]);
    check("copy_e5m2", F16, E5M2, TN, Some(Blocks::squares(32).scales_as(BF16)), [40, 77]);
}
