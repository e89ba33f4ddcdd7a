//! Two devices as one: a volume and its journal on a separate device.

use std::ops::Range;
use std::sync::Arc;

use crate::{
    BlockDevice, BlockError, Gather, Op, Read, Result, Share, ShareLimits, SharePair, Stats, Write,
    sharing_of,
};

/// Minimum gap in bytes between the two, so that no request crosses from one to the other.
const GAP: u64 = 1 << 20;

/// The first device from offset 0 on, and behind a gap the second. A flush goes to both.
pub struct Joined {
    first: Arc<dyn BlockDevice>,
    second: Arc<dyn BlockDevice>,
    base: u64,
}

impl Joined {
    /// Joins two devices.
    pub fn new(first: Arc<dyn BlockDevice>, second: Arc<dyn BlockDevice>) -> Joined {
        let base = first.size().saturating_add(GAP).next_multiple_of(GAP);
        Joined {
            first,
            second,
            base,
        }
    }

    /// Offset of the second device in bytes; a multiple of 1 MiB.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The device that `offset` lies on, and the offset of that device's first byte.
    fn at(&self, op: Op, offset: u64, len: u64) -> Result<(&dyn BlockDevice, u64)> {
        if offset >= self.base {
            return Ok((&*self.second, self.base));
        }
        if offset.checked_add(len).is_some_and(|end| end <= self.base) {
            return Ok((&*self.first, 0));
        }
        Err(BlockError::OutOfRange {
            op,
            offset,
            len,
            size: self.first.size(),
        })
    }
}

impl BlockDevice for Joined {
    fn size(&self) -> u64 {
        self.base + self.second.size()
    }

    fn sector_size(&self) -> u32 {
        self.first.sector_size().max(self.second.sector_size())
    }

    fn dio_align(&self) -> u32 {
        self.first.dio_align().max(self.second.dio_align())
    }

    fn read_only(&self) -> bool {
        self.first.read_only() || self.second.read_only()
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for read in reads {
            let (device, base) = self.at(Op::Read, read.offset, read.len())?;
            read.offset -= base;
            let done = device.read_batch(std::slice::from_mut(read));
            read.offset += base;
            done?;
        }
        Ok(())
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let mut parts: [Vec<Write<'_>>; 2] = [Vec::new(), Vec::new()];
        for write in writes {
            let (_, base) = self.at(Op::Write, write.offset, write.len())?;
            let moved = Write {
                offset: write.offset - base,
                data: match write.data {
                    Gather::One(slice) => Gather::One(slice),
                    Gather::Many(slices) => Gather::Many(slices),
                },
                fua: write.fua,
            };
            parts[usize::from(base > 0)].push(moved);
        }
        for (part, device) in parts.iter().zip([&self.first, &self.second]) {
            if !part.is_empty() {
                device.write_batch(part)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.first.flush()?;
        self.second.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        let (device, base) = self.at(Op::Discard, range.start, len)?;
        device.discard(range.start - base..range.end - base)
    }

    /// Available if both devices share.
    fn share(&self) -> Option<&dyn Share> {
        let both = self.first.share().is_some() && self.second.share().is_some();
        both.then_some(self as &dyn Share)
    }

    fn stats(&self) -> Stats {
        let (a, b) = (self.first.stats(), self.second.stats());
        Stats {
            reads: a.reads + b.reads,
            bytes_read: a.bytes_read + b.bytes_read,
            writes: a.writes + b.writes,
            bytes_written: a.bytes_written + b.bytes_written,
            flushes: a.flushes + b.flushes,
            discards: a.discards + b.discards,
            bytes_discarded: a.bytes_discarded + b.bytes_discarded,
            shares: a.shares + b.shares,
            bytes_shared: a.bytes_shared + b.bytes_shared,
        }
    }
}

impl Share for Joined {
    fn limits(&self) -> ShareLimits {
        let (a, b) = (ShareLimits::of(&self.first), ShareLimits::of(&self.second));
        ShareLimits {
            unit: a.unit.max(b.unit),
            pairs: a.pairs.min(b.pairs),
            references: a.references.min(b.references),
            atomic: a.atomic && b.atomic,
        }
    }

    /// Requires that all pairs of a batch lie on the same device.
    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        let mut moved = Vec::with_capacity(pairs.len());
        let mut device = None;
        for pair in pairs {
            let (to, base) = self.at(Op::Share, pair.dst, pair.len)?;
            let (_, source) = self.at(Op::Share, pair.src, pair.len)?;
            if source != base || device.is_some_and(|(_, b)| b != base) {
                return Err(BlockError::ShareAcross { offset: pair.src });
            }
            device = Some((to, base));
            moved.push(SharePair {
                dst: pair.dst - base,
                src: pair.src - base,
                len: pair.len,
            });
        }
        match device {
            Some((device, _)) => sharing_of(device)?.share_batch(&moved),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::MemDevice;

    #[test]
    fn each_byte_has_one_place() {
        let (a, b) = (
            Arc::new(MemDevice::new(3 << 20)),
            Arc::new(MemDevice::new(1 << 20)),
        );
        let joined = Joined::new(a.clone(), b.clone());
        let base = joined.base();
        assert!(base >= (4 << 20) && joined.size() == base + (1 << 20));
        let writes = [
            Write::new(base + 512, &[2; 512]),
            Write::new(0, &[1; 512]),
            Write::new(base, &[3; 512]).fua(),
        ];
        joined.write_batch(&writes).unwrap();
        joined.flush().unwrap();
        let mut buf = [0; 512];
        for (device, offset, value) in [(&a, 0, 1u8), (&b, 512, 2), (&b, 0, 3)] {
            device.read(offset, &mut buf).unwrap();
            assert_eq!(buf, [value; 512]);
        }
        joined.read(base + 512, &mut buf).unwrap();
        assert_eq!(buf, [2; 512]);
        assert_eq!((a.stats().flushes, b.stats().flushes), (1, 1));
        assert!(joined.read((3 << 20) - 100, &mut buf).is_err());
        assert!(joined.write(base - 100, &[0; 512]).is_err());
        joined.discard(base..base + 512).unwrap();
        b.read(0, &mut buf).unwrap();
        assert_eq!(buf, [0; 512]);
    }
}
