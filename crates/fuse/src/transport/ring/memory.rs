//! The memory of a ring entry, which kernel and server use in turns.
//!
//! The kernel accesses it from the submission of an entry's command to the completion of that
//! command; this process accesses it only outside of that time. The kernel writes in the thread
//! that owns the ring, and not after the ring is closed: then the memory may be reused.

use std::ptr::NonNull;

use stetfs::low::AlignedBuf;
use zerocopy::IntoBytes;

use crate::api::buffer;
use crate::wire::abi::{InHeader, OutHeader, RingInOut};

/// `FUSE_URING_IN_OUT_HEADER_SZ`: the common header comes first.
const OP_AT: usize = 128;
/// Bytes of an operation's header (`FUSE_URING_OP_IN_OUT_SZ`), which comes second …
pub const OPERATION: usize = 128;
/// … and `struct fuse_uring_ent_in_out` third.
const RING_AT: usize = OP_AT + OPERATION;
/// `sizeof(struct fuse_uring_req_header)`.
const HEADER_SIZE: usize = RING_AT + size_of::<RingInOut>();

/// The memory of one entry.
pub(crate) struct Memory {
    head: NonNull<u8>,
    payload: NonNull<u8>,
    /// Bytes of payload.
    room: usize,
    /// The segments that a command points to: the header and the payload.
    iov: Box<[libc::iovec; 2]>,
    /// The owners of both; accessed only through the pointers.
    _buffers: [AlignedBuf; 2],
}

// SAFETY: the buffers belong to the value, and are not tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference it is only read, except by `answer` and `fill`, which require
// exclusive use from their callers.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory for a payload of up to `room` bytes. With `prepared` it is allocated at once, in huge
    /// pages if the kernel has them: the device reads long answers into it, and is slower with many
    /// small pieces (decisions/0019).
    pub(crate) fn new(room: usize, prepared: bool) -> Memory {
        let mut head = AlignedBuf::zeroed(HEADER_SIZE);
        let mut payload = if prepared {
            AlignedBuf::prepared(room)
        } else {
            AlignedBuf::scratch(room)
        };
        buffer::touch(&mut payload);
        let at = |buf: &mut AlignedBuf| NonNull::from(&mut **buf).cast::<u8>();
        let (head_at, payload_at) = (at(&mut head), at(&mut payload));
        let iov = |at: NonNull<u8>, len| libc::iovec {
            iov_base: at.as_ptr().cast(),
            iov_len: len,
        };
        Memory {
            head: head_at,
            payload: payload_at,
            room,
            iov: Box::new([iov(head_at, HEADER_SIZE), iov(payload_at, room)]),
            _buffers: [head, payload],
        }
    }

    /// The `addr` of a command.
    pub(crate) fn iov(&self) -> *const libc::iovec {
        self.iov.as_ptr()
    }

    /// `N` bytes of the header.
    fn header<const AT: usize, const N: usize>(&self) -> [u8; N] {
        const { assert!(AT + N <= HEADER_SIZE) };
        // SAFETY: the bytes lie inside the header by the line above, and it lives as long as
        // `self`; nothing writes it now (module documentation).
        unsafe { self.head.add(AT).cast::<[u8; N]>().read() }
    }

    /// The request's header.
    pub(crate) fn head(&self) -> InHeader {
        zerocopy::transmute!(self.header::<0, { size_of::<InHeader>() }>())
    }

    /// The operation's header, by value: the answer may overwrite it.
    pub(crate) fn operation(&self) -> [u8; OPERATION] {
        self.header::<OP_AT, OPERATION>()
    }

    /// The ring's header of the request.
    pub(crate) fn ring(&self) -> RingInOut {
        zerocopy::transmute!(self.header::<RING_AT, { size_of::<RingInOut>() }>())
    }

    /// The payload behind the request's headers.
    pub(crate) fn payload(&self) -> &[u8] {
        let len = (self.ring().payload_sz as usize).min(self.room);
        // SAFETY: the buffer has `room` bytes, and lives as long as `self`; nothing writes it now
        // (module documentation).
        unsafe { std::slice::from_raw_parts(self.payload.as_ptr(), len) }
    }

    /// Maximum length of an answer in bytes.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// The first `len` bytes of the answer's payload, at most all.
    ///
    /// # Safety
    /// As for [`fill`](Self::fill).
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn answer(&self, len: usize) -> &mut [u8] {
        let len = len.min(self.room);
        // SAFETY: as in `payload`; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.payload.as_ptr(), len) }
    }

    /// Writes `parts` as the payload of the answer, as far as they fit.
    ///
    /// # Safety
    /// No result of [`payload`](Self::payload) is in use, and no other thread calls this now.
    pub(crate) unsafe fn fill(&self, parts: &[&[u8]]) {
        // SAFETY: by the caller's promise.
        let mut to = unsafe { self.answer(self.room) };
        for part in parts {
            let len = part.len().min(to.len());
            let (here, rest) = std::mem::take(&mut to).split_at_mut(len);
            here.copy_from_slice(part.get(..len).unwrap_or_default());
            to = rest;
        }
    }

    /// Writes the headers of an answer of `size` bytes.
    ///
    /// # Safety
    /// No other thread uses the memory now.
    pub(crate) unsafe fn set_heads(&self, head: &OutHeader, size: usize) {
        let ring = RingInOut {
            payload_sz: size.min(self.room) as u32,
            ..self.ring()
        };
        const { assert!(size_of::<OutHeader>() <= OP_AT) };
        let write = |at: usize, bytes: &[u8]| {
            // SAFETY: both structures lie inside the header, by the line above and by its size; the
            // caller promises the rest.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    self.head.as_ptr().add(at),
                    bytes.len(),
                );
            }
        };
        write(0, head.as_bytes());
        write(RING_AT, ring.as_bytes());
    }
}
