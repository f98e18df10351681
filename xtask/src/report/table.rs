//! The page: a table for each group, long and short slices side by side.

use super::summary;
use postlude_record::Record;
use std::fmt::Write;

/// The H200's highest measured read bandwidth, in bytes a second.
const READ_CEILING: f64 = 4.54e12;

/// Every group, with a description of its table.
const GROUPS: [(&str, &str, &str); 19] = [
    ("large", "Large products", "Ratio: cuBLASLt's time over ours."),
    ("small", "Small products", "Ratio: cuBLASLt's time over ours."),
    ("decode", "Few rows", "Ratio: cuBLASLt's time over ours. Weights come from memory, which delivers at most 4.54 TB/s."),
    ("unaligned", "Unaligned extents", "Ratio: cuBLASLt's time over ours."),
    ("layouts", "Layouts", "Ratio: cuBLASLt's time over ours."),
    ("f32", "Full precision", "f32 without tf32. Ratio: cuBLASLt's time over ours."),
    ("tf32", "Tensor cores on f32", "f32 with tf32 in both libraries. Ratio: cuBLASLt's time over ours."),
    ("few", "Layers of models behind few rows", "The weights are declared constant. Ratio: cuBLASLt's time over ours."),
    ("few_plain", "The same with plain launches", "Nothing is declared constant. Ratio: cuBLASLt's time over ours."),
    ("tax", "What epilogues cost", "Additional time over our identity on the same shape, each with its own chosen tile."),
    (
        "activations",
        "What activations cost",
        "Additional time over our identity on the same shape, each with its own chosen tile.",
    ),
    (
        "regions",
        "Epilogues for which cuBLASLt needs several kernels",
        "Ratio: time of the fastest sequence with cuBLASLt over ours. A pass is a kernel over D, in place.",
    ),
    ("choice", "Choice of tiles", "Every tile that fits, in short slices."),
    ("raster", "Order of tiles", "Other groups than the chosen one."),
    ("stages", "Stages of the ring", "The chosen tile with fewer stages."),
    ("split", "Split-K", "Few tiles and many K elements. Ratio: cuBLASLt's time over ours."),
    ("parts", "Choice of parts", "Other numbers of parts of K than the chosen one."),
    ("pointwise", "Pointwise", "Over an existing matrix. Ratio: time of a device copy over ours."),
    (
        "training",
        "Training",
        "Ratios: cuBLASLt's time over ours, and the time of a product, a pass and a sum one after another over ours. Our \
         bias gradient is f32. cuBLASLt's has D's format, because cuBLASLt rejects f32 beside 16 bits. (*) marks cases in \
         which the gradients of all its algorithms are wrong, which happens with too many rows. The cost is the additional \
         time over our product without mask, derivative and gradient. The cost of the fixed order is over the same kernel \
         with atomic sums, in any order.",
    ),
];

/// Whether a group compares our chosen kernel with others of ours, which share one name as peers.
pub fn is_choice(group: &str) -> bool {
    matches!(group, "choice" | "raster" | "stages" | "parts")
}

/// Whether there is a table for a group.
pub fn has(group: &str) -> bool {
    GROUPS.iter().any(|(name, ..)| *name == group)
}

/// The whole page. `chart` is the chart's file, if there is one; `map` the map's, with the figures below it.
pub fn page(records: &[Record], chart: Option<&str>, map: Option<(&str, &str)>) -> String {
    let mut page = String::from(
        "# Benchmarks\n\n<!-- Written by `cargo xtask bench-report`, from benchmarks.csv. Edits are lost. -->\n\n\
         `cargo xtask bench-gpu` measures all of this on a machine with a GPU. Elsewhere it makes a bundle for such a \
         machine. [performance.md](performance.md) states the method and the rules that follow.\n\n",
    );
    if records.is_empty() {
        page.push_str("No run is recorded here yet.\n");
        return page;
    }
    let mut machines: Vec<String> = Vec::new();
    for record in records {
        let machine = format!("{}, {}", record.gpu, record.software);
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    let _ = writeln!(
        page,
        "{}.\n\n\
         - Contenders take turns in one process, in an order that is shuffled in every round. A ratio is the median of the \
         rounds' ratios, with the tenth and the ninetieth percentile in brackets. Above 1 Postlude is faster.\n\
         - Long slices (160 ms) let each contender reach the clock that its power allows. Short ones (2.5 ms) hold all of \
         them at one clock. Rates come from long slices if there are any.\n\
         - cuBLASLt: the best of eight algorithms, all timed, with 32 MiB of workspace, the same layouts and the same D.\n\
         - Operands are random in [-0.5, 0.5]. Launches alternate between sets of operands that together exceed 240 MB, so \
         that a launch finds none of its operands in the L2 cache. A single set is larger by itself.\n\
         - Kernels below 200 us run as CUDA graphs on both sides.\n",
        machines.join("; ")
    );
    if let Some(chart) = chart {
        let _ = writeln!(page, "![Time of cuBLASLt over Postlude's]({chart})\n");
    }
    if let Some((map, words)) = map {
        let _ = writeln!(
            page,
            "## Small to large\n\n`cargo xtask bench-gpu -- --group map` draws this. Each shape in slices of 1 ms. {words}\n\n\
             ![Time of cuBLASLt over Postlude's over M, N and K]({map})\n"
        );
    }
    for (group, title, what) in GROUPS {
        let records: Vec<&Record> = records.iter().filter(|record| record.group == group).collect();
        if !records.is_empty() {
            let _ = writeln!(page, "## {title}\n\n{what}\n");
            table(&mut page, group, &records);
            page.push('\n');
        }
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

/// Records of one contest in both lengths of slices, and all its peers.
pub(super) struct Line<'r> {
    pub(super) first: &'r Record,
    all: Vec<&'r Record>,
}

impl<'r> Line<'r> {
    fn of(&self, slices: &str) -> impl Iterator<Item = &'r Record> {
        let slices = slices.to_owned();
        self.all.iter().copied().filter(move |record| record.slices == slices)
    }

    /// Against the peer that did best.
    fn hardest(&self, slices: &str) -> Option<&'r Record> {
        self.against("", slices)
    }

    /// Against the peer that did best of those whose names begin so.
    pub(super) fn against(&self, peer: &str, slices: &str) -> Option<&'r Record> {
        self.of(slices).filter(|record| record.peer.starts_with(peer)).min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// The chosen tile's time over the fastest one's, which may be itself.
    pub(super) fn over_the_best(&self) -> f64 {
        (1.0 / self.preferred().ratio).max(1.0)
    }

    /// The kernel of the long and of the short slices, if they differ because a later build has measured only one of
    /// them.
    fn kernels(&self) -> String {
        match [self.hardest("long"), self.hardest("short")] {
            [Some(long), Some(short)] if long.kernel != short.kernel => format!("long: {}; short: {}", long.kernel, short.kernel),
            _ => self.preferred().kernel.clone(),
        }
    }

    /// In long slices if there are any.
    fn preferred(&self) -> &'r Record {
        self.hardest("long").or_else(|| self.hardest("short")).unwrap_or(self.first)
    }
}

fn lines<'r>(records: &[&'r Record]) -> Vec<Line<'r>> {
    let mut lines: Vec<Line<'r>> = Vec::new();
    for &record in records {
        let same = |line: &&mut Line<'_>| {
            let Record { dtype, layout, m, n, k, epilogue, .. } = line.first;
            (dtype, layout, m, n, k, epilogue)
                == (&record.dtype, &record.layout, &record.m, &record.n, &record.k, &record.epilogue)
        };
        match lines.iter_mut().find(same) {
            Some(line) => line.all.push(record),
            None => lines.push(Line { first: record, all: vec![record] }),
        }
    }
    lines
}

/// The common beginning of the peers' names in training steps.
pub(super) const CUBLASLT: &str = "cuBLASLt";
pub(super) const SEPARATE: &str = "product";
pub(super) const WITHOUT_TRAINING: &str = "without";
pub(super) const ATOMIC: &str = "atomic";

const TRAINING: &[&str] =
    &["cuBLASLt, long", "short", "separate, long", "short", "cost, long", "short", "fixed order, long", "short", "us", "kernel"];

/// The cells of a row behind the case.
type Cells = fn(&Line<'_>) -> Vec<String>;

fn table(page: &mut String, group: &str, records: &[&Record]) {
    let lines = lines(records);
    let (heads, cells): (&[&str], Cells) = match group {
        "tax" | "activations" => (&["long", "short", "kernel", "identity's kernel"], |line| {
            let tax = |slices| line.hardest(slices).map_or_else(dash, tax);
            vec![tax("long"), tax("short"), line.kernels(), line.preferred().peer_kernel.clone()]
        }),
        "regions" => (&["long", "short", "fastest peer, us", "other peers, us", "ours, us", "kernel"], |line| {
            let best = line.preferred();
            let others = line.of(&best.slices).filter(|record| record.peer != best.peer);
            let timed = |record: &Record| format!("{} {:.1}", record.peer, record.peer_us);
            let others: Vec<String> = others.map(timed).collect();
            let ours = format!("{:.1}", best.us);
            vec![
                ratio(line.hardest("long")),
                ratio(line.hardest("short")),
                timed(best),
                others.join("; "),
                ours,
                best.kernel.clone(),
            ]
        }),
        "training" => (TRAINING, |line| {
            let mut cells = Vec::new();
            for peer in [CUBLASLT, SEPARATE] {
                cells.extend(["long", "short"].map(|slices| {
                    let against = line.against(peer, slices);
                    let finite = against.is_none_or(|record| !record.distance.is_infinite());
                    ratio(against) + if finite { "" } else { " (*)" }
                }));
            }
            for peer in [WITHOUT_TRAINING, ATOMIC] {
                cells.extend(["long", "short"].map(|slices| line.against(peer, slices).map_or_else(dash, tax)));
            }
            let best = line.preferred();
            cells.extend([format!("{:.1}", best.us), best.kernel.clone()]);
            cells
        }),
        group if is_choice(group) => (&["chosen", "fastest other", "chosen over the fastest"], |line| {
            let best = line.preferred();
            vec![best.kernel.clone(), best.peer_kernel.clone(), format!("{:.3}", line.over_the_best())]
        }),
        "decode" => (
            &["short", "long", "us, ours", "us, theirs", "TB/s, ours", "TB/s, theirs", "of 4.54", "launches", "kernel"],
            |line| {
                let best = line.preferred();
                let rate = |us: f64| best.bytes as f64 / us * 1e6;
                let [ours, theirs] = [best.us, best.peer_us].map(rate);
                vec![
                    ratio(line.hardest("short")),
                    ratio(line.hardest("long")),
                    format!("{:.1}", best.us),
                    format!("{:.1}", best.peer_us),
                    format!("{:.2}", ours / 1e12),
                    format!("{:.2}", theirs / 1e12),
                    format!("{:.0} %", 100.0 * ours / READ_CEILING),
                    launches(best),
                    best.kernel.clone(),
                ]
            },
        ),
        "pointwise" => (&["short", "us", "TB/s", "kernel"], |line| {
            let best = line.preferred();
            let rate = format!("{:.2}", best.bytes as f64 / best.us / 1e6);
            vec![ratio(line.hardest("short")), format!("{:.1}", best.us), rate, best.kernel.clone()]
        }),
        _ => (&["long", "short", "TFLOP/s, ours", "TFLOP/s, theirs", "launches", "kernel"], |line| {
            let best = line.preferred();
            let rate = |us: f64| format!("{:.0}", 2.0 * best.m as f64 * best.n as f64 * best.k as f64 / us / 1e6);
            vec![
                ratio(line.hardest("long")),
                ratio(line.hardest("short")),
                rate(best.us),
                rate(best.peer_us),
                launches(best),
                line.kernels(),
            ]
        }),
    };
    let row = |page: &mut String, cells: &[String]| {
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    };
    let head: Vec<String> = ["M x N x K", "operands", "epilogue"].iter().chain(heads).map(|s| (*s).to_owned()).collect();
    row(page, &head);
    row(page, &vec!["---".to_owned(); head.len()]);
    for line in &lines {
        let Record { m, n, k, dtype, layout, epilogue, .. } = line.first;
        let mut all = vec![format!("{m} x {n} x {k}"), format!("{dtype} {layout}"), epilogue.clone()];
        all.extend(cells(line));
        row(page, &all);
    }
    summary::below(page, group, &lines);
}

fn dash() -> String {
    "-".to_owned()
}

fn ratio(record: Option<&Record>) -> String {
    record.map_or_else(dash, |Record { ratio, low, high, .. }| format!("{ratio:.3} [{low:.3}, {high:.3}]"))
}

/// How much longer than the peer it takes.
fn tax(record: &Record) -> String {
    format!("{:+.1} % [{:+.1}, {:+.1}]", percent(record.ratio), percent(record.high), percent(record.low))
}

/// The additional time over a peer's, in percent of it, from a ratio of the peer's time over ours.
pub(super) fn percent(ratio: f64) -> f64 {
    100.0 * (1.0 / ratio - 1.0)
}

fn launches(record: &Record) -> String {
    format!("{}, {} set(s) of {} MiB", record.launch, record.sets, (record.working_set / record.sets.max(1) as u64) >> 20)
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn both_slices_stand_in_one_line() {
        let records = [record("large", 64, "identity", "long", 1.0), record("large", 64, "identity", "short", 1.1)];
        let page = page(&records, None, None);
        let line = page.lines().find(|line| line.starts_with("| 64 x")).unwrap_or_default();
        assert!(line.contains("| 1.000 [0.990, 1.010] | 1.100 [1.090, 1.110] |"), "{page}");
        assert_eq!(page.matches("| 64 x 4096 x 1024 |").count(), 1);
        assert!(page.contains("NVIDIA H200, NVRTC 13.0"));
    }

    #[test]
    fn a_tax_is_the_reverse_of_a_ratio() {
        let record = Record { ratio: 0.8, low: 0.5, high: 1.0, ..record("tax", 64, "heavy", "long", 0.8) };
        assert_eq!(tax(&record), "+25.0 % [+0.0, +100.0]");
    }

    #[test]
    fn the_better_peer_counts() {
        let peer = |name: &str, ratio| Record { peer: name.into(), ..record("regions", 64, "regions", "long", ratio) };
        let page = page(&[peer("two", 1.6), peer("one", 1.4)], None, None);
        let wanted = "| 1.400 [1.390, 1.410] | - | one 140.0 | two 160.0 |";
        assert!(page.contains(wanted), "{page}");
    }

    #[test]
    fn choices_are_counted() {
        let other = |m, ratio| record("choice", m, "identity", "short", ratio);
        let page = page(&[other(1, 1.2), other(1, 0.99), other(2, 0.8), other(3, 1.5)], None, None);
        assert!(page.contains("Within 3 % of the fastest on 2 of 3 shapes; at worst 1.250 times its time."), "{page}");
    }

    #[test]
    fn decode_is_measured_in_bytes() {
        let page = page(
            &[Record { us: 1.0, peer_us: 2.0, bytes: 2_270_000, ..record("decode", 1, "identity", "short", 2.0) }],
            None,
            None,
        );
        assert!(page.contains("| 1.0 | 2.0 | 2.27 | 1.14 | 50 % |"), "{page}");
    }

    #[test]
    fn a_page_without_records_says_so() {
        assert!(page(&[], None, None).ends_with("No run is recorded here yet.\n"));
    }
}
