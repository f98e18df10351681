//! The picture: values as colours, borders as lines, the function of each region as a small curve.

use super::Function;
use super::canvas::{Canvas, Colour, INK, Point, WHITE, mix};
use postlude::half::f16;
use std::io;
use std::path::PathBuf;

/// Width and height of a panel in pixels.
pub const PANEL: usize = 512;
/// Space around the panels, and between them.
pub const MARGIN: usize = 40;
const GAP: usize = 36;
const BAR: usize = 20;

/// One output and its regions.
pub struct Panel {
    /// The output, row by row.
    pub values: Vec<f16>,
    /// Rows and columns.
    pub extents: [usize; 2],
    /// The regions' functions.
    pub functions: Vec<Function>,
    /// The index of the function at a row and column.
    pub region: Box<dyn Fn(usize, usize) -> usize>,
    /// Where bands of rows end.
    pub rows: Vec<usize>,
}

/// Draws the panels side by side with a colour bar; returns the file's path.
pub fn draw(panels: &[Panel]) -> io::Result<PathBuf> {
    let width = 2 * MARGIN + panels.len() * (PANEL + GAP) + BAR + 30;
    let mut canvas = Canvas::new(width, PANEL + 2 * MARGIN);
    for (i, panel) in panels.iter().enumerate() {
        let at = [MARGIN + i * (PANEL + GAP), MARGIN];
        canvas.values(at, panel);
        canvas.borders(at, panel);
        canvas.handles(at, panel);
        canvas.legend(at, panel);
        canvas.outline([at[0] as f64, at[1] as f64], [PANEL as f64, PANEL as f64], 0.0, 1.5, INK, 0.9);
    }
    canvas.bar([MARGIN + panels.len() * (PANEL + GAP), MARGIN]);
    canvas.save("region_activation.png")
}

/// The colour of a value: indigo at -1, ivory at 0, wine at 1 and beyond.
pub fn colour(value: f64) -> Colour {
    const STOPS: [Colour; 9] = [
        [0.10, 0.12, 0.36],
        [0.13, 0.31, 0.60],
        [0.25, 0.57, 0.74],
        [0.62, 0.81, 0.85],
        [0.985, 0.965, 0.92],
        [0.985, 0.80, 0.52],
        [0.93, 0.50, 0.28],
        [0.75, 0.21, 0.25],
        [0.42, 0.05, 0.21],
    ];
    let place = (value.clamp(-1.0, 1.0) + 1.0) / 2.0 * (STOPS.len() - 1) as f64;
    let stop = (place as usize).min(STOPS.len() - 2);
    mix(STOPS[stop], STOPS[stop + 1], place - stop as f64)
}

impl Canvas {
    /// Each pixel is the mean of its values.
    fn values(&mut self, at: [usize; 2], panel: &Panel) {
        let [rows, columns] = panel.extents;
        let (down, across) = (rows / PANEL, columns / PANEL);
        for y in 0..PANEL {
            for x in 0..PANEL {
                let covered =
                    (0..down * across).map(|i| panel.values[(y * down + i / across) * columns + x * across + i % across]);
                let mean = covered.map(f16::to_f64).sum::<f64>() / (down * across) as f64;
                self.pixels[(at[1] + y) * self.width + at[0] + x] = colour(mean);
            }
        }
    }

    /// A dark line with a light seam wherever two regions meet.
    fn borders(&mut self, at: [usize; 2], panel: &Panel) {
        const REACH: usize = 3;
        let [rows, columns] = panel.extents;
        let region = |x: usize, y: usize| (panel.region)(y * rows / PANEL, x * columns / PANEL);
        for y in 0..PANEL {
            for x in 0..PANEL {
                let own = region(x, y);
                let near = |d: usize, y: usize| d.saturating_sub(REACH)..(d + REACH + 1).min(y);
                let others =
                    near(y, PANEL).flat_map(|v| near(x, PANEL).map(move |u| (u, v))).filter(|(u, v)| region(*u, *v) != own);
                let distance =
                    others.map(|(u, v)| (u as f64 - x as f64).hypot(v as f64 - y as f64) - 0.5).fold(f64::MAX, f64::min);
                let pixel = &mut self.pixels[(at[1] + y) * self.width + at[0] + x];
                *pixel = mix(*pixel, INK, (2.8 - distance).clamp(0.0, 1.0));
                *pixel = mix(*pixel, WHITE, (1.6 - distance).clamp(0.0, 1.0));
            }
        }
    }

    /// Triangles beside a border that moves at run time.
    fn handles(&mut self, at: [usize; 2], panel: &Panel) {
        for row in &panel.rows {
            let y = at[1] as f64 + (row * PANEL) as f64 / panel.extents[0] as f64;
            for (tip, out) in [(at[0] as f64 - 4.0, -1.0), ((at[0] + PANEL) as f64 + 4.0, 1.0)] {
                let (from, to) = ([tip - 12.0, y - 9.0], [tip + 12.0, y + 9.0]);
                self.paint(from, to, INK, |p| {
                    let along = (p[0] - tip) * out;
                    (0.5 + along).min(10.5 - along).min(along * 0.7 - (p[1] - y).abs() + 0.5)
                });
            }
        }
    }

    /// The curve of each region's function on a card: the first region's as low as it fits, the others' as high.
    fn legend(&mut self, at: [usize; 2], panel: &Panel) {
        const SIZE: Point = [92.0, 64.0];
        const INSET: usize = 16;
        let [rows, columns] = panel.extents;
        let region = |x: usize, y: usize| (panel.region)(y * rows / PANEL, x * columns / PANEL);
        let (wide, high) = (SIZE[0] as usize + 2 * INSET, SIZE[1] as usize + 2 * INSET);
        for (index, function) in panel.functions.iter().enumerate() {
            let corners = [(0, 0), (wide, 0), (0, high), (wide, high)];
            let fits = |(x, y): &(usize, usize)| corners.iter().all(|(u, v)| region(x + u, y + v) == index);
            let row = |y: usize| (0..PANEL - wide).map(move |x| (x, y));
            let ys = 0..PANEL - high;
            let place = if index == 0 { ys.rev().flat_map(row).find(fits) } else { ys.flat_map(row).find(fits) };
            let Some((x, y)) = place else { continue };
            self.curve([(at[0] + x + INSET) as f64, (at[1] + y + INSET) as f64], SIZE, *function);
        }
    }

    fn curve(&mut self, at: Point, size: Point, function: Function) {
        self.card([at[0] + 1.5, at[1] + 2.5], size, 9.0, INK, 0.25);
        self.card(at, size, 9.0, WHITE, 0.93);
        let place = |z: f64, y: f64| [at[0] + size[0] * (0.5 + z / 9.6), at[1] + size[1] * (0.5 - y / 2.9)];
        let faint = mix(WHITE, INK, 0.28);
        self.stroke(place(-4.3, 0.0), place(4.3, 0.0), 1.0, faint);
        self.stroke(place(0.0, -1.2), place(0.0, 1.2), 1.0, faint);
        let samples = (-86..=86).map(|i| f64::from(i) / 20.0).filter(|z| function(*z).abs() < 1.25);
        let points: Vec<Point> = samples.map(|z| place(z, function(z))).collect();
        self.polyline(&points, 2.6, INK);
        // Every piece of the curve has the colour of its values.
        for ends in points.windows(2) {
            let y = (at[1] + size[1] / 2.0 - ends[0][1]) / size[1] * 2.9;
            self.stroke(ends[0], ends[1], 1.6, mix(colour(y), INK, 0.15));
        }
    }

    /// The colours from -1 to 1.
    fn bar(&mut self, at: [usize; 2]) {
        for y in 0..PANEL {
            let value = 1.0 - 2.0 * y as f64 / (PANEL - 1) as f64;
            for x in 0..BAR {
                self.pixels[(at[1] + y) * self.width + at[0] + x] = colour(value);
            }
        }
        let (left, top) = (at[0] as f64, at[1] as f64);
        self.outline([left, top], [BAR as f64, PANEL as f64], 0.0, 1.5, INK, 0.9);
        for (value, y) in [(1, top), (0, top + PANEL as f64 / 2.0), (-1, top + PANEL as f64)] {
            let x = left + BAR as f64;
            self.stroke([x, y], [x + 6.0, y], 1.5, INK);
            self.digit([x + 16.0, y], value);
        }
    }

    /// -1, 0 or 1 out of strokes.
    fn digit(&mut self, at: Point, value: i32) {
        let y = at[1];
        let x = if value < 0 { at[0] + 10.0 } else { at[0] };
        if value == 0 {
            self.outline([x - 4.0, y - 7.0], [8.0, 14.0], 4.0, 1.8, INK, 1.0);
        } else {
            self.polyline(&[[x - 3.0, y - 4.0], [x + 1.0, y - 7.0], [x + 1.0, y + 7.0]], 1.8, INK);
        }
        if value < 0 {
            self.stroke([x - 11.0, y], [x - 6.0, y], 1.8, INK);
        }
    }
}
