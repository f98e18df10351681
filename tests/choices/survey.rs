//! Measured tiles: what the survey of the benchmark wrote, with the plan that each line's shape has.

use crate::case::Fused;
use postlude::Layout;
use postlude::plan::{KernelPlan, Mainloop, Tile};
use postlude::prelude::*;
use postlude::target::{Gpu, Target};

/// A shape whose tiles were measured.
pub struct Measured {
    pub shape: Shape,
    pub plan: KernelPlan,
    /// Tiles with the microseconds that each took.
    pub tiles: Vec<(Tile, f64)>,
    /// The fewest microseconds, also of tiles that are not candidates any more.
    pub least: f64,
}

/// Reads a line. `None` if it is not one, has no tile that still fits, or is not for Hopper's mainloop.
fn read(line: &str, gpu: Gpu) -> Option<Measured> {
    let (fields, tiles) = line.split_once('"')?;
    let fields: Vec<&str> = fields.split(',').collect();
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == fields[1])?;
    let layout = Layout::from_name(fields[2])?;
    let fused = Fused::ALL.into_iter().find(|fused| fused.word() == fields[6])?;
    let [m, n, k] = [3, 4, 5].map(|i| fields[i].parse().ok());
    let shape = Shape::new(m?, n?, k?);
    let few = (shape.m <= 128).then_some(Side::B);
    let gemm = Gemm::new(dtype, layout, &fused.epilogue(dtype).ok()?).constant_operands(few).split_k(1);
    let plan = gemm.kernel_plan(Target::SM_90A, gpu, shape).ok()?;
    let fitting: Vec<Tile> = plan.choice.candidates().map(|(tile, _)| tile).collect();
    let named = tiles.trim_end_matches('"').split("; ").filter_map(|pair| {
        let (name, us) = pair.split_once(" = ")?;
        Some((name, us.parse().ok()?))
    });
    let named: Vec<(&str, f64)> = named.collect();
    let least = named.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
    let known = |(name, us)| fitting.iter().find(|tile| tile.to_string() == name).map(|tile| (*tile, us));
    let tiles: Vec<(Tile, f64)> = named.into_iter().filter_map(known).collect();
    (!tiles.is_empty() && plan.mainloop() == Mainloop::Sm90a).then_some(Measured { shape, plan, tiles, least })
}

/// Every line of a file.
pub fn load(text: &str, gpu: Gpu) -> Vec<Measured> {
    text.lines().skip(1).filter_map(|line| read(line, gpu)).collect()
}
