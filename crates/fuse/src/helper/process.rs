//! The helper's main function.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::SendFlags;
use stetfs::low::Route;

use super::message::{self, Answer, Facts, Order, Question};
use super::{caller, calls};
use crate::mount::MountError;
use crate::mount::loopdev;
use crate::system::{passing, sys};

/// The helper's main function: standard input brings orders, standard output questions. `remove`
/// removes the socket for queries to the server, by its name ([`crate::Entrance`]).
pub fn helper(remove: fn(&str)) -> ExitCode {
    // A service manager ends all processes of a service, and the server still needs its helper
    // then.
    sys::ignore_signals(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
    match start() {
        Some(facts) => {
            let mut orders = Orders {
                facts,
                known: None,
                kept: MountFlags::empty(),
                remove,
            };
            serve(rustix::stdio::stdin(), |bytes| orders.answer(bytes));
            // The server is gone.
            orders.hush();
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}

/// Receives the one trusted message, and starts a thread for each socket except that of the orders.
/// Returns the socket that brings the facts about the mount.
fn start() -> Option<OwnedFd> {
    let (text, fds) = passing::receive(rustix::stdio::stdin()).ok()?;
    let servers = message::read_addresses(&text)?;
    let mut fds = fds.into_iter();
    let facts = fds.next()?;
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let questions = || {
        serve(rustix::stdio::stdout(), |bytes| {
            Question::from_bytes(bytes)
                .and_then(answer)
                .map_or_else(Vec::new, Answer::to_bytes)
        });
    };
    thread("questions").spawn(questions).ok()?;
    for (server, way) in servers.iter().zip(fds) {
        let route = Route::to(server);
        thread("connections")
            .spawn(move || connect(&route, &way))
            .ok()?;
    }
    Some(facts)
}

/// Connects to one server on each request.
fn connect(route: &Route, way: &OwnedFd) {
    while message::receive(way).is_ok_and(|asked| !asked.is_empty()) {
        let passed = match route.connect(Duration::MAX) {
            Ok(socket) => passing::send(way, b".", &[socket.as_fd()]),
            Err(e) => passing::send(way, &message::refusal(&e), &[]),
        };
        if passed.is_err() {
            return;
        }
    }
}

/// Answers each message until the other end is closed.
fn serve(socket: impl AsFd, mut answer: impl FnMut(&[u8]) -> Vec<u8>) {
    while let Ok(bytes) = message::receive(&socket) {
        // An empty message looks like the end; none is ever sent.
        if bytes.is_empty() {
            return;
        }
        let mut said = answer(&bytes);
        if said.is_empty() {
            // Unknown.
            said.push(0);
        }
        if rustix::net::send(&socket, &said, SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}

/// Flags that no order can remove: they protect others from the content of the server's volume.
const PROTECTING: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC)
    .union(MountFlags::NOSYMFOLLOW);

/// The executor of the server's orders, for the one mount that the mounter reported.
struct Orders {
    facts: OwnedFd,
    known: Option<Facts>,
    /// Flags that are never removed.
    kept: MountFlags,
    remove: fn(&str),
}

impl Orders {
    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let done = match Order::from_bytes(bytes) {
            Some(order) => self.obey(order),
            None => Err(io::ErrorKind::InvalidInput.into()),
        };
        let errno = done.map_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        Answer([u64::from(errno.unsigned_abs()), 0, 0]).to_bytes()
    }

    /// Reads the mounter's report of the mount, if it has arrived: it is sent before the server
    /// learns of the mount.
    fn know(&mut self) {
        if self.known.is_none()
            && let Ok((text, _)) = passing::receive_now(&self.facts)
            && let Some(facts) = message::read_facts(&text)
        {
            self.kept = facts.flags & PROTECTING;
            self.known = Some(facts);
        }
    }

    fn obey(&mut self, order: Order) -> io::Result<()> {
        self.know();
        if order == Order::Hush {
            self.hush();
            return Ok(());
        }
        // Without the mounter's report there is no mount, whatever the server says.
        let Some(facts) = &self.known else {
            return Err(Errno::PERM.into());
        };
        match order {
            Order::Unmount(how) => facts.mounted.take_down(how).map_err(errno),
            Order::Remount(flags) => {
                self.kept |= flags & PROTECTING;
                facts.mounted.change_flags(flags | self.kept).map_err(errno)
            }
            Order::Abort => facts.mounted.abort(),
            Order::Forget => facts
                .device
                .as_deref()
                .map_or(Ok(()), loopdev::forget_content),
            Order::Hush => Ok(()),
        }
    }

    /// Removes the socket for queries to the server.
    fn hush(&mut self) {
        self.know();
        if let Some(name) = self.known.as_mut().and_then(|facts| facts.entrance.take()) {
            (self.remove)(&name);
        }
    }
}

/// The errno of a failure.
fn errno(e: MountError) -> io::Error {
    match e {
        MountError::Busy(_) => io::Error::from_raw_os_error(libc::EBUSY),
        MountError::NotMounted(_) => io::Error::from_raw_os_error(libc::EINVAL),
        MountError::NoFusermount => io::Error::from_raw_os_error(libc::ENOENT),
        MountError::Unmount { source, .. } | MountError::Mount { source, .. } => source,
        _ => io::Error::from_raw_os_error(libc::EPERM),
    }
}

fn answer(question: Question) -> Option<Answer> {
    let flag = |yes: bool| Some(Answer([u64::from(yes), 0, 0]));
    match question {
        Question::Intent { pid } => Some(calls::intent(pid).to_answer()),
        Question::TargetFlags { pid, ino } => {
            calls::target_flags(pid, ino).map(|flags| Answer([u64::from(flags as u32), 0, 0]))
        }
        Question::IoctlWord { pid, command } => {
            calls::waiting_ioctl_word(pid, command).map(|word| Answer([u64::from(word), 0, 0]))
        }
        Question::Descriptor { pid } => calls::descriptor(pid).map(|(program, descriptor)| {
            let (known, number) = descriptor.map_or((0, 0), |d| (1, d));
            Answer([program.into(), known, number.into()])
        }),
        Question::Capable { pid, capability } => flag(caller::is_capable(pid, capability)),
        Question::Ids { pid } => {
            let (uid, gid) = caller::ids(pid);
            Some(Answer([uid.into(), gid.into(), 0]))
        }
        Question::InGroup { pid, gid } => flag(caller::in_group(pid, gid)),
        Question::OneProcess { pid, other } => flag(caller::of_one_process(pid, other)),
    }
}
