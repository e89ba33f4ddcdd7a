//! Files of the host that a copy has made, and the attributes that they get at the end.

use std::path::Path;

use rustix::fs::{IFlags, Stat, Timestamps, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;

use super::host_dir::Held;
use super::host_item::{has_no_flags, is_unsupported, timespec, to_item};
use super::{
    Finish, Item, KEPT_FLAGS, Kind, Made, Permissions, SET_GID, Xattr, has_no_room, needs_owner,
    tame,
};
use crate::failure::Result;
use crate::files::failed::host;
use crate::files::left_out::LeftOut;
use crate::files::meter::Meter;

/// A file that was made, or a directory that was there.
pub(super) struct HostMade {
    pub(super) held: Held,
    pub(super) kind: Kind,
    pub(super) umask: u32,
}

impl Made for HostMade {
    fn item(&self, path: &Path) -> Result<Item> {
        Ok(to_item(&self.stat(path)?))
    }

    fn finish(&self, path: &Path, with: &Finish, meter: &mut Meter) -> Result {
        let mut left_out = LeftOut::default();
        let owned = match with.owner {
            None => false,
            Some(owner) => self.give_away(path, owner)?,
        };
        left_out.owners += u64::from(with.owner.is_some() && !owned);
        for xattr in &with.xattrs {
            let set = (owned || !needs_owner(&xattr.0)) && self.set_xattr(path, xattr, meter)?;
            left_out.attributes += u64::from(!set);
        }
        let mode = match with.permissions {
            None => None,
            Some(_) if self.kind == Kind::Symlink => None,
            Some(Permissions::New(mode)) => {
                left_out.bits += u64::from(mode != tame(self.kind, mode));
                self.new_mode(path, mode)?
            }
            Some(Permissions::Kept(mode)) if owned => Some(mode),
            Some(Permissions::Kept(mode)) => {
                left_out.bits += u64::from(mode != tame(self.kind, mode));
                Some(tame(self.kind, mode))
            }
        };
        if let Some(mode) = mode {
            let done = self.held.set_mode(mode);
            done.map_err(|e| host("change", path, e))?;
        }
        if with.modified.is_some() || with.accessed.is_some() {
            let times = Timestamps {
                last_access: timespec(with.accessed),
                last_modification: timespec(with.modified),
            };
            let done = self.held.set_times(&times);
            done.map_err(|e| host("set the times of", path, e))?;
        }
        if let Some(flags) = with.flags {
            left_out.flags += u64::from(!self.set_flags(path, flags)?);
        }
        meter.left_out(left_out);
        Ok(())
    }
}

impl HostMade {
    pub(super) fn stat(&self, path: &Path) -> Result<Stat> {
        self.held.stat().map_err(|e| host("look at", path, e))
    }

    /// Changes the owner; returns whether the file is the new owner's. As with cp(1), a user who
    /// may not give files away sets at least the group.
    fn give_away(&self, path: &Path, (uid, gid): (u32, u32)) -> Result<bool> {
        match self.held.set_owner(Some(uid), gid) {
            Err(Errno::PERM | Errno::INVAL) => {
                // Permitted to the administrator, and to members of the group.
                let _ = self.held.set_owner(None, gid);
                let is = self.stat(path)?;
                Ok((is.st_uid, is.st_gid) == (uid, gid))
            }
            done => done.map(|()| true).map_err(|e| host("give away", path, e)),
        }
    }

    /// Sets an extended attribute; returns whether the file system supports it. An attribute for
    /// which there is no room is reported and left out.
    fn set_xattr(&self, path: &Path, (name, value): &Xattr, meter: &mut Meter) -> Result<bool> {
        match self.held.set_xattr(name, value) {
            Err(e) if is_unsupported(e) => return Ok(false),
            Err(e) => {
                let doing = format!("set the attribute {} of", name.display());
                let failure = host(&doing, path, e);
                if !has_no_room(e.raw_os_error()) {
                    return Err(failure);
                }
                meter.troubles.tell(&failure);
            }
            Ok(()) => {}
        }
        Ok(true)
    }

    /// Sets the flags of [`KEPT_FLAGS`]; returns whether that is possible.
    fn set_flags(&self, path: &Path, flags: u32) -> Result<bool> {
        let set = || -> rustix::io::Result<()> {
            let file = self.held.open()?;
            let now = match ioctl_getflags(&file) {
                // The file system has no flags, and none are needed.
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
                .map_err(|e| host("set the flags of", path, e)),
        }
    }

    /// The mode of a new directory, which was not created with it. As with cp(1), it keeps an
    /// inherited set-group-id bit, and may be sticky.
    fn new_mode(&self, path: &Path, mode: u32) -> Result<Option<u32>> {
        if self.kind != Kind::Dir {
            return Ok(None);
        }
        let inherited = self.stat(path)?.st_mode & SET_GID;
        Ok(Some((tame(self.kind, mode) & !self.umask) | inherited))
    }
}
