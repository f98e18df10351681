//! The figures as bars, on a scale where each line is ten times the one before it.

use super::{Figure, STAGES, time};
use crate::svg::{line, page, rectangle, text};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 770.0;
const BAR: f64 = 13.0;
const GAP: f64 = 9.0;

const STYLE: &str = "\
.front { fill: #57ab5a; } .hit { fill: #2f81f7; } .cold { fill: #e08a1e; }
";

/// The colour of a stage: before the cache, out of it, or past it.
fn class(group: &str) -> &'static str {
    match group {
        "memory hit" | "memory hit by source" | "disk hit" => "hit",
        "cold compile" | "cold, bias and relu" | "cold, heavy" | "one process" | "eight processes" => "cold",
        _ => "front",
    }
}

pub fn svg(figures: &[Figure]) -> String {
    let nanoseconds = || figures.iter().flat_map(|figure| [figure.low, figure.high]).filter(|ns| *ns > 0.0);
    let first = nanoseconds().fold(100.0, f64::min).log10().floor();
    let last = nanoseconds().fold(1e3, f64::max).log10().ceil();
    let x = |ns: f64| LEFT + (RIGHT - LEFT) * ((ns.max(1e-3).log10() - first) / (last - first)).clamp(0.0, 1.0);
    let mut body = String::new();
    text(&mut body, 16.0, 28.0, "ink", "start", "font-size=\"17\" font-weight=\"600\"", "From a graph to a kernel");
    let mut at = 16.0;
    for (class, what) in [("front", "before the cache"), ("hit", "out of the cache"), ("cold", "compiled")] {
        rectangle(&mut body, at, 39.0, 14.0, 9.0, class);
        text(&mut body, at + 19.0, 48.0, "soft", "start", "", what);
        at += 140.0;
    }
    let top = 62.0;
    let mut y = top;
    let mut bars = String::new();
    for (group, _) in STAGES {
        let members: Vec<&Figure> = figures.iter().filter(|figure| figure.group == group).collect();
        if members.is_empty() {
            continue;
        }
        for (index, figure) in members.iter().enumerate() {
            let middle = y + BAR - 4.0;
            let stage = if index == 0 { group } else { "" };
            text(&mut bars, 16.0, middle, "ink", "start", "font-size=\"11\"", stage);
            let name = if figure.name == "all" {
                String::new()
            } else {
                figure.name.replace(" epilogues, ", " on ").replace(" on 1 threads", " on 1 thread")
            };
            text(&mut bars, LEFT - 8.0, middle, "soft", "end", "font-size=\"10\"", &name);
            rectangle(&mut bars, LEFT, y, x(figure.median) - LEFT, BAR - 3.0, class(group));
            line(&mut bars, [x(figure.low), y + BAR / 2.0 - 1.5, x(figure.high), y + BAR / 2.0 - 1.5], "whisker");
            text(
                &mut bars,
                x(figure.median).max(x(figure.high)) + 5.0,
                middle,
                "soft",
                "start",
                "font-size=\"10\"",
                &time(figure.median),
            );
            y += BAR;
        }
        y += GAP;
    }
    for power in first as i32..=last as i32 {
        let ns = 10f64.powi(power);
        line(&mut body, [x(ns), top - 4.0, x(ns), y], "grid");
        let label = time(ns).replace(".00", "").replace(".0", "");
        text(&mut body, x(ns), y + 14.0, "soft", "middle", "font-size=\"10\"", &label);
    }
    page(WIDTH, y + 28.0, "Times of each stage from a graph to a kernel, on a logarithmic scale", STYLE, &(body + &bars))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_is_the_same_distance_everywhere() {
        let figure = |name: &str, median: f64| Figure {
            group: "cold compile".into(),
            name: name.into(),
            median,
            low: median,
            high: median,
        };
        let drawn = svg(&[figure("a", 1e3), figure("b", 1e4), figure("c", 1e5)]);
        let widths: Vec<f64> = drawn
            .lines()
            .filter(|line| line.starts_with("<rect class=\"cold\" x=\"210"))
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert!(
            widths.len() == 3 && (widths[2] - 2.0 * widths[1] + widths[0]).abs() < 0.2 && widths[1] > widths[0],
            "{widths:?}"
        );
        assert!(drawn.ends_with("</svg>\n") && drawn.contains(">1 \u{b5}s<") && drawn.contains(">100 \u{b5}s<"), "{drawn}");
    }
}
