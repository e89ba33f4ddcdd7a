//! A pool of io_uring instances.
//!
//! A ring serves one thread at a time, for one batch, and the batch waits for all its completions:
//! nothing is in flight while a ring lies in the pool, and the memory that requests name outlives
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
/// Bytes of writes in flight per ring: what keeps a device busy. A sync in another thread waits
/// behind them.
const WRITTEN_AHEAD: u64 = 4 << 20;
/// Rings of one device; further threads use system calls.
const MAX_RINGS: usize = 32;

/// Idle rings. One is made whenever all are busy, if the kernel gives it.
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
    // Without COOP_TASKRUN (Linux before 5.19) completions interrupt the thread; slower, but right.
    let bound = || {
        IoUring::builder()
            .setup_r_disabled()
            .setup_coop_taskrun()
            .build(DEPTH)
            .or_else(|_| IoUring::builder().setup_r_disabled().build(DEPTH))
            .and_then(bind)
    };
    // Linux before 5.10 cannot bind them.
    bound().or_else(|_| IoUring::new(DEPTH))
}

/// Lets a ring take reads and writes of what is open and nothing else: a process that may make no
/// other (a sandbox) then can open nothing by it.
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

    /// Makes `n` rings in all, or as many as the kernel gives, for a process that will not be given
    /// any later.
    pub(super) fn prepare(&self, n: usize) {
        while self.made.load(Relaxed) < n.min(MAX_RINGS)
            && let Ok(ring) = make()
        {
            self.made.fetch_add(1, Relaxed);
            self.idle.lock().push(ring);
        }
    }

    /// A ring for one batch, or none if there are too many or the kernel gives no more.
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
    /// Runs requests and returns when the kernel is done with all. Those it did not take, and the
    /// rest of those it did in part, are left to [`Request::finish`].
    pub(super) fn run(&mut self, file: &File, requests: &mut [Request<'_>]) {
        let Some(ring) = self.ring.as_mut() else {
            return;
        };
        let mut next = 0;
        let mut in_flight = 0;
        // Of writes that are queued or in flight.
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
                // SAFETY: what the entry names lives as long as the borrow of `requests`, and this
                // function returns only when `in_flight` is 0.
                if unsafe { ring.submission().push(&entry) }.is_err() {
                    break;
                }
                next += 1;
                queued += 1;
                bytes += more;
            }
            // While more wait for room, half of the window is enough to come back for.
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
                // What the kernel left in the queue it takes at the next call.
                Ok(_) if left == 0 => {}
                Err(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) if left == 0 => {}
                // It would not take an entry: give this ring up, but wait for what it did take.
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
            tracing::warn!("io_uring refused a request; its ring is closed");
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
