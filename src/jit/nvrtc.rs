//! A safe face for NVRTC.
//!
//! The functions are taken from the very library that `locate` opened, not by the lazy search behind cudarc's functions of the
//! same names: that search panics where there is no library, knows only the names of its own CUDA major version, prefers an
//! unrelated `libnvrtc.so` on the loader's path over the one the user pointed at, and turns a result code newer than its bindings
//! into undefined behaviour. What cudarc says about NVRTC's interface is still the authority: its types are used here, and the
//! compiler checks every signature below against its declaration.

use super::error::{CompileFailure, JitError};
use super::key::CacheKey;
use super::library::Traced;
use super::log::Log;
use crate::source::{Cubin, KernelInfo, Origin, Source};
use crate::target::Target;
use cudarc::nvrtc::sys;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// What NVRTC is told the source is called. Always the same, because it may end up in the binary.
const PROGRAM_NAME: &CStr = c"postlude.cu";

/// The first version that can compile for `sm_90a`.
const OLDEST: (u32, u32) = (12, 0);

/// Builds of NVRTC since 12.9 have a cache of their own, and on a hit the log is empty: no registers, no spills, no warnings. It
/// also pulls in the driver. Older builds do not know the option and do not need it.
const NO_CACHE: &CStr = c"--no-cache";

/// Leaves out what NVRTC otherwise declares before every source, see [`Options::declarations`](super::Options::declarations). Newer
/// builds know the option.
pub(super) const MINIMAL: &CStr = c"--minimal";

/// What NVRTC asks now and then whether to give up: 1, or 0 to go on. The first argument is what it was registered with.
type Flow = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type SetFlow = unsafe extern "C" fn(sys::nvrtcProgram, Option<Flow>, *mut c_void) -> c_uint;

/// Whether the compilation was called off: `cancel` is an `AtomicBool`.
unsafe extern "C" fn is_cancelled(cancel: *mut c_void, _reserved: *mut c_void) -> c_int {
    // SAFETY: `NvrtcProgram::heed` registers the address of an `AtomicBool` that outlives the compilation.
    let cancel = unsafe { &*cancel.cast::<AtomicBool>() };
    c_int::from(cancel.load(Relaxed))
}

macro_rules! api {
    ($($(#[$doc:meta])* $field:ident = $symbol:ident($($argument:ty),*);)*) => {
        /// The functions of one loaded library. Result codes are plain numbers: a newer library may return ones without a name.
        pub(super) struct Api {
            $($(#[$doc])* $field: unsafe extern "C" fn($($argument),*) -> c_uint,)*
            /// `nvrtcSetFlowCallback`, which there is since 13.0.
            set_flow: Option<SetFlow>,
        }

        // The declarations agree with cudarc's.
        $(const _: unsafe fn($($argument),*) -> sys::nvrtcResult = sys::$symbol;)*

        impl Api {
            /// Looks every function up in `library`, which has to stay loaded as long as the result is used.
            pub fn load(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: the name is NVRTC's and the type is the C signature NVRTC documents for it, checked against
                    // cudarc's declaration above; `nvrtcResult` is a C enum without negative values, passed as `unsigned int`.
                    $($field: unsafe { *library.get(concat!(stringify!($symbol), "\0")).map_err(|_| missing(stringify!($symbol)))? },)*
                    // SAFETY: the name is NVRTC's and the type is the C signature NVRTC documents for it.
                    set_flow: unsafe { library.get(c"nvrtcSetFlowCallback").ok().map(|symbol| *symbol) },
                })
            }
        }
    };
}

api! {
    version = nvrtcVersion(*mut c_int, *mut c_int);
    arch_count = nvrtcGetNumSupportedArchs(*mut c_int);
    archs = nvrtcGetSupportedArchs(*mut c_int);
    create = nvrtcCreateProgram(
        *mut sys::nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    compile = nvrtcCompileProgram(sys::nvrtcProgram, c_int, *const *const c_char);
    log_size = nvrtcGetProgramLogSize(sys::nvrtcProgram, *mut usize);
    log = nvrtcGetProgramLog(sys::nvrtcProgram, *mut c_char);
    cubin_size = nvrtcGetCUBINSize(sys::nvrtcProgram, *mut usize);
    cubin = nvrtcGetCUBIN(sys::nvrtcProgram, *mut c_char);
    ptx_size = nvrtcGetPTXSize(sys::nvrtcProgram, *mut usize);
    ptx = nvrtcGetPTX(sys::nvrtcProgram, *mut c_char);
    destroy = nvrtcDestroyProgram(*mut sys::nvrtcProgram);
}

fn missing(symbol: &str) -> String {
    format!("it has no function {symbol}, so it is not NVRTC or too old")
}

/// A result code that is not success.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Code(c_uint);

impl Code {
    const INVALID_OPTION: Self = Self(sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION as c_uint);
    /// `NVRTC_ERROR_CANCELLED`, which bindings of older versions do not know.
    const CANCELLED: Self = Self(16);
    const COMPILATION: Self = Self(sys::nvrtcResult::NVRTC_ERROR_COMPILATION as c_uint);

    fn check(code: c_uint) -> Result<(), Self> {
        if code == sys::nvrtcResult::NVRTC_SUCCESS as c_uint { Ok(()) } else { Err(Self(code)) }
    }

    fn name(self) -> String {
        use sys::nvrtcResult::*;
        [
            NVRTC_ERROR_OUT_OF_MEMORY,
            NVRTC_ERROR_PROGRAM_CREATION_FAILURE,
            NVRTC_ERROR_INVALID_INPUT,
            NVRTC_ERROR_INVALID_PROGRAM,
            NVRTC_ERROR_INVALID_OPTION,
            NVRTC_ERROR_COMPILATION,
            NVRTC_ERROR_BUILTIN_OPERATION_FAILURE,
            NVRTC_ERROR_INTERNAL_ERROR,
        ]
        .into_iter()
        .find(|known| *known as c_uint == self.0)
        .map_or_else(|| format!("error code {}", self.0), |known| format!("{known:?}"))
    }
}

impl Api {
    /// Where the library's code lies in memory.
    pub fn address(&self) -> usize {
        self.version as usize
    }

    /// Major and minor version, as the library says.
    pub fn version(&self) -> Result<(u32, u32), String> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to live integers, which is all nvrtcVersion asks for.
        let code = unsafe { (self.version)(&mut major, &mut minor) };
        Code::check(code).map_err(|code| format!("it does not tell its version: {}", code.name()))?;
        Ok((major.try_into().unwrap_or(0), minor.try_into().unwrap_or(0)))
    }

    /// The architectures it can compile for, as numbers; empty if it does not tell.
    fn architectures(&self) -> Vec<u32> {
        let mut count = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (self.arch_count)(&mut count) };
        let (Ok(()), Ok(count)) = (Code::check(code), usize::try_from(count)) else { return Vec::new() };
        let mut numbers = vec![0; count];
        // SAFETY: the buffer has room for as many integers as the library has just announced.
        let code = unsafe { (self.archs)(numbers.as_mut_ptr()) };
        if Code::check(code).is_err() {
            return Vec::new();
        }
        numbers.into_iter().filter_map(|number| number.try_into().ok()).collect()
    }
}

/// One program of NVRTC, destroyed when dropped.
struct NvrtcProgram<'a> {
    api: &'a Api,
    handle: sys::nvrtcProgram,
    /// NVRTC may keep pointing at it.
    _source: CString,
}

impl<'a> NvrtcProgram<'a> {
    fn new(api: &'a Api, source: CString) -> Result<Self, Code> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a live place for the result; both texts end in NUL and outlive the program, one being static, the
        // other kept in it; there are zero headers, for which NVRTC takes null arrays.
        let code =
            unsafe { (api.create)(&mut handle, source.as_ptr(), PROGRAM_NAME.as_ptr(), 0, std::ptr::null(), std::ptr::null()) };
        Code::check(code)?;
        Ok(Self { api, handle, _source: source })
    }

    /// Has the compiler give up once `cancel` is true, if it can.
    fn heed(&self, cancel: &'a AtomicBool) -> Result<(), Code> {
        let Some(set_flow) = self.api.set_flow else { return Ok(()) };
        // SAFETY: the handle is live. `is_cancelled` only reads the flag, which the program's lifetime keeps alive, may be called by any
        // thread, and once it has said 1 says so ever after: nobody sets the flag back.
        Code::check(unsafe { set_flow(self.handle, Some(is_cancelled), std::ptr::from_ref(cancel).cast_mut().cast()) })
    }

    fn compile(&self, flags: &[CString]) -> Result<(), Code> {
        let flags: Vec<_> = flags.iter().map(|flag| flag.as_ptr()).collect();
        let count = c_int::try_from(flags.len()).map_err(|_| Code::INVALID_OPTION)?;
        // SAFETY: the handle is live (it is destroyed only in drop); `flags` holds `count` pointers to texts ending in NUL, all
        // of which live until the call returns.
        Code::check(unsafe { (self.api.compile)(self.handle, count, flags.as_ptr()) })
    }

    /// One of the three results, all of which NVRTC hands out the same way.
    fn read(
        &self,
        size: unsafe extern "C" fn(sys::nvrtcProgram, *mut usize) -> c_uint,
        data: unsafe extern "C" fn(sys::nvrtcProgram, *mut c_char) -> c_uint,
    ) -> Result<Vec<u8>, Code> {
        let mut length = 0;
        // SAFETY: the handle is live and the pointer is to a live integer; `size` is one of the `*_size` functions of the table.
        Code::check(unsafe { size(self.handle, &mut length) })?;
        let mut bytes = vec![0u8; length];
        if length > 0 {
            // SAFETY: the handle is live, the buffer has exactly the room that NVRTC announced, and `data` belongs to `size`.
            Code::check(unsafe { data(self.handle, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }

    /// What was written during the compilation.
    fn log(&self) -> String {
        text(&self.read(self.api.log_size, self.api.log).unwrap_or_default())
    }
}

impl Drop for NvrtcProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from nvrtcCreateProgram and this is the only place that destroys it. A failure leaves nothing
        // to do.
        unsafe { (self.api.destroy)(&mut self.handle) };
    }
}

/// A C text in a buffer.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// A working compiler.
pub(super) struct Nvrtc {
    api: Api,
    /// The build, as in `NVRTC 13.0 V13.0.88 CL-36424714`.
    pub identity: String,
    /// The library's file, where it is known.
    pub file: Option<PathBuf>,
    /// The architectures it knows.
    pub architectures: Arc<[u32]>,
    /// The options it wants every time.
    pub common: Vec<String>,
    /// How the file was found, if it is certain that it has not changed since.
    pub traced: Option<Traced>,
}

impl Nvrtc {
    /// Compiles an empty program: proof that the library works, and the source of its identity, for the assembly names the build.
    pub fn probe(api: Api, file: Option<PathBuf>) -> Result<Self, String> {
        let version @ (major, minor) = api.version()?;
        if version < OLDEST {
            return Err(format!("it is version {major}.{minor}; at least {}.{} is needed", OLDEST.0, OLDEST.1));
        }
        let run = |flags: &[CString]| {
            let program = NvrtcProgram::new(&api, CString::default()).map_err(|code| (code, String::new()))?;
            program.compile(flags).map_err(|code| (code, program.log()))?;
            Ok(text(&program.read(api.ptx_size, api.ptx).map_err(|code| (code, String::new()))?))
        };
        // Newer builds know both options, older ones only the first or neither.
        let known: [&[&CStr]; 3] = [&[NO_CACHE, MINIMAL], &[NO_CACHE], &[]];
        let mut attempts = known.into_iter().map(|common| {
            let flags: Vec<_> = common.iter().map(|&flag| flag.to_owned()).collect();
            (common, run(&flags))
        });
        let is_known = |(_, outcome): &(_, Result<_, (Code, String)>)| !matches!(outcome, Err((Code::INVALID_OPTION, _)));
        let (common, outcome) = attempts.find(is_known).ok_or("it takes no options at all")?;
        let common = common.iter().map(|flag| flag.to_string_lossy().into_owned()).collect();
        let assembly = outcome.map_err(|(code, log)| {
            let log = log.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("it does not compile: {}{}{log}", code.name(), if log.is_empty() { "" } else { ": " })
        })?;
        let architectures = api.architectures().into();
        Ok(Self { identity: identity(version, &assembly), architectures, common, file, api, traced: None })
    }

    /// Compiles `source` into a binary for `target`. `key` is what it will be known by.
    pub fn compile(
        &self,
        key: &CacheKey,
        source: &Source,
        target: Target,
        flags: &[String],
        cancel: &AtomicBool,
    ) -> Result<Cubin, JitError> {
        let entry = source.entry();
        let invalid = |why| JitError::InvalidSource { entry: entry.to_owned(), why };
        if !entry.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            || !entry.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            return Err(invalid("this name is no C identifier"));
        }
        let unsupported =
            || JitError::UnsupportedTarget { target, compiler: self.identity.clone(), supported: self.architectures.clone() };
        if !self.architectures.is_empty() && !self.architectures.contains(&target.number()) {
            return Err(unsupported());
        }
        let text = CString::new(source.text()).map_err(|_| invalid("the text contains a NUL character"))?;
        let c_flags =
            flags.iter().map(|flag| CString::new(flag.as_str())).collect::<Result<Vec<_>, _>>().map_err(|_| {
                JitError::InvalidOption { option: flags.join(" "), why: "it contains a NUL character".to_owned() }
            })?;

        let internal = |call, code: Code, log: String| JitError::Internal {
            compiler: self.identity.clone(),
            call,
            code: code.name(),
            log: log.into(),
        };
        let start = Instant::now();
        let program = NvrtcProgram::new(&self.api, text).map_err(|code| internal("nvrtcCreateProgram", code, String::new()))?;
        let outcome = program.heed(cancel).and_then(|()| program.compile(&c_flags));
        let compile_ms = start.elapsed().as_secs_f32() * 1e3;
        let written = program.log();
        let log = Log::read(&written);
        match outcome {
            Ok(()) => {}
            Err(Code::COMPILATION) => {
                return Err(JitError::Compile(CompileFailure {
                    entry: entry.to_owned(),
                    target,
                    compiler: self.identity.clone(),
                    messages: log.messages.into(),
                    log: written.into(),
                }));
            }
            Err(Code::CANCELLED) => return Err(JitError::Cancelled { target, elapsed: start.elapsed() }),
            Err(Code::INVALID_OPTION) if written.contains("gpu-architecture") => return Err(unsupported()),
            Err(Code::INVALID_OPTION) => {
                return Err(JitError::InvalidOption { option: flags.join(" "), why: written.trim().to_owned() });
            }
            Err(code) => return Err(internal("nvrtcCompileProgram", code, written)),
        }
        if log.kernels().next().is_some() && !log.kernels().any(|name| name == entry) {
            return Err(JitError::MissingEntry {
                entry: entry.to_owned(),
                found: log.kernels().map(ToOwned::to_owned).collect(),
            });
        }
        let image =
            program.read(self.api.cubin_size, self.api.cubin).map_err(|code| internal("nvrtcGetCUBIN", code, written.clone()))?;
        if log.kernels().next().is_none() && !has_code(&image, entry) {
            return Err(JitError::MissingEntry { entry: entry.to_owned(), found: Vec::new() });
        }
        let used = log.resources(entry).unwrap_or_default();
        let info = KernelInfo {
            entry: entry.to_owned(),
            target,
            key: key.to_string(),
            compiler: self.identity.clone(),
            registers: used.registers,
            spill_store_bytes: used.spill_store_bytes,
            spill_load_bytes: used.spill_load_bytes,
            stack_bytes: used.stack_bytes,
            static_shared_bytes: used.static_shared_bytes,
            warnings: log.warnings(),
            compile_ms: Some(compile_ms),
            origin: Origin::Compiled,
        };
        Ok(Cubin::new(image, info))
    }
}

/// Whether the binary has the section with a kernel's code, by its name in the table of names.
fn has_code(image: &[u8], entry: &str) -> bool {
    let name = format!(".text.{entry}\0");
    image.windows(name.len()).any(|window| window == name.as_bytes())
}

/// The build of the compiler, from the comments at the head of its assembly. The version alone is not enough: builds of one
/// version differ, and what one compiled the other must not be taken to have compiled.
fn identity((major, minor): (u32, u32), assembly: &str) -> String {
    let head: Vec<_> =
        assembly.lines().map_while(|line| line.strip_prefix("//")).map(str::trim).filter(|line| !line.is_empty()).collect();
    let word = |wanted: fn(&str) -> bool| head.iter().flat_map(|line| line.split([' ', ','])).find(|word| wanted(word));
    let build = word(|word| word.starts_with("CL-"));
    let release = word(|word| word.strip_prefix('V').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    match (release, build) {
        (Some(release), Some(build)) => format!("NVRTC {major}.{minor} {release} {build}"),
        // A wording not known yet: all of it, then.
        _ => format!("NVRTC {major}.{minor} {}", head.join("; ")).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_names_the_build() {
        let assembly = "//\n// Generated by NVIDIA NVVM Compiler\n//\n// Compiler Build ID: CL-36424714\n\
            // Cuda compilation tools, release 13.0, V13.0.88\n// Based on NVVM 7.0.1\n//\n\n.version 9.0\n// CL-1\n";
        assert_eq!(identity((13, 0), assembly), "NVRTC 13.0 V13.0.88 CL-36424714");
        assert_eq!(identity((14, 1), "// Made by X\n// build 7\n.version"), "NVRTC 14.1 Made by X; build 7");
        assert_eq!(identity((14, 1), ""), "NVRTC 14.1");
    }

    #[test]
    fn codes_have_names() {
        assert!(Code::check(0).is_ok());
        assert_eq!(Code::check(7).unwrap_err().name(), "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE");
        assert_eq!(Code::check(4711).unwrap_err().name(), "error code 4711");
    }

    #[test]
    fn code_is_found_by_its_whole_name() {
        let image = b"\x7fELF\0.strtab\0.text.kernel\0";
        assert!(has_code(image, "kernel") && !has_code(image, "k") && !has_code(image, "el") && !has_code(b"", "k"));
    }

    #[test]
    fn texts_end_at_nul() {
        assert_eq!(text(b"abc\0def"), "abc");
        assert_eq!(text(b""), "");
    }
}
