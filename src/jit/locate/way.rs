//! Everything that the search for a compiler library depends on, collected without loading anything.
//!
//! For a known file or directory these are its libraries. The loader's own search depends on `LD_LIBRARY_PATH`, on its
//! index (`ld.so.cache`), and on the program and the library that ask. The key contains these, so a search with another
//! result has another key. Two changes stay unseen: a library in a system directory that is missing from the index, and
//! one in the run path of this program. A process then uses kernels of the previous compiler, until it compiles.

use super::candidates::{SearchPlace, libraries_in, mapped_file};
use crate::jit::CacheKey;
use crate::jit::library::{self, Stamp};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The loader's index of the system's libraries.
const INDEX: &str = "/etc/ld.so.cache";

/// The directories that the loader searches first.
const LOADER_PATH: &str = "LD_LIBRARY_PATH";

/// The key of a search.
pub(super) fn way_through(places: &[SearchPlace], variable: impl Fn(&str) -> Option<OsString>) -> CacheKey {
    let mut seen = Vec::new();
    if places.iter().any(|place| matches!(place, SearchPlace::Loaded(_) | SearchPlace::Name(_))) {
        seen.extend(of_the_process());
        seen.push(stamped(Path::new(INDEX)));
        let path = variable(LOADER_PATH).unwrap_or_default();
        seen.push(format!("{LOADER_PATH}={}", path.display()));
        for directory in std::env::split_paths(&path) {
            seen.extend(libraries_in(&directory).iter().map(|library| stamped(library)));
        }
    }
    for place in places {
        seen.push(format!("{place:?}"));
        let candidates = place.candidates().unwrap_or_default();
        seen.extend(candidates.iter().filter_map(|candidate| candidate.file()).map(stamped));
    }
    library::way(&seen)
}

fn stamped(path: &Path) -> String {
    format!("{} {:?}", path.display(), Stamp::of(path))
}

/// The program and the file of this code, which may both direct the loader, and the loaded libraries.
fn of_the_process() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let own = mapped_file(&maps, of_the_process as fn() -> Vec<String> as usize);
    let mut files: Vec<PathBuf> = std::env::current_exe().ok().into_iter().chain(own).collect();
    files.extend(loaded(&maps));
    files.iter().map(|file| file.display().to_string()).collect()
}

/// The mapped files with NVRTC's name.
fn loaded(maps: &str) -> Vec<PathBuf> {
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let is_nvrtc = |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc.so"));
    let mut found: Vec<_> = files.filter(is_nvrtc).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::super::candidates::places;
    use super::*;
    use std::fs;

    /// The key of a search in this environment.
    fn of(pairs: &[(&str, &Path)]) -> CacheKey {
        let variable = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        way_through(&places(variable, None), variable)
    }

    #[test]
    fn whatever_may_turn_the_search_turns_the_key() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let touch = |path: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), path).unwrap();
        };
        let wheel = "env/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13";
        touch(wheel);
        let (env, cuda, loader) = (at("env"), at("cuda"), at("loader"));
        let pairs = [("VIRTUAL_ENV", env.as_path()), ("CUDA_HOME", &cuda), (LOADER_PATH, &loader)];
        let first = of(&pairs);
        assert_eq!(of(&pairs), first, "the same environment gives the same key");
        let mut seen = vec![first];
        let mut turned = |what: &str, now: CacheKey| {
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        };
        turned("without an environment", of(&pairs[1..]));
        turned("without the loader's path", of(&pairs[..2]));
        for path in [
            "loader/libnvrtc.so.12",
            "cuda/lib64/libnvrtc.so.13",
            "env/lib/python3.12/site-packages/nvidia/cu14/lib/libnvrtc.so.14",
        ] {
            touch(path);
            turned(path, of(&pairs));
        }
        let before = of(&pairs);
        touch("loader/libcublas.so.13");
        assert_eq!(of(&pairs), before, "another library changes nothing");
        fs::write(at(wheel), "replaced").unwrap();
        turned("a library was replaced", of(&pairs));
        let given = at(wheel);
        turned("a file was named", of(&[(super::super::NVRTC_PATH, &given)]));
    }

    #[test]
    fn a_named_file_is_all_that_counts() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let alone = of(&[(super::super::NVRTC_PATH, file.path())]);
        let elsewhere = [(super::super::NVRTC_PATH, file.path()), (LOADER_PATH, Path::new("/x")), ("CUDA_HOME", Path::new("/y"))];
        assert_eq!(of(&elsewhere), alone);
    }

    #[test]
    fn what_is_loaded_is_seen() {
        let maps = "7f00-8000 r-xp 00000000 08:01 42                 /opt/a b/libnvrtc.so.13\n\
            8000-9000 r-xp 00000000 08:01 42                 /opt/a b/libnvrtc.so.13\n\
            9000-a000 r-xp 00000000 08:01 43                 /opt/libnvrtc-builtins.so.13.0\na000-b000 rw-p 00000000 00:00 0 \n";
        assert_eq!(loaded(maps), [PathBuf::from("/opt/a b/libnvrtc.so.13")]);
        assert!(of_the_process().len() >= 2, "this program is mapped, and so is its code");
    }
}
