//! Making new inodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView, NewInode};

use crate::durability::MetadataLedger;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::quota::{Promise, Usage};
use crate::state::body::InodeBody;
use crate::types::{Ctx, FileType, Ino};
use stetfs_ondisk::num::low16;

/// The description of a new inode.
pub(crate) struct NewFile<'a> {
    /// Type and permissions.
    pub(crate) mode: u32,
    /// Device number of a device node.
    pub(crate) rdev: u64,
    /// The number, which must be free, and the bytes of the inode to make again.
    pub(crate) again: Option<(Ino, &'a [u8])>,
    /// The promise for the inode, and for the blocks that it has from the start.
    pub(crate) promise: &'a Promise<'a>,
}

impl Fs {
    /// Makes a new inode: allocates and initialises it, and puts it into the inode table and the
    /// cache, with the links it will have (a directory 2, others 1), but no name yet. The caller
    /// holds the parent's lock. Credits: `credits::NEW_INODE`.
    ///
    /// If the operation fails later, the caller undoes this with
    /// [`abandon_inode`](Self::abandon_inode).
    ///
    /// # Errors
    /// ENOSPC when no inode is free.
    pub(crate) fn new_inode(
        &self,
        h: &Handle<'_>,
        (parent, parent_body): (&Inode, &InodeBody),
        ctx: &Ctx,
        new: &NewFile<'_>,
    ) -> Result<Arc<Inode>> {
        let NewFile { mode, rdev, .. } = *new;
        let is_dir = FileType::from_mode(mode) == Some(FileType::Directory);
        let (ino, mut body) = match new.again {
            Some((ino, raw)) => {
                self.space.take_claimed_inode(h, ino, is_dir)?;
                (ino, self.body_again(raw, is_dir)?)
            }
            None => {
                let (ino, generation) =
                    self.space
                        .alloc_inode(h, parent, parent_body.flags(), mode)?;
                (
                    ino,
                    self.new_body(parent_body, ctx, mode, rdev, generation)?,
                )
            }
        };
        new.promise.give(&mut body);
        self.store_new(h, ino, body)
    }

    /// Makes a new inode for the value of an attribute of `owner`, with the checksum `hash`,
    /// without references and links. The caller makes it an orphan. Credits: `credits::NEW_INODE`.
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
        let (ino, generation) = self
            .space
            .alloc_inode(h, owner, InodeFlags::empty(), mode)?;
        let mut view =
            InodeView::new(vec![0; usize::from(self.vol.geo.inode_size)].into_boxed_slice())?;
        view.init(&NewInode {
            mode: low16(mode),
            uid: owner_body.uid(),
            gid: owner_body.gid(),
            links: 0,
            flags: InodeFlags::EA_INODE,
            generation,
            now: self.vol.now(),
            project: 0,
            extra_isize: self.vol.geo.want_extra_isize,
        });
        view.set_value_hash(hash);
        view.set_value_refs(0);
        let mut body = InodeBody::new(view.into_inner(), &self.vol.geo)?;
        self.data.init_map(&mut body)?;
        self.store_new(h, ino, body)
    }

    /// Puts a new inode into the inode table and into the cache.
    fn store_new(&self, h: &Handle<'_>, ino: Ino, mut body: InodeBody) -> Result<Arc<Inode>> {
        body.tally.counted = Usage {
            owner: body.owner(),
            ..Usage::default()
        };
        let is_dir = body.is_dir();
        let metadata = MetadataLedger::made_in(h.point(), self.vol.opts.canary.lax_create);
        let stored = Inode::new(ino, body, metadata).and_then(|inode| {
            let inode = Arc::new(inode);
            let mut body = inode.lock_new();
            // It must be in the cache before the table shows it: a caller that guesses its number
            // must find this inode (inode.I1).
            self.inodes.add_inode(inode.clone());
            let stored = self.inodes.store_inode(h, &inode, &mut body);
            drop(body);
            if stored.is_err() {
                inode.dead.store(true, Ordering::Release);
                inode.deleted.store(true, Ordering::Release);
                self.inodes.drop_inode(&inode);
            }
            stored.map(|()| inode)
        });
        // The device may fail to read the inode table. Then the number is freed again.
        if stored.is_err() {
            self.vol.whole(|| self.space.free_inode(h, ino, is_dir))?;
        }
        stored
    }

    fn new_body(
        &self,
        parent: &InodeBody,
        ctx: &Ctx,
        mode: u32,
        rdev: u64,
        generation: u32,
    ) -> Result<InodeBody> {
        let kind = FileType::from_mode(mode);
        let is_dir = kind == Some(FileType::Directory);
        let mut mode = low16(mode);
        if u32::from(parent.mode()) & libc::S_ISGID != 0 && is_dir {
            mode |= low16(libc::S_ISGID);
        }
        let mut view =
            InodeView::new(vec![0; usize::from(self.vol.geo.inode_size)].into_boxed_slice())?;
        view.init(&NewInode {
            mode,
            uid: ctx.uid,
            gid: self.group_in(ctx, parent),
            links: if is_dir { 2 } else { 1 },
            flags: parent.flags().inherited_by(mode),
            generation,
            now: self.vol.now(),
            project: self.project_in(parent),
            extra_isize: self.vol.geo.want_extra_isize,
        });
        let mut body = InodeBody::new(view.into_inner(), &self.vol.geo)?;
        match kind {
            Some(FileType::Regular | FileType::Directory | FileType::Symlink) => {
                self.data.init_map(&mut body)?;
            }
            _ => body.set_rdev(rdev),
        }
        Ok(body)
    }

    /// The body of a file or directory from these bytes, without blocks and attributes outside it.
    fn body_again(&self, raw: &[u8], is_dir: bool) -> Result<InodeBody> {
        let mut body = InodeBody::new(raw.into(), &self.vol.geo)?;
        body.set_links(if is_dir { 2 } else { 1 });
        body.set_blocks(0)?;
        body.set_file_acl(0);
        body.set_dtime(0);
        let mut flags = body.flags();
        flags.remove(InodeFlags::INDEX);
        body.set_flags(flags);
        if !body.is_inline() {
            body.set_size(0);
            self.data.init_map(&mut body)?;
        }
        Ok(body)
    }

    /// Undoes [`new_inode`](Self::new_inode) after its operation failed: the inode has no links and
    /// is an orphan. The caller calls `iput` without locks and handle to delete it. Credits:
    /// `credits::ORPHAN`.
    pub(crate) fn abandon_inode(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        body.set_links(0);
        // An inode that is on no list would leak.
        self.vol.whole_or_damaged(|| {
            self.inodes.orphan_add(h, inode, body)?;
            self.inodes.store_inode(h, inode, body)
        })
    }
}
