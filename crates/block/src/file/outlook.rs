//! Forecasts for a device that is open read-only: whether writes would fail, and whether its blocks
//! can be shared.

use std::ops::Range;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::share::{SharedBy, Sharing};
use super::{FileDevice, open};
use crate::{BlockError, Op, Result};

impl FileDevice {
    /// Checks that the device could be opened for writing, as far as permissions go.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn check_writable(&self) -> Result<()> {
        open::open_file(&self.path, false).map(drop)
    }

    /// Checks that the host has space for writes to these ranges of bytes, as far as can be told:
    /// the image's holes in these ranges are not larger than the free space. A block device always
    /// has space.
    ///
    /// # Errors
    /// [`BlockError::NoSpace`]; [`BlockError::Io`] if the image cannot be inspected.
    pub fn check_room(&self, ranges: &[Range<u64>]) -> Result<()> {
        if self.is_block_device {
            return Ok(());
        }
        let fail = |e: Errno| BlockError::io(Op::Read, 0, self.size, e.into());
        // Preallocated space looks like a hole.
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
            // The host allocates in blocks of its own.
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

    /// The sharer of the image's blocks, now or after opening it for writing.
    ///
    /// # Errors
    /// The reason why blocks cannot be shared.
    pub fn sharing(&self) -> std::result::Result<SharedBy, String> {
        if self.is_block_device {
            return Err("block devices cannot share blocks".into());
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
