use super::*;
use crate::jit::entry::tests::cubin;
use std::sync::Barrier;

const SM: Target = Target::SM_90A;
const KEY: CacheKey = CacheKey::for_test(9);

/// The counts of a cache, without the traffic.
fn done(cache: &Cache) -> CacheStats {
    CacheStats { bytes_read: 0, bytes_written: 0, compile_us: 0, ..cache.stats() }
}

fn obtain(cache: &Cache) -> Arc<Cubin> {
    cache.obtain(&KEY, SM, Disk::Read, || Ok(cubin(&KEY, b"image"))).unwrap()
}

fn refuse() -> Result<Cubin, JitError> {
    Err(JitError::InvalidSource { entry: "k".into(), why: "for this test" })
}

#[test]
fn memory_then_disk_then_compiler() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let first = Cache::at(&root);
    let origins = [obtain(&first), obtain(&first)].map(|cubin| (cubin.info.origin, cubin.info.compile_ms.is_some()));
    assert_eq!(origins, [(Origin::Compiled, true), (Origin::Memory, true)]);
    let second = Cache::at(&root);
    let origins = [obtain(&second), obtain(&second)].map(|cubin| (cubin.info.origin, cubin.info.compile_ms.is_some()));
    assert_eq!(origins, [(Origin::Disk, false), (Origin::Memory, false)]);
    let one = CacheStats { memory_hits: 1, held: 1, ..CacheStats::default() };
    assert_eq!(done(&first), CacheStats { misses: 1, compiles: 1, ..one });
    assert_eq!(done(&second), CacheStats { disk_hits: 1, ..one });
    assert_eq!(first.stats().compile_us, 12_500);
    assert_eq!(first.stats().bytes_written, second.stats().bytes_read);
    assert_eq!(second.directory(), Ok(root.as_path()));
}

#[test]
fn a_failure_is_not_remembered() {
    let cache = Cache::in_memory();
    assert!(cache.obtain(&KEY, SM, Disk::Read, refuse).is_err());
    assert_eq!(obtain(&cache).info.origin, Origin::Compiled);
    assert_eq!(done(&cache), CacheStats { misses: 2, compiles: 1, failures: 1, held: 1, ..CacheStats::default() });
}

#[test]
fn notes_outlive_the_process_where_there_is_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let key = CacheKey::of_note(&["about"]);
    let cache = Cache::at(&root);
    assert_eq!(cache.note(&key), None);
    assert!(cache.keep_note(&key, b"first") && cache.keep_note(&key, b"note"));
    assert_eq!(cache.note(&key).as_deref(), Some(&b"note"[..]));
    assert_eq!(Cache::at(&root).note(&key).as_deref(), Some(&b"note"[..]));
    let memory = Cache::in_memory();
    assert!(!memory.keep_note(&key, b"note"));
    assert_eq!(memory.note(&key).as_deref(), Some(&b"note"[..]));
}

#[test]
fn no_directory_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let cache = Cache::at(&file);
    assert!(cache.directory().unwrap_err().contains("file: it cannot be created"), "{cache:?}");
    assert_eq!(obtain(&cache).info.origin, Origin::Compiled);
    assert_eq!(obtain(&cache).info.origin, Origin::Memory);
}

#[test]
fn damaged_entries_are_compiled_again() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    obtain(&Cache::at(&root));
    let path = Store::open(&root, false).unwrap().path(&KEY, SM);
    std::fs::write(&path, "damaged").unwrap();
    let cache = Cache::at(&root);
    assert_eq!(obtain(&cache).info.origin, Origin::Compiled);
    assert_eq!(cache.stats().damaged, 1);
    assert_eq!(obtain(&Cache::at(&root)).info.origin, Origin::Disk);
}

#[test]
fn a_refused_kernel_is_replaced_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    obtain(&Cache::at(&root));
    let cache = Cache::at(&root);
    let (stale, start) = (obtain(&cache), Barrier::new(4));
    let fresh = || Ok(cubin(&KEY, b"fresh"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                let replaced = cache.replace_with(&stale, &KEY, SM, fresh).unwrap().unwrap();
                assert_eq!(&*replaced.bytes, b"fresh");
            });
        }
    });
    assert_eq!(cache.stats().compiles, 1);
    assert_eq!(&*obtain(&Cache::at(&root)).bytes, b"fresh");
    let compiled_here = obtain(&cache);
    assert_eq!(cache.replace_with(&compiled_here, &KEY, SM, fresh).unwrap(), None);
}

#[test]
fn a_refused_kernel_is_gone_even_if_nothing_replaces_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    obtain(&Cache::at(&root));
    let stale = obtain(&Cache::at(&root));
    // This one does not have it in memory.
    assert!(Cache::at(&root).replace_with(&stale, &KEY, SM, refuse).is_err());
    assert_eq!(obtain(&Cache::at(&root)).info.origin, Origin::Compiled);
}

#[cfg(unix)]
#[test]
fn the_environment_says_where_and_how() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let of = |pairs: &[(&str, &std::ffi::OsStr)]| {
        Cache::of_environment(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    };
    let place = (root::CACHE_DIR, root.as_os_str());
    assert_eq!(of(&[place, (CACHE_MODE, "off".as_ref())]).directory(), Err("the mode of this cache is `off`"));
    assert!(of(&[place, (CACHE_MODE, "ro".as_ref())]).directory().is_err() && !root.exists(), "reading creates nothing");
    assert_eq!(of(&[place, (CACHE_MODE, "".as_ref())]).mode(), Mode::ReadWrite);
    let deny = of(&[place, (CACHE_MODE, "deny".as_ref())]);
    assert_eq!((deny.mode(), deny.directory()), (Mode::Deny, Ok(root.as_path())));
    let homeless = of(&[]);
    assert!(homeless.directory().unwrap_err().contains("nor HOME is set"), "{homeless:?}");
    let typo = of(&[place, (CACHE_MODE, "denny".as_ref())]);
    let error = typo.compile(&Source::new("", "k"), &SM, &Options::new()).unwrap_err();
    assert!(matches!(error, JitError::Mode(_)), "{error:?}");
    assert!(error.to_string().starts_with("POSTLUDE_CACHE: `denny` is not a mode"), "{error}");
}

#[test]
fn the_environment_limits_compile_times() {
    let limit = |text: &str| {
        let of = |name: &str| (name == COMPILE_LIMIT).then(|| text.into());
        Cache::of_environment(of).config.compile_limit.map(|limit| limit.as_secs_f64())
    };
    assert_eq!([limit("2.5"), limit(" 90 "), limit("1e-3")], [Some(2.5), Some(90.0), Some(1e-3)]);
    assert_eq!(limit("0"), None);
    for text in ["", "-1", "1e9", "inf", "nan", "soon"] {
        assert_eq!(limit(text), Some(30.0), "`{text}` is not a limit");
    }
}

#[test]
fn memos_are_forgotten_with_what_they_were_made_of() {
    let cache = Cache::in_memory();
    let key = CacheKey::of_note(&["request"]);
    let keep = || cache.keep_memo(key, Arc::new(5));
    assert_eq!(cache.memo::<i32>(&key, |_| 0), None);
    keep();
    assert_eq!(cache.memo::<i32>(&key, |_| 0).as_deref(), Some(&5));
    assert_eq!(cache.stats().memory_hits, 1);
    cache.keep_note(&CacheKey::of_note(&["tuned"]), b"");
    assert_eq!(cache.memo::<i32>(&key, |_| 0), None);
    keep();
    let mut stale = cubin(&KEY, b"stale");
    stale.info.compile_ms = None;
    cache.replace_with(&stale, &KEY, SM, || Ok(cubin(&KEY, b"fresh"))).unwrap();
    assert_eq!(cache.memo::<i32>(&key, |_| 0), None);
}
