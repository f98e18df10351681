//! `postlude-cache` maintains a directory of compiled kernels, fills it, and exports it to other machines.

/// Prints a line. The tool ends if the reader is gone, as behind `| head`, or the output fails.
macro_rules! say {
    ($($text:tt)*) => { $crate::say(format_args!($($text)*)) };
}

mod args;
mod precompile;
mod show;

use args::Args;
use postlude::jit::{Bundled, CACHE_MODE, Cache, Config, Holds, Limits, Mode, Swept};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

const USAGE: &str = "\
Usage: postlude-cache [--dir DIR] COMMAND

  list                   every kernel, the most recently used first, and their compilers
  stat                   the number of kernels, by target and compiler
  verify [--remove]      read every file to the last bit; fails if one is damaged
                           --remove        and remove it
  prune [--bytes N] [--files N]
                         remove the least recently used files until 70 % of these are left (512M, 32768)
  clear                  remove every kernel
  export FILE            write everything into one file
  import FILE            take everything from such a file
  precompile --target TARGET[:GPU] --shape M,N,K[,L] [OPTIONS] EPILOGUE...
                         compile epilogues for every target and every shape. The files are as `Epilogue::to_json`
                         writes them, or in the printed text form. Needs NVRTC, but no GPU. Devices of capability 9.0
                         ask for sm_90a. A GPU is its number of multiprocessors, and for an H100 the word @h100 behind
                         it, since its tiles are estimated by other numbers: 132@h100. Default: 108 for sm_80 (A100),
                         132 for sm_90a and sm_90 (H200 as SXM); other targets need the number
                           --product DTYPE,LAYOUT     f16,TN by default; may be given more than once. If B has another
                                                      format than A: e4m3,e5m2,TN
                           --pointwise DTYPE,ORDER    row or column; may be given more than once
                           --threads N                one a core by default
  help                   print this
  --version              print the version

Without --dir the directory is $POSTLUDE_CACHE_DIR, else the user's. $POSTLUDE_CACHE is its mode: rw, ro, off or deny.
";

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let words = std::env::args_os()
        .skip(1)
        .map(|word| word.into_string().map_err(|word| format!("`{}` is not UTF-8", word.display()).into()));
    match words.collect::<Result<_>>().and_then(run) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(words: Vec<String>) -> Result<ExitCode> {
    let mut args = Args::new(words);
    let directory = args.value("--dir")?;
    let command = args.next().unwrap_or_else(|| "help".to_owned());
    if matches!(command.as_str(), "help" | "--help" | "-h") {
        say!("{}", USAGE.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    if matches!(command.as_str(), "--version" | "-V") {
        say!("postlude-cache {}", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    let own;
    let cache = match directory {
        Some(directory) => {
            // Looking at a directory does not create it.
            let looks = matches!(command.as_str(), "list" | "stat" | "export" | "verify");
            let mode = match (mode()?, looks) {
                (Mode::ReadWrite, true) if !Path::new(&directory).is_dir() => Mode::ReadOnly,
                (mode, _) => mode,
            };
            own = Cache::open(directory, Config::new().mode(mode));
            &own
        }
        None => Cache::global(),
    };
    let root = cache.directory()?.display().to_string();
    match command.as_str() {
        "list" => {
            args.end()?;
            show::list(&cache.files(), SystemTime::now());
        }
        "stat" => {
            args.end()?;
            say!("directory     {root}");
            show::statistics(&cache.files());
        }
        "verify" => {
            let remove = args.flag("--remove");
            args.end()?;
            if remove {
                may_remove(cache)?;
            }
            return verify(cache, remove);
        }
        "prune" => {
            let mut limits = Limits::default();
            if let Some(bytes) = args.value("--bytes")? {
                limits.bytes = args::size(&bytes)?;
            }
            if let Some(files) = args.value("--files")? {
                limits.files = args::size(&files)?;
            }
            args.end()?;
            may_remove(cache)?;
            report(cache.prune(limits));
        }
        "clear" => {
            args.end()?;
            may_remove(cache)?;
            report(cache.clear());
        }
        "export" => {
            let file = args.one("FILE")?;
            moved("exported", cache.export(file)?);
        }
        "import" => {
            let file = args.one("FILE")?;
            moved("imported", cache.import(file)?);
        }
        "precompile" => return precompile::run(cache, args),
        other => return Err(format!("unknown command `{other}`\n\n{USAGE}").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The mode for a directory named on the command line.
fn mode() -> Result<Mode> {
    let mode = std::env::var_os(CACHE_MODE).filter(|mode| !mode.is_empty());
    mode.map_or(Ok(Mode::default()), |mode| mode.to_string_lossy().parse())
        .map_err(|error| format!("{CACHE_MODE}: {error}").into())
}

fn may_remove(cache: &Cache) -> Result {
    match cache.mode() {
        Mode::ReadWrite if cache.writable() => Ok(()),
        Mode::ReadWrite => Err(format!("nothing is removed: {} cannot be written", cache.directory()?.display()).into()),
        mode => Err(format!("nothing is removed in mode `{mode}`: call this with {CACHE_MODE}=rw").into()),
    }
}

fn say(text: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("error: the output cannot be written: {error}");
            std::process::exit(2);
        }
    }
}

fn verify(cache: &Cache, remove: bool) -> Result<ExitCode> {
    let (mut kernels, mut notes, mut compilers, mut damaged) = (0, 0, 0, 0);
    for file in cache.files() {
        match &file.holds {
            Ok(Holds::Kernel(_)) => kernels += 1,
            Ok(Holds::Compiler(_)) => compilers += 1,
            // A note describes this machine. Another machine finds out its own.
            Ok(Holds::Library(_)) => {}
            Ok(_) => notes += 1,
            Err(why) => {
                damaged += 1;
                say!("{}: {why}", file.path.display());
                if remove {
                    std::fs::remove_file(&file.path)?;
                }
            }
        }
    }
    let removed = if remove && damaged > 0 { ", removed" } else { "" };
    say!("{kernels} kernels, {notes} notes and {compilers} compilers are sound, {damaged} files are damaged{removed}");
    Ok(if damaged == 0 || remove { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(swept: Swept) {
    let Swept { removed, removed_bytes, leftovers, kept, kept_bytes, .. } = swept;
    say!("removed {removed} files ({}) and {leftovers} leftovers", show::bytes(removed_bytes));
    say!("{kept} files remain ({})", show::bytes(kept_bytes));
}

fn moved(how: &str, bundled: Bundled) {
    let Bundled { kernels, notes, compilers, damaged, bytes, .. } = bundled;
    say!("{how} {kernels} kernels and {notes} notes of {compilers} compilers ({})", show::bytes(bytes));
    if damaged > 0 {
        say!("{damaged} damaged files were left out");
    }
}
