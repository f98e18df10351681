//! Notes: what was found out about a kernel and is worth knowing the next time, in a few bytes beside the kernels.
//!
//! ```text
//! magic    8 bytes   "\x89PLNOT\r\n"
//! format   u32       the version of this layout
//! key      32 bytes  the full key
//! note     the rest but for the
//! check    32 bytes  hash of all the above
//! ```
//!
//! As with kernels, what is damaged is as good as absent.

use super::entry::Damage;
use super::key::{CacheKey, FORMAT};

const MAGIC: [u8; 8] = *b"\x89PLNOT\r\n";
const HASH: usize = 32;

pub(super) fn encode(key: &CacheKey, note: &[u8]) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &FORMAT.to_le_bytes(), key.as_bytes(), note].concat();
    let check = blake3::hash(&bytes);
    bytes.extend_from_slice(check.as_bytes());
    bytes
}

pub(super) fn decode(key: &CacheKey, bytes: &[u8]) -> Result<Vec<u8>, Damage> {
    let (found, note) = decode_any(bytes)?;
    if found == *key { Ok(note) } else { Err(Damage::Key) }
}

/// A note and whose it is.
pub(super) fn decode_any(bytes: &[u8]) -> Result<(CacheKey, Vec<u8>), Damage> {
    let (magic, rest) = bytes.split_first_chunk().ok_or(Damage::Length)?;
    if *magic != MAGIC {
        return Err(Damage::Magic);
    }
    let (format, rest) = rest.split_first_chunk().ok_or(Damage::Length)?;
    if u32::from_le_bytes(*format) != FORMAT {
        return Err(Damage::Format);
    }
    let (found, rest) = rest.split_first_chunk::<HASH>().ok_or(Damage::Length)?;
    let (note, check) = rest.split_last_chunk::<HASH>().ok_or(Damage::Length)?;
    if blake3::hash(&bytes[..bytes.len() - HASH]).as_bytes() != check {
        return Err(Damage::Checksum);
    }
    Ok((CacheKey::from_bytes(*found), note.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let key = CacheKey::for_test(1);
        for note in [&b"note"[..], b""] {
            assert_eq!(decode(&key, &encode(&key, note)), Ok(note.to_vec()));
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let key = CacheKey::for_test(1);
        let whole = encode(&key, b"note");
        assert_eq!(decode(&CacheKey::for_test(2), &whole), Err(Damage::Key));
        for length in 0..whole.len() {
            assert!(decode(&key, &whole[..length]).is_err(), "cut to {length}");
        }
        assert!(decode(&key, &[&whole[..], b"\0"].concat()).is_err());
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&key, &flipped).is_err(), "bit {bit}");
        }
    }
}
