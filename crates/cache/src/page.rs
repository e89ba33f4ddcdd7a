//! A page: the content of one file-system block.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use stetfs_block::AlignedBuf;

/// The bytes of one block. Aligned for direct I/O.
pub struct Page(AlignedBuf);

/// A shared, immutable snapshot of a page (cache.C1).
pub type PageRef = Arc<Page>;

impl Page {
    /// A page of `len` zero bytes.
    pub fn zeroed(len: usize) -> Page {
        Page(AlignedBuf::zeroed(len))
    }

    /// A page of `len` bytes of unspecified content, for a read that either fills all of it or
    /// fails.
    pub(crate) fn to_be_read(len: usize) -> Page {
        Page(AlignedBuf::scratch(len))
    }

    /// A page of `len` bytes that begins with `bytes`, as far as they fit; the rest is zero.
    pub fn padded(len: usize, bytes: &[u8]) -> Page {
        let mut page = Page::zeroed(len);
        page.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        page
    }

    /// A page with the content of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Page {
        Page(AlignedBuf::from_slice(bytes))
    }
}

impl From<AlignedBuf> for Page {
    fn from(buf: AlignedBuf) -> Page {
        Page(buf)
    }
}

impl Deref for Page {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({} bytes)", self.0.len())
    }
}
