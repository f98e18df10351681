//! Measured tiles: what the survey of the benchmark wrote, with the plan that each line's shape has.

use postlude::Layout;
use postlude::build::recipes;
use postlude::plan::{KernelPlan, Mainloop, Tile};
use postlude::prelude::*;
use postlude::target::{Gpu, Target};

/// A shape whose tiles were measured.
pub struct Measured {
    pub shape: Shape,
    pub plan: KernelPlan,
    /// Tiles with the microseconds that each took.
    pub tiles: Vec<(Tile, f64)>,
}

/// The epilogue that the benchmark calls by a word.
fn epilogue(word: &str, dtype: DType) -> Option<Epilogue> {
    let bias_activation = |f: fn(Expr<'_>) -> Expr<'_>| recipes::bias_activation(dtype, dtype, f);
    let built = match word {
        "identity" => recipes::identity(dtype),
        "relu" => bias_activation(|z| z.relu()),
        "gelu" => bias_activation(|z| z.gelu_tanh()),
        "residual" => Epilogue::build(|e| e.store("d", e.acc() + e.load("c", dtype), dtype)),
        "regions" => recipes::split_rows(dtype, dtype, |z| z.sigmoid(), |z| z.tanh()),
        "heavy" => Epilogue::build(|e| {
            let z = e.acc() + e.load("bias", dtype.over(N));
            e.store("d", z.silu() * e.load("c", dtype) * e.load("row_scale", F32.over(M)), dtype);
        }),
        _ => return None,
    };
    built.ok()
}

/// Reads a line. `None` if it is not one, has no tile that still fits, or is not for Hopper's mainloop.
fn read(line: &str, gpu: Gpu) -> Option<Measured> {
    let (fields, tiles) = line.split_once('"')?;
    let fields: Vec<&str> = fields.split(',').collect();
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == fields[1])?;
    let layout = Layout::from_name(fields[2])?;
    let [m, n, k] = [3, 4, 5].map(|i| fields[i].parse().ok());
    let shape = Shape::new(m?, n?, k?);
    let few = (shape.m <= 128).then_some(Side::B);
    let gemm = Gemm::new(dtype, layout, &epilogue(fields[6], dtype)?).constant_operands(few).split_k(1);
    let plan = gemm.kernel_plan(Target::SM_90A, gpu, shape).ok()?;
    let fitting: Vec<Tile> = plan.choice.candidates().map(|(tile, _)| tile).collect();
    let measured = tiles.trim_end_matches('"').split("; ").filter_map(|pair| {
        let (name, us) = pair.split_once(" = ")?;
        let tile = fitting.iter().find(|tile| tile.to_string() == name)?;
        Some((*tile, us.parse().ok()?))
    });
    let tiles: Vec<(Tile, f64)> = measured.collect();
    (!tiles.is_empty() && plan.mainloop() == Mainloop::Sm90a).then_some(Measured { shape, plan, tiles })
}

/// Every line of a file.
pub fn load(text: &str, gpu: Gpu) -> Vec<Measured> {
    text.lines().skip(1).filter_map(|line| read(line, gpu)).collect()
}
