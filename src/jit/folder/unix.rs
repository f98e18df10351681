//! Folders as open files: every step is relative to one that was examined.

use super::trust::{no_file, untrusted};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, openat, readlinkat, renameat, statat, unlinkat};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Opens a folder only for examination and traversal, which needs no right to read it.
const THROUGH: OFlags = if cfg!(target_os = "linux") { OFlags::PATH } else { OFlags::RDONLY };

/// A pipe without a writer does not block the opening, and a terminal does not become the process's own.
const AT_ONCE: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// A name itself, whatever it links to, for this process alone.
const ITSELF: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// A folder on the way.
const FOLDER: OFlags = THROUGH.union(OFlags::DIRECTORY).union(ITSELF);

/// A folder whose names are read.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(ITSELF);

/// A file that is written, and made first.
const MADE: OFlags = OFlags::WRONLY.union(OFlags::CREATE);

/// The mode bits by which users other than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// The number of links that the system follows in one path.
const MOST_LINKS: usize = 40;

/// An opened and trusted folder.
#[derive(Clone)]
pub struct Folder {
    file: Arc<File>,
    path: PathBuf,
}

/// The kind of a name on the way to the directory.
enum PathStep {
    Folder(File),
    Link { owner: u32, to: PathBuf },
}

impl Folder {
    /// The directory at a path, with every folder above it examined. With `make`, missing folders are made, for the
    /// owner alone.
    pub fn root(path: &Path, make: bool) -> io::Result<Self> {
        let top = || Ok::<File, io::Error>(openat(CWD, "/", FOLDER, Mode::empty())?.into());
        let (mut here, mut at) = (top()?, PathBuf::from("/"));
        let mut pending: VecDeque<OsString> = names(path).collect();
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            examine_above(&here.metadata()?, &at)?;
            match step(&here, &name, make)? {
                PathStep::Folder(next) => {
                    here = next;
                    if name == ".." {
                        at.pop();
                    } else {
                        at.push(name);
                    }
                }
                PathStep::Link { owner, to } => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(io::Error::other("too many links lead to it"));
                    }
                    examine_owner(owner, &at.join(&name), "the link")?;
                    if to.is_absolute() {
                        (here, at) = (top()?, PathBuf::from("/"));
                    }
                    names(&to).rev().for_each(|name| pending.push_front(name));
                }
            }
        }
        examine(&here.metadata()?, path)?;
        Ok(Self { file: here.into(), path: path.to_owned() })
    }

    /// Whether an opened folder still exists; examines it again.
    pub fn is_there(&self) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        examine(&metadata, &self.path)?;
        Ok(metadata.nlink() > 0)
    }

    /// Its path, as the caller of the directory wrote it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in this one. With `make` it is made if it is missing.
    pub fn below(&self, name: &OsStr, make: bool) -> io::Result<Self> {
        let path = self.path.join(name);
        match step(&self.file, name, make)? {
            PathStep::Folder(file) => {
                examine(&file.metadata()?, &path)?;
                Ok(Self { file: file.into(), path })
            }
            PathStep::Link { .. } => Err(a_link(&path)),
        }
    }

    /// A file, for reading.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open(name, OFlags::RDONLY.union(AT_ONCE))?;
        examine(&file.metadata()?, &self.path.join(name))?;
        Ok(file)
    }

    /// A file for a lock or a stamp, without content; made if it is missing. Earlier versions made files that others
    /// can write to under some masks. Such a file becomes the owner's.
    pub fn hold(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open(name, MADE.union(AT_ONCE))?;
        let metadata = file.metadata()?;
        examine_owner(metadata.uid(), &self.path.join(name), "it")?;
        if metadata.mode() & OTHERS_WRITE != 0 {
            file.set_permissions(Permissions::from_mode(metadata.mode() & 0o777 & !OTHERS_WRITE))?;
        }
        Ok(file)
    }

    /// A new file, readable by the owner only.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        self.open(name, MADE.union(OFlags::EXCL))
    }

    fn open(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let opened =
            openat(&*self.file, name, flags.union(ITSELF), Mode::RUSR.union(Mode::WUSR)).map(File::from).map_err(io::Error::from);
        let file = opened.map_err(|error| if self.is_link(name) { a_link(&self.path.join(name)) } else { error })?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
    }

    fn is_link(&self, name: &OsStr) -> bool {
        let found = statat(&*self.file, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
    }

    /// The kind of a name, links included.
    pub fn look(&self, name: &OsStr) -> io::Result<Metadata> {
        File::from(openat(&*self.file, name, THROUGH.union(AT_ONCE).union(ITSELF), Mode::empty())?).metadata()
    }

    /// The names in the folder.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        let readable = openat(&*self.file, ".", LISTED, Mode::empty())?;
        for entry in Dir::read_from(&readable)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Renames a file in the folder, replacing any file of that name.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&*self.file, from, &*self.file, to)?)
    }

    /// Removes a file, or a link itself.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&*self.file, name, AtFlags::empty())?)
    }

    /// Removes a folder if it is empty.
    pub fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&*self.file, name, AtFlags::REMOVEDIR)?)
    }
}

/// The names of a path, including `..`.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::from_bytes(b"..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn step(folder: &File, name: &OsStr, make: bool) -> io::Result<PathStep> {
    let enter = || openat(folder, name, FOLDER, Mode::empty());
    let mut entered = enter().map_err(io::Error::from);
    if make && entered.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        match mkdirat(folder, name, Mode::RWXU).map_err(io::Error::from) {
            // Another process was faster.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => entered = enter().map_err(io::Error::from),
        }
    }
    let error = match entered {
        Ok(next) => return Ok(PathStep::Folder(next.into())),
        Err(error) => error,
    };
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode).is_symlink() => {
            let to = OsString::from_vec(readlinkat(folder, name, Vec::new())?.into_bytes());
            Ok(PathStep::Link { owner: found.st_uid, to: to.into() })
        }
        _ => Err(error),
    }
}

fn a_link(path: &Path) -> io::Error {
    untrusted(path, "it is a link, and the cache follows none below its directory; replace it by its target".to_owned())
}

/// The directory, or a folder below it.
fn examine(metadata: &Metadata, path: &Path) -> io::Result<()> {
    if metadata.mode() & OTHERS_WRITE != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(untrusted(path, format!("others can write to it (mode {mode:o}); call `chmod -R go-w {}`", path.display())));
    }
    examine_owner(metadata.uid(), path, "it")
}

/// A folder above the directory.
fn examine_above(metadata: &Metadata, path: &Path) -> io::Result<()> {
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        let path_of = path.display();
        let why = format!("everybody can write to this folder above the cache (mode {mode:o}); call `chmod o-w {path_of}`");
        return Err(untrusted(path, why));
    }
    let refused = match examine_owner(owner, path, "this folder above the cache") {
        Err(refused) => refused,
        Ok(()) => return Ok(()),
    };
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if is_unmapped(owner, &map) { Ok(()) } else { Err(refused) }
}

fn examine_owner(owner: u32, path: &Path, what: &str) -> io::Result<()> {
    // Most of a path belongs to the superuser.
    if owner == 0 {
        return Ok(());
    }
    let own = rustix::process::geteuid().as_raw();
    if owner == own {
        return Ok(());
    }
    let cure = "choose a directory of your own";
    Err(untrusted(path, format!("{what} belongs to user {owner}, this process to user {own}; {cure}")))
}

/// Whether an owner has no number in the process's user namespace with this map of users. In many containers the
/// machine's superuser is such an owner, and the folders above a home belong to it.
fn is_unmapped(owner: u32, map: &str) -> bool {
    const OVERFLOW: u32 = 65_534;
    const EVERYBODY: [&str; 3] = ["0", "0", "4294967295"];
    owner == OVERFLOW && !map.is_empty() && !map.split_whitespace().eq(EVERYBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_namespace_has_users_without_a_number() {
        let whole = "         0          0 4294967295\n";
        assert!(!is_unmapped(65_534, whole) && !is_unmapped(65_534, "") && !is_unmapped(1000, "1000 1000 1\n"));
        assert!(is_unmapped(65_534, "      1000       1000          1\n") && is_unmapped(65_534, "0 1000 1\n1 100000 65536\n"));
    }

    #[test]
    fn a_path_is_its_names() {
        let names: Vec<_> = names(Path::new("/a//b/./../c/")).collect();
        assert_eq!(names, ["a", "b", "..", "c"]);
    }
}
