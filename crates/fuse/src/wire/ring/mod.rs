//! FUSE over io_uring: requests come to a queue per processor, to a thread that runs there, and an
//! answer and the wait for the next request are one system call.
//!
//! Each thread has a ring of its own with one entry that waits for a request. An operation that is
//! answered later, from another thread, keeps its entry; the thread then gives the kernel another
//! one, so a slow answer holds nobody up. Answers from other threads come through a mailbox. (Where
//! nobody else asks, the thread may wait itself: `inline_wait`.)

mod command;
mod memory;
mod place;
mod slot;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use self::command::Command;
use self::memory::Memory;
pub use self::memory::OPERATION;
use self::place::{Place, Where};
pub(super) use self::slot::Slot;
pub(crate) use self::slot::spare_all;
use self::slot::{Answer, AnswerBody, MAILBOXES, MINE, Mailbox};
use super::channel::Channel;
use super::dispatch::{self, Body, Next};
use super::port::Port;
use super::reply::Reply;
use super::transport::per_queue;
use crate::awake::{Attention, Pulse};
use crate::inline_wait::{self, Askers, Servers};
use crate::ops::FileSystem;

/// Entries one thread has at most: operations of its queue under way at once.
const MAX_ENTRIES: usize = 64;
/// So many of them have their memory at once: more are for those who wait for the device, in
/// crowds.
const PREPARED: usize = 4;
/// The payload of a request up to this size is copied, so that its place is free for the answer.
const SMALL: usize = 4096;
/// `user_data` of the wake-up call.
const WAKE: u64 = u64::MAX;

pub(super) type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Queues the kernel will want: one for each processor there could be.
pub(crate) fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    last.parse::<u16>()
        .map(|n| n.saturating_add(1))
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the number of processors"))
}

/// Tries whether the kernel takes commands of the connection `fuse` from a ring. To be called
/// before INIT is answered: the kernel then says "not yet". Later there would be no way back where
/// something else refuses them (a security module).
pub(super) fn possible(fuse: &Channel, payload: usize, rings: &mut Rings) -> io::Result<()> {
    queues()?;
    let memory = Memory::new(payload, false);
    let mut ring = rings.take(fuse)?;
    ring.submitter().register_enable_rings()?;
    let register = command::entry(Command::Register, 0, 0, &memory, 0);
    // SAFETY: the entry's memory is dropped after the ring, and with that all that is under way.
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

/// Rings that are made before there is a connection, for a process that may make none later.
#[derive(Default)]
pub(crate) struct Rings(Vec<Ring>);

impl Rings {
    /// As many as `threads` threads take, and one for a trial.
    ///
    /// # Errors
    /// The kernel gives none.
    pub(crate) fn prepare(threads: usize) -> io::Result<Rings> {
        let queues = usize::from(queues()?);
        let most = queues * per_queue(threads, queues.max(1)) + 1;
        let rings: io::Result<_> = (0..most).map(|_| blank()).collect();
        rings.map(Rings)
    }

    /// A ring that knows the connection `fuse`, for the thread that enables it; a new one where
    /// none is left.
    pub(super) fn take(&mut self, fuse: &Channel) -> io::Result<Ring> {
        let ring = self.0.pop().map_or_else(blank, Ok)?;
        ring.submitter()
            .register_files(&[fuse.as_fd().as_raw_fd()])?;
        Ok(ring)
    }
}

/// A ring without a connection. It takes the requests that are made here and no others, so that a
/// process that is bound by nothing else has no use of it (a sandbox keeps it from making another).
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

/// How serving a queue ended.
pub(super) enum Served {
    /// With the connection.
    All,
    /// Before it began: the kernel takes no entries.
    Refused(io::Error),
}

/// What a completed command tells.
enum Told {
    /// Go on.
    GoOn,
    /// The connection has ended.
    Ended,
    /// The kernel does not take the entry.
    Refused(io::Error),
}

/// One thread's ring.
struct Queue<'a, F> {
    fs: &'a F,
    qid: u16,
    servers: &'a Servers,
    place: Place,
    /// Another thread waited for requests of the queue when the last came.
    more: bool,
    askers: Askers,
    ring: Ring,
    mailbox: Arc<Mailbox>,
    /// Answers that were taken from it; kept for its room.
    answers: Vec<Answer>,
    pulse: &'a Pulse,
    attention: Attention,
    /// Memory of all entries, by number.
    entries: Vec<Arc<Memory>>,
    /// The kernel takes as many.
    most: usize,
    /// A request came.
    begun: bool,
    /// Entries that wait for a request.
    waiting: usize,
    /// Where the wake-up call's read puts what it reads.
    counter: Box<u64>,
    /// The copied payload of a request.
    copy: Vec<u8>,
    payload: usize,
}

/// Serves queue `qid` of the connection until it ends, by `ring`. To be called by a thread of its
/// own. `payload` is the longest request or answer, bytes.
pub(super) fn serve<F: FileSystem>(
    fs: &F,
    ring: Ring,
    qid: u16,
    servers: &Servers,
    pulse: &Pulse,
    payload: usize,
) -> io::Result<Served> {
    ring.submitter().register_enable_rings()?;
    let mailbox = Arc::new(Mailbox {
        answered: Mutex::new(Vec::new()),
        wake: eventfd(0, EventfdFlags::CLOEXEC)?,
        spare: AtomicBool::new(false),
    });
    MINE.set(Arc::as_ptr(&mailbox).addr());
    MAILBOXES.lock().push(Arc::downgrade(&mailbox));
    let place = Place::at(qid);
    let mut queue = Queue {
        fs,
        qid,
        servers,
        attention: pulse.attention(place.has_others()),
        place,
        more: false,
        askers: Askers::default(),
        ring,
        mailbox,
        answers: Vec::new(),
        pulse,
        entries: Vec::new(),
        most: MAX_ENTRIES,
        begun: false,
        waiting: 0,
        counter: Box::new(0),
        copy: Vec::new(),
        payload,
    };
    queue.listen()?;
    queue.register()?;
    let served = queue.run();
    // Its place may be another's next.
    MINE.set(0);
    served
}

impl<F: FileSystem> Queue<'_, F> {
    fn run(&mut self) -> io::Result<Served> {
        let mut done: Vec<(u64, i32)> = Vec::new();
        loop {
            let (ring, attention) = (&mut self.ring, &mut self.attention);
            let (waited, more) = self.servers.idle(|| {
                if attention.looks() {
                    // Answers, first of all.
                    ring.submit()?;
                }
                attention.wait(|| ring.submission().taskrun() || !ring.completion().is_empty());
                ring.submit_and_wait(1)
            });
            self.more = more;
            match waited {
                Ok(_) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
                Err(e) => return Err(e),
            }
            done.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
            for (entry, result) in done.drain(..) {
                if entry == WAKE {
                    self.listen()?;
                    continue;
                }
                match self.completed(entry, result)? {
                    Told::GoOn => {}
                    // Closing the ring takes the other entries back.
                    Told::Ended => return Ok(Served::All),
                    Told::Refused(e) if !self.begun => return Ok(Served::Refused(e)),
                    Told::Refused(e) => {
                        tracing::warn!("the kernel takes no more entries: {e}");
                        self.most = 0;
                    }
                }
            }
            self.commit()?;
            // What is held back keeps its entry. Linux (6.18) gives a new one nothing of what waits
            // already, so that there must always be one.
            let holds_back = self.fs.may_hold_back();
            let spare = if holds_back { self.most } else { 1 };
            while self.waiting < spare && self.entries.len() < self.most {
                self.register()?;
            }
            if self.mailbox.spare.load(Ordering::Relaxed) != holds_back {
                self.ring.submit()?;
                self.mailbox.spare.store(holds_back, Ordering::Release);
            }
        }
    }

    fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: what an entry points to (its memory, and the counter) is kept in `self`, and
            // the ring is dropped, and with it all that is under way, before these are.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    /// Waits for calls from other threads.
    fn listen(&mut self) -> io::Result<()> {
        let read = opcode::Read::new(
            types::Fd(self.mailbox.wake.as_raw_fd()),
            std::ptr::from_mut(&mut *self.counter).cast(),
            size_of::<u64>() as u32,
        );
        self.push(&read.build().user_data(WAKE).into())
    }

    /// Gives the kernel another entry.
    fn register(&mut self) -> io::Result<()> {
        let number = self.entries.len() as u64;
        let prepared = self.entries.len() < PREPARED;
        self.entries
            .push(Arc::new(Memory::new(self.payload, prepared)));
        self.submit(Command::Register, number, 0)
    }

    /// An entry that was given to the kernel.
    ///
    /// # Errors
    /// There is none of this number: a request would never be answered.
    fn entry(&self, number: u64) -> io::Result<&Arc<Memory>> {
        let memory = usize::try_from(number)
            .ok()
            .and_then(|at| self.entries.get(at));
        memory.ok_or_else(|| {
            let why = format!("an entry {number} of a ring with {}", self.entries.len());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    fn submit(&mut self, command: Command, number: u64, commit_id: u64) -> io::Result<()> {
        let memory = self.entry(number)?;
        let entry = command::entry(command, self.qid, commit_id, memory, number);
        self.waiting += 1;
        self.push(&entry)
    }

    /// A command is done: a request is there, or none will come.
    fn completed(&mut self, number: u64, result: i32) -> io::Result<Told> {
        self.waiting -= 1;
        match -result {
            0 => {}
            libc::EAGAIN | libc::EINTR => {
                self.submit(Command::Register, number, 0)?;
                return Ok(Told::GoOn);
            }
            libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV => {
                return Ok(Told::Ended);
            }
            errno => return Ok(Told::Refused(io::Error::from_raw_os_error(errno))),
        }
        let memory = Arc::clone(self.entry(number)?);
        self.begun = true;
        self.pulse.beat();
        let head = memory.head();
        let operation = memory.operation();
        let payload = memory.payload();
        let payload_in_use = payload.len() > SMALL;
        let payload = if payload_in_use {
            payload
        } else {
            self.copy.clear();
            self.copy.extend_from_slice(payload);
            &self.copy
        };
        let slot = Slot {
            mailbox: Arc::clone(&self.mailbox),
            memory: Arc::clone(&memory),
            entry: number,
            payload_in_use,
        };
        self.place.take(match self.attention.request() {
            true => Where::Away,
            false if dispatch::is_long_read(&head, &operation) => Where::Anywhere,
            false => Where::Home,
        });
        let crowded = self.askers.ask(head.pid);
        // What else is answered meanwhile would wait, too.
        let alone = self.waiting + 1 == self.entries.len();
        inline_wait::set(self.more && alone && !crowded, self.more);
        let reply = Reply::new(Port::Ring(slot), head.unique);
        if let Next::Destroy(reply) =
            dispatch::serve(self.fs, &head, Body::split(&operation, payload), reply)
        {
            self.fs.shutdown();
            reply.empty();
        }
        Ok(Told::GoOn)
    }

    /// Puts what was answered into the ring.
    fn commit(&mut self) -> io::Result<()> {
        let mut answers = std::mem::take(&mut self.answers);
        std::mem::swap(&mut answers, &mut *self.mailbox.answered.lock());
        for answer in answers.drain(..) {
            let memory = self.entry(answer.entry)?;
            let commit_id = memory.ring().commit_id;
            // SAFETY: the request was served and answered, so nobody but this thread uses the
            // memory until the command below is submitted.
            unsafe {
                let copied = match &answer.body {
                    AnswerBody::Short(bytes, size) => bytes.get(..*size).unwrap_or_default(),
                    AnswerBody::Copied(bytes) => bytes,
                    AnswerBody::InPlace(_) => &[],
                };
                memory.fill(&[copied]);
                let size = match &answer.body {
                    AnswerBody::InPlace(size) => *size,
                    _ => copied.len(),
                };
                memory.set_heads(&answer.head, size);
            }
            self.submit(Command::CommitAndFetch, answer.entry, commit_id)?;
        }
        self.answers = answers;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::counting::allocations;

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox {
            answered: Mutex::new(Vec::with_capacity(4)),
            wake: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            spare: AtomicBool::new(false),
        })
    }

    /// Answers with `len` bytes; what is in the mailbox then, and how many allocations that took.
    fn answer(len: usize, payload_in_use: bool) -> (Arc<Mailbox>, Arc<Memory>, u64) {
        let mailbox = mailbox();
        let memory = Arc::new(Memory::new(1 << 20, false));
        // SAFETY: nobody else has the memory.
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
            // SAFETY: nobody else has the memory.
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
