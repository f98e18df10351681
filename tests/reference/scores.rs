//! Functions of scores: against plain loops, in every form, and what they refuse.

use crate::support::Numbers;
use postlude::args::{ArgumentFault, Misfit};
use postlude::build::registry;
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{Attention, Operation, Scores};

const HEADS: usize = 2;
const SEQUENCES: usize = 3;
const QUERIES: usize = 5;
const KEYS: usize = 7;

/// Where a score lies.
struct At {
    query: usize,
    key: usize,
    head: usize,
    sequence: usize,
}

/// Arrays of a launch by their names, and what a score becomes.
struct Function {
    name: &'static str,
    scores: Scores,
    arrays: Vec<(&'static str, Vec<f32>)>,
    direct: fn(&Function, f64, &At) -> f64,
}

impl Function {
    fn element(&self, name: &str, index: usize) -> f64 {
        f64::from(self.arrays.iter().find(|(known, _)| *known == name).expect("an array").1[index])
    }
}

fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut numbers = Numbers(seed);
    (0..len).map(|_| half::f16::from_f64(numbers.between(-1.5, 1.5)).to_f32()).collect()
}

/// Numbers from 0 to 2, as documents have them.
fn documents(seed: u64, len: usize) -> Vec<f32> {
    numbers(seed, len).into_iter().map(|x| (x * 2.0).rem_euclid(3.0).floor()).collect()
}

fn functions() -> Vec<Function> {
    let hidden = f32::NEG_INFINITY;
    let scores = |build: for<'g> fn(&'g Builder) -> Expr<'g>| Scores::build(build).unwrap();
    vec![
        Function { name: "nothing", scores: scores(|s| s.acc()), arrays: Vec::new(), direct: |_, score, _| score },
        Function {
            name: "soft cap",
            scores: scores(|s| (s.acc() / 2.0).tanh() * 2.0),
            arrays: Vec::new(),
            direct: |_, score, _| (score / 2.0).tanh() * 2.0,
        },
        Function {
            name: "alibi",
            scores: scores(|s| s.acc() + s.load("slopes", F32.over(L)) * (s.column() - s.row()).cast(F32)),
            arrays: vec![("slopes", numbers(1, HEADS))],
            direct: |of, score, at| score + of.element("slopes", at.head) * (at.key as f64 - at.query as f64),
        },
        Function {
            name: "window",
            scores: scores(|s| {
                let back = s.row() - s.column();
                (back.ge(0) & back.lt(3)).select(s.acc(), f32::NEG_INFINITY)
            }),
            arrays: Vec::new(),
            direct: |_, score, at| if at.key <= at.query && at.query < at.key + 3 { score } else { f64::NEG_INFINITY },
        },
        Function {
            name: "padding",
            scores: scores(|s| s.acc() + s.load("padding", F32.over(N | S))),
            arrays: vec![("padding", {
                let far = |x: f32| if x > 0.0 { 0.0 } else { hidden };
                let mut padding: Vec<f32> = numbers(2, SEQUENCES * KEYS).into_iter().map(far).collect();
                padding[KEYS..2 * KEYS].fill(hidden); // a sequence of padding alone
                padding
            })],
            direct: |of, score, at| score + of.element("padding", at.sequence * KEYS + at.key),
        },
        Function {
            name: "documents",
            scores: scores(|s| {
                let same = s.load("of_query", F32.over(M | S)).eq(s.load("of_key", F32.over(N | S)));
                same.select(s.acc(), f32::NEG_INFINITY)
            }),
            arrays: vec![("of_query", documents(3, SEQUENCES * QUERIES)), ("of_key", documents(4, SEQUENCES * KEYS))],
            direct: |of, score, at| {
                let query = of.element("of_query", at.sequence * QUERIES + at.query);
                if query == of.element("of_key", at.sequence * KEYS + at.key) { score } else { f64::NEG_INFINITY }
            },
        },
        Function {
            name: "bias of each head, of each sequence, and of both",
            scores: scores(|s| {
                let bias = s.load("of_heads", F32) + s.load("of_sequences", F32.over(M | N | S));
                s.acc() + bias * s.load("all", F32.over(M | N)) + s.load("both", F32.over(M | N | L | S).column_major())
            }),
            arrays: vec![
                ("of_heads", numbers(5, HEADS * QUERIES * KEYS)),
                ("of_sequences", numbers(6, SEQUENCES * QUERIES * KEYS)),
                ("all", numbers(7, QUERIES * KEYS)),
                ("both", numbers(8, SEQUENCES * HEADS * QUERIES * KEYS)),
            ],
            direct: |of, score, at| {
                let element = |name, entry| of.element(name, (entry * QUERIES + at.query) * KEYS + at.key);
                let turned = (at.sequence * HEADS + at.head) * QUERIES * KEYS + at.key * QUERIES + at.query;
                let bias = element("of_heads", at.head) + element("of_sequences", at.sequence);
                score + bias * element("all", 0) + of.element("both", turned)
            },
        },
        Function {
            name: "a table, and every coordinate",
            scores: scores(|s| {
                let distance = s.gather("table", F32, s.row() - s.column() + 6);
                s.acc() * distance + (s.batch() * 2 + s.sequence()).cast(F32) * s.column().cast(F32) * 0.25
            }),
            arrays: vec![("table", numbers(9, QUERIES + KEYS - 1))],
            direct: |of, score, at| {
                let rest = (at.head * 2 + at.sequence) as f64 * at.key as f64 * 0.25;
                score * of.element("table", at.query + 6 - at.key) + rest
            },
        },
        Function {
            name: "very negative, and not minus infinity",
            scores: scores(|s| s.row().lt(2).select(f32::MIN, s.acc() - 1e4)),
            arrays: Vec::new(),
            direct: |_, score, at| if at.query < 2 { f64::from(f32::MIN) } else { score - 1e4 },
        },
    ]
}

fn plain() -> Epilogue {
    Epilogue::build(|e| e.store("d", e.acc(), F32)).unwrap()
}

#[test]
fn they_are_what_plain_loops_say() {
    const WIDTH: usize = 4;
    let (m, k, n) = (SEQUENCES * QUERIES, SEQUENCES * KEYS, 3);
    let shape = Shape::new(m, n, k).batched(HEADS);
    let [q, keys, v] = [(10, m * WIDTH), (11, k * WIDTH), (12, k * n)].map(|(seed, len)| numbers(seed, len * HEADS));
    for function in functions() {
        for causal in [false, true] {
            let of = Attention::new(WIDTH).scaled(0.75).sequences(SEQUENCES).scores(&function.scores);
            let of = if causal { of.causal() } else { of };
            let mut d = vec![f32::NAN; m * n * HEADS];
            let args = || HostArgs::new().input("a", &q).input("keys", &keys).input("b", &v);
            let args = || {
                function.arrays.iter().fold(args(), |args, (name, array)| {
                    let name = name.to_string();
                    args.input(&name, array)
                })
            };
            let operation = Operation::Attention { dtype: F32, attention: of };
            let mut scratch = d.clone();
            let exact = oracle(operation, plain().checked(), shape, &args().output("d", &mut scratch)).unwrap();
            run(operation, plain().checked(), shape, args().output("d", &mut d), Precision::F32).unwrap();
            for (index, found) in d.iter().enumerate() {
                let (head, row, column) = (index / (m * n), index / n % m, index % n);
                let (sequence, query) = (row / QUERIES, row % QUERIES);
                let line = |of: &[f32], lines: usize, line: usize| -> Vec<f64> {
                    of[(head * lines + line) * WIDTH..][..WIDTH].iter().map(|x| f64::from(*x)).collect()
                };
                let scores: Vec<f64> = (0..if causal { KEYS.min(query + 1) } else { KEYS })
                    .map(|key| {
                        let of_key = line(&keys, k, sequence * KEYS + key);
                        let product: f64 = line(&q, m, row).iter().zip(of_key).map(|(x, y)| x * y).sum();
                        (function.direct)(&function, 0.75 * product, &At { query, key, head, sequence })
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
                let value = |key: usize| f64::from(v[(head * k + sequence * KEYS + key) * n + column]);
                let sum: f64 = powers.iter().sum();
                let expected = match largest == f64::NEG_INFINITY {
                    true => 0.0,
                    false => powers.iter().enumerate().map(|(key, power)| power / sum * value(key)).sum(),
                };
                let words = || format!("{} ({causal}) at {index}: {found}, not {expected}", function.name);
                assert!((f64::from(*found) - expected).abs() <= 2e-3 * (1.0 + expected.abs()), "{}", words());
                let found = exact.outputs[0].at(row, column, head);
                assert!((found - expected).abs() <= 1e-6 * (1.0 + expected.abs()), "{found}: {}", words());
            }
        }
    }
}

#[test]
fn every_form_reads_back_as_the_same_function() {
    for Function { name, scores, .. } in functions() {
        assert_eq!(scores.to_string().parse::<Scores>().unwrap(), scores, "{name}");
        assert_eq!(Scores::from_json(&scores.to_json(), &registry()).unwrap(), scores, "{name}");
        let of = Attention::new(8).scores(&scores);
        let operation = Operation::Attention { dtype: F16, attention: of };
        let read: Operation = serde_json::from_str(&serde_json::to_string(&operation).unwrap()).unwrap();
        let read = read.attention().and_then(|attention| attention.function()).expect("a function");
        assert_eq!(read.arguments(), scores.arguments(), "{name}");
    }
    let [one, other] = [0.5f32, 0.25].map(|cap| Scores::build(|s| (s.acc() / cap).tanh() * cap).unwrap());
    assert_ne!(one, other);
    assert_ne!(Attention::new(8).scores(&one), Attention::new(8).scores(&other));
    assert_ne!(Attention::new(8).scores(&one), Attention::new(8));
}

#[test]
fn what_is_not_a_function_of_scores_is_named() {
    let code = |faults: postlude::Diagnostics| faults.iter().map(|fault| fault.code().to_owned()).collect::<Vec<_>>();
    assert_eq!(code(Scores::build(|s| s.acc() - s.acc().max_over(N)).unwrap_err()), ["E0402"]);
    assert_eq!(code(Scores::build(|s| s.acc_i32().cast(F32)).unwrap_err()), ["E0403"]);
    assert_eq!(code(Scores::build(|s| s.acc() + s.load("scores", F32)).unwrap_err()), ["E0401", "E0304"]);
    assert_eq!(code(Scores::build(|s| s.column().le(s.row())).unwrap_err()), ["E0303"]);
    assert_eq!(code(Scores::build(|s| s.acc() + s.row()).unwrap_err()), ["E0201"]);
    let faults = "%0 = acc f32\nstore \"d\" f32[M,N,L], %0".parse::<Scores>().unwrap_err().to_string();
    assert!(faults.contains("E0401") && faults.contains("store \"scores\" f32[M,N,L,S]"), "{faults}");
    // Sequences belong to scores alone.
    for build in [(|e| e.store("d", e.acc() + e.load("bias", F32.over(N | S)), F32)) as fn(&Builder), |e| {
        e.store("d", e.acc() + e.sequence().cast(F32), F32.over(M | N | L | S))
    }] {
        assert!(code(Epilogue::build(build).unwrap_err()).contains(&"E0113".to_owned()));
    }
}

#[test]
fn arguments_of_scores_are_those_of_the_launch() {
    let scores = Scores::build(|s| s.acc() + s.load("bias", F32.over(M | N | S))).unwrap();
    let of = Attention::new(2).sequences(2).scores(&scores);
    let (a, mut d) = ([1.0f32; 8], [0.0f32; 4]);
    let bias = [0.0f32; 7];
    let args = || HostArgs::new().input("a", &a).input("keys", &a).input("b", &a);
    let refused = |epilogue: &Epilogue, args: HostArgs<'_>| {
        Gemm::attention(F32, of, epilogue).reference(Shape::new(4, 1, 4), args).unwrap_err()
    };
    let errors = refused(&plain(), args().output("d", &mut d)).to_string();
    assert!(errors.contains("`bias`: missing"), "{errors}");
    let errors = refused(&plain(), args().input("bias", &bias).output("d", &mut d)).to_string();
    assert!(errors.contains("`bias`: too short: queries x keys, row-major"), "{errors}");
    let own = Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", F32.over(N)), F32)).unwrap();
    let errors = refused(&own, args().input("bias", &bias).output("d", &mut d));
    assert!(matches!(errors.0[0].fault, ArgumentFault::Misfit(Misfit::ScoreName { name: "bias" })), "{errors}");
}
