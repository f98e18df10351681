//! Checks that the loader can be trusted with a file.
//!
//! The loader maps a library into memory by its headers. If the file ends earlier, touching the memory ends the process
//! with SIGBUS. Opening a pipe waits for a writer. So a file is examined first: it has to be a regular file, a shared
//! library for this kind of machine, and long enough for every mapped segment.
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

/// A shared library; a segment that is mapped, and one of notes.
const DYNAMIC: u16 = 3;
const LOAD: u32 = 1;
const NOTES: u32 = 4;

/// A note with the name that the linker has given the file, and the most bytes of notes that are read.
const BUILD_ID: u32 = 3;
const MOST_NOTES: u64 = 4096;

/// This machine, as headers have it.
const HERE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

const CURE: &str = "install it again, or name another with POSTLUDE_NVRTC_PATH";

/// Whether the loader may open a file, or why not.
pub(super) fn check(path: &Path) -> Result<(), String> {
    look(path).map_err(|why| format!("{why}: {CURE}"))
}

/// The name that the linker has given a library, in hexadecimal digits, if there is one and its headers are sound.
pub(super) fn build_id(path: &Path) -> Option<String> {
    let (mut file, segments) = segments(path).ok()?;
    segments.chunks_exact(SEGMENT).filter(|segment| u32_at(segment, 0) == NOTES).find_map(|segment| {
        let mut notes = Vec::new();
        file.seek(SeekFrom::Start(u64_at(segment, 8))).ok()?;
        file.by_ref().take(u64_at(segment, 32).min(MOST_NOTES)).read_to_end(&mut notes).ok()?;
        id_among(&notes)
    })
}

/// The build ID in a segment of notes. Each note has the lengths of its owner's name and of its content, its kind, the
/// name and the content. The last two are padded to four bytes.
fn id_among(mut notes: &[u8]) -> Option<String> {
    while notes.len() >= 12 {
        let (name, content, kind) = (u32_at(notes, 0) as usize, u32_at(notes, 4) as usize, u32_at(notes, 8));
        let from = name.checked_next_multiple_of(4)?.checked_add(12)?;
        let to = from.checked_add(content)?;
        let held = notes.get(from..to)?;
        if kind == BUILD_ID && notes.get(12..16) == Some(b"GNU\0") && name == 4 {
            return Some(held.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(to.checked_next_multiple_of(4)?..)?;
    }
    None
}

fn look(path: &Path) -> Result<(), String> {
    segments(path).map(drop)
}

/// A file whose segments are complete, with their headers.
fn segments(path: &Path) -> Result<(File, Vec<u8>), String> {
    let cannot = |error| format!("it cannot be read ({error})");
    // Before it is opened, since opening a pipe would wait.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut file = File::open(path).map_err(cannot)?;
    let length = file.metadata().map_err(cannot)?.len();
    let cut_off = || format!("it is cut off after {length} bytes");
    let mut header = Vec::new();
    file.by_ref().take(HEADER as u64).read_to_end(&mut header).map_err(cannot)?;
    if !b"\x7fELF".starts_with(&header[..header.len().min(4)]) {
        return Err("it is not an ELF library".to_owned());
    }
    if header.len() < HEADER {
        return Err(cut_off());
    }
    // 64 bits, little-endian.
    if header[4..6] != [2, 1] || u16_at(&header, MACHINE) != HERE {
        return Err("it is a library for another kind of machine".to_owned());
    }
    let (size, count) = (usize::from(u16_at(&header, SEGMENT_SIZE)), usize::from(u16_at(&header, SEGMENT_COUNT)));
    if u16_at(&header, TYPE) != DYNAMIC || size != SEGMENT || count == 0 {
        return Err("it is not an ELF library".to_owned());
    }
    let start = u64_at(&header, SEGMENTS);
    if start.checked_add((size * count) as u64).is_none_or(|end| end > length) {
        return Err(cut_off());
    }
    let mut segments = vec![0; size * count];
    file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut segments)).map_err(cannot)?;
    // A segment without bytes in the file maps nothing from it.
    let inside = |segment: &[u8]| {
        let (offset, bytes) = (u64_at(segment, 8), u64_at(segment, 32));
        bytes == 0 || offset.checked_add(bytes).is_some_and(|end| end <= length)
    };
    let mapped = |segment: &&[u8]| u32_at(segment, 0) == LOAD;
    if segments.chunks_exact(SEGMENT).filter(mapped).all(inside) { Ok((file, segments)) } else { Err(cut_off()) }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
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
    fn the_lowest_byte_of_a_number_comes_first() {
        let bytes: Vec<u8> = (1..=10).collect();
        assert_eq!((u16_at(&bytes, 2), u32_at(&bytes, 1)), (0x0403, 0x0504_0302));
        assert_eq!(u64_at(&bytes, 2), 0x0a09_0807_0605_0403);
    }

    #[test]
    fn a_build_id_is_found_among_notes() {
        let note = |name: &[u8], kind: u32, content: &[u8]| {
            let mut note = Vec::new();
            for number in [name.len() as u32, content.len() as u32, kind] {
                note.extend_from_slice(&number.to_le_bytes());
            }
            for part in [name, content] {
                note.extend_from_slice(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let named = note(b"GNU\0", BUILD_ID, b"\x01\xab\xff");
        assert_eq!(id_among(&named).as_deref(), Some("01abff"));
        let others = [note(b"GNU\0", 1, b"abi"), note(b"stapsdt\0", BUILD_ID, b"probe")].concat();
        assert_eq!(id_among(&[&others[..], &named].concat()).as_deref(), Some("01abff"));
        assert_eq!(id_among(&others), None);
        for length in 0..named.len() - 1 {
            assert_eq!(id_among(&named[..length]), None, "cut to {length}");
        }
        assert_eq!(id_among(&[0xff; 40]), None, "lengths that lead nowhere");
        // In a file: a second segment, of notes, behind the first.
        let mut bytes = library(1000);
        bytes[SEGMENT_COUNT] = 2;
        let second = HEADER + SEGMENT;
        bytes[second] = NOTES as u8;
        bytes[second + 8..second + 16].copy_from_slice(&1000u64.to_le_bytes());
        bytes[second + 32..second + 40].copy_from_slice(&(named.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&named);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(build_id(file.path()).as_deref(), Some("01abff"));
        std::fs::write(file.path(), "no library").unwrap();
        assert_eq!(build_id(file.path()), None);
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
