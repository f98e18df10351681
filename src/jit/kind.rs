//! The kinds of files of a cache directory: their names, and how to read them.

use super::admin::Holds;
use super::entry;
use super::envelope::Damage;
use super::key::CacheKey;
use super::library;
use super::note;
use super::store::{COMPILERS, LIBRARIES, NOTES, compiler_in};
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
