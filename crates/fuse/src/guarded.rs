//! Files that must not be changed, or only be appended to (`chattr +i`, `+a`). The kernel never
//! learns these flags from us: who opens, or asks whether he may, is refused here, and what was
//! stored through a mapping and refused is to be seen by nobody (decisions/0017).

use stetfs::low::{Attr, Ctx, Fs, FsError, Ino};

use crate::calls::{self, Intent};

/// `EXT4_IMMUTABLE_FL`, `EXT4_APPEND_FL`.
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
/// Either.
pub(crate) const GUARDS: u32 = IMMUTABLE | APPEND;

const WRITE_BITS: u32 = 0o222;

const REFUSED: FsError = FsError::Errno(libc::EPERM);

/// Whether flags of open(2) let the file be mapped shared and writable.
pub(crate) fn can_be_mapped(flags: i32) -> bool {
    flags & libc::O_ACCMODE == libc::O_RDWR
}

/// What the kernel lets us say of one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    /// It opens files without asking.
    pub(crate) stateless: bool,
    /// It can be told, of a file that it asks for, not to map it shared.
    pub(crate) refuses_maps: bool,
}

impl Means {
    /// Whether `ino` may be opened with `flags`. Where the kernel would map it whatever we say, an
    /// append-only file is not opened so that it can be mapped and written.
    ///
    /// # Errors
    /// As [`Fs::open_inode`].
    pub(crate) fn may_open(self, fs: &Fs, ino: Ino, flags: i32) -> Result<(), FsError> {
        fs.may_open(ino, flags)?;
        let maps = can_be_mapped(flags) && !self.refuses_maps;
        match maps && fs.get_flags(ino)? & APPEND != 0 {
            true => Err(REFUSED),
            false => Ok(()),
        }
    }

    /// `attr` as its caller may know them: the kernel asks for the mode of a guarded file when
    /// somebody opens it or asks whether he may, and says no more.
    ///
    /// # Errors
    /// He may not.
    pub(crate) fn judged(self, fs: &Fs, ctx: &Ctx, mut attr: Attr) -> Result<Attr, FsError> {
        if !attr.guarded {
            return Ok(attr);
        }
        match calls::intent(ctx.pid) {
            Intent::Opens(flags) if self.stateless => self.may_open(fs, attr.ino, flags)?,
            Intent::Asks(mode) if mode & libc::W_OK != 0 && attr.flags & IMMUTABLE != 0 => {
                return Err(REFUSED);
            }
            // It may be an open that does not show (io_uring): only root passes by the mode.
            Intent::Unknown if self.stateless && attr.flags & GUARDS != 0 => {
                attr.mode &= !WRITE_BITS;
            }
            _ => {}
        }
        Ok(attr)
    }
}
