//! The connections to a server, and new ones when they are lost.
//!
//! 1. What was acknowledged and not flushed is written again over the first of the new connections
//!    before anybody else uses them.
//! 2. A request that had no reply is sent again by who asked. Reads, writes and flushes may happen
//!    twice: of what is under way at one time the order is open anyway.
//! 3. What comes back must be what was lost: the same size, the same rights, and what was flushed
//!    last. Else nothing is read or written any more.
//! 4. A server that is there and does not answer in time is asked nothing more, for good: it may
//!    still carry out what it was asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::address::Address;
use crate::connection::Connection;
use crate::error::{Result, Trouble};
use crate::handshake::Export;
use crate::place::Connector;
use crate::unflushed::{Content, Expected, Unflushed};
use crate::way::Way;
use crate::wire::{Command, Request};

/// How a server is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Connections, where the server says that there may be several; at least 1.
    pub connections: usize,
    /// How long to try when the server is lost, before requests fail.
    pub timeout: Duration,
    /// How long the server may take to answer a request, before nothing more is asked of it: one
    /// that is alive may still carry it out, so the request is not sent again. `Duration::MAX`: as
    /// long as it takes, once hands are shaken.
    pub answer: Duration,
    /// Who connects, if not this process.
    pub connector: Option<Connector>,
}

impl Default for NbdOptions {
    fn default() -> NbdOptions {
        NbdOptions {
            read_only: false,
            connections: 4,
            timeout: Duration::from_secs(60),
            answer: Duration::from_secs(180),
            connector: None,
        }
    }
}

/// How the server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdState {
    /// Connections that are open; none while the server is looked for.
    pub connections: usize,
    /// How often the server was lost.
    pub losses: u64,
    /// Bytes that were written again.
    pub bytes_written_again: u64,
    /// Bytes that would be.
    pub bytes_unflushed: u64,
}

/// A request, and what came of it.
pub(crate) struct Job<'a> {
    pub(crate) request: Request,
    /// What is written.
    pub(crate) data: &'a [u8],
    /// What was read, or the server's error.
    pub(crate) outcome: Option<Result<Vec<u8>>>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(command: Command, offset: u64, len: u64) -> Job<'a> {
        Job {
            request: Request {
                command,
                fua: false,
                offset,
                len: len as u32,
            },
            data: &[],
            outcome: None,
        }
    }

    pub(crate) fn write(offset: u64, data: &'a [u8], fua: bool) -> Job<'a> {
        let mut job = Job::new(Command::Write, offset, data.len() as u64);
        job.request.fua = fua;
        job.data = data;
        job
    }
}

/// Requests of one caller that are under way on a connection at a time: what they and their replies
/// take fits into a socket's buffers, so nobody has to receive while they are sent.
const WINDOW: usize = 64;
/// A server that is lost by the same request so often, and for as long as there is timeout, will
/// not answer it.
const IN_VAIN: u32 = 8;
/// Pauses between attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

struct Session {
    connections: Vec<Connection>,
    next: AtomicUsize,
}

impl Session {
    fn lost(&self) -> Option<Trouble> {
        self.connections.iter().find_map(Connection::lost)
    }

    /// Sends what has no outcome yet, and waits for it. One connection for all: who waited for one
    /// while replies come by another would stop a server that answers in turn.
    fn run(&self, jobs: &mut [Job<'_>]) -> Result<()> {
        let turn = self.next.fetch_add(1, Relaxed) % self.connections.len();
        let none = || Trouble::nonsense("no connection");
        let connection = self.connections.get(turn).ok_or_else(none)?;
        for jobs in jobs.chunks_mut(WINDOW) {
            let mut lost = Ok(());
            let sent: Vec<_> = jobs
                .iter_mut()
                .filter(|job| job.outcome.is_none())
                .map(|job| (connection.send(&job.request, job.data), job))
                .collect();
            for (cookie, job) in sent {
                match cookie.and_then(|cookie| connection.wait(cookie, job.request.len)) {
                    Err(e @ Trouble::Lost(_)) => lost = Err(e),
                    done => job.outcome = Some(done),
                }
            }
            lost?;
        }
        Ok(())
    }

    fn close(&self) {
        self.connections.iter().for_each(Connection::close);
    }
}

#[derive(Default)]
struct Now {
    session: Option<Arc<Session>>,
    /// Since when the server is lost.
    lost_since: Option<Instant>,
    /// When a connection was tried last, in vain.
    tried: Option<Instant>,
    stopped: Option<Arc<str>>,
}

pub(crate) struct Link {
    way: Way,
    options: NbdOptions,
    export: Export,
    pub(crate) unflushed: Mutex<Unflushed>,
    now: Mutex<Now>,
    losses: AtomicU64,
    written_again: AtomicU64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.way.address)
    }
}

impl Link {
    /// Connects for the first time.
    ///
    /// # Errors
    /// The server is not there, or does not let us have the export as we want it.
    pub(crate) fn open(way: Way, options: NbdOptions) -> Result<Link> {
        let (first, export) = way.connect()?;
        if !options.read_only {
            export.check_writable()?;
        }
        let link = Link {
            way,
            options,
            export,
            unflushed: Mutex::default(),
            now: Mutex::default(),
            losses: AtomicU64::new(0),
            written_again: AtomicU64::new(0),
        };
        link.now.lock().session = Some(Arc::new(link.session_of(first)));
        Ok(link)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.way.address
    }

    pub(crate) fn export(&self) -> &Export {
        &self.export
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.export.check_writable()
    }

    pub(crate) fn read_only(&self) -> bool {
        self.options.read_only
    }

    pub(crate) fn state(&self) -> NbdState {
        // Whoever looks for the server has it, for long.
        let now = self.now.try_lock();
        let session = now.and_then(|now| now.session.clone());
        NbdState {
            connections: session.map_or(0, |session| session.connections.len()),
            losses: self.losses.load(Relaxed),
            bytes_written_again: self.written_again.load(Relaxed),
            bytes_unflushed: self.unflushed.lock().bytes(),
        }
    }

    /// Runs requests over new connections where these are lost. Each has an outcome then; of those
    /// of a server that stays lost nobody knows whether they happened.
    ///
    /// # Errors
    /// The first that one of them has.
    pub(crate) fn run(&self, jobs: &mut [Job<'_>]) -> Result<()> {
        if let Err(lost) = self.try_run(jobs) {
            let open = jobs.iter_mut().filter(|job| job.outcome.is_none());
            open.for_each(|job| job.outcome = Some(Err(lost.clone())));
        }
        first_error(jobs)
    }

    fn try_run(&self, jobs: &mut [Job<'_>]) -> Result<()> {
        let open = |jobs: &[Job<'_>]| jobs.iter().filter(|job| job.outcome.is_none()).count();
        let (mut left, mut in_vain, mut since) = (open(jobs), 0, Instant::now());
        while left > 0 {
            let lost = self.session()?.run(jobs);
            let now_left = open(jobs);
            if now_left < left {
                (left, in_vain, since) = (now_left, 0, Instant::now());
                continue;
            }
            in_vain += 1;
            match lost {
                Err(e) if in_vain >= IN_VAIN && since.elapsed() >= self.options.timeout => {
                    return Err(e);
                }
                // The first time it may have been lost for long, and be new by now.
                _ if in_vain > 1 => thread::sleep(PAUSES.0 * in_vain.min(IN_VAIN)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The connections; new ones if need be.
    fn session(&self) -> Result<Arc<Session>> {
        let mut now = self.now.lock();
        if let Some(stopped) = &now.stopped {
            return Err(Trouble::Stopped(Arc::clone(stopped)));
        }
        if let Some(session) = &now.session {
            let Some(lost) = session.lost() else {
                return Ok(Arc::clone(session));
            };
            session.close();
            if let Trouble::Stopped(reason) = lost {
                return Err(self.stop(&mut now, reason));
            }
            tracing::warn!("lost the server of {}: {lost}", self.way.address);
            now.session = None;
            now.lost_since = Some(Instant::now());
            self.losses.fetch_add(1, Relaxed);
        }
        let until = now.lost_since.map(|since| since + self.options.timeout);
        let is_over = || until.is_none_or(|until| Instant::now() >= until);
        if let Some(tried) = now.tried
            && is_over()
            && tried.elapsed() < PAUSES.1
        {
            return Err(self.given_up("it was tried a moment ago"));
        }
        let mut pause = PAUSES.0;
        loop {
            match self.renew() {
                Ok(session) => {
                    let session = Arc::new(session);
                    now.session = Some(Arc::clone(&session));
                    (now.lost_since, now.tried) = (None, None);
                    return Ok(session);
                }
                Err(Trouble::Stopped(reason)) => {
                    return Err(self.stop(&mut now, reason));
                }
                Err(e) => {
                    now.tried = Some(Instant::now());
                    if is_over() {
                        tracing::error!("{}: given up: {e}", self.way.address);
                        return Err(self.given_up(&e.to_string()));
                    }
                    tracing::info!("{}: {e}; trying again", self.way.address);
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Nothing more is read or written.
    fn stop(&self, now: &mut Now, reason: Arc<str>) -> Trouble {
        tracing::error!("{}: {reason}", self.way.address);
        now.stopped = Some(Arc::clone(&reason));
        Trouble::Stopped(reason)
    }

    fn given_up(&self, why: &str) -> Trouble {
        let reason = format!("the server of {} is lost: {why}", self.way.address);
        std::io::Error::new(std::io::ErrorKind::NotConnected, reason).into()
    }

    /// Connects again (1, 3).
    fn renew(&self) -> Result<Session> {
        let (first, export) = self.way.connect()?;
        self.is_the_same(&export)?;
        let (again, expected) = {
            let unflushed = self.unflushed.lock();
            (unflushed.all(), unflushed.expected())
        };
        let session = self.session_of(first);
        for expected in expected {
            self.is_there(&session, &expected)?;
        }
        self.write_again(&session, &again)?;
        Ok(session)
    }

    /// As many connections as there may be, with the first of them.
    fn session_of(&self, first: Connection) -> Session {
        let mut connections = vec![first];
        let several = self.export.is_for_many() && self.options.connections > 1;
        while several && connections.len() < self.options.connections {
            match self.way.connect() {
                Ok((another, export)) if export == self.export => connections.push(another),
                Ok(_) => break,
                Err(e) => {
                    let (n, address) = (connections.len(), &self.way.address);
                    tracing::info!("{address}: {n} connections, and no more: {e}");
                    break;
                }
            }
        }
        Session {
            connections,
            next: AtomicUsize::new(0),
        }
    }

    fn is_the_same(&self, export: &Export) -> Result<()> {
        let changed = |what: String| Err(Trouble::Stopped(what.into()));
        if export.size != self.export.size {
            return changed(format!(
                "the server came back with an export of {} bytes; it had {}",
                export.size, self.export.size
            ));
        }
        if export != &self.export {
            return changed("the server came back with other rights or requests".into());
        }
        Ok(())
    }

    fn is_there(&self, session: &Session, expected: &Expected) -> Result<()> {
        let len = expected.contents.iter().map(|c| c.len()).max().unwrap_or(0);
        let mut jobs = [Job::new(Command::Read, expected.offset, len as u64)];
        session.run(&mut jobs)?;
        let [Job { outcome, .. }] = jobs;
        let found = outcome.unwrap_or_else(|| Err(Trouble::nonsense("a read without outcome")))?;
        if expected.contents.iter().any(|c| found.starts_with(c)) {
            return Ok(());
        }
        let what = match expected.is_guard {
            true => "another machine has taken the volume while its server was lost".into(),
            false => format!(
                "the server came back without what it had made durable at byte {}: another volume, an older state of this one, or somebody else has written",
                expected.offset
            ),
        };
        Err(Trouble::Stopped(what.into()))
    }

    fn write_again(&self, session: &Session, again: &[(u64, Content)]) -> Result<()> {
        let mut jobs = Vec::new();
        let mut bytes = 0;
        for (offset, content) in again {
            bytes += content.len();
            jobs.extend(jobs_of(*offset, content, self.export.max_block, false));
        }
        session.run(&mut jobs)?;
        // Perhaps it can later.
        first_error(&jobs).map_err(|e| match e {
            Trouble::Stopped(reason) => Trouble::Stopped(reason),
            e => Trouble::refused(format!(
                "it does not take again what it had acknowledged: {e}"
            )),
        })?;
        self.written_again.fetch_add(bytes, Relaxed);
        let n = session.connections.len();
        tracing::warn!(
            "{} is back, by {n} connections; {bytes} bytes that were not flushed are written again",
            self.way.address
        );
        Ok(())
    }

    /// Takes leave of the server.
    pub(crate) fn close(&self) {
        let session = self.now.lock().session.take();
        if let Some(session) = session {
            session.connections.iter().for_each(Connection::take_leave);
        }
    }
}

/// The first error that one of these requests has.
pub(crate) fn first_error(jobs: &[Job<'_>]) -> Result<()> {
    let mut outcomes = jobs.iter().filter_map(|job| job.outcome.as_ref());
    let error = outcomes.find_map(|outcome| outcome.as_ref().err());
    error.map_or(Ok(()), |e| Err(e.clone()))
}

/// The requests that write `content`.
pub(crate) fn jobs_of(offset: u64, content: &Content, max: u32, fua: bool) -> Vec<Job<'_>> {
    match content {
        Content::Bytes(bytes) => {
            let parts = bytes.chunks(max as usize).enumerate();
            let at = |n: usize| offset + n as u64 * u64::from(max);
            parts
                .map(|(n, part)| Job::write(at(n), part, fua))
                .collect()
        }
        Content::Zeroes(len) => spans(offset, *len, u32::MAX / max * max)
            .map(|(at, len)| Job::new(Command::WriteZeroes, at, len))
            .collect(),
    }
}

/// Cuts a range into parts of at most `max` bytes: where each begins, and its bytes.
pub(crate) fn spans(offset: u64, len: u64, max: u32) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + len;
    let starts = (offset..end).step_by(max as usize);
    starts.map(move |at| (at, (end - at).min(u64::from(max))))
}
