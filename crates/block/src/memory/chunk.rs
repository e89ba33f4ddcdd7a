//! Pieces of the process's pool, and of the allocator where that has none.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::pool::{CLASSES, Piece, Pool};

const PAGE: usize = 4096;
/// Instead of a region's number: it is the allocator's.
const HEAP: u32 = u32::MAX;

/// The process's.
pub(super) static POOL: Pool = Pool::new();

/// Memory of its own. Its bytes are initialised from the beginning and stay so: (1).
pub(crate) struct Chunk {
    ptr: NonNull<u8>,
    region: u32,
    /// Its size in KiB.
    kib: u32,
}

// SAFETY: a chunk owns its memory alone.
unsafe impl Send for Chunk {}
// SAFETY: shared access only reads.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn layout(size: usize) -> Layout {
        match Layout::from_size_align(size, size.next_power_of_two().min(PAGE)) {
            Ok(layout) => layout,
            // Only sizes near isize::MAX get here, which no allocator can serve.
            Err(_) => handle_alloc_error(Layout::new::<u8>()),
        }
    }

    /// `size` bytes of the allocator, a multiple of 1 KiB and not 0.
    pub(crate) fn of_heap(size: usize) -> Chunk {
        let layout = Self::layout(size);
        let Ok(kib) = u32::try_from(size >> 10) else {
            handle_alloc_error(layout)
        };
        // SAFETY: size is not 0.
        let raw = unsafe { alloc_zeroed(layout) };
        match NonNull::new(raw) {
            Some(ptr) => Chunk {
                ptr,
                region: HEAP,
                kib,
            },
            None => handle_alloc_error(layout),
        }
    }

    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    fn into_piece(self) -> Piece {
        let chunk = ManuallyDrop::new(self);
        Piece {
            ptr: chunk.ptr,
            region: chunk.region,
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.region == HEAP {
            // SAFETY: allocated in `of_heap` with the same layout, and freed only here.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout((self.kib as usize) << 10)) }
        } else {
            let (ptr, region) = (self.ptr, self.region);
            POOL.give(std::iter::once(Piece { ptr, region }));
        }
    }
}

/// Gives `list` `most` chunks of a class of [`CLASSES`], or fewer when there is no memory for a
/// pool.
pub(crate) fn take(class: usize, most: usize, list: &mut Vec<Chunk>) {
    POOL.take(class, most, |Piece { ptr, region }| {
        // A piece is handed out once until it is given back, and what a region maps is initialised:
        // zero, or what was left.
        let kib = (CLASSES[class] >> 10) as u32;
        list.push(Chunk { ptr, region, kib });
    });
}

/// A chunk of a class of [`CLASSES`] whose memory is there, in huge pages where the kernel has
/// them; takes as long as the kernel needs to find it.
pub(crate) fn take_prepared(class: usize) -> Option<Chunk> {
    let mut list = Vec::new();
    take(class, 1, &mut list);
    let chunk = list.pop()?;
    let region = POOL.state.lock().region(chunk.region);
    // Where there is no memory now, its user will see. It may have been prepared in small pages.
    let _ = region.prepare();
    region.collapse();
    Some(chunk)
}

/// Gives chunks back at once, which is cheaper than one by one.
pub(crate) fn give(chunks: impl Iterator<Item = Chunk>) {
    let of_pool = chunks.filter(|chunk| chunk.region != HEAP);
    POOL.give(of_pool.map(Chunk::into_piece));
}
