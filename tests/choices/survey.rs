//! Measured tiles: what the survey of the benchmark wrote, with the plan that each line's shape has.

use crate::case::Fused;
use postlude::Layout;
use postlude::plan::{CostModel, KernelPlan, Mainloop, Tile};
use postlude::prelude::*;
use postlude::target::{Gpu, Target};

/// A shape whose tiles were measured.
pub struct Measured {
    pub shape: Shape,
    /// The plan of the product one way round, and transposed.
    pub plans: [KernelPlan; 2],
    /// The plan whose way the planner takes.
    pub taken: usize,
    pub tiles: Vec<MeasuredTile>,
    /// The fewest microseconds, also of tiles that are not candidates any more.
    pub least: f64,
}

/// A tile, the plan that it is of, and the microseconds that it took.
#[derive(Clone, Copy)]
pub struct MeasuredTile {
    pub tile: Tile,
    pub plan: usize,
    pub us: f64,
}

impl Measured {
    /// The estimate of a model.
    pub fn cycles(&self, measured: &MeasuredTile, model: &CostModel) -> f64 {
        self.plans[measured.plan].tile_cycles(&measured.tile, self.shape, model)
    }
}

/// What the survey writes behind a tile's name. Older lines say nothing: then a narrow output has its shorter side as columns,
/// and other products are as they are.
const WAYS: [(&str, bool); 2] = [(", as it is", false), (", transposed", true)];

/// A tile's name without its stages. How many there are follows from the epilogue's operands, by a rule that has changed.
fn of_any_depth(name: &str) -> String {
    name.split(", ").filter(|word| !word.ends_with(" stages")).collect()
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
    let first = shape.m < shape.n && shape.m <= 128;
    let plan = |transposed: bool| gemm.clone().transposed(transposed).kernel_plan(Target::SM_90A, gpu, shape).ok();
    let plans = [plan(first)?, plan(!first)?];
    let taken = usize::from(gemm.kernel_plan(Target::SM_90A, gpu, shape).ok()?.transposed != first);
    let fitting = |plan: usize, name: &str| {
        let tiles = || plans[plan].choice.candidates().map(|(tile, _)| tile);
        let exact = tiles().find(|tile| tile.to_string() == name);
        let tile = exact.or_else(|| tiles().find(|tile| of_any_depth(&tile.to_string()) == of_any_depth(name)));
        tile.map(|tile| (tile, plan))
    };
    let named = tiles.trim_end_matches('"').split("; ").filter_map(|pair| {
        let (name, us) = pair.split_once(" = ")?;
        let way = WAYS.into_iter().find_map(|(words, transposed)| Some((name.strip_suffix(words)?, transposed)));
        let (name, transposed) = way.unwrap_or((name, first));
        Some((name, usize::from(transposed != first), us.parse().ok()?))
    });
    let named: Vec<(&str, usize, f64)> = named.collect();
    let least = named.iter().map(|(_, _, us)| *us).fold(f64::INFINITY, f64::min);
    let known = |(name, plan, us)| fitting(plan, name).map(|(tile, plan)| MeasuredTile { tile, plan, us });
    let tiles: Vec<MeasuredTile> = named.into_iter().filter_map(known).collect();
    let is_hopper = plans.iter().all(|plan| plan.mainloop() == Mainloop::Sm90a);
    (!tiles.is_empty() && is_hopper).then_some(Measured { shape, plans, taken, tiles, least })
}

/// Every line of a file.
pub fn load(text: &str, gpu: Gpu) -> Vec<Measured> {
    text.lines().skip(1).filter_map(|line| read(line, gpu)).collect()
}
