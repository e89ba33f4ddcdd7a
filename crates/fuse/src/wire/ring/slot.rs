//! The way back of a request: its place in the ring, or the mailbox of its thread.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stetfs::low::FsError;

use super::memory::Memory;
use crate::buffer::Read;
use crate::wire::abi::OutHeader;

/// An answer up to this size to a long request (a write's) is kept without an allocation.
const SHORT: usize = 16;

thread_local! {
    /// The mailbox of this thread, by address, if it serves a ring.
    pub(super) static MINE: Cell<usize> = const { Cell::new(0) };
}

/// Where answers of one thread's requests are put.
pub(super) struct Mailbox {
    pub(super) answered: Mutex<Vec<Answer>>,
    pub(super) wake: OwnedFd,
    /// The kernel has all entries of the thread that are not in use.
    pub(super) spare: AtomicBool,
}

/// Those of all threads that serve rings.
pub(super) static MAILBOXES: Mutex<Vec<Weak<Mailbox>>> = Mutex::new(Vec::new());

/// How long is waited for threads that are busy.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Has each thread give the kernel all its entries, as [`FileSystem::may_hold_back`] says by now.
pub(crate) fn spare_all() {
    let all: Vec<Arc<Mailbox>> = {
        let mut all = MAILBOXES.lock();
        all.retain(|mailbox| mailbox.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    for mailbox in &all {
        // As in `Slot::put`.
        let _ = rustix::io::write(&mailbox.wake, &1u64.to_ne_bytes());
    }
    let until = Instant::now() + TIMEOUT;
    let is_ready = |mailbox: &Arc<Mailbox>| mailbox.spare.load(Ordering::Acquire);
    while !all.iter().all(is_ready) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Mailbox {
    /// Whether no other answer waits in it.
    pub(super) fn put(&self, answer: Answer) -> bool {
        let mut answered = self.answered.lock();
        answered.push(answer);
        answered.len() == 1
    }
}

/// An answer on its way into the ring.
pub(super) struct Answer {
    pub(super) entry: u64,
    pub(super) head: OutHeader,
    pub(super) body: AnswerBody,
}

pub(super) enum AnswerBody {
    /// Still to be written; short.
    Short([u8; SHORT], usize),
    /// Still to be written.
    Copied(Vec<u8>),
    /// Written already, so many bytes.
    InPlace(usize),
}

/// The way back of a request that came by a ring.
pub(in crate::wire) struct Slot {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) memory: Arc<Memory>,
    pub(super) entry: u64,
    /// The request's payload may be in use while it is answered.
    pub(super) payload_in_use: bool,
}

impl Slot {
    pub(in crate::wire) fn send(&mut self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        let len = parts[0].len() + parts[1].len();
        let (error, len) = match error {
            0 if len > self.memory.room() => (libc::EIO, 0),
            0 => (0, len),
            errno => (errno, 0),
        };
        let body = if error != 0 {
            AnswerBody::InPlace(0)
        } else if !self.payload_in_use {
            // SAFETY: the request's payload was copied, and a request is answered once.
            unsafe { self.memory.fill(&parts) };
            AnswerBody::InPlace(len)
        } else if len <= SHORT {
            let mut bytes = [0; SHORT];
            for (to, from) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
                *to = *from;
            }
            AnswerBody::Short(bytes, len)
        } else {
            AnswerBody::Copied(parts.concat())
        };
        self.put(unique, error, len, body);
    }

    /// Sends what `read` puts into the entry's memory, up to `size` bytes; unless it fails, and
    /// then nothing was sent.
    pub(in crate::wire) fn send_read(
        &mut self,
        unique: u64,
        size: usize,
        read: Read<'_>,
    ) -> Result<(), FsError> {
        if self.payload_in_use {
            // A read brings no payload to speak of.
            return Err(FsError::Errno(libc::EIO));
        }
        // SAFETY: as in `send`; and the slice is gone when the answer is put.
        let len = read(unsafe { self.memory.answer(size) })?.min(size);
        self.put(unique, 0, len, AnswerBody::InPlace(len));
        Ok(())
    }

    pub(super) fn put(&mut self, unique: u64, error: i32, len: usize, body: AnswerBody) {
        let answer = Answer {
            entry: self.entry,
            head: OutHeader {
                len: (size_of::<OutHeader>() + len) as u32,
                error: -error,
                unique,
            },
            body,
        };
        let first = self.mailbox.put(answer);
        // Who puts the first wakes the thread, and what it finds then is all: it takes answers
        // before it sleeps.
        if first && MINE.get() != Arc::as_ptr(&self.mailbox).addr() {
            // It is a counter that cannot overflow here; a thread that ended needs no call.
            let _ = rustix::io::write(&self.mailbox.wake, &1u64.to_ne_bytes());
        }
    }
}
