//! Cleans up a server's inheritance from its parent process: low limits, blocked or ignored
//! signals, a umask that removes the server's own rights, and a high OOM score.

use std::io;
use std::mem::MaybeUninit;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits that the server raises as far as it may. The limit of core dumps stays.
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

/// Signals that the server needs, and that the parent may have ignored: with SIGCHLD ignored the
/// end of a child is lost.
const HEARD: [libc::c_int; 2] = [libc::SIGCHLD, libc::SIGTERM];

/// Limits of the process that remain: `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a file in bytes (`ulimit -f`).
    pub file_bytes: Option<u64>,
    /// Maximum size of the address space in bytes (`ulimit -v`), or of data (`ulimit -d`) if that
    /// is less.
    pub memory_bytes: Option<u64>,
    /// Processor time in seconds after which the process is killed (`ulimit -t`).
    pub cpu_seconds: Option<u64>,
    /// Maximum number of open files (`ulimit -n`).
    pub open_files: Option<u64>,
}

/// Raises a limit of this process as far as allowed; on failure the limit stays.
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

/// Cleans up at the start of a server, before it has threads. Returns the limits that remain.
pub fn shed() -> Limits {
    RAISED.into_iter().for_each(raise);
    // The mask may remove rights of others, not the owner's.
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

/// Whether the parent had this process ignore a signal, as nohup(1) does.
pub fn is_ignored(signal: libc::c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: this only queries; `now` has room for the answer, and is read only if the kernel
    // wrote it.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Unblocks all signals, and stops ignoring the needed ones. Every command calls it at its start.
pub fn hear_signals() {
    // SAFETY: the set is emptied before it is used; a default action runs no code of this process.
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

/// Lowers a raised OOM score to that of any other process.
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
