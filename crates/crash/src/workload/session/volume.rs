//! Runs the swarm's further operations: flags, access control lists, further kinds of names,
//! copies, and the volume as a whole.

use stetfs::low::{Ctx, FsError, QuotaKind, QuotaLimits};

use super::{Done, Session};
use crate::workload::model::{ACL, access_list};
use crate::workload::op::Flag;

impl Session {
    pub(super) fn mkfifo(&self, path: &str, mode: u32) -> Done {
        let (dir, name) = self.place(path)?;
        let mode = libc::S_IFIFO | mode;
        self.forget(self.fs.mknod(&self.ctx, dir, name, mode, 0, 0))
    }

    /// Sets or clears a flag as root.
    pub(super) fn chattr(&self, path: &str, flag: Flag, on: bool) -> Done {
        let ino = self.ino(path)?;
        let old = self.fs.get_flags(ino)? & !flag.bit();
        let flags = old | if on { flag.bit() } else { 0 };
        match self.fs.set_flags(&Ctx::ROOT, ino, flags) {
            // The file's map cannot have that form.
            Err(FsError::Errno(libc::EOPNOTSUPP | libc::EINVAL)) if flag == Flag::Extents => Ok(()),
            done => done,
        }
    }

    pub(super) fn set_acl(&self, path: &str, user: u32, perms: u16) -> Done {
        let mode = self.fs.getattr(self.ino(path)?)?.mode & 0o7777;
        let (list, _) = access_list(mode, user, perms);
        self.set_xattr(path, ACL, &list)
    }

    pub(super) fn limit(&self, uid: u32, kib: u64, inodes: u64) -> Done {
        let limits = QuotaLimits {
            space_hard: kib,
            inodes_hard: inodes,
            ..QuotaLimits::default()
        };
        self.fs.set_limits(QuotaKind::User, uid, limits)
    }

    pub(super) fn project(&self, path: &str, id: u32) -> Done {
        self.fs.set_project(&Ctx::ROOT, self.ino(path)?, id)
    }

    /// Copies bytes of a file. Gives the number of bytes for which there was space.
    pub(super) fn copy(
        &self,
        from: &str,
        offset: u64,
        (to, at): (&str, u64),
        len: usize,
    ) -> Result<usize, FsError> {
        let file = self.open(from, libc::O_RDONLY)?;
        let mut bytes = vec![0; len];
        let mut read = 0;
        while read < len {
            match self
                .fs
                .read(&file, offset + read as u64, &mut bytes[read..])?
            {
                0 => return Err(FsError::Errno(libc::EIO)),
                n => read += n,
            }
        }
        self.write(to, at, &bytes)
    }

    pub(super) fn trim(&self) -> Done {
        self.fs.trim(0..u64::MAX, 0).map(drop)
    }
}
