//! A canvas: strokes, cards and outlines with smooth edges, saved as a PNG. The examples draw with it.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

pub const PAPER: Colour = [0.992, 0.988, 0.976];
pub const INK: Colour = [0.09, 0.10, 0.16];
pub const WHITE: Colour = [1.0, 1.0, 1.0];

/// Red, green and blue, 0 to 1.
pub type Colour = [f64; 3];

/// Across and down, in pixels.
pub type Point = [f64; 2];

/// Mixes the second colour into the first, by a share.
pub fn mix(a: Colour, b: Colour, t: f64) -> Colour {
    std::array::from_fn(|i| a[i] + (b[i] - a[i]) * t)
}

/// An image under construction.
pub struct Canvas {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<Colour>,
}

impl Canvas {
    pub fn new(width: usize, height: usize) -> Canvas {
        Canvas { width, height, pixels: vec![PAPER; width * height] }
    }

    /// Mixes a colour into every pixel of a rectangle, by the value of `cover` at its middle.
    pub fn paint(&mut self, from: Point, to: Point, colour: Colour, cover: impl Fn(Point) -> f64) {
        let clip = |x: f64, limit: usize| (x.max(0.0) as usize).min(limit);
        for y in clip(from[1], self.height)..clip(to[1] + 1.0, self.height) {
            for x in clip(from[0], self.width)..clip(to[0] + 1.0, self.width) {
                let pixel = &mut self.pixels[y * self.width + x];
                *pixel = mix(*pixel, colour, cover([x as f64 + 0.5, y as f64 + 0.5]).clamp(0.0, 1.0));
            }
        }
    }

    /// A stroke with round ends.
    pub fn stroke(&mut self, a: Point, b: Point, width: f64, colour: Colour) {
        let reach = width / 2.0 + 1.0;
        let from = [a[0].min(b[0]) - reach, a[1].min(b[1]) - reach];
        let to = [a[0].max(b[0]) + reach, a[1].max(b[1]) + reach];
        self.paint(from, to, colour, |p| 0.5 + width / 2.0 - to_segment(p, a, b));
    }

    pub fn polyline(&mut self, points: &[Point], width: f64, colour: Colour) {
        points.windows(2).for_each(|ends| self.stroke(ends[0], ends[1], width, colour));
    }

    pub fn card(&mut self, at: Point, size: Point, radius: f64, colour: Colour, opacity: f64) {
        let to = [at[0] + size[0], at[1] + size[1]];
        self.paint(at, to, colour, |p| opacity * (0.5 - to_box(p, at, size, radius)).clamp(0.0, 1.0));
    }

    pub fn outline(&mut self, at: Point, size: Point, radius: f64, width: f64, colour: Colour, opacity: f64) {
        let (from, to) = (at.map(|x| x - width), [at[0] + size[0] + width, at[1] + size[1] + width]);
        self.paint(from, to, colour, |p| opacity * (0.5 + width / 2.0 - to_box(p, at, size, radius).abs()).clamp(0.0, 1.0));
    }

    /// Writes the image into `target/`, and returns its path.
    pub fn save(&self, name: &str) -> io::Result<PathBuf> {
        let (width, height) = (u32::try_from(self.width), u32::try_from(self.height));
        let (Ok(width), Ok(height)) = (width, height) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let path = Path::new("target").join(name);
        fs::create_dir_all("target")?;
        let mut encoder = png::Encoder::new(BufWriter::new(File::create(&path)?), width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        let bytes: Vec<u8> = self.pixels.iter().flatten().map(|x| (x * 255.0).round() as u8).collect();
        encoder.write_header()?.write_image_data(&bytes)?;
        Ok(path)
    }
}

/// Distance from a point to a segment.
fn to_segment(p: Point, a: Point, b: Point) -> f64 {
    let (ab, ap) = ([b[0] - a[0], b[1] - a[1]], [p[0] - a[0], p[1] - a[1]]);
    let length = ab[0] * ab[0] + ab[1] * ab[1];
    let t = if length == 0.0 { 0.0 } else { ((ap[0] * ab[0] + ap[1] * ab[1]) / length).clamp(0.0, 1.0) };
    (ap[0] - ab[0] * t).hypot(ap[1] - ab[1] * t)
}

/// Distance from a point to the edge of a rounded box; negative inside.
fn to_box(p: Point, at: Point, size: Point, radius: f64) -> f64 {
    let beyond = |i: usize| (p[i] - at[i] - size[i] / 2.0).abs() - size[i] / 2.0 + radius;
    let (x, y) = (beyond(0), beyond(1));
    x.max(0.0).hypot(y.max(0.0)) + x.max(y).min(0.0) - radius
}
