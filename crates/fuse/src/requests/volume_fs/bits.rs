//! Set-user-id and set-group-id, which changes by other users clear.

use stetfs::low::{Ctx, FileType, Fs, FsError, Ino, SetAttr};

use super::VolumeFs;
use crate::helper::caller;

/// Set-user-id and set-group-id.
const SUID_SGID: u32 = 0o6000;

impl VolumeFs {
    /// The effect of a change by this caller on set-user-id and set-group-id, determined before the
    /// change; none unless `kill`.
    pub(super) fn bits(&self, fs: &Fs, ctx: &Ctx, ino: Ino, kill: bool) -> Bits {
        let attr = match kill {
            true => fs.getattr(ino).ok(),
            false => None,
        };
        let Some(attr) = attr.filter(|a| a.kind == FileType::Regular) else {
            return Bits::default();
        };
        let sgid = attr.mode & (libc::S_ISGID | libc::S_IXGRP);
        Bits {
            any: attr.mode & SUID_SGID != 0,
            outside: sgid == libc::S_ISGID
                && (self.options.idmap || !caller::is_of_group(ctx, attr.gid)),
        }
    }
}

/// The effect of a change on set-user-id and set-group-id.
#[derive(Clone, Copy, Default)]
pub(super) struct Bits {
    /// Whether the file has one of them: the kernel has to request its attributes again.
    pub(super) any: bool,
    /// Whether the file has set-group-id without execute permission for the group, and the caller
    /// is not in the group. The file system, which does not know groups, keeps the bit then, but
    /// Linux clears it (`setattr_should_drop_sgid`, since 6.2).
    pub(super) outside: bool,
}

impl Bits {
    /// Applies it after the change.
    pub(super) fn lose(self, fs: &Fs, ctx: &Ctx, ino: Ino) -> Result<(), FsError> {
        match self.outside {
            true => take_sgid(fs, ctx, ino),
            false => Ok(()),
        }
    }
}

/// Clears set-group-id of a file, as when a user outside its group sets its ACL.
pub(super) fn take_sgid(fs: &Fs, ctx: &Ctx, ino: Ino) -> Result<(), FsError> {
    let mode = fs.getattr(ino)?.mode;
    if mode & libc::S_ISGID == 0 {
        return Ok(());
    }
    let set = SetAttr {
        mode: Some(mode & 0o7777 & !libc::S_ISGID),
        ..Default::default()
    };
    fs.setattr(ctx, ino, &set).map(drop)
}
