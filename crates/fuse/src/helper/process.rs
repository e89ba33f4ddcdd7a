//! The helper's own side.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use rustix::mount::MountFlags;
use rustix::net::SendFlags;

use super::message::{self, Answer, Order, Question};
use crate::mount::MountError;
use crate::mounted::Mounted;
use crate::{caller, calls, loopdev, sys};

/// The helper's main function: standard input brings orders, standard output questions.
pub fn helper() -> ExitCode {
    // A service manager ends all processes of a service, and the server then needs its helper.
    sys::ignore_signals(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
    let questions = std::thread::Builder::new()
        .name("questions".into())
        .spawn(|| {
            serve(rustix::stdio::stdout(), |bytes| {
                Question::from_bytes(bytes)
                    .and_then(answer)
                    .map_or_else(Vec::new, Answer::to_bytes)
            });
        });
    if questions.is_err() {
        return ExitCode::FAILURE;
    }
    let mut told = None;
    let orders = rustix::stdio::stdin();
    // What is gone before it was told of anything leaves nothing to do.
    while told.is_none() {
        match message::receive(orders) {
            Ok(text) if !text.is_empty() => told = message::read_about(&text),
            _ => return ExitCode::SUCCESS,
        }
    }
    let Some((mounted, flags, device)) = told else {
        return ExitCode::SUCCESS;
    };
    let kept = Cell::new(flags & PROTECTING);
    serve(orders, |bytes| {
        let done = match Order::from_bytes(bytes) {
            Some(order) => obey(order, &mounted, &kept, device.as_deref()),
            None => Err(io::ErrorKind::InvalidInput.into()),
        };
        let errno = done.map_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        Answer([u64::from(errno.unsigned_abs()), 0, 0]).to_bytes()
    });
    ExitCode::SUCCESS
}

/// Answers each message until the other end is closed.
fn serve(socket: impl AsFd, answer: impl Fn(&[u8]) -> Vec<u8>) {
    while let Ok(bytes) = message::receive(&socket) {
        // Of a message without content the end cannot be told; nobody sends one.
        if bytes.is_empty() {
            return;
        }
        let mut said = answer(&bytes);
        if said.is_empty() {
            // Nobody knows.
            said.push(0);
        }
        if rustix::net::send(&socket, &said, SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}

/// Flags that no order takes back: they protect others from what a server says is on its volume.
const PROTECTING: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC)
    .union(MountFlags::NOSYMFOLLOW);

fn obey(
    order: Order,
    mounted: &Mounted,
    kept: &Cell<MountFlags>,
    device: Option<&Path>,
) -> io::Result<()> {
    match order {
        Order::Unmount(how) => mounted.take_down(how).map_err(errno),
        Order::Remount(flags) => {
            kept.set(kept.get() | (flags & PROTECTING));
            mounted.change_flags(flags | kept.get()).map_err(errno)
        }
        Order::Abort => mounted.abort(),
        Order::Forget => device.map_or(Ok(()), loopdev::forget_content),
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
