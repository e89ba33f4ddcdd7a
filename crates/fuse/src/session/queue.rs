//! FUSE over io_uring: requests come to a queue per processor, to a thread that runs there, and one
//! system call sends an answer and waits for the next request.
//!
//! Each thread has a ring of its own with one entry that waits for a request. An operation that is
//! answered later, from another thread, keeps its entry; the thread then gives the kernel another
//! entry, so a slow answer blocks no other request. Answers from other threads come through a
//! mailbox. (If no other process sends requests, the thread may wait itself: `inline_wait`.)

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::api::inline_wait::{self, Askers, Servers};
use crate::api::ops::FileSystem;
use crate::dispatch::reply::Reply;
use crate::dispatch::{self, Body, Next};
use crate::transport::awake::{Attention, Pulse};
use crate::transport::port::Port;
use crate::transport::ring::command::{self, Command};
use crate::transport::ring::memory::Memory;
use crate::transport::ring::place::{Place, Where};
use crate::transport::ring::slot::{Answer, AnswerBody, MAILBOXES, MINE, Mailbox, Slot};
use crate::transport::ring::{MAX_ENTRIES, Ring};

/// Number of entries whose memory is allocated at once; more are used only when many requests wait
/// for the device.
const PREPARED: usize = 4;
/// Payloads of requests up to this size are copied, so that their memory is free for the answer.
const SMALL: usize = 4096;
/// `user_data` of the read for wake-ups.
const WAKE: u64 = u64::MAX;

/// The way in which serving a queue ended.
pub(crate) enum Served {
    /// With the connection.
    All,
    /// Before it began: the kernel accepts no entries.
    Refused(io::Error),
}

/// The consequence of a completed command.
enum Told {
    /// Go on.
    GoOn,
    /// The connection has ended.
    Ended,
    /// The kernel does not accept the entry.
    Refused(io::Error),
}

/// One thread's ring, and its state.
struct Queue<'a, F> {
    fs: &'a F,
    qid: u16,
    servers: &'a Servers,
    place: Place,
    /// Whether another thread waited for requests of the queue when the last one came.
    more: bool,
    askers: Askers,
    ring: Ring,
    mailbox: Arc<Mailbox>,
    /// Answers taken from the mailbox; kept for its allocation.
    answers: Vec<Answer>,
    pulse: &'a Pulse,
    attention: Attention,
    /// Memory of all entries, by number.
    entries: Vec<Arc<Memory>>,
    /// Maximum number of entries that the kernel accepts.
    most: usize,
    /// Whether a request came.
    begun: bool,
    /// Number of entries that wait for a request.
    waiting: usize,
    /// The buffer of the read for wake-ups.
    counter: Box<u64>,
    /// The copied payload of a request.
    copy: Vec<u8>,
    payload: usize,
}

/// Serves queue `qid` of the connection by `ring` until it ends. Call it in a thread of its own.
/// `payload` is the maximum length of a request or answer in bytes.
pub(crate) fn serve<F: FileSystem>(
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
    // The address may be reused.
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
                    // Answers come first.
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
            // A request that is held back keeps its entry. Linux (6.18) does not give a new entry
            // any request that waits already, so there must always be a free one.
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
            // SAFETY: the memory that an entry points to (its buffers, and the counter) is kept in
            // `self`, and the ring, with all commands in flight, is dropped before it.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    /// Reads the wake-ups of other threads.
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

    /// The entry of this number, which was given to the kernel.
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

    /// Handles a completed command: it brings a request, or none will come.
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
        // Other answers of this thread would wait, too.
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

    /// Puts the answers into the ring.
    fn commit(&mut self) -> io::Result<()> {
        let mut answers = std::mem::take(&mut self.answers);
        std::mem::swap(&mut answers, &mut *self.mailbox.answered.lock());
        for answer in answers.drain(..) {
            let memory = self.entry(answer.entry)?;
            let commit_id = memory.ring().commit_id;
            // SAFETY: the request was served and answered, so only this thread uses the memory
            // until the command below is submitted.
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
