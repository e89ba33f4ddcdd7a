//! Memory from the kernel in regions of 2 MiB, each a huge page if the system has them and it was
//! prepared.
//!
//! Addresses are kept for ever, so that a pointer into a region never leads to something else; only
//! the memory behind them is returned.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Bytes of a region, and their alignment.
pub(super) const REGION: usize = 2 << 20;
/// Bytes of address space that are reserved at once.
const SPAN: usize = 64 << 20;
/// Bytes of small pages that are allocated in one step.
const STEP: usize = 64 << 10;

/// `REGION` bytes that are zero until they are written to.
#[derive(Clone, Copy)]
pub(super) struct Region(NonNull<u8>);

// SAFETY: this is an address that stays mapped; callers of `at` and `give_back` guard the use of
// the memory.
unsafe impl Send for Region {}

impl Region {
    /// Maps new regions without memory; none if the kernel has no address space.
    pub(super) fn map() -> Vec<Region> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping, at an address that the kernel chooses, overlaps nothing.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                SPAN + REGION,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let Ok(start) = mapped else {
            return Vec::new();
        };
        let start = start.cast::<u8>();
        let first = start.addr().next_multiple_of(REGION) - start.addr();
        (first..first + SPAN)
            .step_by(REGION)
            // SAFETY: `first` is below REGION, so all of them lie inside the mapping.
            .filter_map(|at| NonNull::new(unsafe { start.add(at) }).map(Region))
            .inspect(|region| region.advise(Advice::LinuxNoHugepage))
            .collect()
    }

    fn advise(self, advice: Advice) {
        // SAFETY: these advices change no content, and the region is mapped. A kernel without them
        // provides memory all the same.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), REGION, advice) };
    }

    /// Has the kernel allocate all memory of the region now, as a huge page if it can. Takes 0.1
    /// ms, and up to 8 ms on a virtual machine whose host has to find it: then nothing else runs on
    /// the processor. Content stays. Returns whether there is memory.
    pub(super) fn prepare(self) -> bool {
        self.advise(Advice::LinuxHugepage);
        self.populate(0, REGION)
    }

    /// The same in small pages, a few at a time: 0.6 to 0.9 ms in all, and hardly ever more than
    /// 0.2 ms at once, as small pages are free in the guest. `rest` is called after each step.
    pub(super) fn prepare_small(self, mut rest: impl FnMut()) -> bool {
        self.advise(Advice::LinuxNoHugepage);
        (0..REGION).step_by(STEP).all(|offset| {
            let well = self.populate(offset, STEP);
            rest();
            well
        })
    }

    /// Turns small pages into a huge page, if the kernel can (Linux 6.1). Content stays. Takes as
    /// long as preparing it, or no time if it is one already.
    pub(super) fn collapse(self) {
        self.advise(Advice::LinuxHugepage);
        // SAFETY: as in `advise`.
        unsafe { libc::madvise(self.0.as_ptr().cast(), REGION, libc::MADV_COLLAPSE) };
    }

    /// Has the kernel allocate the memory of `len` bytes from `offset` on.
    fn populate(self, offset: usize, len: usize) -> bool {
        let at = self.at(offset).as_ptr().cast();
        // SAFETY: as in `advise`; the part lies inside the region.
        unsafe { madvise(at, len.min(REGION - offset), Advice::LinuxPopulateWrite) }.is_ok()
    }

    /// Returns the memory to the kernel; the content is zero then. Until it is prepared again the
    /// memory comes in small pages: the first access then waits for 4 KiB and not for 2 MiB.
    ///
    /// # Safety
    /// No pointer into it may be used again.
    pub(super) unsafe fn give_back(self) {
        // SAFETY: the region is a private anonymous mapping, so it reads as zeros then; the caller
        // promises that it is not in use.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), REGION, Advice::LinuxDontNeed) };
        self.advise(Advice::LinuxNoHugepage);
    }

    /// The address of byte `offset`.
    ///
    /// # Panics
    /// If the offset is not inside the region.
    pub(super) fn at(self, offset: usize) -> NonNull<u8> {
        assert!(offset < REGION);
        // SAFETY: the offset lies inside the mapping by the line above.
        unsafe { self.0.add(offset) }
    }

    /// The offset of a pointer that `at` returned.
    pub(super) fn offset_of(self, ptr: NonNull<u8>) -> usize {
        ptr.addr().get() - self.0.addr().get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "offset < REGION")]
    fn nothing_is_behind_a_region() {
        if let Some(region) = Region::map().first() {
            region.at(REGION);
        }
    }

    #[test]
    fn memory_comes_zero_keeps_content_while_it_is_prepared_and_comes_back_zero() {
        let regions = Region::map();
        assert_eq!(regions.len(), SPAN / REGION);
        for region in &regions {
            assert_eq!(region.at(0).addr().get() % REGION, 0);
            assert_eq!(region.offset_of(region.at(4096)), 4096);
        }
        let region = regions[1];
        let bytes = || {
            // SAFETY: the region is not shared.
            unsafe { std::slice::from_raw_parts_mut(region.at(0).as_ptr(), REGION) }
        };
        assert!(bytes().iter().all(|b| *b == 0));
        bytes().fill(7);
        assert!(region.prepare());
        assert!(bytes().iter().all(|b| *b == 7));
        assert!(region.prepare_small(|| ()));
        assert!(bytes().iter().all(|b| *b == 7));
        region.collapse();
        assert!(bytes().iter().all(|b| *b == 7));
        // SAFETY: the slices are gone.
        unsafe { region.give_back() };
        assert!(bytes().iter().all(|b| *b == 0));
    }
}
