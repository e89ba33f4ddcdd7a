//! The ioctls that nothing safe wraps.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use stetfs::low::Span;
use zerocopy::{Immutable, IntoBytes};

use crate::atomic::BREAK;

/// `FUSE_DEV_IOC_CLONE`.
const FUSE_CLONE: libc::c_ulong = 0x8004_e500;
/// `LOOP_CTL_GET_FREE`.
const LOOP_GET_FREE: libc::c_ulong = 0x4c82;
/// `LOOP_CONFIGURE`.
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;

/// `struct loop_config` with `struct loop_info64` in it.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    /// `lo_device` to `lo_sizelimit`.
    ids: [u64; 5],
    /// `lo_number`, `lo_encrypt_type`, `lo_encrypt_key_size`.
    numbers: [u32; 3],
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Lets these signals do nothing to this process, nor to those that it starts.
pub(crate) fn ignore_signals(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Makes the calling thread run only where a processor would else be idle (`SCHED_IDLE`).
pub(crate) fn be_idle_class() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: sched_setscheduler(2) reads one `sched_param` from the pointer, which is valid for
    // it.
    checked(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) }).map(drop)
}

/// How often another thread has got the processor though the calling thread had use for it
/// (`ru_nivcsw`); 0 if that is not told.
pub(crate) fn times_preempted() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage(2) writes one `rusage` to the pointer, which is valid for it.
    let told = checked(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) });
    // SAFETY: it consists of numbers, of which zero is one.
    let usage = unsafe { usage.assume_init() };
    told.map_or(0, |_| usage.ru_nivcsw as u64)
}

/// Makes `fuse`, which was just opened, another descriptor of `session`'s connection.
pub(crate) fn fuse_clone(fuse: BorrowedFd<'_>, session: RawFd) -> io::Result<()> {
    let session = session as u32;
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32 from the pointer, which is valid for it.
    checked(unsafe { libc::ioctl(fuse.as_raw_fd(), FUSE_CLONE, &raw const session) }).map(drop)
}

/// Ends the atomic write of a file on a mount, whoever began it. `file` is open in whatever way.
///
/// # Errors
/// EINVAL: there is none. EPERM: neither the file's owner, nor root. EOPNOTSUPP: the mount has no
/// such thing. ENOTTY: it is no file of such a mount.
pub fn break_atomic_write(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the ioctl has no argument.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), BREAK.into()) }).map(drop)
}

/// Moves the calling thread to a mount namespace of its own, a copy of the one it is in.
pub(crate) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: the danger is in `FILES`, which this does not ask for: descriptors stay shared.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?)
}

/// Starts a copy of this process in which nothing happens but `run`, and gives its process id.
///
/// # Errors
/// This process has more threads than one, which the copy would not have; or there are no more
/// processes.
pub(crate) fn fork(run: impl FnOnce()) -> io::Result<rustix::process::Pid> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with threads is not copied"));
    }
    // SAFETY: no other thread holds a lock, or has anything else half done, that the copy would
    // find so for ever.
    match checked(unsafe { libc::fork() })? {
        0 => {
            run();
            // SAFETY: ends the copy, without what the program does at its end.
            unsafe { libc::_exit(0) }
        }
        pid => rustix::process::Pid::from_raw(pid).ok_or_else(io::Error::last_os_error),
    }
}

/// Number of a free loop device.
pub(crate) fn loop_get_free(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    let n = checked(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_GET_FREE) })?;
    Ok(n as u32)
}

/// A word of another process' memory, as ptrace(2) would read it.
pub(crate) fn word_of(pid: u32, address: u64) -> io::Result<u32> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut word = [0u8; 4];
    let local = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: word.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: word.len(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to `word`; the remote address is looked up
    // in the other process only.
    let n = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match n {
        4 => Ok(u32::from_ne_bytes(word)),
        n if n < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Puts a file, or a part of it, behind a loop device, with `LO_FLAGS_*`.
pub(crate) fn loop_configure(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    name: &[u8],
    part: Option<Span>,
    flags: u32,
) -> io::Result<()> {
    // Offset and size are the last two; no size is all.
    let (offset, size) = part.map_or((0, 0), |part| (part.start, part.len));
    let mut config = LoopConfig {
        fd: file.as_raw_fd() as u32,
        block_size: 0,
        ids: [0, 0, 0, offset, size],
        numbers: [0; 3],
        flags,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
        reserved: [0; 8],
    };
    // The last byte stays NUL.
    for (to, from) in config.file_name[..63].iter_mut().zip(name) {
        *to = *from;
    }
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config` from the pointer, whose layout ours is.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) }).map(drop)
}

/// Has a process get a signal when this one's standard input is ready.
#[cfg(debug_assertions)]
pub(crate) fn signal_by_file(pid: u32) -> io::Result<()> {
    // SAFETY: F_SETOWN takes a number.
    checked(unsafe { libc::fcntl(0, libc::F_SETOWN, pid as libc::pid_t) })?;
    // SAFETY: the same; nobody is its owner.
    checked(unsafe { libc::fcntl(0, libc::F_SETOWN, 0) }).map(drop)
}

/// Begins to trace a process, without stopping it. It ends with the calling thread.
#[cfg(debug_assertions)]
pub(crate) fn trace(pid: u32) -> io::Result<()> {
    // SAFETY: PTRACE_SEIZE reads no memory of ours.
    let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid as libc::pid_t, 0, 0) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a page that can be executed, and gives it back.
#[cfg(debug_assertions)]
pub(crate) fn map_code() -> io::Result<()> {
    use rustix::mm::{MapFlags, ProtFlags};
    let prot = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: the kernel chooses a place where nothing is.
    let page =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, prot, MapFlags::PRIVATE) }?;
    // SAFETY: it is ours, and nobody has a reference into it.
    Ok(unsafe { rustix::mm::munmap(page, 4096) }?)
}
