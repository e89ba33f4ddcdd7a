//! copy_file_range(2) within a volume.

use stetfs::low::{Ctx, Fs, FsError, OpenRef};

use super::VolumeFs;
use crate::api::buffer;
use crate::api::ops::CopyArgs;
use crate::requests::atomic::By;
use crate::requests::copying;

/// Maximum number of bytes copied at a time.
const MAX_PART: usize = 1 << 20;

impl VolumeFs {
    /// Copies the content that programs see of one file into the other. Answers the number of
    /// bytes, fewer if an error came in between.
    ///
    /// # Errors
    /// The error, if nothing was copied.
    pub(super) fn copy(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        args: &CopyArgs,
        (from, to): (&OpenRef, &OpenRef),
    ) -> Result<usize, FsError> {
        let size = self.atomic.shown(fs.getattr(from.ino())?).size;
        let len = copying::length(args, from.ino() == to.ino(), size)?;
        // For writes the kernel sends this flag: a caller that is not root clears the bits.
        let kill = ctx.uid != 0;
        let bits = self.bits(fs, ctx, to.ino(), kill);
        let mut copied = 0;
        let result = buffer::with(len.min(MAX_PART), |buf| {
            while copied < len {
                let most = buf.len().min(len - copied);
                let part = &mut buf[..most];
                let at = args.from_offset.saturating_add(copied as u64);
                let n = self.read_shown(fs, from, at, part)?;
                if n == 0 {
                    break;
                }
                let at = args.to_offset.saturating_add(copied as u64);
                let part = &part[..n.min(part.len())];
                let by = By::holder(args.to);
                copied += match self.add_atomically(fs, ctx, (to.ino(), by), (at, part), kill) {
                    Some(added) => added?,
                    None => self.write_all(fs, ctx, to, at, part, kill)?,
                };
            }
            Ok(())
        });
        let result = match copied {
            0 => result,
            _ => result.and(bits.lose(fs, ctx, to.ino())),
        };
        if bits.any {
            self.attributes_changed(to.ino());
        }
        match result {
            Err(e) if copied == 0 => Err(e),
            _ => Ok(copied),
        }
    }
}
