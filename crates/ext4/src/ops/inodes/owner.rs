//! The owner of a new inode: its user, group and project, as its directory has it.

use stetfs_ondisk::ext4::features::RoCompat;
use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::fs::Fs;
use crate::inode::InodeBody;
use crate::state::tally::Owner;
use crate::types::Ctx;

/// `i_extra_isize` of an inode with room for a project.
const PROJECT_END: usize = 32;

impl Fs {
    pub(crate) fn has_projects(&self) -> bool {
        self.vol.geo.ro_compat.contains(RoCompat::PROJECT)
    }

    /// The project of a new inode in this directory.
    pub(crate) fn project_in(&self, dir: &InodeBody) -> u32 {
        let hands_on = self.has_projects() && dir.flags().contains(InodeFlags::PROJINHERIT);
        match hands_on && usize::from(self.vol.geo.want_extra_isize) >= PROJECT_END {
            true => dir.project().unwrap_or(0),
            false => 0,
        }
    }

    /// The group of a new inode in this directory.
    pub(crate) fn group_in(&self, ctx: &Ctx, dir: &InodeBody) -> u32 {
        let setgid = u32::from(dir.mode()) & libc::S_ISGID != 0;
        if setgid || self.vol.sb.bsd_groups() {
            dir.gid()
        } else {
            ctx.gid
        }
    }

    /// The owner of a new inode in this directory.
    pub(crate) fn owner_in(&self, ctx: &Ctx, dir: &InodeBody) -> Owner {
        [ctx.uid, self.group_in(ctx, dir), self.project_in(dir)]
    }
}
