//! Changes of the content of data blocks, by the data path of the file: written back or journaled.

use std::ops::Range;
use std::sync::Arc;

use stetfs_cache::Page;
use stetfs_journal::{BlockNr, Handle};

use crate::data::store::DataStore;
use crate::durability::Changed;
use crate::error::{FsError, Result};
use crate::inode::Inode;

/// The data path: how changed data becomes durable.
#[derive(Clone, Copy)]
pub(crate) enum DataPath<'a> {
    /// Written back: blocks become dirty data. The handle is the one that makes them reachable, if
    /// any.
    Home(Option<&'a Handle<'a>>),
    /// Journaled as blocks of this handle.
    Journal(&'a Handle<'a>),
    /// Journaled, except blocks that were free until this handle's transaction: they are written
    /// back before it is valid (data.D5).
    Overwrites(&'a Handle<'a>),
}

/// The file's content in a block before a write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum Holds {
    /// Data, which stays outside the written bytes.
    Data,
    /// None: the former content of the block must not show.
    Nothing,
    /// None, and the block was free until this transaction, so it is free again if the transaction
    /// does not become valid.
    New,
}

/// Changes data blocks of one file; [`done`](Pages::done) makes them dirty.
pub(crate) struct Pages<'a> {
    store: &'a DataStore,
    inode: &'a Inode,
    path: DataPath<'a>,
    dirty: Vec<Changed>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(store: &'a DataStore, inode: &'a Inode, path: DataPath<'a>) -> Pages<'a> {
        Pages {
            store,
            inode,
            path,
            dirty: Vec::new(),
        }
    }

    /// Puts `bytes` into file block `lblk`, which is block `nr`, from byte `at` on. The rest of the
    /// block stays if it holds data, and becomes zeroes otherwise.
    ///
    /// # Errors
    /// A failed read, which is possible only for a part of an uncached block with data. Errors of
    /// the journal, which has stopped then.
    pub(in crate::data) fn put(
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
                    // If a snapshot holds the old content, the block gets a new page without a
                    // copy: all of it is replaced.
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

    /// Makes bytes of file block `lblk`, which is block `nr`, zeroes, unless they are.
    ///
    /// # Errors
    /// A failed read; errors of the journal.
    pub(in crate::data) fn zero(
        &mut self,
        lblk: u32,
        nr: BlockNr,
        range: Range<usize>,
    ) -> Result<()> {
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
    pub(in crate::data) fn journaled(&self) -> Option<&'a Handle<'a>> {
        match self.path {
            DataPath::Journal(h) | DataPath::Overwrites(h) => Some(h),
            DataPath::Home(_) => None,
        }
    }

    /// The handle that journals a change of file block `lblk`; `None` if the change is written
    /// back.
    ///
    /// # Errors
    /// Errors of the journal, which has stopped then.
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

    /// Makes the blocks changed so far dirty data of the file.
    pub(crate) fn done(self) {
        let h = match self.path {
            DataPath::Home(h) => h,
            DataPath::Journal(h) | DataPath::Overwrites(h) => Some(h),
        };
        self.store.add_dirty(self.inode, self.dirty, h);
    }
}
