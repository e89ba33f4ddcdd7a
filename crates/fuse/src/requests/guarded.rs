//! Guarded files: immutable or append-only (`chattr +i`, `+a`). The kernel does not learn these
//! flags, so opens and access checks are refused here, and content that was stored through a
//! mapping and refused must not be visible (decisions/0017).

use stetfs::low::{Attr, Ctx, Fs, FsError, Ino};

use crate::helper::calls::{self, Intent};

/// `EXT4_IMMUTABLE_FL`, `EXT4_APPEND_FL`.
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
/// Either flag.
pub(crate) const GUARDS: u32 = IMMUTABLE | APPEND;

const WRITE_BITS: u32 = 0o222;

const REFUSED: FsError = FsError::Errno(libc::EPERM);

/// Whether flags of open(2) allow a shared writable mapping.
pub(crate) fn can_be_mapped(flags: i32) -> bool {
    flags & libc::O_ACCMODE == libc::O_RDWR
}

/// The means that the kernel offers for guarding one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    /// Files are opened without a request.
    pub(crate) stateless: bool,
    /// An open can be answered with the order not to map the file shared.
    pub(crate) refuses_maps: bool,
}

impl Means {
    /// Checks that `ino` may be opened with `flags`. If the kernel would allow a shared mapping in
    /// any case, an append-only file is not opened in a way that allows writing through one.
    ///
    /// # Errors
    /// The errors of [`Fs::open_inode`].
    pub(crate) fn may_open(self, fs: &Fs, ino: Ino, flags: i32) -> Result<(), FsError> {
        fs.may_open(ino, flags)?;
        let maps = can_be_mapped(flags) && !self.refuses_maps;
        match maps && fs.get_flags(ino)? & APPEND != 0 {
            true => Err(REFUSED),
            false => Ok(()),
        }
    }

    /// The attributes that the caller may see. The kernel requests the mode of a guarded file for
    /// an open or an access check, without naming the reason.
    ///
    /// # Errors
    /// The caller may not open the file so.
    pub(crate) fn judged(self, fs: &Fs, ctx: &Ctx, mut attr: Attr) -> Result<Attr, FsError> {
        if !attr.guarded {
            return Ok(attr);
        }
        match calls::intent(ctx.pid) {
            Intent::Opens(flags) if self.stateless => self.may_open(fs, attr.ino, flags)?,
            Intent::Asks(mode) if mode & libc::W_OK != 0 && attr.flags & IMMUTABLE != 0 => {
                return Err(REFUSED);
            }
            // It may be an invisible open (io_uring): the mode refuses it, except to root.
            Intent::Unknown if self.stateless && attr.flags & GUARDS != 0 => {
                attr.mode &= !WRITE_BITS;
            }
            _ => {}
        }
        Ok(attr)
    }
}
