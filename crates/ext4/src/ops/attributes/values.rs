//! Values in inodes of their own: reading and making them within operations.

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::credits::{NEW_INODE, ORPHAN, WRITE_INODE};
use crate::xattr::value::NewValue;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stetfs_ondisk::ext4::xattr::{self, Attr, VALUE_MAX, Value};

impl Fs {
    /// The value of an attribute of a file whose lock is held.
    ///
    /// # Errors
    /// EUCLEAN when the inode does not hold the value, or holds another one.
    pub(crate) fn value_of(&self, attr: &Attr<'_>) -> Result<Vec<u8>> {
        let (ino, size, entry_hash) = match attr.value {
            Value::Bytes(bytes) => return Ok(bytes.to_vec()),
            Value::Inode { ino, size, hash } => (ino, size, hash),
        };
        let inode = self.inodes.value_inode(ino)?;
        // The content never changes (value.V3), so the lock is released before the read from the
        // device.
        let body = InodeBody::new(inode.body.read_nested().bytes().into(), &self.vol.geo)?;
        let len = usize::try_from(size).ok().filter(|n| *n <= VALUE_MAX);
        let Some(len) = len.filter(|_| body.size() == u64::from(size)) else {
            return self
                .inodes
                .bad_value(ino, &format!("{} bytes instead of {size}", body.size()));
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

    /// Writes a value into a new inode, which is an orphan (value.V1). The new inode gets owner and
    /// group of `owner`. The caller holds the lock of `owner` and no handle.
    ///
    /// # Errors
    /// ENOSPC; errors of the device.
    pub(crate) fn new_value(
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
        let (mut h, inode) =
            self.space
                .begin_with_inode(owner.ino, NEW_INODE + ORPHAN + WRITE_INODE, |h| {
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
}
