//! The copy of a page that a snapshot holds.
//!
//! Either the thread that changes the block next makes it, or the commit does so ahead of that
//! thread (Z-Journal §3.2, "proactive frozen copy"). No thread waits for either, and the content of
//! the snapshot is the same (tx.T3); decisions/0029.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use stetfs_cache::Page;
use stetfs_sync::plain::Instant;

use super::Engine;
use crate::error::Result;
use crate::head::BlockWrite;
use crate::policy::Copies;
use crate::stats::{add_time, bump};
use crate::tx::Snapshot;

impl Engine {
    /// Makes a block's content writable: copies the page if a snapshot holds it.
    ///
    /// # Errors
    /// The block has no content, because it was not read.
    pub(crate) fn open_page(&self, write: &mut BlockWrite<'_>) -> Result<()> {
        // With the block locked a page can only lose holders: a page that is unshared now needs no
        // copy.
        let shared = write.page().is_some_and(|page| Arc::strong_count(page) > 1);
        let begun = shared.then(Instant::now);
        let nr = write.nr();
        let Some((_, copied)) = write.page_mut() else {
            return Err(self.base.no_content(nr));
        };
        if copied {
            let c = &self.base.counters;
            self.count_copy(begun, [&c.copies, &c.copies_bytes, &c.copying_nanos]);
        }
        Ok(())
    }

    /// Gives a snapshot pages of its own, if the scheme asks for it: threads that change those
    /// blocks from now on need not copy. A thread that comes earlier makes its own copy, and leaves
    /// the snapshot its page.
    pub(super) fn copy_ahead(&self, snapshot: &mut Snapshot) {
        if self.lanes.copies() == Copies::OnWrite {
            return;
        }
        self.base.point("copies-ahead");
        for image in &mut snapshot.images {
            if Arc::strong_count(&image.page) > 1 {
                let begun = Instant::now();
                image.page = Arc::new(Page::copy_of(&image.page));
                let c = &self.base.counters;
                let ahead = [
                    &c.copies_ahead,
                    &c.copies_ahead_bytes,
                    &c.copying_ahead_nanos,
                ];
                self.count_copy(Some(begun), ahead);
            }
        }
    }

    /// Counts one page copied since `begun`: the page, its bytes, and the nanoseconds.
    fn count_copy(&self, begun: Option<Instant>, [count, bytes, nanos]: [&AtomicU64; 3]) {
        bump(count, 1);
        bump(bytes, self.base.block_size());
        if let Some(begun) = begun {
            add_time(nanos, begun);
        }
    }
}
