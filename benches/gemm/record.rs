//! What is written down of a contest: one kernel of ours against one peer, as a line of CSV.
//!
//! The benchmark writes these lines and `cargo xtask bench-report` reads them, both through this file.

/// Ours against a peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The group it was measured in, which decides the table it stands in.
    pub group: String,
    pub gpu: String,
    /// Versions of what both sides came from.
    pub software: String,
    pub dtype: String,
    pub layout: String,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub epilogue: String,
    /// `long` or `short`.
    pub slices: String,
    pub rounds: usize,
    /// How launches got to the device: `stream`, or `graph of N`.
    pub launch: String,
    /// How many sets of operands the launches turned through.
    pub sets: usize,
    /// Bytes that one launch of ours has to move.
    pub bytes: u64,
    /// What all sets together take.
    pub working_set: u64,
    /// Mainloop, tile and schedule of ours.
    pub kernel: String,
    /// Median time of ours, in microseconds.
    pub us: f64,
    pub peer: String,
    /// Which of its algorithms, or which kernels.
    pub peer_kernel: String,
    pub peer_us: f64,
    /// Peer's time over ours: median over the rounds, tenth and ninetieth percentile. Above 1 we are faster.
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// |ours - peer's| / |ours| over the values compared; NaN where the two compute different things.
    pub distance: f64,
}

macro_rules! columns {
    ($($name:ident),* $(,)?) => {
        impl Record {
            pub const HEADER: &[&str] = &[$(stringify!($name)),*];

            /// Its line, without the line's end.
            pub fn to_line(&self) -> String {
                [$(quoted(&self.$name.to_string())),*].join(",")
            }

            /// Reads the lines below a header, whose columns may stand in any order.
            ///
            /// # Errors
            /// A column that is missing, or a field that cannot be read, with its line.
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
