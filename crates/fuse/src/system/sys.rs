//! System calls without a safe wrapper elsewhere.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use stetfs::low::Span;
use zerocopy::{Immutable, IntoBytes};

/// `STETFS_IOC_BREAK_ATOMIC_WRITE` (`include/stetfs_atomic.h`).
pub(crate) const BREAK: u32 = 0xf542;
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

/// Ignores these signals in this process and in those that it starts.
pub(crate) fn ignore_signals(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN runs no code of this program.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Makes the calling thread run only where a processor would be idle (`SCHED_IDLE`).
pub(crate) fn be_idle_class() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: sched_setscheduler(2) reads one `sched_param` from the pointer, which is valid for
    // it.
    checked(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) }).map(drop)
}

/// The number of times that the calling thread was preempted (`ru_nivcsw`); 0 if unknown.
pub(crate) fn times_preempted() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage(2) writes one `rusage` to the pointer, which is valid for it.
    let told = checked(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) });
    // SAFETY: it consists of integers, for which zero is valid.
    let usage = unsafe { usage.assume_init() };
    told.map_or(0, |_| usage.ru_nivcsw as u64)
}

/// Makes `fuse`, which was just opened, another descriptor of `session`'s connection.
pub(crate) fn fuse_clone(fuse: BorrowedFd<'_>, session: RawFd) -> io::Result<()> {
    let session = session as u32;
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32 from the pointer, which is valid for it.
    checked(unsafe { libc::ioctl(fuse.as_raw_fd(), FUSE_CLONE, &raw const session) }).map(drop)
}

/// Ends the atomic write of a file on a mount, whichever handle began it. `file` may be open in any
/// mode.
///
/// # Errors
/// EINVAL: there is none. EPERM: the caller is neither the file's owner nor root. EOPNOTSUPP: the
/// mount lacks the option. ENOTTY: the file is not on such a mount.
pub fn break_atomic_write(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the ioctl has no argument.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), BREAK.into()) }).map(drop)
}

/// Moves the calling thread to a new mount namespace, a copy of its current one.
pub(crate) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: only `FILES` is dangerous, which is not used: descriptors stay shared.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?)
}

/// Forks a copy of this process that only executes `run`, and returns its process id.
///
/// # Errors
/// This process has several threads, which the copy would lack; or the fork failed.
pub(crate) fn fork(run: impl FnOnce()) -> io::Result<rustix::process::Pid> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with threads is not copied"));
    }
    // SAFETY: there is no other thread, which might hold a lock or be in the middle of a change
    // when the copy is made.
    match checked(unsafe { libc::fork() })? {
        0 => {
            run();
            // SAFETY: ends the copy without running the program's exit handlers.
            unsafe { libc::_exit(0) }
        }
        pid => rustix::process::Pid::from_raw(pid).ok_or_else(io::Error::last_os_error),
    }
}

/// The number of a free loop device.
pub(crate) fn loop_get_free(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    let n = checked(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_GET_FREE) })?;
    Ok(n as u32)
}

/// Reads a word of another process's memory, with the rights of ptrace(2).
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
    // SAFETY: the kernel writes at most `iov_len` bytes to `word`; the remote address is used only
    // in the other process.
    let n = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match n {
        4 => Ok(u32::from_ne_bytes(word)),
        n if n < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Attaches a file, or a part of it, to a loop device, with `LO_FLAGS_*`.
pub(crate) fn loop_configure(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    name: &[u8],
    part: Option<Span>,
    flags: u32,
) -> io::Result<()> {
    // Offset and size are the last two; size 0 means all.
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
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config` from the pointer, and `config` has its
    // layout.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) }).map(drop)
}

/// Has a process get a signal when this process's standard input is ready.
#[cfg(debug_assertions)]
pub(crate) fn signal_by_file(pid: u32) -> io::Result<()> {
    // SAFETY: F_SETOWN takes a number.
    checked(unsafe { libc::fcntl(0, libc::F_SETOWN, pid as libc::pid_t) })?;
    // SAFETY: the same; 0 removes the owner.
    checked(unsafe { libc::fcntl(0, libc::F_SETOWN, 0) }).map(drop)
}

/// Begins to trace a process, without stopping it. The trace ends with the calling thread.
#[cfg(debug_assertions)]
pub(crate) fn trace(pid: u32) -> io::Result<()> {
    // SAFETY: PTRACE_SEIZE reads no memory of this process.
    let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid as libc::pid_t, 0, 0) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps an executable page, and unmaps it.
#[cfg(debug_assertions)]
pub(crate) fn map_code() -> io::Result<()> {
    use rustix::mm::{MapFlags, ProtFlags};
    let prot = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: the kernel chooses an unused address.
    let page =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, prot, MapFlags::PRIVATE) }?;
    // SAFETY: this function mapped the page, and no reference into it exists.
    Ok(unsafe { rustix::mm::munmap(page, 4096) }?)
}
