//! The files of a cache directory, reached through examined folders: finding, opening, placing, removing.

use super::Store;
use crate::jit::fault::CacheFault;
use crate::jit::folder::{Folder, Untrusted, fresh};
use crate::jit::layout::{Found, LARGEST};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::PoisonError;

/// The prefix of a folder's name that occupied the place of a file.
const ASIDE: &str = ".aside-";

impl Store {
    /// The trusted folder that contains a path of this directory, and the path's last name. With `make`, missing
    /// folders are made.
    pub(super) fn at<'p>(&self, path: &'p Path, make: bool) -> io::Result<(Folder, &'p OsStr)> {
        let inside = path.strip_prefix(&self.root).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (Some(name), Some(folders)) = (inside.file_name(), inside.parent()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let reach = || folders.iter().try_fold(self.opened(make)?, |folder, name| folder.below(name, make));
        let folder = match reach() {
            // Nothing can be made in a removed directory, though some file systems report that it still exists.
            Err(error) if make && error.kind() == io::ErrorKind::NotFound => {
                *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = None;
                reach()?
            }
            reached => reached?,
        };
        Ok((folder, name))
    }

    /// The directory. It is opened once, examined each time, and opened again if it was removed.
    fn opened(&self, make: bool) -> io::Result<Folder> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &*opened
            && folder.is_there()?
        {
            return Ok(folder.clone());
        }
        let folder = Folder::root(&self.root, make)?;
        *opened = Some(folder.clone());
        Ok(folder)
    }

    /// Whether the directory is still trusted.
    pub fn is_trusted(&self) -> bool {
        self.opened(false).is_ok()
    }

    /// An existing file, for reading or stamping.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        let (folder, name) = self.at(path, false)?;
        folder.read(name)
    }

    /// A file for locking or stamping, made if it is missing.
    pub fn hold(&self, path: &Path) -> io::Result<File> {
        let (folder, name) = self.at(path, true)?;
        folder.hold(name)
    }

    /// The kind of a path.
    pub fn look(&self, path: &Path) -> io::Result<Metadata> {
        let (folder, name) = self.at(path, false)?;
        folder.look(name)
    }

    /// Removes a file.
    pub fn unlink(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.at(path, false)?;
        folder.remove_file(name)
    }

    /// The names of the folders of this layout; empty if they cannot be read.
    pub fn folders(&self) -> Vec<OsString> {
        let found = self.at(&self.folder(""), false).and_then(|(root, layout)| root.below(layout, false)?.names());
        self.unless_untrusted(&self.folder(""), found).unwrap_or_default()
    }

    /// Every file in the folders of a folder of this layout; empty if it cannot be read. It goes no deeper, and through
    /// no link.
    pub fn found_below(&self, name: &OsStr) -> Vec<Found> {
        let path = self.folder("").join(name);
        let folder = self.at(&path, false).and_then(|(folder, name)| folder.below(name, false));
        let Some(folder) = self.unless_untrusted(&path, folder) else { return Vec::new() };
        let mut files = Vec::new();
        for name in folder.names().unwrap_or_default() {
            let Some(shard) = self.unless_untrusted(&path.join(&name), folder.below(&name, false)) else { continue };
            for name in shard.names().unwrap_or_default() {
                let Some(metadata) = shard.look(&name).ok().filter(Metadata::is_file) else { continue };
                files.push(Found::new(shard.path().join(name), &metadata));
            }
        }
        files
    }

    /// The result of a look-up. Missing trust is reported; an unreadable file counts as absent.
    fn unless_untrusted<T>(&self, path: &Path, found: io::Result<T>) -> Option<T> {
        if let Err(error) = &found
            && Untrusted::in_error(error).is_some()
        {
            self.report_error(CacheFault::Untrusted, path, error);
        }
        found.ok()
    }

    /// A file and its content, unless that is far too large for an entry.
    pub fn contents(&self, path: &Path) -> io::Result<Option<(File, Vec<u8>)>> {
        let file = self.open_file(path)?;
        let length = file.metadata()?.len();
        if length > LARGEST {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(length as usize + 1);
        // The limit also holds if the file grows meanwhile.
        (&file).take(LARGEST).read_to_end(&mut bytes)?;
        Ok(Some((file, bytes)))
    }

    /// Renames a file, even if a folder has the name. A file cannot replace a folder, and without this every process
    /// would compile the kernel forever. The contents of such a folder belong to others, and are kept.
    pub(super) fn place(&self, folder: &Folder, temporary: &OsStr, name: &OsStr, path: &Path) -> io::Result<()> {
        match folder.rename(temporary, name) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
            outcome => return outcome,
        }
        if folder.remove_empty(name).is_ok() {
            self.report(CacheFault::InTheWay, path, &"the folder was empty, and is removed");
        } else if folder.look(name).is_ok_and(|found| found.is_dir()) {
            let aside = fresh(ASIDE);
            folder.rename(name, aside.as_ref())?;
            self.report(CacheFault::InTheWay, path, &format_args!("the folder is not empty, and is now called {aside}"));
        }
        folder.rename(temporary, name)
    }
}
