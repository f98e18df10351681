//! Memory, disk, compiler; many threads.

use super::children::{ROLE, ROOT, child_of_shell, report};
use super::*;
use std::sync::Barrier;

#[test]
fn sixty_four_threads_compile_once() {
    let stand_in = Arc::new(StandIn { identity: "C 1", takes: Duration::from_millis(50), ..StandIn::default() });
    let (cache, start) = (Cache::in_memory().compiling_with(stand_in.clone()), Barrier::new(64));
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                start.wait();
                compile(&cache, "text").unwrap();
            });
        }
    });
    let stats = cache.stats();
    assert_eq!((stand_in.compiled.load(SeqCst), stats.compiles, stats.misses, stats.memory_hits), (1, 1, 1, 63));
    assert_eq!(stats.compile_us, 1500);
}

#[test]
fn sixty_four_threads_share_a_failure_and_may_try_again() {
    let stand_in = Arc::new(StandIn { identity: "C 1", takes: Duration::from_millis(200), ..StandIn::default() });
    let (cache, start) = (Cache::in_memory().compiling_with(stand_in.clone()), Barrier::new(64));
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                start.wait();
                let error = compile(&cache, "wrong").unwrap_err();
                assert!(error.to_string().contains("for this test"), "{error}");
            });
        }
    });
    let compiled = stand_in.compiled.load(SeqCst);
    // A thread that the machine wakes late finds no worker, and tries again.
    assert!(compiled < 8, "{compiled} of 64");
    assert!(compile(&cache, "wrong").is_err());
    assert_eq!((stand_in.compiled.load(SeqCst), cache.stats().failures), (compiled + 1, compiled + 1));
}

#[test]
fn another_compiler_has_its_own_kernels() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    for identity in ["C 1", "C 2"] {
        let open = || Cache::at(&root).compiling_with(compiler(identity));
        assert_eq!((origin(&open(), "text"), origin(&open(), "text")), (Origin::Compiled, Origin::Disk));
        assert_eq!(compile(&open(), "text").unwrap().info.compiler, identity);
    }
    assert_eq!(files(&root, ".kernel").len(), 2);
}

#[test]
fn what_was_just_compiled_is_not_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path().join("cache")).compiling_with(compiler("C 1"));
    assert_eq!((origin(&cache, "text"), origin(&cache, "text")), (Origin::Compiled, Origin::Memory));
    assert_eq!(cache.stats().bytes_read, 0);
    assert!(cache.stats().bytes_written as usize > SIZE);
}

#[test]
fn neither_place_nor_environment_is_in_the_key() {
    let key = |cache: Cache| {
        let cache = cache.compiling_with(compiler("C 1"));
        cache.key(&Source::new("text", "k"), &SM, &Options::new()).unwrap().to_string()
    };
    let directory = tempfile::tempdir().unwrap();
    let here = key(Cache::in_memory());
    assert_eq!(key(Cache::at(directory.path().join("cache"))), here);
    let bare = format!("exec env -i {ROLE}=key {ROOT}=/ \"$0\" \"$@\";");
    let elsewhere = [
        "",
        "export TZ=Pacific/Kiritimati;",
        "export LANG=tr_TR.UTF-8 LC_ALL=tr_TR.UTF-8;",
        "export HOME=/nowhere USER=nobody HOSTNAME=elsewhere;",
        "cd /; umask 077;",
        &bare,
    ];
    for prepare in elsewhere {
        let child = child_of_shell(prepare, "key", directory.path()).spawn().unwrap();
        assert_eq!(report(child), here, "{prepare}");
    }
}

#[test]
fn each_answer_is_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Cache::at(directory.path().join("cache")).compiling_with(compiler("C 1"));
    let (first, second) = (open(), open());
    let (_, events) = heard(tracing::Level::TRACE, || [&first, &first, &second].map(|cache| origin(cache, "text")));
    let told: Vec<_> =
        events.iter().filter(|event| event.target == "postlude::cache" && !event.get("level").is_empty()).collect();
    let levels: Vec<_> = told.iter().map(|event| event.get("level")).collect();
    assert_eq!(levels, ["miss", "compiled", "memory", "disk"]);
    let size = SIZE.to_string();
    assert_eq!(told.iter().map(|event| event.get("bytes")).collect::<Vec<_>>(), ["0", &size, &size, &size]);
    assert!(told.iter().all(|event| event.get("kernel") == told[0].get("kernel") && event.get("ms").parse::<f64>().is_ok()));
    assert_eq!(told[1].get("ms"), "1.5");
    let listened = |level| told.iter().filter(|event| event.level == level).count();
    assert_eq!((listened(tracing::Level::TRACE), listened(tracing::Level::DEBUG)), (1, 3));
}

#[test]
fn the_numbers_are_an_event_after_a_sweep() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path().join("cache")).compiling_with(compiler("C 1"));
    let (stats, events) = heard(tracing::Level::DEBUG, || {
        compile(&cache, "text").unwrap();
        let stats = cache.stats();
        cache.prune(super::super::Limits::default());
        stats
    });
    let told: Vec<_> = events.iter().filter(|event| !event.get("when").is_empty()).collect();
    assert_eq!(told.len(), 2, "the first writer sweeps: {events:#?}");
    for event in told {
        assert_eq!((event.target, event.get("when"), event.get("compiles")), ("postlude::cache", "sweep", "1"));
        assert_eq!(event.get("bytes_written"), stats.bytes_written.to_string());
        assert_eq!((event.get("misses"), event.get("memory_hits"), event.get("held").len()), ("1", "0", 1));
    }
}
