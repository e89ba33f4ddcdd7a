//! The way back of a request in a ring: its entry's memory, and the mailbox of its thread.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stetfs::low::FsError;

use super::memory::Memory;
use crate::api::buffer::Read;
use crate::wire::abi::OutHeader;

/// Maximum length of an answer to a long request (a write) that needs no allocation.
const SHORT: usize = 16;

thread_local! {
    /// The address of this thread's mailbox, if it serves a ring.
    pub(crate) static MINE: Cell<usize> = const { Cell::new(0) };
}

/// The mailbox of a thread: other threads put answers to its requests here.
pub(crate) struct Mailbox {
    pub(crate) answered: Mutex<Vec<Answer>>,
    pub(crate) wake: OwnedFd,
    /// Whether the kernel has all unused entries of the thread.
    pub(crate) spare: AtomicBool,
}

/// The mailboxes of all threads that serve rings.
pub(crate) static MAILBOXES: Mutex<Vec<Weak<Mailbox>>> = Mutex::new(Vec::new());

/// Time limit for waiting for busy threads.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Has each thread give the kernel all its entries, as
/// [`may_hold_back`](crate::FileSystem::may_hold_back) demands now.
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
    /// Puts an answer; returns whether it is the only one.
    pub(crate) fn put(&self, answer: Answer) -> bool {
        let mut answered = self.answered.lock();
        answered.push(answer);
        answered.len() == 1
    }
}

/// An answer on its way into the ring.
pub(crate) struct Answer {
    pub(crate) entry: u64,
    pub(crate) head: OutHeader,
    pub(crate) body: AnswerBody,
}

pub(crate) enum AnswerBody {
    /// Still to be written; short.
    Short([u8; SHORT], usize),
    /// Still to be written.
    Copied(Vec<u8>),
    /// Written already; the number of bytes.
    InPlace(usize),
}

/// The way back of a request that came by a ring.
pub(crate) struct Slot {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) entry: u64,
    /// Whether the request's payload may be in use while it is answered.
    pub(crate) payload_in_use: bool,
}

impl Slot {
    pub(crate) fn send(&mut self, unique: u64, error: i32, parts: [&[u8]; 2]) {
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

    /// Sends up to `size` bytes that `read` puts into the entry's memory. If `read` fails nothing
    /// is sent.
    pub(crate) fn send_read(
        &mut self,
        unique: u64,
        size: usize,
        read: Read<'_>,
    ) -> Result<(), FsError> {
        if self.payload_in_use {
            // A read has no payload worth copying.
            return Err(FsError::Errno(libc::EIO));
        }
        // SAFETY: as in `send`; the slice is gone when the answer is put.
        let len = read(unsafe { self.memory.answer(size) })?.min(size);
        self.put(unique, 0, len, AnswerBody::InPlace(len));
        Ok(())
    }

    pub(crate) fn put(&mut self, unique: u64, error: i32, len: usize, body: AnswerBody) {
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
        // Only the first answer wakes the thread: it takes all answers before it sleeps.
        if first && MINE.get() != Arc::as_ptr(&self.mailbox).addr() {
            // The counter cannot overflow here; a thread that has ended needs no wake-up.
            let _ = rustix::io::write(&self.mailbox.wake, &1u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::counting::allocations;
    use rustix::event::{EventfdFlags, eventfd};

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox {
            answered: Mutex::new(Vec::with_capacity(4)),
            wake: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            spare: AtomicBool::new(false),
        })
    }

    /// Answers with `len` bytes; returns the mailbox, the memory, and the number of allocations.
    fn answer(len: usize, payload_in_use: bool) -> (Arc<Mailbox>, Arc<Memory>, u64) {
        let mailbox = mailbox();
        let memory = Arc::new(Memory::new(1 << 20, false));
        // SAFETY: no other thread has the memory.
        unsafe { memory.answer(1 << 20) }.fill(0);
        let mut slot = Slot {
            mailbox: Arc::clone(&mailbox),
            memory: Arc::clone(&memory),
            entry: 0,
            payload_in_use,
        };
        let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let (a, b) = bytes.split_at(len / 3);
        let taken = allocations(|| slot.send(7, 0, [a, b]));
        (mailbox, memory, taken)
    }

    #[test]
    fn an_answer_takes_no_allocation() {
        for (len, payload_in_use) in [
            (0, false),
            (104, false),
            (100_000, false),
            (0, true),
            (16, true),
        ] {
            let (.., taken) = answer(len, payload_in_use);
            assert_eq!(taken, 0, "{len} bytes, {payload_in_use}");
        }
        let (.., taken) = answer(17, true);
        assert_eq!(taken, 1, "the count counts");
    }

    #[test]
    fn answers_that_wait_together_wake_once() {
        let mailbox = mailbox();
        let answer = || {
            let mut slot = Slot {
                mailbox: Arc::clone(&mailbox),
                memory: Arc::new(Memory::new(4096, false)),
                entry: 0,
                payload_in_use: false,
            };
            slot.send(7, 0, [&[], &[]]);
        };
        for _ in 0..2 {
            (0..3).for_each(|_| answer());
            let mut calls = [0; 8];
            rustix::io::read(&mailbox.wake, &mut calls).unwrap();
            assert_eq!(u64::from_ne_bytes(calls), 1);
            assert_eq!(std::mem::take(&mut *mailbox.answered.lock()).len(), 3);
        }
    }

    #[test]
    fn the_payload_of_a_request_stays_until_it_is_answered() {
        for len in [1, 16, 17, 5000] {
            let (mailbox, memory, _) = answer(len, true);
            // SAFETY: no other thread has the memory.
            let there = unsafe { memory.answer(len) };
            assert!(there.iter().all(|b| *b == 0), "{len} bytes");
            let answered = mailbox.answered.lock();
            let bytes = match &answered[0].body {
                AnswerBody::Short(bytes, n) => &bytes[..*n],
                AnswerBody::Copied(bytes) => bytes,
                AnswerBody::InPlace(_) => panic!("{len} bytes are written already"),
            };
            let expected: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(bytes, expected);
            assert_eq!(answered[0].head.len as usize, 16 + len);
        }
    }
}
