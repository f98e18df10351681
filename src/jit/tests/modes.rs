//! The actions and the files of each mode, and machines without a compiler.

use super::super::{Config, Limits, Mode};
use super::*;

fn open(root: &Path, mode: Mode, stand_in: &Arc<StandIn>) -> Cache {
    Cache::open(root, Config::new().mode(mode)).compiling_with(stand_in.clone())
}

#[test]
fn read_only_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let stand_in = compiler("C 1");
    compile(&open(&root, Mode::ReadWrite, &stand_in), "text").unwrap();
    let kernel = files(&root, ".kernel").remove(0);
    File::open(&kernel).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let listing = || {
        let stamp = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
        files(&root, "").into_iter().map(|path| (stamp(&path), path)).collect::<Vec<_>>()
    };
    let before = listing();
    let cache = open(&root, Mode::ReadOnly, &stand_in);
    assert_eq!((origin(&cache, "text"), origin(&cache, "other")), (Origin::Disk, Origin::Compiled));
    assert_eq!(cache.stats().unsaved, 0);
    assert_eq!((cache.clear(), cache.prune(Limits::default())), Default::default());
    assert_eq!(listing(), before);
}

#[test]
fn off_has_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let stand_in = compiler("C 1");
    compile(&open(&root, Mode::ReadWrite, &stand_in), "text").unwrap();
    let cache = open(&root, Mode::Off, &stand_in);
    assert_eq!((origin(&cache, "text"), origin(&cache, "text")), (Origin::Compiled, Origin::Memory));
    assert!(cache.directory().is_err());
}

#[test]
fn deny_never_compiles_and_never_asks() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let stand_in = compiler("C 1");
    let cache = open(&root, Mode::Deny, &stand_in);
    let error = compile(&cache, "text").unwrap_err().to_string();
    assert!(error.contains("compiling is denied") && error.contains("it cannot be read"), "{error}");
    let filler = open(&root, Mode::ReadWrite, &stand_in);
    let key = compile(&filler, "text").unwrap().info.key.clone();
    let asked = stand_in.asked.load(SeqCst);

    let cache = open(&root, Mode::Deny, &stand_in);
    assert_eq!((origin(&cache, "text"), origin(&cache, "text")), (Origin::Disk, Origin::Memory));
    let JitError::Denied(denied) = compile(&cache, "other").unwrap_err() else { panic!("denied") };
    assert_eq!((denied.entry.as_str(), denied.target, denied.keys.len()), ("k", SM, 1));
    assert_eq!(denied.directory, root.display().to_string());
    let wanted = filler.key(&Source::new("other", "k"), &SM, &Options::new()).unwrap();
    assert_eq!(denied.keys[0], ("C 1".to_owned(), wanted.to_string()), "the key that a filler will have");
    let text = denied.to_string();
    assert!(text.contains(&wanted.to_string()) && text.contains("postlude-cache precompile"), "{text}");
    // A kernel that another process adds is found.
    compile(&filler, "other").unwrap();
    assert_eq!(origin(&cache, "other"), Origin::Disk);
    let refused = compile(&cache, "text").unwrap();
    assert_eq!(refused.info.key, key);
    let replaced = cache.replace(&refused, &Source::new("text", "k"), &SM, &Options::new());
    assert!(matches!(replaced, Ok(None)), "the driver's word stands");
    assert_eq!((stand_in.asked.load(SeqCst), stand_in.compiled.load(SeqCst)), (asked, 2));
    assert_eq!(cache.stats().misses, 1);
}

#[test]
fn a_machine_without_a_compiler_uses_what_is_there_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    for identity in ["C 9.1", "C 12.0", "C 10.5"] {
        compile(&open(&root, Mode::ReadWrite, &compiler(identity)), "text").unwrap();
    }
    compile(&open(&root, Mode::ReadWrite, &compiler("C 9.1")), "old").unwrap();
    let none = absent();
    let cache = open(&root, Mode::ReadWrite, &none);
    let used = |text: &str| compile(&cache, text).unwrap().info.compiler.clone();
    assert_eq!([used("text"), used("old"), used("text")], ["C 12.0", "C 9.1", "C 12.0"]);
    assert_eq!(none.asked.load(SeqCst), 1, "looked for once");
    // The driver may be too old for the newest.
    for cache in [open(&root, Mode::ReadWrite, &absent()), open(&root, Mode::Deny, &none)] {
        let (source, options) = (Source::new("text", "k"), Options::new());
        let mut refused = compile(&cache, "text").unwrap();
        for older in ["C 10.5", "C 9.1"] {
            refused = cache.replace(&refused, &source, &SM, &options).unwrap().unwrap();
            assert!(right(&refused) && refused.info.compiler == older, "{:?}", refused.info);
        }
        assert!(!matches!(cache.replace(&refused, &source, &SM, &options), Ok(Some(_))), "there is no other");
        assert_eq!(compile(&cache, "text").unwrap().info.compiler, "C 9.1", "the others are not tried again");
    }
    assert_eq!(none.asked.load(SeqCst), 1);
    let error = compile(&cache, "new").unwrap_err();
    assert!(matches!(error, JitError::NotFound(_)), "{error}");
    assert_eq!(none.asked.load(SeqCst), 2, "a miss looks again");
    // It is installed meanwhile.
    none.absent.store(false, SeqCst);
    assert_eq!(origin(&cache, "new"), Origin::Compiled);
}

#[test]
fn a_compiler_that_came_later_is_used_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    compile(&open(&root, Mode::ReadWrite, &compiler("C 1")), "text").unwrap();
    let late = Arc::new(StandIn { identity: "C 2", absent: true.into(), ..StandIn::default() });
    let cache = open(&root, Mode::ReadWrite, &late);
    assert!(matches!(compile(&cache, "new"), Err(JitError::NotFound(_))));
    late.absent.store(false, SeqCst);
    assert_eq!(origin(&cache, "new"), Origin::Compiled);
    assert_eq!(compile(&cache, "text").unwrap().info.compiler, "C 2", "not the other compiler's from disk");
}

#[test]
fn threads_that_find_no_compiler_at_once_all_look_at_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let texts = ["a", "b", "c", "d"];
    let filler = open(&root, Mode::ReadWrite, &compiler("C 1"));
    texts.iter().for_each(|text| drop(compile(&filler, text).unwrap()));
    let none = Arc::new(StandIn { absent: true.into(), together: Some(Barrier::new(texts.len())), ..StandIn::default() });
    let cache = open(&root, Mode::ReadWrite, &none);
    std::thread::scope(|scope| {
        let threads = texts.map(|text| scope.spawn(|| origin(&cache, text)));
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Origin::Disk));
    });
}

#[test]
fn a_directory_without_compilers_is_as_good_as_none() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let filler = open(&root, Mode::ReadWrite, &compiler("C 1"));
    compile(&filler, "text").unwrap();
    fs::remove_dir_all(root.join("v1/compilers")).unwrap();
    assert!(compile(&open(&root, Mode::ReadWrite, &absent()), "text").is_err());
    // The next process with a compiler records it again.
    assert_eq!(origin(&open(&root, Mode::ReadWrite, &compiler("C 1")), "text"), Origin::Disk);
    assert_eq!(origin(&open(&root, Mode::ReadWrite, &absent()), "text"), Origin::Disk);
}

#[test]
fn a_cache_is_usable_with_a_compiler_with_kernels_or_where_compiling_is_denied() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let none = absent();
    assert!(matches!(open(&root, Mode::ReadWrite, &none).usable(), Err(JitError::NotFound(_))));
    assert_eq!(none.asked.load(SeqCst), 1);
    assert!(open(&root, Mode::ReadWrite, &compiler("C 1")).usable().is_ok());
    assert!(open(&root, Mode::Deny, &none).usable().is_ok());
    compile(&open(&root, Mode::ReadWrite, &compiler("C 1")), "text").unwrap();
    for mode in [Mode::ReadWrite, Mode::ReadOnly] {
        assert!(open(&root, mode, &none).usable().is_ok(), "{mode}");
    }
    assert_eq!(none.asked.load(SeqCst), 1, "neither denied nor filled caches look for one");
    assert!(open(&root, Mode::Off, &none).usable().is_err());
}
