//! Files of the host that a copy has made, and what they are given in the end.

use std::path::PathBuf;

use rustix::fs::{IFlags, Stat, Timestamps, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;

use super::host_dir::Held;
use super::host_item::{has_no_flags, is_unsupported, timespec, to_item};
use super::{Finish, Item, KEPT_FLAGS, Kind, Made, Permissions, Xattr, needs_owner, tame};
use crate::failure::Result;
use crate::files::failed::host;
use crate::files::left_out::LeftOut;

/// Set-group-id.
const SET_GID: u32 = 0o2000;

/// Something that was made, or a directory that was there.
pub(super) struct HostMade {
    pub(super) held: Held,
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) umask: u32,
}

impl Made for HostMade {
    fn item(&self) -> Result<Item> {
        Ok(to_item(&self.stat()?))
    }

    fn finish(&self, with: &Finish) -> Result<LeftOut> {
        let mut left_out = LeftOut::default();
        let owned = match with.owner {
            None => false,
            Some(owner) => self.give_away(owner)?,
        };
        left_out.owners += u64::from(with.owner.is_some() && !owned);
        for xattr in &with.xattrs {
            let set = (owned || !needs_owner(&xattr.0)) && self.set_xattr(xattr)?;
            left_out.attributes += u64::from(!set);
        }
        let mode = match with.permissions {
            None => None,
            Some(_) if self.kind == Kind::Symlink => None,
            Some(Permissions::New(mode)) => {
                left_out.bits += u64::from(mode != tame(self.kind, mode));
                self.new_mode(mode)?
            }
            Some(Permissions::Kept(mode)) if owned => Some(mode),
            Some(Permissions::Kept(mode)) => {
                left_out.bits += u64::from(mode != tame(self.kind, mode));
                Some(tame(self.kind, mode))
            }
        };
        if let Some(mode) = mode {
            let done = self.held.set_mode(mode);
            done.map_err(|e| host("change", &self.path, e))?;
        }
        if with.modified.is_some() || with.accessed.is_some() {
            let times = Timestamps {
                last_access: timespec(with.accessed),
                last_modification: timespec(with.modified),
            };
            let done = self.held.set_times(&times);
            done.map_err(|e| host("set the times of", &self.path, e))?;
        }
        if let Some(flags) = with.flags {
            left_out.flags += u64::from(!self.set_flags(flags)?);
        }
        Ok(left_out)
    }
}

impl HostMade {
    pub(super) fn stat(&self) -> Result<Stat> {
        self.held.stat().map_err(|e| host("look at", &self.path, e))
    }

    /// Gives it away; answers whether it is the new owner's. As of cp(1), who may not give files
    /// away gives them the group at least.
    fn give_away(&self, (uid, gid): (u32, u32)) -> Result<bool> {
        match self.held.set_owner(Some(uid), gid) {
            Err(Errno::PERM | Errno::INVAL) => {
                // Only the administrator, and who is in the group.
                let _ = self.held.set_owner(None, gid);
                let is = self.stat()?;
                Ok((is.st_uid, is.st_gid) == (uid, gid))
            }
            done => done
                .map(|()| true)
                .map_err(|e| host("give away", &self.path, e)),
        }
    }

    /// Sets an extended attribute; answers whether that is possible.
    fn set_xattr(&self, (name, value): &Xattr) -> Result<bool> {
        match self.held.set_xattr(name, value) {
            Err(e) if is_unsupported(e) => Ok(false),
            done => done
                .map(|()| true)
                .map_err(|e| host("set an attribute of", &self.path, e)),
        }
    }

    /// Gives it these of [`KEPT_FLAGS`]; answers whether that is possible.
    fn set_flags(&self, flags: u32) -> Result<bool> {
        let set = || -> rustix::io::Result<()> {
            let file = self.held.open()?;
            let now = match ioctl_getflags(&file) {
                // There are no flags, nor are any needed.
                Err(_) if flags == 0 => return Ok(()),
                now => now?.bits(),
            };
            match now & KEPT_FLAGS == flags {
                true => Ok(()),
                false => {
                    let all = IFlags::from_bits_retain(now & !KEPT_FLAGS | flags);
                    ioctl_setflags(&file, all)
                }
            }
        };
        match set() {
            Err(e) if is_unsupported(e) || has_no_flags(e) || e == Errno::ACCESS => Ok(false),
            done => done
                .map(|()| true)
                .map_err(|e| host("set the flags of", &self.path, e)),
        }
    }

    /// The mode of something new that was not made with it: of a directory. It keeps the group of
    /// the one that it is in, if that does (set-group-id), and may be sticky, as of cp(1).
    fn new_mode(&self, mode: u32) -> Result<Option<u32>> {
        if self.kind != Kind::Dir {
            return Ok(None);
        }
        let inherited = self.stat()?.st_mode & SET_GID;
        Ok(Some((tame(self.kind, mode) & !self.umask) | inherited))
    }
}
