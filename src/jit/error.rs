//! Errors between a source text and its binary.

use super::environment::{CACHE_MODE, COMPILE_LIMIT, Mode, ModeError};
use super::log::{CompilerMessage, Severity};
use crate::target::Target;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a kernel could not be compiled. Cheap to clone: every thread that waited for the same compilation gets the same
/// error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JitError {
    /// There is no usable NVRTC on this machine.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// NVRTC rejected the source.
    #[error(transparent)]
    Compile(#[from] CompileFailure),
    /// This NVRTC does not know the target.
    #[error(
        "{compiler} cannot compile for {target}; it knows {}. Choose one of these, or install a {} NVRTC",
        list(.supported),
        if .supported.iter().all(|known| *known < .target.number()) { "newer" } else { "different" }
    )]
    UnsupportedTarget {
        /// The requested target.
        target: Target,
        /// The compiler.
        compiler: String,
        /// The architectures it knows, as the number in their names.
        supported: Arc<[u32]>,
    },
    /// An option that NVRTC or ptxas rejects.
    #[error("`{option}` is not accepted: {why}. Remove it from the options")]
    InvalidOption {
        /// The option as given; all of them, if NVRTC does not say which.
        option: String,
        /// The fault.
        why: String,
    },
    /// A source that cannot be passed to the compiler.
    #[error("the source of kernel `{entry}` cannot be compiled: {why}")]
    InvalidSource {
        /// The name of the kernel.
        entry: String,
        /// The fault.
        why: &'static str,
    },
    /// The source compiled, but the kernel is not in it under its name.
    #[error(
        "the source has no kernel `{entry}`, only {}. Declare it `extern \"C\" __global__`, so that its name stays as written",
        if .found.is_empty() { "device functions".to_owned() } else { format!("`{}`", .found.join("`, `")) }
    )]
    MissingEntry {
        /// The requested name.
        entry: String,
        /// The kernels in the source.
        found: Vec<String>,
    },
    /// The kernel is not in the cache, and compiling is not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Compiling is estimated to take longer than the cache allows.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The watcher called the compilation off.
    #[error("the compilation for {target} was cancelled after {:.1} s", .elapsed.as_secs_f64())]
    Cancelled {
        /// The target.
        target: Target,
        /// The time it had run.
        elapsed: Duration,
    },
    /// The environment names an unknown mode. Nothing is compiled then: the mode may have been meant to forbid it.
    #[error("{CACHE_MODE}: {0}")]
    Mode(#[from] ModeError),
    /// NVRTC itself failed: out of memory, a damaged installation, a defect.
    #[error("{compiler} failed in {call} with {code}{}. Free memory or reinstall NVRTC, then compile again", after_colon(.log))]
    Internal {
        /// The compiler.
        compiler: String,
        /// The function of the compiler that failed.
        call: &'static str,
        /// Its error code.
        code: String,
        /// Its output.
        log: Arc<str>,
    },
}

fn list(architectures: &[u32]) -> String {
    let names: Vec<_> = architectures.iter().map(|number| format!("sm_{number}")).collect();
    if names.is_empty() { "no architecture by name".to_owned() } else { names.join(", ") }
}

fn after_colon(log: &str) -> String {
    if log.trim().is_empty() { String::new() } else { format!(": {}", log.trim()) }
}

impl JitError {
    /// Whether ptxas found no registers of some kind for a source that is right.
    pub fn ran_out_of_registers(&self) -> bool {
        let JitError::Compile(failure) = self else { return false };
        failure.errors().any(|message| message.code.as_deref() == Some("C7600"))
    }

    /// The same error with the request, if the cure is to compile the kernel elsewhere.
    pub(crate) fn asked_for(mut self, asked: impl FnOnce() -> Asked) -> JitError {
        if let JitError::NotFound(NotFound { asked: place, .. }) | JitError::Denied(Denied { asked: place, .. }) = &mut self {
            place.get_or_insert_with(|| Arc::new(asked()));
        }
        self
    }
}

/// A kernel whose compilation is estimated to take longer than [`Config::compile_limit`](super::Config::compile_limit) allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "compiling for {target} is estimated to take {:.1} s, and the limit is {:.1} s. Shorten the epilogue, store part \
     of it and go on in \
     another kernel, or raise the limit: `jit::Config::compile_limit`, or {COMPILE_LIMIT}",
    .estimate.as_secs_f64(), .limit.as_secs_f64()
)]
pub struct TooLong {
    /// The target.
    pub target: Target,
    /// The estimated time.
    pub estimate: Duration,
    /// The limit.
    pub limit: Duration,
}

/// The request for a kernel, as the planner knows it. A source alone does not say what to compile it from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// Operation, problem, target with its multiprocessors, and preferences.
    pub request: String,
    /// The command that compiles it, except the epilogue's file; or the part of the request that no command expresses.
    pub command: Result<String, String>,
}

impl Asked {
    pub(crate) fn new(request: String, command: Result<String, String>) -> Asked {
        Asked { request, command }
    }
}

/// How to compile it elsewhere.
impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.command {
            Ok(command) => {
                write!(f, "with\n  {command}\nwhere `Epilogue::to_json` writes EPILOGUE.json, or by running the program there")
            }
            Err(beyond) => write!(
                f,
                "by running the program there, or with `gemm::precompile` (the command `postlude-cache precompile` \
                 cannot say {beyond})"
            ),
        }
    }
}

/// One place that was searched for NVRTC without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// A file, a directory or a bare library name.
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// All places searched for NVRTC. A later call searches again, so an installation helps without a restart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct NotFound {
    /// Every place, in the order of the search.
    pub tried: Arc<[Tried]>,
    /// The request, if a plan was to be compiled.
    pub asked: Option<Arc<Asked>>,
}

impl NotFound {
    pub(crate) fn new(tried: Vec<Tried>) -> NotFound {
        NotFound { tried: tried.into(), asked: None }
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NVRTC, the CUDA run-time compiler, was not found; tried:\n")?;
        for Tried { place, reason } in self.tried.iter() {
            writeln!(f, "  {place}: {reason}")?;
        }
        f.write_str(
            "Install it with `pip install nvidia-cuda-nvrtc` (no GPU and no toolkit needed) and, if that environment \
             is not the active \
             one, set POSTLUDE_NVRTC_PATH to its library or directory",
        )?;
        let Some(asked) = &self.asked else { return Ok(()) };
        write!(
            f,
            "; or compile the kernel elsewhere, {asked}; bring it here with `postlude-cache export` and `import`\nAsked for: {}",
            asked.request,
        )
    }
}

/// A kernel that is not in the cache of a process that must not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Denied {
    /// The name of the kernel.
    pub entry: String,
    /// The target.
    pub target: Target,
    /// The directory, or why there is none.
    pub directory: String,
    /// The compilers whose kernels are present, with the key that the kernel would have from each.
    pub keys: Arc<[(String, String)]>,
    /// The request, if it came from a plan.
    pub asked: Option<Arc<Asked>>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, target, directory, keys, asked } = self;
        write!(f, "kernel `{entry}` for {target} is not in the cache ({directory}), and compiling is denied")?;
        if let Some(asked) = asked {
            write!(f, "\n  asked for: {}", asked.request)?;
        }
        for (compiler, key) in keys.iter() {
            write!(f, "\n  from {compiler} it would be {key}")?;
        }
        if keys.is_empty() {
            f.write_str("\n  no compiler has ever filled this cache")?;
        }
        f.write_str("\nCompile it where that is allowed")?;
        match asked {
            Some(asked) => write!(f, ", {asked}; ")?,
            None => f.write_str(" (`postlude-cache precompile`, or run the program there), ")?,
        }
        let (deny, write) = (Mode::Deny, Mode::ReadWrite);
        write!(f, "bring it here with `postlude-cache export` and `import`; or set {CACHE_MODE}={write} instead of {deny}")
    }
}

/// A source that NVRTC rejected, with all messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct CompileFailure {
    /// The name of the kernel.
    pub entry: String,
    /// The target.
    pub target: Target,
    /// The compiler.
    pub compiler: String,
    /// Errors and warnings, each with the step of the program it belongs to.
    pub messages: Arc<[CompilerMessage]>,
    /// The log as NVRTC wrote it.
    pub log: Arc<str>,
}

impl CompileFailure {
    /// The errors, without warnings and remarks.
    pub fn errors(&self) -> impl Iterator<Item = &CompilerMessage> {
        self.messages.iter().filter(|message| message.severity == Severity::Error)
    }
}

impl fmt::Display for CompileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let Self { entry, target, compiler, log, .. } = self;
        write!(f, "{compiler} rejected kernel `{entry}` for {target}:")?;
        let count = self.errors().count();
        if count == 0 {
            write!(f, "\n  {}", if log.trim().is_empty() { "it did not say why" } else { log.trim() })?;
        }
        for error in self.errors().take(SHOWN) {
            write!(f, "\n  {error}")?;
        }
        if count > SHOWN {
            write!(f, "\n  and {} more in the log", count - SHOWN)?;
        }
        f.write_str(
            "\nA hand-written source has to be corrected there; for a generated one, report this together with the source",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_travel_between_threads() {
        fn travels<T: Send + Sync + Clone + std::error::Error + 'static>() {}
        travels::<JitError>();
    }

    #[test]
    fn messages_name_the_culprit_and_the_cure() {
        let tried = [Tried { place: "/opt/cuda/lib64".into(), reason: "no such directory".into() }];
        let text = JitError::from(NotFound::new(tried.into())).to_string();
        assert!(
            text.contains("  /opt/cuda/lib64: no such directory\n") && text.contains("pip install nvidia-cuda-nvrtc"),
            "{text}"
        );
        let unsupported =
            |target| JitError::UnsupportedTarget { target, compiler: "NVRTC 13.0".into(), supported: [75, 80, 90].into() };
        assert_eq!(
            unsupported(Target::new(20, 0)).to_string(),
            "NVRTC 13.0 cannot compile for sm_200; it knows sm_75, sm_80, sm_90. Choose one of these, or install a newer NVRTC"
        );
        assert!(unsupported(Target::new(7, 0)).to_string().ends_with("install a different NVRTC"));
        let missing = JitError::MissingEntry { entry: "k".into(), found: vec!["_Z1kv".into()] }.to_string();
        assert!(missing.starts_with("the source has no kernel `k`, only `_Z1kv`. Declare it `extern \"C\""), "{missing}");
    }
}
