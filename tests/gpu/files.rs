//! Every epilogue of the file tests, on every mainloop.

use crate::case::Case;
use crate::layout::Rng;
use crate::monoids;
use crate::softcap::softcap;
use postlude::check::Role;
use postlude::dtype::ValueType;
use postlude::ir::Order;
use postlude::ir::graph::Node;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::problem::Operation;
use postlude::{Epilogue, Gemm};
use std::path::Path;

const SHAPES: [Shape; 3] = [Shape::new(140, 136, 40), Shape::new(67, 129, 33), Shape::new(40, 24, 16).batched(3)];

/// The gemms that an epilogue can be run with.
pub fn gemms(epilogue: &Epilogue) -> Vec<Gemm> {
    let mut gemms = match epilogue.checked().accumulator() {
        Some(ValueType::I32) => {
            vec![Gemm::new(I32, TN, epilogue), Gemm::new(I32, NT, epilogue), Gemm::pointwise(I32, Order::RowMajor, epilogue)]
        }
        Some(ValueType::F64) => {
            vec![Gemm::new(F64, TN, epilogue), Gemm::new(F64, NT, epilogue), Gemm::pointwise(F64, Order::RowMajor, epilogue)]
        }
        _ => vec![
            Gemm::new(F16, TN, epilogue),
            Gemm::new(BF16, TT, epilogue),
            Gemm::new(F32, NT, epilogue).tf32(true),
            Gemm::new(F32, NN, epilogue),
            Gemm::new(F16, NT, epilogue).mainloop(Mainloop::Simt),
            Gemm::pointwise(F32, Order::RowMajor, epilogue),
        ],
    };
    // A pointwise operation has no operands that could be summed.
    if epilogue.checked().graph().nodes().any(|(_, node)| matches!(node, Node::Element(..))) {
        gemms.retain(|gemm| matches!(gemm.operation(), Operation::Product { .. }));
    }
    gemms
}

/// A case with a value for every scalar.
pub fn with_scalars(gemm: &Gemm, shape: Shape, seed: u64) -> Case {
    let mut rng = Rng(seed);
    gemm.epilogue().arguments().iter().fold(Case::new(gemm, shape).seed(seed), |case, argument| match argument.role {
        Role::Scalar(ValueType::F32) => case.scalar(&argument.name, rng.unit() as f32),
        Role::Scalar(ValueType::F64) => case.scalar(&argument.name, rng.unit()),
        Role::Scalar(ValueType::I32) => case.scalar(&argument.name, (rng.bits() % 150) as i32),
        Role::Scalar(ValueType::Bool) => case.scalar(&argument.name, rng.bits() & 1 == 0),
        _ => case,
    })
}

fn run(name: &str, text: &str) {
    let registry = postlude::build::registry().with(softcap()).with_monoids(monoids::every());
    let epilogue = Epilogue::from_text(text, &registry).unwrap_or_else(|e| panic!("{name}: {e}"));
    // Sums of everything there is: each term brings its own error.
    let slack = if name.contains("primitives") { 1000.0 } else { 4.0 };
    for gemm in gemms(&epilogue) {
        for (seed, shape) in SHAPES.into_iter().enumerate() {
            with_scalars(&gemm, shape, seed as u64).slack(slack).run();
        }
    }
}

#[test]
fn every_file() {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into())).join("tests/epilogues");
    let folders = [root.clone(), root.join("sinks")];
    let mut paths: Vec<_> = folders.iter().flat_map(std::fs::read_dir).flatten().flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "evt"));
    assert!(!paths.is_empty(), "no epilogues under {}", root.display());
    let failures: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = paths
            .iter()
            .map(|path| {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                (name.clone(), scope.spawn(move || run(&name, &std::fs::read_to_string(path).unwrap())))
            })
            .collect();
        runs.into_iter().filter_map(|(name, run)| run.join().err().map(|_| name)).collect()
    });
    assert!(failures.is_empty(), "failed: {failures:?}");
}
