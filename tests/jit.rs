//! The compiler and the cache, with the real NVRTC.
//!
//! Without NVRTC these tests say that they are skipped; with `POSTLUDE_REQUIRE_NVRTC=1` they fail instead. No GPU is needed.
#![cfg(all(feature = "jit", target_os = "linux"))]

use postlude::jit::{
    CACHE_DIR, CACHE_MODE, Cache, CacheStats, Compiler, Config, Cubin, JitError, Mode, NVRTC_PATH, Options, Origin, Source,
    Target, compiler,
};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;

/// The compiler, or a word that there is none.
fn nvrtc() -> Option<Compiler> {
    match compiler() {
        Ok(compiler) => Some(compiler),
        Err(error) if std::env::var_os("POSTLUDE_REQUIRE_NVRTC").is_some_and(|value| value == "1") => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: NVRTC not found ({error})");
            None
        }
    }
}

fn kernel(body: &str) -> Source {
    Source::new(format!("extern \"C\" __global__ void __launch_bounds__(128) k(float* x, int n) {{\n{body}\n}}\n"), "k")
}

fn simple() -> Source {
    kernel("__shared__ float s[32]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[n] * 2;")
}

fn compile(source: &Source, target: Target) -> Result<Cubin, JitError> {
    Cache::in_memory().compile(source, &target, &Options::new()).map(|cubin| (*cubin).clone())
}

fn digest(cubin: &Cubin) -> u64 {
    let mut hasher = DefaultHasher::new();
    cubin.bytes.hash(&mut hasher);
    hasher.finish()
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn a_kernel_compiles_and_tells_what_it_needs() {
    let Some(compiler) = nvrtc() else { return };
    assert!(compiler.identity.starts_with("NVRTC ") && compiler.identity.contains(" CL-"), "{compiler:?}");
    assert!(compiler.architectures.contains(&90), "{compiler:?}");
    assert!(compiler.file.as_ref().is_some_and(|file| file.is_file()), "{compiler:?}");
    for target in [Target::SM_80, Target::SM_90A] {
        let cubin = compile(&simple(), target).unwrap();
        assert!(cubin.bytes.starts_with(b"\x7fELF"));
        let info = &cubin.info;
        assert!(info.registers > 0 && !info.spills() && info.static_shared_bytes == 128 && info.warnings.is_empty(), "{info:?}");
        assert_eq!((info.entry.as_str(), info.target, info.origin), ("k", target, Origin::Compiled));
        assert_eq!(info.compiler, compiler.identity);
        assert!(info.compile_ms.is_some_and(|ms| ms > 0.0));
    }
}

#[test]
fn spills_and_warnings_are_reported_and_survive_the_disk() {
    if nvrtc().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let hungry = Source::new(
        "extern \"C\" __global__ void __launch_bounds__(1024, 2) k(float* x, int n) {\n  int unused;\n  float v[64];\n\
         #pragma unroll\n  for (int i = 0; i < 64; i++) v[i] = x[i * n];\n  __syncthreads();\n\
         #pragma unroll\n  for (int i = 0; i < 64; i++) x[i * n + 1] = v[63 - i];\n}\n",
        "k",
    );
    let options = Options::new();
    for origin in [Origin::Compiled, Origin::Disk] {
        let cubin = Cache::at(directory.path().join("c")).compile(&hungry, &Target::SM_90A, &options).unwrap();
        let info = &cubin.info;
        assert_eq!(info.origin, origin);
        assert!(info.spills() && info.spill_store_bytes > 0 && info.spill_load_bytes > 0 && info.stack_bytes > 0, "{info:?}");
        assert!(info.warnings.len() == 1 && info.warnings[0].contains("#177-D"), "{info:?}");
    }
    // Without launch bounds ptxas ignores the instruction and says so in passing.
    let text = "extern \"C\" __global__ void k(float* x) { asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\"); x[0] = 1; }";
    let ignored = compile(&Source::new(text, "k"), Target::SM_90A).unwrap();
    let found: Vec<_> = ignored.info.performance_warnings().collect();
    assert!(found.len() == 1 && found[0].contains("C7508"), "{:?}", ignored.info);
}

#[test]
fn errors_come_back_with_their_step() {
    if nvrtc().is_none() {
        return;
    }
    let bad = kernel("#line 7 \"postlude:%3\"\n  x[0] = foo(n);\n#line 2 \"postlude:%12\"\n\n  x[1] = \"text\";");
    let error = compile(&bad, Target::SM_80).unwrap_err();
    let JitError::Compile(failure) = &error else { panic!("{error:?}") };
    let places: Vec<_> = failure.errors().map(|message| (message.step, message.line)).collect();
    assert_eq!(places, [(Some(3), Some(7)), (Some(12), Some(3))], "{error}");
    let text = error.to_string();
    assert!(text.contains("rejected kernel `k` for sm_80:\n  step 3, line 7: identifier \"foo\" is undefined"), "{text}");

    let error = compile(&kernel("asm volatile(\"foo.bar;\");"), Target::SM_80).unwrap_err();
    assert!(error.to_string().contains("Not a name of any known instruction: 'foo'"), "{error}");
    // One architecture may lack instructions of another.
    let error = compile(&kernel("asm volatile(\"wgmma.fence.sync.aligned;\");"), Target::SM_90).unwrap_err();
    assert!(matches!(error, JitError::Compile(_)), "{error}");
    let error = compile(&kernel("#include <evil.h>"), Target::SM_80).unwrap_err();
    assert!(error.to_string().contains("evil.h"), "{error}");
}

#[test]
fn wrong_questions_have_typed_answers() {
    let Some(Compiler { identity, .. }) = nvrtc() else { return };
    let error = compile(&simple(), Target::new(30, 0)).unwrap_err();
    assert!(matches!(error, JitError::UnsupportedTarget { .. }), "{error:?}");
    assert!(error.to_string().starts_with(&format!("{identity} cannot compile for sm_300; it knows sm_")), "{error}");

    let mangled = Source::new("__global__ void k() {}", "k");
    let error = compile(&mangled, Target::SM_80).unwrap_err();
    assert!(matches!(&error, JitError::MissingEntry { found, .. } if found == &["_Z1kv"]), "{error:?}");
    let empty = compile(&Source::new("", "k"), Target::SM_80).unwrap_err();
    assert!(matches!(empty, JitError::MissingEntry { .. }), "{empty:?}");
    for source in [Source::new("a\0b", "k"), Source::new("", ""), Source::new("", "1k"), Source::new("", "k k")] {
        let error = compile(&source, Target::SM_80).unwrap_err();
        assert!(matches!(error, JitError::InvalidSource { .. }), "{error:?}");
    }
    let options = Options::new().ptxas("--no-such-option");
    let error = Cache::in_memory().compile(&simple(), &Target::SM_80, &options).unwrap_err();
    assert!(matches!(error, JitError::InvalidOption { .. } | JitError::Compile(_)), "{error:?}");
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[test]
fn every_input_changes_the_key() {
    if nvrtc().is_none() {
        return;
    }
    let cache = Cache::in_memory();
    let key = |source: &Source, target, options: &Options| cache.key(source, &target, options).unwrap();
    let (source, plain) = (simple(), Options::new());
    let base = key(&source, Target::SM_80, &plain);
    assert_eq!(base, key(&source.clone(), Target::SM_80, &Options::default()));
    assert_ne!(base, key(&source, Target::SM_86, &plain));
    assert_ne!(base, key(&source, Target::SM_80, &Options::new().line_info(true)));
    assert_ne!(base, key(&source, Target::SM_80, &Options::new().ptxas("-O2")));
    assert_ne!(base, key(&Source::new(source.text(), "j"), Target::SM_80, &plain));
    assert_ne!(base, key(&Source::new(format!("{source} "), "k"), Target::SM_80, &plain));
    let cubin = cache.compile(&source, &Target::SM_80, &plain).unwrap();
    assert_eq!(cubin.info.key, base.to_string());
}

#[test]
fn declarations_that_kernels_do_not_use_are_left_out_unless_they_are_wanted() {
    if nvrtc().is_none() {
        return;
    }
    let cache = Cache::in_memory();
    let compile = |body: &str, options: Options| cache.compile(&kernel(body), &Target::SM_90A, &options);
    let (body, declared) = ("x[threadIdx.x] = sizeof(cudaTextureObject_t);", Options::new().declarations(true));
    compile(body, declared.clone()).unwrap();
    let again = "x[threadIdx.x] += n;";
    assert_eq!(compile(again, declared).unwrap().bytes, compile(again, Options::new()).unwrap().bytes, "the same machine code");
    // Releases without the option to leave them out keep them.
    if let Err(error) = compile(body, Options::new()) {
        let JitError::Compile(failure) = &error else { panic!("{error}") };
        assert!(failure.to_string().contains("cudaTextureObject_t"), "{error}");
    }
}

#[test]
fn threads_share_one_compilation() {
    if nvrtc().is_none() {
        return;
    }
    let (cache, start) = (Cache::in_memory(), Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                cache.compile(&simple(), &Target::SM_90A, &Options::new()).unwrap();
            });
        }
    });
    let CacheStats { compiles, memory_hits, held, .. } = cache.stats();
    assert_eq!((compiles, memory_hits, held), (1, 7, 1));
}

/// Runs `in_another_process` in a separate process.
fn child(shell: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{shell} exec \"$0\" \"$@\"")]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "in_another_process", "--nocapture", "--test-threads=1"]).env("POSTLUDE_TEST_CHILD", "1");
    if let Ok(Compiler { file: Some(file), .. }) = compiler() {
        command.env(NVRTC_PATH, file);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The child's report.
fn report(output: std::process::Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.lines().find_map(|line| line.split_once("report: ")).expect(&text).1.to_owned()
}

/// Not a test by itself: the body of the other processes.
#[test]
fn in_another_process() {
    if std::env::var_os("POSTLUDE_TEST_CHILD").is_none() {
        return;
    }
    let cache = Cache::global();
    let outcome = match cache.compile(&simple(), &Target::SM_90A, &Options::new().line_info(true)) {
        Ok(cubin) => format!("{} {:x} {}", cubin.info.key, digest(&cubin), cubin.info.origin),
        Err(error) => format!("{error:?}"),
    };
    let (unsaved, directory) = (cache.stats().unsaved, cache.directory().is_ok());
    let loaded = std::fs::read_to_string("/proc/self/maps").unwrap().contains("libnvrtc");
    println!("\nreport: {outcome} unsaved={unsaved} directory={directory} loaded={loaded}");
}

#[test]
fn processes_agree_on_key_and_bytes() {
    if nvrtc().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let racing: Vec<_> = (0..4).map(|_| child("cd /;").env(CACHE_DIR, &root).spawn().unwrap()).collect();
    let mut reports: Vec<_> = racing.into_iter().map(|child| report(child.wait_with_output().unwrap())).collect();
    reports.push(report(child("").env(CACHE_DIR, &root).output().unwrap()));
    assert!(reports[4].contains(" disk unsaved=0 directory=true loaded=false"), "{reports:#?}");
    assert!(reports[..4].iter().any(|report| report.ends_with("loaded=true")), "somebody compiled: {reports:#?}");
    let start = |report: &str| report.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
    assert!(reports.iter().all(|report| start(report) == start(&reports[0])), "{reports:#?}");
    let compiled = reports.iter().filter(|report| report.contains(" compiled ")).count();
    assert_eq!(compiled, 1, "the others waited for it: {reports:#?}");
    let files = files_below(&root);
    let kernels = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "kernel"));
    assert_eq!(kernels.count(), 1, "{files:?}");
}

#[test]
fn no_home_and_a_full_disk_cost_nothing_but_time() {
    if nvrtc().is_none() {
        return;
    }
    let homeless = report(child("").env_remove(CACHE_DIR).env_remove("XDG_CACHE_HOME").env_remove("HOME").output().unwrap());
    assert!(homeless.contains(" compiled unsaved=0 directory=false"), "{homeless}");
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let full = report(child("trap '' XFSZ; ulimit -f 0;").env(CACHE_DIR, &root).output().unwrap());
    assert!(full.contains(" compiled unsaved=1 directory=true"), "{full}");
    let mut left = files_below(&root);
    left.retain(|file| file.metadata().is_ok_and(|metadata| metadata.len() > 0));
    assert_eq!(left, Vec::<PathBuf>::new(), "nothing half written is left");
}

#[test]
fn a_missing_nvrtc_is_an_error_that_lists_the_places() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let missing = report(child("").env(NVRTC_PATH, "/nonexistent/libnvrtc.so.13").env(CACHE_DIR, &root).output().unwrap());
    assert!(missing.starts_with("NotFound(") && missing.contains("/nonexistent/libnvrtc.so.13"), "{missing}");
}

/// A directory filled elsewhere, and nothing to compile with here.
#[test]
fn a_filled_directory_does_without_nvrtc() {
    if nvrtc().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (directory.path().join("here"), directory.path().join("there"));
    let bundle = directory.path().join("bundle");
    let compiled = report(child("").env(CACHE_DIR, &here).output().unwrap());
    assert_eq!(Cache::at(&here).export(&bundle).unwrap().kernels, 1);
    assert_eq!(Cache::at(&there).import(&bundle).unwrap().kernels, 1);
    let start = |report: &str| report.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
    for mode in ["rw", "ro", "deny"] {
        let mut child = child("");
        child.env(NVRTC_PATH, "/nonexistent/libnvrtc.so.13").env(CACHE_DIR, &there).env(CACHE_MODE, mode);
        let found = report(child.output().unwrap());
        assert_eq!(start(&found), start(&compiled), "{mode}");
        assert!(found.contains(" disk unsaved=0 directory=true"), "{mode}: {found}");
    }
    let off = report(child("").env(CACHE_DIR, &there).env(CACHE_MODE, "off").output().unwrap());
    assert!(off.contains(" compiled unsaved=0 directory=false"), "{off}");
    let empty = directory.path().join("empty");
    let denied = report(child("").env(CACHE_DIR, &empty).env(CACHE_MODE, "deny").output().unwrap());
    assert!(denied.starts_with("Denied("), "{denied}");
    assert!(!empty.exists());
    let typo = report(child("").env(CACHE_DIR, &there).env(CACHE_MODE, "denny").output().unwrap());
    assert!(typo.starts_with("Mode("), "{typo}");
}

/// Asked for the same once more, a product does not even plan.
#[test]
fn the_second_request_is_answered_from_memory() {
    if nvrtc().is_none() {
        return;
    }
    use postlude::prelude::*;
    let epilogue = postlude::build::recipes::bias_activation(F16, F16, |z| z.relu()).unwrap();
    let gemm = Gemm::new(F16, TN, &epilogue);
    let cache = Cache::in_memory();
    let compile = |gemm: &Gemm, shape: Shape| gemm.compile(&cache, Target::SM_80, 108, shape).unwrap();
    let shape = Shape::new(256, 256, 64);
    let (first, second) = (compile(&gemm, shape), compile(&gemm, shape));
    assert_eq!((first.cubin.info.origin, second.cubin.info.origin), (Origin::Compiled, Origin::Memory));
    assert!(std::sync::Arc::ptr_eq(&first.plan, &second.plan) && first.source == second.source);
    assert_eq!(first.cubin.bytes, second.cubin.bytes);
    // Another product of the same meaning, and another shape, which needs its own plan.
    let rebuilt = Gemm::new(F16, TN, &postlude::build::recipes::bias_activation(F16, F16, |z| z.relu()).unwrap());
    assert!(std::sync::Arc::ptr_eq(&first.plan, &compile(&rebuilt, shape).plan));
    let larger = compile(&gemm, Shape::new(512, 256, 64));
    assert!(!std::sync::Arc::ptr_eq(&first.plan, &larger.plan));
    let slow = compile(&gemm.clone().mainloop(postlude::plan::Mainloop::Simt), shape);
    assert_ne!(slow.source, first.source);
}

/// A source that takes seconds: each of many remainders is a separate loop.
fn long_source() -> Source {
    let lines: String = (0..1200).map(|i| format!("x[{i}] = fmodf(x[{i}], x[n + {i}]);\n")).collect();
    kernel(&lines)
}

#[test]
fn a_compilation_that_is_called_off_ends_soon() {
    let Some(compiler) = nvrtc() else { return };
    let stop = std::time::Duration::from_millis(300);
    let config = Config::new().mode(Mode::Off).watch(move |progress| match progress.elapsed < stop {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    let cache = Cache::open("", config);
    match cache.compile(&long_source(), &Target::SM_90A, &Options::new()) {
        Err(JitError::Cancelled { elapsed, .. }) => assert!(elapsed >= stop, "{elapsed:?}"),
        // Before 13.0 there is nothing to interrupt it with.
        Ok(_) => assert!(compiler.identity.starts_with("NVRTC 12."), "{compiler:?}"),
        Err(error) => panic!("{error}"),
    }
    // The compiler is as good as before.
    assert!(cache.stats().held <= 1);
    assert!(compile(&simple(), Target::SM_90A).is_ok());
}
