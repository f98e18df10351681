//! Every kind of fault is a warning once in the life of a cache, and hides no other.

use super::super::fault::CacheFault;
use super::super::layout::LOCKS;
use super::super::{Config, Mode, sweep};
use super::*;
use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;
use tracing::Level;

/// A fault, a cache that is going to meet it, and how it does so for the nth time.
type Case = (CacheFault, fn(&Path) -> Cache, fn(&Cache, u8));

const TIMES: u8 = 5;

const CASES: [Case; 14] = [
    (CacheFault::Unreadable, open, |cache, nth| {
        let key = CacheKey::for_test(nth);
        fs::create_dir_all(cache.store().unwrap().note_path(&key)).unwrap();
        assert_eq!(cache.note(&key), None);
    }),
    (CacheFault::Untrusted, filled, |cache, nth| {
        fs::set_permissions(file(cache, nth), fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(origin(cache, &text(nth)), Origin::Compiled);
    }),
    (CacheFault::InTheWay, open, |cache, nth| {
        fs::create_dir_all(file(cache, nth)).unwrap();
        let key = key(cache, nth);
        assert!(cache.store().unwrap().write(&key, SM, &made(&key, "k", SM, "C 1")));
    }),
    (CacheFault::Damaged, filled, |cache, nth| {
        fs::write(file(cache, nth), "damaged").unwrap();
        assert_eq!(origin(cache, &text(nth)), Origin::Compiled);
    }),
    (CacheFault::Unwritable, |root| instead(root, "sm_90a"), compiled),
    (CacheFault::Unlocked, |root| instead(root, LOCKS), compiled),
    (
        CacheFault::Slow,
        |root| with(root, Config::new().patience(Duration::from_millis(2)), compiler("C 1")),
        |cache, nth| {
            let folder = cache.store().unwrap().folder(LOCKS);
            fs::create_dir_all(&folder).unwrap();
            let held = File::create(folder.join(&key(cache, nth).to_string()[..3])).unwrap();
            held.lock().unwrap();
            compiled(cache, nth);
        },
    ),
    (
        CacheFault::Unswept,
        |root| {
            fs::create_dir_all(root.join("v1/sweep")).unwrap();
            File::open(root.join("v1/sweep")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            open(root)
        },
        compiled,
    ),
    (CacheFault::Crowded, open, |cache, _| {
        let unsupported = fs::TryLockError::Error(std::io::ErrorKind::Unsupported.into());
        assert!(sweep::may_sweep(cache.store().unwrap(), Path::new("sweep"), Err(unsupported)));
    }),
    (CacheFault::Unremovable, open, |cache, nth| {
        fs::create_dir_all(file(cache, nth)).unwrap();
        cache.store().unwrap().remove(&key(cache, nth), SM);
    }),
    (
        CacheFault::NoCompiler,
        |root| filled(root).compiling_with(absent()),
        |cache, nth| {
            assert_eq!(origin(cache, &text(nth)), Origin::Disk);
        },
    ),
    (CacheFault::Refused, filled, |cache, nth| assert_eq!(replaced(cache, nth).info.origin, Origin::Compiled)),
    (
        CacheFault::Older,
        |root| {
            drop((filled_by(root, "C 1"), filled_by(root, "C 2")));
            with(root, Config::new().mode(Mode::Deny), absent())
        },
        |cache, nth| assert_eq!(replaced(cache, nth).info.compiler, "C 1"),
    ),
    (CacheFault::Unmeasured, open, |cache, nth| drop(compile(cache, &format!("unmeasured {nth}")).unwrap())),
];

fn with(root: &Path, config: Config, compiler: Arc<StandIn>) -> Cache {
    Cache::open(root, config).compiling_with(compiler)
}

fn open(root: &Path) -> Cache {
    with(root, Config::new(), compiler("C 1"))
}

fn text(nth: u8) -> String {
    format!("text {nth}")
}

fn filled_by(root: &Path, identity: &'static str) -> Cache {
    let fill = |cache: Cache| (0..TIMES).for_each(|nth| drop(compile(&cache, &text(nth)).unwrap()));
    let fresh = || with(root, Config::new(), compiler(identity));
    fill(fresh());
    fresh()
}

/// A cache that has nothing in memory, and everything on disk.
fn filled(root: &Path) -> Cache {
    filled_by(root, "C 1")
}

/// A cache with a file in the place of a folder.
fn instead(root: &Path, folder: &str) -> Cache {
    fs::create_dir_all(root.join("v1")).unwrap();
    fs::write(root.join("v1").join(folder), "").unwrap();
    open(root)
}

fn key(cache: &Cache, nth: u8) -> CacheKey {
    cache.key(&Source::new(text(nth), "k"), &SM, &Options::new()).unwrap()
}

fn file(cache: &Cache, nth: u8) -> PathBuf {
    cache.store().unwrap().path(&key(cache, nth), SM)
}

fn compiled(cache: &Cache, nth: u8) {
    assert_eq!(origin(cache, &text(nth)), Origin::Compiled);
}

/// A stand-in for a kernel from disk that the driver rejected.
fn replaced(cache: &Cache, nth: u8) -> Arc<Cubin> {
    let refused = compile(cache, &text(nth)).unwrap();
    cache.replace(&refused, &Source::new(text(nth), "k"), &SM, &Options::new()).unwrap().unwrap()
}

#[test]
fn each_is_said_once() {
    for (fault, prepare, meet) in CASES {
        let directory = tempfile::tempdir().unwrap();
        let cache = prepare(&directory.path().join("cache"));
        let ((), events) = heard(Level::DEBUG, || (0..TIMES).for_each(|nth| meet(&cache, nth)));
        let about: Vec<_> = events.iter().filter(|event| event.text().contains(&fault.to_string())).collect();
        assert_eq!(about.len(), usize::from(TIMES), "{fault}: {events:#?}");
        let aloud: Vec<_> = events.iter().filter(|event| event.level == Level::WARN).map(|event| event.text()).collect();
        assert_eq!(aloud.len(), 1, "{fault}: {aloud:#?}");
        assert!(aloud[0].contains(&fault.to_string()) && aloud[0].contains("further cases are debug events"), "{aloud:?}");
    }
}

#[test]
fn no_kind_hides_another() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    drop(instead(&root, LOCKS));
    let cache = instead(&root, "sm_90a");
    let (_, heard) = warnings(|| (0..TIMES).for_each(|nth| compiled(&cache, nth)));
    assert_eq!(heard.len(), 2, "{heard:#?}");
    assert!(
        heard[0].contains(&CacheFault::Unlocked.to_string()) && heard[1].contains(&CacheFault::Unwritable.to_string()),
        "{heard:#?}"
    );
    let (unreadable, _, meet) = CASES[0];
    let (_, heard) = warnings(|| (0..TIMES).for_each(|nth| meet(&cache, nth)));
    assert!(heard.len() == 1 && heard[0].contains(&unreadable.to_string()), "{heard:#?}");
    // Another cache of the same process warns again.
    let (_, heard) = warnings(|| compiled(&open(&root), 0));
    assert_eq!(heard.len(), 2, "{heard:#?}");
}

#[test]
fn what_is_only_read_is_doubted_aloud_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    drop(filled(&root));
    files(&root, ".kernel").iter().for_each(|kernel| fs::write(kernel, "damaged").unwrap());
    let cache = with(&root, Config::new().mode(Mode::ReadOnly), compiler("C 1"));
    let (_, heard) = warnings(|| (0..TIMES).for_each(|nth| compiled(&cache, nth)));
    assert!(heard.len() == 1 && heard[0].contains(&CacheFault::Damaged.to_string()), "{heard:#?}");
    assert_eq!(files(&root, ".kernel").len(), usize::from(TIMES));
}
