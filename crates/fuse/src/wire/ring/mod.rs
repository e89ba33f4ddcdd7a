//! FUSE over io_uring: requests come to a queue per processor, to a thread that runs there, and an
//! answer and the wait for the next request are one system call.
//!
//! Each thread has a ring of its own with one entry that waits for a request. An operation that is
//! answered later, from another thread, keeps its entry; the thread then gives the kernel another one,
//! so a slow answer holds nobody up. Answers from other threads come through a mailbox. (Where nobody else
//! asks, the thread may wait itself: `patience`.)

mod command;
mod memory;
mod place;

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use stetfs::FsError;

use self::command::Command;
use self::memory::Memory;
use self::place::Place;
use super::abi::OutHeader;
use super::channel::Channel;
use super::dispatch::{self, Body, Next};
use super::port::{Port, Read};
use super::reply::Reply;
use crate::ops::FileSystem;
use crate::patience::{self, Askers, Servers};

/// Entries one thread has at most: operations of its queue under way at once.
const MAX_ENTRIES: usize = 64;
/// Answers up to this size, and requests, are copied; longer ones are written in place.
const SMALL: usize = 4096;
/// `user_data` of the wake-up call.
const WAKE: u64 = u64::MAX;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

thread_local! {
    /// The mailbox of this thread, by address, if it serves a ring.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// Where answers of one thread's requests are put.
struct Mailbox {
    answered: Mutex<Vec<Answer>>,
    wake: OwnedFd,
}

/// An answer on its way into the ring.
struct Answer {
    entry: u64,
    head: OutHeader,
    body: AnswerBody,
}

enum AnswerBody {
    /// Still to be written.
    Copied(Vec<u8>),
    /// Written already, so many bytes.
    InPlace(usize),
}

/// The way back of a request that came by a ring.
pub(super) struct Slot {
    mailbox: Arc<Mailbox>,
    memory: Arc<Memory>,
    entry: u64,
    /// The request's payload may be in use while it is answered.
    payload_in_use: bool,
}

impl Slot {
    pub(super) fn send(&mut self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        let len = parts[0].len() + parts[1].len();
        let (error, len) = match error {
            0 if len > self.memory.room() => (libc::EIO, 0),
            0 => (0, len),
            errno => (errno, 0),
        };
        let body = if error != 0 {
            AnswerBody::InPlace(0)
        } else if self.payload_in_use || len <= SMALL {
            AnswerBody::Copied(parts.concat())
        } else {
            // SAFETY: the request's payload was copied, and a request is answered once.
            unsafe { self.memory.fill(&parts) };
            AnswerBody::InPlace(len)
        };
        self.put(unique, error, len, body);
    }

    /// Sends what `read` puts into the entry's memory, up to `size` bytes; unless it fails, and then nothing was sent.
    pub(super) fn send_read(
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

    fn put(&mut self, unique: u64, error: i32, len: usize, body: AnswerBody) {
        let answer = Answer {
            entry: self.entry,
            head: OutHeader {
                len: (size_of::<OutHeader>() + len) as u32,
                error: -error,
                unique,
            },
            body,
        };
        self.mailbox.answered.lock().push(answer);
        if MINE.get() != Arc::as_ptr(&self.mailbox).addr() {
            // It is a counter that cannot overflow here; a thread that ended needs no call.
            let _ = rustix::io::write(&self.mailbox.wake, &1u64.to_ne_bytes());
        }
    }
}

/// Queues the kernel will want: one for each processor there could be.
pub(super) fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    last.parse::<u16>()
        .map(|n| n.saturating_add(1))
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the number of processors"))
}

/// Whether rings can be made here; once the kernel has been told of them there is no way back.
pub(super) fn possible() -> bool {
    queues().is_ok() && make_ring().is_ok()
}

fn make_ring() -> io::Result<Ring> {
    let entries = MAX_ENTRIES as u32 * 2;
    Ring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries)
        .or_else(|_| Ring::builder().build(entries))
}

/// One thread's ring.
struct Queue<'a, F> {
    fs: &'a F,
    fuse: Channel,
    qid: u16,
    servers: &'a Servers,
    place: Place,
    /// Another thread waited for requests of the queue when the last came.
    more: bool,
    askers: Askers,
    ring: Ring,
    mailbox: Arc<Mailbox>,
    /// Memory of all entries the kernel knows of, by number.
    entries: HashMap<u64, Arc<Memory>>,
    /// Entries that wait for a request.
    waiting: usize,
    /// Where the wake-up call's read puts what it reads.
    counter: Box<u64>,
    /// The copied payload of a request.
    copy: Vec<u8>,
    payload: usize,
}

/// Serves queue `qid` of the connection until it ends. To be called by a thread of its own.
/// `payload` is the longest request or answer, bytes.
pub(super) fn serve<F: FileSystem>(
    fs: &F,
    fuse: Channel,
    qid: u16,
    servers: &Servers,
    payload: usize,
) -> io::Result<()> {
    let mailbox = Arc::new(Mailbox {
        answered: Mutex::new(Vec::new()),
        wake: eventfd(0, EventfdFlags::CLOEXEC)?,
    });
    MINE.set(Arc::as_ptr(&mailbox).addr());
    let mut queue = Queue {
        fs,
        fuse,
        qid,
        servers,
        place: Place::pinned(qid),
        more: false,
        askers: Askers::default(),
        ring: make_ring()?,
        mailbox,
        entries: HashMap::new(),
        waiting: 0,
        counter: Box::new(0),
        copy: Vec::new(),
        payload,
    };
    queue.listen()?;
    queue.register()?;
    queue.run()
}

impl<F: FileSystem> Queue<'_, F> {
    fn run(&mut self) -> io::Result<()> {
        let mut done: Vec<(u64, i32)> = Vec::new();
        loop {
            let ring = &self.ring;
            let (waited, more) = self.servers.idle(|| ring.submit_and_wait(1));
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
                } else if !self.completed(entry, result)? {
                    // The connection has ended; closing the ring takes the other entries back.
                    return Ok(());
                }
            }
            self.commit()?;
            if self.waiting == 0 && self.entries.len() < MAX_ENTRIES {
                self.register()?;
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
        let memory = Arc::new(Memory::new(self.payload)?);
        let number = self.entries.len() as u64;
        self.entries.insert(number, memory);
        self.submit(Command::Register, number, 0)
    }

    fn submit(&mut self, command: Command, number: u64, commit_id: u64) -> io::Result<()> {
        let Some(memory) = self.entries.get(&number) else {
            return Ok(());
        };
        let fuse = self.fuse.as_fd().as_raw_fd();
        let entry = command::entry(fuse, command, self.qid, commit_id, memory, number);
        self.waiting += 1;
        self.push(&entry)
    }

    /// A command is done: a request is there, or none will come (false).
    fn completed(&mut self, number: u64, result: i32) -> io::Result<bool> {
        self.waiting -= 1;
        match -result {
            0 => {}
            libc::EAGAIN | libc::EINTR => {
                self.submit(Command::Register, number, 0)?;
                return Ok(true);
            }
            libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV => {
                return Ok(false);
            }
            errno => {
                let e = io::Error::from_raw_os_error(errno);
                return Err(io::Error::new(
                    e.kind(),
                    format!("the kernel refused FUSE over io_uring (mount with io_uring=off): {e}"),
                ));
            }
        }
        let Some(memory) = self.entries.get(&number).map(Arc::clone) else {
            return Ok(true);
        };
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
        self.place.serve(dispatch::is_long_read(&head, &operation));
        let crowded = self.askers.ask(head.pid);
        patience::set(self.more && !crowded, self.more);
        let reply = Reply::new(Port::Ring(slot), head.unique);
        if let Next::Destroy(reply) =
            dispatch::serve(self.fs, &head, Body::split(&operation, payload), reply)
        {
            self.fs.shutdown();
            reply.empty();
        }
        Ok(true)
    }

    /// Puts what was answered into the ring.
    fn commit(&mut self) -> io::Result<()> {
        let answers = std::mem::take(&mut *self.mailbox.answered.lock());
        for answer in answers {
            let Some(memory) = self.entries.get(&answer.entry) else {
                continue;
            };
            let commit_id = memory.ring().commit_id;
            // SAFETY: the request was served and answered, so nobody but this thread uses the memory
            // until the command below is submitted.
            unsafe {
                let size = match &answer.body {
                    AnswerBody::Copied(bytes) => {
                        memory.fill(&[bytes]);
                        bytes.len()
                    }
                    AnswerBody::InPlace(size) => *size,
                };
                memory.set_heads(&answer.head, size);
            }
            self.submit(Command::CommitAndFetch, answer.entry, commit_id)?;
        }
        Ok(())
    }
}
