//! Finding NVRTC.
//!
//! The library is often on the machine although the loader does not find it: pip puts it into the site-packages of an
//! environment, conda into the prefix, the toolkit into `/usr/local/cuda`. The search visits, in this order:
//!
//! 1. `POSTLUDE_NVRTC_PATH`, a file or a directory; if it is set, nothing else is tried;
//! 2. a library the process has loaded already;
//! 3. the loader's own path;
//! 4. `$CUDA_HOME` and `$CUDA_PATH`, `/usr/local/cuda`, `/opt/cuda`;
//! 5. the wheels in the environment that [`search_environment`] names, in `$VIRTUAL_ENV` and in `$CONDA_PREFIX`, the
//!    libraries of `$CONDA_PREFIX`, the wheels in `~/.local`.
//!
//! A file is examined before the loader maps it, see [`elf`](super::elf). A library counts as found if it works: it has
//! all the functions, is new enough and has compiled an empty program. Some wheels do not find their own
//! `libnvrtc-builtins`; it is loaded for them. [`NotFound`] lists the rejected candidates with the reasons.
//!
//! The search runs once. After a failure the next call searches again. [`way`] predicts its result, as far as possible
//! without loading a library.

mod candidates;
mod way;

pub use self::candidates::NVRTC_PATH;

use self::candidates::{Candidate, SearchPlace, mapped_file, places};
#[cfg(target_os = "linux")]
use super::elf;
use super::error::{NotFound, Tried};
use super::key::CacheKey;
use super::library::{Stamp, Traced};
use super::nvrtc::Nvrtc;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

static FOUND: OnceLock<Nvrtc> = OnceLock::new();

/// The environment that the program named.
static ENVIRONMENT: OnceLock<PathBuf> = OnceLock::new();

/// Names the Python environment (`sys.prefix`) of this process, whose wheels the search for NVRTC visits as well.
///
/// An interpreter knows its environment although no variable says so: nobody has to activate a virtual environment to use
/// it. The first call counts; a search that has found a library is not repeated.
pub fn search_environment(prefix: PathBuf) {
    let _ = ENVIRONMENT.set(prefix);
}

/// The places of this process.
fn own_places() -> Vec<SearchPlace> {
    places(|name| std::env::var_os(name), ENVIRONMENT.get().map(PathBuf::as_path))
}

/// The NVRTC of this process.
pub(super) fn nvrtc() -> Result<&'static Nvrtc, NotFound> {
    static SEARCH: Mutex<()> = Mutex::new(());
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let _one_at_a_time = SEARCH.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let variable = |name: &str| std::env::var_os(name);
    let places = own_places();
    let (way, start) = (way::way_through(&places, variable), SystemTime::now());
    let mut found = search(&places, open)?;
    let stamp = found.file.as_deref().and_then(Stamp::of);
    found.traced = stamp.filter(|stamp| stamp.is_older_than(start)).map(|stamp| Traced { way, stamp });
    tracing::debug!(compiler = %found.identity, file = ?found.file, "found NVRTC");
    Ok(FOUND.get_or_init(|| found))
}

/// The key of the search that [`nvrtc`] would make; `None` once it has been made.
pub(super) fn way() -> Option<CacheKey> {
    let variable = |name: &str| std::env::var_os(name);
    FOUND.get().is_none().then(|| way::way_through(&own_places(), variable))
}

/// Opens one candidate after the other, until one opens.
fn search<T>(places: &[SearchPlace], mut open: impl FnMut(&Candidate) -> Result<T, String>) -> Result<T, NotFound> {
    let mut tried = Vec::new();
    let mut files = Vec::new();
    for place in places {
        let candidates = place.candidates().unwrap_or_else(|none| {
            tried.push(none);
            Vec::new()
        });
        for candidate in candidates {
            if let Candidate::File(path) = &candidate {
                match path.canonicalize() {
                    Err(error) => {
                        tried.push(Tried { place: candidate.to_string(), reason: error.to_string() });
                        continue;
                    }
                    // Another name of a file that was already rejected.
                    Ok(file) if files.contains(&file) => continue,
                    Ok(file) => files.push(file),
                }
            }
            match open(&candidate) {
                Ok(found) => return Ok(found),
                Err(reason) => tried.push(Tried { place: candidate.to_string(), reason }),
            }
        }
    }
    Err(NotFound::new(tried))
}

/// Loads a candidate for the life of the process, and checks that it works.
#[cfg(target_os = "linux")]
fn open(candidate: &Candidate) -> Result<Nvrtc, String> {
    use super::nvrtc::Api;
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    use std::mem::ManuallyDrop;
    /// Only libraries that are already loaded. Every Linux C library uses this number on the architectures that have
    /// CUDA.
    const RTLD_NOLOAD: std::ffi::c_int = 4;

    let (name, flags) = match candidate {
        Candidate::Loaded(name) => (Path::new(*name), RTLD_NOW | RTLD_NOLOAD),
        Candidate::Name(name) => (Path::new(*name), RTLD_NOW | RTLD_LOCAL),
        Candidate::File(path) => (path.as_path(), RTLD_NOW | RTLD_LOCAL),
    };
    if let Candidate::File(path) = candidate {
        elf::check(path)?;
    }
    // SAFETY: loading runs the initialisers of the library. It is NVIDIA's, or what the user or the system put under its name;
    // these are the same trust and the same call as linking against it.
    let library = unsafe { Library::open(Some(name), flags) }.map_err(|error| match candidate {
        Candidate::Loaded(_) => "not loaded".to_owned(),
        Candidate::Name(_) | Candidate::File(_) => loader_text(&error),
    })?;
    // Never unloaded, even if it is rejected: its threads and exit handlers may outlive every known use.
    let library: ManuallyDrop<libloading::Library> = ManuallyDrop::new(library.into());
    let api = Api::load(&library)?;
    let (major, minor) = api.version()?;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let given = name.is_absolute().then(|| name.to_owned());
    let file = mapped_file(&maps, api.address()).or_else(|| given.clone());
    for directory in [&file, &given].into_iter().flatten().filter_map(|file| file.parent()) {
        let builtins = directory.join(format!("libnvrtc-builtins.so.{major}.{minor}"));
        if builtins.exists() {
            if let Err(why) = elf::check(&builtins) {
                tracing::warn!(file = %builtins.display(), %why, "a part of NVRTC cannot be loaded");
                continue;
            }
            // SAFETY: as above; this is the part of NVRTC that it would load itself if it knew where to look. Later it asks for
            // it by name and gets this one.
            match unsafe { Library::open(Some(&builtins), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => {
                    let _for_good = ManuallyDrop::new(library);
                    break;
                }
                Err(error) => tracing::debug!(file = %builtins.display(), error = %loader_text(&error), "cannot load"),
            }
        }
    }
    Nvrtc::probe(api, file)
}

#[cfg(not(target_os = "linux"))]
fn open(_: &Candidate) -> Result<Nvrtc, String> {
    Err("compiling kernels is supported on Linux only".to_owned())
}

/// The loader's message, without the wrapping.
#[cfg(target_os = "linux")]
fn loader_text(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::candidates::TARGET_LIB;
    use super::*;
    use std::ffi::OsString;
    use std::fs;

    fn environment<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
    }

    #[test]
    fn an_override_is_the_only_place() {
        let places = places(environment(&[(NVRTC_PATH, "/x/libnvrtc.so.13"), ("CUDA_HOME", "/c")]), Some(Path::new("/p")));
        assert_eq!(places, [SearchPlace::Path("/x/libnvrtc.so.13".into())]);
    }

    #[test]
    fn the_order_is_as_documented() {
        let variables =
            [(NVRTC_PATH, ""), ("CUDA_HOME", "/usr/local/cuda"), ("VIRTUAL_ENV", "/v"), ("CONDA_PREFIX", "/co"), ("HOME", "/h")];
        let found = places(environment(&variables), Some(Path::new("/interpreter")));
        let path = |path: &str| SearchPlace::Path(path.into());
        let target = |root: &str| SearchPlace::Path(Path::new(root).join(TARGET_LIB));
        let expected = [
            SearchPlace::Loaded("libnvrtc.so.13"),
            SearchPlace::Loaded("libnvrtc.so.12"),
            SearchPlace::Name("libnvrtc.so.13"),
            SearchPlace::Name("libnvrtc.so.12"),
            SearchPlace::Name("libnvrtc.so"),
            path("/usr/local/cuda/lib64"),
            target("/usr/local/cuda"),
            path("/opt/cuda/lib64"),
            target("/opt/cuda"),
            SearchPlace::Wheels("/interpreter".into()),
            SearchPlace::Wheels("/v".into()),
            SearchPlace::Wheels("/co".into()),
            path("/co/lib"),
            target("/co"),
            SearchPlace::Wheels("/h/.local".into()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn wheels_and_libraries_are_tried_best_first_and_listed() {
        let root = tempfile::tempdir().unwrap();
        let lib = |python: &str, package: &str| root.path().join(format!("lib/{python}/site-packages/nvidia/{package}/lib"));
        let touch = |directory: &Path, names: &[&str]| {
            fs::create_dir_all(directory).unwrap();
            names.iter().for_each(|name| fs::write(directory.join(name), "not a library").unwrap());
        };
        touch(&lib("python3.9", "cuda_nvrtc"), &["libnvrtc.so.12", "libnvrtc.alt.so.12", "libnvrtc-builtins.so.12.9"]);
        touch(
            &lib("python3.11", "cu13"),
            &["libnvrtc.so.13.0.88", "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.9", "libnvrtc.so.x"],
        );
        touch(&lib("python3.11", "cu14"), &["libnvrtc.so.14"]);
        touch(&lib("python3.11", "cublas"), &["libcublas.so.13"]);
        let places = [
            SearchPlace::Wheels(root.path().into()),
            SearchPlace::Path(root.path().into()),
            SearchPlace::Path(root.path().join("absent")),
        ];

        let refuse_all = |candidate: &Candidate| match candidate {
            Candidate::File(path) => Err::<(), _>(format!("refused {}", path.file_name().unwrap().display())),
            Candidate::Loaded(_) | Candidate::Name(_) => Err("unexpected".into()),
        };
        let tried = search(&places, refuse_all).unwrap_err().tried;
        let reasons: Vec<_> = tried.iter().map(|tried| tried.reason.as_str()).collect();
        let order = ["14", "13", "9"].map(|version| format!("refused libnvrtc.so.{version}"));
        assert_eq!(reasons[..3], order);
        assert_eq!(reasons[3..6], ["refused libnvrtc.so", "refused libnvrtc.so.13.0.88", "refused libnvrtc.so.12"]);
        assert_eq!(reasons[6], "no libnvrtc.so in it");
        assert!(reasons[7].contains("No such file"), "{}", reasons[7]);

        let chosen = search(&places, |candidate| match candidate {
            Candidate::File(path) if path.ends_with("libnvrtc.so.12") => Ok(path.clone()),
            _ => Err(String::new()),
        });
        assert_eq!(chosen.unwrap(), lib("python3.9", "cuda_nvrtc").join("libnvrtc.so.12"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_of_several_names_is_tried_once() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("libnvrtc.so.13.0.88"), "").unwrap();
        for name in ["libnvrtc.so.13", "libnvrtc.so"] {
            std::os::unix::fs::symlink("libnvrtc.so.13.0.88", root.path().join(name)).unwrap();
        }
        fs::write(root.path().join("libnvrtc.so.12"), "").unwrap();
        let mut names = Vec::new();
        let error = search(&[SearchPlace::Path(root.path().into())], |candidate| {
            names.push(candidate.to_string().rsplit_once('/').unwrap().1.to_owned());
            Err::<(), _>(String::new())
        });
        assert_eq!((names, error.unwrap_err().tried.len()), (vec!["libnvrtc.so.13".to_owned(), "libnvrtc.so.12".to_owned()], 2));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_not_a_library_is_a_reason() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("libnvrtc.so.13");
        fs::write(&file, "not a library").unwrap();
        let error =
            search(&[SearchPlace::Path(root.path().into()), SearchPlace::Name("libpostlude-absent.so")], open).err().unwrap();
        assert_eq!(error.tried.len(), 2);
        assert!(
            error.tried[0].place.contains("libnvrtc.so.13") && error.tried[0].reason.contains("not an ELF library"),
            "{error}"
        );
        assert!(error.tried[1].reason.contains("cannot open shared object file"), "{error}");
        let libc = open(&Candidate::Name("libc.so.6")).err().unwrap();
        assert!(libc.contains("no function nvrtcVersion"), "{libc}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn maps_tell_the_file() {
        let maps = "7f00-8000 r-xp 00000000 08:01 42                 /opt/a b/libnvrtc.so.13\n8000-9000 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapped_file(maps, 0x7fff), Some("/opt/a b/libnvrtc.so.13".into()));
        assert_eq!(mapped_file(maps, 0x8000), None);
        assert_eq!(mapped_file("", 1), None);
    }
}
