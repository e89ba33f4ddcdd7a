//! System calls without a safe wrapper elsewhere.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::mem;
use std::os::fd::AsRawFd;

use libc::{c_int, c_ulong};
use rustix::fs::OFlags;
use rustix::io::Errno;

const BLKROGET: c_ulong = 0x125e;
const BLKDISCARD: c_ulong = 0x1277;
const LOOP_GET_STATUS64: c_ulong = 0x4c05;

/// `struct loop_info64` of <linux/loop.h>.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const _: () = assert!(mem::size_of::<LoopInfo>() == 232);

/// Size in bytes, now, of a file or a block device.
pub(super) fn size(mut file: &File) -> io::Result<u64> {
    // No request uses the file's position.
    file.seek(SeekFrom::End(0))
}

/// Sets or clears O_DIRECT.
pub(super) fn set_direct(file: &File, on: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, on);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Whether a block device refuses writes (BLKROGET).
pub(super) fn is_read_only(device: &File) -> io::Result<bool> {
    let mut answer: c_int = 0;
    // SAFETY: BLKROGET writes one int.
    match unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET as _, &raw mut answer) } {
        0 => Ok(answer != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

/// BLKDISCARD of `len` bytes at `start`.
pub(super) fn discard(file: &File, start: u64, len: u64) -> Result<(), Errno> {
    let range = [start, len];
    // SAFETY: BLKDISCARD reads two u64.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD as _, range.as_ptr()) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Device and inode number of the file behind a loop device.
pub(super) fn loop_backing(device: &File) -> Option<(u64, u64)> {
    let mut info = mem::MaybeUninit::<LoopInfo>::zeroed();
    // SAFETY: LOOP_GET_STATUS64 writes one loop_info64.
    let answer = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            LOOP_GET_STATUS64 as _,
            info.as_mut_ptr(),
        )
    };
    if answer != 0 {
        return None;
    }
    // SAFETY: all of it is integers, initialised to zero before the call.
    let info = unsafe { info.assume_init() };
    Some((info.device, info.inode))
}

/// Tries to take an open-file-description lock on the whole file.
pub(super) fn try_ofd_lock(file: &File, exclusive: bool) -> Result<(), Errno> {
    set_ofd_lock(
        file,
        if exclusive {
            libc::F_WRLCK
        } else {
            libc::F_RDLCK
        },
    )
}

/// Gives the open-file-description lock up.
pub(super) fn ofd_unlock(file: &File) -> Result<(), Errno> {
    set_ofd_lock(file, libc::F_UNLCK)
}

fn set_ofd_lock(file: &File, kind: c_int) -> Result<(), Errno> {
    // SAFETY: flock is plain integers; zero means: from 0 to the end, no pid.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    // SAFETY: F_OFD_SETLK reads one flock.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    let code: c_int = io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO);
    Errno::from_raw_os_error(code)
}
