//! The C functions on open files.

use std::ffi::c_int;
use std::io::{Read, Seek, SeekFrom, Write};

use crate::answer::{Failed, Result, counted, done, given};
use crate::border::{Buffer, Bytes, Text};
use crate::volume::Volume;

/// An open file. Several threads can use it; they share its position.
pub struct File(pub(crate) stetfs::File);

/// The open options of open(2)'s flags.
fn how(flags: c_int, mode: u32) -> Result<stetfs::OpenOptions> {
    const KNOWN: c_int = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_TRUNC
        | libc::O_APPEND
        | libc::O_CLOEXEC
        | libc::O_LARGEFILE;
    if flags & !KNOWN != 0 {
        let text = format!("flags {:#x} are not known here", flags & !KNOWN);
        return Err(Failed::argument(text));
    }
    let on = |flag: c_int| flags & flag == flag;
    let access = flags & libc::O_ACCMODE;
    let mut options = stetfs::OpenOptions::new();
    let exclusive = on(libc::O_CREAT | libc::O_EXCL);
    options
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .append(access != libc::O_RDONLY && on(libc::O_APPEND))
        .truncate(on(libc::O_TRUNC))
        .create(on(libc::O_CREAT) && !exclusive)
        .create_new(exclusive)
        .mode(mode);
    Ok(options)
}

fn size(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Opens a file into `file`, with open(2)'s flags; `mode` is for a new file.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_open(
    volume: Option<&Volume>,
    path: Text,
    flags: c_int,
    mode: u32,
    file: Option<&mut *mut File>,
) -> c_int {
    done(|| {
        let place = given(file, "file")?;
        let volume = given(volume, "volume")?;
        let opened = how(flags, mode)?.open(&volume.0, given(path.path(), "path")?)?;
        *place = Box::into_raw(Box::new(File(opened)));
        Ok(())
    })
}

/// Closes a file. Its writes are not durable by that.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_close(file: Option<Box<File>>) -> c_int {
    done(|| {
        drop(file);
        Ok(())
    })
}

/// Reads up to `len` bytes at the file's position; 0 at its end.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_read(file: Option<&File>, mut buffer: Buffer, len: usize) -> i64 {
    counted(|| {
        let mut file = &given(file, "file")?.0;
        Ok(size(file.read(given(buffer.of(len), "buffer")?)?))
    })
}

/// Writes up to `len` bytes at the file's position.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_write(file: Option<&File>, bytes: Bytes, len: usize) -> i64 {
    counted(|| {
        let mut file = &given(file, "file")?.0;
        Ok(size(file.write(given(bytes.of(len), "bytes")?)?))
    })
}

/// Reads up to `len` bytes at `offset`; 0 at the file's end.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_pread(
    file: Option<&File>,
    mut buffer: Buffer,
    len: usize,
    offset: u64,
) -> i64 {
    counted(|| {
        let file = &given(file, "file")?.0;
        Ok(size(
            file.read_at(given(buffer.of(len), "buffer")?, offset)?,
        ))
    })
}

/// Writes up to `len` bytes at `offset`.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_pwrite(
    file: Option<&File>,
    bytes: Bytes,
    len: usize,
    offset: u64,
) -> i64 {
    counted(|| {
        let file = &given(file, "file")?.0;
        Ok(size(file.write_at(given(bytes.of(len), "bytes")?, offset)?))
    })
}

/// Sets the position to `offset` from the start, the current position, or the end (`SEEK_SET`,
/// `SEEK_CUR`, `SEEK_END`). Returns the new position.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_seek(file: Option<&File>, offset: i64, whence: c_int) -> i64 {
    counted(|| {
        let mut file = &given(file, "file")?.0;
        let below = || Failed::argument("a place before the start of the file");
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(u64::try_from(offset).map_err(|_| below())?),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            _ => return Err(Failed::argument("whence is none of SEEK_SET, _CUR, _END")),
        };
        Ok(i64::try_from(file.seek(to)?).unwrap_or(i64::MAX))
    })
}

/// Truncates or extends the file.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_truncate(file: Option<&File>, size: u64) -> c_int {
    done(|| Ok(given(file, "file")?.0.set_len(size)?))
}

/// Makes changes of the file durable; with `data_only` as fdatasync(2).
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_sync(file: Option<&File>, data_only: c_int) -> c_int {
    done(|| {
        let file = &given(file, "file")?.0;
        let synced = match data_only {
            0 => file.sync_all(),
            _ => file.sync_data(),
        };
        Ok(synced?)
    })
}
