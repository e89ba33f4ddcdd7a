//! Attribute values in inodes of their own (feature `ea_inode`).
//!
//! A value inode belongs to no directory. It counts the entries that refer to it, and never changes
//! once an entry refers to it. Entries count, not files: files that share an attribute block share
//! its references.
//!
//! Invariants:
//! * **value.V1** A value is written while its inode is an orphan without references. The
//!   transaction that stores the entry gives it the first reference and removes it from the
//!   orphans; the transaction that removes the last entry makes it an orphan again. So after a
//!   crash it is referred to, or deleted.
//! * **value.V2** References, and whether an attribute block is shared, change with
//!   `InodeStore::values` locked.
//! * **value.V3** A thread that holds the lock of a file may read the values it refers to without
//!   further locks.
//! * **value.V4** Value inodes without references wait in `Values::leaving` until their thread
//!   holds no lock and no handle.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::xattr::{self, Attr, Value};
use stetfs_sync::{MutexGuard, RwLockWriteGuard};

use super::values::Values;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody, InodeStore};
use crate::space::credits::{ORPHAN, WRITE_INODE};
use crate::types::Ino;
use stetfs_ondisk::num::count32;

/// Credits to add or remove a reference of a value inode.
pub(super) const REFERENCE: Credits = ORPHAN + WRITE_INODE;

/// A value that an entry refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueRef {
    pub(super) ino: Ino,
    /// Bytes.
    size: u32,
    hash: u32,
    name: Vec<u8>,
}

impl ValueRef {
    /// The value of `attr`, if it has an inode of its own.
    pub(super) fn of(attr: &Attr<'_>) -> Option<ValueRef> {
        match attr.value {
            Value::Bytes(_) => None,
            Value::Inode { ino, size, hash } => Some(ValueRef {
                ino,
                size,
                hash,
                name: attr.name.to_vec(),
            }),
        }
    }

    /// The values of all these attributes.
    pub(super) fn all<'a>(attrs: impl IntoIterator<Item = &'a Attr<'a>>) -> Vec<ValueRef> {
        attrs.into_iter().filter_map(ValueRef::of).collect()
    }
}

/// A value inode that no entry refers to yet. If it is dropped without a reference, it is deleted.
pub(crate) struct NewValue {
    pub(crate) values: Arc<Values>,
    pub(crate) inode: Arc<Inode>,
    pub(crate) size: u32,
    pub(crate) hash: u32,
}

impl NewValue {
    /// The value of an entry called `name`.
    pub(crate) fn entry(&self, name: &[u8]) -> Value<'static> {
        Value::Inode {
            ino: self.inode.ino,
            size: self.size,
            hash: xattr::value_entry_hash(name, self.hash),
        }
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }
}

impl Drop for NewValue {
    fn drop(&mut self) {
        self.inode.opens.fetch_sub(1, Ordering::AcqRel);
        self.values.leave(self.inode.clone());
    }
}

impl InodeStore {
    /// Whether values may have inodes of their own.
    pub(crate) fn has_values(&self) -> bool {
        self.vol.geo.incompat.contains(Incompat::EA_INODE)
    }

    /// Locks references and shared blocks (value.V2), where there can be references.
    pub(super) fn lock_values(&self) -> Option<MutexGuard<'_, ()>> {
        self.has_values().then(|| self.values().lock.lock())
    }

    /// Blocks that a value of `size` bytes in an inode of its own adds to `i_blocks` of each file
    /// that has it.
    pub(crate) fn value_charge(&self, size: u32) -> i64 {
        let clusters = size.div_ceil(self.vol.geo.cluster_size().max(1));
        i64::from(clusters) * i64::from(self.vol.geo.ratio())
    }

    /// Blocks that these values add together.
    pub(super) fn values_charge(&self, values: &[ValueRef]) -> i64 {
        values.iter().map(|v| self.value_charge(v.size)).sum()
    }

    pub(crate) fn bad_value<T>(&self, ino: Ino, detail: &str) -> Result<T> {
        let detail = format!("inode {ino}: {detail}");
        self.vol
            .noted(Err(FsError::corrupt("attribute value", 0, detail)))
    }

    pub(crate) fn value_inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        if ino < self.vol.geo.first_ino || ino > self.vol.geo.inodes_count {
            return self.bad_value(ino, "not a number of a value");
        }
        let inode = match self.iget_special(ino) {
            Err(FsError::Errno(_)) => return self.bad_value(ino, "it is free"),
            other => other?,
        };
        if !inode.value {
            return self.bad_value(ino, "it holds no value");
        }
        Ok(inode)
    }

    /// Locks a value inode with a handle open. Only readers hold such locks, for a short time. A
    /// value inode that is being deleted is locked longer, but no entry refers to it any more.
    fn lock_value<'a>(&self, inode: &'a Inode) -> Result<RwLockWriteGuard<'a, InodeBody>> {
        loop {
            if inode.dead.load(Ordering::Acquire) {
                return self.bad_value(inode.ino, "an entry refers to it, but it is deleted");
            }
            match inode.body.try_write() {
                Some(guard) => return Ok(guard),
                None => stetfs_sync::timed::thread::yield_now(),
            }
        }
    }

    /// Gives a new value its first reference (value.V1, value.V2). Credits: [`REFERENCE`].
    pub(super) fn value_adopt(&self, h: &Handle<'_>, new: &NewValue) -> Result<()> {
        let mut body = self.lock_value(&new.inode)?;
        body.set_value_refs(1);
        body.set_links(1);
        self.orphan_del(h, &new.inode, &mut body)?;
        self.store_inode(h, &new.inode, &mut body)
    }

    /// Adds a reference to a value (value.V2). Credits: [`REFERENCE`].
    pub(super) fn value_ref(&self, h: &Handle<'_>, value: &ValueRef) -> Result<()> {
        let inode = self.value_inode(value.ino)?;
        let mut body = self.lock_value(&inode)?;
        let refs = body.value_refs();
        if refs == 0 || refs == u64::MAX {
            return self.bad_value(
                value.ino,
                &format!("its reference count {refs} cannot be increased"),
            );
        }
        body.set_value_refs(refs + 1);
        self.store_inode(h, &inode, &mut body)
    }

    /// Removes a reference to a value (value.V1, value.V2). Credits: [`REFERENCE`].
    ///
    /// # Errors
    /// EUCLEAN when the inode holds no value, or that of another attribute.
    pub(super) fn value_unref(&self, h: &Handle<'_>, value: &ValueRef) -> Result<()> {
        let inode = self.value_inode(value.ino)?;
        let mut body = self.lock_value(&inode)?;
        if !xattr::is_value_entry_hash(value.hash, &value.name, body.value_hash()) {
            return self.bad_value(value.ino, "it holds another attribute's value");
        }
        let Some(refs) = body.value_refs().checked_sub(1) else {
            return self.bad_value(
                value.ino,
                "an entry refers to it, but its reference count is 0",
            );
        };
        body.set_value_refs(refs);
        if refs == 0 {
            body.set_links(0);
            self.orphan_add(h, &inode, &mut body)?;
        }
        self.store_inode(h, &inode, &mut body)?;
        drop(body);
        if refs == 0 {
            self.values().leave(inode);
        }
        Ok(())
    }

    /// The number of values in inodes of their own that the attributes of an inode refer to.
    pub(crate) fn count_values(&self, inode: &Inode, body: &InodeBody) -> Result<i64> {
        if !self.has_values() {
            return Ok(0);
        }
        let stored = self.xattr_load(inode, body)?;
        Ok(i64::from(count32(ValueRef::all(&stored.all()?).len())))
    }

    /// Whether entries in the inode itself refer to values in other inodes.
    pub(crate) fn holds_values(&self, body: &InodeBody) -> bool {
        self.has_values()
            && body
                .xattr_area()
                .and_then(|area| xattr::Attrs::in_inode(area).ok())
                .is_some_and(|attrs| attrs.iter().any(|a| ValueRef::of(&a).is_some()))
    }
}

impl InodeBody {
    /// Whether it holds an attribute's value.
    pub(crate) fn is_value(&self) -> bool {
        self.flags().contains(InodeFlags::EA_INODE) && self.is_regular()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use stetfs_ondisk::ext4::xattr::index;
    use stetfs_testkit::Mkfs;

    use super::*;
    use crate::testing::{fsck, mkfs, open};
    use crate::types::{Ctx, ROOT_INO, XattrSet};

    /// Commits and crashes at the times when a value has no reference (value.V1).
    #[test]
    fn a_value_without_references_goes_at_the_next_mount() {
        for features in ["ea_inode", "ea_inode,orphan_file"] {
            for removed in [false, true] {
                let device = mkfs(16, &Mkfs::blocks(1024).feature(features));
                let fs = open(&device);
                let made = fs.mknod(&Ctx::ROOT, ROOT_INO, b"file", libc::S_IFREG | 0o644, 0, 0);
                let ino = made.unwrap().ino;
                fs.vol.journal.commit_all().unwrap();
                let before = (fs.space.free_blocks_count(), fs.space.free_inodes_count());
                let value = vec![5; 20_000];
                let inode = fs.inodes.iget(ino).unwrap();
                let new;
                if removed {
                    let how = XattrSet::Any;
                    fs.setxattr(&Ctx::ROOT, ino, b"user.v", &value, how)
                        .unwrap();
                    fs.remove_attribute(&Ctx::ROOT, &inode, (index::USER, b"v"))
                        .unwrap();
                } else {
                    new = fs.new_value(&inode, &inode.body.read(), &value, true);
                    assert!(new.is_ok());
                }
                fs.vol.journal.commit_all().unwrap();
                let crashed = Arc::new(device.fork());
                let fs = open(&crashed);
                assert_eq!(fs.orphans_finished().deleted, 1);
                fs.vol.journal.commit_all().unwrap();
                let after = (fs.space.free_blocks_count(), fs.space.free_inodes_count());
                assert_eq!(before, after, "{features}, {removed}");
                fs.unmount().unwrap();
                fsck(&crashed);
            }
        }
    }
}
