//! Changing the content of data blocks, the way the file's data is journaled.

use std::ops::Range;
use std::sync::Arc;

use stetfs_cache::Page;
use stetfs_journal::{BlockNr, Handle};

use super::store::DataStore;
use crate::durability::Changed;
use crate::error::{FsError, Result};
use crate::inode::Inode;

/// How changed data gets home.
#[derive(Clone, Copy)]
pub(super) enum DataPath<'a> {
    /// Directly; blocks become dirty data, with the handle that makes them reachable if there is
    /// one.
    Home(Option<&'a Handle<'a>>),
    /// As journaled blocks of this handle.
    Journal(&'a Handle<'a>),
    /// As journaled blocks, but for those that were free until this handle's transaction: they go
    /// home directly, before it is valid (data.D5).
    Overwrites(&'a Handle<'a>),
}

/// What a block holds of the file that is about to write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Data, which stays where nothing is written.
    Data,
    /// Nothing: what lies there must not show.
    Nothing,
    /// Nothing; and it was free until this transaction, so it is again should that not be valid.
    New,
}

/// Changes data blocks of one file; [`done`](Pages::done) makes them dirty.
pub(super) struct Pages<'a> {
    store: &'a DataStore,
    inode: &'a Inode,
    path: DataPath<'a>,
    dirty: Vec<Changed>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(store: &'a DataStore, inode: &'a Inode, path: DataPath<'a>) -> Pages<'a> {
        Pages {
            store,
            inode,
            path,
            dirty: Vec::new(),
        }
    }

    /// Puts `bytes` into file block `lblk`, which lies in block `nr`, from byte `at` on. The rest
    /// of a block that holds nothing becomes zeroes; of another it stays.
    ///
    /// # Errors
    /// A read that failed; cannot happen for new or whole blocks, or for those in the cache. The
    /// journal's, which has stopped then.
    pub(super) fn put(
        &mut self,
        lblk: u32,
        nr: BlockNr,
        at: usize,
        bytes: &[u8],
        holds: Holds,
    ) -> Result<()> {
        let fresh = holds != Holds::Data;
        let len = self.store.vol.cache.block_size();
        let whole = at == 0 && bytes.len() == len;
        let block = if whole || fresh {
            self.store.vol.cache.get(nr)
        } else {
            self.store.vol.cache.read(nr)?
        };
        let put = |page: &mut [u8]| match page.get_mut(at..at + bytes.len()) {
            Some(to) => {
                to.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(FsError::Errno(libc::EINVAL)),
        };
        match self.journaling(lblk, holds)? {
            Some(h) if whole || fresh => put(&mut h.create(&block)?)?,
            Some(h) => put(&mut h.modify(&block)?)?,
            None => {
                let is_stale = fresh
                    && self.store.vol.opts.canary.show_stale
                    && self.store.vol.cache.read(nr).is_ok();
                let mut write = block.write();
                if whole {
                    // A snapshot of the old content needs no copy: all of it is replaced.
                    match write.page() {
                        Some(page) if Arc::strong_count(page) == 1 => {
                            if let Some((page, _)) = write.page_mut() {
                                put(page)?;
                            }
                        }
                        _ => write.set_page(Arc::new(Page::copy_of(bytes))),
                    }
                } else {
                    if fresh && !is_stale {
                        write.zero(len);
                    }
                    match write.page_mut() {
                        Some((page, _)) => put(page)?,
                        None => {
                            return Err(FsError::corrupt("data block", nr, "it has no content"));
                        }
                    }
                }
                drop(write);
                self.dirty.push(Changed { lblk, block, fresh });
            }
        }
        Ok(())
    }

    /// Makes bytes of file block `lblk`, which lies in block `nr`, zeroes. Does nothing if they
    /// are.
    ///
    /// # Errors
    /// A read that failed.
    pub(super) fn zero(&mut self, lblk: u32, nr: BlockNr, range: Range<usize>) -> Result<()> {
        let block = self.store.vol.cache.read(nr)?;
        let clean = block.peek().is_some_and(|p| {
            p.get(range.clone())
                .is_some_and(|b| b.iter().all(|b| *b == 0))
        });
        if clean {
            return Ok(());
        }
        let zero = |page: &mut [u8]| {
            if let Some(b) = page.get_mut(range.clone()) {
                b.fill(0);
            }
        };
        match self.journaling(lblk, Holds::Data)? {
            Some(h) => zero(&mut h.modify(&block)?),
            None => {
                if let Some((page, _)) = block.write().page_mut() {
                    zero(page);
                }
                let fresh = false;
                self.dirty.push(Changed { lblk, block, fresh });
            }
        }
        Ok(())
    }

    /// The handle, if the blocks go through the journal.
    pub(super) fn journaled(&self) -> Option<&'a Handle<'a>> {
        match self.path {
            DataPath::Journal(h) | DataPath::Overwrites(h) => Some(h),
            DataPath::Home(_) => None,
        }
    }

    /// The handle that journals a change of file block `lblk`; `None` if the change goes home.
    ///
    /// # Errors
    /// The journal's, which has stopped then.
    fn journaling(&self, lblk: u32, holds: Holds) -> Result<Option<&'a Handle<'a>>> {
        match self.path {
            DataPath::Home(_) => Ok(None),
            DataPath::Journal(h) => Ok(Some(h)),
            DataPath::Overwrites(_) if holds == Holds::New => Ok(None),
            DataPath::Overwrites(h) => {
                let home = self.store.goes_home_with(h, self.inode, lblk)?;
                Ok((!home).then_some(h))
            }
        }
    }

    /// The blocks changed so far become dirty data of the file.
    pub(super) fn done(self) {
        let h = match self.path {
            DataPath::Home(h) => h,
            DataPath::Journal(h) | DataPath::Overwrites(h) => Some(h),
        };
        self.store.add_dirty(self.inode, self.dirty, h);
    }
}
