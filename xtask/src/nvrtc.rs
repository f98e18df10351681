//! Finds the NVRTC library, or fetches it: the tests compile every kernel, with or without a GPU.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Context, Error, Result};
use crate::project::{Project, capture, spell};

/// The file names of the major versions that the library can use, newest first.
const SONAMES: [&str; 2] = ["libnvrtc.so.13", "libnvrtc.so.12"];
/// A release of the library as a wheel. Releases are exact: a newer compiler allots registers differently, and must not
/// change which changes pass.
pub struct Release {
    pub version: &'static str,
    /// pip's name for it.
    wheel: &'static str,
    /// The library's folder inside the wheel.
    folder: &'static str,
}

/// The release of every figure in the documentation. It is fetched if the machine has none.
const MEASURED: Release = Release { version: "13.0.88", wheel: "nvidia-cuda-nvrtc", folder: "nvidia/cu13/lib" };
/// Other releases that kernels have to pass, since users bring their own: of the previous major version, and the
/// newest.
pub const OTHERS: [Release; 2] = [
    Release { version: "12.9.86", wheel: "nvidia-cuda-nvrtc-cu12", folder: "nvidia/cuda_nvrtc/lib" },
    Release { version: "13.5.37", ..MEASURED },
];

impl Release {
    /// The requirement in pip's form.
    fn requirement(&self) -> String {
        format!("{}=={}", self.wheel, self.version)
    }

    /// The library's folder inside an unpacked wheel.
    fn library(&self, wheel: &Path) -> PathBuf {
        wheel.join(self.folder)
    }

    /// Fetches the library once. It appears under its final name in one step, so an interrupted fetch leaves no
    /// incomplete library.
    pub fn fetch(&self, project: &Project) -> Result<PathBuf> {
        self.fetch_to(&project.target.join("nvrtc"))
    }

    fn fetch_to(&self, store: &Path) -> Result<PathBuf> {
        let home = store.join(self.version);
        let library = self.library(&home);
        if holds_nvrtc(&library) {
            return Ok(library);
        }
        eprintln!("Fetching `{}` with pip (about 60 MB, once)", self.requirement());
        let partial = store.join(format!("partial-{}", std::process::id()));
        fs::create_dir_all(&partial).context(|| format!("cannot create {}", partial.display()))?;
        let outcome = self.fetch_into(&partial).and_then(|wheel| self.publish(&wheel, &home));
        // A leftover would only cost space.
        let _ = fs::remove_dir_all(&partial);
        outcome?;
        eprintln!("NVRTC is in {}", library.display());
        Ok(library)
    }

    /// Downloads and unpacks the wheel inside `partial`.
    fn fetch_into(&self, partial: &Path) -> Result<PathBuf> {
        let downloads = partial.join("download");
        download(&self.requirement(), &downloads)?;
        let wheel = subfolders(&downloads, "nvidia_cuda_nvrtc")
            .pop()
            .ok_or_else(|| Error::new(format!("pip reported success, but left no wheel of {}", self.wheel)))?;
        let unpacked = partial.join("unpacked");
        eprintln!("Unpacking {}", wheel.file_name().unwrap_or_default().to_string_lossy());
        let mut unpack = Command::new("python3");
        unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked).stdin(Stdio::null());
        capture(&mut unpack).map_err(|error| Error::new(format!("{error}; {CURE}")))?;
        if !holds_nvrtc(&self.library(&unpacked)) {
            return Err(Error::new(format!("the wheel of {} holds no NVRTC in {}; {CURE}", self.requirement(), self.folder)));
        }
        Ok(unpacked)
    }

    /// Gives a finished folder its final name. If another process was faster, its folder is equally good.
    fn publish(&self, finished: &Path, home: &Path) -> Result {
        match fs::rename(finished, home) {
            Err(_) if holds_nvrtc(&self.library(home)) => Ok(()),
            outcome => outcome.context(|| format!("cannot create {} (if it is there, delete it)", home.display())),
        }
    }
}

/// How to work without fetching; part of every error on the way.
const CURE: &str = "install python3 and pip, or set POSTLUDE_NVRTC_PATH to the folder of a libnvrtc.so.12 or libnvrtc.so.13";

/// Where the NVRTC library is.
#[derive(Debug, PartialEq, Eq)]
pub enum Nvrtc {
    /// The loader finds it by its name.
    Loader(&'static str),
    Folder(PathBuf),
}

/// `cargo xtask nvrtc`.
pub fn print(project: &Project, args: &[String]) -> Result {
    if let Some(arg) = args.first() {
        return Err(Error::new(format!("`nvrtc` takes no argument, not `{arg}`")));
    }
    match find_or_fetch(project)? {
        Nvrtc::Folder(folder) => say!("{}", folder.display()),
        Nvrtc::Loader(name) => eprintln!("the loader finds {name}: POSTLUDE_NVRTC_PATH is not needed"),
    }
    Ok(())
}

/// The machine's NVRTC library, or else a fetched one under `target/`.
pub fn find_or_fetch(project: &Project) -> Result<Nvrtc> {
    if let Some(named) = std::env::var_os("POSTLUDE_NVRTC_PATH").filter(|value| !value.is_empty()) {
        let named = PathBuf::from(named);
        // The library's file is as good as its folder.
        let folder = if named.is_file() {
            named.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
        } else {
            named.clone()
        };
        return match holds_nvrtc(&folder) {
            true => Ok(Nvrtc::Folder(absolute(&folder)?)),
            false => Err(Error::new(format!(
                "POSTLUDE_NVRTC_PATH is {}, which holds neither {} nor {}: correct it or unset it",
                named.display(),
                SONAMES[0],
                SONAMES[1]
            ))),
        };
    }
    if let Some(name) = SONAMES.into_iter().find(|name| loadable(name)) {
        return Ok(Nvrtc::Loader(name));
    }
    let installed = candidates(&|name| std::env::var_os(name)).into_iter().find(|folder| holds_nvrtc(folder));
    match installed {
        Some(folder) => Ok(Nvrtc::Folder(folder)),
        None => {
            eprintln!("No NVRTC library on this machine");
            MEASURED.fetch(project).map(Nvrtc::Folder)
        }
    }
}

/// Whether the loader finds a library by this name.
pub fn loadable(name: &str) -> bool {
    // SAFETY: only NVIDIA's own libraries are requested; their initialisers have no requirements on this program.
    unsafe { libloading::Library::new(name) }.is_ok()
}

fn holds_nvrtc(folder: &Path) -> bool {
    SONAMES.iter().any(|name| folder.join(name).is_file())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).context(|| format!("cannot make {} absolute", path.display()))
}

/// The folders where toolkits, conda and pip put the library, best first.
fn candidates(env: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let folder = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let toolkits = [folder("CUDA_HOME"), folder("CUDA_PATH"), Some("/usr/local/cuda".into()), Some("/opt/cuda".into())];
    let mut folders: Vec<PathBuf> =
        toolkits.into_iter().flatten().flat_map(|root| [root.join("lib64"), root.join("lib")]).collect();
    for prefix in [folder("VIRTUAL_ENV"), folder("CONDA_PREFIX")].into_iter().flatten() {
        let lib = prefix.join("lib");
        for python in subfolders(&lib, "python3.") {
            let nvidia = python.join("site-packages").join("nvidia");
            folders.extend([nvidia.join("cu13").join("lib"), nvidia.join("cuda_nvrtc").join("lib")]);
        }
        folders.push(lib);
    }
    folders
}

/// The subfolders whose names start so, in order of name.
pub fn subfolders(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start)).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Downloads the wheel with whichever pip there is.
pub fn download(requirement: &str, into: &Path) -> Result {
    let mut tried = Vec::new();
    for pip in [&["python3", "-m", "pip"][..], &["pip3"]] {
        let start = |args: &[&str]| {
            let mut command = Command::new(pip[0]);
            command.args(&pip[1..]).args(args).stdin(Stdio::null());
            command
        };
        let mut probe = start(&["--version"]);
        let answers = probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !answers {
            tried.push(spell(&start(&[])));
            continue;
        }
        let mut command = start(&["download", "--no-deps", "--only-binary", ":all:", "--dest"]);
        command.arg(into).arg(requirement).stdout(std::io::stderr());
        let status = command.status().context(|| format!("cannot start `{}`", pip.join(" ")))?;
        return if status.success() {
            Ok(())
        } else {
            Err(Error::new(format!(
                "`{}` could not download {requirement} ({status}). Its own words are above. Without a network, copy \
                 the library over and \
                 set POSTLUDE_NVRTC_PATH to its folder; to test what needs no compiler, run `cargo test --no-default-features`",
                pip.join(" ")
            )))
        };
    }
    Err(Error::new(format!("no NVRTC library on this machine, and no pip to fetch it (tried `{}`): {CURE}", tried.join("`, `"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own.
    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("postlude-xtask-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn touch(path: &Path) {
        assert!(path.parent().is_some_and(|folder| fs::create_dir_all(folder).is_ok()));
        assert!(fs::write(path, "").is_ok());
    }

    #[test]
    fn toolkits_come_before_python_environments() {
        let root = scratch("candidates");
        touch(&root.join("lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13"));
        touch(&root.join("lib/python3.9/unrelated"));
        touch(&root.join("lib/libother.so"));
        let env = |name: &str| match name {
            "CUDA_HOME" => Some(OsString::from("/toolkit")),
            "CUDA_PATH" => Some(OsString::new()),
            "CONDA_PREFIX" => Some(root.clone().into_os_string()),
            _ => None,
        };
        let site = |python: &str, name: &str| root.join("lib").join(python).join("site-packages/nvidia").join(name).join("lib");
        let mut expected: Vec<PathBuf> = [
            "/toolkit/lib64",
            "/toolkit/lib",
            "/usr/local/cuda/lib64",
            "/usr/local/cuda/lib",
            "/opt/cuda/lib64",
            "/opt/cuda/lib",
        ]
        .map(PathBuf::from)
        .into();
        expected.extend([site("python3.12", "cu13"), site("python3.12", "cuda_nvrtc")]);
        expected.extend([site("python3.9", "cu13"), site("python3.9", "cuda_nvrtc"), root.join("lib")]);
        assert_eq!(candidates(&env), expected);
        assert!(holds_nvrtc(&site("python3.12", "cu13")) && !holds_nvrtc(&site("python3.9", "cu13")));
        let _ = fs::remove_dir_all(&root);
    }

    #[test]
    fn a_fetched_library_is_used_again() {
        let store = scratch("store");
        for (release, file) in [(&MEASURED, "libnvrtc.so.13"), (&OTHERS[0], "libnvrtc.so.12")] {
            let library = release.library(&store.join(release.version));
            touch(&library.join(file));
            assert_eq!(release.fetch_to(&store).ok(), Some(library));
        }
        let _ = fs::remove_dir_all(&store);
    }

    #[test]
    fn publishing_twice_keeps_the_first() {
        let store = scratch("publish");
        let (first, second, home) = (store.join("first"), store.join("second"), store.join("home"));
        for wheel in [&first, &second] {
            touch(&MEASURED.library(wheel).join("libnvrtc.so.13"));
        }
        assert!(MEASURED.publish(&first, &home).is_ok());
        assert!(MEASURED.publish(&second, &home).is_ok());
        assert!(holds_nvrtc(&MEASURED.library(&home)) && second.is_dir());
        let _ = fs::remove_dir_all(&store);
    }
}
