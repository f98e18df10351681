//! The choice for a problem: tile, schedule, raster, split, staged operands, and how long the kernel is estimated to compile.
//!
//! `choices.txt` is a table. The text before the first `|` of a line is a problem; the rest is its plan. A changed
//! estimate shows there as the problems whose kernel it changes. No test can say that another choice is *wrong*, but
//! none changes unseen.
//!
//! `BLESS=1 cargo test --test choices` rewrites the right-hand sides. To add a problem, add its left-hand side and bless.

#[path = "../../benches/gemm/case.rs"]
#[allow(dead_code, reason = "the benchmark uses what the tests do not")]
mod case;
#[path = "../support/diff.rs"]
mod diff;
mod fit;
#[path = "../../benches/gemm/fused.rs"]
#[allow(dead_code, reason = "the benchmark uses what the tests do not")]
mod fused;
#[path = "../../benches/gemm/sample.rs"]
#[allow(dead_code, reason = "the benchmark uses what the tests do not")]
mod sample;
mod survey;
mod tiles;

use postlude::plan::{KernelPlan, Problem, Tile};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Attention, Builder};
use std::fmt::Write;
use std::path::Path;

/// Multiplies and adds that a heavy epilogue repeats.
fn chain<'g>(z: Expr<'g>, count: usize) -> Expr<'g> {
    (0..count).fold(z, |z, i| (z + i as f32 * 0.125).sin().tanh())
}

/// The norm of groups of so many columns.
fn group_norm(e: &Builder, d: DType, columns: usize) {
    let group = (M | N).bands(columns);
    let centred = e.acc() - e.acc().mean_over(group);
    let scaled = centred * (centred.mean_square_over(group) + 1e-5).rsqrt();
    e.store("d", scaled * e.load("scale", d.over(N)), d);
}

/// An epilogue by its name, whose matrices have one format.
type Named = (&'static str, fn(&Builder, DType));

/// The epilogues of the table, from the lightest to the heaviest.
const EPILOGUES: [Named; 23] = [
    ("identity", |e, d| e.store("d", e.acc(), d)),
    ("wide", |e, _| e.store("d", e.acc(), F32)),
    ("bias_relu", |e, d| e.store("d", (e.acc() + e.load("bias", d.over(N))).relu(), d)),
    ("gelu", |e, d| e.store("d", e.acc().gelu(), d)),
    ("residual", |e, d| e.store("d", e.acc() + e.load("c", d), d)),
    ("update", |e, d| e.store("d", e.acc() + e.load("d", d), d)),
    ("gated", |e, d| {
        let z = e.acc() + e.load("bias", d.over(N));
        e.store("z", z, d);
        e.store("d", z.silu() * e.load("c", d), d);
    }),
    ("masked", |e, d| {
        let z = e.acc() + e.load("bias", d.over(N));
        e.store("mask", z.gt(0.0), Bits8);
        e.store("d", z.relu(), d);
    }),
    ("unmasked", |e, d| e.store("d", e.load("mask", Bits8).select(e.acc(), 0.0), d)),
    ("summed", |e, d| {
        e.store("d", e.acc(), d);
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(N));
    }),
    ("columns", |e, d| e.store("d", e.acc().relu(), d.column_major())),
    ("heavy", |e, d| e.store("d", chain(e.acc(), 6), d)),
    ("softmax", |e, d| e.store("d", e.acc().softmax_over(N), d)),
    ("softmax_summed", |e, d| {
        let y = e.acc().softmax_over(N);
        e.store("d", y, d);
        e.reduce("sums", y, Monoid::Sum, F32.over(N));
    }),
    ("kept", |e, d| e.store("d", e.load("mask", Bits8).select(e.acc().softmax_over(N), 0.0), d)),
    ("centred", |e, d| e.store("d", e.acc() - e.acc().mean_over(M | N), d)),
    ("bands", |e, d| {
        let largest = e.acc().absmax_over((M | N).bands(16));
        e.store("d", e.acc() / (largest + 1.0) + e.load("c", d), d);
    }),
    ("columns_summed", |e, d| {
        e.store("d", e.acc(), d);
        e.reduce("rows", e.acc().abs(), Monoid::Max, F32.over(M));
        e.reduce("all", e.acc(), Monoid::Sum, F32.pointer());
    }),
    ("normed", |e, d| {
        let z = e.acc();
        e.store("d", z * (z.mean_square_over(N) + 1e-6).rsqrt() * e.load("scale", d.over(N)), d);
    }),
    ("cross_entropy", |e, d| {
        let log_share = e.acc().log_softmax_over(N);
        let is_target = e.column().eq(e.load("target", I32.over(M).batched()));
        e.store("loss", -is_target.select(log_share, 0.0).sum_over(N), F32.over(M).batched());
        e.store("d", log_share.exp() - is_target.select(1.0, 0.0), d);
    }),
    ("group_norm_10", |e, d| group_norm(e, d, 10)),
    ("group_norm_20", |e, d| group_norm(e, d, 20)),
    ("group_norm_40", |e, d| group_norm(e, d, 40)),
];

/// One line's left-hand side: `target operands layout shape epilogue [what:number ...]`. Instead of a layout stands
/// `rows` for what matrices come to, `attention`, or a convolution or one of its gradients: see [`convolution`]. The operands
/// `f16*i4` have two formats.
struct Line {
    target: Target,
    multiprocessors: usize,
    gemm: Gemm,
    problem: Problem,
}

impl Line {
    fn read(text: &str) -> Option<Line> {
        let mut words = text.split_whitespace();
        let target: Target = words.next()?.parse().ok()?;
        let multiprocessors = if target == Target::SM_90A { 132 } else { 108 };
        let format = |name: &str| DType::ALL.into_iter().find(|dtype| dtype.name() == name);
        let operands = words.next()?;
        let (dtype, other, tf32) = match operands.split_once('*') {
            Some((a, b)) => (format(a)?, Some(format(b)?), false),
            None if operands == "tf32" => (F32, None, true),
            None => (format(operands)?, None, false),
        };
        let kind = words.next()?;
        let extents: Vec<usize> = words.next()?.split('x').filter_map(|extent| extent.parse().ok()).collect();
        let name = words.next()?;
        let (_, build) = EPILOGUES.iter().find(|(known, _)| *known == name)?;
        let epilogue = Epilogue::build(|e| build(e, dtype)).ok()?;
        let layout = match kind {
            "TN" => TN,
            "NN" => NN,
            "NT" => NT,
            "TT" => TT,
            "rows" => {
                let (m, n, batch) = match extents[..] {
                    [m, n] => (m, n, 1),
                    [m, n, batch] => (m, n, batch),
                    _ => return None,
                };
                let gemm = Gemm::pointwise(dtype, Order::RowMajor, &epilogue);
                let shape = Shape::matrix(m, n).batched(batch);
                return Some(Line { target, multiprocessors, gemm, problem: shape.into() });
            }
            "attention" => {
                let [m, n, k] = extents[..] else { return None };
                let gemm = attention(dtype, words, &epilogue)?;
                return Some(Line { target, multiprocessors, gemm, problem: Shape::new(m, n, k).into() });
            }
            of => {
                let conv = convolution(of, dtype, &extents, words, &epilogue)?;
                return Some(Line { target, multiprocessors, gemm: conv.gemm().clone(), problem: conv.problem() });
            }
        };
        let [m, n, k, ref batch @ ..] = extents[..] else { return None };
        let mut problem = Problem::new(m, n, k).batched(batch.first().copied().unwrap_or(1));
        let mut gemm = other
            .map_or_else(|| Gemm::new(dtype, layout, &epilogue).tf32(tf32), |other| Gemm::mixed(dtype, other, layout, &epilogue));
        for word in words {
            let (what, number) = word.split_once(':')?;
            let number: usize = number.parse().ok()?;
            match what {
                "lda" => problem = problem.ld("a", number),
                "ldb" => problem = problem.ld("b", number),
                "ldd" => problem = problem.ld("d", number),
                "split" => gemm = gemm.split_k(number),
                _ => return None,
            }
        }
        Some(Line { target, multiprocessors, gemm, problem })
    }

    /// The tile of the product, as `tiles.txt` writes it.
    fn chosen(&self) -> String {
        let plan = self.gemm.kernel_plan(self.target, self.multiprocessors, self.problem.clone());
        serde_json::to_string(&plan.expect("the problem has a kernel").product().tile).unwrap()
    }

    fn plan(&self) -> String {
        match self.gemm.kernel_plan(self.target, self.multiprocessors, self.problem.clone()) {
            Ok(plan) => words(&plan),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        }
    }
}

/// Attention, whose queries have `width` elements.
fn attention<'w>(dtype: DType, words: impl Iterator<Item = &'w str>, epilogue: &Epilogue) -> Option<Gemm> {
    let mut of: Option<Attention> = None;
    for word in words {
        let (what, number) = word.split_once(':')?;
        let number: usize = number.parse().ok()?;
        of = Some(match (what, of) {
            ("width", None) => Attention::new(number),
            ("sequences", Some(of)) => of.sequences(number),
            ("causal", Some(of)) => of.causal(),
            _ => return None,
        });
    }
    Some(Gemm::attention(dtype, of?, epilogue))
}

/// A convolution, `conv`, or the gradient of its images or filters, `conv_data` or `conv_filters`, of images, height,
/// width, channels, filters and the extents of a filter.
fn convolution<'w>(
    of: &str,
    dtype: DType,
    extents: &[usize],
    words: impl Iterator<Item = &'w str>,
    epilogue: &Epilogue,
) -> Option<Conv> {
    let &[images, height, width, channels, filters, r, s] = extents else { return None };
    let mut shape = ConvShape::new(images, [height, width, channels], [filters, r, s]);
    for word in words {
        let (what, number) = word.split_once(':')?;
        let number: usize = number.parse().ok()?;
        shape = match what {
            "stride" => shape.stride([number; 2]),
            "pad" => shape.padding([number; 2]),
            "groups" => shape.groups(number),
            _ => return None,
        };
    }
    let make = match of {
        "conv" => Conv::new,
        "conv_data" => Conv::data_gradient,
        "conv_filters" => Conv::filter_gradient,
        _ => return None,
    };
    make(dtype, shape, epilogue).ok()
}

/// The decisions, the most important first.
fn words(plan: &KernelPlan) -> String {
    let product = plan.product();
    let mut out = format!("{} | raster {}", product.tile, product.raster);
    if let Some(time) = product.choice.nanoseconds() {
        let _ = write!(out, " | {:.1} us", time as f64 / 1e3);
    }
    // Times of the others in hundredths of the chosen one's: of the next, and of all together.
    let estimates: Vec<(Tile, u64)> = product.choice.estimates().collect();
    if let Some((tile, times)) = estimates.get(1) {
        let together: u64 = estimates.iter().map(|(_, times)| times).sum();
        let _ = write!(out, " | then {tile} at {times}, {} tiles at {together}", estimates.len());
    }
    if let Some(split) = &plan.split {
        let _ = write!(out, " | split {} into {}", split.parts, plan.tile);
    }
    let _ = write!(out, " | strip {} | {} ms", product.strip, product.compile_time().as_millis());
    let flags = [
        ("transposed", product.transposed),
        ("copied", product.repack.is_some()),
        ("lockstep", product.lockstep),
        ("shifted_edges", product.shifted_edges),
        ("split_epilogue", product.staging.is_some() && product.program.splits_epilogue(product.fast_math)),
        ("by rows", product.chunks_by_rows()),
    ];
    for (flag, _) in flags.into_iter().filter(|(_, on)| *on) {
        let _ = write!(out, " | {flag}");
    }
    if let Some(s) = &product.staging {
        let _ = write!(
            out,
            " | chunks of {}: {} ring(s), {} ahead, {} behind",
            s.chunk, s.chunk_rings, s.load_stages, s.store_buffers
        );
        out += if s.delayed_store { ", delayed_store" } else { "" };
        out += if s.direct_store { ", by lanes" } else { "" };
    }
    out
}

#[test]
fn the_table_says_what_is_chosen() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/choices/choices.txt");
    let old = std::fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
    let (mut new, mut problems) = (String::new(), 0);
    for line in old.lines() {
        if line.is_empty() || line.starts_with('#') {
            new += line;
        } else {
            let asked = line.split('|').next().unwrap_or_default().trim_end();
            let read = Line::read(asked).unwrap_or_else(|| panic!("not a problem: `{asked}`"));
            let _ = write!(new, "{asked:<44} | {}", read.plan());
            problems += 1;
        }
        new.push('\n');
    }
    assert!(problems >= 60, "the table has lost its problems: {problems} are left");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &new).unwrap();
        return;
    }
    assert!(new == old, "other choices than in {}; BLESS=1 rewrites it:\n{}", path.display(), changed(&old, &new));
}

/// The lines that differ.
fn changed(old: &str, new: &str) -> String {
    diff::lines(old, new).lines().filter(|line| !line.starts_with(' ')).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_line_that_is_no_problem_is_none() {
    for line in [
        "",
        "sm_90a f16 TN 1x2 identity",
        "sm_90a f16 TN 1x2x3 nothing",
        "sm_90a f16 TN 1x2x3 identity x:1",
        "sm_90a f16 XX 1x2x3 identity",
        "sm_90a f16 rows 1x2x3x4 softmax",
        "sm_90a f16 conv 1x8x8x8x8x3 identity",
        "sm_90a f16 conv 1x8x8x8x8x3x3 identity lda:8",
        "sm_90a f16*f17 TN 1x2x3 identity",
        "sm_90a f16 attention 1x2x3 identity",
        "sm_90a f16 attention 1x2x3 identity causal:1",
    ] {
        assert!(Line::read(line).is_none(), "{line}");
    }
    assert!(Line::read("sm_80 tf32 NT 16x32x64x3 wide lda:72 split:2").is_some());
}
