//! Every example runs, and prints what its header says.
#![allow(clippy::duplicate_mod, reason = "examples share what they draw with")]

use std::io::Write;

#[allow(dead_code)]
#[path = "../examples/attention_mask.rs"]
mod attention_mask;
#[allow(dead_code)]
#[path = "../examples/attention_scores.rs"]
mod attention_scores;
#[allow(dead_code)]
#[path = "../examples/batched.rs"]
mod batched;
#[cfg(feature = "cuda")]
#[allow(dead_code)]
#[path = "../examples/cublaslt_epilogues.rs"]
mod cublaslt_epilogues;
#[allow(dead_code)]
#[path = "../examples/custom_activation.rs"]
mod custom_activation;
#[allow(dead_code)]
#[path = "../examples/custom_monoid.rs"]
mod custom_monoid;
#[allow(dead_code)]
#[path = "../examples/custom_operator.rs"]
mod custom_operator;
#[allow(dead_code)]
#[path = "../examples/encoder_block.rs"]
mod encoder_block;
#[allow(dead_code)]
#[path = "../examples/image_filter.rs"]
mod image_filter;
#[allow(dead_code)]
#[path = "../examples/inspect.rs"]
mod inspect;
#[allow(dead_code)]
#[path = "../examples/masks.rs"]
mod masks;
#[cfg(feature = "onnx")]
#[allow(dead_code)]
#[path = "../examples/onnx_resnet.rs"]
mod onnx_resnet;
#[allow(dead_code)]
#[path = "../examples/paddle_fused_gemm.rs"]
mod paddle_fused_gemm;
#[allow(dead_code)]
#[path = "../examples/quantized_linear.rs"]
mod quantized_linear;
#[allow(dead_code)]
#[path = "../examples/quantized_mlp.rs"]
mod quantized_mlp;
#[allow(dead_code)]
#[path = "../examples/quickstart.rs"]
mod quickstart;
#[cfg(feature = "cuda")]
#[allow(dead_code)]
#[path = "../examples/region_activation/main.rs"]
mod region_activation;
#[allow(dead_code)]
#[path = "../examples/resnet_block.rs"]
mod resnet_block;
#[cfg(feature = "cuda")]
#[allow(dead_code)]
#[path = "../examples/train_mlp/main.rs"]
mod train_mlp;
#[allow(dead_code)]
#[path = "../examples/train_network.rs"]
mod train_network;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

/// The output of an example.
fn output(run: impl FnOnce(&mut dyn Write) -> Result) -> String {
    let mut out = Vec::new();
    if let Err(error) = run(&mut out) {
        panic!("{error}\nafter\n{}", String::from_utf8_lossy(&out));
    }
    let text = String::from_utf8(out).expect("examples write text");
    print!("{text}");
    text
}

/// The lines of the header's first code block, without the command.
fn promised(source: &str) -> Vec<&str> {
    let block =
        source.split("//! ```text\n").nth(1).and_then(|s| s.split("//! ```\n").next()).expect("a header with a code block");
    block.lines().skip(1).map(|line| line.strip_prefix("//!").unwrap_or(line)).map(|l| l.strip_prefix(' ').unwrap_or(l)).collect()
}

/// Compares the output with the header, line by line. `...` stands for any text, or alone for any lines. The device
/// depends on the machine. A GPU's 16-bit values may differ in the last digit, and its tables have more columns.
fn check(source: &str, text: &str) {
    const NAMES_AND_BORDERS: usize = 23;
    let on_gpu = text.contains("Runs on the GPU: ");
    let mut lines = text.lines();
    for promise in promised(source) {
        let fits = |line: &str| match promise.split_once("...") {
            _ if promise.starts_with("CPU:") => line.starts_with("CPU: ") || line.starts_with("GPU: "),
            _ if promise.starts_with("Runs on the CPU") => {
                line.starts_with("Runs on the CPU: ") || line.starts_with("Runs on the GPU: ")
            }
            _ if promise.starts_with("Compiled") => line.starts_with("Compiled by ") || line.starts_with("Not compiled: "),
            Some((before, after)) => line.starts_with(before) && line.ends_with(after),
            None if on_gpu && promise.len() > NAMES_AND_BORDERS => line.starts_with(&promise[..NAMES_AND_BORDERS]),
            None if promise.is_empty() => line.is_empty(),
            None => line.starts_with(promise),
        };
        if promise != "..." && !lines.any(fits) {
            panic!("the output has no line\n  {promise}\nat its place:\n{text}");
        }
    }
}

/// The matrices in a text, each under its title: lines of nothing but numbers.
fn matrices(text: &str) -> Vec<(&str, Vec<f64>)> {
    let mut found = Vec::new();
    let mut title = "";
    for line in text.lines() {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        match numbers {
            Some(row) if !row.is_empty() => match found.last_mut() {
                Some((last, values)) if *last == title => Vec::extend(values, row),
                _ => found.push((title, row)),
            },
            _ => title = line,
        }
    }
    found
}

/// Holds an example against its header, and every matrix that it prints against what PyTorch makes of the same.
fn as_pytorch(name: &str, source: &str, run: impl FnOnce(&mut dyn Write) -> Result) {
    let text = output(run);
    check(source, &text);
    let section = format!("\n== {name}\n");
    let theirs = include_str!("peers/numbers.txt").split(&section).nth(1).expect("a section of the example");
    let theirs = matrices(theirs.split("\n== ").next().unwrap_or(theirs));
    let ours = matrices(&text);
    let titles =
        |matrices: &[(&str, Vec<f64>)]| matrices.iter().map(|(title, values)| (title.to_string(), values.len())).collect();
    let (expected, found): (Vec<_>, Vec<_>) = (titles(&theirs), titles(&ours));
    assert_eq!(found, expected);
    for ((title, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        for (at, (x, y)) in ours.iter().zip(theirs).enumerate() {
            // Printed to four places. The largest number of a 16-bit format here is below 4, and is rounded to 1/1024.
            assert!(x == y || (x - y).abs() <= 1e-3 * y.abs().max(1.0), "{title}: {x} at {at}, and PyTorch has {y}");
        }
    }
}

/// The picture that an example says it has drawn.
struct Picture {
    pixels: Vec<u8>,
    width: usize,
}

impl Picture {
    fn of(text: &str) -> Picture {
        let path = text.lines().find_map(|line| line.strip_prefix("Picture: ")).expect("a path");
        let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).expect("a picture")));
        let mut reader = decoder.read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut pixels).expect("a frame");
        assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
        Picture { pixels, width: info.width as usize }
    }

    fn at(&self, x: usize, y: usize) -> &[u8] {
        &self.pixels[(y * self.width + x) * 3..][..3]
    }
}

#[cfg(feature = "cuda")]
fn bytes(colour: [f64; 3]) -> [u8; 3] {
    colour.map(|x| (x * 255.0).round() as u8)
}

#[cfg(feature = "cuda")]
fn near(pixel: &[u8], colour: [u8; 3]) -> bool {
    pixel.iter().zip(colour).all(|(x, y)| x.abs_diff(y) <= 12)
}

#[test]
fn quickstart_prints_its_matrix() {
    check(include_str!("../examples/quickstart.rs"), &output(quickstart::run));
}

#[cfg(feature = "onnx")]
#[test]
fn onnx_resnet_is_57_kernels() {
    check(include_str!("../examples/onnx_resnet.rs"), &output(onnx_resnet::run));
}

#[test]
fn encoder_block_explains_its_kernels() {
    check(include_str!("../examples/encoder_block.rs"), &output(encoder_block::run));
}

#[test]
fn train_network_learns() {
    check(include_str!("../examples/train_network.rs"), &output(train_network::run));
}

#[test]
fn custom_activation_prints_listings_and_values() {
    check(include_str!("../examples/custom_activation.rs"), &output(custom_activation::run));
}

#[cfg(feature = "cuda")]
#[test]
fn cublaslt_epilogues_are_pytorchs() {
    as_pytorch("cublaslt_epilogues", include_str!("../examples/cublaslt_epilogues.rs"), cublaslt_epilogues::run);
}

#[test]
fn paddle_fused_gemm_is_pytorchs() {
    as_pytorch("paddle_fused_gemm", include_str!("../examples/paddle_fused_gemm.rs"), paddle_fused_gemm::run);
}

#[test]
fn custom_operators_are_pytorchs() {
    as_pytorch("custom_operator", include_str!("../examples/custom_operator.rs"), custom_operator::run);
}

#[test]
fn batched_is_pytorchs() {
    as_pytorch("batched", include_str!("../examples/batched.rs"), batched::run);
}

#[test]
fn masks_are_pytorchs() {
    as_pytorch("masks", include_str!("../examples/masks.rs"), masks::run);
}

/// The example holds itself to plain loops.
#[test]
fn quantized_linear_is_plain_loops() {
    check(include_str!("../examples/quantized_linear.rs"), &output(|out| quantized_linear::run(out)));
}

/// The example compares eight bits with its float network.
#[test]
fn quantized_mlp_loses_little() {
    check(include_str!("../examples/quantized_mlp.rs"), &output(|out| quantized_mlp::run(out)));
}

#[test]
fn custom_monoid_is_pytorchs() {
    as_pytorch("custom_monoid", include_str!("../examples/custom_monoid.rs"), custom_monoid::run);
}

#[test]
fn inspect_shows_a_kernel_for_any_target() {
    check(include_str!("../examples/inspect.rs"), &output(|out| inspect::run(out, "sm_90a")));
    let turing = output(|out| inspect::run(out, "sm_75"));
    assert!(turing.contains("kernel        simt"), "{turing}");
    assert!(inspect::run(&mut std::io::sink(), "sm_what").is_err());
}

#[cfg(feature = "cuda")]
#[test]
fn region_activation_checks_itself_and_draws_a_picture() {
    use region_activation::picture::{MARGIN, PANEL, colour};
    let text = output(region_activation::run);
    check(include_str!("../examples/region_activation/main.rs"), &text);
    assert!(!text.contains("Runs on the GPU") || text.contains("Kernels compiled while the borders moved: 0"));

    let picture = Picture::of(&text);
    let at = |x: usize, y: usize| picture.at(x, y);
    let expected = |value: f64| bytes(colour(value));

    // Values, in the middle of each band of the first panel: the field's, through the band's function.
    let field = region_activation::field::Field::new(region_activation::SHAPE);
    let scale = region_activation::SHAPE.m / PANEL;
    for (x, y) in [(300, 40), (460, 200), (300, 300), (200, 480)] {
        let z = field.z(y * scale, x * scale);
        let value = if y * scale < 512 { 1.0 / (1.0 + (-z).exp()) } else { z.tanh() };
        assert!(
            near(at(MARGIN + x, MARGIN + y), expected(value)),
            "({x}, {y}): {value} is drawn as {:?}",
            at(MARGIN + x, MARGIN + y)
        );
    }
    // The seam between them is light, its edges are dark.
    let seam = MARGIN + PANEL / 2;
    assert!(at(MARGIN + 300, seam).iter().all(|x| *x > 220));
    assert!(at(MARGIN + 300, seam - 2).iter().all(|x| *x < 80));
}

/// The example holds itself to plain loops.
#[test]
fn image_filter_draws_a_picture() {
    let text = output(image_filter::run);
    check(include_str!("../examples/image_filter.rs"), &text);
    // Edges in the circle are dark where the sky is even; the sky beside it is not.
    let picture = Picture::of(&text);
    let brightness = |x: usize, y: usize| picture.at(x, y).iter().map(|c| u32::from(*c)).sum::<u32>();
    let (left, below) = (20, 240 + 2 * 20);
    assert!(brightness(left + 110, below + 40) < 120 && brightness(left + 300, below + 40) > 250);
}

/// The example holds itself to plain loops.
#[test]
fn resnet_block_has_its_gradients() {
    check(include_str!("../examples/resnet_block.rs"), &output(resnet_block::run));
}

/// The example compares what is seen with conditions in Rust.
#[test]
fn attention_mask_hides_what_it_says() {
    check(include_str!("../examples/attention_mask.rs"), &output(attention_mask::run));
}

#[test]
fn attention_scores_look_at_what_is_before() {
    let text = output(attention_scores::run);
    check(include_str!("../examples/attention_scores.rs"), &text);
    let anchor = text.lines().find_map(|line| line.strip_prefix("an anchor gets ")).expect("a line");
    let [share, even] = [0, 1].map(|i| {
        let numbers = anchor.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
        numbers.collect::<Vec<_>>()[i]
    });
    assert!(share > 3.0 * even, "{anchor}");
    let picture = text.lines().find_map(|line| line.strip_prefix("Picture: ")).expect("a path");
    assert!(std::fs::metadata(picture).is_ok_and(|file| file.len() > 1000));
}

#[cfg(feature = "cuda")]
#[test]
fn train_mlp_learns_with_products_of_eight_bits() {
    let text = output(|out| train_mlp::train(out, true));
    let numbers = |line: &str| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<f64>>();
    let rows: Vec<Vec<f64>> = text.lines().map(numbers).filter(|row| row.len() == 3).collect();
    assert!(rows.len() == 5 && rows[0][1] > 0.8 && rows[4][1] < 0.05 && rows[4][2] > 98.0, "{rows:?}");
    assert!(text.contains("gradients in eight bits, off those in f32"), "{text}");
}

#[cfg(feature = "cuda")]
#[test]
fn train_mlp_learns_and_draws_a_picture() {
    use train_mlp::picture::{COLOURS, MARGIN, PANEL, REACH};
    let text = output(train_mlp::run);
    check(include_str!("../examples/train_mlp/main.rs"), &text);

    let numbers = |line: &str| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<f64>>();
    let rows: Vec<Vec<f64>> = text.lines().map(numbers).filter(|row| row.len() == 3).collect();
    assert_eq!(rows.iter().map(|row| row[0] as usize).collect::<Vec<_>>(), [0, 100, 200, 300, 400]);
    assert!(rows.windows(2).all(|two| two[1][1] < two[0][1]), "the loss falls: {rows:?}");
    assert!(rows[0][1] > 0.8 && rows[4][1] < 0.01 && rows[4][2] > 99.0, "{rows:?}");
    let unseen = text.lines().find(|line| line.starts_with("points it has not seen")).expect("a line");
    assert!(numbers(unseen)[0] > 97.0, "{unseen}");

    // Where an arm of the spiral passes, the plane has its colour.
    let picture = Picture::of(&text);
    for (arm, colour) in COLOURS.into_iter().enumerate() {
        for along in [0.4f64, 0.6, 0.8] {
            let angle = std::f64::consts::TAU * (arm as f64 / 3.0 + 1.25 * along);
            let place = |x: f64| (MARGIN as f64 + PANEL as f64 * (x / REACH + 1.0) / 2.0) as usize;
            // A pixel is the arm's colour, pale or as one of its points, or the white around one.
            let (x, y) = (place(along * angle.cos()), place(-along * angle.sin()));
            let around = (0..49).map(|i| picture.at(x + i % 7 - 3, y + i / 7 - 3));
            let pale = bytes(colour.map(|c| 0.45 * 0.99 + 0.55 * c));
            assert!(around.into_iter().filter(|pixel| near(pixel, pale)).count() > 5, "arm {arm} at {along}");
        }
    }
}
