//! Attention with functions of its scores: ALiBi, a sliding window, documents, a soft cap over padding; each in one kernel.
//!
//! The values are the unit matrix, so the result of the attention are its weights: how much each query looks at each key. Draws
//! them, a picture for each function. Scores and masks are never in memory.
//!
//! ```text
//! $ cargo run --release --example attention_mask
//! alibi: 2080 of 4096 keys are seen, and each row of weights adds up to 1
//! window: 702 of 4096 keys are seen, and each row of weights adds up to 1
//! documents: 1218 of 4096 keys are seen, and each row of weights adds up to 1
//! padding: 3072 of 4096 keys are seen, and each row of weights adds up to 1
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//!
//! Picture: target/attention_mask.png
//! ```

#[allow(dead_code, reason = "each example draws with its part")]
#[path = "support/canvas.rs"]
mod canvas;

use canvas::{Canvas, INK, PAPER, mix};
use postlude::half::f16;
use postlude::prelude::*;
use postlude::{Attention, RanOn, Scores};
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Queries and keys, which are also columns of the values, and elements of a query.
const TOKENS: usize = 64;
const WIDTH: usize = 32;
/// Tokens of each document, and tokens that are words.
const DOCUMENTS: [usize; 4] = [10, 26, 9, 19];
const WORDS: usize = 48;

/// A function of scores, with the keys that it leaves seen.
struct Masked {
    name: &'static str,
    scores: Scores,
    sees: fn(query: usize, key: usize) -> bool,
}

fn document(token: usize) -> i32 {
    let ends = DOCUMENTS.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    ends.filter(|end| *end <= token).count() as i32
}

fn functions() -> Result<Vec<Masked>> {
    let hidden = f32::NEG_INFINITY;
    Ok(vec![
        Masked {
            name: "alibi",
            scores: Scores::build(|s| {
                let ahead = s.column() - s.row();
                ahead.le(0).select(s.acc() + ahead.cast(F32) * s.scalar("slope", F32), hidden)
            })?,
            sees: |query, key| key <= query,
        },
        Masked {
            name: "window",
            scores: Scores::build(|s| {
                let back = s.row() - s.column();
                (back.ge(0) & back.lt(s.scalar("window", I32))).select(s.acc(), hidden)
            })?,
            sees: |query, key| key <= query && query < key + 12,
        },
        Masked {
            name: "documents",
            scores: Scores::build(|s| {
                let same = s.load("document_of_query", I32.over(M)).eq(s.load("document_of_key", I32.over(N)));
                same.select(s.acc(), hidden)
            })?,
            sees: |query, key| document(query) == document(key),
        },
        Masked {
            name: "padding",
            scores: Scores::build(|s| s.column().lt(s.scalar("words", I32)).select((s.acc() / 2.0).tanh() * 2.0, hidden))?,
            sees: |_, key| key < WORDS,
        },
    ])
}

/// Queries and keys: what turns with the position of a token, each pair of elements at its own pace.
fn tokens(shift: f64) -> Vec<f16> {
    let element = |token: usize, i: usize| {
        let turn = (token as f64 + shift) * 2.0 / 1.6f64.powi((i / 2) as i32);
        f16::from_f64(1.2 * if i.is_multiple_of(2) { turn.cos() } else { turn.sin() })
    };
    (0..TOKENS * WIDTH).map(|i| element(i / WIDTH, i % WIDTH)).collect()
}

/// The weights of an attention, and where they were computed.
fn weights(scores: &Scores) -> Result<(Vec<f32>, RanOn)> {
    let unit: Vec<f16> = (0..TOKENS * TOKENS).map(|i| f16::from_f32(f32::from(u8::from(i / TOKENS == i % TOKENS)))).collect();
    let (queries, keys, documents) = (tokens(0.0), tokens(0.5), (0..TOKENS).map(document).collect::<Vec<_>>());
    let mut weights = vec![0.0f32; TOKENS * TOKENS];
    let mut args = HostArgs::new().input("a", &queries).input("keys", &keys).input("b", &unit);
    for argument in scores.arguments() {
        args = match &*argument.name {
            "slope" => args.scalar("slope", 0.125),
            "window" => args.scalar("window", 12),
            "words" => args.scalar("words", WORDS as i32),
            name => args.input(name, &documents),
        };
    }
    let epilogue = Epilogue::build(|e| e.store("weights", e.acc(), F32))?;
    let gemm = Gemm::attention(F16, Attention::new(WIDTH).scores(scores), &epilogue);
    let ran_on = gemm.run(Shape::new(TOKENS, TOKENS, TOKENS), args.output("weights", &mut weights))?;
    Ok((weights, ran_on))
}

/// Computes, checks and draws the weights under each function.
pub fn run(out: &mut dyn Write) -> Result<()> {
    const CELL: usize = 5;
    const MARGIN: usize = 24;
    let functions = functions()?;
    let side = CELL * TOKENS;
    let mut canvas = Canvas::new(MARGIN + functions.len() * (side + MARGIN), 2 * MARGIN + side);
    let mut place = None;
    for (panel, Masked { name, scores, sees }) in functions.iter().enumerate() {
        let (weights, ran_on) = weights(scores)?;
        let seen = |i: usize| sees(i / TOKENS, i % TOKENS);
        if let Some(i) = (0..weights.len()).find(|i| seen(*i) != (weights[*i] > 0.0)) {
            return Err(format!("{name}: query {} has weight {} for key {}", i / TOKENS, weights[i], i % TOKENS).into());
        }
        let off = weights.chunks_exact(TOKENS).map(|row| (row.iter().sum::<f32>() - 1.0).abs()).fold(0.0, f32::max);
        if off.is_nan() || off > 2e-3 {
            return Err(format!("{name}: a row of weights adds up to 1 but for {off}").into());
        }
        let count = (0..weights.len()).filter(|i| seen(*i)).count();
        writeln!(out, "{name}: {count} of {} keys are seen, and each row of weights adds up to 1", weights.len())?;
        let left = MARGIN + panel * (side + MARGIN);
        for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
            let weight = f64::from(weights[y / CELL * TOKENS + x / CELL]);
            canvas.pixels[(MARGIN + y) * canvas.width + left + x] = mix(PAPER, INK, weight.powf(0.4));
        }
        canvas.outline([left as f64, MARGIN as f64], [side as f64; 2], 0.0, 1.5, INK, 0.9);
        place = Some(ran_on);
    }
    if let Some(ran_on) = place {
        writeln!(out, "{ran_on}\n\nPicture: {}", canvas.save("attention_mask.png")?.display())?;
    }
    Ok(())
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
