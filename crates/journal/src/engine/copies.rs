//! Who copies a page that a snapshot holds: whoever changes it next, or the commit ahead of him
//! (Z-Journal §3.2, "proactive frozen copy"). Nobody waits for either, and what the snapshot shows
//! is the same (tx.T3); decisions/0029.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use stetfs_cache::Page;
use stetfs_sync::plain::Instant;

use super::Inner;
use crate::error::Result;
use crate::head::BlockWrite;
use crate::policy::Copies;
use crate::stats::{add_time, bump};
use crate::tx::Snapshot;

impl Inner {
    /// Makes a block's content free to be changed: copies the page if a snapshot holds it.
    ///
    /// # Errors
    /// The block has no content: it was not read.
    pub(crate) fn open_page(&self, write: &mut BlockWrite<'_>) -> Result<()> {
        // With the block held a page can only lose holders: what is not shared now will not be
        // copied.
        let shared = write.page().is_some_and(|page| Arc::strong_count(page) > 1);
        let begun = shared.then(Instant::now);
        let nr = write.nr();
        let Some((_, copied)) = write.page_mut() else {
            return Err(self.no_content(nr));
        };
        if copied {
            let c = &self.counters;
            self.count_copy(begun, [&c.copies, &c.copies_bytes, &c.copying_nanos]);
        }
        Ok(())
    }

    /// Gives a snapshot pages of its own, if the scheme has it so: who changes those blocks from
    /// now on need not copy. He who comes earlier copies himself, and leaves the snapshot its
    /// page.
    pub(super) fn copy_ahead(&self, snapshot: &mut Snapshot) {
        if self.ordering.copies() == Copies::OnWrite {
            return;
        }
        self.point("copies-ahead");
        for image in &mut snapshot.images {
            if Arc::strong_count(&image.page) > 1 {
                let begun = Instant::now();
                image.page = Arc::new(Page::copy_of(&image.page));
                let c = &self.counters;
                let ahead = [
                    &c.copies_ahead,
                    &c.copies_ahead_bytes,
                    &c.copying_ahead_nanos,
                ];
                self.count_copy(Some(begun), ahead);
            }
        }
    }

    /// Counts a page copied since `begun`: pages, bytes, nanoseconds.
    fn count_copy(&self, begun: Option<Instant>, [count, bytes, nanos]: [&AtomicU64; 3]) {
        bump(count, 1);
        bump(bytes, self.cache.block_size() as u64);
        if let Some(begun) = begun {
            add_time(nanos, begun);
        }
    }
}
