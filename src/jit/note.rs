//! Notes: facts about a kernel that help the next process, in a few bytes beside the kernels, each in an [`envelope`].
//! As with kernels, a damaged note counts as absent.

use super::envelope::{self, Damage};
use super::key::CacheKey;

const MAGIC: [u8; 8] = *b"\x89PLNOT\r\n";

pub(super) fn encode(key: &CacheKey, note: &[u8]) -> Vec<u8> {
    envelope::wrap(MAGIC, key, &[note])
}

pub(super) fn decode(key: &CacheKey, bytes: &[u8]) -> Result<Vec<u8>, Damage> {
    envelope::of(key, decode_any(bytes)?)
}

/// A note and its subject.
pub(super) fn decode_any(bytes: &[u8]) -> Result<(CacheKey, Vec<u8>), Damage> {
    let (key, note) = envelope::unwrap(MAGIC, bytes, |_| true)?;
    Ok((key, note.to_vec()))
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
