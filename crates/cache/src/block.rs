//! A cached block: its number, its page, and the journal's notes about it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use stetfs_block::{BlockDevice, Result};
use stetfs_sync::plain::{
    RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU8, Ordering},
};

use crate::page::{Page, PageRef};

/// One block in the cache. `X` is the journal's state of it (the journal head).
pub struct Block<X> {
    nr: u64,
    inner: RwLock<Inner<X>>,
    /// A value that says which check the content has passed (for example a checksum); 0 after every
    /// load.
    verified: AtomicU8,
}

struct Inner<X> {
    /// `None` until loaded or created (cache.C3).
    page: Option<PageRef>,
    head: X,
}

impl<X: Default> Block<X> {
    pub(crate) fn new(nr: u64) -> Block<X> {
        Block {
            nr,
            inner: RwLock::new(Inner {
                page: None,
                head: X::default(),
            }),
            verified: AtomicU8::new(0),
        }
    }
}

impl<X> Block<X> {
    /// The block's number on the volume.
    pub fn nr(&self) -> u64 {
        self.nr
    }

    /// A snapshot of the content; `None` before the block was loaded or created.
    pub fn page(&self) -> Option<PageRef> {
        self.inner.read().page.clone()
    }

    /// A read guard on the content: a short look that leaves the reference count alone.
    pub fn peek(&self) -> Option<impl Deref<Target = [u8]> + '_> {
        RwLockReadGuard::try_map(self.inner.read(), |i| i.page.as_ref().map(|p| &***p)).ok()
    }

    /// Exclusive access to content and journal head. Keep it short: one mutation.
    pub fn write(&self) -> BlockWrite<'_, X> {
        BlockWrite {
            block: self,
            inner: self.inner.write(),
        }
    }

    /// The check that the content has passed since it was loaded, as the owner set it; 0 for none.
    pub fn verified(&self) -> u8 {
        self.verified.load(Ordering::Acquire)
    }

    /// Records that the content passed a check (for example, "valid as a directory block").
    pub fn set_verified(&self, what: u8) {
        self.verified.store(what, Ordering::Release);
    }

    /// Loads the content from `device` unless it is there already, and returns whether it did.
    /// Concurrent callers share one read.
    pub(crate) fn load(&self, device: &dyn BlockDevice, block_size: usize) -> Result<bool> {
        if self.inner.read().page.is_some() {
            return Ok(false);
        }
        let mut inner = self.inner.write();
        if inner.page.is_some() {
            return Ok(false);
        }
        let mut page = Page::to_be_read(block_size);
        device.read(self.nr * block_size as u64, &mut page)?;
        inner.page = Some(Arc::new(page));
        Ok(true)
    }

    /// Sets an unloaded block's content, as the caller read it from the device.
    pub(crate) fn fill(&self, page: Page) {
        let mut inner = self.inner.write();
        if inner.page.is_none() {
            inner.page = Some(Arc::new(page));
        }
    }
}

/// Exclusive access to a block's content and journal head.
pub struct BlockWrite<'a, X> {
    block: &'a Block<X>,
    inner: RwLockWriteGuard<'a, Inner<X>>,
}

impl<X> BlockWrite<'_, X> {
    /// The block's number.
    pub fn nr(&self) -> u64 {
        self.block.nr
    }

    /// Whether the block has content (cache.C3).
    pub fn is_uptodate(&self) -> bool {
        self.inner.page.is_some()
    }

    /// The content for changing, copied first if a snapshot holds it (cache.C1). The flag says
    /// whether a copy was made. `None` if there is no content yet.
    pub fn page_mut(&mut self) -> Option<(&mut [u8], bool)> {
        let arc = self.inner.page.as_mut()?;
        let copied = Arc::get_mut(arc).is_none();
        if copied {
            *arc = Arc::new(Page::copy_of(arc));
        }
        Arc::get_mut(arc).map(|page| (page.deref_mut(), copied))
    }

    /// The content, if any.
    pub fn page(&self) -> Option<&PageRef> {
        self.inner.page.as_ref()
    }

    /// Replaces the whole content, and forgets which checks the old one had passed.
    pub fn set_page(&mut self, page: PageRef) {
        self.inner.page = Some(page);
        self.block.set_verified(0);
    }

    /// Makes the content `len` zero bytes, reusing the page when nothing else holds it.
    pub fn zero(&mut self, len: usize) {
        match self.inner.page.as_mut().and_then(Arc::get_mut) {
            Some(page) if page.len() == len => page.fill(0),
            _ => self.inner.page = Some(Arc::new(Page::zeroed(len))),
        }
        self.block.set_verified(0);
    }

    /// The journal head.
    pub fn head(&mut self) -> &mut X {
        &mut self.inner.head
    }
}

impl<X> std::fmt::Debug for Block<X> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({})", self.nr)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// cache.C1.
    #[test]
    fn a_snapshot_keeps_what_it_shows() {
        let block = Block::<()>::new(1);
        block.fill(Page::zeroed(16));
        let snapshot = block.page().unwrap();
        let mut write = block.write();
        let (page, copied) = write.page_mut().unwrap();
        page.fill(7);
        assert!(copied, "the snapshot shares it");
        assert!(!write.page_mut().unwrap().1, "nobody shares the copy");
        drop(write);
        assert!(snapshot.iter().all(|b| *b == 0));
        assert!(block.page().unwrap().iter().all(|b| *b == 7));
    }

    /// cache.C3.
    #[test]
    fn without_content_there_is_nothing_to_read_or_change() {
        let block = Block::<()>::new(1);
        assert!(block.page().is_none() && block.peek().is_none());
        assert!(!block.write().is_uptodate() && block.write().page_mut().is_none());
        block.fill(Page::zeroed(16));
        assert!(block.peek().is_some() && block.write().is_uptodate());
    }
}
