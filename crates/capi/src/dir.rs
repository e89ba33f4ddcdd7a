//! The C functions that list directories.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;

use stetfs::low::FileType;

use crate::answer::{counted, done, given};
use crate::border::Text;
use crate::volume::Volume;

/// Length of the longest name with its NUL, bytes.
const NAME: usize = 256;

/// A listing.
pub struct Dir(stetfs::ReadDir);

/// An entry of a directory (`struct stetfs_dirent`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DirEntry {
    /// Its type: `DT_*` of dirent.h.
    pub kind: u32,
    /// Length of the name, bytes.
    pub len: u32,
    /// The name, followed by a NUL.
    pub name: [u8; NAME],
}

fn kind(kind: FileType) -> u32 {
    let kind = match kind {
        FileType::Regular => libc::DT_REG,
        FileType::Directory => libc::DT_DIR,
        FileType::Symlink => libc::DT_LNK,
        FileType::Fifo => libc::DT_FIFO,
        FileType::Socket => libc::DT_SOCK,
        FileType::CharDevice => libc::DT_CHR,
        FileType::BlockDevice => libc::DT_BLK,
    };
    u32::from(kind)
}

/// Opens a directory for listing, into `dir`.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_dir_open(
    volume: Option<&Volume>,
    path: Text,
    dir: Option<&mut *mut Dir>,
) -> c_int {
    done(|| {
        let place = given(dir, "dir")?;
        let volume = given(volume, "volume")?;
        let listing = volume.0.read_dir(given(path.path(), "path")?)?;
        *place = Box::into_raw(Box::new(Dir(listing)));
        Ok(())
    })
}

/// Reads the next entry, without `.` and `..`: returns 1, or 0 at the end.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_dir_next(dir: Option<&mut Dir>, entry: Option<&mut DirEntry>) -> c_int {
    let next = counted(|| {
        let dir = given(dir, "dir")?;
        let entry = given(entry, "entry")?;
        let Some(found) = dir.0.next() else {
            return Ok(0);
        };
        let found = found?;
        let name = found.file_name().as_bytes();
        entry.kind = kind(found.file_type());
        entry.len = name.len().min(NAME - 1) as u32;
        entry.name = [0; NAME];
        for (to, from) in entry.name.iter_mut().take(NAME - 1).zip(name) {
            *to = *from;
        }
        Ok(1)
    });
    c_int::try_from(next).unwrap_or(-libc::EIO)
}

/// Closes a listing.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_dir_close(dir: Option<Box<Dir>>) -> c_int {
    done(|| {
        drop(dir);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same values as in `tests/capi.c`, which checks the header.
    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(size_of::<DirEntry>(), 264);
    }
}
