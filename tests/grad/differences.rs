//! Gradients are the limits of differences: of every activation, every recipe, and random graphs.

use crate::graphs::{Style, well_typed};
use crate::pairs;
use crate::problem::Problem;
use postlude::build::{activation, recipes};
use postlude::compat::cublaslt::{self, Formats};
use postlude::grad::{Keep, Wrt};
use postlude::prelude::*;
use postlude::{Builder, DType};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn epilogue(build: impl FnOnce(&Builder)) -> Epilogue {
    Epilogue::build(build).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn of_every_activation() {
    for &function in activation::ALL {
        let epilogue = pairs::of_activation(function, F32);
        let (mut smooth, mut all) = (0, 0);
        for seed in 0..4 {
            let (s, a) = Problem::new(&epilogue, seed).check(30, 1e-5);
            (smooth, all) = (smooth + s, all + a);
        }
        assert!(smooth * 10 >= all * 8, "{}: {smooth} of {all} elements are smooth", function.name);
        Problem::new(&epilogue, 4).at_zero().check(30, 1e-5);
    }
}

/// Constants of derivatives have every digit, and a conversion hands a gradient on in the type of what was converted.
#[test]
fn of_doubles() {
    for &function in activation::ALL {
        let (smooth, all) = Problem::new(&pairs::of_activation(function, F64), 3).check(30, 1e-8);
        assert!(smooth * 10 >= all * 7, "{}: {smooth} of {all} elements are smooth", function.name);
    }
    let mixed = epilogue(|e| {
        let z = e.acc().tanh().cast(F64) * e.load("w", F64.over(N));
        let r = e.row().lt(3).select(z, e.load("c", F64).sin().max(z));
        e.store("d", r.exp() * 0.1, F64);
        e.reduce("sums", (r * r).cast(F32), Monoid::Sum, F32.over(N));
        e.reduce("squares", r, Monoid::SumSquares, F64.over(M));
    });
    let (smooth, all) = Problem::new(&mixed, 5).check(30, 1e-5);
    assert!(smooth * 10 >= all * 8, "{smooth} of {all}");
}

/// Its value is positive on both sides of 0: only its argument tells them apart.
#[test]
fn of_an_elu_whose_alpha_is_negative() {
    let e = epilogue(|e| e.store("d", (e.acc() * e.load("w", F32.over(M))).elu(-0.5), F32));
    let mut problem = Problem::with(&e, Wrt::all().exact().keeps("d"), 6);
    let (smooth, all) = problem.check(30, 1e-5);
    assert!(smooth * 10 >= all * 9, "{smooth} of {all}");
}

#[test]
fn of_every_recipe() {
    let all = [
        recipes::identity(F32),
        recipes::linear_combination(F32, F32),
        recipes::linear_combination(Operand::from(F32).column_major(), F32),
        recipes::bias_activation(F32, F32, |z| z.relu()),
        recipes::bias_activation(F32, F32, |z| z.gelu()),
        recipes::bias_activation(F32, F32, |z| z.gelu_tanh()),
        recipes::bias_activation(F32, F32, |z| z.tanh()),
        recipes::residual(F32, F32, |z| z.silu()),
        recipes::scaled(F32),
        recipes::split_rows(F32, F32, |z| z.sigmoid(), |z| z.tanh()),
    ];
    for (seed, recipe) in all.into_iter().enumerate() {
        let (smooth, all) = Problem::new(&recipe.unwrap(), seed as u64).check(30, 1e-5);
        assert!(smooth * 10 >= all * 8, "recipe {seed}: {smooth} of {all}");
    }
}

/// But for the sums of operands, which are linear, and whose pass stores nothing that a gradient could come in through.
#[test]
fn of_every_epilogue_of_cublaslt() {
    let mut tested = 0;
    for named in cublaslt::ALL.iter().filter(|named| !matches!(named.name, "BGRADA" | "BGRADB")) {
        for c in [None, Some(F32)] {
            let epilogue = (named.build)(Formats { c, ..Formats::of(F32) }).unwrap();
            let (smooth, all) = Problem::new(&epilogue, u64::from(named.value)).check(30, 1e-5);
            assert!(smooth * 10 >= all * 9 && all >= 30, "{}: {smooth} of {all}", named.name);
            tested += 1;
        }
    }
    assert_eq!(tested, 2 * 14);
}

#[test]
fn of_operands_along_every_axis() {
    let e = epilogue(|e| {
        let z = e.acc() * e.load("row_scale", F32.over(M).batched()) + e.load("bias", F32.over(N));
        let z = z * e.load("gain", F32.pointer()) + e.load("entry", F32.over(L)) * e.scalar("alpha", F32);
        let z = z + e.load("shared", F32.over(M | N)) * e.load("turned", Operand::from(F32).column_major());
        e.store("d", z.tanh(), Operand::from(F32).column_major());
        e.reduce("norm", z * z, Monoid::Sum, F32.over(M));
        e.store("aux", z.sigmoid() * e.load("bias", F32.over(N)), F32);
    });
    let (smooth, all) = Problem::new(&e, 5).check(30, 1e-5);
    assert!(smooth * 10 >= all * 9 && all > 60, "{smooth} of {all}");
}

/// Products that are recomputed are fused with the sum or difference that uses them.
#[test]
fn of_products_less_something_that_are_computed_again() {
    type Build = for<'g> fn(Expr<'g>, Expr<'g>, Expr<'g>) -> Expr<'g>;
    let all: [Build; 3] = [|r, s, t| r * s - t, |r, s, t| t - r * s, |r, s, t| r * s + t];
    for (seed, build) in all.into_iter().enumerate() {
        let e = epilogue(|e| {
            let [r, s, t] = ["r", "s", "t"].map(|name| e.load(name, F32));
            e.store("d", e.acc() * build(r, s, t), F32);
        });
        assert!(e.backward(Wrt::accumulator()).unwrap().backward().to_string().contains("fma "));
        let (smooth, all) = Problem::new(&e, seed as u64).check(30, 1e-5);
        assert_eq!(smooth, all);
    }
}

#[test]
fn of_regions_and_coordinates() {
    let e = epilogue(|e| {
        let (z, row, column) = (e.acc() + e.load("bias", F32.over(N)), e.row(), e.column());
        let slope = e.scalar("slope", F32);
        let y = z
            .region(row.lt(1), |z| z.sigmoid())
            .region(column.lt(2), |z| z.leaky_relu(slope))
            .region(((row + column) % 2).eq(0), |z| z.gelu_tanh() * slope)
            .otherwise(|z| z * column.cast(F32) + e.batch().cast(F32));
        e.store("d", y, F32);
    });
    let (smooth, all) = Problem::new(&e, 9).check(30, 1e-5);
    assert!(smooth * 10 >= all * 8, "{smooth} of {all}");
}

/// The gradient of a sum of squares is twice the element, times that of the sum.
#[test]
fn of_sums_of_squares() {
    let e = epilogue(|e| {
        let z = e.acc() * e.load("w", F32.over(M)) + e.load("bias", F32.over(N));
        e.store("d", z.tanh(), F32);
        e.reduce("columns", z, Monoid::SumSquares, F32.over(N));
        e.reduce("all", z.sigmoid(), Monoid::SumSquares, F32.pointer());
    });
    let (smooth, all) = Problem::new(&e, 5).check(30, 1e-5);
    assert_eq!(smooth, all);
}

/// Tables are constants; gradients of everything else pass through what was gathered from them, and find the region again.
#[test]
fn of_values_beside_tables() {
    let e = epilogue(|e| {
        let slope = e.gather("slope", F32, e.load("expert", I32.over(M)).abs());
        let z = e.acc() * slope + e.load("bias", F32.over(N)) * e.gather("gain", F32, e.column() % 2);
        let smooth = e.gather("smooth", Bool, e.row());
        e.store("d", z.region(smooth, |z| z.gelu()).otherwise(|z| z.tanh()) + e.gather("shift", F32, e.row() - e.column()), F32);
    });
    let (smooth, all) = Problem::new(&e, 6).check(30, 1e-5);
    assert!(smooth * 10 >= all * 9 && all >= 30, "{smooth} of {all}");
}

#[test]
fn of_an_update_in_place_whose_old_values_are_gone() {
    let e = epilogue(|e| {
        let c = e.load("c", F32);
        e.store("c", c * c.tanh() + e.acc() * c, F32);
        e.store("d", e.acc() * c.exp(), F32);
    });
    let mut problem = Problem::new(&e, 2);
    // Both are saved: neither follows from the forward pass's outputs.
    assert_eq!(problem.pair.reserve().bits_per_element(), 64, "{}", problem.pair.forward());
    let (smooth, all) = problem.check(30, 1e-5);
    assert_eq!(smooth, all);
}

#[test]
fn of_a_custom_primitive() {
    let e = epilogue(|e| {
        let cap = e.constant(1.5);
        e.store("d", e.custom(&crate::softcap::softcap(), [e.acc() * e.load("w", F32.over(M)), cap]), F32);
    });
    let mut problem = Problem::new(&e, 4);
    let (smooth, all) = problem.check(30, 1e-5);
    assert!(smooth * 10 >= all * 9, "{smooth} of {all}");
    // The derivative is a primitive that a registry with the original knows.
    let registry = postlude::build::registry().with(crate::softcap::softcap());
    let backward = problem.pair.backward();
    assert!(backward.to_string().contains("custom softcap.d0#"), "{backward}");
    assert_eq!(Epilogue::from_json(&backward.to_json(), &registry).unwrap(), *backward);
    assert_eq!(Epilogue::from_text(&backward.to_string(), &registry).unwrap(), *backward);
}

#[test]
fn of_an_integer_product() {
    let e = epilogue(|e| {
        let z = e.acc_i32().cast(F32) * e.load("row_scale", F32.over(M)) * e.load("column_scale", F32.over(N));
        e.store("d", z.gelu_tanh(), F32);
    });
    let (smooth, all) = Problem::new(&e, 4).check(30, 1e-5);
    assert!(smooth * 10 >= all * 8 && all == 8, "{smooth} of {all}");
}

/// Compares some elements of so many random graphs; returns how many were smooth, how many there were, and how many graphs save
/// something.
fn random_graphs(style: Style, seed: u8, graphs: usize) -> (usize, usize, usize) {
    let (mut smooth, mut all, mut saved, mut draws) = (0, 0, 0, 0);
    for (draw, epilogue) in pairs::epilogues(style, seed).take(graphs) {
        let mut problem = Problem::new(&epilogue, draw);
        let (s, a) = problem.check(4, 2e-5);
        (smooth, all, draws) = (smooth + s, all + a, draw);
        saved += usize::from(!problem.pair.reserve().is_empty());
    }
    eprintln!("{graphs} of {draws} graphs, {smooth} of {all} elements smooth, {saved} with a reserve");
    (smooth, all, saved)
}

#[test]
fn of_random_graphs() {
    let (smooth, all, saved) = random_graphs(pairs::smooth(), 7, pairs::GRAPHS);
    assert!(smooth * 2 >= all && all > 4 * pairs::GRAPHS, "{smooth} of {all} elements are smooth");
    assert!(saved > pairs::GRAPHS / 5 && saved < pairs::GRAPHS, "{saved} graphs save something");
}

#[test]
fn of_random_graphs_with_poles_and_borders() {
    let (smooth, all, saved) = random_graphs(pairs::steep(), 11, 100);
    assert!(smooth * 3 >= all && all > 400, "{smooth} of {all} elements are smooth");
    assert!(saved > 20 && saved < 100, "{saved} graphs save something");
}

/// The gradient passes straight through a rounding and is taken at the rounded value; an operand of a narrow format has the
/// gradient of a wide one that holds the same numbers.
#[test]
fn of_roundings_and_narrow_operands() {
    for narrow in [F16, BF16] {
        let build = |dtype: DType| {
            epilogue(|e| {
                let z = if dtype == F32 { e.acc() } else { e.acc().cast(dtype) };
                let (w, residual) = (e.load("w", dtype.over(N)), e.load("residual", Operand::from(dtype).column_major()));
                e.store("d", (z * w).gelu_tanh() * residual.sigmoid() + w, F32);
            })
        };
        let (rounded, mut wide) = (Problem::new(&build(narrow), 3), Problem::new(&build(F32), 3));
        let widened = |name: &str, from: DType| {
            let bytes = &rounded.inputs[name];
            let mut out = vec![0; bytes.len() / from.size() * F32.size()];
            (0..bytes.len() / from.size()).for_each(|i| F32.write(&mut out, i, narrow.round(from.read(bytes, i))));
            out
        };
        for (name, from) in [("a", F32), ("w", narrow), ("residual", narrow)] {
            wide.inputs.insert(name.into(), widened(name, from));
        }
        assert_ne!(wide.inputs["a"], rounded.inputs["a"], "no accumulator is rounded to {narrow}");
        wide.weights.clone_from(&rounded.weights);
        let (smooth, all) = wide.check(30, 1e-5);
        assert!(smooth * 10 >= all * 9, "{smooth} of {all}");
        let (found, expected) = (rounded.gradients(), wide.gradients());
        assert_eq!(found.keys().collect::<Vec<_>>(), ["grad_acc", "grad_residual", "grad_w"]);
        for (name, expected) in &expected {
            for (x, y) in found[name].iter().zip(expected) {
                assert!((x - y).abs() <= 1e-6 * (1.0 + y.abs()), "{narrow} {name}: {x}, not {y}");
            }
        }
    }
}

#[test]
fn random_pairs_are_ordinary_epilogues() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let registry = postlude::build::registry().with(crate::softcap::softcap());
    let strategy = well_typed(Style {
        reductions: false,
        operand_sums: false,
        custom: Some(crate::softcap::softcap()),
        ..Style::everything()
    });
    let (mut pairs, mut refused) = (0, 0);
    for _ in 0..300 {
        let epilogue = Epilogue::from_graph(strategy.new_tree(&mut runner).unwrap().current()).unwrap();
        for wrt in [Wrt::all(), Wrt::accumulator().exact().masks(Bits128)] {
            // Anything may be refused, and nothing may panic.
            let Ok(pair) = epilogue.backward(wrt) else {
                refused += 1;
                continue;
            };
            pairs += 1;
            for half in [pair.forward(), pair.backward()] {
                assert_eq!(Epilogue::from_text(&half.to_string(), &registry).unwrap(), *half);
                assert_eq!(Epilogue::from_json(&half.to_json(), &registry).unwrap(), *half);
                assert!(!half.to_dot().is_empty());
            }
            // The forward epilogue is the user's and more.
            for sink in epilogue.graph().sinks() {
                assert!(pair.forward().graph().sinks().iter().any(|s| s.name == sink.name && s.kind == sink.kind));
            }
            let bits: usize = pair.reserve().values().iter().map(|v| v.operand.dtype.bits()).sum();
            assert_eq!(bits, pair.reserve().bits_per_element());
        }
    }
    assert!(pairs > 300, "{pairs} pairs, {refused} refused");
}

#[test]
fn a_rounded_reserve_costs_a_rounding() {
    // Differentiable ones: where a condition is computed again, rounding may move a value over its border.
    type Activation = fn(Expr<'_>) -> Expr<'_>;
    let all: [Activation; 5] = [|z| z.tanh(), |z| z.sigmoid(), |z| z.gelu(), |z| z.silu(), |z| z.mish()];
    for build in all {
        // In f32 saved exactly, and saved in f16 by hand.
        let epilogue = epilogue(|e| e.store("d", build(e.acc() * e.load("w", F32.over(N))), F32));
        let exact = Problem::new(&epilogue, 3).gradients();
        let saved = epilogue.backward(Wrt::all()).unwrap();
        let saved = saved.reserve().values()[0].value.clone();
        let id = epilogue.graph().nodes().find(|(id, _)| saved.starts_with(&format!("{id}:"))).expect("a value of the user's").0;
        let rounded = Problem::with(&epilogue, Wrt::all().pin(id, Keep::As(F16)), 3);
        assert_eq!(rounded.pair.reserve().bits_per_element(), 16);
        let rounded = rounded.gradients();
        let mut differs = false;
        for (name, exact) in &exact {
            for (exact, rounded) in exact.iter().zip(&rounded[name]) {
                differs |= exact != rounded;
                let off = (exact - rounded).abs() / (1.0 + exact.abs());
                assert!(off < 2e-2, "off by {off}");
            }
        }
        assert!(differs);
    }
}
