//! The memory of a ring entry, which kernel and server use in turns.
//!
//! Layout: `struct fuse_uring_req_header` at the start, the payload from [`PAYLOAD_AT`] on. The kernel
//! touches it from the submission of an entry's command to the completion of that command, and we do
//! so only outside of that time.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::buffer;
use crate::wire::abi::{InHeader, OutHeader, RingInOut};

/// `FUSE_URING_IN_OUT_HEADER_SZ`: the common header comes first.
const OP_AT: usize = 128;
/// `FUSE_URING_OP_IN_OUT_SZ`: the operation's own comes second …
pub(super) const OP_SIZE: usize = 128;
/// … and `struct fuse_uring_ent_in_out` third.
const RING_AT: usize = OP_AT + OP_SIZE;
/// `sizeof(struct fuse_uring_req_header)`.
const HEADER_SIZE: usize = RING_AT + size_of::<RingInOut>();
/// Where the payload begins: on a page of its own.
const PAYLOAD_AT: usize = 4096;

/// One entry's memory.
pub(super) struct Memory {
    base: NonNull<u8>,
    /// Bytes of payload.
    room: usize,
    /// What a command points to: the header and the payload.
    iov: Box<[libc::iovec; 2]>,
}

// SAFETY: the mapping belongs to the value, and is not tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference it is only read, but for `fill`, which asks its caller for
// exclusive use.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory for a payload of up to `room` bytes. What usual requests take of it is there at once.
    pub(super) fn new(room: usize) -> io::Result<Memory> {
        // SAFETY: a new anonymous mapping, at a place of the kernel's choice, touches nothing else.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                PAYLOAD_AT + room,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let iov = Box::new([
            libc::iovec {
                iov_base: base.as_ptr().cast(),
                iov_len: HEADER_SIZE,
            },
            libc::iovec {
                // SAFETY: PAYLOAD_AT lies inside the mapping.
                iov_base: unsafe { base.as_ptr().add(PAYLOAD_AT) }.cast(),
                iov_len: room,
            },
        ]);
        // SAFETY: the mapping is new and has so many bytes, and the kernel knows nothing of it yet.
        buffer::touch(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), PAYLOAD_AT + room) });
        Ok(Memory { base, room, iov })
    }

    /// For the `addr` of a command.
    pub(super) fn iov(&self) -> *const libc::iovec {
        self.iov.as_ptr()
    }

    fn slice(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= PAYLOAD_AT + self.room);
        // SAFETY: the range lies inside the mapping (the callers' constants and `payload` see to
        // it), which lives as long as `self`; nobody writes it now (module documentation).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// The request's head.
    pub(super) fn head(&self) -> InHeader {
        InHeader::read_from_prefix(self.slice(0, OP_AT))
            .map_or_else(|_| InHeader::new_zeroed(), |(head, _)| head)
    }

    /// The operation's own head, by value: the answer may overwrite it.
    pub(super) fn operation(&self) -> [u8; OP_SIZE] {
        let mut copy = [0; OP_SIZE];
        copy.copy_from_slice(self.slice(OP_AT, OP_SIZE));
        copy
    }

    /// What the ring says of the request.
    pub(super) fn ring(&self) -> RingInOut {
        RingInOut::read_from_prefix(self.slice(RING_AT, size_of::<RingInOut>()))
            .map_or_else(|_| RingInOut::new_zeroed(), |(ring, _)| ring)
    }

    /// What follows the request's heads.
    pub(super) fn payload(&self) -> &[u8] {
        let size = self.ring().payload_sz as usize;
        self.slice(PAYLOAD_AT, size.min(self.room))
    }

    /// Bytes an answer may have.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// The first `len` bytes of the answer's payload, or as many as there are.
    ///
    /// # Safety
    /// As for [`fill`](Self::fill).
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn answer(&self, len: usize) -> &mut [u8] {
        let len = len.min(self.room);
        // SAFETY: inside the mapping by the line above, which lives as long as `self`; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(PAYLOAD_AT), len) }
    }

    /// Writes `parts` as the payload of the answer.
    ///
    /// # Safety
    /// Nothing that [`payload`](Self::payload) gave is in use, and nobody else calls this now.
    pub(super) unsafe fn fill(&self, parts: &[&[u8]]) {
        let mut at = PAYLOAD_AT;
        for part in parts {
            let len = part.len().min(PAYLOAD_AT + self.room - at);
            // SAFETY: inside the mapping by the line above; the caller vouches for the rest, and
            // `part` is no part of the mapping then.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), self.base.as_ptr().add(at), len);
            }
            at += len;
        }
    }

    /// Writes the heads of an answer of `size` bytes.
    ///
    /// # Safety
    /// Nobody else uses the memory now.
    pub(super) unsafe fn set_heads(&self, head: &OutHeader, size: usize) {
        let ring = RingInOut {
            payload_sz: size.min(self.room) as u32,
            ..self.ring()
        };
        let write = |at: usize, bytes: &[u8]| {
            // SAFETY: both structures lie inside the header; the caller vouches for the rest.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    self.base.as_ptr().add(at),
                    bytes.len(),
                );
            }
        };
        write(0, head.as_bytes());
        write(RING_AT, ring.as_bytes());
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this size, and nothing refers to it any more.
        // A failure would leave the mapping, which harms nobody.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), PAYLOAD_AT + self.room) };
    }
}
