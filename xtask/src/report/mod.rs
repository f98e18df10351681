//! `cargo xtask bench-report`: the benchmarks' records as a page with tables and a chart.

mod chart;
mod map;
mod summary;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::project::Project;
use postlude_record::Record;

/// The records of every run so far, with the page and the chart.
const RECORDS: &str = "benchmarks.csv";
const PAGE: &str = "benchmarks.md";
const CHART: &str = "benchmarks.svg";
/// The same of the group `map`.
const MAP: &str = "map";
const MAP_RECORDS: &str = "benchmarks_map.csv";
const MAP_CHART: &str = "benchmarks_map.svg";

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    files: Vec<PathBuf>,
    out: Option<PathBuf>,
    fresh: bool,
}

pub fn run(project: &Project, args: &[String]) -> Result {
    let options = parse(args)?;
    let out = options.out.unwrap_or_else(|| project.root.join("docs"));
    let mut records = Vec::new();
    for file in [RECORDS, MAP_RECORDS].map(|name| out.join(name)) {
        if !options.fresh && file.exists() {
            records.extend(read(&file)?);
        }
    }
    for file in &options.files {
        records = merge(records, read(file)?);
    }
    // Kernels that were named on the command line are an experiment.
    let (map, records): (Vec<Record>, Vec<Record>) = records.into_iter().partition(|record| record.group == MAP);
    let (known, others): (Vec<Record>, Vec<Record>) = records.into_iter().partition(|record| table::has(&record.group));
    if let Some(other) = others.first() {
        eprintln!("left out: {} records of groups without a table, such as `{}`", others.len(), other.group);
    }
    let records = known;
    if records.is_empty() && map.is_empty() && (options.fresh || !options.files.is_empty()) {
        return Err(Error::new("there are no records: the present page stays as it is"));
    }
    write(&out, &records, &map)
}

/// The picture of a map's records and the figures below it, if there are records.
fn mapped(records: &[Record]) -> Option<(String, String)> {
    Some((map::svg(records)?, map::words(records)))
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--fresh" => options.fresh = true,
            "--out" => {
                let folder = args.next().filter(|folder| !folder.starts_with("--"));
                options.out = Some(folder.ok_or_else(|| Error::new("`--out` needs a folder"))?.into());
            }
            other if other.starts_with("--") => return Err(Error::new(format!("unknown option `{other}` of `bench-report`"))),
            file => options.files.push(file.into()),
        }
    }
    Ok(options)
}

fn read(file: &Path) -> Result<Vec<Record>> {
    let text = fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
    Record::read(&text).map_err(|error| Error::new(format!("{}: {error}", file.display())))
}

fn write(out: &Path, records: &[Record], map: &[Record]) -> Result {
    for records in [records, map] {
        if let Some(other) = records.iter().find(|record| record.gpu != records[0].gpu) {
            let why = format!(
                "records of {} and of {}: a page has one GPU; write the others elsewhere with `--out`",
                records[0].gpu, other.gpu
            );
            return Err(Error::new(why));
        }
    }
    fs::create_dir_all(out).context(|| format!("cannot create {}", out.display()))?;
    let (drawn, mapped) = (chart::svg(records), mapped(map));
    let words = mapped.as_ref().map(|(_, words)| words.as_str());
    let mut written = vec![(PAGE, table::page(records, drawn.as_ref().map(|_| CHART), words.map(|words| (MAP_CHART, words))))];
    written.extend(drawn.map(|svg| (CHART, svg)));
    written.extend(mapped.map(|(svg, _)| (MAP_CHART, svg)));
    for (name, records) in [(RECORDS, records), (MAP_RECORDS, map)] {
        if !records.is_empty() {
            let lines: Vec<String> = records.iter().map(Record::to_line).collect();
            written.push((name, format!("{}\n{}\n", Record::HEADER.join(","), lines.join("\n"))));
        }
    }
    for (name, text) in &written {
        let file = out.join(name);
        fs::write(&file, text).context(|| format!("cannot write {}", file.display()))?;
    }
    written.iter().for_each(|(name, _)| say!("{}", out.join(name).display()));
    Ok(())
}

/// The fields that identify a contest, whatever the peers.
fn contest(record: &Record) -> [&dyn std::fmt::Display; 9] {
    let Record { gpu, group, dtype, layout, m, n, k, epilogue, slices, .. } = record;
    [gpu, group, dtype, layout, m, n, k, epilogue, slices]
}

fn same(left: &[&dyn std::fmt::Display], right: &[&dyn std::fmt::Display]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(l, r)| l.to_string() == r.to_string())
}

/// A newer measurement of a contest replaces the older one, with all its peers.
fn merge(old: Vec<Record>, new: Vec<Record>) -> Vec<Record> {
    let measured_again = |record: &Record| new.iter().any(|newer| same(&contest(newer), &contest(record)));
    let mut records: Vec<Record> = old.into_iter().filter(|record| !measured_again(record)).collect();
    for record in new {
        let peer = |record: &Record| {
            let name = if table::is_choice(&record.group) { &record.peer_kernel } else { &record.peer };
            name.clone()
        };
        records.retain(|older| !(same(&contest(older), &contest(&record)) && peer(older) == peer(&record)));
        records.push(record);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn record(group: &str, m: usize, epilogue: &str, slices: &str, ratio: f64) -> Record {
        Record {
            group: group.into(),
            gpu: "NVIDIA H200".into(),
            software: "NVRTC 13.0, cuBLASLt 13.0.2".into(),
            dtype: "f16".into(),
            layout: "TN".into(),
            m,
            n: 4096,
            k: 1024,
            epilogue: epilogue.into(),
            slices: slices.into(),
            rounds: 7,
            launch: "stream".into(),
            sets: 2,
            bytes: 1 << 20,
            working_set: 300 << 20,
            kernel: "sm80 128x256x64, 4 stages".into(),
            us: 100.0,
            peer: "cuBLASLt".into(),
            peer_kernel: "algorithm 2 of 8".into(),
            peer_us: 100.0 * ratio,
            ratio,
            low: ratio - 0.01,
            high: ratio + 0.01,
            distance: 1e-5,
        }
    }

    fn ratios(records: &[Record]) -> Vec<f64> {
        records.iter().map(|record| record.ratio).collect()
    }

    #[test]
    fn newer_measurements_replace_older_ones() {
        let old = vec![record("large", 64, "identity", "long", 1.0), record("large", 64, "identity", "short", 1.1)];
        let new = vec![record("large", 64, "identity", "long", 1.2), record("large", 64, "identity", "long", 1.3)];
        assert_eq!(ratios(&merge(old, new)), [1.1, 1.3]);
    }

    #[test]
    fn a_choice_forgets_the_candidates_of_before() {
        let candidate =
            |tile: &str, ratio| Record { peer_kernel: tile.into(), ..record("choice", 64, "identity", "short", ratio) };
        let merged = merge(vec![candidate("a", 1.0), candidate("b", 1.1)], vec![candidate("b", 1.2), candidate("c", 1.3)]);
        assert_eq!(ratios(&merged), [1.2, 1.3]);
        let parts = |name: &str, ratio| Record { peer_kernel: name.into(), ..record("parts", 64, "identity", "short", ratio) };
        assert_eq!(ratios(&merge(Vec::new(), vec![parts("2 parts", 1.0), parts("4 parts", 1.1)])), [1.0, 1.1]);
    }

    #[test]
    fn what_makes_no_page_leaves_the_old_one() {
        let folder = std::env::temp_dir().join(format!("postlude-report-{}", std::process::id()));
        let opened = Project::open().ok().map(|project| Project { root: folder.clone(), ..project });
        assert!(opened.is_some());
        let refused = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            opened.iter().filter_map(|project| run(project, &words).err()).map(|error| error.to_string()).collect::<String>()
        };
        assert!(refused(&["--fresh"]).contains("no records"));
        let both = [
            record("large", 64, "identity", "long", 1.0),
            Record { gpu: "another".into(), ..record("large", 64, "identity", "long", 1.0) },
        ];
        assert!(write(&folder, &both, &[]).is_err_and(|error| error.to_string().contains("a page has one GPU")));
        assert!(!folder.exists());
        assert!(parse(&["--out".to_owned(), "--fresh".to_owned()]).is_err());
    }

    #[test]
    fn options_are_checked() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let parsed = parse(&words("--fresh one.csv --out there two.csv")).ok();
        assert_eq!(
            parsed,
            Some(Options { files: vec!["one.csv".into(), "two.csv".into()], out: Some("there".into()), fresh: true })
        );
        assert!(parse(&words("--out")).is_err() && parse(&words("--svg")).is_err());
    }

    /// The page and the pictures are not edited by hand.
    #[test]
    fn the_page_is_what_the_records_say() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let of = |name: &str| if docs.join(name).exists() { read(&docs.join(name)).ok() } else { Some(Vec::new()) };
        let (records, map) = (of(RECORDS), of(MAP_RECORDS));
        assert!(records.is_some() && map.is_some(), "docs/{RECORDS} or docs/{MAP_RECORDS} cannot be read");
        let (records, map) = (records.unwrap_or_default(), mapped(&map.unwrap_or_default()));
        let drawn = chart::svg(&records);
        let cure = "run `cargo xtask bench-report`";
        let words = map.as_ref().map(|(_, words)| (MAP_CHART, words.as_str()));
        assert!(
            fs::read_to_string(docs.join(PAGE)).ok() == Some(table::page(&records, drawn.as_ref().map(|_| CHART), words)),
            "{cure}"
        );
        assert!(fs::read_to_string(docs.join(CHART)).ok() == drawn, "{cure}");
        assert!(fs::read_to_string(docs.join(MAP_CHART)).ok() == map.map(|(svg, _)| svg), "{cure}");
    }
}
