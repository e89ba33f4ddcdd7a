//! What a server that somebody has taken over would try: in debug builds alone, for the tests of
//! what it has given away.

use std::fs::{self, File};
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Pid;

use crate::helper::{self, Order};
use crate::mountinfo::bytes;
use crate::sys;

/// Tries each, and gives its name and the errno that it ended with; 0 if it was let. `pid` is a
/// process that may be bothered. In `dir` there are: `secret`, a file; `gone`, a file that may be
/// removed; `there`, a directory. In the end it has the mount's flags taken back, as far as they
/// are.
pub fn taken_over(pid: u32, dir: &Path) -> Vec<(&'static str, i32)> {
    let secret = dir.join("secret");
    let there = dir.join("there");
    let attempts: [(&'static str, io::Result<()>); 18] = [
        ("read", File::open(&secret).map(drop)),
        ("write", File::options().write(true).open(&secret).map(drop)),
        ("create", File::create(dir.join("new")).map(drop)),
        ("remove", fs::remove_file(dir.join("gone"))),
        ("list", fs::read_dir(dir).map(drop)),
        ("see", File::open(format!("/proc/{pid}/mem")).map(drop)),
        ("ring: read", ring_opens(&secret)),
        ("ring: socket", ring_socket()),
        ("UDP", UdpSocket::bind("127.0.0.1:0").map(drop)),
        ("TCP", TcpStream::connect("127.0.0.1:1").map(drop)),
        ("connect", UnixStream::connect(dir.join("none")).map(drop)),
        ("start", start()),
        // Nothing else would come back.
        ("execute", Err(Command::new(dir.join("none")).exec())),
        ("code", sys::map_code()),
        ("signal", signal(pid)),
        ("trace", sys::trace(pid)),
        ("mount", mount(&there)),
        (
            "become",
            rustix::thread::set_thread_uid(rustix::thread::Uid::ROOT).map_err(Into::into),
        ),
    ];
    // What it may ask for: what protects others stays.
    if let Some(helper) = helper::ours() {
        let _ = helper.order(Order::Remount(MountFlags::STRICTATIME));
    }
    attempts
        .into_iter()
        .map(|(name, done)| (name, done.map_or_else(errno, |()| 0)))
        .collect()
}

fn errno(e: io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}

fn start() -> io::Result<()> {
    Command::new("/bin/true").spawn()?.wait().map(drop)
}

fn signal(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(
        pid,
        rustix::process::Signal::CONT,
    )?)
}

fn mount(dir: &Path) -> io::Result<()> {
    rustix::mount::mount("none", dir, "tmpfs", MountFlags::empty(), None)?;
    Ok(rustix::mount::unmount(dir, UnmountFlags::DETACH)?)
}

fn ring_opens(path: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(bytes(path))?;
    let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).flags(libc::O_RDONLY);
    ring_does(&open.build())
}

fn ring_socket() -> io::Result<()> {
    ring_does(&opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build())
}

/// Lets a ring open something.
fn ring_does(entry: &squeue::Entry) -> io::Result<()> {
    let mut ring = IoUring::new(1)?;
    // SAFETY: what the entry points to outlives the wait for its end.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let done = ring.completion().next().map(|c| c.result());
    match done {
        Some(fd) if fd >= 0 => {
            // SAFETY: the kernel has just given it to us.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::ErrorKind::TimedOut.into()),
    }
}
