//! The envelope of every file of the cache: its owner at the front, and a hash of everything at the end.
//!
//! ```text
//! magic    8 bytes   the kind of file: not a text, and damaged by anything that treats it as one
//! format   u32       the version of its layout
//! key      32 bytes  the full key, so a renamed file is found out
//! ...                what the kind of file holds
//! check    32 bytes  hash of all the above
//! ```
//!
//! Numbers are little-endian.

use super::key::{CacheKey, FORMAT};

pub(super) const HASH: usize = 32;

/// Why bytes are not the requested file. Always a miss, never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it is not a file of this kind")]
    Magic,
    #[error("it has another format version")]
    Format,
    #[error("it belongs to another kernel")]
    Key,
    #[error("it is cut off or has something behind its end")]
    Length,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("its description cannot be read")]
    Description,
}

/// The parts of a file, with their envelope.
pub(super) fn wrap(magic: [u8; 8], key: &CacheKey, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(magic.len() + 4 + HASH + length + HASH);
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(key.as_bytes());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    let check = blake3::hash(&bytes);
    bytes.extend_from_slice(check.as_bytes());
    bytes
}

/// The owner of a file, and its content. `complete` checks the length by the owner, which gives a better message than a
/// wrong checksum.
pub(super) fn unwrap(magic: [u8; 8], bytes: &[u8], complete: impl Fn(&[u8]) -> bool) -> Result<(CacheKey, &[u8]), Damage> {
    let (found, rest) = bytes.split_first_chunk().ok_or(Damage::Length)?;
    if *found != magic {
        return Err(Damage::Magic);
    }
    let (format, rest) = rest.split_first_chunk().ok_or(Damage::Length)?;
    if u32::from_le_bytes(*format) != FORMAT {
        return Err(Damage::Format);
    }
    let (key, rest) = rest.split_first_chunk::<HASH>().ok_or(Damage::Length)?;
    let (held, check) = rest.split_last_chunk::<HASH>().ok_or(Damage::Length)?;
    if !complete(held) {
        return Err(Damage::Length);
    }
    if blake3::hash(&bytes[..bytes.len() - HASH]).as_bytes() != check {
        return Err(Damage::Checksum);
    }
    Ok((CacheKey::from_bytes(*key), held))
}

/// The content of a file, if it is the requested one.
pub(super) fn of<T>(key: &CacheKey, read: (CacheKey, T)) -> Result<T, Damage> {
    let (found, held) = read;
    if found == *key { Ok(held) } else { Err(Damage::Key) }
}
