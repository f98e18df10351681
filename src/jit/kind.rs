//! The kinds of files of a cache directory: their names, and how to read them.

use super::build::compiler_in;
use super::entry;
use super::envelope::Damage;
use super::key::CacheKey;
use super::layout::{COMPILERS, LIBRARIES, NOTES};
use super::library;
use super::note;
use crate::source::KernelInfo;
use std::ffi::OsStr;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileKind {
    Kernel,
    Note,
    /// The record of a compiler.
    Compiler,
    /// The compiler in a library of this machine.
    Library,
}

/// The content of a sound file of a cache directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Holds {
    /// A kernel.
    Kernel(Box<KernelInfo>),
    /// A note: a tuning record for a kernel.
    Note,
    /// A compiler whose kernels are present: its identity.
    Compiler(String),
    /// The compiler in a library of this machine, so that a process can know it without loading it: the compiler's
    /// identity.
    Library(String),
}

/// A file's owner, folder and content.
pub(super) struct Identified {
    pub key: CacheKey,
    pub folder: String,
    pub holds: Holds,
}

impl FileKind {
    pub const fn extension(self) -> &'static str {
        match self {
            FileKind::Kernel => "kernel",
            FileKind::Note | FileKind::Compiler | FileKind::Library => "note",
        }
    }

    /// The kind of a file that lies outside of the compilers' folder.
    pub fn of_entry(path: &Path) -> FileKind {
        let kernel = path.extension().is_some_and(|extension| extension == FileKind::Kernel.extension());
        let folder = path.ancestors().nth(2).and_then(Path::file_name);
        match kernel {
            true => FileKind::Kernel,
            false if folder.is_some_and(|folder| folder == LIBRARIES) => FileKind::Library,
            false => FileKind::Note,
        }
    }

    /// The tag of a kind in a bundle, which ends with a 0. Facts about one machine are not in bundles.
    pub const fn tag(self) -> Option<u8> {
        match self {
            FileKind::Kernel => Some(1),
            FileKind::Note => Some(2),
            FileKind::Compiler => Some(3),
            FileKind::Library => None,
        }
    }

    pub fn of_tag(tag: u8) -> Option<FileKind> {
        [FileKind::Kernel, FileKind::Note, FileKind::Compiler].into_iter().find(|kind| kind.tag() == Some(tag))
    }

    /// Reads and verifies a file's content.
    pub fn read(self, content: &[u8]) -> Result<Identified, Damage> {
        Ok(match self {
            FileKind::Kernel => {
                let (key, cubin) = entry::decode_any(content)?;
                Identified { key, folder: cubin.info.target.to_string(), holds: Holds::Kernel(Box::new(cubin.info)) }
            }
            FileKind::Note => {
                let (key, _) = note::decode_any(content)?;
                Identified { key, folder: NOTES.to_owned(), holds: Holds::Note }
            }
            FileKind::Compiler => {
                let (key, build) = compiler_in(content)?;
                Identified { key, folder: COMPILERS.to_owned(), holds: Holds::Compiler(build.identity) }
            }
            FileKind::Library => {
                let (key, library) = library::decode_any(content)?;
                Identified { key, folder: LIBRARIES.to_owned(), holds: Holds::Library(library.build.identity) }
            }
        })
    }
}

/// Whether a file has the name of a kernel or a note, sound or not. Other files in the directory belong to others.
pub(super) fn is_entry(path: &Path) -> bool {
    fn text(part: Option<&OsStr>) -> &str {
        part.and_then(OsStr::to_str).unwrap_or_default()
    }
    let key = text(path.file_stem());
    let kinds = [FileKind::Kernel, FileKind::Note].map(FileKind::extension);
    kinds.contains(&text(path.extension()))
        && key.len() == CacheKey::DIGITS
        && key.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_name_of_a_key() {
        let (key, kernel) = ("0123456789abcdef".repeat(4), |key: &str| is_entry(Path::new(&format!("x/{key}.kernel"))));
        assert!(kernel(&key) && is_entry(Path::new(&format!("{key}.note"))));
        for wrong in ["g", "G", "A", "/", ":", "`", "@", "é", ""] {
            assert!(!kernel(&format!("{}{wrong}", &key[1..])), "{wrong}");
        }
        assert!(!kernel(&format!("{key}0")) && !is_entry(Path::new(&key)) && !is_entry(Path::new(&format!("{key}.kernel.bak"))));
    }
}
