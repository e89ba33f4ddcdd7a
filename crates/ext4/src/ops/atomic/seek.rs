//! Search for data and holes in files of a group.

use super::{AtomicGroup, Member};
use crate::data::maps::map::Mapping;
use crate::error::{FsError, Result};
use crate::inode::InodeBody;
use crate::types::{Ino, SeekWhat};

impl AtomicGroup {
    /// Finds data or a hole at or behind `offset`, in a file with the group's changes. The end of
    /// the file is a hole; written zeroes are data.
    ///
    /// # Errors
    /// ENXIO: there is none, or `offset` is behind the end. EBADF: the file is not in the group.
    /// EIO; EUCLEAN.
    pub fn seek(&self, ino: Ino, offset: u64, what: SeekWhat) -> Result<u64> {
        self.fs.vol.usable()?;
        let member = self.member(ino)?;
        let size = member.overlay.size();
        if offset >= size {
            return Err(FsError::Errno(libc::ENXIO));
        }
        let body = member.file.inode.body.read();
        let mut at = offset;
        while at < size {
            let (is_data, end) = self.piece(member, &body, at)?;
            if is_data == (what == SeekWhat::Data) {
                return Ok(at);
            }
            at = end;
        }
        match what {
            SeekWhat::Data => Err(FsError::Errno(libc::ENXIO)),
            SeekWhat::Hole => Ok(size),
        }
    }

    /// Whether there is data at this byte, and the byte up to which this is known.
    fn piece(&self, member: &Member, body: &InodeBody, at: u64) -> Result<(bool, u64)> {
        let (fs, overlay) = (&self.fs, &member.overlay);
        let bits = fs.vol.geo.block_bits;
        let lblk = at >> bits;
        if overlay.has(lblk) {
            return Ok((true, (lblk + 1) << bits));
        }
        let next = overlay.next(lblk).map_or(u64::MAX, |next| next << bits);
        if at >= overlay.shown() {
            return Ok((false, next.min(overlay.size())));
        }
        if body.is_inline() {
            return Ok((true, overlay.shown()));
        }
        let lblk = u32::try_from(lblk).map_err(|_| FsError::Errno(libc::EFBIG))?;
        let found = fs.data.map(&member.file.inode, body, lblk, u32::MAX)?;
        let (Mapping::Hole { len } | Mapping::Mapped { len, .. }) = found;
        let is_data = matches!(
            found,
            Mapping::Mapped {
                unwritten: false,
                ..
            }
        );
        let end = (u64::from(lblk) + u64::from(len)) << bits;
        Ok((is_data, end.min(next).min(overlay.shown())))
    }
}
