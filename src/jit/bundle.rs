//! A cache in one file, for another machine.
//!
//! ```text
//! magic    8 bytes   "\x89PLBUN\r\n"
//! format   u32       the version of this layout
//! ...                records: kind (u8: 1 a kernel, 2 a note, 3 a compiler), length (u64), the cache's file
//! end      u8        0
//! check    32 bytes  hash of all the above
//! ```
//!
//! The whole bundle is verified before any of it is imported, and every file in it once more by itself.

use super::cache::Cache;
use super::environment::Mode;
use super::kind::{FileKind, Identified};
use super::layout::LARGEST;
use super::sweep;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

const MAGIC: [u8; 8] = *b"\x89PLBUN\r\n";
const FORMAT: u32 = 1;
const HASH: u64 = 32;

/// Why a bundle could not be written or read. Nothing was imported from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The cache has no directory.
    #[error("the cache has no directory: {0}")]
    NoDirectory(String),
    /// The cache cannot be written.
    #[error("the cache in {directory} is not written to (mode `{mode}`): import into a directory of your own in mode `rw`")]
    NotWritable {
        /// Its directory.
        directory: String,
        /// Its mode.
        mode: Mode,
    },
    /// The file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The file is not a bundle, or is incomplete.
    #[error("{path} is not a sound bundle: {why}. Export it again, and copy it as a binary file")]
    Damaged {
        /// The file.
        path: String,
        /// The fault.
        why: &'static str,
    },
}

/// The contents of a bundle that was written or read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bundled {
    /// Kernels.
    pub kernels: u64,
    /// Notes: tuning records.
    pub notes: u64,
    /// Compilers of the kernels.
    pub compilers: u64,
    /// Damaged files, which were left out.
    pub damaged: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Bundled {
    fn count(&mut self, kind: FileKind, bytes: usize) {
        match kind {
            FileKind::Kernel => self.kernels += 1,
            FileKind::Note => self.notes += 1,
            FileKind::Compiler => self.compilers += 1,
            FileKind::Library => {}
        }
        self.bytes += bytes as u64;
    }
}

/// Writes and hashes.
struct Hashing<W> {
    inner: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Hashing<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl Cache {
    /// Writes every sound kernel and note of the directory into one file. The file appears complete or not at all.
    ///
    /// # Errors
    /// If there is no directory, or the file cannot be written.
    pub fn export(&self, bundle: impl AsRef<Path>) -> Result<Bundled, BundleError> {
        let store = self.store().map_err(|why| BundleError::NoDirectory(why.to_owned()))?;
        let path = std::path::absolute(bundle.as_ref()).unwrap_or_else(|_| bundle.as_ref().to_owned());
        let failed = |error| BundleError::Io { path: path.display().to_string(), error };
        let (entries, _) = sweep::census(store);
        let compilers = store.compiler_files().into_iter();
        let entries = entries.into_iter().map(|found| (FileKind::of_entry(&found.path), found.path));
        let mut files: Vec<_> = compilers.map(|path| (FileKind::Compiler, path)).chain(entries).collect();
        files.sort();
        let mut bundled = Bundled::default();
        let mut write = || {
            let temporary = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
            let mut out = Hashing { inner: BufWriter::new(temporary), hasher: blake3::Hasher::new() };
            out.put(&MAGIC)?;
            out.put(&FORMAT.to_le_bytes())?;
            for (kind, file) in &files {
                let Some(tag) = kind.tag() else { continue };
                // A file that vanished meanwhile is not an error.
                let Ok(found) = store.contents(file) else { continue };
                let bytes = found.map_or_else(Vec::new, |(_, bytes)| bytes);
                if kind.read(&bytes).is_err() {
                    bundled.damaged += 1;
                    tracing::warn!(path = %file.display(), "a cached file is damaged; it is not exported");
                    continue;
                }
                out.put(&[tag])?;
                out.put(&(bytes.len() as u64).to_le_bytes())?;
                out.put(&bytes)?;
                bundled.count(*kind, bytes.len());
            }
            out.put(&[0])?;
            let check = *out.hasher.finalize().as_bytes();
            out.put(&check)?;
            out.inner.into_inner().map_err(io::IntoInnerError::into_error)?.persist(&path)?;
            Ok(())
        };
        write().map_err(failed)?;
        Ok(bundled)
    }

    /// Imports the kernels and notes of a bundle. Sound files that are already present stay unchanged.
    ///
    /// Kernels are code: import only those that you would run.
    ///
    /// # Errors
    /// If the directory cannot be written, or the file is not a complete bundle. Nothing is imported then.
    pub fn import(&self, bundle: impl AsRef<Path>) -> Result<Bundled, BundleError> {
        let store = self.store().map_err(|why| BundleError::NoDirectory(why.to_owned()))?;
        if !self.writable() {
            return Err(BundleError::NotWritable { directory: store.root().display().to_string(), mode: self.mode() });
        }
        let path = bundle.as_ref().display().to_string();
        let mut bundled = Bundled::default();
        let read = File::open(bundle.as_ref()).map_err(BundleFault::Io).and_then(|file| {
            read(file, |tag, bytes| match FileKind::of_tag(tag).map(|kind| (kind, kind.read(&bytes))) {
                Some((kind, Ok(Identified { key, folder, .. }))) => {
                    if !store.adopt(&folder, &key, kind, &bytes) {
                        return Err(io::Error::other("a file of it cannot be written to the cache"));
                    }
                    bundled.count(kind, bytes.len());
                    Ok(())
                }
                _ => {
                    bundled.damaged += 1;
                    Ok(())
                }
            })
        });
        read.map(|()| bundled).map_err(|fault| match fault {
            BundleFault::Io(error) => BundleError::Io { path, error },
            BundleFault::Damaged(why) => BundleError::Damaged { path, why },
        })
    }
}

/// Why a bundle is rejected.
#[derive(Debug)]
pub(super) enum BundleFault {
    Io(io::Error),
    Damaged(&'static str),
}

/// Verifies the whole bundle, and then passes its tags and files on. Their contents are not verified yet.
pub(super) fn read<R: Read + Seek>(
    mut bundle: R,
    mut take: impl FnMut(u8, Vec<u8>) -> io::Result<()>,
) -> Result<(), BundleFault> {
    let records = verify(&mut bundle)?;
    let mut reader = BufReader::new(bundle.take(records));
    let no_end = |_| BundleFault::Damaged("it has no end");
    loop {
        let mut tag = [0];
        reader.read_exact(&mut tag).map_err(no_end)?;
        if tag == [0] {
            return Ok(());
        }
        let mut size = [0; 8];
        reader.read_exact(&mut size).map_err(no_end)?;
        let size = u64::from_le_bytes(size);
        if size > LARGEST {
            return Err(BundleFault::Damaged("a file in it is too large"));
        }
        // The buffer grows with the data, not with the announced size.
        let mut bytes = Vec::new();
        if (&mut reader).take(size).read_to_end(&mut bytes).map_err(BundleFault::Io)? as u64 != size {
            return Err(BundleFault::Damaged("it has no end"));
        }
        take(tag[0], bytes).map_err(BundleFault::Io)?;
    }
}

/// Compares a bundle with its checksum, and stops before its first record. Returns the bytes of all records.
fn verify<R: Read + Seek>(bundle: &mut R) -> Result<u64, BundleFault> {
    const HEAD: usize = MAGIC.len() + 4;
    let short = || BundleFault::Damaged("it is too short");
    let length = bundle.seek(SeekFrom::End(0)).map_err(BundleFault::Io)?;
    let records = length.checked_sub(HASH + HEAD as u64).ok_or_else(short)?;
    bundle.rewind().map_err(BundleFault::Io)?;
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut bundle.take(length - HASH), &mut hasher).map_err(BundleFault::Io)?;
    let mut check = [0; HASH as usize];
    bundle.read_exact(&mut check).map_err(BundleFault::Io)?;
    bundle.rewind().map_err(BundleFault::Io)?;
    let mut head = [0; HEAD];
    bundle.read_exact(&mut head).map_err(BundleFault::Io)?;
    let (magic, format) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(BundleFault::Damaged("it does not begin like one"));
    }
    if format != FORMAT.to_le_bytes() {
        return Err(BundleFault::Damaged("it is from another version of this library"));
    }
    if *hasher.finalize().as_bytes() != check {
        return Err(BundleFault::Damaged("its checksum is wrong"));
    }
    Ok(records)
}
