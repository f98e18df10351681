//! Pictures of bars and words. They have their own background, so that they are readable on any page, and follow the
//! reader's colour scheme.

use std::fmt::Write;

const LIGHT: &str = "\
svg { font: 12px system-ui, sans-serif; }
.page { fill: #ffffff; } .ink { fill: #1f2328; } .soft { fill: #59636e; }
.grid { stroke: #d1d9e0; } .one { stroke: #1f2328; stroke-width: 1.5; } .whisker { stroke: #1f2328; }
";

const DARK: &str = "\
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; } .ink { fill: #f0f6fc; } .soft { fill: #9198a1; }
.grid { stroke: #3d444d; } .one { stroke: #f0f6fc; } .whisker { stroke: #f0f6fc; }
}
";

/// The whole picture: its description, its colours, and the drawn body.
pub fn page(width: f64, height: f64, label: &str, style: &str, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" \
         aria-label=\"{label}\">\n<style>\n{LIGHT}{style}{DARK}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n{body}</svg>\n"
    )
}

pub fn rectangle(body: &mut String, x: f64, y: f64, width: f64, height: f64, class: &str) {
    let _ = writeln!(body, "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>");
}

pub fn line(body: &mut String, [x1, y1, x2, y2]: [f64; 4], class: &str) {
    let _ = writeln!(body, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

pub fn text(body: &mut String, x: f64, y: f64, class: &str, anchor: &str, more: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{words}</text>");
}
