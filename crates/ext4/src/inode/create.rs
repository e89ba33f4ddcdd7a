//! New inodes.

use std::sync::Arc;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView, NewInode};

use super::body::InodeBody;
use super::{Inode, SyncPoints};
use crate::error::Result;
use crate::fs::Fs;
use crate::types::{Ctx, FileType, Ino};

impl Fs {
    /// A new inode: allocated, initialised, in the inode table and in the cache, with the links it
    /// will have (a directory 2, others 1), but no name yet. The caller holds the parent's lock.
    /// `credits::NEW_INODE`.
    ///
    /// If the operation fails later, [`abandon_inode`](Self::abandon_inode) undoes it.
    ///
    /// # Errors
    /// ENOSPC when no inode is free.
    pub(crate) fn new_inode(
        &self,
        h: &Handle<'_>,
        parent: &Inode,
        parent_body: &InodeBody,
        ctx: &Ctx,
        mode: u32,
        rdev: u64,
    ) -> Result<Arc<Inode>> {
        let (ino, generation) = self.alloc_inode(h, parent, parent_body.flags(), mode)?;
        let kind = FileType::from_mode(mode);
        let is_dir = kind == Some(FileType::Directory);
        let mut mode = mode as u16;
        let setgid = u32::from(parent_body.mode()) & libc::S_ISGID != 0;
        let gid = if setgid || self.sb.bsd_groups() {
            parent_body.gid()
        } else {
            ctx.gid
        };
        if setgid && is_dir {
            mode |= libc::S_ISGID as u16;
        }
        let mapped = matches!(
            kind,
            Some(FileType::Regular | FileType::Directory | FileType::Symlink)
        );
        let flags = parent_body.flags().inherited_by(mode);
        let mut view =
            InodeView::new(vec![0; usize::from(self.geo.inode_size)].into_boxed_slice())?;
        view.init(&NewInode {
            mode,
            uid: ctx.uid,
            gid,
            links: if is_dir { 2 } else { 1 },
            flags,
            generation,
            now: self.now(),
            project: 0,
            extra_isize: self.geo.want_extra_isize,
        });
        let mut body = InodeBody::new(view.into_inner(), &self.geo)?;
        if mapped {
            self.init_map(&mut body)?;
        } else {
            body.set_rdev(rdev);
        }
        self.store_new(h, ino, body)
    }

    /// A new inode for the value of an attribute of `owner`, checksum `hash`: without references and links. The caller
    /// makes it an orphan. `credits::NEW_INODE`.
    ///
    /// # Errors
    /// ENOSPC when no inode is free.
    pub(crate) fn new_value_inode(
        &self,
        h: &Handle<'_>,
        owner: &Inode,
        owner_body: &InodeBody,
        hash: u32,
    ) -> Result<Arc<Inode>> {
        let mode = libc::S_IFREG | 0o600;
        let (ino, generation) = self.alloc_inode(h, owner, InodeFlags::empty(), mode)?;
        let mut view =
            InodeView::new(vec![0; usize::from(self.geo.inode_size)].into_boxed_slice())?;
        view.init(&NewInode {
            mode: mode as u16,
            uid: owner_body.uid(),
            gid: owner_body.gid(),
            links: 0,
            flags: InodeFlags::EA_INODE,
            generation,
            now: self.now(),
            project: 0,
            extra_isize: self.geo.want_extra_isize,
        });
        view.set_value_hash(hash);
        view.set_value_refs(0);
        let mut body = InodeBody::new(view.into_inner(), &self.geo)?;
        self.init_map(&mut body)?;
        self.store_new(h, ino, body)
    }

    /// Puts a new inode into the inode table and into the cache.
    fn store_new(&self, h: &Handle<'_>, ino: Ino, body: InodeBody) -> Result<Arc<Inode>> {
        let is_dir = body.is_dir();
        // Without this transaction the data of a new file cannot be read back.
        let sync = SyncPoints {
            meta: h.point(),
            data: h.point(),
        };
        let inode = Arc::new(Inode::new(ino, body, sync));
        // The device may fail to read the inode table: the number goes back.
        let stored = self.store_inode(h, &inode, &mut inode.lock_new());
        if let Err(e) = stored {
            self.whole(|| self.free_inode(h, ino, is_dir))?;
            return Err(e);
        }
        // An fdatasync of a new file makes the file durable, as in the kernel.
        inode.sync.lock().data.merge(&h.point());
        self.add_inode(inode.clone());
        Ok(inode)
    }

    /// Undoes [`new_inode`](Self::new_inode) when its operation failed: the inode has no links and is
    /// an orphan; `iput`, once locks and handle are gone, deletes it. `credits::ORPHAN`.
    pub(crate) fn abandon_inode(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        body.set_links(0);
        self.orphan_add(h, inode, body)?;
        self.store_inode(h, inode, body)
    }
}
