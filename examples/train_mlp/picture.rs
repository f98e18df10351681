//! The picture: the network's classification of the plane, with the training points, and the curve of the loss.

use super::canvas::{Canvas, Colour, INK, PAPER, Point, WHITE, mix};
use super::spiral::{CLASSES, FEATURES, Spiral};
use std::io;
use std::path::PathBuf;

/// Width and height of a panel in pixels.
pub const PANEL: usize = 512;
/// Space around the panels.
pub const MARGIN: usize = 40;
const GAP: usize = 44;
/// Points of the plane along a side.
const GRID: usize = 256;
/// Half the side of the square that is drawn.
pub const REACH: f64 = 1.15;

/// The colour of each class.
pub const COLOURS: [Colour; CLASSES] = [[0.13, 0.31, 0.60], [0.93, 0.50, 0.28], [0.20, 0.55, 0.42]];

/// The points of the plane that the network classifies, row by row from the top.
pub fn plane() -> Vec<f32> {
    let at = |i: usize| REACH * (2.0 * (i as f64 + 0.5) / GRID as f64 - 1.0);
    (0..GRID * GRID).flat_map(|i| [at(i % GRID) as f32, -at(i / GRID) as f32]).collect()
}

/// Draws both panels; returns the file's path. `logits` are those of [`plane`].
pub fn draw(name: &str, logits: &[f32], data: &Spiral, losses: &[f32]) -> io::Result<PathBuf> {
    let mut canvas = Canvas::new(2 * MARGIN + 2 * PANEL + GAP, PANEL + 2 * MARGIN);
    regions(&mut canvas, logits);
    points(&mut canvas, data);
    curve(&mut canvas, losses);
    for left in [MARGIN, MARGIN + PANEL + GAP] {
        canvas.outline([left as f64, MARGIN as f64], [PANEL as f64, PANEL as f64], 0.0, 1.5, INK, 0.9);
    }
    canvas.save(name)
}

/// Each class's colour by its probability, pale enough for points to stand out.
fn regions(canvas: &mut Canvas, logits: &[f32]) {
    let colours: Vec<Colour> = logits
        .chunks_exact(CLASSES)
        .map(|z| {
            let largest = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let powers: Vec<f64> = z.iter().map(|z| f64::from(z - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            let colour = std::array::from_fn(|i| powers.iter().zip(COLOURS).map(|(p, c)| p / sum * c[i]).sum());
            mix(PAPER, colour, 0.55)
        })
        .collect();
    let scale = PANEL / GRID;
    for y in 0..PANEL {
        for x in 0..PANEL {
            canvas.pixels[(MARGIN + y) * canvas.width + MARGIN + x] = colours[y / scale * GRID + x / scale];
        }
    }
}

fn points(canvas: &mut Canvas, data: &Spiral) {
    let place = |x: f32| (f64::from(x) / REACH + 1.0) / 2.0 * PANEL as f64 + MARGIN as f64;
    for (point, label) in data.points.chunks_exact(FEATURES).zip(&data.labels) {
        let at: Point = [place(point[0]), place(-point[1])];
        canvas.stroke(at, at, 7.0, WHITE);
        canvas.stroke(at, at, 5.0, COLOURS[*label as usize]);
    }
}

/// The loss by steps, on a scale on which each line is a tenth of the one above; the highest is 1.
fn curve(canvas: &mut Canvas, losses: &[f32]) {
    let (left, top, side) = ((MARGIN + PANEL + GAP) as f64, MARGIN as f64, PANEL as f64);
    canvas.card([left, top], [side, side], 0.0, WHITE, 1.0);
    // From 10^0.5 at the top to 10^-3 at the bottom.
    let y = |loss: f64| top + side * ((0.5 - loss.log10()) / 3.5).clamp(0.0, 1.0);
    for decade in 0..3 {
        let at = y(10f64.powi(-decade));
        canvas.stroke([left, at], [left + side, at], 1.0, mix(WHITE, INK, 0.25));
    }
    let x = |step: usize| left + side * step as f64 / (losses.len().max(2) - 1) as f64;
    let line: Vec<Point> = losses.iter().enumerate().map(|(step, loss)| [x(step), y(f64::from(*loss))]).collect();
    canvas.polyline(&line, 2.4, COLOURS[0]);
}
