//! Memory from the kernel in regions of 2 MiB, each a huge page where the system has them and it
//! was prepared.
//!
//! Addresses are kept for ever, so that a pointer into a region never leads to something else; only
//! the memory behind them is given back.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Bytes of a region, and their alignment.
pub(super) const REGION: usize = 2 << 20;
/// Bytes of address space that are taken at once.
const SPAN: usize = 64 << 20;
/// Bytes of small pages that are found at once.
const STEP: usize = 64 << 10;

/// `REGION` bytes that are zero until somebody writes to them.
#[derive(Clone, Copy)]
pub(super) struct Region(NonNull<u8>);

// SAFETY: it is an address that stays mapped; who uses the memory is up to `at` and `give_back`.
unsafe impl Send for Region {}

impl Region {
    /// New ones, without memory; none if the kernel has no room for them.
    pub(super) fn map() -> Vec<Region> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping, at a place of the kernel's choice, touches nothing else.
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
        // SAFETY: these advices change no content, and the region is mapped.
        // A kernel without them gives memory all the same.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), REGION, advice) };
    }

    /// Has the kernel find all memory of it now, a huge page if it can. Takes 0.1 ms, and up to 8
    /// ms on a virtual machine whose host has to find it: then nothing else runs on the processor.
    /// Content stays. Says whether it is there.
    pub(super) fn prepare(self) -> bool {
        self.advise(Advice::LinuxHugepage);
        self.populate(0, REGION)
    }

    /// The same in small pages, a few at a time: 0.6 to 0.9 ms in all, and hardly ever more than
    /// 0.2 ms at once, for these come from memory that the host was not given. `rest` is called
    /// after each few.
    pub(super) fn prepare_small(self, mut rest: impl FnMut()) -> bool {
        self.advise(Advice::LinuxNoHugepage);
        (0..REGION).step_by(STEP).all(|offset| {
            let well = self.populate(offset, STEP);
            rest();
            well
        })
    }

    /// Makes a huge page of what is there in small ones, if the kernel can (Linux 6.1). Content
    /// stays. Takes as long as to prepare it, or nothing if it is one.
    pub(super) fn collapse(self) {
        self.advise(Advice::LinuxHugepage);
        // SAFETY: as in `advise`.
        unsafe { libc::madvise(self.0.as_ptr().cast(), REGION, libc::MADV_COLLAPSE) };
    }

    /// Has the kernel find the memory of `len` bytes from `offset` on.
    fn populate(self, offset: usize, len: usize) -> bool {
        let at = self.at(offset).as_ptr().cast();
        // SAFETY: as in `advise`; the part lies inside the region.
        unsafe { madvise(at, len.min(REGION - offset), Advice::LinuxPopulateWrite) }.is_ok()
    }

    /// Gives the memory back to the kernel; the content is zero then. What is not prepared comes in
    /// small pages: whoever touches it first then waits for 4 KiB and not for 2 MiB.
    ///
    /// # Safety
    /// Nobody holds a pointer into it that will be used again.
    pub(super) unsafe fn give_back(self) {
        // SAFETY: the region is a private anonymous mapping, so it reads as zeroes then; nobody
        // uses it by the caller's word.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), REGION, Advice::LinuxDontNeed) };
        self.advise(Advice::LinuxNoHugepage);
    }

    /// Byte `offset` of it.
    ///
    /// # Panics
    /// If it has none there.
    pub(super) fn at(self, offset: usize) -> NonNull<u8> {
        assert!(offset < REGION);
        // SAFETY: the offset lies inside the mapping by the line above.
        unsafe { self.0.add(offset) }
    }

    /// The offset of a pointer that `at` gave.
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
            // SAFETY: nobody else knows of the region.
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
