//! Bytes from anywhere, read as an entry or a note: an answer, never a panic, and never more memory than the bytes account for.
//!
//! `PROPTEST_CASES` says how many.

use super::super::entry;
use super::super::envelope::Damage;
use super::super::note;
use super::*;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn whole() -> Vec<u8> {
    let key = CacheKey::for_test(7);
    let mut cubin = made(&key, "k", SM, "C 1");
    cubin.bytes = b"image"[..].into();
    entry::encode(&key, &cubin).unwrap()
}

/// Gives bytes the checksum that goes with them, as a careful attacker would.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    bytes
}

/// A sound entry with some bytes replaced, cut out or put in.
fn bent() -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..12));
    prop::collection::vec(edit, 0..4).prop_map(|edits| {
        let mut bytes = whole();
        bytes.truncate(bytes.len() - 32);
        for (from, to, new) in edits {
            let (from, to) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
            bytes.splice(from.min(to)..from.max(to).min(from.min(to) + 12), new);
        }
        bytes
    })
}

/// A JSON description of the right shape or nearly.
fn described() -> impl Strategy<Value = Vec<u8>> {
    let key = CacheKey::for_test(7).to_string();
    let value = prop_oneof![
        Just("40".to_owned()),
        Just("-1".to_owned()),
        Just("1e99".to_owned()),
        Just("null".to_owned()),
        Just(format!("\"{key}\"")),
        Just("\"sm_90a\"".to_owned()),
        Just("\"sm_999999999999\"".to_owned()),
        Just("[\"w\"]".to_owned()),
        Just("[".repeat(300)),
    ];
    const NAMES: [&str; 13] = [
        "entry",
        "target",
        "key",
        "compiler",
        "registers",
        "spill_store_bytes",
        "spill_load_bytes",
        "stack_bytes",
        "static_shared_bytes",
        "warnings",
        "compile_ms",
        "origin",
        "other",
    ];
    prop::collection::vec((prop::sample::select(&NAMES[..]), value), 0..16).prop_map(move |fields| {
        let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let info = format!("{{{}}}", fields.join(","));
        let mut bytes = whole()[..44].to_vec();
        bytes.extend_from_slice(&(info.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&5u64.to_le_bytes());
        bytes.extend_from_slice(info.as_bytes());
        bytes.extend_from_slice(b"image");
        bytes
    })
}

/// Whatever is taken for an entry is what its own bytes say, to the last one.
fn faithful(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok((key, cubin)) = entry::decode_any(bytes) {
        prop_assert_eq!(&cubin.info.key, &key.to_string());
        prop_assert!(cubin.bytes.len() + 32 <= bytes.len());
        prop_assert!(matches!(cubin.info.origin, Origin::Disk | Origin::Memory | Origin::Compiled));
        prop_assert_eq!(entry::decode(&CacheKey::for_test(8), bytes), Err(Damage::Key));
    }
    if let Ok((key, note)) = note::decode_any(bytes) {
        prop_assert_eq!(note::encode(&key, &note), bytes);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        faithful(&bytes)?;
        faithful(&sealed(bytes))?;
    }

    #[test]
    fn entries_that_were_bent(bytes in bent()) {
        let sound = whole();
        if bytes != sound[..sound.len() - 32] {
            // Under the old checksum nothing passes.
            let old = [&bytes[..], &sound[sound.len() - 32..]].concat();
            prop_assert!(entry::decode_any(&old).is_err());
        }
        faithful(&sealed(bytes))?;
    }

    #[test]
    fn descriptions_of_any_kind(bytes in described()) {
        faithful(&sealed(bytes))?;
    }
}
