//! The places where NVRTC may be, and the libraries there.

use crate::jit::error::Tried;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The environment variable that overrides the search.
pub const NVRTC_PATH: &str = "POSTLUDE_NVRTC_PATH";

/// The names of the library, best first.
pub(super) const SONAMES: [&str; 2] = ["libnvrtc.so.13", "libnvrtc.so.12"];

/// A place of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SearchPlace {
    /// Under this name, if the process has already loaded it.
    Loaded(&'static str),
    /// Under this name, wherever the loader finds it.
    Name(&'static str),
    /// A file, or a directory of files.
    Path(PathBuf),
    /// The Python packages below this prefix.
    Wheels(PathBuf),
}

/// One library to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    Loaded(&'static str),
    Name(&'static str),
    File(PathBuf),
}

impl Candidate {
    pub fn file(&self) -> Option<&Path> {
        if let Self::File(path) = self { Some(path) } else { None }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded(name) => write!(f, "{name} in this process"),
            Self::Name(name) => write!(f, "{name} on the loader's path"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl SearchPlace {
    /// The libraries here, best first; or the place and the reason why there are none.
    pub fn candidates(&self) -> Result<Vec<Candidate>, Tried> {
        let (directory, files, reason) = match self {
            Self::Loaded(name) => return Ok(vec![Candidate::Loaded(name)]),
            Self::Name(name) => return Ok(vec![Candidate::Name(name)]),
            Self::Path(path) if !path.is_dir() => return Ok(vec![Candidate::File(path.clone())]),
            Self::Path(path) => (path, libraries_in(path), "no libnvrtc.so in it"),
            Self::Wheels(prefix) => {
                let files = wheel_directories(prefix).iter().flat_map(|directory| libraries_in(directory)).collect();
                (prefix, files, "no NVRTC wheel in its site-packages")
            }
        };
        if files.is_empty() {
            return Err(Tried { place: directory.display().to_string(), reason: reason.to_owned() });
        }
        Ok(files.into_iter().map(Candidate::File).collect())
    }
}

/// Every place, in the order of the search. `environment` is that of a program that said where it is.
pub(super) fn places(variable: impl Fn(&str) -> Option<OsString>, environment: Option<&Path>) -> Vec<SearchPlace> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(given) = path(NVRTC_PATH) {
        return vec![SearchPlace::Path(given)];
    }
    let mut places: Vec<_> = SONAMES.into_iter().map(SearchPlace::Loaded).collect();
    places.extend(SONAMES.into_iter().map(SearchPlace::Name));
    places.push(SearchPlace::Name("libnvrtc.so"));
    let fixed = ["/usr/local/cuda", "/opt/cuda"].map(|root| Some(PathBuf::from(root)));
    for root in [path("CUDA_HOME"), path("CUDA_PATH")].into_iter().chain(fixed).flatten() {
        places.extend(["lib64", TARGET_LIB].map(|lib| SearchPlace::Path(root.join(lib))));
    }
    places.extend(environment.map(Path::to_path_buf).map(SearchPlace::Wheels));
    places.extend(path("VIRTUAL_ENV").map(SearchPlace::Wheels));
    if let Some(prefix) = path("CONDA_PREFIX") {
        places.extend([
            SearchPlace::Wheels(prefix.clone()),
            SearchPlace::Path(prefix.join("lib")),
            SearchPlace::Path(prefix.join(TARGET_LIB)),
        ]);
    }
    places.extend(path("HOME").map(|home| SearchPlace::Wheels(home.join(".local"))));
    let mut unique = Vec::new();
    places.into_iter().for_each(|place| {
        if !unique.contains(&place) {
            unique.push(place)
        }
    });
    unique
}

/// Where a toolkit keeps the libraries of this machine's architecture.
pub(super) const TARGET_LIB: &str =
    if cfg!(target_arch = "aarch64") { "targets/sbsa-linux/lib" } else { "targets/x86_64-linux/lib" };

/// The names in a directory that begin with `prefix`, with what follows it.
fn names_in(directory: &Path, prefix: &str) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.file_name().to_str()?.strip_prefix(prefix)?.to_owned()))).collect()
}

/// The libraries in a directory, best first. The name that programs link to (`libnvrtc.so.13`) comes first, with the
/// highest version before others; then the name without a version; then the full versions, which are usually the
/// targets of the links.
pub(super) fn libraries_in(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = names_in(directory, "libnvrtc.so")
        .into_iter()
        .filter_map(|(path, rest)| {
            let numbers: Vec<u32> = rest.split('.').skip(1).map(str::parse).collect::<Result<_, _>>().ok()?;
            let class = match numbers.len() {
                1 => 0,
                0 => 1,
                _ => 2,
            };
            (rest.is_empty() || rest.starts_with('.')).then_some((class, std::cmp::Reverse(numbers), path))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, _, path)| path).collect()
}

/// The folders of pip's NVRTC below a prefix: `nvidia/cu13/lib` since CUDA 13, `nvidia/cuda_nvrtc/lib` before; the
/// newest first.
pub(super) fn wheel_directories(prefix: &Path) -> Vec<PathBuf> {
    let newest_first = |directory: &Path, prefix: &str, number: fn(&str) -> Option<u32>| {
        let mut found: Vec<_> = names_in(directory, prefix)
            .into_iter()
            .filter_map(|(path, rest)| Some((std::cmp::Reverse(number(&rest)?), path)))
            .collect();
        found.sort();
        found.into_iter().map(|(_, path)| path).collect::<Vec<_>>()
    };
    let mut directories = Vec::new();
    for lib in ["lib", "lib64"] {
        for python in newest_first(&prefix.join(lib), "python3.", |minor| minor.parse().ok()) {
            let nvidia = python.join("site-packages/nvidia");
            let mut packages = newest_first(&nvidia, "cu", |major| major.parse().ok());
            packages.push(nvidia.join("cuda_nvrtc"));
            directories.extend(packages.into_iter().map(|package| package.join("lib")).filter(|lib| lib.is_dir()));
        }
    }
    directories
}

/// The file that is mapped at `address`, from the text of `/proc/self/maps`.
pub(super) fn mapped_file(maps: &str, address: usize) -> Option<PathBuf> {
    let hex = |digits| usize::from_str_radix(digits, 16).ok();
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let inside = (hex(start)?..hex(end)?).contains(&address);
        inside.then(|| rest.find('/').map(|at| PathBuf::from(&rest[at..])))?
    })
}
