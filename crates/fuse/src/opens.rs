//! Open files: those that have a handle, and those that the kernel opens without asking
//! (decisions/0017).
//!
//! The table of handles stays for what only a request to open can say: `direct_io`, and the
//! write-back cache, which must not hold back what `chattr +S` makes durable at once.

use std::sync::atomic::{AtomicBool, Ordering};

use stetfs::low::{Ctx, Fs, FsError, Ino, OpenRef};

use crate::calls;
use crate::guarded;
use crate::handles::Handles;
use crate::ops::{Fh, OpenFile};

/// How files are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opens {
    /// Without asking, where the kernel can and nothing else needs to know: opening and closing
    /// send no request.
    #[default]
    Stateless,
    /// Each open gets a handle of its own.
    Handles,
}

/// A file with a handle.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) file: OpenRef,
    /// It passes the kernel's page cache by.
    pub(crate) direct: bool,
}

/// All files that are open.
pub(crate) struct OpenFiles {
    handles: Handles<Held>,
    /// The kernel does not ask.
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

    /// No file gets a handle from now on. Said before there are any.
    pub(crate) fn without_handles(&self) {
        self.stateless.store(true, Ordering::Release);
    }

    /// Whether files are opened without asking.
    pub(crate) fn are_stateless(&self) -> bool {
        self.stateless.load(Ordering::Acquire)
    }

    /// Keeps a file that was made or opened, if that is done here.
    pub(crate) fn keep(&self, file: OpenRef, direct: bool) -> Option<Fh> {
        (!self.are_stateless()).then(|| self.handles.insert(Held { file, direct }))
    }

    /// Whether `file` passes the kernel's page cache by.
    pub(crate) fn is_direct(&self, file: OpenFile) -> bool {
        let held = file.fh.and_then(|fh| self.handles.get(fh));
        held.is_some_and(|held| held.direct)
    }

    /// Whether somebody may store into the kernel's pages of `ino` by a mapping: a mapping holds
    /// its handle.
    pub(crate) fn is_mapped(&self, ino: Ino) -> bool {
        self.handles.any(|held| {
            !held.direct && held.file.ino() == ino && guarded::can_be_mapped(held.file.flags)
        })
    }

    /// The file of a request by `ctx`, with `flags` as far as the request has them.
    ///
    /// # Errors
    /// EBADF for a handle that is none; as [`Fs::unheld`] without one.
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

    /// As [`find`](Self::find), of a file that a request without flags changes.
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

/// A file that is to be changed.
pub(crate) enum Target {
    /// With the flags it was opened with.
    Known(OpenRef),
    /// Nobody knows whether what is done to it must be durable at once (O_DSYNC).
    Unknown,
}
