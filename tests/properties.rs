//! Properties of random graphs: the check never panics, the text and JSON forms lose nothing, passes keep the meaning.
//! And of random problems and tiles: planning never panics.

#[path = "support/evaluate.rs"]
mod evaluate;
#[path = "support/graphs.rs"]
mod graphs;
#[path = "support/monoids.rs"]
mod monoids;
#[path = "support/softcap.rs"]
mod softcap;

use evaluate::evaluate;
use graphs::{Style, arbitrary, well_typed};
use postlude::args::{Slot, SlotKind, slots};
use postlude::build::recipes;
use postlude::check::{Checked, check};
use postlude::dtype::ValueType;
use postlude::ir::op::Signature;
use postlude::ir::{Graph, Monoid, Node, NodeId, Sink, SinkKind, text, wire};
use postlude::pass::{fold, inline, transpose};
use postlude::plan::{Problem, Schedule, Tile, TileShape};
use postlude::prelude::*;
use postlude::reference::oracle;
use postlude::target::Target;
use postlude::{Attention, Epilogue, Operation, Registry, Scores};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::FileFailurePersistence;
use std::sync::Arc;

fn registry() -> Registry {
    postlude::build::registry().with(softcap::softcap()).with_monoids(monoids::every())
}

/// Floating-point and integer products alike.
fn any_well_typed() -> impl Strategy<Value = Graph> {
    prop_oneof![
        3 => well_typed(Style::everything()),
        1 => well_typed(Style::everything().integer()),
        1 => well_typed(Style::tame()),
    ]
}

/// Unescaped quotes come in pairs on every line.
fn quotes_balance(dot: &str) -> bool {
    dot.lines().all(|line| {
        let (mut open, mut escaped) = (false, false);
        for c in line.chars() {
            match c {
                _ if escaped => escaped = false,
                '\\' if open => escaped = true,
                '"' => open = !open,
                _ => {}
            }
        }
        !open && !escaped
    })
}

/// Whether a pass should have made this node a constant or one of its arms.
fn is_foldable(graph: &Graph, node: &Node) -> bool {
    let Node::Apply { op, args } = node else { return false };
    let constant = |i: usize| matches!(graph.node(args[i]), Node::Constant(_));
    let integers = args.iter().all(|a| matches!(graph.node(*a), Node::Constant(c) if c.value_type().name() == "i32"));
    let exact = op.row().ulp == 0 || integers && op.row().eval_i32.is_some();
    let chosen = op.row().signature == Signature::Select && constant(0);
    chosen || exact && (0..args.len()).all(constant)
}

fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan())
}

const ELEMENTS: [(i32, i32, i32); 5] = [(0, 0, 0), (1, 0, 1), (3, 200, 0), (127, 64, 2), (5000, 129, 1)];

fn sink_types(checked: &Checked) -> Vec<postlude::check::Type> {
    checked.graph().sinks().iter().map(|s| checked.type_of(s.value())).collect()
}

/// What a function of scores may be.
fn of_scores() -> Style {
    Style { reductions: false, operand_sums: false, tame: true, ..Style::everything() }
}

/// A graph with one store of a value, which prunes what that does not need.
fn storing(graph: &Graph, value: NodeId, operand: Operand) -> Graph {
    let mut out = Graph::new();
    graph.nodes().for_each(|(_, node)| {
        out.push(node.clone(), None);
    });
    out.sink(Sink::new("scores", value, SinkKind::Store(operand)), None);
    graphs::pruned(&out)
}

/// Numbers for every argument.
fn filled(slots: &[Slot], seed: u64) -> Vec<(Arc<str>, DType, Vec<u8>)> {
    let mut state = seed | 1;
    let mut number = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / (1u64 << 23) as f64 * 1.5 - 1.5
    };
    let mut of = |dtype: DType, count: usize| {
        let mut bytes = vec![0; dtype.bytes(count)];
        (0..count).for_each(|i| dtype.write(&mut bytes, i, number()));
        (dtype, bytes)
    };
    let filled = slots.iter().filter_map(|slot| {
        let (dtype, bytes) = match &slot.kind {
            SlotKind::Memory { dtype, outer, inner, batch, .. } => {
                of(*dtype, inner.next_multiple_of(dtype.run()) * outer * batch.unwrap_or(1))
            }
            SlotKind::Table { dtype, .. } => of(*dtype, 11),
            SlotKind::Scalar(_) => return None,
        };
        Some((slot.name.clone(), dtype, bytes))
    });
    filled.collect()
}

/// Arguments that read these numbers.
fn given<'a>(slots: &[Slot], numbers: &'a [(Arc<str>, DType, Vec<u8>)], outputs: &'a mut [u8]) -> HostArgs<'a> {
    let mut outputs = Some(outputs);
    slots.iter().fold(HostArgs::new(), |args, slot| match &slot.kind {
        SlotKind::Scalar(ValueType::F32) => args.scalar(&slot.name, 0.75f32),
        SlotKind::Scalar(ValueType::F64) => args.scalar(&slot.name, 0.75),
        SlotKind::Scalar(ValueType::I32) => args.scalar(&slot.name, 2),
        SlotKind::Scalar(ValueType::Bool) => args.scalar(&slot.name, true),
        SlotKind::Memory { written: true, dtype, .. } => {
            args.output(&slot.name, Tensor::of_bytes_mut(*dtype, outputs.take().expect("one output")))
        }
        _ => {
            let (_, dtype, bytes) = numbers.iter().find(|(name, ..)| *name == slot.name).expect("numbers");
            args.input(&slot.name, Tensor::of_bytes(*dtype, bytes))
        }
    })
}

/// Compares an attention with the softmax and the mean of scores that an epilogue stored.
fn agree(graph: &Graph, result: NodeId, seed: u64) -> Result<(), TestCaseError> {
    const QUERIES: usize = 3;
    const KEYS: usize = 7;
    const COLUMNS: usize = 2;
    const HEADS: usize = 2;
    const WIDTH: usize = 4;
    let fail = |faults: String| TestCaseError::fail(faults);
    let stored = check(storing(graph, result, F32.into())).map_err(|faults| fail(faults.to_string()))?;
    let operand = F32.over(M | N | L | S);
    let scores = Scores::from_graph(storing(graph, result, operand)).map_err(|faults| fail(faults.to_string()))?;
    let plain = Epilogue::build(|e| e.store("result of attention", e.acc(), F32)).unwrap();
    let attention = Operation::Attention { dtype: F32, attention: Attention::new(WIDTH).scaled(1.0).scores(&scores) };
    let shape = Shape::new(QUERIES, COLUMNS, KEYS).batched(HEADS);
    let own = slots(attention, plain.checked(), shape);
    let mut numbers = filled(&own, seed);
    // The product's B are the keys.
    let (product, of_product) = (Operation::product(F32, TN), Shape::new(QUERIES, KEYS, WIDTH).batched(HEADS));
    let theirs = slots(product, &stored, of_product);
    let mut room = vec![0u8; 4 * QUERIES * KEYS * HEADS];
    let found = {
        let args = given(&own, &numbers, &mut room[..4 * QUERIES * COLUMNS * HEADS]);
        oracle(attention, plain.checked(), shape, &args).map_err(|errors| fail(errors.to_string()))?
    };
    let values = numbers.iter().find(|(name, ..)| &**name == "b").expect("values").2.clone();
    let keys = numbers.iter().find(|(name, ..)| &**name == "keys").expect("keys").2.clone();
    numbers.iter_mut().filter(|(name, ..)| &**name == "b").for_each(|(.., bytes)| bytes.clone_from(&keys));
    let in_memory = {
        let args = given(&theirs, &numbers, &mut room);
        oracle(product, &stored, of_product, &args).map_err(|errors| fail(errors.to_string()))?
    };
    for (head, query, column) in
        (0..HEADS * QUERIES * COLUMNS).map(|i| (i / (QUERIES * COLUMNS), i / COLUMNS % QUERIES, i % COLUMNS))
    {
        let scores: Vec<f64> = (0..KEYS).map(|key| in_memory.outputs[0].at(query, key, head)).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let value = |key: usize| F32.read(&values, (head * KEYS + key) * COLUMNS + column);
        let all: f64 = powers.iter().sum();
        let hidden = scores.iter().all(|score| *score == f64::NEG_INFINITY);
        let mean: f64 = powers.iter().enumerate().map(|(key, power)| power / all * value(key)).sum();
        let (expected, found) = (if hidden { 0.0 } else { mean }, found.outputs[0].at(query, column, head));
        let near = (found - expected).abs() <= 1e-9 * (1.0 + expected.abs()) || found.is_nan() && expected.is_nan();
        prop_assert!(near, "{found}, not {expected}, of {scores:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_check_reports_and_never_panics(graph in arbitrary()) {
        if let Err(diagnostics) = check(graph.clone()) {
            prop_assert!(diagnostics.iter().count() > 0);
            for diagnostic in &diagnostics {
                prop_assert!(diagnostic.code().starts_with('E') && diagnostic.code().len() == 5);
                prop_assert!(!diagnostic.message().is_empty() && !diagnostic.cure().is_empty());
                let printed = diagnostic.to_string();
                prop_assert!(printed.starts_with("error[E") && printed.lines().last().unwrap_or("").starts_with("   = help: "));
                prop_assert!(printed.chars().all(|c| c == '\n' || !c.is_control()), "{printed:?}");
            }
            prop_assert_eq!(diagnostics.to_string(), check(graph).unwrap_err().to_string());
        }
    }

    #[test]
    fn a_graph_that_keeps_no_rule_is_still_written_and_read(graph in arbitrary()) {
        let printed = text::print(&graph, |_| None);
        let parsed = text::parse(&printed, &registry()).unwrap();
        prop_assert_eq!(&parsed.graph, &graph);
        prop_assert_eq!(text::print(&parsed.graph, |_| None), printed);
        prop_assert_eq!(parsed.lines.len(), graph.len() + graph.sinks().len());
        let json = serde_json::to_string(&wire::Document::of(&graph)).unwrap();
        let document: wire::Document = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&document.into_graph(&registry()).unwrap(), &graph);
        let dot = postlude::ir::dot::dot(&graph, |_| "\"type\\".into());
        prop_assert!(quotes_balance(&dot), "{dot}");
    }

    #[test]
    fn a_well_typed_graph_passes_and_round_trips(graph in any_well_typed()) {
        let epilogue = Epilogue::from_graph(graph).map_err(|d| TestCaseError::fail(d.to_string()))?;
        let printed = epilogue.to_string();
        let read = Epilogue::from_text(&printed, &registry()).unwrap();
        prop_assert_eq!(&read, &epilogue);
        prop_assert_eq!(read.to_string(), printed);
        let json = epilogue.to_json();
        let read = Epilogue::from_json(&json, &registry()).unwrap();
        prop_assert_eq!(&read, &epilogue);
        prop_assert_eq!(read.to_json(), json);
        prop_assert!(quotes_balance(&epilogue.to_dot()));
    }

    #[test]
    fn a_function_of_scores_says_what_an_epilogue_of_the_scores_says(graph in well_typed(of_scores()), seed in any::<u64>()) {
        let checked = check(graph).unwrap();
        let sinks = checked.graph().sinks().iter().map(|sink| sink.value());
        let result = sinks.rev().find(|value| checked.type_of(*value).value == ValueType::F32);
        prop_assume!(result.is_some());
        agree(checked.graph(), result.unwrap(), seed)?;
    }

    #[test]
    fn inlining_leaves_no_call_and_keeps_types(graph in any_well_typed()) {
        let checked = check(graph).unwrap();
        let inlined = inline(&checked);
        let calls = inlined.graph().nodes().filter(|(_, n)| matches!(n, Node::Call { .. })).count();
        prop_assert_eq!(calls, 0);
        prop_assert_eq!(inlined.arguments(), checked.arguments());
        prop_assert_eq!(sink_types(&inlined), sink_types(&checked));
        let again = inline(&inlined);
        prop_assert_eq!(again.graph(), inlined.graph());
        // It is still a graph that the check accepts.
        prop_assert!(check(graphs::pruned(inlined.graph())).is_ok());
    }

    #[test]
    fn folding_leaves_nothing_to_fold_and_the_same_values(graph in any_well_typed()) {
        let inlined = inline(&check(graph).unwrap());
        let folded = fold(&inlined);
        let done = folded.graph().nodes().all(|(_, n)| !is_foldable(folded.graph(), n));
        prop_assert!(done, "{}", text::print(folded.graph(), |_| None));
        prop_assert_eq!(folded.arguments(), inlined.arguments());
        for (after, before) in sink_types(&folded).into_iter().zip(sink_types(&inlined)) {
            prop_assert_eq!(after.value, before.value);
            // An arm that is never taken may have varied along more.
            prop_assert!(before.axes.contains(after.axes));
        }
        for (row, column, batch) in ELEMENTS {
            let (before, after) = (evaluate(&inlined, row, column, batch), evaluate(&folded, row, column, batch));
            prop_assert!(same(&before, &after), "{before:?} became {after:?}");
        }
    }

    #[test]
    fn transposing_turns_everything_and_twice_is_nothing(graph in any_well_typed()) {
        let checked = inline(&check(graph).unwrap());
        let transposed = transpose(&checked);
        for (after, before) in sink_types(&transposed).into_iter().zip(sink_types(&checked)) {
            prop_assert_eq!((after.value, after.axes), (before.value, before.axes.transposed()));
        }
        // The roles of arguments are turned by the pass, and follow from the graph as well.
        let anew = check(transposed.graph().clone()).unwrap();
        prop_assert_eq!(transposed.arguments(), anew.arguments());
        for (row, column, batch) in ELEMENTS {
            let (before, after) = (evaluate(&checked, row, column, batch), evaluate(&transposed, column, row, batch));
            prop_assert!(same(&before, &after), "{before:?} became {after:?}");
        }
        prop_assert_eq!(transpose(&transposed), checked);
    }
}

/// Numbers at which arithmetic goes wrong.
fn number() -> impl Strategy<Value = usize> {
    let edges = [
        0,
        1,
        2,
        3,
        8,
        16,
        32,
        64,
        100,
        128,
        192,
        256,
        1000,
        4096,
        65_535,
        Shape::LARGEST,
        Shape::LARGEST + 1,
        1 << 32,
        1 << 62,
        usize::MAX,
    ];
    prop_oneof![4 => 0..edges.len() - 5, 1 => 0..edges.len()].prop_map(move |i| edges[i])
}

fn rows() -> impl Strategy<Value = TileShape> {
    let numbers = [number(), number(), number(), number(), number(), number()];
    (numbers, [any::<bool>(), any::<bool>()]).prop_map(|([group, span, together, cluster, depth, bytes], [ahead, whole])| {
        TileShape::Rows { group, span, together, ahead, whole, cluster, copies: [depth, bytes] }
    })
}

fn tile() -> impl Strategy<Value = Tile> {
    let shape =
        prop_oneof![
            [number(), number(), number()].prop_map(|[bk, tm, tn]| TileShape::Simt { bk, tm, tn }),
            [number(), number(), number(), number()].prop_map(|[bk, stages, warps_m, warps_n]| TileShape::Sm80 {
                bk,
                stages,
                warps_m,
                warps_n
            }),
            ([number(), number(), number(), number(), number()], any::<bool>()).prop_map(
                |([bk, stages, consumers, m, n], turns)| {
                    let schedule = if turns { Schedule::PingPong } else { Schedule::Cooperative };
                    TileShape::Sm90a { bk, stages, consumers, schedule, cluster: [m, n], splits_k: false }
                }
            ),
            [number(), number(), number(), number(), number()]
                .prop_map(|[lines, line, terms, warps_m, warps_n]| TileShape::Bands { lines, line, terms, warps_m, warps_n }),
            ([number(), number(), number()], any::<bool>()).prop_map(|([keys, stages, width], wgmma)| TileShape::Attention {
                keys,
                stages,
                width,
                wgmma
            }),
            [number(), number()].prop_map(|[run, taps]| TileShape::Depthwise { run, taps }),
            [number(), number(), number(), number(), number(), number()].prop_map(
                |[lines, line, terms, pixels, warps_n, warps_k]| {
                    TileShape::BandsFilters { lines, line, terms, pixels, warps_n, warps_k }
                }
            ),
            [number(), number(), number(), number(), number(), number(), number()].prop_map(
                |[vector, lanes, run, rows, y, x, parts]| {
                    TileShape::DepthwiseFilters { vector, lanes, run, rows, window: [y, x], parts }
                }
            ),
            [number(), number(), number(), number(), number(), number(), number()].prop_map(
                |[run, across, groups, rows, stages, line, taps]| {
                    TileShape::DepthwiseLines { run, across, groups, rows, stages, line, taps }
                }
            ),
            (number(), prop_oneof![Just(0), number()]).prop_map(|(cluster, stages)| TileShape::Gemv { cluster, stages }),
            Just(TileShape::Pointwise),
            rows(),
            [number(), number(), number(), number()].prop_map(|[band, cluster, bytes, together]| TileShape::Groups {
                band,
                cluster,
                bytes,
                together
            }),
        ];
    ([number(), number(), number(), number()], shape).prop_map(|([bm, bn, threads, min_blocks], shape)| Tile {
        bm,
        bn,
        shape,
        threads,
        min_blocks,
    })
}

/// A tile with another number at a place.
fn changed(mut tile: Tile, (place, number): (usize, usize)) -> Tile {
    let Tile { bm, bn, shape, threads, min_blocks } = &mut tile;
    let mut numbers = vec![bm, bn, threads, min_blocks];
    match shape {
        TileShape::Simt { bk, tm, tn } => numbers.extend([bk, tm, tn]),
        TileShape::Sm80 { bk, stages, warps_m, warps_n } => numbers.extend([bk, stages, warps_m, warps_n]),
        TileShape::Sm90a { bk, stages, consumers, schedule: _, cluster: [m, n], .. } => {
            numbers.extend([bk, stages, consumers, m, n])
        }
        TileShape::Attention { keys, stages, width, wgmma: _ } => numbers.extend([keys, stages, width]),
        TileShape::Bands { lines, line, terms, warps_m, warps_n } => numbers.extend([lines, line, terms, warps_m, warps_n]),
        TileShape::Depthwise { run, taps } => numbers.extend([run, taps]),
        TileShape::BandsFilters { lines, line, terms, pixels, warps_n, warps_k } => {
            numbers.extend([lines, line, terms, pixels, warps_n, warps_k]);
        }
        TileShape::DepthwiseFilters { vector, lanes, run, rows, window: [y, x], parts } => {
            numbers.extend([vector, lanes, run, rows, y, x, parts]);
        }
        TileShape::DepthwiseLines { run, across, groups, rows, stages, line, taps } => {
            numbers.extend([run, across, groups, rows, stages, line, taps]);
        }
        TileShape::Gemv { cluster, stages } => numbers.extend([cluster, stages]),
        TileShape::Pointwise => {}
        TileShape::Rows { group, span, together, ahead: _, whole: _, cluster, copies: [depth, bytes] } => {
            numbers.extend([group, span, together, cluster, depth, bytes]);
        }
        TileShape::Groups { band, cluster, bytes, together } => numbers.extend([band, cluster, bytes, together]),
    }
    let place = place % numbers.len();
    *numbers[place] = number;
    tile
}

fn problem() -> impl Strategy<Value = Problem> {
    let strides = proptest::collection::vec((select(vec!["a", "b", "c", "d", "mask"]), 0..3, number()), 0..4);
    ([number(), number(), number(), number()], strides).prop_map(|([m, n, k, batch], strides)| {
        strides.into_iter().fold(Problem::new(m, n, k).batched(batch), |problem, (name, what, x)| match what {
            0 => problem.ld(name, x),
            1 => problem.batch_stride(name, x),
            _ => problem.align(name, 1 << (x % 9)),
        })
    })
}

/// A plan whose words and source can be had, or a refusal in words.
fn plans_or_refuses(gemm: &Gemm, target: Target, multiprocessors: usize, problem: &Problem) -> Result<(), TestCaseError> {
    match gemm.kernel_plan(target, multiprocessors, problem.clone()) {
        Ok(plan) => {
            prop_assert!(plan.shared_memory() <= target.shared_memory_per_block_opt_in() as usize);
            prop_assert!(plan.source().is_ok() && !plan.explain().is_empty());
            let _ = plan.grid(problem.shape);
        }
        Err(error) => prop_assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn planning_refuses_or_plans_and_never_panics(
        problem in problem(),
        any_tile in tile(),
        (index, change) in (any::<Index>(), (0..9usize, number())),
        target in select(vec![Target::SM_75, Target::SM_80, Target::SM_90A]),
        layout in select(Layout::ALL.to_vec()),
        parts in proptest::option::of(number()),
        multiprocessors in number(),
    ) {
        let everything = Epilogue::build(|e| {
            let z = e.acc() + e.load("c", F16.column_major());
            e.store("d", z.relu(), F16);
            e.store("mask", z.gt(0.0), DType::Bits128);
            e.reduce("sum", z, Monoid::Sum, F32.over(N));
        });
        for epilogue in [everything.unwrap(), recipes::identity(F16).unwrap()] {
            let gemm = Gemm::new(F16, layout, &epilogue);
            let gemm = parts.map_or(gemm.clone(), |parts| gemm.split_k(parts));
            // A tile of random numbers is seldom legal. A legal tile with one changed number often still is.
            let ordinary = Gemm::new(F16, layout, &epilogue).kernel_plan(target, 132, Shape::new(300, 4096, 512)).unwrap();
            let known: Vec<Tile> = ordinary.choice.candidates().map(|(tile, _)| tile).collect();
            for gemm in [gemm.clone(), gemm.clone().tile(any_tile), gemm.tile(changed(*index.get(&known), change))] {
                plans_or_refuses(&gemm, target, multiprocessors, &problem)?;
            }
        }
        let softmax = recipes::softmax(recipes::Mask::Causal, F16).unwrap();
        let rows = Gemm::pointwise(F16, Order::RowMajor, &softmax);
        let ordinary = rows.kernel_plan(target, 132, Shape::matrix(300, 4096)).unwrap();
        let known: Vec<Tile> = ordinary.choice.candidates().map(|(tile, _)| tile).collect();
        let changed = rows.clone().tile(changed(*index.get(&known), change));
        for gemm in [rows.clone(), rows.tile(any_tile), changed, Gemm::new(F16, layout, &softmax)] {
            plans_or_refuses(&gemm, target, multiprocessors, &problem)?;
        }
    }
}
