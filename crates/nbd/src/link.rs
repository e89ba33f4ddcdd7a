//! The connections to a server, and their renewal when the server is lost.
//!
//! 1. Data that was acknowledged and not flushed is written again over the first of the new
//!    connections, before any other request uses them.
//! 2. A request without a reply is sent again by its thread. Reads, writes and flushes may
//!    therefore run twice: the order of concurrent requests is undefined anyway.
//! 3. The export that comes back must be the one that was lost: the same size, the same rights, and
//!    the data that was flushed last. Otherwise no request is served any more.
//! 4. A server that is reachable and misses a deadline gets no further requests, permanently: it
//!    may still carry out the old ones.

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

/// Options for the use of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// Refuses writes.
    pub read_only: bool,
    /// Number of connections, if the server supports several; at least 1.
    pub connections: usize,
    /// Time limit for reconnecting to a lost server, before requests fail.
    pub timeout: Duration,
    /// Time limit for the answer to a request. After it the server gets no further requests: if it
    /// still runs it may carry out the request, so the request is not sent again. `Duration::MAX`
    /// sets no limit once the handshake is done.
    pub answer: Duration,
    /// Makes the connections, if not this process.
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

/// The state of the link to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdState {
    /// Number of open connections; 0 while the server is lost.
    pub connections: usize,
    /// Number of times that the server was lost.
    pub losses: u64,
    /// Bytes written again after reconnects.
    pub bytes_written_again: u64,
    /// Bytes that a reconnect would write again.
    pub bytes_unflushed: u64,
}

/// A request and its outcome.
pub(crate) struct Job<'a> {
    pub(crate) request: Request,
    /// The data of a write.
    pub(crate) data: &'a [u8],
    /// The data of a read, or the server's error.
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

/// Maximum number of requests of one caller in flight on a connection.
const WINDOW: usize = 64;
/// A request that has lost the server this many times, and for at least the timeout, fails.
const IN_VAIN: u32 = 8;
/// Shortest and longest pause between attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

struct Session {
    connections: Vec<Connection>,
    next: AtomicUsize,
}

impl Session {
    fn lost(&self) -> Option<Trouble> {
        self.connections.iter().find_map(Connection::lost)
    }

    /// Sends the requests without an outcome, and waits for their replies. All use one connection:
    /// a thread that waited to send on one connection while its replies come on another would block
    /// a server that answers in turn.
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
    /// The time at which the server was lost, while it is.
    lost_since: Option<Instant>,
    /// The time of the last failed attempt to connect.
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
    /// The server is not there, or refuses the export or the requested access.
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
        // `try_lock`, as a thread that reconnects holds the lock for long.
        let now = self.now.try_lock();
        let session = now.and_then(|now| now.session.clone());
        NbdState {
            connections: session.map_or(0, |session| session.connections.len()),
            losses: self.losses.load(Relaxed),
            bytes_written_again: self.written_again.load(Relaxed),
            bytes_unflushed: self.unflushed.lock().bytes(),
        }
    }

    /// Runs requests, over new connections if these are lost. Then every request has an outcome. If
    /// the server stays lost, it is unknown whether the failed requests were carried out.
    ///
    /// # Errors
    /// The first error of these requests.
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
                // No pause the first time: the server may have been lost for long, and be back by
                // now.
                _ if in_vain > 1 => thread::sleep(PAUSES.0 * in_vain.min(IN_VAIN)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The current connections; reconnects if they are lost.
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
            return Err(self.given_up("the last attempt to reconnect failed a moment ago"));
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
                        tracing::error!(
                            "{}: no connection within the timeout, requests fail now: {e}",
                            self.way.address
                        );
                        return Err(self.given_up(&e.to_string()));
                    }
                    tracing::info!("{}: {e}; trying again", self.way.address);
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Ends all use of the server: further requests fail with `reason`.
    fn stop(&self, now: &mut Now, reason: Arc<str>) -> Trouble {
        tracing::error!("{}: {reason}", self.way.address);
        now.stopped = Some(Arc::clone(&reason));
        Trouble::Stopped(reason)
    }

    fn given_up(&self, why: &str) -> Trouble {
        let reason = format!("the server of {} is lost: {why}", self.way.address);
        std::io::Error::new(std::io::ErrorKind::NotConnected, reason).into()
    }

    /// Reconnects (1, 3).
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

    /// Opens further connections beside the first, as many as allowed.
    fn session_of(&self, first: Connection) -> Session {
        let mut connections = vec![first];
        let several = self.export.is_for_many() && self.options.connections > 1;
        while several && connections.len() < self.options.connections {
            match self.way.connect() {
                Ok((another, export)) if export == self.export => connections.push(another),
                Ok(_) => break,
                Err(e) => {
                    let (n, address) = (connections.len(), &self.way.address);
                    tracing::info!("{address}: only {n} connections could be opened: {e}");
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
            return changed(
                "the export's flags or request limits changed while the server was lost".into(),
            );
        }
        Ok(())
    }

    fn is_there(&self, session: &Session, expected: &Expected) -> Result<()> {
        let len = expected.contents.iter().map(|c| c.len()).max().unwrap_or(0);
        let mut jobs = [Job::new(Command::Read, expected.offset, len as u64)];
        session.run(&mut jobs)?;
        let [Job { outcome, .. }] = jobs;
        let found = outcome
            .unwrap_or_else(|| Err(Trouble::nonsense("internal error: a read without a result")))?;
        if expected.contents.iter().any(|c| found.starts_with(c)) {
            return Ok(());
        }
        let what = match expected.is_guard {
            true => "another machine has taken the volume while its server was lost".into(),
            false => format!(
                "the server came back with different data at byte {}, which had been flushed: it \
                 serves another volume or an older state of this one, or another client has \
                 written to it",
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
        // Not permanent: a later attempt may succeed.
        first_error(&jobs).map_err(|e| match e {
            Trouble::Stopped(reason) => Trouble::Stopped(reason),
            e => Trouble::refused(format!(
                "the server refuses to rewrite data that it had acknowledged: {e}"
            )),
        })?;
        self.written_again.fetch_add(bytes, Relaxed);
        let n = session.connections.len();
        tracing::warn!(
            "{} is back, by {n} connections; {bytes} bytes that were not flushed have been written \
             again",
            self.way.address
        );
        Ok(())
    }

    /// Disconnects in an orderly way.
    pub(crate) fn close(&self) {
        let session = self.now.lock().session.take();
        if let Some(session) = session {
            session.connections.iter().for_each(Connection::take_leave);
        }
    }
}

/// The first error of these requests.
pub(crate) fn first_error(jobs: &[Job<'_>]) -> Result<()> {
    let mut outcomes = jobs.iter().filter_map(|job| job.outcome.as_ref());
    let error = outcomes.find_map(|outcome| outcome.as_ref().err());
    error.map_or(Ok(()), |e| Err(e.clone()))
}

/// The write requests for `content`.
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

/// Splits a range into parts of at most `max` bytes: offset and length of each.
pub(crate) fn spans(offset: u64, len: u64, max: u32) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + len;
    let starts = (offset..end).step_by(max as usize);
    starts.map(move |at| (at, (end - at).min(u64::from(max))))
}
