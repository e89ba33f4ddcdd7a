//! The system call in which a caller waits for an answer: what its request leaves out where files
//! are opened without asking.
//!
//! Who waits cannot change it meanwhile. It shows for a caller whom this server may trace: with
//! root, or of the same user. A server that has given that away asks its helper.

use std::time::Duration;

use stetfs::low::{Caller, Ctx, Descriptor, Ino};

use crate::helper::{self, Answer, Question};
use crate::sys;

/// So often is looked whether a caller that has sent its request has gone to sleep …
const LOOKS: u32 = 100;
/// … and after so many looks with pauses.
const PATIENT: u32 = 10;
const PAUSE: Duration = Duration::from_micros(20);

/// Linux maps nothing below for a program that is not privileged (`vm.mmap_min_addr`).
const LEAST_ADDRESS: u64 = 65536;

/// A call with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    number: i64,
    args: [u64; 6],
}

impl Call {
    /// The one in which thread `pid` waits; `None` if it cannot be seen, or waits elsewhere.
    fn of(pid: u32) -> Option<Call> {
        let path = format!("/proc/{pid}/syscall");
        for look in 0..LOOKS {
            let text = std::fs::read_to_string(&path).ok()?;
            if text.trim_end() != "running" {
                return parse(&text);
            }
            match look {
                0..PATIENT => std::thread::yield_now(),
                _ => std::thread::sleep(PAUSE),
            }
        }
        None
    }

    /// What it is about to do with a file that it names.
    fn intent(&self, pid: u32) -> Intent {
        let opens = |n: usize| Intent::Opens(self.args[n] as i32);
        let asks = |n: usize| Intent::Asks(self.args[n] as i32);
        match self.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => opens(1),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => Intent::Opens(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC),
            libc::SYS_openat | libc::SYS_open_by_handle_at => opens(2),
            // `struct open_how` begins with them; flags beyond 32 bits say nothing of what is asked
            // here.
            libc::SYS_openat2 => {
                let low = if cfg!(target_endian = "little") { 0 } else { 4 };
                let word = self.args[2].checked_add(low);
                match word.and_then(|at| sys::word_of(pid, at).ok()) {
                    Some(word) => Intent::Opens(word as i32),
                    None => Intent::Unknown,
                }
            }
            // The kernel itself opens what these name.
            libc::SYS_acct => Intent::Opens(libc::O_WRONLY | libc::O_APPEND),
            libc::SYS_swapon => Intent::Opens(libc::O_RDWR),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_access => asks(1),
            libc::SYS_faccessat | libc::SYS_faccessat2 => asks(2),
            // The number is also that of open(2) of 32-bit programs, whose first argument is the
            // address of a name.
            libc::SYS_fstat if self.args[0] < LEAST_ADDRESS => Intent::Looks,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat => Intent::Looks,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime | libc::SYS_utimes | libc::SYS_futimesat => Intent::Looks,
            libc::SYS_newfstatat | libc::SYS_statx | libc::SYS_utimensat => Intent::Looks,
            _ => Intent::Unknown,
        }
    }

    /// The descriptor of the file that it changes or syncs.
    fn target(&self) -> Option<u32> {
        let argument = match self.number {
            libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_fallocate => 0,
            libc::SYS_copy_file_range => 2,
            _ => return None,
        };
        u32::try_from(self.args[argument]).ok()
    }
}

/// `257 0xffffff9c 0x7ffd2 …`: number, six arguments, stack and place. Of who waits outside of a
/// call, `-1` and two places.
fn parse(text: &str) -> Option<Call> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(Call { number, args })
}

/// What a caller is about to do for which the kernel asks for a file's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Opens it with these flags (`O_*`).
    Opens(i32),
    /// Asks whether it may be used so (`R_OK` and the like).
    Asks(i32),
    /// Looks at the mode, or sets the times: opens nothing.
    Looks,
    /// Anything else, or nobody can tell: also an open by io_uring, or of a 32-bit program.
    Unknown,
}

impl Intent {
    pub(crate) fn to_answer(self) -> Answer {
        Answer(match self {
            Intent::Unknown => [0, 0, 0],
            Intent::Opens(flags) => [1, u64::from(flags as u32), 0],
            Intent::Asks(mode) => [2, u64::from(mode as u32), 0],
            Intent::Looks => [3, 0, 0],
        })
    }

    fn from_answer(Answer([kind, value, _]): Answer) -> Intent {
        match kind {
            1 => Intent::Opens(value as i32),
            2 => Intent::Asks(value as i32),
            3 => Intent::Looks,
            _ => Intent::Unknown,
        }
    }
}

/// What thread `pid` is about to do, by the call in which it waits.
pub(crate) fn intent(pid: u32) -> Intent {
    match helper::ours() {
        Some(helper) => {
            let answer = helper.ask(Question::Intent { pid });
            answer.map_or(Intent::Unknown, Intent::from_answer)
        }
        None => Call::of(pid).map_or(Intent::Unknown, |call| call.intent(pid)),
    }
}

/// The word at `address` in the memory of thread `pid`, which asks for ioctl `command` with that as
/// its argument; `None` if it cannot be read.
pub(crate) fn ioctl_word(pid: u32, command: u32, address: u64) -> Option<u32> {
    match helper::ours() {
        Some(helper) => helper
            .ask(Question::IoctlWord { pid, command })
            .map(|Answer([word, ..])| word as u32),
        None => sys::word_of(pid, address).ok(),
    }
}

/// The same, of the ioctl in which the thread waits: nothing else can be read so.
pub(crate) fn waiting_ioctl_word(pid: u32, command: u32) -> Option<u32> {
    let [_, asked, address, ..] = Call::of(pid)?.args;
    (asked as u32 == command)
        .then(|| sys::word_of(pid, address).ok())
        .flatten()
}

/// The flags (`O_*`) of the descriptor through which thread `pid` changes file `ino`; `None` if
/// they cannot be found out.
pub(crate) fn target_flags(pid: u32, ino: Ino) -> Option<i32> {
    if let Some(helper) = helper::ours() {
        return helper
            .ask(Question::TargetFlags { pid, ino })
            .map(|Answer([flags, ..])| flags as i32);
    }
    let descriptor = Call::of(pid)?.target()?;
    let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).ok()?;
    let field = |name| info.lines().find_map(|l: &str| l.strip_prefix(name));
    // Not that of another file, which has the number since.
    let same = field("ino:")?.trim().parse() == Ok(ino);
    let flags = i32::from_str_radix(field("flags:")?.trim(), 8).ok()?;
    same.then_some(flags)
}

/// The caller of a request, as one who can be told of failures.
pub(crate) fn caller(ctx: &Ctx) -> Caller {
    Caller {
        pid: ctx.pid,
        descriptor,
    }
}

/// The program that thread `pid` belongs to, and which of its descriptors it uses if that shows.
pub(crate) fn descriptor(pid: u32) -> Option<Descriptor> {
    if let Some(helper) = helper::ours() {
        let Answer([program, known, number]) = helper.ask(Question::Descriptor { pid })?;
        return Some((program as u32, (known == 1).then_some(number as u32)));
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let program = status.lines().find_map(|l| l.strip_prefix("Tgid:"))?;
    let program = program.trim().parse().ok()?;
    Some((program, Call::of(pid).and_then(|call| call.target())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_call_is_read_and_what_is_none_is_not() {
        let call = parse("285 0x3 0x0 0x1000 0x2000 0x0 0x0 0x7ffd0 0x7f001\n").unwrap();
        assert_eq!(
            (call.number, call.args),
            (285, [3, 0, 0x1000, 0x2000, 0, 0])
        );
        for text in ["running\n", "-1 0x7ffd0 0x7f001\n", "", "1 2 3 4 5 6 7 8 9"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(Call::of(0), None);
    }

    #[test]
    fn flags_and_descriptors_are_where_each_call_has_them() {
        let call = |number, args| Call { number, args };
        let flags = libc::O_RDWR | libc::O_APPEND;
        let open = call(libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
        assert_eq!(open.intent(1), Intent::Opens(flags));
        assert_eq!(open.target(), None);
        let how = [flags as u64, 0, 0];
        let open = call(libc::SYS_openat2, [0, 0, how.as_ptr() as u64, 24, 0, 0]);
        assert_eq!(open.intent(std::process::id()), Intent::Opens(flags));
        let copy = call(libc::SYS_copy_file_range, [3, 0, 4, 0, 0, 0]);
        assert_eq!((copy.target(), copy.intent(1)), (Some(4), Intent::Unknown));
        let acct = call(libc::SYS_acct, [0x7000_0000, 0, 0, 0, 0, 0]);
        let appends = libc::O_WRONLY | libc::O_APPEND;
        assert_eq!(acct.intent(1), Intent::Opens(appends));
        let asks = call(libc::SYS_faccessat, [0, 0, 2, 0, 0, 0]);
        assert_eq!(asks.intent(1), Intent::Asks(libc::W_OK));
        let looks = |args| call(libc::SYS_fstat, args).intent(1);
        assert_eq!(looks([3, 0x7000_0000, 0, 0, 0, 0]), Intent::Looks);
        // As a 32-bit program opens.
        assert_eq!(looks([0x7000_0000, 2, 0, 0, 0, 0]), Intent::Unknown);
        let sync = call(libc::SYS_fdatasync, [5, 0, 0, 0, 0, 0]);
        assert_eq!(sync.target(), Some(5));
    }

    #[test]
    fn an_intent_arrives_from_the_helper_as_it_was() {
        let all = [
            Intent::Unknown,
            Intent::Opens(libc::O_RDWR | libc::O_APPEND),
            Intent::Asks(libc::W_OK),
            Intent::Looks,
        ];
        for intent in all {
            assert_eq!(Intent::from_answer(intent.to_answer()), intent);
        }
    }

    #[test]
    fn a_thread_that_waits_is_seen_in_its_call() {
        let (read, write) = std::io::pipe().unwrap();
        let (told, pid) = std::sync::mpsc::channel();
        let fd = read.as_raw_fd();
        let waits = std::thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get() as u32)
                .unwrap();
            std::io::Read::read(&mut &read, &mut [0]).unwrap()
        });
        let pid = pid.recv().unwrap();
        // It may be about to call.
        let seen = (0..1000).find_map(|_| Call::of(pid).filter(|c| c.number == libc::SYS_read));
        assert_eq!(seen.unwrap().args[0], fd as u64);
        assert_eq!(descriptor(pid), Some((std::process::id(), None)));
        drop(write);
        assert_eq!(waits.join().unwrap(), 0);
        assert_eq!(descriptor(0), None);
    }
}
