//! Aligned heap buffers with free lists.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use parking_lot::Mutex;

/// A size that is kept in free lists.
struct Class {
    size: usize,
    /// Chunks kept per thread, and by all threads together beyond that.
    local: usize,
    shared: usize,
}

/// The usual sizes. The shared lists keep at most 44 MiB together.
const CLASSES: [Class; 5] = [
    Class {
        size: 1 << 10,
        local: 64,
        shared: 4096,
    },
    Class {
        size: 2 << 10,
        local: 64,
        shared: 2048,
    },
    Class {
        size: 4 << 10,
        local: 64,
        shared: 4096,
    },
    Class {
        size: 64 << 10,
        local: 4,
        shared: 64,
    },
    Class {
        size: 1 << 20,
        local: 1,
        shared: 16,
    },
];

const PAGE: usize = 4096;

/// An allocation. Its `size` bytes are initialised from the beginning and stay so: (1).
struct Chunk {
    ptr: NonNull<u8>,
    size: usize,
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

    fn new(size: usize) -> Self {
        let layout = Self::layout(size);
        // SAFETY: size is never 0 (`capacity` gives at least 1 KiB).
        let raw = unsafe { alloc_zeroed(layout) };
        match NonNull::new(raw) {
            Some(ptr) => Chunk { ptr, size },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and freed only here.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.size)) }
    }
}

/// Bytes to allocate for a buffer of `len`, and the free list they belong to.
fn capacity(len: usize) -> (usize, Option<usize>) {
    for (i, class) in CLASSES.iter().enumerate() {
        // A class serves lengths down to half its size, so that little is wasted.
        if len <= class.size && (i == 0 || len > class.size / 2) {
            return (class.size, Some(i));
        }
    }
    (len.div_ceil(PAGE).saturating_mul(PAGE), None)
}

static SHARED: [Mutex<Vec<Chunk>>; CLASSES.len()] =
    [const { Mutex::new(Vec::new()) }; CLASSES.len()];

thread_local! {
    static LOCAL: RefCell<[Vec<Chunk>; CLASSES.len()]> = const { RefCell::new([const { Vec::new() }; CLASSES.len()]) };
}

/// A chunk of this class from the thread's list or the shared one.
fn take(class: usize) -> Option<Chunk> {
    let local = LOCAL.try_with(|l| {
        let mut lists = l.borrow_mut();
        let list = lists.get_mut(class)?;
        if list.is_empty() {
            // Refill by half a list at a time, so that the lock is rare.
            let mut shared = SHARED.get(class)?.lock();
            let keep = shared.len() - shared.len().min(CLASSES.get(class)?.local.div_ceil(2));
            list.extend(shared.drain(keep..));
        }
        list.pop()
    });
    local.ok().flatten()
}

/// Puts a chunk back; drops it when the lists are full.
fn give(class: usize, chunk: Chunk) {
    let limit = &CLASSES[class];
    let mut chunk = Some(chunk);
    // The thread's list is gone while the thread ends; then the chunk is freed.
    let _ = LOCAL.try_with(|l| {
        let list = &mut l.borrow_mut()[class];
        if list.len() >= limit.local {
            let mut shared = SHARED[class].lock();
            let room = limit.shared.saturating_sub(shared.len());
            let move_from = list.len() - limit.local.div_ceil(2).min(room);
            shared.extend(list.drain(move_from..));
        }
        if list.len() < limit.local {
            list.extend(chunk.take());
        }
    });
}

/// A heap buffer fit for O_DIRECT: aligned to 4096, or, below that, to its length rounded up to a
/// power of two (at least 1024). Never shared; dereferences to its bytes.
pub struct AlignedBuf {
    chunk: ManuallyDrop<Chunk>,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::scratch(len);
        buf.fill(0);
        buf
    }

    /// `len` bytes of unspecified content (what an earlier user left), to be overwritten by a read.
    pub fn scratch(len: usize) -> Self {
        let (size, class) = capacity(len);
        let chunk = class.and_then(take).unwrap_or_else(|| Chunk::new(size));
        AlignedBuf {
            chunk: ManuallyDrop::new(chunk),
            len,
        }
    }

    /// A copy of `data`.
    pub fn from_slice(data: &[u8]) -> Self {
        let mut buf = Self::scratch(data.len());
        buf.copy_from_slice(data);
        buf
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let chunk = unsafe { ManuallyDrop::take(&mut self.chunk) };
        if let (_, Some(class)) = capacity(self.len) {
            give(class, chunk);
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the chunk has at least `len` bytes, initialised by (1), and is borrowed with self.
        unsafe { slice::from_raw_parts(self.chunk.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and self is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.chunk.ptr.as_ptr(), self.len) }
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(data: &[u8]) -> Self {
        Self::from_slice(data)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for AlignedBuf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for AlignedBuf {}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_zeroed_and_reused() {
        for len in [
            0usize,
            1,
            512,
            1000,
            1024,
            1025,
            2048,
            3000,
            4096,
            4097,
            5000,
            65536,
            70000,
            1 << 20,
            (1 << 20) + 1,
        ] {
            let want = len.next_power_of_two().clamp(1024, 4096);
            for _ in 0..3 {
                let mut buf = AlignedBuf::zeroed(len);
                assert_eq!(buf.len(), len);
                assert_eq!(buf.as_ptr() as usize % want, 0, "len {len}");
                assert!(buf.iter().all(|&b| b == 0), "len {len}");
                buf.fill(0xa5);
            }
        }
        let a = AlignedBuf::from_slice(b"stet");
        assert_eq!(&*a, b"stet");
        assert_eq!(a.clone(), a);
    }

    #[test]
    fn lists_are_bounded() {
        let many: Vec<_> = (0..6000).map(|_| AlignedBuf::zeroed(4096)).collect();
        std::thread::spawn(move || drop(many)).join().ok();
        assert!(SHARED[2].lock().len() <= CLASSES[2].shared);
        let again: Vec<_> = (0..6000).map(|_| AlignedBuf::zeroed(4096)).collect();
        assert!(again.iter().all(|b| b.iter().all(|&x| x == 0)));
    }
}
