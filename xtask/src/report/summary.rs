//! The lines below a table: means and extremes of its rows.

use super::table::{ATOMIC, CUBLASLT, Line, SEPARATE, WITHOUT_TRAINING, percent};
use postlude_record::Record;
use std::fmt::Write;

/// A choice counts as good if no other kernel is faster by more than this.
const GOOD: f64 = 0.03;

/// From this K on a product is long enough to make the cost of training small.
const LONG_K: usize = 4096;

/// Sentences about the rows of a group's table, if there are any.
pub fn below(page: &mut String, group: &str, lines: &[Line<'_>]) {
    match group {
        "choice" => choice(page, lines),
        "tax" | "activations" | "pointwise" => {}
        "training" => sentences(page, lines, training),
        _ => sentences(page, lines, |lines, slices| compared(lines, "", slices).into_iter().collect()),
    }
}

fn choice(page: &mut String, lines: &[Line<'_>]) {
    let good = lines.iter().filter(|line| line.over_the_best() <= 1.0 + GOOD).count();
    let worst = lines.iter().map(Line::over_the_best).fold(1.0, f64::max);
    let _ = writeln!(
        page,
        "\nWithin {:.0} % of the fastest on {good} of {} shapes; at worst {worst:.3} times its time.",
        GOOD * 100.0,
        lines.len()
    );
}

/// One sentence for each epilogue, kind of operands and length of slices.
fn sentences(page: &mut String, lines: &[Line<'_>], say: impl Fn(&[&Line<'_>], &str) -> Vec<String>) {
    let kind = |line: &Line<'_>| {
        let Record { epilogue, dtype, layout, .. } = line.first;
        format!("{epilogue}, {dtype} {layout}")
    };
    let mut kinds: Vec<String> = Vec::new();
    for line in lines {
        if !kinds.contains(&kind(line)) {
            kinds.push(kind(line));
        }
    }
    page.push('\n');
    for wanted in kinds {
        let lines: Vec<&Line<'_>> = lines.iter().filter(|line| kind(line) == wanted).collect();
        for slices in ["long", "short"] {
            let said = say(&lines, slices);
            if !said.is_empty() {
                let _ = writeln!(page, "- {wanted}, {slices} slices: {}.", said.join("; "));
            }
        }
    }
}

/// Ratios against the peers whose names begin so.
fn compared(lines: &[&Line<'_>], peer: &str, slices: &str) -> Option<String> {
    let ratios: Vec<f64> = lines.iter().filter_map(|line| line.against(peer, slices)).map(|record| record.ratio).collect();
    let least = ratios.iter().copied().reduce(f64::min)?;
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let shapes = if ratios.len() == 1 { "shape" } else { "shapes" };
    Some(format!("geometric mean {mean:.3}, minimum {least:.3} of {} {shapes}", ratios.len()))
}

/// The largest additional time over the peers whose names begin so, of products with a K of no less.
fn largest_cost(lines: &[&Line<'_>], peer: &str, slices: &str, least_k: usize) -> Option<f64> {
    let long = lines.iter().filter(|line| line.first.k >= least_k);
    long.filter_map(|line| line.against(peer, slices)).map(|record| percent(record.ratio)).reduce(f64::max)
}

fn training(lines: &[&Line<'_>], slices: &str) -> Vec<String> {
    let ratio = |title: &str, peer| compared(lines, peer, slices).map(|said| format!("against {title} {said}"));
    let cost = largest_cost(lines, WITHOUT_TRAINING, slices, LONG_K);
    let order = largest_cost(lines, ATOMIC, slices, 0);
    let said = [
        ratio("cuBLASLt", CUBLASLT),
        ratio("the separate steps", SEPARATE),
        cost.map(|cost| format!("costs {cost:+.1} % at most where K >= {LONG_K}")),
        order.map(|cost| format!("the fixed order {cost:+.1} % at most over atomics")),
    ];
    said.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{table::page, tests::record};
    use super::*;

    #[test]
    fn ratios_come_to_a_mean_and_a_minimum() {
        let of = |m, slices, ratio| record("large", m, "identity", slices, ratio);
        let page = page(&[of(1, "long", 0.5), of(2, "long", 2.0), of(2, "short", 1.25)], None, None);
        assert!(page.contains("\n- identity, f16 TN, long slices: geometric mean 1.000, minimum 0.500 of 2 shapes.\n"), "{page}");
        assert!(page.contains("\n- identity, f16 TN, short slices: geometric mean 1.250, minimum 1.250 of 1 shape.\n"), "{page}");
    }

    #[test]
    fn training_is_held_against_each_of_its_peers() {
        let of = |k, peer: &str, ratio| Record { k, peer: peer.into(), ..record("training", 64, "drelu", "short", ratio) };
        let peers = |k, ratio| {
            let gradient =
                Record { distance: if k == 1024 { f64::INFINITY } else { 0.0 }, ..of(k, "cuBLASLt, gradient f16", ratio) };
            [gradient, of(k, "product, pass, sums", 2.0), of(k, "without training", ratio / 2.0), of(k, "atomic", 0.8)]
        };
        let page = page(&[peers(1024, 1.0), peers(8192, 1.6)].concat(), None, None);
        let wanted = "- drelu, f16 TN, short slices: against cuBLASLt geometric mean 1.265, minimum 1.000 of 2 shapes; \
                      against the separate steps geometric mean 2.000, minimum 2.000 of 2 shapes; \
                      costs +25.0 % at most where K >= 4096; the fixed order +25.0 % at most over atomics.\n";
        assert!(page.contains(wanted), "{page}");
        assert!(page.contains("| - | +25.0 % [+23.5, +26.6] | 100.0 |"), "{page}");
        assert_eq!(page.matches("] (*) |").count(), 1, "one gradient was not finite: {page}");
    }
}
