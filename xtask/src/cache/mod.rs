//! `cargo xtask bench-cache`: the figures of the kernel cache's benchmark, as a table and a chart in its page, and a
//! summary in the README.

mod chart;
mod summary;

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::{Context, Error, Result};
use crate::project::{Project, call};
use crate::test::split_at_dashes;

/// The page and its chart, the page with the summary, and the marks around the tables.
const PAGE: &str = "docs/jit_cache.md";
const CHART: &str = "docs/jit_cache.svg";
const README: &str = "README.md";
const BEGIN: &str = "<!-- figures: cargo xtask bench-cache -->\n";
const END: &str = "<!-- end of figures -->\n";

/// The mainloops, in the order of the table.
const MAINLOOPS: [&str; 5] = ["pointwise", "gemv", "simt", "sm80", "sm90a"];

/// The rows in order: the benchmark's group, its meaning, and its name in the chart.
const STAGES: [(&str, &str); 14] = [
    ("build and check", "the closure runs, the graph is checked"),
    ("check", "the check alone"),
    ("plan", "mainloop, tile, placement of values"),
    ("render", "the plan printed as CUDA"),
    ("key", "the source hashed"),
    ("graph to key", "all of these"),
    ("memory hit", "a request that was made before, from `Gemm::compile` to the kernel"),
    ("memory hit by source", "a source that was compiled before, hashed and found"),
    ("disk hit", "a source whose kernel is in the directory: hashed, read, verified"),
    ("cold compile", "NVRTC, planning and printing included"),
    ("cold, bias and relu", "the same for the kernels most programs begin with"),
    ("cold, heavy", "for exact gelu and tanh in two regions, times a matrix"),
    ("one process", "from its start until it has its kernel for bias and relu (sm90a) and ends"),
    ("eight processes", "from their start until the last one has its kernel and ends"),
];

/// One figure: nanoseconds, and the bounds of its confidence interval.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    group: String,
    name: String,
    median: f64,
    low: f64,
    high: f64,
}

pub fn run(project: &Project, args: &[String]) -> Result {
    let (own, flags) = split_at_dashes(args);
    let only_report = match own {
        [] => false,
        [flag] if flag == "--report" => true,
        [other, ..] => {
            return Err(Error::new(format!("unknown option `{other}` of `bench-cache`; the benchmark's own go behind `--`")));
        }
    };
    let measured = project.target.join("criterion");
    if !only_report {
        let mut cargo = project.cargo();
        cargo.args([
            "bench",
            "--package",
            "postlude",
            "--no-default-features",
            "--features",
            "jit",
            "--bench",
            "jit_cache",
            "--",
        ]);
        call(cargo.args(flags))?;
    }
    let figures = read(&measured)?;
    if figures.is_empty() {
        return Err(Error::new(format!("nothing was measured: {} has no figures of the cache", measured.display())));
    }
    let table = table(&figures);
    say!("{table}");
    if !flags.is_empty() {
        eprintln!("only some were measured, so the pages stay as they are; `--report` writes these");
        return Ok(());
    }
    let chart = Path::new(CHART).file_name().unwrap_or_default().to_string_lossy();
    let machine = machine();
    let long = format!("Medians, with the 95 % confidence interval, on {machine}.\n\n![The figures as bars]({chart})\n\n{table}");
    let short = format!("Medians on {machine}:\n\n{}\n![The figures as bars]({CHART})\n", summary::summary(&figures));
    for (page, figures) in [(PAGE, long), (README, short)] {
        let path = project.root.join(page);
        let text = fs::read_to_string(&path).context(|| format!("cannot read {page}"))?;
        let with = place(&text, &figures);
        put(&path, with.ok_or_else(|| Error::new(format!("{page} has no place for figures, between {BEGIN}and {END}")))?)?;
    }
    put(&project.root.join(CHART), chart::svg(&figures))
}

fn put(file: &Path, text: String) -> Result {
    fs::write(file, text).context(|| format!("cannot write {}", file.display()))?;
    say!("{}", file.display());
    Ok(())
}

/// The text between the marks of a page, with the text before and behind it.
fn parts(page: &str) -> Option<[&str; 3]> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (between, after) = rest.split_once(END)?;
    Some([before, between, after])
}

/// A page with these figures in place of its own.
fn place(page: &str, figures: &str) -> Option<String> {
    let [before, _, after] = parts(page)?;
    Some(format!("{before}{BEGIN}\n{figures}\n{END}{after}"))
}

/// The machine, in words.
fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {}", model.unwrap_or("an unknown processor"))
}

/// All figures in criterion's folder that belong to a stage, in the order of the stages.
fn read(folder: &Path) -> Result<Vec<Figure>> {
    let folders = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut figures = Vec::new();
    for path in folders(folder).flat_map(|group| folders(&group).collect::<Vec<_>>()) {
        let [id, estimates] = ["benchmark.json", "estimates.json"].map(|name| fs::read_to_string(path.join("new").join(name)));
        let (Ok(id), Ok(estimates)) = (id, estimates) else { continue };
        let strange = |why| Error::new(format!("{}: criterion wrote it in an unknown form: {why}", path.display()));
        figures.push(figure(&id, &estimates).map_err(strange)?);
    }
    let rank = |figure: &Figure| {
        let stage = STAGES.iter().position(|(group, _)| *group == figure.group)?;
        // `8 epilogues` before `64 epilogues`, and both behind the mainloops.
        let number: usize = figure.name.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let mainloop = MAINLOOPS.iter().chain(&["warm", "cold"]).position(|name| *name == figure.name);
        Some((stage, mainloop.unwrap_or(usize::MAX), number, figure.name.clone()))
    };
    figures.retain(|figure| rank(figure).is_some());
    figures.sort_by_key(rank);
    Ok(figures)
}

/// A benchmark as criterion describes it.
#[derive(Deserialize)]
struct Id {
    group_id: String,
    function_id: String,
}

/// The estimates of a benchmark, as far as they matter here.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

fn figure(id: &str, estimates: &str) -> serde_json::Result<Figure> {
    let Id { group_id, function_id } = serde_json::from_str(id)?;
    let Estimates { median } = serde_json::from_str(estimates)?;
    let Interval { lower_bound, upper_bound } = median.confidence_interval;
    Ok(Figure { group: group_id, name: function_id, median: median.point_estimate, low: lower_bound, high: upper_bound })
}

/// A time with three digits, in the unit that fits.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns < 1e3 => (ns, "ns"),
        _ if ns < 1e6 => (ns / 1e3, "\u{b5}s"),
        _ if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// How many times as fast as on one thread.
fn speedup(figures: &[Figure], figure: &Figure) -> Option<f64> {
    let (what, threads) = figure.name.split_once(", ")?;
    let one = figures.iter().find(|other| other.group == figure.group && other.name == format!("{what}, 1 threads"))?;
    (threads != "1 threads").then_some(one.median / figure.median)
}

fn table(figures: &[Figure]) -> String {
    let mut out = String::from("| stage | | median | interval | |\n| --- | --- | ---: | --- | --- |\n");
    let mut last = "";
    for figure in figures {
        let Figure { group, name, median, low, high } = figure;
        let means = STAGES.iter().find(|(stage, _)| stage == group).map_or("", |(_, means)| means);
        let speedup = speedup(figures, figure).map(|times| format!("{times:.2} times one thread"));
        let (stage, note) = if last == group { ("", speedup.unwrap_or_default()) } else { (group.as_str(), means.to_owned()) };
        let name = name.replace(", 1 threads", ", 1 thread");
        let name = if name.starts_with("1 epilogues") { name.replacen("epilogues", "epilogue", 1) } else { name };
        out += &format!("| {stage} | {name} | {} | {} to {} | {note} |\n", time(*median), time(*low), time(*high));
        last = group;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure_of(group: &str, name: &str, median: f64) -> Figure {
        Figure { group: group.into(), name: name.into(), median, low: median, high: median }
    }

    #[test]
    fn criterion_is_read() {
        let id = r#"{"group_id":"disk hit","function_id":"sm80","value_str":null}"#;
        let estimates = r#"{"mean":{"point_estimate":9.0},"median":{"confidence_interval":{"confidence_level":0.95,
            "lower_bound":1.5e3,"upper_bound":2500.0},"point_estimate":2e3,"standard_error":1.0}}"#;
        let read = figure(id, estimates);
        assert_eq!(read.ok(), Some(Figure { low: 1500.0, high: 2500.0, ..figure_of("disk hit", "sm80", 2000.0) }));
        assert!(figure("{}", estimates).is_err_and(|why| why.to_string().contains("group_id")));
    }

    #[test]
    fn times_have_three_digits() {
        let shown = [0.5, 518.2, 1e3, 21_540.0, 218_600.0, 1.5e6, 12.34e9].map(time);
        assert_eq!(shown, ["0.50 ns", "518 ns", "1.00 \u{b5}s", "21.5 \u{b5}s", "219 \u{b5}s", "1.50 ms", "12.3 s"]);
    }

    #[test]
    fn figures_are_replaced_where_they_stand() {
        let page = format!("a\n{BEGIN}\nold\n{END}b\n");
        assert_eq!(place(&page, "new\n"), Some(format!("a\n{BEGIN}\nnew\n\n{END}b\n")));
        assert_eq!(place("a\n", "new"), None);
        assert_eq!(place(&format!("{END}{BEGIN}"), "new"), None);
    }

    /// The tables are not edited by hand: the README repeats times and machine of the page, and shows the same chart.
    #[test]
    fn the_readme_says_what_the_page_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let [page, readme] = [PAGE, README].map(|name| fs::read_to_string(root.join(name)).unwrap_or_default());
        let between = |text| parts(text).map_or("", |[_, figures, _]| figures);
        let (long, short) = (between(&page), between(&readme));
        assert!(short.contains(CHART) && root.join(CHART).is_file(), "{short}");
        let machine = short.lines().find_map(|line| line.strip_prefix("Medians on ")?.strip_suffix(':'));
        assert!(machine.is_some_and(|machine| long.contains(&format!(", on {machine}.\n"))), "{machine:?}");
        let cells = short.lines().flat_map(|line| line.split(" | ")).map(|cell| cell.trim_end_matches(" |"));
        let is_time = |cell: &&str| cell.starts_with(|c: char| c.is_ascii_digit());
        let times: Vec<&str> = cells.filter(is_time).collect();
        assert!(times.len() > 12, "{times:?}");
        for time in times {
            assert!(long.contains(&format!("| {time} |")), "{time} is not in {PAGE}: run `cargo xtask bench-cache --report`");
        }
    }

    #[test]
    fn threads_are_compared_with_one() {
        let figures = [
            figure_of("cold compile", "sm80", 5.0),
            figure_of("cold compile", "8 epilogues, 1 threads", 9.0),
            figure_of("cold compile", "8 epilogues, 2 threads", 5.0),
        ];
        assert_eq!(figures.each_ref().map(|figure| speedup(&figures, figure)), [None, None, Some(1.8)]);
        let table = table(&figures);
        assert!(table.contains("| cold compile | sm80 | 5.00 ns | 5.00 ns to 5.00 ns | NVRTC, "), "{table}");
        assert!(table.contains("|  | 8 epilogues, 1 thread | 9.00 ns | 9.00 ns to 9.00 ns |  |"), "{table}");
        assert!(table.contains("| 1.80 times one thread |"), "{table}");
    }
}
