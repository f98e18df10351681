//! A cached kernel as bytes.
//!
//! One file holds the binary and the facts about it, so the two cannot disagree:
//!
//! ```text
//! info     u32       length of the following description
//! image    u64       length of the binary after it
//! ...      info      JSON
//! ...      image     the binary
//! ```
//!
//! in an [`envelope`]. The same kernel always gives the same bytes.

use super::envelope::{self, Damage};
use super::key::CacheKey;
use crate::source::{Cubin, KernelInfo};

const MAGIC: [u8; 8] = *b"\x89PLKRN\r\n";

pub(super) fn encode(key: &CacheKey, cubin: &Cubin) -> Option<Vec<u8>> {
    let info = serde_json::to_vec(&cubin.info).ok()?;
    let lengths = (u32::try_from(info.len()).ok()?.to_le_bytes(), (cubin.bytes.len() as u64).to_le_bytes());
    Some(envelope::wrap(MAGIC, key, &[&lengths.0, &lengths.1, &info, &cubin.bytes]))
}

pub(super) fn decode(key: &CacheKey, bytes: &[u8]) -> Result<Cubin, Damage> {
    envelope::of(key, decode_any(bytes)?)
}

/// A kernel and its key.
pub(super) fn decode_any(bytes: &[u8]) -> Result<(CacheKey, Cubin), Damage> {
    let (key, held) = envelope::unwrap(MAGIC, bytes, |held| parts(held).is_some())?;
    let (info, image) = parts(held).ok_or(Damage::Length)?;
    let info: KernelInfo = serde_json::from_slice(info).map_err(|_| Damage::Description)?;
    if info.key != key.to_string() {
        return Err(Damage::Key);
    }
    Ok((key, Cubin::new(image, info)))
}

/// Description and binary, if the lengths account for all bytes.
fn parts(held: &[u8]) -> Option<(&[u8], &[u8])> {
    let (info, rest) = held.split_first_chunk()?;
    let (image, rest) = rest.split_first_chunk()?;
    let (info, image) = (u32::from_le_bytes(*info) as usize, usize::try_from(u64::from_le_bytes(*image)).ok()?);
    (info.checked_add(image) == Some(rest.len())).then(|| rest.split_at(info))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::source::Origin;
    use crate::target::Target;

    /// A kernel as the compiler returns it.
    pub fn cubin(key: &CacheKey, bytes: &[u8]) -> Cubin {
        let info = KernelInfo {
            entry: "k".into(),
            target: Target::SM_90A,
            key: key.to_string(),
            compiler: "NVRTC 13.0".into(),
            registers: 40,
            spill_store_bytes: 4,
            spill_load_bytes: 8,
            stack_bytes: 16,
            static_shared_bytes: 1024,
            warnings: vec!["C7510: slow \"é\"".into()],
            compile_ms: Some(12.5),
            origin: Origin::Compiled,
        };
        Cubin::new(bytes, info)
    }

    /// The same kernel as the disk returns it.
    pub fn as_read(mut cubin: Cubin) -> Cubin {
        (cubin.info.compile_ms, cubin.info.origin) = (None, Origin::Disk);
        cubin
    }

    #[test]
    fn round_trip() {
        let key = CacheKey::for_test(7);
        for image in [&b"image"[..], b""] {
            let cubin = cubin(&key, image);
            let bytes = encode(&key, &cubin).unwrap();
            assert_eq!(decode(&key, &bytes), Ok(as_read(cubin.clone())));
            assert_eq!(encode(&key, &as_read(cubin)).unwrap(), bytes, "the way here leaves no trace");
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let key = CacheKey::for_test(7);
        let whole = encode(&key, &cubin(&key, b"image")).unwrap();
        for length in 0..whole.len() {
            assert!(decode(&key, &whole[..length]).is_err(), "cut to {length}");
        }
        let longer = [&whole[..], b"\0"].concat();
        assert_eq!(decode(&key, &longer), Err(Damage::Length));
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&key, &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_describes_another_kernel_is_damaged() {
        let (key, other) = (CacheKey::for_test(7), CacheKey::for_test(8));
        let mixed = encode(&key, &cubin(&other, b"image")).unwrap();
        assert_eq!(decode(&key, &mixed), Err(Damage::Key));
        assert_eq!(decode_any(&mixed), Err(Damage::Key));
    }

    #[test]
    fn damage_has_a_name() {
        let key = CacheKey::for_test(7);
        let whole = encode(&key, &cubin(&key, b"image")).unwrap();
        assert_eq!(decode(&CacheKey::for_test(8), &whole), Err(Damage::Key));
        assert_eq!(decode(&key, b""), Err(Damage::Length));
        assert_eq!(decode(&key, &[0; 200]), Err(Damage::Magic));
        let mut other = whole.clone();
        other[8] += 1;
        assert_eq!(decode(&key, &other), Err(Damage::Format));
        let mut huge = whole;
        huge[48..56].fill(0xff);
        assert_eq!(decode(&key, &huge), Err(Damage::Length));
    }
}
