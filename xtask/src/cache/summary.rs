//! The README's summary of the figures: a column for each mainloop, and the speed of many threads and processes.

use super::{Figure, MAINLOOPS, time};

/// The rows: the benchmark's group, and its name for readers.
const ROWS: [(&str, &str); 5] = [
    ("memory hit", "in memory"),
    ("disk hit", "on disk, read and verified"),
    ("graph to key", "graph to key: build, check, plan, print, hash"),
    ("cold, bias and relu", "compiled: bias and relu alone"),
    ("cold, heavy", "compiled: exact gelu and tanh in two regions, times a matrix"),
];

/// The group, and the end of its names, in which many epilogues are compiled at once.
const MANY: &str = "cold compile";
const EPILOGUES: &str = "64 epilogues";

pub fn summary(figures: &[Figure]) -> String {
    format!("{}\n{}\n", table(figures), sentence(figures))
}

fn find<'a>(figures: &'a [Figure], group: &str, name: &str) -> Option<&'a Figure> {
    figures.iter().find(|figure| figure.group == group && figure.name == name)
}

fn table(figures: &[Figure]) -> String {
    let shown = |name: &&str| ROWS.iter().any(|(group, _)| find(figures, group, name).is_some());
    let columns: Vec<&str> = MAINLOOPS.into_iter().filter(shown).collect();
    let mut out = format!("| a kernel of twenty nodes | {} |\n| --- |{}\n", columns.join(" | "), " ---: |".repeat(columns.len()));
    for (group, means) in ROWS {
        let cell = |name: &&str| find(figures, group, name).map_or_else(String::new, |figure| time(figure.median));
        out += &format!("| {means} | {} |\n", columns.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    out
}

/// The speed of threads and processes, as far as it was measured.
fn sentence(figures: &[Figure]) -> String {
    let median = |group: &str, name: &str| find(figures, group, name).map(|figure| figure.median);
    let threads = |count: u32| median(MANY, &format!("{EPILOGUES}, {count} threads"));
    let mut said = Vec::new();
    if let (Some(one), Some(two)) = (threads(1), threads(2)) {
        said.push(format!("Two threads compile {EPILOGUES} {:.2} times as fast as one.", one / two));
    }
    let processes = |group: &str| Some((time(median(group, "cold")?), time(median(group, "warm")?)));
    if let Some((cold, warm)) = processes("one process") {
        said.push(format!(
            "A process that wants bias and relu on Hopper has started, has its kernel, and has ended, after {cold} with an empty \
             directory and {warm} with a filled one."
        ));
    }
    if let Some((cold, warm)) = processes("eight processes") {
        said.push(format!(
            "Eight processes that start together all have their kernel, and have ended, after {cold} with an empty directory and \
             {warm} with a filled one."
        ));
    }
    said.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(group: &str, name: &str, median: f64) -> Figure {
        Figure { group: group.into(), name: name.into(), median, low: median, high: median }
    }

    #[test]
    fn what_was_not_measured_leaves_a_gap() {
        let figures = [figure("memory hit", "sm80", 440.0), figure("disk hit", "simt", 3e4), figure("disk hit", "sm80", 4e4)];
        let shown = summary(&figures);
        assert!(shown.starts_with("| a kernel of twenty nodes | simt | sm80 |\n| --- | ---: | ---: |\n"), "{shown}");
        assert!(shown.contains("| in memory |  | 440 ns |\n"), "{shown}");
        assert!(shown.contains("| on disk, read and verified | 30.0 \u{b5}s | 40.0 \u{b5}s |\n"), "{shown}");
        assert!(!shown.contains("threads") && !shown.contains("processes"), "{shown}");
    }

    #[test]
    fn threads_and_processes_are_a_sentence() {
        let figures = [
            figure(MANY, "64 epilogues, 1 threads", 12e9),
            figure(MANY, "64 epilogues, 2 threads", 6e9),
            figure("one process", "cold", 2e8),
            figure("one process", "warm", 3e6),
            figure("eight processes", "cold", 3e8),
            figure("eight processes", "warm", 1e8),
        ];
        let shown = summary(&figures);
        assert!(shown.contains("Two threads compile 64 epilogues 2.00 times as fast as one."), "{shown}");
        assert!(shown.contains(
            "on Hopper has started, has its kernel, and has ended, after 200 ms with an empty directory and 3.00 ms with a"
        ));
        assert!(shown.contains("300 ms with an empty directory and 100 ms with a filled one"), "{shown}");
    }
}
