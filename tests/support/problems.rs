//! Random operations with their extents, so that each mainloop has its share. Include this file with
//! `#[path = "support/problems.rs"] mod problems;`.

use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Attention, Blocks, ConvShape, Convolution, GradientOf, Operation, PoolKind, Pooling, Scores};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Large and aligned, ragged, one row, few rows, tiny.
const SHAPES: [Shape; 5] = [
    Shape::new(4096, 4096, 4096),
    Shape::new(4095, 4097, 99),
    Shape::new(1, 4096, 4096),
    Shape::new(48, 4608, 3584),
    Shape::new(3, 5, 7).batched(2),
];

/// Few rows of aligned and of ragged lines.
const FEW_ROWS: [Shape; 4] =
    [Shape::new(1, 4096, 4096), Shape::new(2, 14336, 4096), Shape::new(4, 4096, 4096), Shape::new(4, 4099, 999)];

/// An operation that a graph over an accumulator of `f32`, or of `i32`, may follow, and what is asked for beside it.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    pub operation: Operation,
    pub shape: Shape,
    pub tf32: bool,
    pub fast_accumulation: bool,
    /// The mainloop that is asked for, if one is.
    pub mainloop: Option<Mainloop>,
}

impl Problem {
    fn new((operation, shape): (Operation, Shape)) -> Problem {
        let own = operation.patches().map(|patches| patches.shape()).or(operation.pooling().map(|pooling| pooling.shape()));
        Problem { operation, shape: own.unwrap_or(shape), tf32: false, fast_accumulation: false, mainloop: None }
    }

    /// What is asked of the planner.
    pub fn gemm(&self, epilogue: &Epilogue) -> Gemm {
        let gemm = Gemm::of(self.operation, epilogue).tf32(self.tf32).fast_accumulation(self.fast_accumulation);
        if let Some(mainloop) = self.mainloop { gemm.mainloop(mainloop) } else { gemm }
    }
}

/// Problems whose accumulators are `i32` or not.
pub fn problem(integer: bool) -> BoxedStrategy<Problem> {
    let shapes = || select(SHAPES.to_vec());
    let few = || select(FEW_ROWS.to_vec());
    let of = if integer {
        prop_oneof![
            3 => (select(products(true)), shapes()),
            1 => (select(products(true)), few()),
            2 => (select(matrices(true)), shapes()),
            1 => images(vec![I8, U8, I32]),
        ]
        .boxed()
    } else {
        prop_oneof![
            6 => (select(products(false)), shapes()),
            2 => (select(products(false)), few()),
            3 => (select(matrices(false)), shapes()),
            8 => images(vec![F16, BF16, F32, E4M3]),
            1 => attention(),
        ]
        .boxed()
    };
    // Every fourth problem names its mainloop. Many of these have no plan.
    const MAINLOOPS: [Mainloop; 4] = [Mainloop::Simt, Mainloop::Sm80, Mainloop::Gemv, Mainloop::Rows];
    let mainloop = prop_oneof![3 => Just(None), 1 => any::<Index>().prop_map(|at| Some(*at.get(&MAINLOOPS)))];
    let asked = (any::<bool>(), any::<bool>(), mainloop);
    let all = (of.prop_map(Problem::new), asked);
    all.prop_map(|(problem, (tf32, fast_accumulation, mainloop))| Problem { tf32, fast_accumulation, mainloop, ..problem })
        .boxed()
}

fn products(integer: bool) -> Vec<Operation> {
    if integer {
        return vec![Operation::product(I32, TN), Operation::product(I8, TN), Operation::mixed(U8, I8, NN)];
    }
    let scaled = |a, b, layout, scales| Operation::Product { a, b, layout, scales };
    vec![
        Operation::product(F16, TN),
        Operation::product(BF16, NN),
        Operation::product(F32, NT),
        Operation::product(F32, TT),
        Operation::product(E4M3, TN),
        Operation::mixed(E5M2, E4M3, NT),
        Operation::mixed(F16, I8, TN),
        scaled(BF16, I4, TN, [None, Some(Blocks::groups(128))]),
        scaled(E4M3, E4M3, TN, [Some(Blocks::groups(128)), Some(Blocks::squares(128))]),
    ]
}

fn matrices(integer: bool) -> Vec<Operation> {
    let of = |dtype, order| Operation::Pointwise { dtype, order };
    if integer {
        vec![of(I32, Order::RowMajor), of(I8, Order::ColumnMajor)]
    } else {
        vec![of(F16, Order::RowMajor), of(BF16, Order::ColumnMajor), of(E5M2, Order::RowMajor), of(F32, Order::RowMajor)]
    }
}

/// Convolutions of many channels, of few, and of one to a filter, their gradients, and pools.
fn images(formats: Vec<DType>) -> impl Strategy<Value = (Operation, Shape)> {
    let channels = select(vec![[64, 64], [3, 64], [4, 24], [7, 40], [12, 32], [96, 0], [240, 0]]);
    let window = select(vec![[1, 1], [3, 3], [3, 3], [5, 5], [7, 7], [1, 9]]);
    let measures = (channels, window, select(vec![1, 2]), select(vec![1, 2]), select(vec![56, 28, 14, 17]));
    (measures, select(formats), 0..5).prop_filter_map("measures that fit together", |(measures, dtype, which)| {
        let ([channels, filters], [r, s], stride, dilation, width) = measures;
        let base = ConvShape::new(8, [width, width, channels], [filters.max(channels), r, s]);
        let base = base.stride([stride; 2]).dilation([dilation; 2]).padding([dilation * (r / 2), dilation * (s / 2)]);
        let groups = if filters == 0 { channels } else { 1 };
        let convolution = Convolution::new(base.groups(groups)).ok()?;
        let kinds = [PoolKind::Max, PoolKind::Average, PoolKind::AverageOfTaps];
        let operation = match which {
            0 | 1 => Operation::Convolution { dtype, convolution },
            2 => Operation::ConvolutionGradient { dtype, convolution, of: GradientOf::Images },
            3 => Operation::ConvolutionGradient { dtype, convolution, of: GradientOf::Filters },
            _ => Operation::Pool { dtype, pooling: Pooling::new(kinds[width % 3], base).ok()? },
        };
        Some((operation, Shape::new(0, 0, 0)))
    })
}

/// Attention over queries and values of several widths, with and without a function of scores.
fn attention() -> impl Strategy<Value = (Operation, Shape)> {
    let of = (select(vec![F16, BF16]), select(vec![32, 64, 80, 128]), select(vec![32, 64, 128]), any::<bool>(), 0..4);
    of.prop_map(|(dtype, width, columns, causal, which)| {
        let of = Attention::new(width).sequences(2);
        let of = if causal { of.causal() } else { of };
        let scores = match which {
            0 => Some(Scores::build(|s| (s.acc() / 30.0).tanh() * 30.0)),
            1 => Some(Scores::build(|s| s.acc() + s.load("slopes", F32.over(L)) * (s.column() - s.row()).cast(F32))),
            2 => Some(Scores::build(|s| s.load("seen", Bool.over(N | S)).select(s.acc(), f32::NEG_INFINITY))),
            _ => None,
        };
        let of = scores.map_or(of, |scores| of.scores(&scores.expect("a function of scores")));
        (Operation::Attention { dtype, attention: of }, Shape::new(2 * 1024, columns, 2 * 1024).batched(8))
    })
}
