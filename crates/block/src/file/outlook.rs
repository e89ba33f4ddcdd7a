//! What writes to a device that is open for reading alone would meet, and who shares its blocks.

use std::ops::Range;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::share::{SharedBy, Sharing};
use super::{FileDevice, open};
use crate::{BlockError, Op, Result};

impl FileDevice {
    /// Whether it could be opened for writing, as far as permissions go.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn check_writable(&self) -> Result<()> {
        open::open_file(&self.path, false).map(drop)
    }

    /// Whether the file system that holds the image has room for writes to these ranges of bytes,
    /// as far as it can be told: what they cover of the image's holes is not more than is free.
    /// A block device always has.
    ///
    /// # Errors
    /// [`BlockError::NoSpace`]; [`BlockError::Io`] if the image cannot be looked at.
    pub fn check_room(&self, ranges: &[Range<u64>]) -> Result<()> {
        if self.is_block_device {
            return Ok(());
        }
        let fail = |e: Errno| BlockError::io(Op::Read, 0, self.size, e.into());
        // Space that was set aside looks like a hole.
        let stat = rustix::fs::fstat(&self.file).map_err(fail)?;
        if u64::try_from(stat.st_blocks).unwrap_or(0) * 512 >= self.size {
            return Ok(());
        }
        let host = rustix::fs::fstatvfs(&self.file).map_err(fail)?;
        let free = match rustix::process::geteuid().is_root() {
            true => host.f_bfree,
            false => host.f_bavail,
        };
        let unit = host.f_frsize.max(1);
        let mut need = 0;
        let mut first = None;
        for range in ranges {
            // The host gives space in blocks of its own.
            let mut at = range.start / unit * unit;
            while at < range.end {
                let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                    Err(Errno::NXIO) => range.end,
                    other => other.map_err(fail)?.min(range.end),
                };
                if data > at {
                    first.get_or_insert(at);
                    need += (data - at).div_ceil(unit);
                }
                if data == range.end {
                    break;
                }
                at = rustix::fs::seek(&self.file, SeekFrom::Hole(data)).map_err(fail)?;
            }
        }
        match first {
            Some(offset) if need > free => Err(BlockError::NoSpace {
                offset,
                len: need * unit,
                source: Arc::new(Errno::NOSPC.into()),
            }),
            _ => Ok(()),
        }
    }

    /// By whom blocks of the image are shared, or would be by one who may write it.
    ///
    /// # Errors
    /// Why none are.
    pub fn sharing(&self) -> std::result::Result<SharedBy, String> {
        if self.is_block_device {
            return Err("block devices share no blocks".into());
        }
        if !self.read_only {
            return match &self.share {
                Ok(sharing) => sharing.state(&self.file),
                Err(why) => Err(why.clone()),
            };
        }
        let (file, _) = open::open_file(&self.path, false).map_err(|e| e.to_string())?;
        Sharing::of(&file)?.state(&file)
    }
}
