//! Dropping stale pages of the kernel: those of refused writes, and all pages of a file that
//! becomes immutable. A thread of its own drops them, as the kernel waits meanwhile for requests
//! about them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use stetfs::low::Ino;

use crate::api::ops::Invalidate;

/// A job during which the kernel may wait for requests.
type Job = Box<dyn FnOnce(&dyn Invalidate) + Send>;

#[derive(Default)]
struct Work {
    /// The ranges to drop: the union of the requested ranges of each file.
    ranges: BTreeMap<Ino, Range<u64>>,
    jobs: VecDeque<Job>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    more: Condvar,
}

impl Shared {
    fn serve(&self, kernel: &dyn Invalidate) {
        loop {
            let mut work = self.work.lock();
            if let Some((ino, range)) = work.ranges.pop_first() {
                drop(work);
                kernel.content(ino, range.start, range.end - range.start);
            } else if let Some(job) = work.jobs.pop_front() {
                drop(work);
                job(kernel);
            } else if work.ended {
                return;
            } else {
                self.more.wait(&mut work);
            }
        }
    }

    fn add(&self, what: impl FnOnce(&mut Work)) {
        what(&mut self.work.lock());
        self.more.notify_one();
    }
}

/// The dropping thread; it ends when this is dropped and no work is left.
pub(crate) struct Stale(Arc<Shared>);

impl Stale {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn start(kernel: Arc<dyn Invalidate>) -> io::Result<Stale> {
        let shared = Arc::<Shared>::default();
        let its = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("fuse-stale".to_owned())
            .spawn(move || its.serve(&*kernel))?;
        Ok(Stale(shared))
    }

    /// Has `len` bytes of `ino` at `offset` dropped, soon.
    pub(crate) fn forget(&self, ino: Ino, offset: u64, len: usize) {
        let end = offset.saturating_add(len as u64);
        if end > offset {
            self.0.add(|work| {
                let range = work.ranges.entry(ino).or_insert(offset..end);
                *range = range.start.min(offset)..range.end.max(end);
            });
        }
    }

    /// Runs `job` in the thread.
    pub(crate) fn run(&self, job: Job) {
        self.0.add(|work| work.jobs.push_back(job));
    }
}

impl Drop for Stale {
    fn drop(&mut self) {
        self.0.add(|work| work.ended = true);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Reports each call, and waits for permission to return from it.
    struct Kernel(SyncSender<(Ino, u64, u64)>, Mutex<Receiver<()>>);

    impl Invalidate for Kernel {
        fn attributes(&self, _: Ino) {}

        fn content(&self, ino: Ino, offset: u64, len: u64) {
            self.0.send((ino, offset, len)).unwrap();
            self.1.lock().recv().unwrap();
        }
    }

    #[test]
    fn what_comes_while_the_kernel_waits_is_told_in_one() {
        let (told, tells) = sync_channel(10);
        let (go, goes) = sync_channel(10);
        let stale = Stale::start(Arc::new(Kernel(told, Mutex::new(goes)))).unwrap();
        stale.forget(12, 100, 0);
        stale.forget(12, 100, 10);
        assert_eq!(tells.recv().unwrap(), (12, 100, 10));
        stale.forget(13, 4096, 10);
        stale.forget(13, 0, 1);
        stale.forget(14, u64::MAX - 1, 7);
        let (ran, runs) = sync_channel(1);
        stale.run(Box::new(move |_| ran.send(()).unwrap()));
        drop(stale);
        for _ in 0..3 {
            go.send(()).unwrap();
        }
        assert_eq!(tells.recv().unwrap(), (13, 0, 4106));
        assert_eq!(tells.recv().unwrap(), (14, u64::MAX - 1, 1));
        runs.recv().unwrap();
        // The thread has ended, and dropped its end of the channel.
        assert!(tells.recv().is_err());
    }
}
