//! Whether a file is a library that the loader can be trusted with.
//!
//! The loader maps a library into memory by what its headers say. Where the file ends before that, touching the memory ends the
//! process with SIGBUS, and opening a pipe waits for somebody to write into it. So a file is looked at first: it is a regular file,
//! a shared library of this machine's kind, and long enough for every segment that is mapped.
//!
//! The layout is that of the ELF-64 object file format (System V ABI, "Object Files").

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Bytes of the header of a file, and of a segment's.
const HEADER: usize = 64;
const SEGMENT: usize = 56;

/// Where the numbers stand in the header: kind of file, machine, place of the segments' headers, their size and their number.
const TYPE: usize = 16;
const MACHINE: usize = 18;
const SEGMENTS: usize = 32;
const SEGMENT_SIZE: usize = 54;
const SEGMENT_COUNT: usize = 56;

/// A shared library; a segment that is mapped.
const DYNAMIC: u16 = 3;
const LOAD: u32 = 1;

/// This machine, as headers have it.
const HERE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

const CURE: &str = "install it again, or name another with POSTLUDE_NVRTC_PATH";

/// Whether the loader may open a file, or why not.
pub(super) fn check(path: &Path) -> Result<(), String> {
    look(path).map_err(|why| format!("{why}: {CURE}"))
}

fn look(path: &Path) -> Result<(), String> {
    let cannot = |error| format!("it cannot be read ({error})");
    // Before it is opened, which for a pipe would wait.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut file = File::open(path).map_err(cannot)?;
    let length = file.metadata().map_err(cannot)?.len();
    let cut_off = || format!("it is cut off after {length} bytes");
    let mut header = Vec::new();
    file.by_ref().take(HEADER as u64).read_to_end(&mut header).map_err(cannot)?;
    if !b"\x7fELF".starts_with(&header[..header.len().min(4)]) {
        return Err("it is no ELF library".to_owned());
    }
    if header.len() < HEADER {
        return Err(cut_off());
    }
    // 64 bits, the low byte first.
    if header[4..6] != [2, 1] || u16_at(&header, MACHINE) != HERE {
        return Err("it is a library for another kind of machine".to_owned());
    }
    let (size, count) = (usize::from(u16_at(&header, SEGMENT_SIZE)), usize::from(u16_at(&header, SEGMENT_COUNT)));
    if u16_at(&header, TYPE) != DYNAMIC || size != SEGMENT || count == 0 {
        return Err("it is no ELF library".to_owned());
    }
    let start = u64_at(&header, SEGMENTS);
    if start.checked_add((size * count) as u64).is_none_or(|end| end > length) {
        return Err(cut_off());
    }
    let mut segments = vec![0; size * count];
    file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut segments)).map_err(cannot)?;
    // Of a segment without bytes in the file nothing is mapped from there.
    let inside = |segment: &[u8]| {
        let (offset, bytes) = (u64_at(segment, 8), u64_at(segment, 32));
        bytes == 0 || offset.checked_add(bytes).is_some_and(|end| end <= length)
    };
    let mapped = |segment: &&[u8]| u32::from_le_bytes([segment[0], segment[1], segment[2], segment[3]]) == LOAD;
    if segments.chunks_exact(SEGMENT).filter(mapped).all(inside) { Ok(()) } else { Err(cut_off()) }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library of one segment that ends with the file.
    fn library(end: u64) -> Vec<u8> {
        let mut bytes = vec![0; end as usize];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[TYPE..TYPE + 2].copy_from_slice(&DYNAMIC.to_le_bytes());
        bytes[MACHINE..MACHINE + 2].copy_from_slice(&HERE.to_le_bytes());
        bytes[SEGMENTS] = HEADER as u8;
        bytes[SEGMENT_SIZE] = SEGMENT as u8;
        bytes[SEGMENT_COUNT] = 1;
        bytes[HEADER] = LOAD as u8;
        bytes[HEADER + 8] = 32;
        bytes[HEADER + 32..HEADER + 40].copy_from_slice(&(end - 32).to_le_bytes());
        bytes
    }

    #[test]
    fn every_cut_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("library");
        let whole = library(1000);
        let said = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            check(&path)
        };
        assert_eq!(said(&whole), Ok(()));
        assert_eq!(said(&[&whole[..], b"more"].concat()), Ok(()), "what is not mapped may follow");
        for length in 0..whole.len() {
            assert_eq!(said(&whole[..length]), Err(format!("it is cut off after {length} bytes: {CURE}")));
        }
        // Offsets whose sums are too large for a number, and a segment that is only a note.
        for at in [SEGMENTS, HEADER + 8, HEADER + 32] {
            let mut bent = whole.clone();
            bent[at..at + 8].fill(0xff);
            assert!(said(&bent).unwrap_err().contains("cut off"), "{at}");
            bent[HEADER] = 4;
            assert_eq!(said(&bent).is_ok(), at != SEGMENTS);
        }
        let mut empty = whole;
        empty[HEADER + 8..HEADER + 16].fill(0xff);
        empty[HEADER + 32..HEADER + 40].fill(0);
        assert_eq!(said(&empty), Ok(()), "it is all zeros, in memory alone");
    }
}
