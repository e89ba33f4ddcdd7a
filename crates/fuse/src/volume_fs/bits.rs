//! Set-user-id and set-group-id, which changes by others take away.

use stetfs::low::{Ctx, FileType, Fs, FsError, Ino, SetAttr};

use super::VolumeFs;
use crate::caller;

/// Set-user-id and set-group-id.
const SUID_SGID: u32 = 0o6000;

impl VolumeFs {
    /// What set-user-id and set-group-id mean for a change by this caller, before it is made;
    /// nothing unless they are to be taken.
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

/// What a change has to do with set-user-id and set-group-id.
#[derive(Clone, Copy, Default)]
pub(super) struct Bits {
    /// The file has one of them: the kernel has to look again.
    pub(super) any: bool,
    /// It has set-group-id, nobody of the group may execute it, and who changes it is not of the
    /// group. Then the file system itself, which does not know groups, leaves the bit, and
    /// Linux takes it (`setattr_should_drop_sgid`, since 6.2).
    pub(super) outside: bool,
}

impl Bits {
    /// After the change.
    pub(super) fn lose(self, fs: &Fs, ctx: &Ctx, ino: Ino) -> Result<(), FsError> {
        match self.outside {
            true => take_sgid(fs, ctx, ino),
            false => Ok(()),
        }
    }
}

/// Takes set-group-id away from a file, as happens when somebody outside its group sets its ACL.
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
