//! A first look at a file or device that is not claimed yet, to find the part to claim.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{open, sys};
use crate::range::check_range;
use crate::{BlockDevice, BlockError, Op, Read, ReadAt, Result, Stats, Write};

/// An image file or a block device, open for reading and without locks.
pub struct Peek {
    file: File,
    size: u64,
    sector: u32,
}

impl ReadAt for Peek {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

impl Peek {
    /// Opens the image file or block device at `path`.
    ///
    /// # Errors
    /// [`BlockError::Open`], [`BlockError::Unsuitable`].
    pub fn open(path: &Path) -> Result<Peek> {
        let fail = |e| BlockError::open(path, e);
        let (file, is_block_device) = open::open_file(path, true)?;
        Ok(Peek {
            size: sys::size(&file).map_err(fail)?,
            sector: open::sector_of(&file, is_block_device).map_err(fail)?,
            file,
        })
    }
}

/// Reads are not counted.
impl BlockDevice for Peek {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector
    }

    fn read_only(&self) -> bool {
        true
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for read in reads {
            let (mut at, len) = (read.offset, read.len());
            check_range(Op::Read, at, len, self.size)?;
            for slice in read.data.slices_mut() {
                let filled = self.file.read_exact_at(slice, at);
                filled.map_err(|e| BlockError::io(Op::Read, at, len, e))?;
                at += slice.len() as u64;
            }
        }
        Ok(())
    }

    fn write_batch(&self, _writes: &[Write<'_>]) -> Result<()> {
        Err(BlockError::ReadOnly { op: Op::Write })
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _range: Range<u64>) -> Result<()> {
        Err(BlockError::ReadOnly { op: Op::Discard })
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}
