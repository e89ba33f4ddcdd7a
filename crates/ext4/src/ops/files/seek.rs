//! Search for data and holes (SEEK_DATA, SEEK_HOLE).

use crate::data::maps::map::Mapping;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::types::SeekWhat;

impl Fs {
    /// The next place at or behind `offset` with data, or with a hole; the end of the file counts
    /// as a hole. Unwritten blocks are holes.
    ///
    /// # Errors
    /// ENXIO behind the end, or when no data follows; EINVAL for a file that is not regular.
    pub fn seek(&self, f: &OpenRef, offset: u64, what: SeekWhat) -> Result<u64> {
        let inode = &f.inode;
        let body = inode.body.read();
        if !body.is_regular() {
            return Err(FsError::Errno(libc::EINVAL));
        }
        let size = body.size();
        if offset >= size {
            return Err(FsError::Errno(libc::ENXIO));
        }
        if body.is_inline() {
            return Ok(match what {
                SeekWhat::Data => offset,
                SeekWhat::Hole => size,
            });
        }
        let mut at = offset;
        while at < size {
            let lblk = u32::try_from(at >> self.vol.geo.block_bits)
                .map_err(|_| FsError::Errno(libc::EFBIG))?;
            let mapping = self.data.map(inode, &body, lblk, u32::MAX)?;
            let (Mapping::Hole { len } | Mapping::Mapped { len, .. }) = mapping;
            let data = matches!(
                mapping,
                Mapping::Mapped {
                    unwritten: false,
                    ..
                }
            );
            if data == (what == SeekWhat::Data) {
                return Ok(at);
            }
            at = (u64::from(lblk) + u64::from(len)) << self.vol.geo.block_bits;
        }
        match what {
            SeekWhat::Data => Err(FsError::Errno(libc::ENXIO)),
            SeekWhat::Hole => Ok(size),
        }
    }
}
