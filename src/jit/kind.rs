//! The kinds of files of a cache directory: their names, and reading what is in one.

use super::admin::Holds;
use super::entry;
use super::envelope::Damage;
use super::key::CacheKey;
use super::note;
use super::store::{COMPILERS, NOTES, compiler_in};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileKind {
    Kernel,
    Note,
    /// What is known of a compiler.
    Compiler,
}

/// Whose a file is, in which folder it belongs, and what it holds.
pub(super) struct Identified {
    pub key: CacheKey,
    pub folder: String,
    pub holds: Holds,
}

impl FileKind {
    pub const fn extension(self) -> &'static str {
        match self {
            FileKind::Kernel => "kernel",
            FileKind::Note | FileKind::Compiler => "note",
        }
    }

    /// The kind of a file that lies outside of the compilers' folder.
    pub fn of_entry(path: &Path) -> FileKind {
        let kernel = path.extension().is_some_and(|extension| extension == FileKind::Kernel.extension());
        if kernel { FileKind::Kernel } else { FileKind::Note }
    }

    /// What stands for it in a bundle, whose end is a 0.
    pub const fn tag(self) -> u8 {
        match self {
            FileKind::Kernel => 1,
            FileKind::Note => 2,
            FileKind::Compiler => 3,
        }
    }

    pub fn of_tag(tag: u8) -> Option<FileKind> {
        [FileKind::Kernel, FileKind::Note, FileKind::Compiler].into_iter().find(|kind| kind.tag() == tag)
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
        })
    }
}
