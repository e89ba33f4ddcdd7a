//! A session with the kernel: it negotiates, receives requests from `/dev/fuse` and io_uring, and
//! has them served by a [`FileSystem`]. [`Offline`] is a session without a kernel.

mod offline;
mod queue;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stetfs::low::Ino;
use zerocopy::IntoBytes;

pub use self::offline::Offline;
use crate::api::buffer;
use crate::api::inline_wait::{self, Servers};
use crate::api::ops::{FileSystem, Invalidate};
use crate::dispatch::{self, Next};
use crate::transport::awake::{Awake, Pulse};
use crate::transport::channel::{Channel, Received};
use crate::transport::current::{Transport, per_queue};
use crate::transport::port::Port;
use crate::transport::ring::{self, Ring, Rings};
use crate::wire::abi::{self, init};
use crate::wire::limits::MAX_WRITE;
use crate::wire::negotiate::{Agreed, SessionOptions, agree, is_stateless};
use crate::wire::node::node_of;

/// Pause in which FORGET requests gather where the device brings nothing else: waking a thread for
/// each inode takes processor time from programs that delete many files.
const GATHER: Duration = Duration::from_millis(1);
/// Requests within this multiple of it count as close.
const CLOSE: u32 = 3;

/// A connection to the kernel.
pub(crate) struct Session<F> {
    fs: Arc<F>,
    channel: Channel,
    agreed: Agreed,
    transport: Arc<Transport>,
    /// Rings for queues.
    spare: Rings,
    /// The channels and rings, once they are made.
    ways: Option<Ways>,
}

/// The channels and rings that bring requests.
struct Ways {
    /// For the threads that read the device.
    channels: Vec<Channel>,
    /// For the threads of the queues, by queue.
    rings: Vec<Vec<Ring>>,
}

impl<F: FileSystem> Session<F> {
    /// Negotiates with the kernel. `fuse` is the descriptor that was mounted.
    pub(crate) fn start(
        fs: Arc<F>,
        fuse: OwnedFd,
        mut options: SessionOptions,
        mut rings: Rings,
    ) -> io::Result<Session<F>> {
        let channel = Channel::new(fuse);
        let mut buf = vec![0; abi::MIN_READ_BUFFER];
        let n = match channel.receive(&mut buf)? {
            Received::Request(n) => n,
            Received::End => return Err(io::ErrorKind::NotConnected.into()),
        };
        let request = buf.get(..n).unwrap_or_default();
        let transport = Transport::default();
        let send = |unique: u64, error: i32, body: &[u8]| channel.send(unique, error, [body, &[]]);
        let mut first = agree(request, &options, send)?;
        if first.agreed.flags() & init::OVER_IO_URING != 0
            && let Err(e) = ring::possible(&channel, MAX_WRITE as usize, &mut rings)
        {
            transport.by_device(&e);
            options.io_uring = false;
            first = agree(request, &options, send)?;
        }
        if first.agreed.flags() & init::OVER_IO_URING != 0 {
            transport.by_rings(ring::queues()?);
        }
        send(first.unique, 0, first.agreed.answer().as_bytes());
        Ok(Session {
            fs,
            channel,
            agreed: first.agreed,
            transport: Arc::new(transport),
            spare: rings,
            ways: None,
        })
    }

    /// Whether files and directories are to be opened without a request: the file system answers
    /// ENOSYS to the first one.
    pub(crate) fn is_stateless(&self) -> bool {
        is_stateless(self.agreed)
    }

    /// The sender of notifications about changes.
    pub(crate) fn kernel(&self) -> Arc<dyn Invalidate> {
        Arc::new(Kernel(self.channel.clone()))
    }

    /// The result of the negotiation.
    pub(crate) fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// The transport of requests.
    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    /// Makes the channels and rings for `threads` threads, for a process that then gives up the
    /// right to make any.
    ///
    /// # Errors
    /// The kernel gives no ring.
    pub(crate) fn prepare(&mut self, threads: usize) -> io::Result<()> {
        let queues = self.transport.queues();
        // With queues the device brings only FORGET.
        let readers = if queues > 0 { 1 } else { threads };
        let channels: io::Result<Vec<Channel>> =
            (1..readers).map(|_| self.channel.another()).collect();
        let mut channels = channels?;
        channels.push(self.channel.clone());
        let each = per_queue(threads, usize::from(queues).max(1));
        let mut spare = std::mem::take(&mut self.spare);
        let mut of_queue = |_| (0..each).map(|_| spare.take(&self.channel)).collect();
        let rings: io::Result<Vec<Vec<_>>> = (0..queues).map(&mut of_queue).collect();
        self.ways = Some(Ways {
            channels,
            rings: rings?,
        });
        Ok(())
    }

    /// Serves requests with `threads` threads until the connection ends, and shuts the file system
    /// down: before the answer to the kernel's last request, if it sends one (`fuseblk`). If
    /// `prepare` was called before, its number of threads counts.
    pub(crate) fn run(mut self, threads: usize, awake: &Awake) -> io::Result<()> {
        if self.ways.is_none() {
            self.prepare(threads)?;
        }
        let ways = self.ways.take();
        let Ways { channels, rings } =
            ways.ok_or_else(|| io::Error::other("a session without ways to its requests"))?;
        type Job<'a> = Box<dyn FnOnce() -> io::Result<()> + Send + 'a>;
        let fs = &*self.fs;
        let device = Device {
            fs,
            servers: Servers::default(),
            transport: &self.transport,
        };
        let device = &device;
        let of_queues: Vec<Servers> = rings.iter().map(|_| Servers::default()).collect();
        let mut jobs: Vec<(String, Job<'_>)> = Vec::new();
        for (i, channel) in channels.into_iter().enumerate() {
            let pulse = awake.pulse();
            let job = move || device.serve(&channel, &pulse);
            jobs.push((format!("fuse-{i}"), Box::new(job)));
        }
        for ((qid, servers), rings) in (0..).zip(&of_queues).zip(rings) {
            for (i, ring) in rings.into_iter().enumerate() {
                let fuse = self.channel.clone();
                let pulse = awake.pulse();
                let job = move || {
                    match queue::serve(fs, ring, qid, servers, &pulse, MAX_WRITE as usize)? {
                        queue::Served::All => Ok(()),
                        // The kernel has gone back to the device then.
                        queue::Served::Refused(e) => {
                            device.transport.by_device(&e);
                            device.serve(&fuse.another()?, &pulse)
                        }
                    }
                };
                jobs.push((format!("fuse-q{qid}-{i}"), Box::new(job)));
            }
        }
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for (name, job) in jobs {
                let failed = &failed;
                let run = move || {
                    if let Err(e) = job() {
                        failed.lock().get_or_insert(e);
                    }
                };
                let spawned = std::thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, run);
                if let Err(e) = spawned {
                    failed.lock().get_or_insert(e);
                }
            }
        });
        self.fs.shutdown();
        failed.into_inner().map_or(Ok(()), Err)
    }
}

/// Lets closely following requests gather: the kernel then passes many forgotten inodes at once.
#[derive(Default)]
struct Gather {
    /// Time of the last served request.
    last: Option<Instant>,
}

impl Gather {
    /// Called after each request: pauses if it followed closely.
    fn pause(&mut self) {
        let before = self.last.replace(Instant::now());
        if before.is_some_and(|at| at.elapsed() < CLOSE * GATHER) {
            std::thread::sleep(GATHER);
        }
    }
}

/// The server of requests from `/dev/fuse`.
struct Device<'a, F> {
    fs: &'a F,
    servers: Servers,
    transport: &'a Transport,
}

impl<F: FileSystem> Device<'_, F> {
    /// Serves the requests of one descriptor.
    fn serve(&self, channel: &Channel, pulse: &Pulse) -> io::Result<()> {
        let mut gather = Gather::default();
        let mut buf = vec![0; MAX_WRITE as usize + abi::MIN_READ_BUFFER];
        buffer::touch(&mut buf);
        loop {
            let (received, more) = self.servers.idle(|| channel.receive(&mut buf));
            let n = match received? {
                Received::Request(n) => n,
                Received::End => return Ok(()),
            };
            pulse.beat();
            inline_wait::set(more, more);
            let request = buf.get(..n).unwrap_or_default();
            let port = || Port::Device(channel.clone());
            match dispatch::serve_bytes(self.fs, port, request) {
                Next::GoOn => {}
                Next::Destroy(reply) => {
                    self.fs.shutdown();
                    reply.empty();
                }
            }
            if self.transport.queues() > 0 {
                gather.pause();
            }
        }
    }
}

struct Kernel(Channel);

impl Invalidate for Kernel {
    fn attributes(&self, ino: Ino) {
        self.0.forget_attributes(node_of(ino));
    }

    fn content(&self, ino: Ino, offset: u64, len: u64) {
        self.0.forget_content(node_of(ino), offset, len);
    }
}
