//! The attempts of a compromised server, in debug builds only: tests verify that each fails after
//! the server has given its rights away.

use std::fs::{self, File};
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Pid;

use crate::helper::{self, Order};
use crate::mount::mounted::Mounted;
use crate::mount::mountinfo::{MountEntry, bytes};
use crate::system::sys;

/// The environment variable by which a test makes a server act as compromised before its mount
/// exists. It holds, separated by colons: a process id, paths of a directory and of a socket
/// ([`Victims`]), and the path, device number (with a dash) and namespace of a foreign mount.
const BEFORE: &str = "STETFS_TEST_TAKEN_OVER";

/// The targets of the attempts.
#[derive(Clone, Copy, Debug)]
pub struct Victims<'a> {
    /// A process.
    pub pid: u32,
    /// A directory with a file `secret`, a file `gone` that may be removed, and a directory
    /// `there`. A process listens at the abstract socket of its name.
    pub dir: &'a Path,
    /// The control socket of another mount.
    pub other: &'a Path,
}

/// Makes all attempts; returns the name and the errno of each, 0 for success. At the end it has the
/// mount's flags removed, as far as possible.
pub fn taken_over(victims: Victims<'_>) -> Vec<(&'static str, i32)> {
    let Victims { pid, dir, other } = victims;
    let secret = dir.join("secret");
    let there = dir.join("there");
    let attempts: [(&'static str, io::Result<()>); 23] = [
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
        ("control", UnixStream::connect(other).map(drop)),
        ("remove control", fs::remove_file(other)),
        ("abstract", abstract_socket(dir)),
        ("datagram", datagram()),
        ("start", start()),
        // A successful exec would not return.
        ("execute", Err(Command::new(dir.join("none")).exec())),
        ("code", sys::map_code()),
        ("signal", signal(pid)),
        ("signal by a file", sys::signal_by_file(pid)),
        ("trace", sys::trace(pid)),
        ("mount", mount(&there)),
        (
            "become",
            rustix::thread::set_thread_uid(rustix::thread::Uid::ROOT).map_err(Into::into),
        ),
    ];
    // A permitted order: the flags that protect others stay.
    if let Some(helper) = helper::ours() {
        let _ = helper.order(Order::Remount(MountFlags::STRICTATIME));
    }
    attempts
        .into_iter()
        .map(|(name, done)| (name, done.map_or_else(errno, |()| 0)))
        .collect()
}

/// Runs the attempts if a test requests them, and logs the results: the excess rights of all
/// threads, and the orders that the helper accepts.
pub fn taken_over_before() {
    let Some(told) = std::env::var_os(BEFORE) else {
        return;
    };
    let told = told.to_string_lossy();
    let mut parts = told.split(':');
    let mut part = || parts.next().unwrap_or_default();
    let (pid, dir, other) = (part(), part(), part());
    let (foreign, dev, namespace) = (part(), part(), part());
    let victims = Victims {
        pid: pid.parse().unwrap_or_default(),
        dir: Path::new(dir),
        other: Path::new(other),
    };
    let mut tried = taken_over(victims);
    tried.push(("threads", strong_threads()));
    if let Some(helper) = helper::ours() {
        // A foreign mount, presented as the server's own.
        let entry = MountEntry {
            id: 0,
            dev: dev.replace('-', ":"),
            dir: foreign.into(),
            read_only: false,
            fstype: "tmpfs".to_owned(),
            source: "tmpfs".into(),
        };
        let mounted = Mounted::elsewhere(entry, namespace.parse().unwrap_or_default());
        let about = helper::about(&mounted, MountFlags::empty(), None);
        helper.lie(&about);
        let order = helper.order(Order::Remount(MountFlags::empty()));
        tried.push(("remount", order.map_or_else(errno, |()| 0)));
    }
    for (name, errno) in tried {
        tracing::error!("taken over: {name}: {errno}");
    }
}

/// EPERM if all threads of this process have a filter, no capabilities except CAP_IPC_LOCK, and no
/// way to gain any; otherwise minus the number of those that do not.
fn strong_threads() -> i32 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let texts = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("status")));
    let is_weak = |text: &String| {
        let has = |line: &str| text.lines().any(|l| l == line);
        (has("CapEff:\t0000000000004000") || has("CapEff:\t0000000000000000"))
            && has("NoNewPrivs:\t1")
            && has("Seccomp:\t2")
    };
    let strong = texts.filter(|text| !text.as_ref().is_ok_and(is_weak));
    match strong.count() {
        0 => libc::EPERM,
        n => -i32::try_from(n).unwrap_or(i32::MAX),
    }
}

fn abstract_socket(dir: &Path) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(bytes(dir))?;
    UnixStream::connect_addr(&address).map(drop)
}

fn datagram() -> io::Result<()> {
    use rustix::net::{AddressFamily, SendFlags, SocketType, connect, send, socket};
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    connect(&socket, &std::net::SocketAddr::from(([127, 0, 0, 1], 9)))?;
    send(&socket, b"x", SendFlags::NOSIGNAL)?;
    Ok(())
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

/// Opens a file by a ring.
fn ring_does(entry: &squeue::Entry) -> io::Result<()> {
    let mut ring = IoUring::new(1)?;
    // SAFETY: the memory of the entry outlives the wait for its completion.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let done = ring.completion().next().map(|c| c.result());
    match done {
        Some(fd) if fd >= 0 => {
            // SAFETY: the kernel has just returned it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::ErrorKind::TimedOut.into()),
    }
}
