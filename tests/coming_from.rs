//! The page for users of other libraries, `docs/coming_from.md`: its lines compile, and the epilogues that they build
//! pass the check.
//!
//! A line stands here as it stands there; blanks do not count.

use postlude::build::recipes::{self, Norm};
use postlude::compat::cublaslt::{self, Formats};
use postlude::compat::paddle::{Activation, FusedGemmEpilogue};
use postlude::layer::{Linear, Step};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Attention, CustomMonoid, PoolKind, Pooling, Scores};
use std::sync::Arc;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const PAGE: &str = include_str!("../docs/coming_from.md");

/// The cells of every table, row by row, without headings.
fn rows() -> impl Iterator<Item = Vec<String>> {
    let lines: Vec<&str> = PAGE.lines().collect();
    let is_rule = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("| ---"));
    let rows = (0..lines.len()).filter(|i| lines[*i].starts_with("| ") && !is_rule(lines.get(i + 1)) && !is_rule(lines.get(*i)));
    let rows: Vec<&str> = rows.map(|i| lines[i]).collect();
    // A bar inside a cell has a backslash before it.
    let cells = |row: &str| {
        let row = row.replace("\\|", "\u{1}");
        let cells = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('\u{1}', "|"));
        cells.collect()
    };
    rows.into_iter().map(cells)
}

/// The code spans of a cell.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn every_line_of_the_page_is_compiled_here() {
    let here = include_str!("coming_from.rs").lines().filter(|line| !line.trim_start().starts_with("//"));
    let here = without_blanks(&here.collect::<String>());
    let mut lines = 0;
    for row in rows() {
        let [theirs, ours, ..] = &row[..] else { panic!("a row of one cell: {row:?}") };
        for line in code(ours) {
            assert!(here.contains(without_blanks(line).trim_end_matches(';')), "`{theirs}`: not in this file: {line}");
            lines += 1;
        }
        let says_why = ["not yet", "no line"].contains(&&**ours);
        assert!(says_why || code(ours).next().is_some(), "`{theirs}` has no line, and does not say why");
    }
    assert!(lines > 100, "{lines} lines are found");
}

#[test]
fn the_page_has_every_epilogue_of_cublaslt() {
    for named in cublaslt::ALL {
        let theirs = format!("`{}`, {}", named.name, named.value);
        let row = rows().find(|row| row[0] == theirs).unwrap_or_else(|| panic!("the page lacks {theirs}"));
        assert_eq!(row[1], format!("`cublaslt::{}(formats)`", named.name.to_lowercase()));
    }
}

/// Searching the documentation for a name of theirs finds ours.
#[test]
fn names_of_other_libraries_are_aliases() {
    let sources = [
        include_str!("../src/build/expr.rs"),
        include_str!("../src/build/epilogue.rs"),
        include_str!("../src/build/recipes/mod.rs"),
        include_str!("../src/build/recipes/rows.rs"),
        include_str!("../src/build/activation.rs"),
    ];
    let is_alias = |name: &str| sources.iter().any(|source| source.contains(&format!("#[doc(alias = \"{name}\")]")));
    let there = rows().filter(|row| row[1] != "not yet");
    let nodes: Vec<String> = there.flat_map(|row| code(&row[0]).map(String::from).collect::<Vec<_>>()).collect();
    let nodes = nodes.iter().filter_map(|name| name.split('<').next()).filter(|name| name.starts_with("Sm90"));
    let nodes: Vec<&str> = nodes.filter(|name| *name != "Sm90SplitTreeFetch").collect();
    assert!(nodes.len() > 12, "{nodes:?}");
    let others =
        ["alpha", "beta", "addmm", "baddbmm", "_addmm_activation", "LinearCombination", "EpilogueWithBroadcast", "quick_gelu"];
    for name in nodes.into_iter().chain(others) {
        assert!(is_alias(name), "no item has the alias {name}");
    }
}

/// Builds an epilogue with each of the values.
macro_rules! values {
    (|$e:ident, $z:ident| $($line:expr;)*) => {
        $(Epilogue::build(|$e| {
            let $z = $e.acc();
            let value = $line;
            $e.store("z", $z, F32);
            $e.store("value", value.cast(F32), F32);
        })?;)*
    };
}

/// Builds an epilogue with each of the sinks.
macro_rules! sinks {
    (|$e:ident, $z:ident| $($line:expr;)*) => {
        $(Epilogue::build(|$e| {
            let $z = $e.acc();
            $e.store("z", $z, F32);
            $line
        })?;)*
    };
}

fn identity(z: Expr<'_>) -> Expr<'_> {
    z
}

fn sigmoid(z: Expr<'_>) -> Expr<'_> {
    z.sigmoid()
}

fn tanh(z: Expr<'_>) -> Expr<'_> {
    z.tanh()
}

fn relu(z: Expr<'_>) -> Expr<'_> {
    z.relu()
}

fn silu(z: Expr<'_>) -> Expr<'_> {
    z.silu()
}

#[test]
fn values() -> Result {
    let op = Arc::new(CustomOp::new("once", 1, "+$0", |x| x[0])?);
    values! { |e, z|
        e.acc();
        e.load("c", F16);
        e.load("residual", BF16);
        e.load("mask", Bits8);
        e.load("bias", F16.over(N));
        e.load("bias", F16.over(N).batched());
        e.load_or("bias", F16.over(N), 0.0);
        e.load("scale", F32.over(M));
        e.load("alpha", F32.over(N));
        e.load("alpha", F32.pointer());
        e.scalar("alpha", F32);
        e.column().le(e.row());
        z + e.load("c", F16);
        z * e.load("a_scale", F32.pointer());
        z * e.load("alpha", F32.over(M));
        z * e.scalar("alpha", F32);
        z.region(e.row().lt(128), sigmoid).otherwise(tanh);
        e.custom(&op, [z]);
        e.acc() * e.load("aux", F16).gt(0.0).select(1.0, 0.0);
        z.gelu(); z.gelu_tanh();
        z.silu(); z.hardswish(); z.sigmoid(); z.tanh();
        z.relu(); z.leaky_relu(0.01); z.clamp(-1.0, 1.0);
        z.thresholded_relu(0.5); z.snake(2.0);
        z.swish(); z.swish_beta(1.5);
        z.cast(BF16);
        e.column().le(e.row()).select(z, 0.0);
        e.gather("table", F32, e.load("index", I32.over(M)));
        z.softmax_over(N);
        z * (z.mean_square_over(N) + 1e-6).rsqrt();
        z.mean_square_over(N.bands(64));
        e.load("gate", F16).silu() * e.acc();
        e.load("keep", Bits8).select(z * (1.0 / 0.9), 0.0);
    }
    // These lines use other values.
    Epilogue::build(|e| {
        let (alpha, beta) = (e.scalar("alpha", F32), e.scalar("beta", F32));
        let (z, x, y, c, mask) = (e.acc(), alpha, beta, e.column().lt(3), e.row().lt(5));
        e.store("0", (e.acc() * alpha + e.load("c", F16) * beta).relu(), F16);
        e.store("1", e.acc() * alpha + e.load("bias", F16.over(N)), F16);
        e.store("2", c.select(x, y) + mask.select(-1e9, z), F16);
        let y = z.relu();
        e.store("3", y * y, F16);
    })?;
    Epilogue::build(|e| {
        let alpha = e.scalar("alpha", F32);
        e.store("0", e.acc() * alpha + e.load("bias", F16.over(M)), F16);
    })?;
    Ok(())
}

#[test]
fn sinks() -> Result {
    let variance = CustomMonoid::build("bits", [I32], [0], |_, [x]| [x], |_, [a], [b]| [a | b], |_, [s]| s)?;
    Epilogue::build(|e| e.reduce("bits", e.acc_i32(), variance, I32.over(N)))?;
    sinks! { |e, z|
        e.store("aux", z, F16); e.store("d", z.silu(), F16);
        e.store("mask", z.gt(0.0), Bits8);
        e.store("c", e.acc() + e.load("c", F16), F16);
        e.store("x", e.load("x", F32).relu(), F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
        e.reduce("sums", z, Monoid::Sum.atomic(), F32.over(N));
        e.reduce("rows", z, Monoid::Max, F32.over(M));
        e.reduce("norm", z, Monoid::Norm2, F32.pointer());
        e.reduce("amax", z, Monoid::AbsMax, F32.pointer());
        e.reduce("mean", z, Monoid::Mean, F32.over(M));
        e.reduce("class", z, Monoid::ArgMax, I32.over(M));
        e.store("best", z.top_k_over(N, 2).values[0], F32.over(M).batched());
        e.reduce("lse", z, Monoid::LogSumExp, F32.over(M));
        e.reduce("count", z.gt(0.0), Monoid::Count, I32.over(N));
        e.reduce("variance", z, Monoid::Variance, F32.over(M));
    }
    Ok(())
}

#[test]
fn epilogues_by_name() -> Result {
    let formats = Formats::of(F16);
    let every = [
        cublaslt::default(formats),
        cublaslt::relu(formats),
        cublaslt::bias(formats),
        cublaslt::relu_bias(formats),
        cublaslt::gelu(formats),
        cublaslt::gelu_bias(formats),
        cublaslt::relu_aux(formats),
        cublaslt::relu_aux_bias(formats),
        cublaslt::drelu(formats),
        cublaslt::drelu_bgrad(formats),
        cublaslt::gelu_aux(formats),
        cublaslt::gelu_aux_bias(formats),
        cublaslt::dgelu(formats),
        cublaslt::dgelu_bgrad(formats),
        cublaslt::bgrada(formats),
        cublaslt::bgradb(formats),
    ];
    for (epilogue, named) in every.into_iter().zip(cublaslt::ALL) {
        assert_eq!(epilogue?, (named.build)(formats)?);
    }
    assert_eq!(cublaslt::by_value(134).map(|named| named.name), Some("RELU_AUX_BIAS"));
    for formats in [Formats { c: Some(BF16), ..Formats::of(F16) }, Formats { bias: F32, ..Formats::of(F16) }] {
        cublaslt::relu_bias(formats)?;
    }

    recipes::linear_combination(F16, F16)?;
    let closure = |e: &Builder| e.store("d", e.acc(), F16);
    let epilogue = Epilogue::build(closure)?;
    let window = Scores::build(|s| (s.row() - s.column()).lt(s.scalar("window", I32)).select(s.acc(), f32::NEG_INFINITY))?;
    let mask = Scores::build(|s| s.acc() + s.load("mask", F16.over(M | N | S)))?;
    let scores = Scores::build(|s| s.acc() + s.load("slopes", F32.over(L)) * (s.column() - s.row()).cast(F32))?;
    assert!(scores != window && scores != mask);
    let attention = Gemm::attention(F16, Attention::new(64).scores(&scores), &epilogue);
    assert_eq!(attention.operation().attention().and_then(|of| of.function()), Some(scores));
    let groups = recipes::group_norm(8, Norm { weights: Some(F16), residual: None }, F16)?;
    let rows = [recipes::top_k(2)?, recipes::top_k_softmax(2, F16)?, groups];
    for other in [recipes::bias_activation(F16, F16, relu)?, recipes::residual(F16, F16, silu)?].into_iter().chain(rows) {
        assert_ne!(epilogue, other);
    }
    epilogue.backward(Wrt::all())?;
    let (double, two) = (|x: &[f64]| 2.0 * x[0], |_: &[f64]| 2.0);
    let twice = CustomOp::new("twice", 1, "2.0f * $0", double)?.partial(0, "2.0f", two)?;
    assert!(twice.derivative(0).is_some());
    Ok(())
}

#[test]
fn convolutions() -> Result {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        let vector = |name: &str| e.load(name, F32.over(N));
        let (mean, variance, gain, shift) = (vector("mean"), vector("variance"), vector("gain"), vector("shift"));
        e.store("d", z.batch_norm(mean, variance, gain, shift, 1e-5), F16);
    })?;
    let conv = Conv::new(F16, ConvShape::new(8, [14, 14, 64], [64, 3, 3]).padding([1, 1]), &epilogue)?;
    let pool =
        Gemm::pool(F16, Pooling::new(PoolKind::Max, ConvShape::windows(8, [14, 14, 64], [2, 2]).stride([2, 2]))?, &epilogue);
    assert_eq!(pool.operation().layout(), None);
    let shape = conv.convolution().measures();
    let gradients = [Conv::data_gradient(F16, shape, &epilogue)?, Conv::filter_gradient(F16, shape, &epilogue)?];
    for conv in gradients.iter().chain([&conv]) {
        conv.kernel_plan(Target::SM_90A, 132)?;
    }
    Ok(())
}

#[test]
fn products_and_arguments() -> Result {
    let epilogue = cublaslt::relu_aux_bias(Formats { c: Some(F16), ..Formats::of(F16) })?;
    let gemm = Gemm::new(F16, Layout::of(Order::RowMajor, Order::ColumnMajor), &epilogue);
    let gemms = [
        Gemm::new(F16, TN, &epilogue),
        Gemm::new(F16, TT, &epilogue),
        Gemm::new(F16, TN, &recipes::bias_activation(F16, F16, identity)?),
    ];
    let (target, multiprocessors, shape) = (Target::SM_90A, 132, Shape::new(64, 64, 64).batched(8));
    assert!(gemm.kernel_plan(target, multiprocessors, shape)?.explain().contains("candidates"));
    for gemm in gemms {
        gemm.split_k(4).kernel_plan(target, multiprocessors, Shape::new(64, 64, 4096))?;
    }
    let by_rows = recipes::scaled_mm(F32.over(M), F32.over(N), BF16, BF16)?;
    Gemm::new(E4M3, TN, &by_rows).fast_accumulation(true).kernel_plan(target, multiprocessors, shape)?;
    let by_one = recipes::scaled_mm(F32.pointer(), F32.pointer(), BF16, BF16)?;
    Gemm::new(E4M3, TN, &by_one).kernel_plan(target, multiprocessors, shape)?;
    let layer = Linear::new(BF16, [1024, 4096], |_, z| z.gelu())?.fp8()?;
    layer.forward(64).gemm().kernel_plan(target, multiprocessors, layer.shape(64))?;
    Gemm::new(I8, TN, &recipes::w8a8(F32.over(M), F32.over(N), BF16, BF16)?).kernel_plan(target, multiprocessors, shape)?;
    Epilogue::build(|e| {
        let (z, scale, zero_point) = (e.acc(), e.load("scale", F32.pointer()), 0);
        e.store("d", z.quantize(I8, scale, zero_point), I8);
        e.bincount("counts", (z.abs() * 8.0).floor().cast(I32));
    })?;
    let plain = recipes::identity(F32)?;
    let gemm = Gemm::new(F32, TN, &plain);
    let gemm = gemm.tf32(true);
    gemm.kernel_plan(target, multiprocessors, shape)?;

    // Rows of a mask, side by side and 256 bits apart.
    let (zeros, bias) = ([postlude::half::f16::ZERO; 16], [postlude::half::f16::ONE; 4]);
    let (mut d, mut aux, shape) = (zeros, [0u8; 4 * 32], Shape::new(4, 4, 4));
    let gemm = Gemm::new(F16, TN, &epilogue);
    let args = HostArgs::new().input("a", &zeros).input("b", &zeros).input("c", &zeros).output("d", &mut d);
    let args = args.scalar("alpha", 1.0).scalar("beta", 0.5);
    let args = args.input("bias", &bias);
    let args = args.output("aux", Tensor::of_bytes_mut(Bits128, &mut aux));
    gemm.run(shape, args)?;
    assert_eq!([0, 16, 32, 48].map(|row| aux[row] & 15), [15; 4]);
    aux.fill(0);
    let args = HostArgs::new().input("a", &zeros).input("b", &zeros).input("c", &zeros).input("bias", &bias).scalar("beta", 0.0);
    let args = args.scalar("alpha", 0.5);
    let args = args.output("d", &mut d).output("aux", Tensor::of_bytes_mut(Bits128, &mut aux).ld(256));
    gemm.run(shape, args)?;
    assert_eq!([0, 16, 32, 64, 96].map(|row| aux[row] & 15), [15, 0, 15, 15, 15]);
    Ok(())
}

#[test]
fn paddles_operator() -> Result {
    let operator = FusedGemmEpilogue { trans_x: false, trans_y: true, activation: Activation::Relu, dtype: F16 };
    assert_eq!(Activation::from_name("gelu"), Some(Activation::Gelu));
    assert_eq!(Activation::from_gradient_name("relu_grad"), Some(Activation::Relu));
    assert!(operator.forward(&[2, 3, 4], &[8, 4], &[8], false)?.reserve.is_none());
    assert!(operator.forward(&[2, 3, 4], &[8, 4], &[8], true)?.reserve.is_some());
    let step = operator.backward(&[2, 3, 8], &[2, 3, 4], &[8, 4], true)?.dy_with_bias;
    assert_eq!(step.dims, [8, 4]);
    let adds = Step::from(step).accumulate(&["d"])?;
    assert!(adds.gemm().epilogue().to_string().contains("load \"d\""));
    let step = operator.backward_with_bias(&[2, 3, 8], &[2, 3, 4], &[8, 4], true)?.dx;
    assert_eq!(step.dims, [2, 3, 4]);

    let step = operator.forward(&[2, 3, 4], &[8, 4], &[8], false)?;
    let one = postlude::half::f16::ONE;
    let (x, y, bias, mut out) = ([one; 24], [one; 32], [one; 8], [-one; 48]);
    let args = HostArgs::new().input("x", &x).input("y", &y).input("bias", &bias).output("d", &mut out);
    Step::from(step).run(args)?;
    assert!(out.iter().all(|x| x.to_f32() == 5.0));
    Ok(())
}

/// These lines take a GPU. They are only compiled here; `tests/gpu` runs such lines.
#[cfg(feature = "cuda")]
#[allow(dead_code)]
fn on_a_device(gemm: Gemm, device: Device, shape: Shape, a: postlude::cudarc::driver::CudaSlice<f32>) -> Result {
    use postlude::tune::Autotune;
    let stream = device.context().default_stream();
    let mut plan = gemm.plan(&device, shape)?;
    let mut args = DeviceArgs::new().input("a", &a);
    plan.autotune(&stream, &mut args, Autotune::new())?;
    plan.execute(&stream, &mut args)?;
    plan.explain();
    drop(plan);
    Ok(())
}
