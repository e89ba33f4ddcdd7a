//! Inheritance of ACLs from a directory by a new inode.

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::inode::GOOD_OLD_INODE_SIZE;

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::ops::attributes::acl::AclKind;
use crate::xattr::layout::Layout;

/// Mode and ACLs of a new inode.
pub(crate) struct Inherited {
    /// Type and permissions.
    pub(crate) mode: u32,
    layout: Layout,
}

impl Inherited {
    /// Credits of [`Fs::set_inherited`].
    pub(crate) fn credits(&self) -> Credits {
        self.layout.credits()
    }

    /// No ACLs, only the requested mode.
    pub(crate) fn nothing(mode: u32) -> Inherited {
        Inherited {
            mode,
            layout: Layout::default(),
        }
    }

    /// The number of values in inodes of their own.
    pub(crate) fn values(&self) -> u64 {
        self.layout.values()
    }

    /// Blocks to reserve.
    pub(crate) fn blocks(&self) -> u64 {
        self.layout.blocks()
    }
}

impl Fs {
    /// Plans mode and ACLs of an inode that is to be made with `mode` in a directory. The umask is
    /// applied only if the directory has no default ACL.
    ///
    /// # Errors
    /// ENOSPC if the ACLs fit neither the inode nor a block; damage.
    pub(crate) fn inherit_acl(
        &self,
        dir: &Inode,
        dir_body: &InodeBody,
        mode: u32,
        umask: u32,
    ) -> Result<Inherited> {
        let kind = mode & libc::S_IFMT;
        if kind == libc::S_IFLNK {
            return Ok(Inherited::nothing(mode));
        }
        let Some(default) = self.acl_load(dir, dir_body, AclKind::Default)? else {
            return Ok(Inherited::nothing(mode & !(umask & 0o777)));
        };
        let (access, mode) = default.inherit(mode);
        let access = access.map(|acl| acl.to_disk());
        let default = (kind == libc::S_IFDIR).then(|| default.to_disk());
        let lists = [(AclKind::Default, &default), (AclKind::Access, &access)];
        let lists: Vec<(u8, &[u8])> = lists
            .into_iter()
            .filter_map(|(kind, list)| Some((kind.index(), list.as_deref()?)))
            .collect();
        let room = usize::from(self.vol.geo.inode_size)
            .saturating_sub(GOOD_OLD_INODE_SIZE + usize::from(self.vol.geo.want_extra_isize));
        let layout = self.xattr_plan_new(dir, dir_body, room, &lists)?;
        Ok(Inherited { mode, layout })
    }

    /// Stores the ACLs of a new inode. The caller writes the inode.
    pub(crate) fn set_inherited(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        inherited: &Inherited,
    ) -> Result<()> {
        self.inodes.xattr_apply(h, inode, body, &inherited.layout)
    }
}
