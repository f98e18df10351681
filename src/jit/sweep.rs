//! Limits the size of the directory: removes the least recently used files.
//!
//! A sweep covers kernels, notes, leftovers of dead writers, and unused versions of the layout. Readers are not
//! disturbed: a process that has opened a file reads it to its end, and one that comes too late compiles.

use super::config::Limits;
use super::fault::CacheFault;
use super::kind::is_entry;
use super::layout::{COMPILERS, Found, LAYOUT, LOCKS, is_temporary};
use super::store::Store;
use std::fs::{self, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The interval between automatic sweeps of a directory.
const EVERY: Duration = Duration::from_secs(3600);

/// The age at which a file under construction has lost its writer.
const ORPHANED: Duration = Duration::from_secs(24 * 3600);

/// The age at which a version of the layout is abandoned.
const FORGOTTEN: Duration = Duration::from_secs(30 * 24 * 3600);

/// The removed and the remaining files of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Kernels and notes removed as least recently used.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Removed leftovers of dead writers and of old versions of the layout.
    pub leftovers: u64,
    /// Remaining kernels and notes.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// The file with the stamp of the last sweep, in every version of the layout.
const MARK: &str = "sweep";

/// Kernels, notes, and files under construction.
pub(super) fn census(store: &Store) -> (Vec<Found>, Vec<Found>) {
    let folders = store.folders().into_iter().filter(|folder| folder != LOCKS);
    let files = folders.flat_map(|folder| {
        let fixed = folder == COMPILERS;
        let found = store.found_below(&folder).into_iter();
        found.filter(move |found| is_temporary(&found.path) || (!fixed && is_entry(&found.path)))
    });
    files.partition(|found| !is_temporary(&found.path))
}

/// Sweeps, unless another process did within the hour or is sweeping.
pub(super) fn if_due(store: &Store, limits: Limits) -> Option<Swept> {
    let path = store.folder(MARK);
    let now = SystemTime::now();
    let last = store.look(&path);
    let fresh = last.is_err();
    if !store.writable() || !due(last, now) {
        return None;
    }
    let mark = store.hold(&path).inspect_err(|error| store.report_error(CacheFault::Unswept, &path, error)).ok()?;
    if !may_sweep(store, &path, mark.try_lock()) || !is_still_due(&mark, fresh, now) {
        return None;
    }
    if let Err(error) = mark.set_modified(now) {
        store.report(CacheFault::Unswept, &path, &error);
    }
    let swept = sweep(store, limits, now);
    tracing::debug!(?swept, "the kernel cache was swept");
    Some(swept)
}

/// Whether a mark is old enough. A stamp in the future comes from a clock that was set back.
fn due(mark: io::Result<fs::Metadata>, now: SystemTime) -> bool {
    let stamp = mark.and_then(|metadata| metadata.modified());
    stamp.map_or(true, |at| now.duration_since(at).map_or(true, |age| age >= EVERY))
}

/// Whether a sweep is still due: the mark is new, or no other process has stamped it before it became ours.
fn is_still_due(mark: &fs::File, fresh: bool, now: SystemTime) -> bool {
    fresh || due(mark.metadata(), now)
}

/// Whether no other process is sweeping. On a file system without locks only the stamp keeps most of the others away.
/// Without any sweep the directory would grow forever.
pub(super) fn may_sweep(store: &Store, path: &Path, lock: Result<(), TryLockError>) -> bool {
    match lock {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => {
            store.report(CacheFault::Crowded, path, &error);
            true
        }
    }
}

/// Removes the least recently used files until 70 % of the limits are left, if they are exceeded, and all leftovers.
pub(super) fn sweep(store: &Store, limits: Limits, now: SystemTime) -> Swept {
    let mut swept = Swept::default();
    let (mut entries, temporary) = census(store);
    let age = |stamp: SystemTime| now.duration_since(stamp).unwrap_or_default();
    for file in temporary.iter().filter(|file| age(file.used) >= ORPHANED) {
        swept.leftovers += u64::from(store.unlink(&file.path).is_ok());
    }
    for file in entries.iter_mut().filter(|file| file.used > now) {
        // The stamp comes from a clock that was set back since. From now on the file ages like any other.
        let _ = store.open_file(&file.path).and_then(|file| file.set_modified(now));
        file.used = now;
    }
    if store.is_trusted() {
        swept.leftovers += forgotten_versions(store.root(), age);
    }
    (swept.kept, swept.kept_bytes) = (entries.len() as u64, entries.iter().map(|file| file.bytes).sum());
    if swept.kept <= limits.files && swept.kept_bytes <= limits.bytes {
        return swept;
    }
    entries.sort_by_key(|file| file.used);
    let share = |limit: u64| limit / 10 * 7 + limit % 10 * 7 / 10;
    for file in entries {
        if swept.kept <= share(limits.files) && swept.kept_bytes <= share(limits.bytes) {
            break;
        }
        match store.unlink(&file.path) {
            Ok(()) => {
                swept.removed += 1;
                swept.removed_bytes += file.bytes;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                store.report_error(CacheFault::Unremovable, &file.path, &error);
                continue;
            }
        }
        swept.kept -= 1;
        swept.kept_bytes -= file.bytes;
    }
    swept
}

/// Removes the folders of other versions of the layout that contain nothing young. A folder that was never swept does
/// not belong to the cache, whatever its name.
fn forgotten_versions(root: &Path, age: impl Fn(SystemTime) -> Duration) -> u64 {
    let is_version =
        |name: &str| name.strip_prefix('v').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    let mut removed = 0;
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let other = entry.file_name().to_str().is_some_and(|name| name != LAYOUT && is_version(name));
        let ours = || fs::symlink_metadata(entry.path().join(MARK)).is_ok_and(|mark| mark.is_file());
        if !other || !entry.file_type().is_ok_and(|kind| kind.is_dir()) || !ours() {
            continue;
        }
        let (mut files, mut young) = (0, false);
        walk(&entry.path(), 6, &mut |seen| {
            files += u64::from(seen.as_ref().is_ok_and(fs::Metadata::is_file));
            young |= seen.and_then(|metadata| metadata.modified()).map_or(true, |stamp| age(stamp) < FORGOTTEN);
        });
        if !young && fs::remove_dir_all(entry.path()).is_ok() {
            removed += files;
        }
    }
    removed
}

/// Everything in a folder and the folder itself, down to a depth. A deeper level does not belong to the cache, and is
/// an error. So is anything unreadable.
fn walk(path: &Path, depth: usize, see: &mut impl FnMut(io::Result<fs::Metadata>)) {
    let metadata = fs::symlink_metadata(path);
    let is_folder = metadata.as_ref().is_ok_and(fs::Metadata::is_dir);
    see(metadata);
    if !is_folder {
        return;
    }
    let entries = fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    match entries {
        Ok(entries) if depth > 0 => entries.iter().for_each(|entry| walk(entry, depth - 1, see)),
        Ok(entries) if entries.is_empty() => {}
        Ok(_) => see(Err(io::ErrorKind::Unsupported.into())),
        Err(error) => see(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::cubin;
    use super::super::key::CacheKey;
    use super::*;
    use crate::target::Target;
    use std::fs::File;
    use std::path::PathBuf;

    const SM: Target = Target::SM_90A;
    const HOUR: Duration = Duration::from_secs(3600);

    fn store_in(directory: &Path) -> Store {
        Store::open(&directory.join("cache"), true).unwrap()
    }

    fn stamp(path: &Path, at: SystemTime) {
        File::open(path).unwrap().set_modified(at).unwrap();
    }

    /// A file of one letter.
    fn file(path: PathBuf, at: SystemTime) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "x").unwrap();
        stamp(&path, at);
        path
    }

    /// Ten kernels, the first used longest ago, and their common size.
    fn fill(store: &Store, now: SystemTime) -> u64 {
        for index in 0..10 {
            let key = CacheKey::for_test(index);
            assert!(store.write(&key, SM, &cubin(&key, b"image")));
            stamp(&store.path(&key, SM), now - HOUR * (20 - u32::from(index)));
        }
        fs::metadata(store.path(&CacheKey::for_test(0), SM)).unwrap().len()
    }

    fn left(store: &Store) -> Vec<u8> {
        (0..10).filter(|index| store.path(&CacheKey::for_test(*index), SM).exists()).collect()
    }

    #[test]
    fn the_least_recently_used_go() {
        let now = SystemTime::now();
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let size = fill(&store, now);
        let limits = Limits { bytes: 10 * size, files: 10 };
        let swept = sweep(&store, limits, now);
        assert_eq!(swept, Swept { kept: 10, kept_bytes: 10 * size, ..Swept::default() }, "within the limits");
        stamp(&store.path(&CacheKey::for_test(0), SM), now);
        let swept = sweep(&store, Limits { files: 9, ..limits }, now);
        assert_eq!((swept.removed, swept.removed_bytes, swept.kept), (4, 4 * size, 6));
        assert_eq!(left(&store), [0, 5, 6, 7, 8, 9], "what was used again stays");
        let swept = sweep(&store, Limits { bytes: 4 * size, ..limits }, now);
        assert_eq!((swept.removed, swept.kept_bytes, left(&store)), (4, 2 * size, vec![0, 9]));
        assert_eq!(sweep(&store, Limits { bytes: 0, files: 0 }, now).kept, 0);
    }

    #[test]
    fn stamps_of_the_future_grow_old() {
        let now = SystemTime::now();
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        fill(&store, now);
        let path = store.path(&CacheKey::for_test(3), SM);
        stamp(&path, now + 24 * HOUR);
        sweep(&store, Limits::default(), now);
        assert!(fs::metadata(&path).unwrap().modified().unwrap() <= now);
        let mark = store.folder("sweep");
        fs::write(&mark, "").unwrap();
        stamp(&mark, now + 24 * HOUR);
        if_due(&store, Limits { files: 5, ..Limits::default() });
        assert_eq!(left(&store).len(), 3, "a sweep of the future was none");
    }

    #[test]
    fn once_an_hour_and_by_one() {
        let now = SystemTime::now();
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        fill(&store, now);
        let none = Limits { files: 0, ..Limits::default() };
        let mark = store.folder("sweep");
        if_due(&store, Limits::default());
        assert!(mark.exists());
        if_due(&store, none);
        assert_eq!(left(&store).len(), 10, "just swept");
        stamp(&mark, now - 2 * HOUR);
        let other = File::options().write(true).open(&mark).unwrap();
        other.lock().unwrap();
        if_due(&store, none);
        assert_eq!(left(&store).len(), 10, "somebody is at it");
        other.unlock().unwrap();
        if_due(&Store::open(store.root(), false).unwrap(), none);
        assert_eq!(left(&store).len(), 10, "only read");
        if_due(&store, none);
        assert_eq!(left(&store).len(), 0);
    }

    #[test]
    fn whoever_had_to_wait_does_not_sweep_again() {
        let now = SystemTime::now();
        let directory = tempfile::tempdir().unwrap();
        let mark = File::create(directory.path().join("sweep")).unwrap();
        let at = |stamp, fresh| {
            mark.set_modified(stamp).unwrap();
            is_still_due(&mark, fresh, now)
        };
        assert!(!at(now, false), "another was faster");
        assert!(at(now, true) && at(now - 2 * HOUR, false) && at(now + HOUR, false));
        assert!(at(now - HOUR, false) && !at(now - HOUR + Duration::from_secs(1), false));
    }

    #[test]
    fn ages_are_kept_to_the_second() {
        let now = SystemTime::now();
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let (day, second) = (24 * HOUR, Duration::from_secs(1));
        let shard = store.path(&CacheKey::for_test(0), SM).parent().unwrap().to_path_buf();
        let written = [day, day - second].map(|age| file(shard.join(format!(".new-{}", age.as_secs())), now - age));
        let versions = [("v2", 30 * day), ("v3", 30 * day - second)].map(|(version, age)| {
            let mark = file(store.root().join(version).join(MARK), now - age);
            stamp(mark.parent().unwrap(), now - age);
            mark
        });
        assert_eq!(sweep(&store, Limits::default(), now).leftovers, 2);
        assert_eq!(written.map(|path| path.exists()), [false, true]);
        assert_eq!(versions.map(|path| path.exists()), [false, true]);
    }

    #[test]
    fn without_locks_it_is_swept_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let path = store.folder("sweep");
        let unsupported = || Err(TryLockError::Error(io::ErrorKind::Unsupported.into()));
        assert!(may_sweep(&store, &path, Ok(())));
        assert!(!may_sweep(&store, &path, Err(TryLockError::WouldBlock)), "somebody is at it");
        assert!(may_sweep(&store, &path, unsupported()) && may_sweep(&store, &path, unsupported()));
    }

    #[test]
    fn leftovers_go_and_other_versions_stay_while_they_are_used() {
        let now = SystemTime::now();
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        fill(&store, now);
        let shard = store.path(&CacheKey::for_test(0), SM).parent().unwrap().to_path_buf();
        let day = 24 * HOUR;
        let dead = file(shard.join(".new-dead"), now - 2 * day);
        let alive = file(shard.join(".new-alive"), now - HOUR);
        let used = file(store.root().join("v2/sm_90a/ab/x.kernel"), now - day);
        file(store.root().join("v2/sweep"), now - day);
        let forgotten = file(store.root().join("v0/sm_90a/ab/x.kernel"), now - 40 * day);
        file(store.root().join("v0/sweep"), now - 40 * day);
        let foreign = file(store.root().join("vault/x"), now - 400 * day);
        // Somebody else's folder may have a file of any name.
        file(store.root().join("vault/sweep"), now - 400 * day);
        let age = |folders: &[&str]| folders.iter().for_each(|folder| stamp(&store.root().join(folder), now - 40 * day));
        age(&["v0/sm_90a/ab", "v0/sm_90a", "v0", "vault"]);
        let swept = sweep(&store, Limits::default(), now);
        assert_eq!((swept.leftovers, swept.kept), (3, 10));
        assert_eq!([&dead, &alive, &used, &forgotten, &foreign].map(|path| path.exists()), [false, true, true, false, true]);
        assert!(!store.root().join("v0").exists());
    }

    #[test]
    fn what_is_not_of_the_cache_stays() {
        let now = SystemTime::now();
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        fill(&store, now);
        let old = now - 24 * HOUR * 40;
        let file = |path: &str| file(store.root().join(path), old);
        let key = "ab".repeat(32);
        let mut theirs = ["v3/weights/w.bin", "v1/train/cats/photo.png", "v1/train/ab/x.kernel"].map(file).to_vec();
        theirs.push(file(&format!("v1/sm_90a/ab/{key}.kernel.bak")));
        // A version of the layout, but for something young that lies deeper than anything of it.
        theirs.extend(["v2/sweep", "v2/a/b/c/d/e/f/g/x"].map(file));
        stamp(&theirs[5], now);
        let folders = ["v3/weights", "v3", "v2/a/b/c/d/e/f", "v2/a/b/c/d/e", "v2/a/b/c/d", "v2/a/b/c", "v2/a/b", "v2/a", "v2"];
        folders.iter().for_each(|folder| stamp(&store.root().join(folder), old));
        let swept = sweep(&store, Limits { bytes: 0, files: 0 }, now);
        assert_eq!((swept.removed, swept.kept, swept.leftovers), (10, 0, 0));
        assert!(theirs.iter().all(|path| path.exists()), "{theirs:?}");
    }
}
