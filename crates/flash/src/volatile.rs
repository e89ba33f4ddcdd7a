//! A device with a volatile cache, which loses unflushed writes in a power cut.

use std::collections::BTreeMap;
use std::ops::Range;

use stetfs_block::{
    BlockDevice, Read, Result, SECTOR, Share, ShareLimits, SharePair, Stats, Write, sharing_of,
};
use stetfs_sync::timed::Mutex;

/// Bytes of a sector.
const LEN: u64 = SECTOR as u64;

/// The part of the writes since the last flush that a power cut keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// None of them.
    Nothing,
    /// All of them.
    All,
    /// Each sector or not, at random with this seed.
    Some(u64),
}

/// A device whose power can be cut.
pub trait PowerCut: Send + Sync {
    /// Whether the device has a cache that can lose writes.
    fn has_cache(&self) -> bool;

    /// Cuts the power, and keeps the part of the writes since the last flush that `kept` says. No
    /// request may run meanwhile.
    ///
    /// # Errors
    /// The device's; then some of the writes are lost and some are not.
    fn cut_power(&self, kept: Kept) -> Result<()>;
}

impl<P: PowerCut + ?Sized> PowerCut for std::sync::Arc<P> {
    fn has_cache(&self) -> bool {
        (**self).has_cache()
    }

    fn cut_power(&self, kept: Kept) -> Result<()> {
        (**self).cut_power(kept)
    }
}

/// A device with the content of another. For each sector written since the last flush it remembers
/// the durable content, so that a power cut can restore it. Discards and zeroing are not lost.
/// Without a cache it only passes requests on.
pub struct Volatile<D> {
    inner: D,
    /// The durable sectors by number; `None`: no cache. The lock is held while a request runs, so
    /// that each request is before or after a flush.
    sure: Option<Mutex<BTreeMap<u64, [u8; LEN as usize]>>>,
}

/// Numbers of the sectors that a write touches.
fn sectors(write: &Write<'_>) -> Range<u64> {
    write.offset / LEN..(write.offset + write.len()).div_ceil(LEN)
}

impl<D: BlockDevice> Volatile<D> {
    /// A device over `inner`, with or without a cache.
    pub fn new(inner: D, cache: bool) -> Volatile<D> {
        Volatile {
            inner,
            sure: cache.then(Mutex::default),
        }
    }

    /// Reads the content of `sectors` that is not remembered yet.
    fn remember(
        &self,
        sure: &mut BTreeMap<u64, [u8; LEN as usize]>,
        sectors: Range<u64>,
    ) -> Result<()> {
        if sectors.clone().all(|s| sure.contains_key(&s)) {
            return Ok(());
        }
        let start = sectors.start * LEN;
        // A device may end inside a sector.
        let end = (sectors.end * LEN).min(self.inner.size()).max(start);
        let mut bytes = vec![0; (end - start) as usize];
        self.inner.read(start, &mut bytes)?;
        for (sector, part) in sectors.zip(bytes.chunks(LEN as usize)) {
            // The last part may be shorter than a sector; then it cannot be restored, and is always
            // kept.
            if let Ok(part) = part.try_into() {
                sure.entry(sector).or_insert(part);
            }
        }
        Ok(())
    }
}

impl Kept {
    /// A function that says for one unit after the other whether it is lost.
    pub(crate) fn losses(self) -> impl FnMut() -> bool {
        let mut random = fastrand::Rng::with_seed(match self {
            Kept::Some(seed) => seed,
            _ => 0,
        });
        move || match self {
            Kept::Nothing => true,
            Kept::All => false,
            Kept::Some(_) => random.bool(),
        }
    }
}

impl<D: BlockDevice> PowerCut for Volatile<D> {
    fn has_cache(&self) -> bool {
        self.sure.is_some()
    }

    fn cut_power(&self, kept: Kept) -> Result<()> {
        let Some(sure) = &self.sure else {
            return Ok(());
        };
        let mut sure = sure.lock();
        let mut is_lost = kept.losses();
        let lost = sure.iter().filter(|_| is_lost());
        let lost: Vec<_> = lost
            .map(|(sector, bytes)| Write::new(sector * LEN, bytes))
            .collect();
        self.inner.write_batch_flush(&lost)?;
        sure.clear();
        Ok(())
    }
}

/// A share is durable at once, with all writes before it, so no cut can tear it.
impl<D: BlockDevice> Share for Volatile<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        let share = sharing_of(&self.inner)?;
        let Some(sure) = &self.sure else {
            return share.share_batch(pairs);
        };
        let mut sure = sure.lock();
        self.inner.flush()?;
        sure.clear();
        share.share_batch(pairs)?;
        self.inner.flush()
    }
}

/// Applies a write that is durable at once to the remembered content.
fn patch(sure: &mut BTreeMap<u64, [u8; LEN as usize]>, write: &Write<'_>) {
    let bytes = write.data.to_vec();
    for (sector, known) in sure.range_mut(sectors(write)) {
        let begin = sector * LEN;
        for (at, byte) in (begin..).zip(known.iter_mut()) {
            let new = at
                .checked_sub(write.offset)
                .and_then(|i| bytes.get(i as usize));
            *byte = *new.unwrap_or(byte);
        }
    }
}

impl<D: BlockDevice> BlockDevice for Volatile<D> {
    stetfs_block::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let Some(sure) = &self.sure else {
            return self.inner.write_batch(writes);
        };
        let mut sure = sure.lock();
        for write in writes.iter().filter(|w| !w.fua && !w.is_empty()) {
            if write
                .offset
                .checked_add(write.len())
                .is_some_and(|end| end <= self.size())
            {
                self.remember(&mut sure, sectors(write))?;
            }
        }
        self.inner.write_batch(writes)?;
        for write in writes.iter().filter(|w| w.fua) {
            patch(&mut sure, write);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let Some(sure) = &self.sure else {
            return self.inner.flush();
        };
        let mut sure = sure.lock();
        self.inner.flush()?;
        sure.clear();
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

    fn cut(kept: Kept) -> Result<Vec<u8>> {
        let device = Volatile::new(MemDevice::new(1 << 20), true);
        device.write(0, &[1; 4096])?;
        device.flush()?;
        device.write(0, &[2; 4096])?;
        device.write(100, &[3; 100])?;
        device.write_batch(&[Write::new(512, &[4; 512]).fua()])?;
        device.cut_power(kept)?;
        let mut bytes = vec![0; 4096];
        device.read(0, &mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn it_is_a_device() {
        for cache in [false, true] {
            let mem = MemDevice::new(8 << 20).with_share(16, true);
            stetfs_block::suite::check_all(&Volatile::new(mem, cache), 4);
        }
    }

    #[test]
    fn what_was_flushed_or_written_through_stands() -> Result<()> {
        let lost = cut(Kept::Nothing)?;
        assert!(lost[..512].iter().all(|b| *b == 1));
        assert!(lost[512..1024].iter().all(|b| *b == 4));
        assert!(lost[1024..].iter().all(|b| *b == 1));
        let kept = cut(Kept::All)?;
        assert_eq!(
            (kept[0], kept[100], kept[200], kept[600], kept[4095]),
            (2, 3, 2, 4, 2)
        );
        let some = cut(Kept::Some(7))?;
        let twos = some[1024..].iter().filter(|b| **b == 2).count();
        assert!(
            twos > 0 && twos < 3072 && twos.is_multiple_of(512),
            "{twos}"
        );
        assert_eq!(some, cut(Kept::Some(7))?);
        Ok(())
    }
}
