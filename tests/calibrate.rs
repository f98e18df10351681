//! Calibration: histograms on the host and behind a product, thresholds against exhaustive searches, documents.

use postlude::calibrate::{CalibrationError, Calibrations, Histogram, Method};
use postlude::ir::Axes;
use postlude::plan::Math;
use postlude::prelude::*;

/// Numbers like those of a network: bell-shaped, with a few that are far larger.
fn values(count: usize) -> Vec<f32> {
    let mut state = 7u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut bell = || (0..12).map(|_| unit()).sum::<f32>() - 6.0;
    (0..count).map(|i| if i % 1000 == 3 { 12.0 * bell() } else { bell() }).collect()
}

fn squared_error(values: &[f32], threshold: f64, format: DType) -> f64 {
    let most = format.round(f64::MAX);
    let scale = threshold / most;
    values.iter().map(|x| (format.round(f64::from(*x) / scale) * scale - f64::from(*x)).powi(2)).sum()
}

#[test]
fn largest_magnitudes_and_percentiles() {
    let x = values(20_000);
    let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let histogram = Histogram::of(&x, Histogram::BINS).unwrap();
    let max = histogram.calibrate(Method::Max, E4M3).unwrap();
    assert_eq!((max.threshold, max.scale, max.clipped), (most, (f64::from(most) / 448.0) as f32, 0.0));
    assert_eq!((max.elements, max.largest), (20_000, most));
    for share in [50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
        let found = histogram.calibrate(Method::Percentile(share), I8).unwrap();
        let inside = |limit: f64| x.iter().filter(|x| f64::from(x.abs()) < limit).count() as f64 / x.len() as f64 * 100.0;
        let width = histogram.range() / histogram.counts().len() as f64;
        let threshold = f64::from(found.threshold);
        assert!(inside(threshold * (1.0 + 1e-6)) >= share - 0.006, "{share}: {threshold}");
        assert!(inside(threshold - 1.01 * width) < share, "{share}: one bin less holds as many");
        assert!((found.clipped * 100.0 - (100.0 - inside(threshold))).abs() < 0.006, "{share}: {}", found.clipped);
    }
}

/// No other threshold makes the quantised numbers themselves better by more than the bins' width explains.
#[test]
fn the_least_squared_error() {
    let x = values(20_000);
    let histogram = Histogram::of(&x, Histogram::BINS).unwrap();
    for format in [I8, E4M3, E5M2] {
        let found = histogram.calibrate(Method::MeanSquaredError, format).unwrap();
        let error = squared_error(&x, f64::from(found.threshold), format);
        let best = (1..400).map(|i| squared_error(&x, histogram.range() * f64::from(i) / 400.0, format)).fold(f64::MAX, f64::min);
        assert!(error <= 1.02 * best, "{format}: {error} at {}, {best} elsewhere", found.threshold);
        let signal: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
        let noise = 10.0 * (signal / error).log10();
        assert!((found.noise - noise).abs() < 0.2, "{format}: {} dB is said, and {noise} dB found", found.noise);
        let bytes = found.quantize(&x);
        let back = |i: usize| format.read(&bytes, i) * f64::from(found.scale);
        let measured: f64 = x.iter().enumerate().map(|(i, x)| (back(i) - f64::from(*x)).powi(2)).sum();
        assert!((measured / error - 1.0).abs() < 1e-3, "{format}: {measured} and {error}");
    }
    // A long tail makes saturating pay in integers; fp8's steps grow with the numbers.
    let integers = histogram.calibrate(Method::MeanSquaredError, I8).unwrap();
    assert!(integers.clipped > 0.0 && integers.noise > histogram.calibrate(Method::Max, I8).unwrap().noise);
}

/// The divergence by its definition: two distributions over the bins, summed.
fn divergence(counts: &[u64], bins: usize, levels: usize) -> f64 {
    let mut p: Vec<f64> = counts[..bins].iter().map(|c| *c as f64).collect();
    p[bins - 1] += counts[bins..].iter().sum::<u64>() as f64;
    let mut q = vec![0.0; bins];
    for level in 0..levels {
        let of_level: Vec<usize> = (level * bins / levels..(level + 1) * bins / levels).collect();
        let held = of_level.iter().filter(|b| counts[**b] > 0).count();
        let sum: f64 = of_level.iter().map(|b| counts[*b] as f64).sum();
        of_level.iter().filter(|b| counts[**b] > 0).for_each(|b| q[*b] = sum / held as f64);
    }
    if q[bins - 1] == 0.0 {
        q[bins - 1] = 1.0;
    }
    let (all, kept) = (p.iter().sum::<f64>(), counts[..bins].iter().sum::<u64>() as f64);
    (0..bins).filter(|b| p[*b] > 0.0).map(|b| p[b] / all * (p[b] / all / (q[b] / kept)).ln()).sum()
}

#[test]
fn the_least_divergence() {
    let x = values(50_000);
    for (format, levels) in [(I8, 128), (U8, 256)] {
        let histogram = Histogram::of(&x, 1024).unwrap();
        let found = histogram.calibrate(Method::Entropy, format).unwrap();
        let counts = histogram.counts();
        let best =
            (levels..=counts.len()).min_by(|a, b| divergence(counts, *a, levels).total_cmp(&divergence(counts, *b, levels)));
        let expected = histogram.range() * best.unwrap() as f64 / counts.len() as f64;
        assert_eq!(found.threshold, expected as f32, "{format}");
        assert!(f64::from(found.threshold) < histogram.range(), "{format}: a tail is cut off");
    }
}

/// What a kernel's definition counts is what the host counts, for all elements and for each column or row.
#[test]
fn counts_behind_a_product() {
    let (m, n, batch) = (37, 12, 2);
    let x = values(m * n * batch);
    let bins = 64u16;
    for along in [Axes::NONE, N, M] {
        let epilogue = Epilogue::build(|e| e.histogram("counts", e.acc(), e.scalar("range", F32), bins, along)).unwrap();
        let histograms = if along == N {
            n
        } else if along == M {
            m
        } else {
            1
        };
        let mut counts = vec![0i32; histograms * (usize::from(bins) + 1)];
        let gemm = Gemm::pointwise(F32, Order::RowMajor, &epilogue).math(Math::Exact);
        for launch in 1..3 {
            let args = HostArgs::new().input("a", &x).scalar("range", 2.5f32).output("counts", &mut counts);
            gemm.reference(Shape::matrix(m, n).batched(batch), args).unwrap();
            for (at, counts) in counts.chunks_exact(usize::from(bins) + 1).enumerate() {
                let mine = x.iter().enumerate().filter(|(i, _)| match along {
                    N => i % n == at,
                    M => i / n % m == at,
                    _ => true,
                });
                let mut expected = Histogram::new(2.5, usize::from(bins)).unwrap();
                mine.for_each(|(_, x)| (0..launch).for_each(|_| expected.add([*x])));
                assert_eq!(Histogram::of_counts(2.5, counts).unwrap(), expected, "{along:?}, {at}");
            }
        }
    }
}

#[test]
fn what_is_no_number_counts_nowhere() {
    let mut histogram = Histogram::new(1.0, 4).unwrap();
    histogram.add([f32::NAN, f32::INFINITY, -1.0, 1.5, -0.0, 0.3]);
    assert_eq!((histogram.counts(), histogram.beyond(), histogram.elements()), (&[1, 1, 0, 1][..], 2, 5));
    let zeros = Histogram::of(&[0.0f32; 5], 8).unwrap();
    let nothing = Histogram::of::<f32>(&[], 8).unwrap();
    for (histogram, elements) in [(zeros, 5), (nothing, 0)] {
        for method in [Method::Max, Method::Percentile(99.0), Method::MeanSquaredError, Method::Entropy] {
            let found = histogram.calibrate(method, I8).unwrap();
            assert_eq!(found.elements, elements);
            assert!(found.scale > 0.0 && found.scale.is_finite() && found.noise.is_finite(), "{method:?}: {found:?}");
        }
    }
}

#[test]
fn faults_say_what_to_do() {
    let histogram = Histogram::of(&[1.0f32, 2.0], 16).unwrap();
    let says = |fault: Result<_, CalibrationError>, words: &str| {
        let fault = fault.map(|_: f32| ()).unwrap_err().to_string();
        assert!(fault.contains(words), "{fault}");
    };
    let calibrate = |histogram: &Histogram, method, format| histogram.calibrate(method, format).map(|c| c.scale);
    says(calibrate(&histogram, Method::Max, F16), "calibrate for I8, U8, E4M3 or E5M2");
    says(calibrate(&histogram, Method::Entropy, E4M3), "use `Method::MeanSquaredError`");
    says(calibrate(&histogram, Method::Percentile(0.0), I8), "such as 99.99");
    says(Histogram::new(f32::NAN, 4).map(|_| 0.0), "not a positive number");
    says(Histogram::of_counts(1.0, &[3]).map(|_| 0.0), "too coarse");
    says(Histogram::of_counts(1.0, &[3, -1, 0]).map(|_| 0.0), "bin 1 holds -1");
    let beyond = Histogram::of_counts(1.0, &[96, 3, 1]).unwrap();
    says(calibrate(&beyond, Method::Max, I8), "1 elements are larger than 1");
    assert_eq!(calibrate(&beyond, Method::Percentile(90.0), I8).unwrap(), 0.5 / 127.0);
    says(calibrate(&beyond, Method::Percentile(99.5), I8), "larger than 1");
    let mut other = Histogram::new(2.0, 2).unwrap();
    says(other.merge(&beyond).map(|()| 0.0), "count both with the same range");
    let mut twice = beyond.clone();
    twice.merge(&beyond).unwrap();
    assert_eq!((twice.elements(), twice.counts()[0]), (200, 192));
}

#[test]
fn documents_are_checked() {
    let x = values(1000);
    let histogram = Histogram::of(&x, Histogram::BINS).unwrap();
    let mut all = Calibrations::default();
    for (name, method) in [("x", Method::Percentile(99.9)), ("w", Method::Max)] {
        all.tensors.insert(name.into(), vec![histogram.calibrate(method, I8).unwrap(); 3]);
    }
    let json = all.to_json();
    assert_eq!(Calibrations::from_json(&json).unwrap(), all);
    assert_eq!((all.scales("w").len(), all.scales("v").len()), (3, 0));
    let scale = format!("\"scale\": {}", all.scales("w")[0]);
    let threshold = format!("\"threshold\": {}", all.tensors["w"][0].threshold);
    assert!(json.contains(&scale) && json.contains(&threshold));
    for (from, to, words) in [
        (&*scale, "\"scale\": 0.0", "`w` has a scale of 0"),
        (&*scale, "\"scale\": -2.5", "`w` has a scale of -2.5"),
        (&*threshold, "\"threshold\": -0.5", "`w` has a threshold of -0.5"),
        (&*threshold, "\"threshold\": 1e39", "out of range"),
        ("\"i8\"", "\"f32\"", "not a format"),
        ("clipped", "cut", "not a record"),
    ] {
        let fault = Calibrations::from_json(&json.replace(from, to)).unwrap_err().to_string();
        assert!(fault.contains(words), "{fault}");
    }
    let svg = histogram.svg(&all.tensors["x"][0]);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("saturate"));
    assert!(svg.matches("<rect").count() > 50);
}

/// Bars of logarithmic height between the margins, and a line at the threshold; those beyond it have another colour.
#[test]
fn a_picture_has_a_bar_for_each_bin() {
    // The last count is of what lies beyond the range.
    let histogram = Histogram::of_counts(4.0, &[3, 0, 1, 1, 20, 0, 0, 5, 0]).unwrap();
    let drawn = |histogram: &Histogram, share: f64| {
        let svg = histogram.svg(&histogram.calibrate(Method::Percentile(share), DType::I8).unwrap());
        svg.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let lines = drawn(&histogram, 80.0);
    let bar = |x: &str, y: &str, height: &str, colour: &str| {
        format!("<rect x=\"{x}\" y=\"{y}\" width=\"73.00\" height=\"{height}\" fill=\"{colour}\"/>")
    };
    let (inside, beyond) = ("#4f7cac", "#d1495b");
    let bars = [
        bar("28.00", "115.36", "96.64", inside),
        bar("174.00", "165.95", "46.05", inside),
        bar("247.00", "165.95", "46.05", inside),
        bar("320.00", "28.00", "184.00", inside),
        bar("539.00", "91.84", "120.16", beyond),
    ];
    assert_eq!(lines[2..7], bars);
    assert!(lines[7].starts_with("<line x1=\"393.00\" x2=\"393.00\" y1=\"28\" y2=\"212\""), "{}", lines[7]);
    assert!(lines[8].starts_with("<text x=\"387.00\" y=\"20.00\" text-anchor=\"end\">|T| = 2.5000, 16.6667 % saturate, "));
    assert_eq!(lines[9], "<text x=\"28\" y=\"228.00\">0</text>");
    assert_eq!(lines[10], "<text x=\"612.00\" y=\"228.00\" text-anchor=\"end\">4.0000</text>");
    assert_eq!((lines.len(), lines[11].as_str()), (12, "</svg>"));
    let lines = drawn(&histogram, 10.0);
    assert!(lines[8].starts_with("<text x=\"107.00\" y=\"20.00\" text-anchor=\"start\">|T| = 0.5000"), "{}", lines[8]);
    // Two of 300 bins are a bar.
    let mut counts = [0; 301];
    (counts[0], counts[1], counts[298], counts[299]) = (4, 3, 6, 1);
    let lines = drawn(&Histogram::of_counts(1.0, &counts).unwrap(), 50.0);
    assert_eq!(lines.len(), 9, "two bars of as many elements");
    let bar = |x: &str, colour: &str| format!("<rect x=\"{x}\" y=\"28.00\" width=\"3.89\" height=\"184.00\" fill=\"{colour}\"/>");
    assert_eq!(lines[2..4], [bar("28.00", inside), bar("608.11", beyond)]);
    let few = drawn(&Histogram::of_counts(1.0, &[1, 0]).unwrap(), 100.0);
    assert!(few[2].contains("y=\"28.00\" width=\"584.00\" height=\"184.00\""), "{}", few[2]);
}
