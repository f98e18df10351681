//! Small matrices for examples: computed by a formula that any language can repeat, and printed.

use std::io::{self, Write};

/// Eighths from -1 to 1, different for each seed.
pub fn eighths(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + seed * 5) % 17) as f32 / 8.0 - 1.0).collect()
}

/// Prints a matrix under its title, a line for each row.
pub fn show(
    out: &mut dyn Write,
    title: &str,
    columns: usize,
    values: impl IntoIterator<Item = impl Into<f32>>,
) -> io::Result<()> {
    let values: Vec<f32> = values.into_iter().map(Into::into).collect();
    writeln!(out, "{title}")?;
    for row in values.chunks(columns) {
        writeln!(out, " {}", row.iter().map(|x| format!(" {x:8.4}")).collect::<String>())?;
    }
    Ok(())
}
