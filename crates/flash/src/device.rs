//! A device that takes the time of a model.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stetfs_block::{BlockDevice, Read, Result, Stats, Write};

use crate::clock::{Clock, Kind, Request};
use crate::model::Model;

/// A device with another's content that takes the time of a model: requests return when they would have finished there.
/// What they really take is part of that.
pub struct Timed<D> {
    inner: D,
    start: Instant,
    clock: Mutex<Clock>,
}

impl<D: BlockDevice> Timed<D> {
    /// A device over `inner`, idle.
    pub fn new(inner: D, model: Model) -> Timed<D> {
        let size = inner.size();
        Timed {
            inner,
            start: Instant::now(),
            clock: Mutex::new(Clock::new(model, size)),
        }
    }

    /// What holds the content.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns `nanos` after the start.
    fn wait(&self, nanos: u64) {
        let until = Duration::from_nanos(nanos);
        if let Some(left) = until.checked_sub(self.start.elapsed()) {
            precise();
            thread::sleep(left);
        }
    }
}

/// Lets this thread's sleeps end when they should: the default is up to 50 µs later.
fn precise() {
    thread_local! {
        static SET: () = {
            // Where it is refused sleeps are as they are.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        };
    }
    SET.with(|()| ());
}

impl<D: BlockDevice> BlockDevice for Timed<D> {
    stetfs_block::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let requests = reads.iter().map(|read| Request {
            kind: Kind::Read,
            offset: read.offset,
            len: read.len(),
        });
        let done = self.clock.lock().run(self.now(), requests);
        self.inner.read_batch(reads)?;
        self.wait(done);
        Ok(())
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let requests = writes.iter().map(|write| Request {
            kind: if write.fua {
                Kind::WriteThrough
            } else {
                Kind::Write
            },
            offset: write.offset,
            len: write.len(),
        });
        let done = self.clock.lock().run(self.now(), requests);
        self.inner.write_batch(writes)?;
        self.wait(done);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let done = self.clock.lock().flush(self.now());
        self.inner.flush()?;
        self.wait(done);
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        self.inner.zero(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests {
    use stetfs_block::MemDevice;

    use super::*;

    #[test]
    fn it_is_a_device() {
        stetfs_block::suite::check_all(&Timed::new(MemDevice::new(8 << 20), Model::ALL[1]), 3);
    }

    #[test]
    fn it_takes_its_time() -> Result<()> {
        let [sata, ..] = Model::ALL;
        let device = Timed::new(MemDevice::new(64 << 20), sata);
        let begin = Instant::now();
        for i in 0..20 {
            device.write(i * 4096, &[1; 4096])?;
            device.flush()?;
        }
        // Never faster than the model; slower only as far as the machine is busy.
        assert!(begin.elapsed() >= Duration::from_nanos(20 * sata.flush));
        Ok(())
    }
}
