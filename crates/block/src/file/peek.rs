//! A first look at a file or device that is not claimed yet: what part of it will be.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{open, sys};
use crate::range::check_range;
use crate::{BlockError, Op, ReadAt, Result};

/// An image file or a block device, open for reading and kept from nobody.
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

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The smallest unit that is written as a whole, in bytes.
    pub fn sector_size(&self) -> u32 {
        self.sector
    }

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// [`BlockError::Io`], [`BlockError::OutOfRange`].
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        check_range(Op::Read, offset, len, self.size)?;
        let read = self.file.read_exact_at(buf, offset);
        read.map_err(|e| BlockError::io(Op::Read, offset, len, e))
    }
}
