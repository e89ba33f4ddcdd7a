//! The system call in which a caller waits for an answer: it shows the caller's intent where files
//! are opened without a request.
//!
//! A waiting caller cannot change its call. The call is visible if this server may trace the
//! caller: as root, or as the same user. A server without that right asks its helper.

use std::time::Duration;

use stetfs::low::{Caller, Ctx, Descriptor, Ino};

use crate::helper::{self, Answer, Question};
use crate::system::sys;

/// Number of checks whether a caller that has sent its request has gone to sleep.
const LOOKS: u32 = 100;
/// Number of checks without a pause before those with one.
const PATIENT: u32 = 10;
const PAUSE: Duration = Duration::from_micros(20);

/// Linux maps nothing below this address for an unprivileged program (`vm.mmap_min_addr`).
const LEAST_ADDRESS: u64 = 65536;

/// A system call with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    number: i64,
    args: [u64; 6],
}

impl Call {
    /// The call in which thread `pid` waits; `None` if it is invisible, or the thread waits
    /// elsewhere.
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

    /// The intent of a call that names a file.
    fn intent(&self, pid: u32) -> Intent {
        let opens = |n: usize| Intent::Opens(self.args[n] as i32);
        let asks = |n: usize| Intent::Asks(self.args[n] as i32);
        match self.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => opens(1),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => Intent::Opens(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC),
            libc::SYS_openat | libc::SYS_open_by_handle_at => opens(2),
            // `struct open_how` begins with the flags; those beyond 32 bits do not matter here.
            libc::SYS_openat2 => {
                let low = if cfg!(target_endian = "little") { 0 } else { 4 };
                let word = self.args[2].checked_add(low);
                match word.and_then(|at| sys::word_of(pid, at).ok()) {
                    Some(word) => Intent::Opens(word as i32),
                    None => Intent::Unknown,
                }
            }
            // The kernel itself opens the files that these calls name.
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

    /// The descriptor of the file that the call changes or syncs.
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

/// Parses `257 0xffffff9c 0x7ffd2 …`: number, six arguments, stack pointer and program counter. For
/// a thread that waits outside of a call the text is `-1` and two addresses.
fn parse(text: &str) -> Option<Call> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(Call { number, args })
}

/// The intent of a caller for whom the kernel requests a file's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It opens the file with these flags (`O_*`).
    Opens(i32),
    /// It checks for access (`R_OK` and the like).
    Asks(i32),
    /// It reads the mode, or sets the times: it opens nothing.
    Looks,
    /// Anything else, or unknown: also an open by io_uring, or by a 32-bit program.
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

/// The intent of thread `pid`, from the call in which it waits.
pub(crate) fn intent(pid: u32) -> Intent {
    match helper::ours() {
        Some(helper) => {
            let answer = helper.ask(Question::Intent { pid });
            answer.map_or(Intent::Unknown, Intent::from_answer)
        }
        None => Call::of(pid).map_or(Intent::Unknown, |call| call.intent(pid)),
    }
}

/// The word at `address` in the memory of thread `pid`, which waits in ioctl `command` with that
/// address as the argument; `None` if it cannot be read.
pub(crate) fn ioctl_word(pid: u32, command: u32, address: u64) -> Option<u32> {
    match helper::ours() {
        Some(helper) => helper
            .ask(Question::IoctlWord { pid, command })
            .map(|Answer([word, ..])| word as u32),
        None => sys::word_of(pid, address).ok(),
    }
}

/// The same for the ioctl in which the thread waits: no other memory can be read this way.
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
    // The number may belong to another file by now.
    let same = field("ino:")?.trim().parse() == Ok(ino);
    let flags = i32::from_str_radix(field("flags:")?.trim(), 8).ok()?;
    same.then_some(flags)
}

/// The caller of a request, for reports of failures.
pub(crate) fn caller(ctx: &Ctx) -> Caller {
    Caller {
        pid: ctx.pid,
        descriptor,
    }
}

/// The process that thread `pid` belongs to, and the descriptor that it uses, if that is visible.
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
        // It may not have called yet.
        let seen = (0..1000).find_map(|_| Call::of(pid).filter(|c| c.number == libc::SYS_read));
        assert_eq!(seen.unwrap().args[0], fd as u64);
        assert_eq!(descriptor(pid), Some((std::process::id(), None)));
        drop(write);
        assert_eq!(waits.join().unwrap(), 0);
        assert_eq!(descriptor(0), None);
    }
}
