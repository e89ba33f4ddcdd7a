//! Aligned buffers for direct I/O, taken from the process's memory pool.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::slice;

use crate::memory::{self, CLASSES, Chunk};

/// Chunks of each class that a thread keeps in its own list.
const LOCAL: [usize; CLASSES.len()] = [64, 64, 64, 4, 1];

const PAGE: usize = 4096;

/// The size in bytes to allocate for a buffer of `len` bytes, and the size's class in the pool.
fn capacity(len: usize) -> (usize, Option<usize>) {
    for (i, size) in CLASSES.into_iter().enumerate() {
        // A class serves lengths down to half its size, which bounds the waste.
        if len <= size && (i == 0 || len > size / 2) {
            return (size, Some(i));
        }
    }
    (len.div_ceil(PAGE).saturating_mul(PAGE), None)
}

thread_local! {
    static AT_HAND: RefCell<[Vec<Chunk>; CLASSES.len()]> = const { RefCell::new([const { Vec::new() }; CLASSES.len()]) };
}

/// A chunk of this class from the thread's list or the pool.
fn take(class: usize) -> Option<Chunk> {
    let local = AT_HAND.try_with(|lists| {
        let mut lists = lists.borrow_mut();
        let list = lists.get_mut(class)?;
        if list.is_empty() {
            // Half a list at a time, so that the pool's lock is rarely taken.
            memory::take(class, LOCAL[class].div_ceil(2), list);
            list.reverse();
        }
        list.pop()
    });
    local.ok().flatten()
}

/// Puts a chunk back into the thread's list or the pool.
fn give(class: usize, chunk: Chunk) {
    let mut chunk = Some(chunk);
    // A thread that ends has no list any more; dropping the chunk then returns it.
    let _ = AT_HAND.try_with(|lists| {
        let list = &mut lists.borrow_mut()[class];
        if list.len() >= LOCAL[class] {
            // The most recently used chunks stay: they are in the processor's caches.
            memory::give(list.drain(..LOCAL[class].div_ceil(2)));
        }
        list.extend(chunk.take());
    });
}

/// A buffer fit for O_DIRECT: aligned to 4096 bytes, or, if shorter, to its length rounded up to a
/// power of two (at least 1024). It is never shared, and dereferences to its bytes.
pub struct AlignedBuf {
    chunk: ManuallyDrop<Chunk>,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let (size, class) = capacity(len);
        match class.and_then(take) {
            Some(used) => {
                let mut buf = Self::of(used, len);
                buf.fill(0);
                buf
            }
            // The allocator's memory is zeroed.
            None => Self::of(Chunk::of_heap(size), len),
        }
    }

    /// A buffer of `len` bytes of unspecified content (left by an earlier user), for a read that
    /// overwrites it.
    pub fn scratch(len: usize) -> Self {
        Self::by(take, len)
    }

    /// As [`scratch`](Self::scratch), for a buffer that is kept and used by a device repeatedly:
    /// its memory is allocated at once, in pages as large as the kernel has. That takes time, so
    /// call it where no request waits.
    pub fn prepared(len: usize) -> Self {
        Self::by(memory::take_prepared, len)
    }

    fn by(take: fn(usize) -> Option<Chunk>, len: usize) -> Self {
        let (size, class) = capacity(len);
        let chunk = class.and_then(take).unwrap_or_else(|| Chunk::of_heap(size));
        Self::of(chunk, len)
    }

    fn of(chunk: Chunk, len: usize) -> Self {
        AlignedBuf {
            chunk: ManuallyDrop::new(chunk),
            len,
        }
    }

    /// A buffer with a copy of `data`.
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
        // SAFETY: the chunk has at least `len` bytes, initialised by invariant (1), and is borrowed
        // with self.
        unsafe { slice::from_raw_parts(self.chunk.ptr().as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and self is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.chunk.ptr().as_ptr(), self.len) }
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
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

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
    fn what_others_left_is_never_in_zeroed_buffers() {
        for len in [1024usize, 2048, 4096, 65536, 1 << 20] {
            // Concurrent tests take from the same pool.
            let is_used_again = (0..5).any(|_| most_come_back_zeroed(len));
            assert!(is_used_again, "memory of {len} bytes is used again");
        }
    }

    fn most_come_back_zeroed(len: usize) -> bool {
        let n = (8 << 20) / len + 3;
        let dirty: Vec<_> = (0..n)
            .map(|_| {
                let mut buf = AlignedBuf::scratch(len);
                buf.fill(0xa5);
                buf
            })
            .collect();
        let places: HashSet<usize> = dirty.iter().map(|b| b.as_ptr() as usize).collect();
        // Another thread frees them, so they return through the pool.
        std::thread::spawn(move || drop(dirty)).join().unwrap();
        let again: Vec<_> = (0..n).map(|_| AlignedBuf::zeroed(len)).collect();
        assert!(again.iter().all(|b| b.iter().all(|x| *x == 0)));
        let same = again
            .iter()
            .filter(|b| places.contains(&(b.as_ptr() as usize)));
        same.count() > n / 2
    }

    /// The thread's minor page faults so far (`minflt` in proc_pid_stat(5)).
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields = stat.rsplit(')').next().unwrap();
        fields.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn what_is_prepared_is_there() {
        let mut bufs: Vec<_> = (0..6).map(|_| AlignedBuf::prepared(1 << 20)).collect();
        let before = faults();
        for buf in &mut bufs {
            buf.fill(7);
        }
        let after = faults();
        assert!(after - before < 32, "{} faults", after - before);
    }

    #[test]
    fn threads_hand_buffers_to_each_other() {
        let (to, from) = std::sync::mpsc::sync_channel::<(u8, AlignedBuf)>(64);
        let makers: Vec<_> = (0..3u8)
            .map(|maker| {
                let to = to.clone();
                std::thread::spawn(move || {
                    for i in 0..20_000usize {
                        let mut buf = AlignedBuf::scratch(CLASSES[i % 3]);
                        let mark = maker ^ i as u8;
                        buf.fill(mark);
                        to.send((mark, buf)).unwrap();
                    }
                })
            })
            .collect();
        drop(to);
        let mut held = std::collections::VecDeque::new();
        for (mark, buf) in from {
            held.push_back((mark, buf));
            if held.len() > 500 {
                let (mark, buf) = held.pop_front().unwrap();
                assert!(buf.iter().all(|b| *b == mark), "nobody else has written it");
            }
        }
        makers.into_iter().for_each(|t| t.join().unwrap());
    }
}
