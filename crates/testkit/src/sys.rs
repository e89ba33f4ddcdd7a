//! Kernel interfaces that no safe crate wraps: ioctls of loop devices and files, id-mapped mounts,
//! and paging out.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587D;

/// `struct loop_info64` of the kernel's `linux/loop.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    pub(crate) flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LoopConfig {
    fd: u32,
    block_size: u32,
    pub(crate) info: LoopInfo64,
    reserved: [u64; 8],
}

/// `LO_FLAGS_READ_ONLY`.
pub(crate) const LO_READ_ONLY: u32 = 1;
/// `LO_FLAGS_AUTOCLEAR`: detach when the last user closes it.
pub(crate) const LO_AUTOCLEAR: u32 = 4;
/// `LO_FLAGS_DIRECT_IO`.
pub(crate) const LO_DIRECT_IO: u32 = 16;

fn check(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}

/// The number of a loop device that is free now; another process may take it first.
pub(crate) fn loop_get_free(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: this ioctl takes no argument and touches no memory of ours.
    let n = check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })?;
    Ok(n.unsigned_abs())
}

/// Binds `backing` to the loop device `dev` with logical blocks of `block_size` bytes (0: the
/// default).
pub(crate) fn loop_configure(
    dev: BorrowedFd<'_>,
    backing: BorrowedFd<'_>,
    block_size: u32,
    flags: u32,
) -> io::Result<()> {
    // SAFETY: every field is an integer or an array of integers, for which all zeroes is a value.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = backing.as_raw_fd().unsigned_abs();
    config.block_size = block_size;
    config.info.flags = flags;
    // SAFETY: the kernel reads one `struct loop_config`, which `config` is, and keeps no pointer to
    // it.
    check(unsafe { libc::ioctl(dev.as_raw_fd(), LOOP_CONFIGURE, &config) })?;
    Ok(())
}

/// Detaches the loop device, at once or when its last user is gone.
pub(crate) fn loop_clear(dev: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: this ioctl takes no argument and touches no memory of ours.
    check(unsafe { libc::ioctl(dev.as_raw_fd(), LOOP_CLR_FD) })?;
    Ok(())
}

/// The block of the volume that holds block `index` of a file, in blocks of the file system
/// (FIBMAP); 0: unmapped.
pub fn fibmap(file: BorrowedFd<'_>, index: u32) -> io::Result<u32> {
    const FIBMAP: libc::Ioctl = 1;
    let mut block = index;
    // SAFETY: this ioctl reads and writes one int.
    check(unsafe { libc::ioctl(file.as_raw_fd(), FIBMAP, &raw mut block) })?;
    Ok(block)
}

/// Has the kernel swap out this memory, as far as possible; its content stays.
pub fn page_out(memory: &mut [u8]) -> io::Result<()> {
    const PAGE: usize = 4096;
    let skip = memory.as_ptr().align_offset(PAGE).min(memory.len());
    let whole = &mut memory[skip..];
    // SAFETY: the range is borrowed, and MADV_PAGEOUT leaves its content as it is.
    check(unsafe { libc::madvise(whole.as_mut_ptr().cast(), whole.len(), libc::MADV_PAGEOUT) })?;
    Ok(())
}

/// Runs a file ioctl whose number includes the size of its argument (`_IOR`, `_IOW`, `_IOWR`).
///
/// # Errors
/// The kernel's; EINVAL if `argument` is smaller than the size in the number.
pub fn file_ioctl(file: BorrowedFd<'_>, number: u32, argument: &mut [u8]) -> io::Result<()> {
    if argument.len() < (number >> 16 & 0x3fff) as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the kernel reads and writes no more than the size in the number, which `argument`
    // has.
    let ret = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::c_ulong::from(number) as _,
            argument.as_mut_ptr(),
        )
    };
    check(ret).map(drop)
}

/// The treatment of the journal by `EXT4_IOC_SHUTDOWN` before the file system stops writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// `EXT4_GOING_FLAGS_LOGFLUSH`: commit the running transaction, but checkpoint nothing.
    LogFlush,
    /// `EXT4_GOING_FLAGS_NOLOGFLUSH`: stop at once; the running transaction is lost.
    NoLogFlush,
}

/// Makes the mounted ext4 that holds `fd` stop writing, as a power cut would. After the unmount,
/// which should follow, the image is dirty and its journal needs a replay.
pub fn ext4_shutdown(fd: BorrowedFd<'_>, how: Shutdown) -> io::Result<()> {
    let flags: u32 = match how {
        Shutdown::LogFlush => 1,
        Shutdown::NoLogFlush => 2,
    };
    // SAFETY: the kernel reads one u32 through the pointer and keeps nothing.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), EXT4_IOC_SHUTDOWN, &flags) })?;
    Ok(())
}

/// `MOUNT_ATTR_IDMAP`.
const ATTR_IDMAP: u64 = 0x0010_0000;

/// Maps the ids of a detached mount (open_tree(2)) as the user namespace `users` does
/// (mount_setattr(2)).
pub fn map_ids(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: users.as_raw_fd() as u64,
    };
    // SAFETY: the path is empty and ends with a NUL, and the kernel reads one `struct mount_attr`.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A file handle, as name_to_handle_at(2) gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

/// The handle of the file at `path`.
///
/// # Errors
/// The kernel's; EOPNOTSUPP if the file system has no handles.
pub fn file_handle(path: &Path) -> io::Result<FileHandle> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut handle = FileHandle {
        bytes: 128,
        kind: 0,
        handle: [0; 128],
    };
    let mut mount = 0;
    // SAFETY: the kernel writes to `handle` no more than `bytes` says it has, and to `mount`; it
    // reads the path up to its NUL.
    check(unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            path.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            0,
        )
    })?;
    Ok(handle)
}

/// Opens the file of a handle for reading, on the file system that holds `mount`.
///
/// # Errors
/// ESTALE if the file does not exist any more.
pub fn open_by_handle(mount: BorrowedFd<'_>, handle: &FileHandle) -> io::Result<File> {
    let mut handle = handle.clone();
    // SAFETY: the kernel reads the handle's head and as many bytes as that says, which are there.
    let fd = check(unsafe {
        libc::open_by_handle_at(
            mount.as_raw_fd(),
            (&raw mut handle).cast(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}
