//! From one machine to another in one file.

use super::super::{BundleError, Config, Holds, Mode};
use super::*;

fn filled(root: &Path) -> Cache {
    let cache = Cache::at(root).compiling_with(compiler("C 1"));
    for text in ["a", "b", "c"] {
        compile(&cache, text).unwrap();
    }
    assert!(cache.keep_note(&CacheKey::of_note(&["tuned"]), b"note"));
    cache
}

#[test]
fn a_machine_without_a_compiler_runs_what_was_brought() {
    let directory = tempfile::tempdir().unwrap();
    let bundle = directory.path().join("bundle");
    let out = filled(&directory.path().join("here")).export(&bundle).unwrap();
    assert_eq!((out.kernels, out.notes, out.compilers, out.damaged), (3, 1, 1, 0));
    let root = directory.path().join("there");
    let there = Cache::at(&root).compiling_with(absent());
    assert!(compile(&there, "a").is_err());
    assert_eq!(there.import(&bundle).unwrap(), out);
    assert_eq!(there.import(&bundle).unwrap(), out, "again is the same");
    assert_eq!(["a", "b", "c"].map(|text| origin(&there, text)), [Origin::Disk; 3]);
    assert_eq!(there.note(&CacheKey::of_note(&["tuned"])).as_deref(), Some(&b"note"[..]));
    // A damaged file is imported again.
    let kernel = files(&root, ".kernel").remove(0);
    fs::write(&kernel, "damaged").unwrap();
    assert_eq!(there.import(&bundle).unwrap(), out);
    assert!(fs::metadata(&kernel).unwrap().len() > SIZE as u64);
    let denied = Cache::open(&root, Config::new().mode(Mode::Deny)).compiling_with(absent());
    assert_eq!(origin(&denied, "b"), Origin::Disk);
    let (listed, kernels) = (there.files(), |file: &&super::super::CachedFile| matches!(file.holds, Ok(Holds::Kernel(_))));
    assert_eq!((listed.len(), listed.iter().filter(kernels).count()), (5, 3));
    assert!(matches!(&listed[4].holds, Ok(Holds::Compiler(identity)) if identity == "C 1"), "{:?}", listed[4]);
    let again = directory.path().join("again");
    there.export(&again).unwrap();
    assert_eq!(fs::read(&bundle).unwrap(), fs::read(&again).unwrap(), "the same content gives the same bytes");
}

#[test]
fn damaged_files_stay_behind_and_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("here");
    let cache = filled(&root);
    let kernels = files(&root, ".kernel");
    fs::write(&kernels[0], "damaged").unwrap();
    let compiler = files(&root.join("v1/compilers"), ".note").remove(0);
    fs::copy(files(&root.join("v1/notes"), ".note").remove(0), &compiler).unwrap();
    // A hole: it takes no room.
    let huge = kernels[1].with_extension("note");
    File::create(&huge).unwrap().set_len(super::super::layout::LARGEST + 1).unwrap();
    let renamed = kernels[1].with_file_name(format!("{}.kernel", "0".repeat(64)));
    fs::copy(&kernels[1], &renamed).unwrap();
    let wrong: Vec<_> = cache.files().into_iter().filter_map(|file| Some((file.path, file.holds.err()?.to_string()))).collect();
    let why = |path: &Path| wrong.iter().find(|(at, _)| at == path).map(|(_, why)| why.as_str()).unwrap_or("sound");
    assert_eq!(wrong.len(), 4, "{wrong:?}");
    assert_eq!(why(&huge), "it is too large for a file of the cache");
    assert_eq!(why(&compiler), "its description cannot be read");
    assert_eq!(why(&kernels[0]), "it is cut off or has something behind its end");
    assert!(why(&renamed).starts_with("it belongs to sm_90a/"), "{wrong:?}");
    let out = cache.export(directory.path().join("bundle")).unwrap();
    assert_eq!((out.kernels, out.compilers, out.damaged), (3, 0, 3), "the renamed one finds its place again");
    assert!(kernels[0].exists(), "looking changes nothing");
}

#[test]
fn no_cut_and_no_flipped_bit_comes_through() {
    let directory = tempfile::tempdir().unwrap();
    let bundle = directory.path().join("bundle");
    filled(&directory.path().join("here")).export(&bundle).unwrap();
    let whole = fs::read(&bundle).unwrap();
    let root = directory.path().join("there");
    let there = Cache::at(&root);
    let refused = |bytes: &[u8]| {
        fs::write(&bundle, bytes).unwrap();
        let error = there.import(&bundle).unwrap_err();
        assert!(matches!(error, BundleError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("not a sound bundle"), "{error}");
    };
    for length in (0..whole.len()).step_by(whole.len() / 60).chain([whole.len() - 1, 1, 11, 12, 44]) {
        refused(&whole[..length]);
    }
    refused(&[&whole[..], b"\0"].concat());
    for bit in (0..whole.len() * 8).step_by(whole.len() / 8) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refused(&flipped);
    }
    assert_eq!(files(&root, ".kernel"), Vec::<PathBuf>::new());
}

#[test]
fn bundles_that_lie_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let bundle = directory.path().join("bundle");
    let there = Cache::at(directory.path().join("there"));
    // With a right checksum: the description is not trusted.
    let import = |body: &[u8]| {
        let mut bytes = [b"\x89PLBUN\r\n\x01\0\0\0", body].concat();
        bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
        fs::write(&bundle, bytes).unwrap();
        there.import(&bundle).map_err(|error| error.to_string())
    };
    assert_eq!(import(b"\0").unwrap(), Default::default());
    assert_eq!(import(b"\x01\x04\0\0\0\0\0\0\0junk\x02\0\0\0\0\0\0\0\0\x63\0\0\0\0\0\0\0\0\0").unwrap().damaged, 3);
    assert!(import(b"").unwrap_err().contains("no end"));
    assert!(import(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff").unwrap_err().contains("too large"));
    assert!(import(b"\x01\xff\xff\xff\x0f\0\0\0\0short").unwrap_err().contains("no end"));
}

#[test]
fn caches_that_cannot_be_written_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("here");
    let bundle = directory.path().join("bundle");
    filled(&root).export(&bundle).unwrap();
    let reader = Cache::open(&root, Config::new().mode(Mode::ReadOnly));
    assert!(matches!(reader.import(&bundle), Err(BundleError::NotWritable { mode: Mode::ReadOnly, .. })));
    assert!(reader.export(directory.path().join("other")).is_ok());
    assert!(matches!(Cache::in_memory().export(&bundle), Err(BundleError::NoDirectory(_))));
    assert!(matches!(reader.export(directory.path().join("no/such/folder")), Err(BundleError::Io { .. })));
    assert!(matches!(Cache::at(&root).import(directory.path().join("absent")), Err(BundleError::Io { .. })));
}
