//! A cached kernel as bytes.
//!
//! One file holds the binary and what is known about it, so the two cannot disagree:
//!
//! ```text
//! magic    8 bytes   "\x89PLKRN\r\n": not a text, and damaged by anything that treats it as one
//! format   u32       the version of this layout
//! key      32 bytes  the full key, so a renamed file is found out
//! info     u32       length of the following description
//! image    u64       length of the binary after it
//! ...      info      JSON
//! ...      image     the binary
//! check    32 bytes  hash of all the above
//! ```
//!
//! Numbers are little-endian. The same kernel always gives the same bytes.

use super::key::{CacheKey, FORMAT};
use crate::source::{Cubin, KernelInfo};

const MAGIC: [u8; 8] = *b"\x89PLKRN\r\n";
const HASH: usize = 32;
const HEADER: usize = MAGIC.len() + 4 + HASH + 4 + 8;

/// Why bytes are not the entry that was looked for. Always a miss, never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it is not a kernel entry")]
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

pub(super) fn encode(key: &CacheKey, cubin: &Cubin) -> Option<Vec<u8>> {
    let info = serde_json::to_vec(&cubin.info).ok()?;
    let mut bytes = Vec::with_capacity(HEADER + info.len() + cubin.bytes.len() + HASH);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(key.as_bytes());
    bytes.extend_from_slice(&u32::try_from(info.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(&(cubin.bytes.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&info);
    bytes.extend_from_slice(&cubin.bytes);
    let check = blake3::hash(&bytes);
    bytes.extend_from_slice(check.as_bytes());
    Some(bytes)
}

pub(super) fn decode(key: &CacheKey, bytes: &[u8]) -> Result<Cubin, Damage> {
    let (found, cubin) = decode_any(bytes)?;
    if found == *key { Ok(cubin) } else { Err(Damage::Key) }
}

/// A kernel and its key.
pub(super) fn decode_any(bytes: &[u8]) -> Result<(CacheKey, Cubin), Damage> {
    let (magic, rest) = bytes.split_first_chunk().ok_or(Damage::Length)?;
    if *magic != MAGIC {
        return Err(Damage::Magic);
    }
    let (format, rest) = rest.split_first_chunk().ok_or(Damage::Length)?;
    if u32::from_le_bytes(*format) != FORMAT {
        return Err(Damage::Format);
    }
    let (found, rest) = rest.split_first_chunk::<HASH>().ok_or(Damage::Length)?;
    let (info, rest) = rest.split_first_chunk().ok_or(Damage::Length)?;
    let (image, rest) = rest.split_first_chunk().ok_or(Damage::Length)?;
    let info = u32::from_le_bytes(*info) as usize;
    let image = usize::try_from(u64::from_le_bytes(*image)).map_err(|_| Damage::Length)?;
    if info.checked_add(image).and_then(|length| length.checked_add(HASH)) != Some(rest.len()) {
        return Err(Damage::Length);
    }
    let (body, check) = bytes.split_at(bytes.len() - HASH);
    if blake3::hash(body).as_bytes() != check {
        return Err(Damage::Checksum);
    }
    let (info, rest) = rest.split_at(info);
    let info: KernelInfo = serde_json::from_slice(info).map_err(|_| Damage::Description)?;
    if info.key != CacheKey::from_bytes(*found).to_string() {
        return Err(Damage::Key);
    }
    Ok((CacheKey::from_bytes(*found), Cubin::new(&rest[..image], info)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::source::Origin;
    use crate::target::Target;

    /// A kernel as it comes from the compiler.
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

    /// The same, as it comes from the disk.
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
