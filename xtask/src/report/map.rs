//! The map of shapes: for each K a panel of M x N, coloured by the ratio of times.
//!
//! A field's colour tells the class of its ratio, and the ratio stands in it. Its records are a file of their own,
//! because hundreds of lines would bury the tables, and because another GPU may have drawn it.

use crate::svg::{page, rectangle, text};
use postlude_record::Record;
use std::collections::BTreeSet;

const CELL: [f64; 2] = [46.0, 26.0];
const LEFT: f64 = 76.0;
const GAP: f64 = 62.0;
const TOP: f64 = 66.0;

/// Classes of ratios: each is below this, and named so. The last one has no bound.
const CLASSES: [(f64, &str, &str); 7] = [
    (0.85, "c0", "below .85"),
    (0.92, "c1", "to .92"),
    (0.98, "c2", "to .98"),
    (1.02, "c3", "to 1.02"),
    (1.10, "c4", "to 1.10"),
    (1.25, "c5", "to 1.25"),
    (f64::INFINITY, "c6", "above"),
];

const STYLE: &str = "\
.c0 { fill: #b3261e; } .c1 { fill: #e5714a; } .c2 { fill: #f5c79e; } .c3 { fill: #e6e6e6; }
.c4 { fill: #b7d8f0; } .c5 { fill: #5fa3d8; } .c6 { fill: #1c66a8; }
.dark { fill: #1f2328; } .light { fill: #ffffff; }
";

/// The class of a ratio, and the colour of words on it.
fn class(ratio: f64) -> (&'static str, &'static str) {
    let (_, class, _) = CLASSES.into_iter().find(|(bound, ..)| ratio < *bound).unwrap_or(CLASSES[CLASSES.len() - 1]);
    (class, if matches!(class, "c0" | "c1" | "c5" | "c6") { "light" } else { "dark" })
}

fn extents(records: &[Record], of: impl Fn(&Record) -> usize) -> Vec<usize> {
    records.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The ratio of a shape to the peer's algorithm that did best.
fn hardest(records: &[Record], shape: [usize; 3]) -> Option<f64> {
    let of = records.iter().filter(|record| [record.m, record.n, record.k] == shape);
    of.map(|record| record.ratio).min_by(f64::total_cmp)
}

/// The picture, unless there is nothing to draw.
pub fn svg(records: &[Record]) -> Option<String> {
    let first = records.first()?;
    let (rows, columns) = (extents(records, |record| record.m), extents(records, |record| record.n));
    let mut body = String::new();
    let width = (LEFT + columns.len() as f64 * CELL[0] + 20.0).max(640.0);
    let title = format!("{} {}, identity: time of cuBLASLt over Postlude\u{2019}s", first.dtype, first.layout);
    text(&mut body, 16.0, 26.0, "ink", "start", "font-size=\"16\" font-weight=\"600\"", &title);
    let origin = format!("{}, {}. Blue: Postlude is faster.", first.gpu, first.software);
    text(&mut body, 16.0, 44.0, "soft", "start", "", &origin);
    for (place, (_, class, name)) in CLASSES.into_iter().enumerate() {
        let x = 16.0 + 86.0 * place as f64;
        rectangle(&mut body, x, TOP - 12.0, 12.0, 12.0, class);
        text(&mut body, x + 16.0, TOP - 2.0, "soft", "start", "font-size=\"11\"", name);
    }
    let mut y = TOP;
    for k in extents(records, |record| record.k) {
        y += GAP - 24.0;
        text(&mut body, 16.0, y - 8.0, "ink", "start", "font-weight=\"600\"", &format!("K = {k}"));
        for (column, n) in columns.iter().enumerate() {
            let x = LEFT + (column as f64 + 0.5) * CELL[0];
            text(&mut body, x, y - 8.0, "soft", "middle", "font-size=\"11\"", &format!("{n}"));
        }
        for (row, m) in rows.iter().enumerate() {
            let top = y + row as f64 * CELL[1];
            text(&mut body, LEFT - 8.0, top + 17.0, "soft", "end", "font-size=\"11\"", &format!("M = {m}"));
            for (column, n) in columns.iter().enumerate() {
                let Some(ratio) = hardest(records, [*m, *n, k]) else { continue };
                let (class, ink) = class(ratio);
                let x = LEFT + column as f64 * CELL[0];
                rectangle(&mut body, x, top, CELL[0] - 1.0, CELL[1] - 1.0, class);
                let number = format!("{ratio:.2}");
                text(&mut body, x + CELL[0] / 2.0, top + 17.0, ink, "middle", "font-size=\"11\"", &number);
            }
        }
        y += rows.len() as f64 * CELL[1] + 24.0;
    }
    text(&mut body, LEFT, y, "soft", "start", "font-size=\"11\"", "columns: N");
    Some(page(width, y + 16.0, "Time of cuBLASLt over Postlude's over M, N and K", STYLE, &body))
}

/// The figures below the picture: how many shapes, their mean and their spread.
pub fn words(records: &[Record]) -> String {
    let shapes: BTreeSet<[usize; 3]> = records.iter().map(|record| [record.m, record.n, record.k]).collect();
    let mut ratios: Vec<f64> = shapes.into_iter().filter_map(|shape| hardest(records, shape)).collect();
    ratios.sort_by(f64::total_cmp);
    let (Some(least), Some(tenth)) = (ratios.first(), ratios.get(ratios.len() / 10)) else { return String::new() };
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    format!("{} shapes: geometric mean {mean:.3}, tenth percentile {tenth:.3}, least {least:.3}.", ratios.len())
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn fields_have_the_colour_of_their_ratios() {
        let svg = svg(&[record("map", 64, "identity", "brief", 0.9), record("map", 512, "identity", "brief", 1.3)]);
        let svg = svg.unwrap_or_default();
        let field = |class: &str| {
            svg.lines().filter(|line| line.contains(&format!("class=\"{class}\"")) && line.contains("width=\"45.0\"")).count()
        };
        assert_eq!(["c0", "c1", "c2", "c3", "c4", "c5", "c6"].map(field), [0, 1, 0, 0, 0, 0, 1]);
        assert!(svg.contains(">M = 64<") && svg.contains(">K = 1024<") && svg.contains(">1.30<"));
        assert_eq!(super::svg(&[]), None);
    }

    #[test]
    fn words_count() {
        // Two algorithms ran on the first shape, and the faster one counts.
        let records = [(1, 0.5), (1, 0.7), (2, 2.0)].map(|(m, ratio)| record("map", m, "identity", "brief", ratio));
        assert_eq!(words(&records), "2 shapes: geometric mean 1.000, tenth percentile 0.500, least 0.500.");
        assert_eq!(words(&[]), "");
    }
}
