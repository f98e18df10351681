//! A picture through a convolution whose activation depends on where a pixel lies: one kernel, several regions an image.
//!
//! The filters sharpen each colour. Their output is the picture in most of the image; inside a rectangle it is squeezed by
//! a `tanh`, as film does, and inside a circle only the edges are left. The rectangle's corner is a launch argument. The
//! program draws the picture that it filters, and checks every pixel against plain loops:
//!
//! ```text
//! $ cargo run --release --example image_filter
//! 2 pictures of 240 x 320 x 3, 6 filters of 3 x 3, padded by 1
//! every pixel is that of plain loops
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//!
//! Picture: target/image_filter.png
//! ```

#[allow(dead_code, reason = "each example draws with its part")]
#[path = "support/canvas.rs"]
mod canvas;

use canvas::{Canvas, Colour, INK, mix};
use postlude::Convolution;
use postlude::prelude::*;
use std::io::Write;
use std::path::PathBuf;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const IMAGES: usize = 2;
const HEIGHT: usize = 240;
const WIDTH: usize = 320;
const COLOURS: usize = 3;
/// Three filters that sharpen, and three that find edges.
const FILTERS: usize = 6;
/// The first pixel of the rectangle, which reaches to the right and to the bottom.
const CORNER: [usize; 2] = [130, 180];
/// Middle and radius of the circle.
const CIRCLE: [i32; 3] = [90, 110, 62];

/// A landscape at sunset, or the same at night: sky, sun or moon, hills behind hills, grain.
fn landscape(night: bool, y: usize, x: usize) -> Colour {
    let (v, u) = (y as f64 / HEIGHT as f64, x as f64 / WIDTH as f64);
    let sky = if night {
        mix([0.02, 0.03, 0.10], [0.16, 0.20, 0.38], v)
    } else {
        mix([0.20, 0.28, 0.52], [0.98, 0.62, 0.36], (1.5 * v).min(1.0))
    };
    let from_light = ((u - 0.36) * 4.0 / 3.0).hypot(v - 0.34);
    let light = if night { [0.93, 0.94, 0.86] } else { [1.0, 0.93, 0.70] };
    let mut colour = mix(sky, light, (0.45 * (-6.0 * from_light).exp() + if from_light < 0.085 { 0.5 } else { 0.0 }).min(1.0));
    for (i, (base, height)) in [(0.56, 0.10), (0.66, 0.09), (0.78, 0.08), (0.90, 0.06)].into_iter().enumerate() {
        let pace = 5.0 + 3.0 * i as f64;
        let ridge = base - height * (0.6 * (pace * u + 2.1 * i as f64).sin() + 0.4 * (2.7 * pace * u + 0.9).sin());
        if v > ridge {
            let near = (i + 1) as f64 / 4.0;
            let hill = if night { [0.05, 0.07, 0.12] } else { [0.16, 0.20, 0.14] };
            colour = mix(mix(sky, hill, 0.35 + 0.6 * near), light, 0.10 * (-30.0 * (v - ridge)).exp());
        }
    }
    let grain = ((x * 7919 + y * 104_729) % 257) as f64 / 257.0 - 0.5;
    colour.map(|c| (c + 0.02 * grain).clamp(0.0, 1.0))
}

/// Of each colour: nine parts of a pixel less its eight neighbours; and the difference from their mean.
fn filters() -> Vec<f32> {
    let of = |filter: usize, tap: usize, colour: usize| match (filter % COLOURS == colour, tap == 4, filter < COLOURS) {
        (false, _, _) => 0.0,
        (_, true, true) => 2.6,
        (_, false, true) => -0.2,
        (_, true, false) => 4.0,
        (_, false, false) => -0.5,
    };
    let taps = |filter| (0..9).flat_map(move |tap| (0..COLOURS).map(move |colour| of(filter, tap, colour)));
    (0..FILTERS).flat_map(taps).collect()
}

/// Filters the pictures, checks them, and draws them.
pub fn run(out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{IMAGES} pictures of {HEIGHT} x {WIDTH} x {COLOURS}, {FILTERS} filters of 3 x 3, padded by 1")?;
    let shape = ConvShape::new(IMAGES, [HEIGHT, WIDTH, COLOURS], [FILTERS, 3, 3]).padding([1, 1]);
    let convolution = Convolution::new(shape)?;
    let epilogue = Epilogue::build(|e| {
        let at = convolution.pixel(e);
        let in_rectangle = at.y.ge(e.scalar("top", I32)).and(at.x.ge(e.scalar("left", I32)));
        let (down, right) = (at.y - CIRCLE[0], at.x - CIRCLE[1]);
        let in_circle = (down * down + right * right).lt(CIRCLE[2] * CIRCLE[2]);
        // The picture takes filters 3 to 5 in the circle, and 0 to 2 elsewhere.
        let y = e
            .acc()
            .region(in_circle, |z| z.abs().min(1.0))
            .region(in_rectangle, |z| ((z - 0.5) * 1.6).tanh() * 0.5 + 0.5)
            .otherwise(|z| z.clamp(0.0, 1.0));
        e.store("d", y, F32);
    })?;
    let place = |i: usize| (i / (HEIGHT * WIDTH), i / WIDTH % HEIGHT, i % WIDTH);
    let pixels = IMAGES * HEIGHT * WIDTH;
    let images: Vec<f32> =
        (0..pixels).map(place).flat_map(|(image, y, x)| landscape(image == 1, y, x).map(|c| c as f32)).collect();
    let (filters, mut d) = (filters(), vec![0.0f32; pixels * FILTERS]);
    let args = HostArgs::new().input("a", &images).input("b", &filters).output("d", &mut d);
    let args = args.scalar("top", CORNER[0] as i32).scalar("left", CORNER[1] as i32);
    let ran_on = Conv::of(F32, convolution, &epilogue).run(args)?;

    let off =
        (0..pixels * FILTERS).map(|i| (f64::from(d[i]) - by_hand(&images, &filters, place(i / FILTERS), i % FILTERS)).abs());
    let off = off.fold(0.0, f64::max);
    // A value that is not a number is off, too.
    if off.is_nan() || off > 1e-4 {
        return Err(format!("a pixel is off by {off}").into());
    }
    writeln!(out, "every pixel is that of plain loops\n{ran_on}\n\nPicture: {}", draw(&images, &d)?.display())?;
    Ok(())
}

fn is_in_circle(y: usize, x: usize) -> bool {
    (y as i32 - CIRCLE[0]).pow(2) + (x as i32 - CIRCLE[1]).pow(2) < CIRCLE[2].pow(2)
}

fn by_hand(images: &[f32], filters: &[f32], (image, y, x): (usize, usize, usize), filter: usize) -> f64 {
    let mut z = 0.0;
    for (i, j) in (0..3).flat_map(|i| (0..3).map(move |j| (i, j))) {
        let (v, u) = ((y + i).wrapping_sub(1), (x + j).wrapping_sub(1));
        if v < HEIGHT && u < WIDTH {
            for c in 0..COLOURS {
                let pixel = images[((image * HEIGHT + v) * WIDTH + u) * COLOURS + c];
                z += f64::from(pixel) * f64::from(filters[((filter * 3 + i) * 3 + j) * COLOURS + c]);
            }
        }
    }
    if is_in_circle(y, x) {
        z.abs().min(1.0)
    } else if y >= CORNER[0] && x >= CORNER[1] {
        ((z - 0.5) * 1.6).tanh() * 0.5 + 0.5
    } else {
        z.clamp(0.0, 1.0)
    }
}

/// Pixels around the pictures.
const MARGIN: usize = 20;

/// Above the pictures as they were, below what became of them: edges in the circle, colours elsewhere.
fn draw(images: &[f32], filtered: &[f32]) -> Result<PathBuf> {
    let mut canvas = Canvas::new(IMAGES * (WIDTH + MARGIN) + MARGIN, 2 * (HEIGHT + MARGIN) + MARGIN);
    for i in 0..IMAGES * HEIGHT * WIDTH {
        let (image, y, x) = (i / (HEIGHT * WIDTH), i / WIDTH % HEIGHT, i % WIDTH);
        let at = (MARGIN + y) * canvas.width + MARGIN + image * (WIDTH + MARGIN) + x;
        let first = i * FILTERS + if is_in_circle(y, x) { COLOURS } else { 0 };
        canvas.pixels[at] = std::array::from_fn(|c| f64::from(images[i * COLOURS + c]));
        canvas.pixels[at + (HEIGHT + MARGIN) * canvas.width] = std::array::from_fn(|c| f64::from(filtered[first + c]));
    }
    for (image, row) in (0..IMAGES).flat_map(|image| (0..2).map(move |row| (image, row))) {
        let at = [(MARGIN + image * (WIDTH + MARGIN)) as f64, (MARGIN + row * (HEIGHT + MARGIN)) as f64];
        canvas.outline(at, [WIDTH as f64, HEIGHT as f64], 0.0, 1.5, INK, 0.9);
    }
    Ok(canvas.save("image_filter.png")?)
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
