//! Separate processes: this test program, started again in one of several roles.

use super::super::{Config, Mode};
use super::*;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

pub const ROLE: &str = "POSTLUDE_TEST_ROLE";
pub const ROOT: &str = "POSTLUDE_TEST_ROOT";
/// Milliseconds to wait for another process.
pub const PATIENCE: &str = "POSTLUDE_TEST_PATIENCE";

/// A process that plays `role` with the cache in `root`.
pub fn child(role: &str, root: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    dress(&mut command, role, root);
    command
}

/// The same, from a shell that has prepared the environment.
pub fn child_of_shell(prepare: &str, role: &str, root: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{prepare} exec \"$0\" \"$@\"")]).arg(std::env::current_exe().unwrap());
    dress(&mut command, role, root);
    command
}

fn dress(command: &mut Command, role: &str, root: &Path) {
    command.args(["--exact", "jit::tests::children::in_another_process", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(ROOT, root).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// The report of a child.
pub fn report(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.lines().find_map(|line| line.split_once("report: ")).expect(&text).1.to_owned()
}

/// Files beside the cache, by which the processes coordinate.
pub fn beside(root: &Path, name: &str) -> PathBuf {
    root.with_extension(name)
}

fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "{path:?} never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Not a test by itself: the body of the other processes.
#[test]
fn in_another_process() {
    let (Ok(role), Some(root)) = (std::env::var(ROLE), std::env::var_os(ROOT).map(PathBuf::from)) else { return };
    let outcome = match role.as_str() {
        "compile" => compile_once(&root),
        "write for ever" => write_for_ever(&root),
        "read" => read_until_told(&root),
        "key" => Cache::in_memory()
            .compiling_with(compiler("C 1"))
            .key(&Source::new("text", "k"), &SM, &Options::new())
            .unwrap()
            .to_string(),
        "everything" => everything(&root),
        "recall" => recall_once(&root),
        "plant" => plant(&root),
        "look up" => look_up(&root),
        "refused" => refused(&root),
        "find" => super::super::compiler().map_or_else(|error| format!("{error:?}"), |found| found.identity),
        other => panic!("{other}"),
    };
    println!("\nreport: {outcome}");
}

fn racing(root: &Path) -> Cache {
    let patience = std::env::var(PATIENCE).map_or(30_000, |text| text.parse().unwrap());
    let takes = Duration::from_millis(150);
    let stand_in = StandIn { identity: "C 1", takes, tally: Some(beside(root, "tally")), ..StandIn::default() };
    Cache::open(root, Config::new().patience(Duration::from_millis(patience))).compiling_with(Arc::new(stand_in))
}

fn compile_once(root: &Path) -> String {
    File::create(beside(root, &format!("ready-{}", std::process::id()))).unwrap();
    wait_for(&beside(root, "start"));
    let cache = racing(root);
    let origin = origin(&cache, "text");
    format!("{origin} awaited={}", cache.stats().awaited)
}

/// The same with a compiler whose identity is known without asking.
fn recall_once(root: &Path) -> String {
    File::create(beside(root, &format!("ready-{}", std::process::id()))).unwrap();
    wait_for(&beside(root, "start"));
    let stand_in = Arc::new(StandIn { identity: "C 1", library: Some(beside(root, "library")), ..StandIn::default() });
    let (found, heard) = warnings(|| origin(&Cache::at(root).compiling_with(stand_in.clone()), "text"));
    format!("{found} asked={} warnings={}", stand_in.asked.load(SeqCst), heard.len())
}

/// A kernel of this environment's NVRTC, and a note of its identity.
fn plant(root: &Path) -> String {
    let (cache, build) = (Cache::at(root), Build { identity: "NVRTC 99".into(), common: vec!["--common".into()] });
    let flags = Options::new().flags(SM, &build.common).unwrap();
    let key = CacheKey::new(&build.identity, SM, &flags, &Source::new("text", "k"));
    let (store, file) = (cache.store().unwrap(), std::env::var_os(super::super::NVRTC_PATH).unwrap());
    store.write(&key, SM, &made(&key, "k", SM, &build.identity));
    store.remember(&Traced { way: locate::way().unwrap(), stamp: Stamp::of(Path::new(&file)).unwrap() }, &build);
    key.to_string()
}

/// A kernel by this environment's NVRTC.
fn look_up(root: &Path) -> String {
    let (found, heard) = warnings(|| compile(&Cache::at(root), "text"));
    let found = found.map_or_else(|error| format!("{error:?}"), |cubin| format!("{} {}", cubin.info.origin, cubin.info.key));
    format!("{found} warnings={}", heard.len())
}

/// Large entries under four keys, over and over. The parent ends it.
fn write_for_ever(root: &Path) -> String {
    let store = super::super::store::Store::open(root, true).unwrap();
    let entries = [1, 2, 3, 4].map(large);
    File::create(beside(root, "writing")).unwrap();
    loop {
        for (key, cubin) in &entries {
            assert!(store.write(key, SM, cubin));
        }
    }
}

/// A kernel that takes long to write.
pub fn large(byte: u8) -> (CacheKey, Cubin) {
    let key = CacheKey::for_test(byte);
    let mut cubin = made(&key, "k", SM, "C 1");
    cubin.bytes = cubin.bytes.repeat(50).into();
    (key, cubin)
}

/// Looks kernels up at random, and counts the outcomes.
fn read_until_told(root: &Path) -> String {
    let store = super::super::store::Store::open(root, true).unwrap();
    let (mut hits, mut misses, mut random) = (0u64, 0u64, u64::from(std::process::id()) | 1);
    File::create(beside(root, &format!("ready-{}", std::process::id()))).unwrap();
    loop {
        // Looked at before the last round, so that one comes after the sweep.
        let last = beside(root, "stop").exists();
        for _ in 0..100 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = numbered(random % ENTRIES);
            let (found, damaged) = store.read(&key, SM);
            assert!(!damaged, "{key}");
            match found {
                Some(cubin) => {
                    assert_eq!(*cubin.bytes, *key.as_bytes());
                    hits += 1;
                }
                None => misses += 1,
            }
        }
        if last {
            break;
        }
    }
    format!("{hits} {misses}")
}

/// The number of entries to be swept.
pub const ENTRIES: u64 = 10_000;

pub fn numbered(number: u64) -> CacheKey {
    CacheKey::of_note(&["entry", &number.to_string()])
}

/// All of the environment's cache: compile, look up, list.
fn everything(_: &Path) -> String {
    let (cache, heard) = warnings(|| {
        let cache = Cache::of_this_environment().compiling_with(compiler("C 1"));
        for text in ["a", "b", "a", "c"] {
            compile(&cache, text).unwrap();
        }
        cache.keep_note(&CacheKey::of_note(&["x"]), b"note");
        cache.clear();
        cache
    });
    let stats = cache.stats();
    assert!(cache.mode() == Mode::ReadWrite);
    let directory = cache.directory().is_ok();
    format!(
        "compiles={} disk={} unsaved={} directory={directory} warnings={}",
        stats.compiles,
        stats.disk_hits,
        stats.unsaved,
        heard.len()
    )
}

/// Caches without listeners, in a directory that is not used.
fn refused(root: &Path) -> String {
    let caches = [(); 3].map(|()| Cache::at(root).compiling_with(compiler("C 1")));
    caches.iter().for_each(|cache| drop(compile(cache, "text").unwrap()));
    caches[0].directory().err().unwrap_or_default().to_owned()
}
