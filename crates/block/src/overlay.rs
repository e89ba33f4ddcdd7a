//! Changes kept in memory over a device that stays as it is.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::device::{check_discard, check_range};
use crate::{BlockDevice, Counters, Op, Read, Result, Stats, Write};

/// Reads come from the device below, writes stay here: for trying out what a change would do, and for collecting it.
pub struct Overlay {
    below: Arc<dyn BlockDevice>,
    /// Bytes of a block.
    unit: usize,
    /// Blocks that were written, by number; the last one of the device may be shorter.
    written: RwLock<BTreeMap<u64, Arc<[u8]>>>,
    counters: Counters,
}

/// The part of a block that a request touches, and where that lies in the request.
struct Piece {
    block: u64,
    within: Range<usize>,
    at: usize,
}

impl Overlay {
    /// Over `below`, in blocks of `unit` bytes.
    pub fn new(below: Arc<dyn BlockDevice>, unit: u32) -> Overlay {
        Overlay {
            below,
            unit: unit.max(1) as usize,
            written: RwLock::default(),
            counters: Counters::default(),
        }
    }

    /// The blocks that were written, by number, and what they hold now.
    pub fn written(&self) -> Vec<(u64, Arc<[u8]>)> {
        let written = self.written.read();
        written.iter().map(|(nr, b)| (*nr, b.clone())).collect()
    }

    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = Piece> {
        let unit = self.unit;
        let mut at = 0;
        std::iter::from_fn(move || {
            let left = len.checked_sub(at).filter(|left| *left > 0)?;
            let here = offset + at as u64;
            let start = (here % unit as u64) as usize;
            let end = unit.min(start + left);
            let piece = Piece {
                block: here / unit as u64,
                within: start..end,
                at,
            };
            at += end - start;
            Some(piece)
        })
    }

    fn read_one(&self, read: &mut Read<'_>) -> Result<()> {
        let written = self.written.read();
        let mut at = read.offset;
        for slice in read.data.slices_mut() {
            let mut below = false;
            for piece in self.pieces(at, slice.len()) {
                below |= !written.contains_key(&piece.block);
            }
            if below {
                self.below.read(at, slice)?;
            }
            for piece in self.pieces(at, slice.len()) {
                let Some(block) = written.get(&piece.block) else {
                    continue;
                };
                let to = slice.get_mut(piece.at..piece.at + piece.within.len());
                if let (Some(to), Some(from)) = (to, block.get(piece.within)) {
                    to.copy_from_slice(from);
                }
            }
            at += slice.len() as u64;
        }
        Ok(())
    }

    fn write_some(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut written = self.written.write();
        for piece in self.pieces(offset, data.len()) {
            let start = piece.block * self.unit as u64;
            let size = (self.unit as u64).min(self.size() - start) as usize;
            let mut block = vec![0; size];
            match written.get(&piece.block) {
                Some(old) => block.copy_from_slice(old),
                None if piece.within.len() < size => self.below.read(start, &mut block)?,
                None => {}
            }
            let from = data.get(piece.at..piece.at + piece.within.len());
            if let (Some(to), Some(from)) = (block.get_mut(piece.within), from) {
                to.copy_from_slice(from);
            }
            written.insert(piece.block, block.into());
        }
        Ok(())
    }
}

impl BlockDevice for Overlay {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn sector_size(&self) -> u32 {
        self.below.sector_size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for read in reads.iter() {
            check_range(Op::Read, read.offset, read.len(), self.size())?;
        }
        for read in reads {
            self.counters.read(1, read.len());
            self.read_one(read)?;
        }
        Ok(())
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        for write in writes {
            check_range(Op::Write, write.offset, write.len(), self.size())?;
        }
        for write in writes {
            self.counters.write(1, write.len());
            let mut at = write.offset;
            for slice in write.data.slices() {
                self.write_some(at, slice)?;
                at += slice.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.counters.flush();
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_discard(&range, self.size())?;
        self.counters.discard(range.end.saturating_sub(range.start));
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}
