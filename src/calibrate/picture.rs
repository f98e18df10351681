//! A picture of a histogram and its threshold.

use super::{Calibration, Histogram};
use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const MARGIN: f64 = 28.0;
/// The most bars: bins are drawn together.
const BARS: usize = 256;

impl Histogram {
    /// An SVG of the histogram, its counts on a logarithmic scale, with the threshold of a calibration as a line. Bars beyond
    /// the threshold saturate.
    pub fn svg(&self, calibration: &Calibration) -> String {
        let bins_of_bar = self.counts.len().div_ceil(BARS);
        let bars: Vec<u64> = self.counts.chunks(bins_of_bar).map(|bins| bins.iter().sum()).collect();
        let height = |count: u64| if count == 0 { 0.0 } else { 1.0 + (count as f64).ln() };
        let highest = bars.iter().map(|count| height(*count)).fold(1.0, f64::max);
        let (across, up) = ((WIDTH - 2.0 * MARGIN) / bars.len() as f64, (HEIGHT - 2.0 * MARGIN) / highest);
        let base = HEIGHT - MARGIN;
        let place = |magnitude: f64| MARGIN + (WIDTH - 2.0 * MARGIN) * magnitude / self.range;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"11\" fill=\"#171a29\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fdfcf9\"/>\n"
        );
        for (bar, count) in bars.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (x, tall) = (MARGIN + across * bar as f64, up * height(*count));
            let begins = self.range * (bar * bins_of_bar) as f64 / self.counts.len() as f64;
            let colour = if begins < f64::from(calibration.threshold) { "#4f7cac" } else { "#d1495b" };
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{:.2}\" width=\"{across:.2}\" height=\"{tall:.2}\" fill=\"{colour}\"/>",
                base - tall
            );
        }
        let at = place(f64::from(calibration.threshold));
        let anchor = if at > WIDTH / 2.0 { "end" } else { "start" };
        let aside = if at > WIDTH / 2.0 { -6.0 } else { 6.0 };
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.2}\" x2=\"{at:.2}\" y1=\"{MARGIN}\" y2=\"{base}\" stroke=\"#171a29\" stroke-dasharray=\"4 3\"/>\n\
             <text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"{anchor}\">|T| = {:.4}, {:.4} % saturate, {:.1} dB</text>\n\
             <text x=\"{MARGIN}\" y=\"{:.2}\">0</text>\n\
             <text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"end\">{:.4}</text>\n</svg>",
            at + aside,
            MARGIN - 8.0,
            calibration.threshold,
            100.0 * calibration.clipped,
            calibration.noise,
            base + 16.0,
            WIDTH - MARGIN,
            base + 16.0,
            self.range
        );
        svg
    }
}
