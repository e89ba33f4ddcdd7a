//! A block device that takes the time of a model.

use std::ops::Range;

use stetfs_block::{
    BlockDevice, Read, Result, Share, ShareLimits, SharePair, Stats, Write, sharing_of,
};

use crate::clock::{Clock, Kind, PAGE, Request};
use crate::model::Model;
use crate::pace::Pace;

/// A device with the content of another that takes the time of a model: each request returns when
/// it would have completed on the modelled device. The time that the inner device takes is part of
/// that.
pub struct Timed<D> {
    inner: D,
    pace: Pace,
}

impl<D: BlockDevice> Timed<D> {
    /// A device over `inner`, idle.
    pub fn new(inner: D, model: Model) -> Timed<D> {
        let size = inner.size();
        Timed {
            inner,
            pace: Pace::new(Clock::new(model, size)),
        }
    }

    /// The device with the content.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: BlockDevice> BlockDevice for Timed<D> {
    stetfs_block::shape_of_inner!(but fua);

    fn has_fua(&self) -> bool {
        true
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let requests = reads.iter().map(|read| Request {
            kind: Kind::Read,
            offset: read.offset,
            len: read.len(),
            extra: 0,
        });
        let done = self.pace.ask(|clock, now| clock.run(now, requests));
        self.inner.read_batch(reads)?;
        self.pace.wait(done);
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
            extra: 0,
        });
        let done = self.pace.ask(|clock, now| clock.run(now, requests));
        self.inner.write_batch(writes)?;
        self.pace.wait(done);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let done = self.pace.ask(|clock, now| clock.flush(now));
        self.inner.flush()?;
        self.pace.wait(done);
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

/// A share costs a page of the mapping.
impl<D: BlockDevice> Share for Timed<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        let request = Request {
            kind: Kind::Write,
            offset: pairs.first().map_or(0, |pair| pair.dst),
            len: PAGE,
            extra: 0,
        };
        let done = self.pace.ask(|clock, now| clock.run(now, [request]));
        sharing_of(&self.inner)?.share_batch(pairs)?;
        self.pace.wait(done);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use stetfs_block::MemDevice;

    use super::*;

    #[test]
    fn it_is_a_device() {
        let mem = MemDevice::new(8 << 20).with_share(16, true);
        stetfs_block::suite::check_all(&Timed::new(mem, Model::ALL[1]), 3);
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
        // The device is never faster than the model; it is slower only if the machine is busy.
        assert!(begin.elapsed() >= Duration::from_nanos(20 * sata.flush));
        Ok(())
    }
}
