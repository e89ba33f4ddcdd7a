//! A pool of io_uring instances: batches of requests with one system call.
//!
//! A ring serves one thread at a time, for one batch, and the batch waits for all its completions.
//! So nothing is in flight while a ring lies in the pool, and the memory of the requests outlives
//! the kernel's use of it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, types::Fd};
use parking_lot::Mutex;

use super::request::Request;

/// Requests in flight per ring.
const DEPTH: u32 = 64;
/// Maximum bytes of writes in flight per ring: enough to keep a device busy. A sync in another
/// thread waits behind them.
const WRITTEN_AHEAD: u64 = 4 << 20;
/// Maximum number of rings of one device; further threads use system calls.
const MAX_RINGS: usize = 32;

/// The idle rings. A new one is made when all are busy, if the kernel allows it.
pub(super) struct RingPool {
    idle: Mutex<Vec<IoUring>>,
    made: AtomicUsize,
}

/// A ring on loan.
pub(super) struct Ring<'p> {
    pool: &'p RingPool,
    /// `None` once the ring has failed.
    ring: Option<IoUring>,
}

fn make() -> io::Result<IoUring> {
    // Without COOP_TASKRUN (Linux before 5.19) completions interrupt the thread, which is slower.
    let bound = || {
        IoUring::builder()
            .setup_r_disabled()
            .setup_coop_taskrun()
            .build(DEPTH)
            .or_else(|_| IoUring::builder().setup_r_disabled().build(DEPTH))
            .and_then(bind)
    };
    // Linux before 5.10 has no restrictions.
    bound().or_else(|_| IoUring::new(DEPTH))
}

/// Restricts a ring to reads and writes of open files: in a sandbox it cannot be used to open
/// anything.
fn bind(ring: IoUring) -> io::Result<IoUring> {
    let submitter = ring.submitter();
    submitter.register_restrictions(&mut [
        Restriction::sqe_op(opcode::Readv::CODE),
        Restriction::sqe_op(opcode::Writev::CODE),
    ])?;
    submitter.register_enable_rings()?;
    Ok(ring)
}

impl RingPool {
    /// A pool with one ring; fails where the kernel has no io_uring or refuses it.
    pub(super) fn new() -> io::Result<Self> {
        Ok(RingPool {
            idle: Mutex::new(vec![make()?]),
            made: AtomicUsize::new(1),
        })
    }

    /// Makes `n` rings in all, or as many as the kernel allows, for a process that cannot make any
    /// later.
    pub(super) fn prepare(&self, n: usize) {
        while self.made.load(Relaxed) < n.min(MAX_RINGS)
            && let Ok(ring) = make()
        {
            self.made.fetch_add(1, Relaxed);
            self.idle.lock().push(ring);
        }
    }

    /// A ring for one batch; `None` if there are too many or the kernel allows no more.
    pub(super) fn take(&self) -> Option<Ring<'_>> {
        let ring = self.idle.lock().pop().or_else(|| {
            if self.made.fetch_add(1, Relaxed) < MAX_RINGS
                && let Ok(ring) = make()
            {
                return Some(ring);
            }
            self.made.fetch_sub(1, Relaxed);
            None
        })?;
        Some(Ring {
            pool: self,
            ring: Some(ring),
        })
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        match self.ring.take() {
            Some(ring) => self.pool.idle.lock().push(ring),
            None => {
                self.pool.made.fetch_sub(1, Relaxed);
            }
        }
    }
}

impl Ring<'_> {
    /// Runs requests and returns when the kernel is done with all. [`Request::finish`] does the
    /// requests that the kernel did not take, and the rest of those it did in part.
    pub(super) fn run(&mut self, file: &File, requests: &mut [Request<'_>]) {
        let Some(ring) = self.ring.as_mut() else {
            return;
        };
        let mut next = 0;
        let mut in_flight = 0;
        // Bytes of writes that are queued or in flight.
        let mut bytes = 0;
        let written = |request: Option<&Request<'_>>| {
            request.filter(|r| r.is_write()).map_or(0, Request::len)
        };
        let mut healthy = true;
        while (healthy && next < requests.len()) || in_flight > 0 {
            let mut queued = 0;
            while healthy && in_flight + queued < DEPTH as usize {
                let Some(request) = requests.get(next) else {
                    break;
                };
                let more = written(Some(request));
                if more > 0 && bytes > 0 && bytes + more > WRITTEN_AHEAD {
                    break;
                }
                let entry = entry(file, request).user_data(next as u64);
                // SAFETY: the memory of the entry lives as long as the borrow of `requests`, and
                // this function returns only when `in_flight` is 0.
                if unsafe { ring.submission().push(&entry) }.is_err() {
                    break;
                }
                next += 1;
                queued += 1;
                bytes += more;
            }
            // While more requests wait for room, returning is worth it once half of the window is
            // done.
            let all = in_flight + queued;
            let want = if next < requests.len() {
                all.div_ceil(2)
            } else {
                all
            };
            let answer = if healthy {
                ring.submit_and_wait(want)
            } else {
                Ok(0)
            };
            let left = ring.submission().len();
            in_flight += queued.saturating_sub(left);
            for _ in 0..left.min(queued) {
                next -= 1;
                bytes -= written(requests.get(next));
            }
            match answer.as_ref().map_err(io::Error::raw_os_error) {
                // The kernel takes the rest of the queue at the next call.
                Ok(_) if left == 0 => {}
                Err(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) if left == 0 => {}
                // The kernel does not take an entry: give this ring up, but wait for the entries
                // that it took.
                _ => healthy = false,
            }
            if !healthy && in_flight > 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
            for done in ring.completion() {
                in_flight = in_flight.saturating_sub(1);
                if let Some(request) = usize::try_from(done.user_data())
                    .ok()
                    .and_then(|i| requests.get_mut(i))
                {
                    request.complete(done.result());
                    bytes -= written(Some(request));
                }
            }
        }
        if !healthy {
            tracing::warn!("io_uring refused a request; this ring is no longer used");
            self.ring = None;
        }
    }
}

fn entry(file: &File, request: &Request<'_>) -> io_uring::squeue::Entry {
    let fd = Fd(file.as_raw_fd());
    let (segments, count) = request.segments();
    if request.is_write() {
        opcode::Writev::new(fd, segments, count)
            .offset(request.offset())
            .rw_flags(request.flags())
            .build()
    } else {
        opcode::Readv::new(fd, segments, count)
            .offset(request.offset())
            .build()
    }
}
