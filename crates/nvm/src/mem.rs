//! A region in memory with cheap copies, for tests and for replaying crashes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use parking_lot::RwLock;
use stetfs_block::{Op, Result, check_range};

use crate::region::{check_flush, word_at};
use crate::words;
use crate::{Durability, LINE, Region, WORD};

/// Bytes of a page: forks share pages, and the first store to a shared page copies it.
const PAGE: u64 = 4096;
const WORDS: usize = (PAGE / WORD) as usize;

type Page = [AtomicU64; WORDS];
type Slot = RwLock<Option<Arc<Page>>>;

/// A region in memory, for tests. It does not model loss; [`RegionRecorder`](crate::RegionRecorder)
/// does.
pub struct MemRegion {
    /// Bytes; a multiple of [`LINE`].
    size: u64,
    /// An absent page is zeros. A store to an unshared page takes the lock shared, as stores are
    /// atomic themselves. Copying a page, or handing it to a fork, takes the lock exclusively.
    pages: Box<[Slot]>,
}

impl MemRegion {
    /// A region of zeros: `size` bytes, rounded up to whole lines.
    pub fn new(size: u64) -> Self {
        let size = size.next_multiple_of(LINE);
        MemRegion {
            size,
            pages: (0..size.div_ceil(PAGE))
                .map(|_| RwLock::new(None))
                .collect(),
        }
    }

    /// A region that begins with a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let region = Self::new(bytes.len() as u64);
        let stored = region.store(0, bytes);
        debug_assert!(stored.is_ok(), "it is as long as they are");
        region
    }

    /// A copy of the current content. The two share pages until either stores to them. A concurrent
    /// store is in the copy or not, page by page.
    pub fn fork(&self) -> Self {
        let share = |page: &Slot| RwLock::new(page.write().clone());
        MemRegion {
            size: self.size,
            pages: self.pages.iter().map(share).collect(),
        }
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        let read = self.read(0, &mut bytes);
        debug_assert!(read.is_ok(), "it is as long as they are");
        bytes
    }

    /// The pages that are not all zeros: offset of the first byte, and 4096 bytes, with zeros
    /// behind the region's end.
    pub fn pages(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.pages.iter().enumerate().filter_map(|(n, page)| {
            let page = page.read().clone()?;
            let mut bytes = vec![0; PAGE as usize];
            words::read(&*page, 0, &mut bytes).ok()?;
            (bytes.iter().any(|byte| *byte != 0)).then_some((n as u64 * PAGE, bytes))
        })
    }

    /// Whether both hold the same bytes. Pages that two forks still share are not compared.
    pub fn same(&self, other: &MemRegion) -> bool {
        let same = |(mine, other): (&Slot, &Slot)| {
            let (mine, other) = (mine.read().clone(), other.read().clone());
            let word = |page: &Option<Arc<Page>>, n: usize| {
                page.as_ref()
                    .map_or(0, |page| page[n].load(Ordering::Acquire))
            };
            match (&mine, &other) {
                (None, None) => true,
                (Some(a), Some(b)) if Arc::ptr_eq(a, b) => true,
                _ => (0..WORDS).all(|n| word(&mine, n) == word(&other, n)),
            }
        };
        self.size == other.size && self.pages.iter().zip(&other.pages).all(same)
    }

    /// Calls `to` with the words of page `n`, ready to be stored to.
    fn change<T>(&self, n: usize, to: impl FnOnce(&Page) -> T) -> T {
        let slot = &self.pages[n];
        {
            let held = slot.read();
            if let Some(page) = &*held
                && Arc::strong_count(page) == 1
            {
                // Safe with the shared lock: a fork takes the lock exclusively before it shares the
                // page.
                return to(page);
            }
        }
        let mut held = slot.write();
        let own = match held.take() {
            Some(page) if Arc::strong_count(&page) == 1 => page,
            shared => Arc::new(std::array::from_fn(|n| {
                AtomicU64::new(
                    shared
                        .as_ref()
                        .map_or(0, |page| page[n].load(Ordering::Acquire)),
                )
            })),
        };
        to(held.insert(own))
    }
}

/// The parts of pages that a request covers: page number, byte in the page, and the range in the
/// request.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (usize, u64, Range<usize>)> {
    let end = offset + len;
    (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let from = offset.max(page * PAGE);
        let to = end.min((page + 1) * PAGE);
        let within = (from - offset) as usize..(to - offset) as usize;
        (page as usize, from % PAGE, within)
    })
}

impl fmt::Debug for MemRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemRegion")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Region for MemRegion {
    fn size(&self) -> u64 {
        self.size
    }

    fn durability(&self) -> Durability {
        Durability::Nothing
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(Op::Read, offset, buf.len() as u64, self.size)?;
        for (n, at, within) in parts(offset, buf.len() as u64) {
            match &*self.pages[n].read() {
                Some(page) => words::read(&**page, at, &mut buf[within])?,
                None => buf[within].fill(0),
            }
        }
        Ok(())
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        check_range(Op::Write, offset, bytes.len() as u64, self.size)?;
        for (n, at, within) in parts(offset, bytes.len() as u64) {
            self.change(n, |page| words::store(page, at, &bytes[within]))?;
        }
        Ok(())
    }

    fn load_u64(&self, offset: u64) -> Result<u64> {
        let word = word_at(Op::Read, offset, self.size)?;
        match &*self.pages[word / WORDS].read() {
            Some(page) => words::load_u64(&**page, offset % PAGE),
            None => Ok(0),
        }
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<()> {
        let word = word_at(Op::Write, offset, self.size)?;
        self.change(word / WORDS, |page| {
            words::store_u64(page, offset % PAGE, value)
        })
    }

    fn flush(&self, range: Range<u64>) -> Result<()> {
        check_flush(&range, self.size)
    }

    fn fence(&self) -> Result<()> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn snapshot(&self) -> Option<Arc<dyn Region>> {
        Some(Arc::new(self.fork()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_has_what_was_stored_before_and_nothing_of_what_comes() {
        let region = MemRegion::new(3 * PAGE - LINE);
        region.store(PAGE - 3, b"before").unwrap();
        let fork = region.fork();
        assert!(fork.same(&region) && region.same(&fork));
        region.store(PAGE - 2, b"behind").unwrap();
        fork.store_u64(2 * PAGE, 7).unwrap();
        assert!(!fork.same(&region));
        let read = |region: &MemRegion| {
            let mut bytes = [0; 8];
            region.read(PAGE - 4, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(&read(&region), b"\0bbehind");
        assert_eq!(&read(&fork), b"\0before\0");
        let third = |region: &MemRegion| region.load_u64(2 * PAGE).unwrap();
        assert_eq!((third(&region), third(&fork)), (0, 7));
        let of = |region: &MemRegion| region.pages().map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(
            (of(&region), of(&fork)),
            (vec![0, PAGE], vec![0, PAGE, 2 * PAGE])
        );
        let all = fork.to_vec();
        assert_eq!(all.len() as u64, 3 * PAGE - LINE);
        assert!(MemRegion::from_bytes(&all).same(&fork));
        region.store(PAGE - 2, b"efore\0").unwrap();
        fork.store_u64(2 * PAGE, 0).unwrap();
        assert!(fork.same(&region), "a page of zeros is an absent one");
    }

    #[test]
    fn threads_that_store_beside_forks_lose_nothing() {
        let region = MemRegion::new(PAGE);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let region = &region;
                scope.spawn(move || {
                    for value in 1..=2000 {
                        region.store_u64(thread * WORD, value).unwrap();
                        assert_eq!(region.load_u64(thread * WORD).unwrap(), value);
                    }
                });
            }
            let mut last = [0; 4];
            for _ in 0..500 {
                let fork = region.fork();
                for (thread, last) in last.iter_mut().enumerate() {
                    let now = fork.load_u64(thread as u64 * WORD).unwrap();
                    assert!(now >= *last);
                    *last = now;
                }
            }
        });
        assert!((0..4).all(|thread| region.load_u64(thread * WORD).unwrap() == 2000));
    }
}
