//! Chunks of memory from the process's pool, or from the allocator when the pool has none.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::pool::{CLASSES, Piece, Pool};

const PAGE: usize = 4096;
/// The region number of a chunk that belongs to the allocator.
const HEAP: u32 = u32::MAX;

/// The process's pool.
pub(super) static POOL: Pool = Pool::new();

/// A chunk that owns its memory. All its bytes are initialised from the beginning and stay so: (1).
pub(crate) struct Chunk {
    ptr: NonNull<u8>,
    region: u32,
    /// Its size in KiB.
    kib: u32,
}

// SAFETY: a chunk is the only owner of its memory.
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

    /// A chunk of `size` bytes from the allocator; a multiple of 1 KiB and not 0.
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

/// Adds `most` chunks of a class of [`CLASSES`] to `list`, or fewer when there is no memory for the
/// pool.
pub(crate) fn take(class: usize, most: usize, list: &mut Vec<Chunk>) {
    POOL.take(class, most, |Piece { ptr, region }| {
        // A piece is handed out once until it is given back. The memory of a region is initialised:
        // zero, or the content of earlier users.
        let kib = (CLASSES[class] >> 10) as u32;
        list.push(Chunk { ptr, region, kib });
    });
}

/// A chunk of a class of [`CLASSES`] whose memory is allocated, in huge pages if the kernel has
/// them. It may take long, as the kernel has to find the memory.
pub(crate) fn take_prepared(class: usize) -> Option<Chunk> {
    let mut list = Vec::new();
    take(class, 1, &mut list);
    let chunk = list.pop()?;
    let region = POOL.state.lock().region(chunk.region);
    // On failure the first access will report it. The region may have been prepared in small pages.
    let _ = region.prepare();
    region.collapse();
    Some(chunk)
}

/// Gives chunks back together, which is cheaper than one by one.
pub(crate) fn give(chunks: impl Iterator<Item = Chunk>) {
    let of_pool = chunks.filter(|chunk| chunk.region != HEAP);
    POOL.give(of_pool.map(Chunk::into_piece));
}
