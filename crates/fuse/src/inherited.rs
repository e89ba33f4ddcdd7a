//! The inheritance of a server from whoever starts it, which it must not suffer from: limits that
//! are lower than they have to be, signals that are blocked or ignored, a mask that takes its own
//! rights away, and a place among the first to be killed.

use std::io;
use std::mem::MaybeUninit;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits that the server raises as far as it may. What a core dump may take is left as it is.
const RAISED: [Resource; 9] = [
    Resource::Fsize,
    Resource::Cpu,
    Resource::As,
    Resource::Data,
    Resource::Rss,
    Resource::Nofile,
    Resource::Nproc,
    Resource::Memlock,
    Resource::Sigpending,
];

/// Signals that whoever starts us may have ignored, and that we need: the end of a child is lost
/// where SIGCHLD is ignored.
const HEARD: [libc::c_int; 2] = [libc::SIGCHLD, libc::SIGTERM];

/// Limits of the process that nothing raises: `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the largest file (`ulimit -f`).
    pub file_bytes: Option<u64>,
    /// Bytes of the address space (`ulimit -v`), or of data (`ulimit -d`) if that is less.
    pub memory_bytes: Option<u64>,
    /// Seconds of processor time, after which the process is killed (`ulimit -t`).
    pub cpu_seconds: Option<u64>,
    /// Files that are open at a time (`ulimit -n`).
    pub open_files: Option<u64>,
}

/// Raises a limit of this process as far as it may; where it cannot, the limit stays.
pub fn raise(resource: Resource) {
    let now = getrlimit(resource);
    let raised = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    if now.current != now.maximum
        && let Err(e) = setrlimit(resource, raised)
    {
        tracing::debug!("{resource:?} stays limited: {e}");
    }
}

/// Sheds what can be shed, at the start of a server, before it has threads. Gives the limits that
/// stay.
pub fn shed() -> Limits {
    RAISED.into_iter().for_each(raise);
    // A mask may take rights of others, not the owner's own.
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask & (Mode::RWXG | Mode::RWXO));
    spare();
    let of = |resource| getrlimit(resource).current;
    Limits {
        file_bytes: of(Resource::Fsize),
        memory_bytes: of(Resource::As).into_iter().chain(of(Resource::Data)).min(),
        cpu_seconds: of(Resource::Cpu),
        open_files: of(Resource::Nofile),
    }
}

/// Whether whoever started this process had it ignore a signal, as nohup(1) does.
pub fn is_ignored(signal: libc::c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks only; `now` has room for the answer, and is read where the kernel gave one.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Blocks no signals, and ignores none of those that are needed. For every command, at its start.
pub fn hear_signals() {
    // SAFETY: the set is made empty before it is used; no code of ours runs for a default action.
    unsafe {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        for signal in HEARD {
            if is_ignored(signal) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Among those to be killed when memory is short the server stands no further in front than any
/// process.
fn spare() {
    const PLACE: &str = "/proc/self/oom_score_adj";
    let moved = std::fs::read_to_string(PLACE).and_then(|now| match now.trim().parse::<i32>() {
        Ok(score) if score > 0 => std::fs::write(PLACE, "0"),
        Ok(_) => Ok(()),
        Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, e)),
    });
    if let Err(e) = moved {
        tracing::debug!("among the first to be killed: {e}");
    }
}
