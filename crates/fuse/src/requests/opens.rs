//! Open files: those with a handle, and those that the kernel opens without a request
//! (decisions/0017).
//!
//! The table of handles remains for options that need a request to open: `direct_io`, and the
//! write-back cache, which must not hold back writes that `chattr +S` makes durable at once.

use std::sync::atomic::{AtomicBool, Ordering};

use stetfs::low::{Ctx, Fs, FsError, Ino, OpenRef};

use crate::api::ops::{Fh, OpenFile};
use crate::helper::calls;
use crate::requests::guarded;
use crate::requests::handles::Handles;

/// The ways of opening files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opens {
    /// Without a request, if the kernel can and no other option needs the request: opening and
    /// closing send nothing.
    #[default]
    Stateless,
    /// With a handle for each open.
    Handles,
}

/// An open file with a handle.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) file: OpenRef,
    /// Whether it bypasses the kernel's page cache.
    pub(crate) direct: bool,
}

/// All open files.
pub(crate) struct OpenFiles {
    handles: Handles<Held>,
    /// Whether the kernel opens files without a request.
    stateless: AtomicBool,
}

impl OpenFiles {
    pub(crate) fn new() -> OpenFiles {
        OpenFiles {
            handles: Handles::new(),
            stateless: AtomicBool::new(false),
        }
    }

    /// The handles.
    pub(crate) fn handles(&self) -> &Handles<Held> {
        &self.handles
    }

    /// Opens no more files with handles. Call it before there are any.
    pub(crate) fn without_handles(&self) {
        self.stateless.store(true, Ordering::Release);
    }

    /// Whether files are opened without a request.
    pub(crate) fn are_stateless(&self) -> bool {
        self.stateless.load(Ordering::Acquire)
    }

    /// Stores a file that was created or opened, if files have handles; returns the handle.
    pub(crate) fn keep(&self, file: OpenRef, direct: bool) -> Option<Fh> {
        (!self.are_stateless()).then(|| self.handles.insert(Held { file, direct }))
    }

    /// Whether `file` bypasses the kernel's page cache.
    pub(crate) fn is_direct(&self, file: OpenFile) -> bool {
        let held = file.fh.and_then(|fh| self.handles.get(fh));
        held.is_some_and(|held| held.direct)
    }

    /// Whether a program may store into the kernel's pages of `ino` through a mapping: a mapping
    /// holds its handle.
    pub(crate) fn is_mapped(&self, ino: Ino) -> bool {
        self.handles.any(|held| {
            !held.direct && held.file.ino() == ino && guarded::can_be_mapped(held.file.flags)
        })
    }

    /// The file of a request by `ctx`, with `flags` as far as the request has them.
    ///
    /// # Errors
    /// EBADF for an unknown handle; those of [`Fs::unheld`] without a handle.
    pub(crate) fn find(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        file: OpenFile,
        flags: i32,
    ) -> Result<OpenRef, FsError> {
        match file.fh {
            Some(fh) => match self.handles.get(fh) {
                Some(held) => Ok(held.file),
                None => Err(FsError::Errno(libc::EBADF)),
            },
            None => fs.unheld(file.ino, flags, calls::caller(ctx)),
        }
    }

    /// As [`find`](Self::find), for a request that changes the file and has no flags.
    pub(crate) fn find_target(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        file: OpenFile,
    ) -> Result<Target, FsError> {
        let flags = match file.fh {
            Some(_) => None,
            None => calls::target_flags(ctx.pid, file.ino),
        };
        let found = self.find(fs, ctx, file, flags.unwrap_or(0))?;
        Ok(match file.fh.is_some() || flags.is_some() {
            true => Target::Known(found),
            false => Target::Unknown,
        })
    }
}

/// A file to change.
pub(crate) enum Target {
    /// With the flags of its descriptor.
    Known(OpenRef),
    /// Unknown whether the change must be durable at once (O_DSYNC).
    Unknown,
}
