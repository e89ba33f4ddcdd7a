//! Listings of directories.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;

use stetfs::low::FileType;

use crate::answer::{counted, done, given};
use crate::border::Text;
use crate::volume::Volume;

/// The longest name, bytes, and a NUL.
const NAME: usize = 256;

/// A listing.
pub struct Dir(stetfs::ReadDir);

/// A name of a directory (`struct stetfs_dirent`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DirEntry {
    /// What it is: `DT_*` of dirent.h.
    pub kind: u32,
    /// Bytes of the name.
    pub len: u32,
    /// The name, and a NUL.
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

/// Opens a directory into `dir`, to list it.
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

/// The next name, without `.` and `..`: 1, or 0 behind the last.
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

/// Lets a listing go.
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

    /// As `tests/capi.c` has it of the header.
    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(size_of::<DirEntry>(), 264);
    }
}
