//! Compilations that are too long, that are watched, and that are called off.

use super::*;
use crate::jit::{Config, Progress};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn source(text: &str, seconds: f64) -> Source {
    Source::new(text, "k").expecting(Duration::from_secs_f64(seconds))
}

fn cache(config: Config, compiler: &Arc<StandIn>) -> (tempfile::TempDir, Cache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache"), config).compiling_with(compiler.clone());
    (directory, cache)
}

#[test]
fn what_takes_too_long_is_refused_and_not_compiled() {
    let compiler = compiler("C 1");
    let (_kept, limited) = cache(Config::new(), &compiler);
    let compile = |cache: &Cache, text: &str, seconds| cache.compile(&source(text, seconds), &SM, &Options::new());
    let error = compile(&limited, "long", 31.0).unwrap_err();
    assert!(matches!(error, JitError::TooLong(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("31.0 s") && text.contains("30.0 s") && text.contains("compile_limit"), "{text}");
    assert_eq!(compiler.compiled.load(SeqCst), 0);
    // What is shorter, and what nobody has estimated.
    compile(&limited, "short", 29.0).unwrap();
    limited.compile(&Source::new("unknown", "k"), &SM, &Options::new()).unwrap();
    let (kept, unlimited) = cache(Config::new().compile_limit(None), &compiler);
    compile(&unlimited, "long", 1e6).unwrap();
    // A kernel that is there is no compilation.
    let again = Cache::open(kept.path().join("cache"), Config::new()).compiling_with(compiler.clone());
    assert_eq!(compile(&again, "long", 1e6).unwrap().info.origin, Origin::Disk);
    assert_eq!(compiler.compiled.load(SeqCst), 3);
}

#[test]
fn estimates_follow_the_pace_of_this_machine() {
    let slow = Arc::new(StandIn { identity: "C 1", works: Duration::from_millis(120), ..StandIn::default() });
    let (_kept, limited) = cache(Config::new().compile_limit(Some(Duration::from_secs(2))), &slow);
    let compile = |text: &str, seconds| limited.compile(&source(text, seconds), &SM, &Options::new());
    // Each of these takes twelve times as long as on the machine of the estimates.
    for text in ["a", "b", "c", "d", "e"] {
        compile(text, 0.01).unwrap();
    }
    let error = compile("half a second there", 0.5).unwrap_err();
    assert!(matches!(error, JitError::TooLong(too_long) if too_long.estimate > Duration::from_secs(2)), "{error}");
}

/// Waiting for other work on the machine does not lengthen estimates. Else a busy machine would refuse kernels that an idle one compiles.
#[test]
#[cfg(target_os = "linux")]
fn what_a_compilation_waits_for_does_not_count() {
    let waits = Arc::new(StandIn { identity: "C 1", takes: Duration::from_millis(60), ..StandIn::default() });
    let (_kept, limited) = cache(Config::new().compile_limit(Some(Duration::from_secs(2))), &waits);
    for text in ["a", "b", "c", "d", "e"] {
        limited.compile(&source(text, 0.01), &SM, &Options::new()).unwrap();
    }
    limited.compile(&source("almost as long as the limit", 1.9), &SM, &Options::new()).unwrap();
}

#[test]
fn a_watcher_sees_progress() {
    let slow = Arc::new(StandIn { identity: "C 1", takes: Duration::from_millis(450), ..StandIn::default() });
    let seen: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let sink = seen.clone();
    let (_kept, watched) = cache(
        Config::new().watch(move |progress| {
            sink.lock().unwrap().push(*progress);
            ControlFlow::Continue(())
        }),
        &slow,
    );
    watched.compile(&source("text", 0.2), &SM, &Options::new()).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 3, "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].elapsed <= pair[1].elapsed), "{seen:?}");
    assert!(seen[0].fraction().unwrap() < 0.5 && seen.last().unwrap().fraction() == Some(0.99), "{seen:?}");
}

#[test]
fn a_watcher_may_call_it_off_before_it_begins() {
    let compiler = compiler("C 1");
    let (_kept, watched) = cache(Config::new().watch(|_| ControlFlow::Break(())), &compiler);
    let error = watched.compile(&source("text", 0.2), &SM, &Options::new()).unwrap_err();
    assert!(matches!(error, JitError::Cancelled { .. }), "{error}");
    assert_eq!(compiler.compiled.load(SeqCst), 0);
}

#[test]
fn a_running_compiler_hears_that_it_is_called_off() {
    struct Endless;
    impl Compile for Endless {
        fn build(&self) -> Result<Build, JitError> {
            Ok(Build { identity: "C 1".into(), common: Vec::new() })
        }
        fn compile(
            &self,
            _: &CacheKey,
            _: &Source,
            target: Target,
            _: &[String],
            cancel: &AtomicBool,
        ) -> Result<Cubin, JitError> {
            let start = Instant::now();
            while !cancel.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(JitError::Cancelled { target, elapsed: start.elapsed() })
        }
    }
    let config = Config::new().watch(|progress| match progress.elapsed.as_millis() {
        0..150 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    let directory = tempfile::tempdir().unwrap();
    let watched = Cache::open(directory.path().join("cache"), config).compiling_with(Arc::new(Endless));
    let error = watched.compile(&source("text", 0.2), &SM, &Options::new()).unwrap_err();
    assert!(matches!(error, JitError::Cancelled { .. }), "{error}");
}
