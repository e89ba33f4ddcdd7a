//! Rings for FUSE over io_uring: they are made before the process gives up the right to make any,
//! and serve the queues of a session.

pub(crate) mod command;
pub(crate) mod memory;
pub(crate) mod place;
pub(crate) mod slot;

use std::io;
use std::os::fd::AsRawFd;

use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use self::command::Command;
use self::memory::Memory;
use super::channel::Channel;
use super::current::per_queue;

/// Maximum number of entries of a thread: operations of its queue in flight.
pub(crate) const MAX_ENTRIES: usize = 64;

pub(crate) type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// The number of queues that the kernel expects: one for each possible processor.
pub(crate) fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    last.parse::<u16>()
        .map(|n| n.saturating_add(1))
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the number of processors"))
}

/// Tries whether the kernel accepts commands of the connection `fuse` from a ring. Call it before
/// INIT is answered: the kernel then answers "not yet". Later there is no way back if something
/// else refuses them (a security module).
pub(crate) fn possible(fuse: &Channel, payload: usize, rings: &mut Rings) -> io::Result<()> {
    queues()?;
    let memory = Memory::new(payload, false);
    let mut ring = rings.take(fuse)?;
    ring.submitter().register_enable_rings()?;
    let register = command::entry(Command::Register, 0, 0, &memory, 0);
    // SAFETY: the entry's memory is dropped after the ring, and all commands in flight end with the
    // ring.
    unsafe { ring.submission().push(&register) }.map_err(io::Error::other)?;
    let timeout = types::Timespec::new().sec(1);
    ring.submitter()
        .submit_with_args(1, &types::SubmitArgs::new().timespec(&timeout))?;
    let answer = ring.completion().next().map(|c| -c.result());
    drop(ring);
    match answer {
        Some(libc::EAGAIN) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Rings made before there is a connection, for a process that cannot make any later.
#[derive(Default)]
pub(crate) struct Rings(Vec<Ring>);

impl Rings {
    /// Makes as many rings as `threads` threads need, and one for a trial.
    ///
    /// # Errors
    /// The kernel gives none.
    pub(crate) fn prepare(threads: usize) -> io::Result<Rings> {
        let queues = usize::from(queues()?);
        let most = queues * per_queue(threads, queues.max(1)) + 1;
        let rings: io::Result<_> = (0..most).map(|_| blank()).collect();
        rings.map(Rings)
    }

    /// Takes a ring and registers the connection `fuse`, for the thread that enables it; makes a
    /// new one if none is left.
    pub(crate) fn take(&mut self, fuse: &Channel) -> io::Result<Ring> {
        let ring = self.0.pop().map_or_else(blank, Ok)?;
        ring.submitter()
            .register_files(&[fuse.as_fd().as_raw_fd()])?;
        Ok(ring)
    }
}

/// Makes a ring without a connection. It accepts only the requests that this module makes, so that
/// it is of no other use to a process in a sandbox, which keeps the process from making another
/// ring.
fn blank() -> io::Result<Ring> {
    let entries = MAX_ENTRIES as u32 * 2;
    let ring = Ring::builder()
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries)
        .or_else(|_| Ring::builder().setup_r_disabled().build(entries))?;
    ring.submitter().register_restrictions(&mut [
        Restriction::sqe_op(opcode::UringCmd80::CODE),
        Restriction::sqe_op(opcode::Read::CODE),
        Restriction::sqe_flags_allowed(squeue::Flags::FIXED_FILE.bits()),
    ])?;
    Ok(ring)
}
