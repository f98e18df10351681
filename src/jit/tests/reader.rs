//! Untrusted bytes, read as an entry, a note or a bundle: an answer, never a panic, and never more memory than the
//! bytes account for.
//!
//! `cargo xtask fuzz` runs for minutes, with a limit on the memory. Inputs worth trying every time are in
//! `tests/fuzz_seeds/entry`.

use super::super::bundle;
use super::super::entry;
use super::super::envelope::Damage;
use super::super::kind::FileKind;
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

/// Gives bytes their checksum, as a careful attacker would.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    bytes
}

/// A sound entry with some bytes replaced, removed or added.
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

/// An accepted entry agrees with its own bytes, to the last one.
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

/// A bundle of sound and unsound files, some with wrong lengths; without its checksum.
fn bundled() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..60);
    let file = prop_oneof![Just(whole()), bent().prop_map(sealed), described().prop_map(sealed), noise];
    let off = prop_oneof![8 => Just(0), 1 => 0..40u64, 1 => any::<u64>()];
    prop::collection::vec((0..6u8, file, off), 0..5).prop_map(|files| {
        let mut bytes = b"\x89PLBUN\r\n\x01\0\0\0".to_vec();
        for (tag, file, off) in files {
            bytes.push(tag);
            bytes.extend_from_slice(&(file.len() as u64).wrapping_add(off).to_le_bytes());
            bytes.extend_from_slice(&file);
        }
        bytes.push(0);
        bytes
    })
}

/// Every file from a bundle was in it, and agrees with its own bytes.
fn accounted(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut files = Vec::new();
    let _ = bundle::read(std::io::Cursor::new(bytes), |tag, file| {
        files.push((tag, file));
        Ok(())
    });
    prop_assert!(files.iter().map(|(_, file)| file.len() + 9).sum::<usize>() <= bytes.len());
    for (tag, file) in files {
        faithful(&file)?;
        let read = entry::decode_any(&file).map(|(key, _)| key).or_else(|_| note::decode_any(&file).map(|(key, _)| key));
        if let Some(Ok(identified)) = FileKind::of_tag(tag).map(|kind| kind.read(&file)) {
            prop_assert_eq!(read, Ok(identified.key));
        }
    }
    Ok(())
}

#[test]
fn the_kept_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz_seeds/entry");
    let seeds = files(&folder, "");
    assert!(seeds.len() > 10, "{folder:?} holds {} seeds", seeds.len());
    for seed in seeds {
        let bytes = fs::read(&seed).unwrap();
        let read = faithful(&bytes).and_then(|()| accounted(&bytes));
        assert!(read.is_ok(), "{seed:?}: {read:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        faithful(&bytes)?;
        accounted(&bytes)?;
        let sealed = sealed(bytes);
        faithful(&sealed)?;
        accounted(&sealed)?;
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

    #[test]
    fn bundles_of_any_kind(bytes in bundled(), cut in any::<prop::sample::Index>()) {
        let whole = sealed(bytes);
        let cut = cut.index(whole.len());
        prop_assert!(bundle::read(std::io::Cursor::new(&whole[..cut]), |_, _| Ok(())).is_err());
        accounted(&sealed(whole[..cut].to_vec()))?;
        accounted(&whole)?;
    }
}
