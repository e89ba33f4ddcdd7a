//! A shared mapping of a part of a file: the memory behind a region.

use std::fs::File;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use stetfs_block::Span;

use crate::WORD;

/// A shared mapping of some words of a file. Dropping it unmaps it.
pub(super) struct Mapping {
    /// The first byte of a page.
    start: NonNull<u8>,
    len: usize,
    /// Bytes before the first word.
    skew: usize,
    page: usize,
}

// SAFETY: this is an address that stays mapped as long as the value lives, and the memory is only
// accessed through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps this part of the file, which begins at a multiple of a word. With `sync` the file's own
    /// metadata is durable whenever a page can be stored to (MAP_SYNC).
    ///
    /// # Errors
    /// EOPNOTSUPP for `sync` where the file is not in persistent memory (DAX).
    pub(super) fn new(file: &File, part: Span, sync: bool) -> Result<Self, Errno> {
        let page = rustix::param::page_size();
        let skew = (part.start % page as u64) as usize;
        let len = usize::try_from(part.len)
            .ok()
            .and_then(|len| len.checked_add(skew))
            .filter(|_| part.len > 0 && part.start.is_multiple_of(WORD))
            .ok_or(Errno::INVAL)?;
        let flags = match sync {
            true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            false => MapFlags::SHARED,
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses, overlaps nothing.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                access,
                flags,
                file,
                part.start - skew as u64,
            )
        }?;
        Ok(Mapping {
            start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?,
            len,
            skew,
            page,
        })
    }

    /// The mapped words. Access behind the end of a truncated file kills the process (SIGBUS).
    pub(super) fn words(&self) -> &[AtomicU64] {
        let count = (self.len - self.skew) / WORD as usize;
        // SAFETY: the words lie in the mapping, which is aligned to a page, and `skew` to a word.
        // Other processes may write to it, which atomics allow, and any bytes make a word.
        unsafe { slice::from_raw_parts(self.start.add(self.skew).cast().as_ptr(), count) }
    }

    /// Has the kernel write the pages of these bytes (offsets into the words) to the file, and
    /// waits until they are durable.
    pub(super) fn sync(&self, bytes: Range<usize>) -> Result<(), Errno> {
        let start = (bytes.start + self.skew) / self.page * self.page;
        let end = (bytes.end + self.skew).min(self.len);
        if start >= end {
            return Ok(());
        }
        // SAFETY: these bytes are mapped, and msync changes no content.
        unsafe {
            let at = self.start.add(start).as_ptr().cast();
            msync(at, end - start, MsyncFlags::SYNC)
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping exists any more, as all borrow from this value.
        let gone = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(gone.is_ok(), "{gone:?}");
    }
}
