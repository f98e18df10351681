//! The scores of attention: softmax(Q K^T / sqrt(width)) under a causal mask, from one epilogue.
//!
//! A softmax needs what its whole row comes to: the epilogue reduces the row and uses the result. Behind a product, whose
//! tiles have parts of rows, the plan makes two kernels of it; over a matrix that exists it is one kernel, which reads
//! and writes memory once.
//!
//! Tokens turn with their position, each pair of features at its own pace, and every eighth one is an anchor that all
//! others look for. Draws the scores and what the softmax makes of them:
//!
//! ```text
//! $ cargo run --release --example attention_scores
//! 96 tokens of 32 features: softmax(Q K^T / sqrt(32)), causal
//! rows add up to 1 but for ..., and nobody looks ahead
//! an anchor gets ...
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//!
//! Picture: target/attention_scores.png
//! ```

#[allow(dead_code, reason = "each example draws with its part")]
#[path = "support/canvas.rs"]
mod canvas;

use canvas::{Canvas, Colour, INK, PAPER, mix};
use postlude::prelude::*;
use std::io::Write;
use std::path::PathBuf;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const TOKENS: usize = 96;
const WIDTH: usize = 32;
/// Every so many tokens one is an anchor.
const ANCHORS: usize = 8;

/// Queries and keys: a few features say what a token is, the others where.
fn tokens() -> (Vec<f32>, Vec<f32>) {
    let feature = |token: usize, f: usize, is_key: bool| {
        let pace = 3.0 / 1.45f64.powi((f / 2) as i32);
        let turn = pace * token as f64;
        let place = if f.is_multiple_of(2) { turn.cos() } else { turn.sin() };
        let anchor = f < 4 && (!is_key || token.is_multiple_of(ANCHORS));
        (1.3 * place + if anchor { 2.2 } else { 0.0 }) as f32
    };
    let all = |is_key: bool| (0..TOKENS * WIDTH).map(|i| feature(i / WIDTH, i % WIDTH, is_key)).collect();
    (all(false), all(true))
}

/// Computes the scores, checks them, and draws them.
pub fn run(out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{TOKENS} tokens of {WIDTH} features: softmax(Q K^T / sqrt({WIDTH})), causal")?;
    let epilogue = Epilogue::build(|e| {
        let score = e.acc() * e.scalar("scale", F32);
        let seen = e.column().le(e.row()).select(score, f32::NEG_INFINITY);
        e.store("scores", score, F32);
        e.store("shares", seen.softmax_over(N), F32);
    })?;
    let (q, k) = tokens();
    let (mut scores, mut shares) = (vec![0.0f32; TOKENS * TOKENS], vec![0.0f32; TOKENS * TOKENS]);
    let args = HostArgs::new().input("a", &q).input("b", &k).scalar("scale", 1.0 / (WIDTH as f32).sqrt());
    let args = args.output("scores", &mut scores).output("shares", &mut shares);
    let ran_on = Gemm::new(F32, TN, &epilogue).run(Shape::new(TOKENS, TOKENS, WIDTH), args)?;

    let rows = || shares.chunks_exact(TOKENS).enumerate();
    let off = rows().map(|(_, row)| (row.iter().map(|x| f64::from(*x)).sum::<f64>() - 1.0).abs()).fold(0.0, f64::max);
    let ahead = rows().flat_map(|(i, row)| &row[i + 1..]).any(|share| *share != 0.0);
    // A value that is not a number is off, too.
    if off.is_nan() || off > 1e-5 || ahead {
        return Err(format!("a row adds up to 1 but for {off}; somebody looks ahead: {ahead}").into());
    }
    writeln!(out, "rows add up to 1 but for {off:.0e}, and nobody looks ahead")?;
    let last = &shares[(TOKENS - 1) * TOKENS..];
    let largest = last.iter().step_by(ANCHORS).copied().fold(0.0, f32::max);
    writeln!(
        out,
        "an anchor gets {:.1} % of its row, where an even share would be {:.1} %",
        100.0 * largest,
        100.0 / TOKENS as f64
    )?;
    writeln!(out, "{ran_on}\n\nPicture: {}", draw(&scores, &shares)?.display())?;
    Ok(())
}

/// Pixels of a score, and around the panels.
const CELL: usize = 5;
const MARGIN: usize = 40;
const COLD: Colour = [0.13, 0.31, 0.60];
const WARM: Colour = [0.93, 0.50, 0.28];

/// Both panels: scores, cold below 0 and warm above; shares, on a scale on which small ones show.
fn draw(scores: &[f32], shares: &[f32]) -> Result<PathBuf> {
    let side = CELL * TOKENS;
    let mut canvas = Canvas::new(3 * MARGIN + 2 * side, 2 * MARGIN + side);
    let largest = scores.iter().fold(1e-9f64, |largest, x| largest.max(f64::from(x.abs())));
    let of_score = |x: f32| mix(PAPER, if x < 0.0 { COLD } else { WARM }, (f64::from(x.abs()) / largest).powf(0.8));
    let of_share = |x: f32| mix(PAPER, INK, f64::from(x).powf(0.4));
    for (left, values, colour) in
        [(MARGIN, scores, &of_score as &dyn Fn(f32) -> Colour), (2 * MARGIN + side, shares, &of_share as &dyn Fn(f32) -> Colour)]
    {
        for y in 0..side {
            for x in 0..side {
                canvas.pixels[(MARGIN + y) * canvas.width + left + x] = colour(values[y / CELL * TOKENS + x / CELL]);
            }
        }
        canvas.outline([left as f64, MARGIN as f64], [side as f64; 2], 0.0, 1.5, INK, 0.9);
    }
    Ok(canvas.save("attention_scores.png")?)
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
