//! A server of a disk in memory with a volatile cache. When it dies it loses a random choice of the
//! unflushed sectors.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use stetfs_nbd::{NbdDevice, NbdOptions};
use stetfs_testkit::nbd::{self, Disk, Done, How};

struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    rng: fastrand::Rng,
}

/// The disk.
pub(crate) struct Ram {
    content: Mutex<Content>,
    size: u64,
    /// The errno of its answers to writes.
    pub(crate) write_errno: AtomicU32,
    /// The errno of its answers to flushes; a failed flush also loses the unflushed data.
    pub(crate) flush_errno: AtomicU32,
    /// Number of flush requests.
    pub(crate) flushes: AtomicU64,
}

impl Ram {
    fn change(&self, at: u64, len: u64, fua: bool, change: impl FnOnce(&mut [u8])) -> Done {
        match self.write_errno.load(SeqCst) {
            0 => {}
            errno => return Err(errno),
        }
        let content = &mut *self.content.lock();
        let range = at as usize..(at + len) as usize;
        change(&mut content.now[range.clone()]);
        if fua {
            content.durable[range.clone()].copy_from_slice(&content.now[range]);
        }
        Ok(())
    }
}

impl Disk for Ram {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Done {
        into.copy_from_slice(&self.content.lock().now[at as usize..][..into.len()]);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8], fua: bool) -> Done {
        self.change(at, data.len() as u64, fua, |now| now.copy_from_slice(data))
    }

    fn zero(&self, at: u64, len: u64, fua: bool) -> Done {
        self.change(at, len, fua, |now| now.fill(0))
    }

    /// Trimmed content is kept or zeroed at random.
    fn trim(&self, at: u64, len: u64) -> Done {
        let stays = self.content.lock().rng.bool();
        match stays {
            true => Ok(()),
            false => self.zero(at, len, false),
        }
    }

    fn flush(&self) -> Done {
        let content = &mut *self.content.lock();
        match self.flush_errno.load(SeqCst) {
            0 => {
                content.durable.clone_from(&content.now);
                self.flushes.fetch_add(1, SeqCst);
                Ok(())
            }
            errno => {
                content.now.clone_from(&content.durable);
                Err(errno)
            }
        }
    }

    /// Loses unflushed sectors at random, as in a power failure.
    fn forget(&self) {
        let Content { now, durable, rng } = &mut *self.content.lock();
        for (now, durable) in now.chunks_mut(512).zip(durable.chunks_mut(512)) {
            match rng.bool() {
                true => durable.copy_from_slice(now),
                false => now.copy_from_slice(durable),
            }
        }
    }
}

/// A server under the control of a test.
pub(crate) struct Server(nbd::Server<Ram>);

impl Deref for Server {
    type Target = nbd::Server<Ram>;

    fn deref(&self) -> &nbd::Server<Ram> {
        &self.0
    }
}

impl Server {
    pub(crate) fn new(size: usize, how: How, seed: u64) -> Server {
        let disk = Ram {
            content: Mutex::new(Content {
                now: vec![0; size],
                durable: vec![0; size],
                rng: fastrand::Rng::with_seed(seed),
            }),
            size: size as u64,
            write_errno: AtomicU32::new(0),
            flush_errno: AtomicU32::new(0),
            flushes: AtomicU64::new(0),
        };
        Server(nbd::Server::new(Arc::new(disk), how, !seed).unwrap())
    }

    pub(crate) fn open(&self, options: NbdOptions) -> NbdDevice {
        self.try_open(options).unwrap()
    }

    pub(crate) fn try_open(&self, options: NbdOptions) -> stetfs_block::Result<NbdDevice> {
        NbdDevice::open(Path::new(&self.address()), options)
    }

    /// The durable content.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.disk().content.lock().durable.clone()
    }

    /// Writes to the disk behind the client's back.
    pub(crate) fn overwrite(&self, at: usize, bytes: &[u8]) {
        let disk = &mut *self.disk().content.lock();
        for content in [&mut disk.now, &mut disk.durable] {
            content[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}
