//! The result of a benchmark contest: one kernel of ours against one peer, as a line of CSV.
//!
//! The GEMM benchmark writes these lines, and `cargo xtask bench-report` reads them.

/// One kernel of ours against one peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The benchmark's group, which decides the table of the page.
    pub group: String,
    /// The device's name.
    pub gpu: String,
    /// Versions of both sides' libraries.
    pub software: String,
    /// Format of A and B.
    pub dtype: String,
    /// Layout of A and B, such as `TN`.
    pub layout: String,
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// K elements.
    pub k: usize,
    /// The epilogue's name.
    pub epilogue: String,
    /// `long` or `short`.
    pub slices: String,
    /// Rounds, in each of which every contender ran once.
    pub rounds: usize,
    /// How launches were submitted: `stream`, or `graph of N`.
    pub launch: String,
    /// Sets of operands that the launches alternated between.
    pub sets: usize,
    /// Bytes that one launch of ours has to move.
    pub bytes: u64,
    /// Bytes of all sets together.
    pub working_set: u64,
    /// Mainloop, tile and schedule of our kernel.
    pub kernel: String,
    /// Median time of our kernel, in microseconds.
    pub us: f64,
    /// The peer's name.
    pub peer: String,
    /// The peer's algorithm, or its kernels.
    pub peer_kernel: String,
    /// Median time of the peer, in microseconds.
    pub peer_us: f64,
    /// The peer's time over ours, the median over the rounds. Above 1 our kernel is faster.
    pub ratio: f64,
    /// The ratio's tenth percentile.
    pub low: f64,
    /// The ratio's ninetieth percentile.
    pub high: f64,
    /// |ours - peer's| / |ours| over the compared values; NaN where the two compute different things.
    pub distance: f64,
}

macro_rules! columns {
    ($($name:ident),* $(,)?) => {
        impl Record {
            /// The columns' names, in the order of [`to_line`](Record::to_line).
            pub const HEADER: &[&str] = &[$(stringify!($name)),*];

            /// The record as a line, without the line's end.
            pub fn to_line(&self) -> String {
                [$(quoted(&self.$name.to_string())),*].join(",")
            }

            /// Reads the lines below a header. Its columns may stand in any order.
            ///
            /// # Errors
            /// If a column is missing, or a field cannot be read; the message names the line.
            pub fn read(text: &str) -> Result<Vec<Record>, String> {
                let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
                let Some((_, header)) = lines.next() else { return Ok(Vec::new()) };
                let header = fields(header);
                $(let $name = header.iter().position(|name| name == stringify!($name))
                    .ok_or_else(|| concat!("no column `", stringify!($name), "`").to_owned())?;)*
                if !text.ends_with('\n') {
                    return Err("its last line is cut off: delete it".to_owned());
                }
                lines.map(|(number, line)| {
                    let fields = fields(line);
                    let unreadable = |column: &str| format!("line {}: `{column}` cannot be read", number + 1);
                    Ok(Record {
                        $($name: fields.get($name).and_then(|field| field.parse().ok())
                            .ok_or_else(|| unreadable(stringify!($name)))?,)*
                    })
                }).collect()
            }
        }
    };
}

columns! {
    group, gpu, software, dtype, layout, m, n, k, epilogue, slices, rounds, launch, sets, bytes, working_set, kernel, us, peer,
    peer_kernel, peer_us, ratio, low, high, distance,
}

/// A field, in quotes where it needs them.
fn quoted(field: &str) -> String {
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

/// The fields of a line.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut inside) = (vec![String::new()], false);
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        let last = fields.len() - 1;
        match c {
            '"' if inside && characters.peek() == Some(&'"') => {
                characters.next();
                fields[last].push('"');
            }
            '"' => inside = !inside,
            ',' if !inside => fields.push(String::new()),
            other => fields[last].push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            group: "large".into(),
            gpu: "NVIDIA \"H200\"".into(),
            kernel: "sm80 128x256x64, 4 stages, 2x4 warps".into(),
            m: 8192,
            n: 4096,
            k: 1024,
            us: 1234.5,
            ratio: 1.0625,
            distance: f64::NAN,
            ..Record::default()
        }
    }

    #[test]
    fn lines_come_back() {
        let text = format!("{}\n{}\n", Record::HEADER.join(","), record().to_line());
        let read = Record::read(&text).expect("a record");
        assert!(read[0].distance.is_nan());
        assert_eq!(Record { distance: 0.0, ..read[0].clone() }, Record { distance: 0.0, ..record() });
    }

    #[test]
    fn columns_are_found_by_name() {
        let plain = Record { gpu: "H200".into(), kernel: "sm80".into(), ..record() };
        let reversed = |line: &str| line.split(',').rev().collect::<Vec<_>>().join(",");
        let text = format!("{}\n{}", reversed(&Record::HEADER.join(",")), reversed(&plain.to_line()));
        assert_eq!(Record::read(&(text + "\n")).expect("a record")[0].n, 4096);
    }

    #[test]
    fn faults_name_their_place() {
        assert_eq!(Record::read("group,gpu\n").expect_err("columns are missing"), "no column `software`");
        let line = record().to_line().replace("1234.5", "fast");
        let error = Record::read(&format!("{}\n{line}\n", Record::HEADER.join(","))).expect_err("`fast` is no number");
        assert_eq!(error, "line 2: `us` cannot be read");
        assert_eq!(Record::read(""), Ok(Vec::new()));
        let whole = format!("{}\n{}\n", Record::HEADER.join(","), record().to_line());
        assert_eq!(Record::read(&whole[..whole.len() - 2]).expect_err("a shorter number"), "its last line is cut off: delete it");
    }
}
