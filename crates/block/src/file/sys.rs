//! System calls without a safe wrapper elsewhere.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::mem;
use std::os::fd::AsRawFd;

use libc::{c_int, c_ulong};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::{SharePair, Span};

const BLKROGET: c_ulong = 0x125e;
const BLKDISCARD: c_ulong = 0x1277;
const LOOP_GET_STATUS64: c_ulong = 0x4c05;
/// The ioctl numbers `STETFS_IOC_SHARE_LIMITS`, and `STETFS_IOC_SHARE` without the size of its
/// argument.
const SHARE_LIMITS: c_ulong = 0x8018_ef02;
const SHARE: c_ulong = 0x4000_ef01;

const FICLONERANGE: c_ulong = 0x4020_940d;
const FS_IOC_FIEMAP: c_ulong = 0xc020_660b;

/// `struct file_clone_range` of <linux/fs.h>.
#[repr(C)]
struct CloneRange {
    from: i64,
    src: u64,
    len: u64,
    dst: u64,
}

const _: () = assert!(mem::size_of::<CloneRange>() == 32);

/// `struct fiemap` of <linux/fiemap.h>, without room for extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

const _: () = assert!(mem::size_of::<Fiemap>() == 32);

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

/// `struct stetfs_share_limits`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SharedLimits {
    pub(super) unit: u32,
    pub(super) flags: u32,
    pub(super) units: u64,
    pub(super) references: u64,
}

const _: () = assert!(mem::size_of::<SharedLimits>() == 24);

/// The limits that a served device reports.
pub(super) fn share_limits(file: &File) -> Option<SharedLimits> {
    let mut limits = SharedLimits::default();
    // SAFETY: the number declares a write of 24 bytes, which is the size of the argument.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), SHARE_LIMITS as _, &raw mut limits) };
    (answer == 0).then_some(limits)
}

/// Shares pairs on a served device.
pub(super) fn share(file: &File, pairs: &[SharePair]) -> io::Result<()> {
    let mut batch: Vec<u64> = vec![0];
    // The count and the flags are two words of 32 bits.
    let count = u32::try_from(pairs.len()).map_err(|_| Errno::TOOBIG)?;
    let [a, b, c, d] = count.to_ne_bytes();
    batch[0] = u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
    batch.extend(pairs.iter().flat_map(|p| [p.dst, p.src, p.len]));
    let bytes = mem::size_of_val(&batch[..]);
    if bytes >= 1 << 14 {
        return Err(Errno::TOOBIG.into());
    }
    let number = SHARE | (bytes as c_ulong) << 16;
    // SAFETY: the number declares the bytes to read, which are as many as `batch` has.
    match unsafe { libc::ioctl(file.as_raw_fd(), number as _, batch.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the host's file system share a range of the file with another range of it (FICLONERANGE).
pub(super) fn clone_range(file: &File, pair: &SharePair) -> io::Result<()> {
    let range = CloneRange {
        from: file.as_raw_fd().into(),
        src: pair.src,
        len: pair.len,
        dst: pair.dst,
    };
    loop {
        // SAFETY: FICLONERANGE reads a `struct file_clone_range`, which `range` is.
        match unsafe { libc::ioctl(file.as_raw_fd(), FICLONERANGE as _, &raw const range) } {
            0 => return Ok(()),
            _ => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EINTR) => {}
                e => return Err(e),
            },
        }
    }
}

/// The number of extents of a file (FIEMAP).
pub(super) fn extents(file: &File) -> io::Result<u64> {
    let mut map = Fiemap {
        start: 0,
        length: u64::MAX,
        flags: 0,
        mapped_extents: 0,
        extent_count: 0,
        reserved: 0,
    };
    // SAFETY: FIEMAP reads and writes a `struct fiemap`, which `map` is. With a count of 0 it
    // writes no extents behind it.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut map) } {
        0 => Ok(map.mapped_extents.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The current size in bytes of a file or a block device.
pub(super) fn size(mut file: &File) -> io::Result<u64> {
    // The file's position is free for use: no request depends on it.
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

/// The file behind a loop device.
pub(super) struct LoopBacking {
    /// Device and inode number of the file.
    pub(super) numbers: (u64, u64),
    /// The part of the file that the device shows.
    pub(super) span: Span,
}

/// The file behind a loop device, as the kernel reports it.
pub(super) fn loop_backing(device: &File) -> Option<LoopBacking> {
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
    // SAFETY: all fields are integers, initialised to zero before the call.
    let info = unsafe { info.assume_init() };
    Some(LoopBacking {
        numbers: (info.device, info.inode),
        span: loop_span(info.offset, info.size_limit),
    })
}

/// The part of a file that a loop device with this offset and limit shows.
pub(super) fn loop_span(offset: u64, limit: u64) -> Span {
    Span {
        start: offset,
        len: if limit == 0 { u64::MAX } else { limit },
    }
}

/// Tries to take an open-file-description lock on the whole file, or on a part of it.
pub(super) fn try_ofd_lock(file: &File, exclusive: bool, span: Option<Span>) -> Result<(), Errno> {
    let kind = match exclusive {
        true => libc::F_WRLCK,
        false => libc::F_RDLCK,
    };
    set_ofd_lock(file, kind, span)
}

/// Releases the open-file-description locks.
pub(super) fn ofd_unlock(file: &File) -> Result<(), Errno> {
    set_ofd_lock(file, libc::F_UNLCK, None)
}

fn set_ofd_lock(file: &File, kind: c_int, span: Option<Span>) -> Result<(), Errno> {
    // SAFETY: flock is plain integers; zero means the whole file and no pid.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    if let Some(span) = span {
        let number = |n| libc::off_t::try_from(n).map_err(|_| Errno::OVERFLOW);
        (lock.l_start, lock.l_len) = (number(span.start)?, number(span.len)?);
    }
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
