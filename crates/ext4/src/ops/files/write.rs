//! Writing files.

use crate::data::content::write::chunk;
use crate::data::content::write::chunk::{Chunk, Written};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::types::Ctx;
use chunk::CHUNK;

impl Fs {
    /// Writes `data` at `offset` and allocates space at once. Returns the bytes written: fewer when
    /// space ran out, or at the largest file size. With `kill_suidgid` it clears the set-user-id
    /// and set-group-id bits.
    ///
    /// # Errors
    /// ENOSPC, EDQUOT, EFBIG; EPERM for immutable files, and for append-only files before their
    /// end; EIO; EROFS.
    pub fn write(
        &self,
        ctx: &Ctx,
        f: &OpenRef,
        offset: u64,
        data: &[u8],
        kill_suidgid: bool,
    ) -> Result<usize> {
        let written = self.write_some(ctx, f, offset, data, kill_suidgid)?;
        if f.is_unheld() {
            self.inodes.limit_windows(&f.inode);
        }
        self.settle_data(f).map(|()| written)
    }

    fn write_some(
        &self,
        ctx: &Ctx,
        f: &OpenRef,
        offset: u64,
        data: &[u8],
        kill_suidgid: bool,
    ) -> Result<usize> {
        self.throttle()?;
        let inode = &f.inode;
        let mut guard = inode.body.write();
        let body = &mut *guard;
        self.data.check_changeable(body, Some(offset))?;
        inode.check_alone()?;
        if f.is_unheld() {
            self.space.plan_window(inode, body.size(), data.len());
        }
        let room = self.data.max_size_of(body).saturating_sub(offset);
        if room == 0 && !data.is_empty() {
            return Err(FsError::Errno(libc::EFBIG));
        }
        let data = data
            .get(..usize::try_from(room).unwrap_or(usize::MAX).min(data.len()))
            .unwrap_or_default();
        self.allow_size(offset.saturating_add(data.len() as u64))?;
        if body.is_inline() {
            let stays = data.is_empty()
                || (!(kill_suidgid && self.inodes.privileges_to_drop(inode, body)?.any)
                    && self.data.write_inline(inode, body, offset, data)?);
            if stays {
                return Ok(data.len());
            }
            let _quota = self.promise_move_out(ctx, body)?;
            self.data.move_out(inode, body)?;
        }
        let journaled = self.data.journals_data(body);
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|r| !r.is_empty()) {
            if done > 0 {
                self.data.throttle_data()?;
            }
            let chunk = Chunk {
                inode,
                offset: offset + done as u64,
                bytes: rest.get(..CHUNK).unwrap_or(rest),
                privileged: self.space.privileged(ctx),
                kill: kill_suidgid && done == 0,
                journaled,
            };
            let promise = |body: &mut _, clusters| self.promise_clusters(ctx, body, clusters);
            match self.data.write_chunk(&chunk, body, promise) {
                Ok(Written { bytes, no_room }) => {
                    done += bytes;
                    if no_room && !self.vol.opts.canary.write_on {
                        break;
                    }
                    stetfs_sync::point(self, "write-on");
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
