//! Reads the compiler's log.
//!
//! One log contains the messages of two programs. The C++ front end writes `FILE(LINE): SEVERITY: TEXT` and then shows
//! the line. ptxas writes `ptxas SEVERITY : TEXT` and, on request, the resources of every function. The FILE is our
//! choice: the line marker `#line 7 "postlude:%9"` in the source maps a message to step 9 of the program.
//!
//! The reader trusts nothing. It skips an unknown line, and takes a number that does not fit for zero.

use crate::source::STEP_MARKER;
use std::fmt;

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For information.
    Remark,
    /// The kernel compiled, but deserves a look.
    Warning,
    /// The kernel did not compile.
    Error,
}

/// One message of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerMessage {
    /// Its severity.
    pub severity: Severity,
    /// The step of the plan's program that it is about.
    pub step: Option<u32>,
    /// The line: counted from the last line marker, or in the assembly for a message of ptxas.
    pub line: Option<u32>,
    /// The compiler's own name for it: `C7510`, `#177-D`.
    pub code: Option<String>,
    /// Its text, with the quoted line of the source.
    pub text: String,
}

impl fmt::Display for CompilerMessage {
    /// `step 9, line 7: C7510: text`, as far as known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, self.line) {
            (Some(step), Some(line)) => write!(f, "step {step}, line {line}: ")?,
            (Some(step), None) => write!(f, "step {step}: ")?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        if let Some(code) = &self.code {
            write!(f, "{code}: ")?;
        }
        f.write_str(&self.text)
    }
}

/// The resources of a kernel, including the functions that it may call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources {
    pub registers: u32,
    pub stack_bytes: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    pub static_shared_bytes: u32,
}

/// A function that ptxas reported on.
#[derive(Debug, Default)]
struct Function {
    name: String,
    kernel: bool,
    used: Resources,
}

/// A parsed log.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub messages: Vec<CompilerMessage>,
    functions: Vec<Function>,
}

impl Log {
    pub fn read(text: &str) -> Self {
        let mut log = Self::default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(mut message) = front_end(line) {
                // The quoted source follows, up to an empty line.
                while let Some(more) = lines.next_if(|more| !more.trim().is_empty() && more.starts_with(char::is_whitespace)) {
                    message.text.push('\n');
                    message.text.push_str(more.trim_end());
                }
                // An error inside the prelude names the step where it was instantiated.
                message.step = message.step.or_else(|| step_in(&message.text));
                log.messages.push(message);
            } else if let Some(message) = assembler(line) {
                log.messages.push(message);
            } else {
                log.usage(line);
            }
        }
        log
    }

    /// One line of what `--ptxas-options=-v` adds.
    fn usage(&mut self, line: &str) {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or_default().to_owned();
            self.functions.push(Function { name, kernel: true, ..Function::default() });
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            let name = name.trim().trim_matches('\'');
            if self.functions.last().is_none_or(|function| function.name != name) {
                self.functions.push(Function { name: name.to_owned(), ..Function::default() });
            }
        } else if line.contains(" bytes stack frame") {
            if let Some(Function { used, .. }) = self.functions.last_mut() {
                used.stack_bytes = used.stack_bytes.max(number_before(line, " bytes stack frame"));
                used.spill_store_bytes = number_before(line, " bytes spill stores");
                used.spill_load_bytes = number_before(line, " bytes spill loads");
            }
        } else if line.contains("Used ")
            && line.contains(" registers")
            && let Some(Function { used, .. }) = self.functions.iter_mut().rev().find(|function| function.kernel)
        {
            used.registers = number_before(line, " registers");
            used.static_shared_bytes = number_before(line, " bytes smem");
            used.stack_bytes = used.stack_bytes.max(number_before(line, " bytes cumulative stack size"));
        }
    }

    /// The names of all kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().filter(|function| function.kernel).map(|function| function.name.as_str())
    }

    /// The resources of the kernel `entry`: its own registers, and the spills of every function that is not a kernel,
    /// since it may call them.
    pub fn resources(&self, entry: &str) -> Option<Resources> {
        let mut used = self.functions.iter().find(|function| function.kernel && function.name == entry)?.used;
        for called in self.functions.iter().filter(|function| !function.kernel) {
            used.spill_store_bytes = used.spill_store_bytes.saturating_add(called.used.spill_store_bytes);
            used.spill_load_bytes = used.spill_load_bytes.saturating_add(called.used.spill_load_bytes);
        }
        (used.registers > 0).then_some(used)
    }

    /// The warnings as texts.
    pub fn warnings(&self) -> Vec<String> {
        self.messages.iter().filter(|message| message.severity == Severity::Warning).map(ToString::to_string).collect()
    }
}

/// The number before `what`.
fn number_before(line: &str, what: &str) -> u32 {
    let Some(end) = line.find(what) else { return 0 };
    let digits = line[..end].bytes().rev().take_while(u8::is_ascii_digit).count();
    line[end - digits..end].parse().unwrap_or(0)
}

/// The step in the first `postlude:%9`.
fn step_in(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once(STEP_MARKER)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

/// `error: text`, `warning #177-D: text`, `catastrophic error: text`: severity, code and text.
fn severity_and_text(words: &str) -> Option<(Severity, Option<String>, String)> {
    let (head, text) = words.split_once(": ")?;
    let (word, code) = match head.split_once(" #") {
        Some((word, code)) => (word.trim(), Some(format!("#{}", code.trim()))),
        None => (head.trim(), None),
    };
    let severity = match word {
        "error" | "catastrophic error" | "internal error" | "command-line error" | "fatal" => Severity::Error,
        "warning" => Severity::Warning,
        "remark" | "note" | "info" => Severity::Remark,
        _ => return None,
    };
    Some((severity, code, text.trim().to_owned()))
}

/// A message of the C++ front end, or of NVRTC around it.
fn front_end(line: &str) -> Option<CompilerMessage> {
    let outside = line.strip_prefix("nvrtc: ").or_else(|| line.strip_prefix("At end of source: "));
    if let Some((severity, code, text)) = outside.and_then(severity_and_text) {
        return Some(CompilerMessage { severity, step: None, line: None, code, text });
    }
    let (place, words) = line.split_once("): ")?;
    let (file, number) = place.rsplit_once('(')?;
    let number = number.parse().ok()?;
    let (severity, code, text) = severity_and_text(words)?;
    Some(CompilerMessage { severity, step: step_in(file), line: Some(number), code, text })
}

/// A message of ptxas that is about the kernel, not about its size.
fn assembler(line: &str) -> Option<CompilerMessage> {
    let rest = line.strip_prefix("ptxas ")?;
    let (number, words) = match rest.split_once(", line ") {
        Some((_, located)) => {
            let (number, words) = located.split_once(';')?;
            (Some(number.trim().parse().ok()?), words)
        }
        None => (None, rest),
    };
    let (word, text) = words.split_once(':')?;
    let text = text.trim();
    // `(C7510) Potential Performance Loss: ...` comes as information, but is a warning.
    let coded = text.strip_prefix('(').and_then(|text| text.split_once(')')).filter(|(code, _)| is_code(code));
    let severity = match word.trim() {
        "error" | "fatal" => Severity::Error,
        "warning" => Severity::Warning,
        _ if coded.is_some() => Severity::Warning,
        _ => return None,
    };
    let (code, text) = coded.map_or((None, text), |(code, text)| (Some(code.to_owned()), text.trim()));
    Some(CompilerMessage { severity, step: None, line: number, code, text: text.to_owned() })
}

fn is_code(text: &str) -> bool {
    text.strip_prefix('C').is_some_and(|digits| digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "postlude.cu(3): warning #177-D: variable \"unused\" was declared but never referenced\n  int \
        unused;\n      ^\n\n\
        Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n\n\
        ptxas info    : 0 bytes gmem\n\
        ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in the function 'k'\n\
        ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
        ptxas info    : Function properties for k\n\
        ptxas         .     3040 bytes stack frame, 3316 bytes spill stores, 5280 bytes spill loads\n\
        ptxas info    : Used 32 registers, used 1 barriers, 3152 bytes cumulative stack size, 4096 bytes smem\n\
        ptxas info    : Compile time = 269.056 ms\n\
        ptxas info    : Function properties for _Z1hfi\n\
        ptxas         .     0 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads\n\
        ptxas info    : Compiling entry function 'other' for 'sm_90a'\n\
        ptxas info    : Function properties for other\n\
        ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
        ptxas info    : Used 8 registers\n";

    #[test]
    fn usage_belongs_to_its_kernel() {
        let log = Log::read(GOOD);
        assert_eq!(log.kernels().collect::<Vec<_>>(), ["k", "other"]);
        let k = Resources {
            registers: 32,
            stack_bytes: 3152,
            spill_store_bytes: 3324,
            spill_load_bytes: 5296,
            static_shared_bytes: 4096,
        };
        assert_eq!(log.resources("k"), Some(k));
        assert_eq!(log.resources("other").map(|used| (used.registers, used.static_shared_bytes)), Some((8, 0)));
        assert_eq!(log.resources("absent"), None);
        assert_eq!(Log::read("").resources("k"), None);
    }

    #[test]
    fn warnings_of_both_programs_are_kept() {
        let warnings = Log::read(GOOD).warnings();
        assert_eq!(warnings.len(), 2, "{warnings:#?}");
        assert_eq!(warnings[0], "line 3: #177-D: variable \"unused\" was declared but never referenced\n  int unused;\n      ^");
        assert!(warnings[1].starts_with("C7510: Potential Performance Loss: wgmma"), "{}", warnings[1]);
        let plain = Log::read("ptxas warning : Unresolved extern variable 'x'\n").warnings();
        assert_eq!(plain, ["Unresolved extern variable 'x'"]);
    }

    #[test]
    fn errors_point_at_steps() {
        let log = "postlude:%3(7): error: identifier \"foo\" is undefined\n    p[0] = foo(1);\n           ^\n\n\
            postlude:%12(9): error: a value of type \"const char *\" cannot be assigned\n    p[1] = \"x\";\n\n\
            postlude.cu(40): error: static assertion failed\n          detected during instantiation of \"f\" at line \
            2 of postlude:%5\n\n\
            postlude.cu(1): catastrophic error: cannot open source file \"x.h\"\n\
            At end of source: error: expected a \"}\"\n\
            4 errors detected in the compilation of \"postlude.cu\".\n";
        let found: Vec<_> = Log::read(log).messages.iter().map(|m| (m.severity, m.step, m.line)).collect();
        let error = |step, line| (Severity::Error, step, line);
        let expected = [
            error(Some(3), Some(7)),
            error(Some(12), Some(9)),
            error(Some(5), Some(40)),
            error(None, Some(1)),
            error(None, None),
        ];
        assert_eq!(found, expected);
        let first = Log::read(log).messages[0].to_string();
        assert_eq!(first, "step 3, line 7: identifier \"foo\" is undefined\n    p[0] = foo(1);\n           ^");
    }

    #[test]
    fn assembler_errors_are_errors() {
        let log = "ptxas application ptx input, line 27; error   : Unknown modifier '.bar'\n\
            ptxas fatal   : Ptx assembly aborted due to errors\n\
            nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure that it is installed correctly.\n";
        let messages = Log::read(log).messages;
        assert!(messages.iter().all(|message| message.severity == Severity::Error));
        assert_eq!(messages[0].to_string(), "line 27: Unknown modifier '.bar'");
        assert_eq!(messages[1].to_string(), "Ptx assembly aborted due to errors");
        assert!(messages[2].text.starts_with("failed to open libnvrtc-builtins"));
    }

    #[test]
    fn nonsense_is_harmless() {
        for text in
            ["(", "): ", "(): error: ", "a(99999999999): error: x", "ptxas ", "ptxas x, line ; error : y", " bytes stack frame"]
        {
            let _ = Log::read(text);
        }
        let log = Log::read("ptxas info    : Compiling entry function 'k' for\nUsed 99999999999 registers, é bytes smem");
        assert_eq!(log.resources("k"), None);
    }
}
