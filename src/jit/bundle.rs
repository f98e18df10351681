//! A cache in one file, to be taken to another machine.
//!
//! ```text
//! magic    8 bytes   "\x89PLBUN\r\n"
//! format   u32       the version of this layout
//! ...                records: what it is (u8: 1 a kernel, 2 a note, 3 a compiler), length (u64), the file as it lies in the cache
//! end      u8        0
//! check    32 bytes  hash of all the above
//! ```
//!
//! The whole is verified before anything is taken, and every file in it once more by itself.

use super::cache::Cache;
use super::config::Mode;
use super::entry;
use super::key::CacheKey;
use super::note;
use super::root;
use super::store::{COMPILERS, LARGEST, LAYOUT, NOTES, files_below, is_temporary};
use super::sweep;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::Path;

const MAGIC: [u8; 8] = *b"\x89PLBUN\r\n";
const FORMAT: u32 = 1;
const HASH: u64 = 32;

const KERNEL: u8 = 1;
const NOTE: u8 = 2;
const COMPILER: u8 = 3;

/// Why a bundle could not be written or read. Nothing was imported from it then.
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
        /// Why not.
        error: io::Error,
    },
    /// The file is no bundle, or not whole.
    #[error("{path} is no sound bundle: {why}. Export it again, and copy it as a binary file")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// What went into a bundle, or came out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bundled {
    /// Kernels.
    pub kernels: u64,
    /// Notes: what tuning found.
    pub notes: u64,
    /// Compilers that the kernels are from.
    pub compilers: u64,
    /// Files that were damaged, and left out.
    pub damaged: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// A file of the cache: whose it is, in which folder, and with which extension.
fn identify(tag: u8, bytes: &[u8]) -> Option<(CacheKey, String, &'static str)> {
    match tag {
        KERNEL => entry::decode_any(bytes).ok().map(|(key, cubin)| (key, cubin.info.target.to_string(), "kernel")),
        NOTE => note::decode_any(bytes).ok().map(|(key, _)| (key, NOTES.to_owned(), "note")),
        COMPILER => note::decode_any(bytes).ok().map(|(key, _)| (key, COMPILERS.to_owned(), "note")),
        _ => None,
    }
}

impl Bundled {
    fn count(&mut self, tag: u8, bytes: usize) {
        match tag {
            KERNEL => self.kernels += 1,
            NOTE => self.notes += 1,
            _ => self.compilers += 1,
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
    /// Writes every sound kernel and note of the directory into one file, which appears complete or not at all.
    ///
    /// # Errors
    /// If there is no directory, or the file cannot be written.
    pub fn export(&self, bundle: impl AsRef<Path>) -> Result<Bundled, BundleError> {
        let store = self.store().map_err(|why| BundleError::NoDirectory(why.to_owned()))?;
        let path = std::path::absolute(bundle.as_ref()).unwrap_or_else(|_| bundle.as_ref().to_owned());
        let failed = |error| BundleError::Io { path: path.display().to_string(), error };
        let (entries, _) = sweep::census(store);
        let compilers = files_below(&store.folder(COMPILERS)).into_iter().filter(|path| !is_temporary(path));
        let tagged = entries.into_iter().map(|found| {
            let kernel = found.path.extension().is_some_and(|extension| extension == "kernel");
            (if kernel { KERNEL } else { NOTE }, found.path)
        });
        let mut files: Vec<_> = compilers.map(|path| (COMPILER, path)).chain(tagged).collect();
        files.sort();
        let mut bundled = Bundled::default();
        let mut write = || {
            let temporary = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
            let mut out = Hashing { inner: BufWriter::new(temporary), hasher: blake3::Hasher::new() };
            out.put(&MAGIC)?;
            out.put(&FORMAT.to_le_bytes())?;
            for (tag, file) in &files {
                let sound = fs::metadata(file).is_ok_and(|metadata| metadata.len() <= LARGEST);
                // Gone meanwhile is no loss.
                let Ok(bytes) = (if sound { fs::read(file) } else { Ok(Vec::new()) }) else { continue };
                if identify(*tag, &bytes).is_none() {
                    bundled.damaged += 1;
                    tracing::warn!(path = %file.display(), "a cached file is damaged; it is not exported");
                    continue;
                }
                out.put(&[*tag])?;
                out.put(&(bytes.len() as u64).to_le_bytes())?;
                out.put(&bytes)?;
                bundled.count(*tag, bytes.len());
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

    /// Takes over the kernels and notes of a bundle. Files that are there already stay as they are.
    ///
    /// Kernels are code: import only what you would run.
    ///
    /// # Errors
    /// If the directory cannot be written, or the file is not a whole bundle; nothing is imported then.
    pub fn import(&self, bundle: impl AsRef<Path>) -> Result<Bundled, BundleError> {
        let store = self.store().map_err(|why| BundleError::NoDirectory(why.to_owned()))?;
        if !store.writable() {
            return Err(BundleError::NotWritable { directory: store.root().display().to_string(), mode: self.mode() });
        }
        let path = bundle.as_ref().display().to_string();
        let failed = |error| BundleError::Io { path: path.clone(), error };
        let damaged = |why| BundleError::Damaged { path: path.clone(), why };
        let mut file = File::open(bundle.as_ref()).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let body = length.checked_sub(HASH).ok_or_else(|| damaged("it is too short"))?;
        let mut hasher = blake3::Hasher::new();
        io::copy(&mut (&file).take(body), &mut hasher).map_err(failed)?;
        let mut check = [0; HASH as usize];
        file.read_exact(&mut check).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let mut reader = BufReader::new(file.take(body));
        let mut head = [0; MAGIC.len() + 4];
        reader.read_exact(&mut head).map_err(|_| damaged("it is too short"))?;
        let (magic, format) = head.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(damaged("it does not begin like one"));
        }
        if format != FORMAT.to_le_bytes() {
            return Err(damaged("it is from another version of this library"));
        }
        if *hasher.finalize().as_bytes() != check {
            return Err(damaged("its checksum is wrong"));
        }
        root::create_private(&store.root().join(LAYOUT)).map_err(failed)?;
        let mut bundled = Bundled::default();
        loop {
            let mut tag = [0];
            reader.read_exact(&mut tag).map_err(|_| damaged("it has no end"))?;
            if tag == [0] {
                return Ok(bundled);
            }
            let mut size = [0; 8];
            reader.read_exact(&mut size).map_err(|_| damaged("it has no end"))?;
            let size = u64::from_le_bytes(size);
            if size > LARGEST {
                return Err(damaged("a file in it is too large"));
            }
            let mut bytes = Vec::new();
            if (&mut reader).take(size).read_to_end(&mut bytes).map_err(failed)? as u64 != size {
                return Err(damaged("it has no end"));
            }
            match identify(tag[0], &bytes) {
                Some((key, folder, extension)) if store.adopt(&folder, &key, extension, &bytes) => {
                    bundled.count(tag[0], bytes.len())
                }
                Some(_) => return Err(failed(io::Error::other("a file of it cannot be written to the cache"))),
                None => bundled.damaged += 1,
            }
        }
    }
}
