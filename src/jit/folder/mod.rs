//! Folders that this process trusts, and the files in them.
//!
//! A binary from the cache runs with the rights of the process. So every folder on the way to it is opened from its
//! parent, and no link is followed below the cache's directory. The opened folder itself is examined, not whatever a
//! path leads to at another moment:
//!
//! - The directory, its folders and their files belong to the user of this process or to the superuser, and no other
//!   user can write to them.
//! - A folder above the directory belongs to one of these two as well. If everybody can write to it, it is sticky, as
//!   `/tmp` is. Its group may write to it: a replacement of the directory belongs to the member who made it, and is
//!   rejected.
//! - A link above the directory, or in its place, belongs to one of these two.
//!
//! On systems other than Unix there are no owners and modes to examine, and folders are as trusted as their names.

#[cfg(not(unix))]
mod elsewhere;
mod trust;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(super) use elsewhere::Folder;
pub(super) use trust::{Untrusted, fresh};
#[cfg(unix)]
pub(super) use unix::Folder;
