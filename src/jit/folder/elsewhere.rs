//! Folders by their paths.

use super::trust::no_file;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn root(path: &Path, make: bool) -> io::Result<Self> {
        if make {
            fs::create_dir_all(path)?;
        }
        if fs::metadata(path)?.is_dir() { Ok(Self { path: path.to_owned() }) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    pub fn is_there(&self) -> io::Result<bool> {
        Ok(self.path.is_dir())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn below(&self, name: &OsStr, make: bool) -> io::Result<Self> {
        Self::root(&self.path.join(name), make)
    }

    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        if self.look(name)?.is_file() { File::open(self.path.join(name)) } else { Err(no_file()) }
    }

    pub fn hold(&self, name: &OsStr) -> io::Result<File> {
        File::options().create(true).truncate(false).write(true).open(self.path.join(name))
    }

    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        File::options().create_new(true).write(true).open(self.path.join(name))
    }

    pub fn look(&self, name: &OsStr) -> io::Result<Metadata> {
        fs::symlink_metadata(self.path.join(name))
    }

    pub fn names(&self) -> io::Result<Vec<OsString>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    pub fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_dir(self.path.join(name))
    }
}
