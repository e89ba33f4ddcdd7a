//! Hard links.

use std::sync::atomic::Ordering;

use stetfs_ondisk::ext4::dirent::FileType as EntryType;
use stetfs_ondisk::ext4::inode::LINK_MAX;

use crate::data::maps::credits::append_dir_space;
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::names::checks::{check_name, errno, may_add, may_unname};
use crate::names::dir::{NewEntry, Plan};
use crate::names::insert_credits;
use crate::quota::check_project;
use crate::space::credits::{ORPHAN, WRITE_INODE};
use crate::types::{Attr, Ctx, Ino};

impl Fs {
    /// Gives `ino` another name. The inode counts one more lookup.
    ///
    /// # Errors
    /// EEXIST; EXDEV (a directory with another project); EPERM (the inode is a directory; one of
    /// them is immutable); EMLINK above 65000 links; ENOENT when the last link is gone (and the
    /// inode was not made by [`tmpfile`](Self::tmpfile)); ESTALE when the file is deleted; ENOSPC,
    /// EROFS.
    pub fn link(&self, ctx: &Ctx, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Attr> {
        check_name(new_name)?;
        self.throttle()?;
        let dir = self.inodes.iget(new_parent)?;
        let inode = self.inodes.iget(ino)?;
        // The inode is not a directory, so the directory comes first in the lock order.
        if inode.is_dir() {
            return errno(libc::EPERM);
        }
        // An inode without a name is deleted with its last user. It must stay while this waits for
        // a lock.
        let _used = self.open_ref(inode.clone(), 0)?;
        self.names.dir_move_out(&dir)?;
        let mut dir_body = dir.body.write();
        may_add(&dir_body)?;
        let mut body = inode.body.write_nested();
        match body.links() {
            0 if inode.linkable.load(Ordering::Acquire) => may_unname(&body)?,
            0 => return errno(libc::ENOENT),
            LINK_MAX.. => return errno(libc::EMLINK),
            _ => may_unname(&body)?,
        }
        check_project(&dir_body, &body)?;
        let plan = self.names.dir_plan(&dir, &dir_body, new_name)?;
        self.link_in(
            ctx,
            (&dir, &mut dir_body, plan),
            new_name,
            (&inode, &mut body),
        )?;
        self.inodes.count_lookup(inode.ino);
        drop(body);
        drop(dir_body);
        self.settle_names(&dir)
            .and_then(|()| self.attr(&inode))
            .inspect_err(|_| self.forget(ino, 1))
    }

    /// Gives a locked inode a name in a locked directory, according to the plan.
    ///
    /// # Errors
    /// ENOSPC, EDQUOT: nothing was changed then. `Corrupt` if the inode has all links that its
    /// field can hold, which is more than [`link`](Self::link) allows. Errors of the device.
    pub(crate) fn link_in(
        &self,
        ctx: &Ctx,
        (dir, dir_body, plan): (&Inode, &mut InodeBody, Plan),
        name: &[u8],
        (inode, body): (&Inode, &mut InodeBody),
    ) -> Result<()> {
        let links = body.links().checked_add(1).ok_or_else(|| {
            let detail = format!("it has {} links", body.links());
            FsError::corrupt("inode", inode.ino.into(), detail)
        })?;
        let _room = self.space.reserve(
            append_dir_space(plan.new_blocks),
            self.space.privileged(ctx),
        )?;
        let _grows = self.promise_dir(ctx, dir_body, plan.new_blocks)?;
        let h = self
            .vol
            .begin(dir.ino, insert_credits(&plan) + 2 * WRITE_INODE + ORPHAN)?;
        let entry = NewEntry {
            ino: inode.ino,
            kind: EntryType::from_mode(u32::from(body.mode())),
            name,
        };
        self.names.dir_insert(&h, dir, dir_body, plan, entry)?;
        self.vol.whole(|| {
            if body.links() == 0 {
                self.inodes.orphan_del(&h, inode, body)?;
                inode.linkable.store(false, Ordering::Release);
            }
            body.set_links(links);
            self.names.links_changed(&h, inode, body)?;
            self.names.dir_changed(&h, dir, dir_body)
        })?;
        self.inodes
            .note_change(&h, inode, MetadataLedger::names_changed);
        self.names.note_name(&h, dir, name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::thread;

    use stetfs_testkit::Mkfs;

    use crate::error::FsError;
    use crate::testing::{fsck, mkfs, open};
    use crate::types::{Ctx, ROOT_INO};

    /// A link keeps its inode in use: the inode must not be deleted while the link waits for the
    /// lock of the directory.
    #[test]
    fn a_nameless_file_stays_while_it_is_linked() {
        let device = mkfs(16, &Mkfs::blocks(1024));
        let fs = open(&device);
        let (attr, file) = fs
            .tmpfile(&Ctx::ROOT, ROOT_INO, 0o600, 0, libc::O_RDWR)
            .unwrap();
        let root = fs.inodes.iget(ROOT_INO).unwrap();
        let inode = fs.inodes.iget(attr.ino).unwrap();
        let held = root.body.write();
        let users = Arc::strong_count(&inode);
        let linked = thread::scope(|scope| {
            let link = scope.spawn(|| fs.link(&Ctx::ROOT, attr.ino, ROOT_INO, b"name"));
            while Arc::strong_count(&inode) <= users + 1 {
                thread::yield_now();
            }
            drop(file);
            fs.forget(attr.ino, 1);
            let gone = inode.dead.load(Ordering::Acquire);
            drop(held);
            let linked = link.join().unwrap();
            assert!(!gone);
            linked
        });
        assert_eq!(linked.unwrap().nlink, 1);
        fs.forget(attr.ino, 1);
        drop((inode, root));
        fs.unmount().unwrap();
        fsck(&device);
    }

    /// The links of a log count beyond those of users, up to what an inode can hold. Damage does
    /// not end the process.
    #[test]
    fn more_links_than_an_inode_holds_are_damage() {
        let fs = open(&mkfs(16, &Mkfs::blocks(1024)));
        let (file, _) = fs
            .create(&Ctx::ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
            .unwrap();
        let set = |ino, links| fs.inodes.iget(ino).unwrap().body.write().set_links(links);
        let again = |name: &str| fs.redo_link(file.ino, ROOT_INO, name.as_bytes());
        set(file.ino, u16::MAX - 1);
        again("largest").unwrap();
        assert!(matches!(again("beyond"), Err(FsError::Corrupt { .. })));
        set(file.ino, 1);
        set(ROOT_INO, u16::MAX);
        assert!(matches!(again("in it"), Err(FsError::Corrupt { .. })));
    }
}
