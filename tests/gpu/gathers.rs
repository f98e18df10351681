//! Tables read at an index of the graph, on every mainloop: along every axis, of every format, outside the table, and
//! as regions by data.

use crate::case::Case;
use crate::hopper::{cooperative, is_hopper, one_consumer, ping_pong};
use crate::layout::Rng;
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{DType, Epilogue, Gemm};

/// Aligned, ragged, smaller than a tile, and batched.
pub const SHAPES: [Shape; 4] =
    [Shape::new(264, 136, 72), Shape::new(301, 143, 33), Shape::new(5, 7, 9), Shape::new(70, 136, 40).batched(3)];

/// Every mainloop takes it. The schedules of Hopper's are asked for where there is one.
pub fn gemms(epilogue: &Epilogue) -> Vec<Gemm> {
    let mut gemms = vec![
        Gemm::new(F16, TN, epilogue),
        Gemm::new(BF16, NT, epilogue).mainloop(Mainloop::Sm80),
        Gemm::new(F32, NN, epilogue).tf32(true),
        Gemm::new(F32, TT, epilogue).mainloop(Mainloop::Simt),
        Gemm::pointwise(F16, Order::RowMajor, epilogue),
        Gemm::pointwise(F32, Order::ColumnMajor, epilogue),
    ];
    if is_hopper() {
        let tiles = [ping_pong(128, 128, 5), cooperative(128, 256, 4), one_consumer(64, 6)];
        gemms.extend(tiles.map(|tile| Gemm::new(F16, TN, epilogue).tile(tile)));
    }
    gemms
}

/// Few rows have a mainloop of their own, with its own tables of values by row and column.
fn run(epilogue: &Epilogue, change: impl Fn(Case) -> Case) {
    for gemm in gemms(epilogue) {
        SHAPES.into_iter().for_each(|shape| change(Case::new(&gemm, shape)).run());
    }
    for shape in [Shape::new(3, 136, 264), Shape::new(133, 2, 51)] {
        change(Case::new(&Gemm::new(F16, NT, epilogue).mainloop(Mainloop::Gemv), shape)).run();
    }
}

/// Indices of which most are of a table of a few elements, and some are as far outside as they can be.
fn index(rng: &mut Rng, _: DType) -> f64 {
    match rng.bits() % 16 {
        0 => f64::from(i32::MIN),
        1 => f64::from(i32::MAX),
        x => x as f64 - 4.0,
    }
}

fn sum(d: impl Into<Operand>) -> Epilogue {
    let d = d.into();
    Epilogue::build(|e| {
        let by_row = e.gather("slope", F16, e.load("expert", I32.over(M)));
        let by_column = e.gather("shift", BF16, e.load("group", I32.over(N).batched()));
        let by_batch = e.gather("head", F32, e.batch());
        let by_distance = e.gather("distance", F32, e.column() - e.row());
        let by_element = e.gather("slope", F16, e.load("index", I32));
        let keep = e.gather("keep", Bool, e.load("index", I32) + e.gather("offset", I32, e.scalar("which", I32)));
        let z = e.acc() * by_row + by_column + by_batch + by_distance + by_element;
        e.store("d", keep.select(z, -1.0), d);
    })
    .unwrap()
}

#[test]
fn along_every_axis() {
    for d in [Operand::from(F16), F32.into(), F32.column_major()] {
        run(&sum(d), |case| {
            let case = case.fill("expert", index).fill("group", index).fill("index", index).scalar("which", 2);
            case.length("slope", 7).length("shift", 9).length("head", 2).length("offset", 3).length("keep", 100)
        });
    }
}

/// Longer than either side, one element, none; and from where no element is aligned to more than its size.
#[test]
fn tables_of_any_length_anywhere() {
    for length in [0, 1, 4, 1000] {
        run(&sum(F16), |case| {
            let case = case.fill("expert", index).fill("index", index).scalar("which", -1).origin(-3, 2, 1);
            ["slope", "shift", "head", "distance", "keep"]
                .iter()
                .fold(case, |case, name| case.length(name, length).offset(name, 3))
        });
    }
}

#[test]
fn indices_are_computed() {
    let epilogue = Epilogue::build(|e| {
        let bucket = (e.column() - e.row()).abs() / 8;
        let z = e.acc() + e.gather("bias", F32, bucket.min(31));
        let level = e.gather("level", F32, e.gather("class", I32, e.row() % 5) * 3);
        e.store("d", z * level, F16);
        e.reduce("sums", e.gather("level", F32, e.row()), Monoid::Sum, F32.over(N));
    })
    .unwrap();
    run(&epilogue, |case| case.length("bias", 32).length("class", 4).fill("class", |rng, _| (rng.bits() % 4) as f64));
}

/// Data choose each row's activation: a vector, and a table indexed by another vector.
fn regions() -> Epilogue {
    Epilogue::build(|e| {
        let smooth = e.gather("smooth", Bool, e.load("expert", I32.over(M)));
        let z = e.acc() + e.load("bias", F16.over(N));
        let y = z.region(e.load("kind", I32.over(M)).eq(1), |z| z.tanh()).region(smooth, |z| z.gelu());
        e.store("d", y.otherwise(|z| z.silu()), F16);
    })
    .unwrap()
}

#[test]
fn regions_by_data() {
    run(&regions(), |case| {
        let case = case.fill("expert", index).fill("kind", |rng, _| (rng.bits() % 2) as f64);
        case.length("smooth", 6)
    });
}
