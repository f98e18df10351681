//! The chart: a bar for each shape and format, a panel for each epilogue, a line where both sides take the same time.
//!
//! It brings its own background, so that it is readable on any page, and follows the reader's colour scheme.

use crate::svg::{line, page, rectangle, text};
use postlude_record::Record;

const WIDTH: f64 = 860.0;
/// The beginning and end of bars, and the place where they are cut.
const CUT: f64 = 2.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 780.0;
/// The column of the ratios as numbers: beside the bars, so that no line runs through them.
const LABEL: f64 = 800.0;
const BAR: f64 = 9.0;
const GAP: f64 = 6.0;

/// Panels: title, groups.
const SECTIONS: [(&str, &[&str]); 3] = [
    ("against cuBLASLt", &["large", "small", "unaligned"]),
    ("few rows, against cuBLASLt", &["decode"]),
    ("against cuBLASLt and further kernels", &["regions"]),
];

const STYLE: &str = "\
.f16 { fill: #2f81f7; } .bf16 { fill: #e08a1e; } .f32 { fill: #57ab5a; }
";

/// Bars of one shape, one for each format.
struct Shape<'r> {
    label: String,
    bars: Vec<&'r Record>,
}

struct Panel<'r> {
    title: String,
    shapes: Vec<Shape<'r>>,
}

/// The chart, unless there is nothing to draw.
pub fn svg(records: &[Record]) -> Option<String> {
    let panels = panels(records);
    let first = panels.first()?.shapes.first()?.bars.first()?;
    let drawn = || panels.iter().flat_map(|panel| &panel.shapes).flat_map(|shape| &shape.bars);
    // A bar much longer than the others would shrink them to nothing. It is cut, and its label gives its length.
    let most = drawn().map(|record| record.high).fold(1.2, f64::max).min(CUT);
    let step = 0.25;
    let end = (most / step).ceil() * step;
    let x = |ratio: f64| LEFT + (RIGHT - LEFT) * ratio.min(end) / end;

    let mut body = String::new();
    let mut y = 28.0;
    text(&mut body, 16.0, y, "ink", "start", "font-size=\"17\" font-weight=\"600\"", "Time of cuBLASLt over Postlude\u{2019}s");
    y += 20.0;
    let origin = format!("{}, {}. Above 1 Postlude is faster.", first.gpu, first.software);
    text(&mut body, 16.0, y, "soft", "start", "", &origin);
    y += 18.0;
    let mut formats: Vec<&str> = Vec::new();
    drawn().for_each(|record| {
        if !formats.contains(&&*record.dtype) {
            formats.push(&record.dtype)
        }
    });
    let mut at = 16.0;
    for format in formats {
        rectangle(&mut body, at, y - BAR, 14.0, BAR, format);
        text(&mut body, at + 19.0, y, "soft", "start", "", format);
        at += 70.0;
    }
    let legend = "bar: median of the rounds; whisker: 10 % to 90 %; slices of 160 ms, or of 2.5 ms (marked s)";
    text(&mut body, at, y, "soft", "start", "", legend);
    y += 14.0;

    for panel in &panels {
        y += 26.0;
        text(&mut body, 16.0, y, "ink", "start", "font-weight=\"600\"", &panel.title);
        y += 10.0;
        let height: f64 = panel.shapes.iter().map(|shape| shape.bars.len() as f64 * BAR + GAP).sum();
        for tick in 0..=(end / step).round() as usize {
            let value = tick as f64 * step;
            line(&mut body, [x(value), y, x(value), y + height], "grid");
            text(&mut body, x(value), y + height + 13.0, "soft", "middle", "font-size=\"10\"", &format!("{value}"));
        }
        let mut row = y + GAP / 2.0;
        for shape in &panel.shapes {
            let middle = row + shape.bars.len() as f64 * BAR / 2.0;
            text(&mut body, LEFT - 8.0, middle + 4.0, "ink", "end", "font-size=\"11\"", &shape.label);
            for record in &shape.bars {
                bar(&mut body, row, record, x);
                row += BAR;
            }
            row += GAP;
        }
        line(&mut body, [x(1.0), y, x(1.0), y + height], "one");
        y += height + 16.0;
    }
    let height = y + 12.0;
    Some(page(WIDTH, height, "Time of cuBLASLt over Postlude's, for each shape and epilogue", STYLE, &body))
}

fn bar(body: &mut String, y: f64, record: &Record, x: impl Fn(f64) -> f64) {
    rectangle(body, LEFT, y, x(record.ratio) - LEFT, BAR - 1.0, &record.dtype);
    let middle = y + (BAR - 1.0) / 2.0;
    if record.ratio > CUT {
        text(body, x(record.ratio) - 4.0, y + BAR - 2.0, "page", "end", "font-size=\"10\"", "\u{bb}");
    } else {
        line(body, [x(record.low), middle, x(record.high), middle], "whisker");
    }
    let mark = if record.slices == "short" { " s" } else { "" };
    let label = format!("{:.2}{mark}", record.ratio);
    text(body, LABEL, y + BAR - 1.0, "soft", "start", "font-size=\"9\"", &label);
}

/// Against the hardest peer, in long slices if there are any.
fn panels(records: &[Record]) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for (what, groups) in SECTIONS {
        for record in records.iter().filter(|record| groups.contains(&&*record.group) && record.layout == "TN") {
            let title = format!("{}: {what}", record.epilogue);
            let panel =
                find_or_push(&mut panels, |panel| panel.title == title, || Panel { title: title.clone(), shapes: Vec::new() });
            let label = format!("{} x {} x {}", record.m, record.n, record.k);
            let shapes = &mut panel.shapes;
            let shape = find_or_push(shapes, |shape| shape.label == label, || Shape { label: label.clone(), bars: Vec::new() });
            match shape.bars.iter_mut().find(|bar| bar.dtype == record.dtype) {
                Some(bar) => {
                    let rank = |record: &Record| (record.slices != "long", record.ratio);
                    if rank(record) < rank(bar) {
                        *bar = record;
                    }
                }
                None => shape.bars.push(record),
            }
        }
    }
    panels
}

fn find_or_push<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, make: impl Fn() -> T) -> &mut T {
    let at = list.iter().position(is).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    &mut list[at]
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn long_slices_and_hard_peers_are_drawn() {
        let records = [
            record("large", 64, "identity", "short", 1.3),
            record("large", 64, "identity", "long", 1.1),
            record("regions", 64, "regions", "long", 1.6),
            record("regions", 64, "regions", "long", 1.4),
        ];
        let drawn: Vec<f64> = panels(&records).iter().map(|panel| panel.shapes[0].bars[0].ratio).collect();
        assert_eq!(drawn, [1.1, 1.4]);
    }

    #[test]
    fn bars_are_as_long_as_their_ratios() {
        let svg = svg(&[record("large", 64, "identity", "long", 1.0), record("large", 96, "identity", "long", 0.5)]);
        let svg = svg.unwrap_or_default();
        let widths: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<rect class=\"f16\" x=\"170"))
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert!(widths.len() == 2 && (widths[0] - 2.0 * widths[1]).abs() < 0.2, "{widths:?}");
    }

    #[test]
    fn names_are_escaped_and_nothing_is_no_chart() {
        let named = Record { gpu: "A & <B>".into(), ..record("small", 64, "identity", "short", 1.0) };
        let svg = svg(&[named]).unwrap_or_default();
        assert!(svg.contains("A &amp; &lt;B>") && svg.contains("1.00 s") && svg.ends_with("</svg>\n"));
        assert_eq!(super::svg(&[]), None);
        assert_eq!(super::svg(&[record("tax", 64, "heavy", "long", 1.0)]), None);
    }
}
