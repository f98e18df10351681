//! The epilogues of the file tests, and shapes for them: for tests that compare many kernels with those of another commit.

#[path = "monoids.rs"]
mod monoids;
#[path = "softcap.rs"]
mod softcap;

use postlude::prelude::*;
use std::path::Path;

/// Shapes that take kernels through their forms: clusters, shifted edges, lockstep, split K, few rows, copied operands.
pub const SHAPES: [Shape; 7] = [
    Shape::new(4096, 4096, 4096),
    Shape::new(1024, 1024, 1024),
    Shape::new(4100, 4104, 4096),
    Shape::new(16384, 16384, 16384),
    Shape::new(64, 4096, 4096),
    Shape::new(4095, 4097, 4099),
    Shape::new(300, 520, 8192),
];

/// Every epilogue below a folder that is right, with the name of its file.
pub fn epilogues(folder: &Path, out: &mut Vec<(String, Epilogue)>) {
    let registry = postlude::build::registry().with(softcap::softcap()).with_monoids(monoids::every());
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            epilogues(&path, out);
        } else if let Ok(epilogue) = Epilogue::from_text(&std::fs::read_to_string(&path).expect("a text"), &registry) {
            out.push((path.file_stem().expect("a name").to_string_lossy().into_owned(), epilogue));
        }
    }
}
