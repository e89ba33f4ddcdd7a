//! Attribute values in inodes of their own (feature `ea_inode`).
//!
//! Such an inode belongs to no directory. It counts the entries that refer to it, and is never
//! changed once it is referred to. Entries count, not files: files that share an attribute block
//! share its references.
//!
//! Invariants:
//! * **value.V1** A value is written while its inode is an orphan without references. The
//!   transaction that stores the entry gives it the first reference and takes it off the orphans;
//!   the one that removes the last entry makes it an orphan again. So after a crash it is referred
//!   to, or deleted.
//! * **value.V2** References, and whether an attribute block is shared, change with
//!   `InodeStore::values` locked.
//! * **value.V3** Who holds the lock of a file may read the values it refers to without further
//!   locks.
//! * **value.V4** Value inodes that lost, or never got, their references wait in `Values::leaving`
//!   until nobody of their thread holds a lock or a handle.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::xattr::{self, Attr, VALUE_MAX, Value};
use stetfs_sync::{MutexGuard, RwLockWriteGuard};

use super::values::Values;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, InodeStore};
use crate::space::credits::{NEW_INODE, ORPHAN, WRITE_INODE};
use crate::types::Ino;
use stetfs_ondisk::num::count32;

/// Credits to give a value inode a reference, or to take one.
pub(super) const REFERENCE: Credits = ORPHAN + WRITE_INODE;

/// A value that an entry refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueRef {
    pub(super) ino: Ino,
    /// Bytes.
    size: u32,
    hash: u32,
    name: Vec<u8>,
}

impl ValueRef {
    /// What `attr` refers to, if its value has an inode of its own.
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

    /// Of all these attributes.
    pub(super) fn all<'a>(attrs: impl IntoIterator<Item = &'a Attr<'a>>) -> Vec<ValueRef> {
        attrs.into_iter().filter_map(ValueRef::of).collect()
    }
}

/// A value inode that no entry refers to yet. Dropped without having been given a reference, it is
/// deleted.
pub(crate) struct NewValue {
    values: Arc<Values>,
    inode: Arc<Inode>,
    size: u32,
    hash: u32,
}

impl NewValue {
    /// The value of an entry called `name`.
    pub(super) fn entry(&self, name: &[u8]) -> Value<'static> {
        Value::Inode {
            ino: self.inode.ino,
            size: self.size,
            hash: xattr::value_entry_hash(name, self.hash),
        }
    }

    /// Bytes.
    pub(super) fn size(&self) -> u32 {
        self.size
    }
}

impl Drop for NewValue {
    fn drop(&mut self) {
        self.inode.opens.fetch_sub(1, Ordering::AcqRel);
        self.values.leave(self.inode.clone());
    }
}

impl Fs {
    /// The value of an attribute of a file whose lock is held.
    ///
    /// # Errors
    /// EUCLEAN when the inode that should hold it does not, or holds another one.
    pub(super) fn value_of(&self, attr: &Attr<'_>) -> Result<Vec<u8>> {
        let (ino, size, entry_hash) = match attr.value {
            Value::Bytes(bytes) => return Ok(bytes.to_vec()),
            Value::Inode { ino, size, hash } => (ino, size, hash),
        };
        let inode = self.inodes.value_inode(ino)?;
        // The content stays as it is (value.V3); the lock is given back before the device is waited
        // for.
        let body = InodeBody::new(inode.body.read_nested().bytes().into(), &self.vol.geo)?;
        let len = usize::try_from(size).ok().filter(|n| *n <= VALUE_MAX);
        let Some(len) = len.filter(|_| body.size() == u64::from(size)) else {
            return self
                .inodes
                .bad_value(ino, &format!("{} bytes where {size} belong", body.size()));
        };
        let mut value = vec![0; len];
        self.data.read_range(&inode, &body, 0, &mut value)?;
        let hash = body.value_hash();
        if xattr::value_hash(&value, self.vol.geo.csum_seed) != hash {
            return self.inodes.bad_value(ino, "checksum does not match");
        }
        if !xattr::is_value_entry_hash(entry_hash, attr.name, hash) {
            return self
                .inodes
                .bad_value(ino, "it holds another attribute's value");
        }
        Ok(value)
    }

    /// Writes a value into a new inode, which is an orphan (value.V1). The caller holds the lock of
    /// `owner`, from which it takes owner and group, and no handle.
    ///
    /// # Errors
    /// ENOSPC; the device's.
    pub(super) fn new_value(
        &self,
        owner: &Inode,
        owner_body: &InodeBody,
        value: &[u8],
        privileged: bool,
    ) -> Result<NewValue> {
        let size = u32::try_from(value.len()).map_err(|_| FsError::Errno(libc::E2BIG))?;
        let _room = self
            .space
            .reserve(self.data.value_space(value.len()), privileged)?;
        let hash = xattr::value_hash(value, self.vol.geo.csum_seed);
        let (mut h, inode) = self
            .space
            .begin_with_inode(NEW_INODE + ORPHAN + WRITE_INODE, |h| {
                self.new_value_inode(h, owner, owner_body, hash)
            })?;
        inode.opens.fetch_add(1, Ordering::AcqRel);
        let new = NewValue {
            values: Arc::clone(self.inodes.values()),
            inode,
            size,
            hash,
        };
        let mut body = new.inode.lock_new();
        self.inodes.orphan_add(&h, &new.inode, &mut body)?;
        self.data
            .write_value(&mut h, &new.inode, &mut body, value)?;
        drop(body);
        Ok(new)
    }

    /// Deletes value inodes that nothing refers to (value.V4). No lock and no handle may be held.
    pub(crate) fn reap_values(&self) {
        for inode in self.inodes.values().take() {
            self.iput(&inode);
        }
    }
}

impl InodeStore {
    /// Whether values may have inodes of their own.
    pub(super) fn has_values(&self) -> bool {
        self.vol.geo.incompat.contains(Incompat::EA_INODE)
    }

    /// Locks references and shared blocks (value.V2), where there can be references.
    pub(super) fn lock_values(&self) -> Option<MutexGuard<'_, ()>> {
        self.has_values().then(|| self.values().lock.lock())
    }

    /// What a value of `size` bytes in an inode of its own adds to `i_blocks` of each file that has
    /// it, in blocks.
    pub(super) fn value_charge(&self, size: u32) -> i64 {
        let clusters = size.div_ceil(self.vol.geo.cluster_size().max(1));
        i64::from(clusters) * i64::from(self.vol.geo.ratio())
    }

    /// What the values of `attrs` together add.
    pub(super) fn values_charge(&self, values: &[ValueRef]) -> i64 {
        values.iter().map(|v| self.value_charge(v.size)).sum()
    }

    fn bad_value<T>(&self, ino: Ino, detail: &str) -> Result<T> {
        let detail = format!("inode {ino}: {detail}");
        self.vol
            .noted(Err(FsError::corrupt("attribute value", 0, detail)))
    }

    fn value_inode(&self, ino: Ino) -> Result<Arc<Inode>> {
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

    /// Locks a value inode with a handle open. Only readers hold such locks, and shortly; one that
    /// is being deleted is held longer, and nobody may refer to it any more.
    fn lock_value<'a>(&self, inode: &'a Inode) -> Result<RwLockWriteGuard<'a, InodeBody>> {
        loop {
            if inode.dead.load(Ordering::Acquire) {
                return self.bad_value(inode.ino, "it is referred to, and deleted");
            }
            match inode.body.try_write() {
                Some(guard) => return Ok(guard),
                None => std::thread::yield_now(),
            }
        }
    }

    /// Gives a new value its first reference (value.V1, value.V2). [`REFERENCE`].
    pub(super) fn value_adopt(&self, h: &Handle<'_>, new: &NewValue) -> Result<()> {
        let mut body = self.lock_value(&new.inode)?;
        body.set_value_refs(1);
        body.set_links(1);
        self.orphan_del(h, &new.inode, &mut body)?;
        self.store_inode(h, &new.inode, &mut body)
    }

    /// One entry more refers to a value (value.V2). [`REFERENCE`].
    pub(super) fn value_ref(&self, h: &Handle<'_>, value: &ValueRef) -> Result<()> {
        let inode = self.value_inode(value.ino)?;
        let mut body = self.lock_value(&inode)?;
        let refs = body.value_refs();
        if refs == 0 || refs == u64::MAX {
            return self.bad_value(value.ino, &format!("{refs} references, and one more"));
        }
        body.set_value_refs(refs + 1);
        self.store_inode(h, &inode, &mut body)
    }

    /// One entry fewer refers to a value (value.V1, value.V2). [`REFERENCE`].
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
            return self.bad_value(value.ino, "it is referred to, and counts no reference");
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

    /// To how many values in inodes of their own the attributes of an inode refer.
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

    /// A commit, and a crash after it, in the moments when a value has no reference (value.V1).
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
