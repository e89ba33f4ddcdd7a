//! The commands of FUSE over io_uring, as submission entries.

use io_uring::{opcode, squeue, types};
use zerocopy::{Immutable, IntoBytes};

use super::memory::Memory;

/// `enum fuse_uring_cmd`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Command {
    /// Gives the kernel an entry.
    Register = 1,
    /// Answers a request, and returns the entry to the kernel.
    CommitAndFetch = 2,
}

/// `struct fuse_uring_cmd_req`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CommandRequest {
    flags: u64,
    commit_id: u64,
    qid: u16,
    padding: [u8; 6],
}

/// `FUSE_URING_IOV_SEGS`.
const SEGMENTS: u32 = 2;
/// Offset of the segment count in `struct io_uring_sqe`.
const SQE_LEN: usize = 24;
/// The connection's descriptor: the first one registered with the ring, so that it is looked up
/// once.
const DEVICE: types::Fixed = types::Fixed(0);

/// The submission entry of `command` on the registered connection, for queue `qid`.
pub(crate) fn entry(
    command: Command,
    qid: u16,
    commit_id: u64,
    memory: &Memory,
    user_data: u64,
) -> squeue::Entry128 {
    let request = CommandRequest {
        flags: 0,
        commit_id,
        qid,
        padding: [0; 6],
    };
    let mut cmd = [0u8; 80];
    for (to, from) in cmd.iter_mut().zip(request.as_bytes()) {
        *to = *from;
    }
    let entry = opcode::UringCmd80::new(DEVICE, command as u32)
        .cmd(cmd)
        .addr(Some(memory.iov() as u64))
        .build()
        .user_data(user_data);
    // The crate has no accessor for a field that these commands use.
    // SAFETY: an `Entry128` is the 128 bytes of a `struct io_uring_sqe`, and any bytes are valid
    // for it.
    let mut raw: [u8; 128] = unsafe { std::mem::transmute(entry) };
    for (to, from) in raw[SQE_LEN..].iter_mut().zip(SEGMENTS.to_ne_bytes()) {
        *to = from;
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute(raw) }
}
