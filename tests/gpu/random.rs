//! Random graphs on random mainloops.

use crate::files::{gemms, with_scalars};
use crate::graphs::{Style, well_typed};
use postlude::prelude::*;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Graphs of each style. Compiling them is what takes the time.
const GRAPHS: usize = 40;

fn run(style: &Style, seed: u8) {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let graphs: Vec<_> = (0..GRAPHS).map(|_| well_typed(style.clone()).new_tree(&mut runner).unwrap().current()).collect();
    let failures: Vec<usize> = std::thread::scope(|scope| {
        let runs: Vec<_> = graphs
            .into_iter()
            .enumerate()
            .map(|(i, graph)| {
                scope.spawn(move || {
                    let epilogue = Epilogue::from_graph(graph).unwrap();
                    let gemms = gemms(&epilogue);
                    let gemm = &gemms[i % gemms.len()];
                    for (seed, shape) in [Shape::new(131, 72, 24), Shape::new(40, 33, 17).batched(2)].into_iter().enumerate() {
                        with_scalars(gemm, shape, (i * 2 + seed) as u64).slack(40.0).run();
                    }
                })
            })
            .collect();
        runs.into_iter().enumerate().filter_map(|(i, run)| run.join().err().map(|_| i)).collect()
    });
    assert!(failures.is_empty(), "failed: {failures:?}");
}

#[test]
fn over_floating_point_products() {
    run(&Style::tame(), 1);
}

#[test]
fn over_integer_products() {
    run(&Style::tame().integer(), 2);
}
