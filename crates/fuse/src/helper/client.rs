//! The server's end: starting the helper, and asking it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::message::{self, Answer, Order, Question};
use crate::mounted::Mounted;

/// The name under which this program is started as a helper.
pub const HELPER: &str = "stetfs-helper";

/// The server's end.
#[derive(Debug)]
pub(crate) struct Helper {
    pid: u32,
    /// Orders may take as long as the unmount that they wait for, …
    orders: Mutex<OwnedFd>,
    /// … and questions come from requests that an unmount waits for.
    questions: Mutex<OwnedFd>,
    asked: AtomicU64,
}

/// The one of this process.
static OURS: OnceLock<Helper> = OnceLock::new();

/// Starts the helper of this process, which may then give its privileges away, and gives its
/// process id. Once a process.
///
/// # Errors
/// It cannot be started.
pub fn start_helper() -> io::Result<u32> {
    let pair = || {
        rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
    };
    let ((orders, its_orders), (questions, its_questions)) = (pair()?, pair()?);
    let started = Command::new("/proc/self/exe")
        .arg0(HELPER)
        .current_dir("/")
        .stdin(Stdio::from(its_orders))
        .stdout(Stdio::from(its_questions))
        .stderr(Stdio::null())
        .spawn()?;
    let helper = Helper {
        pid: started.id(),
        orders: Mutex::new(orders),
        questions: Mutex::new(questions),
        asked: AtomicU64::new(0),
    };
    let pid = helper.pid;
    // It is not waited for: it ends after this process.
    OURS.set(helper)
        .map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
    Ok(pid)
}

/// The helper of this process; none in one that keeps its privileges.
pub(crate) fn ours() -> Option<&'static Helper> {
    OURS.get()
}

impl Helper {
    /// Says what mount it is for, the flags that it has, and the loop device that shows the volume.
    /// The first word counts.
    pub(crate) fn told_of(
        &self,
        mounted: &Mounted,
        flags: MountFlags,
        device: Option<&Path>,
    ) -> io::Result<()> {
        let text = message::about(mounted, flags, device);
        let orders = self.orders.lock();
        rustix::net::send(&*orders, &text, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Has a change made, and waits for it.
    ///
    /// # Errors
    /// Why it was not made; ECONNRESET or EPIPE if the helper is gone.
    pub(crate) fn order(&self, order: Order) -> io::Result<()> {
        let answer = exchange(&self.orders, &order.to_bytes())?;
        match Answer::from_bytes(&answer) {
            Some(Answer([0, ..])) => Ok(()),
            Some(Answer([errno, ..])) => Err(io::Error::from_raw_os_error(
                i32::try_from(errno).unwrap_or(libc::EIO),
            )),
            None => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Asks, which takes longer than most requests. `None`: nobody knows.
    pub(crate) fn ask(&self, question: Question) -> Option<Answer> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = exchange(&self.questions, &question.to_bytes());
        answer.ok().as_deref().and_then(Answer::from_bytes)
    }

    /// Questions that were asked so far.
    pub(crate) fn questions(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Sends a message and waits for its answer: empty if the other end is gone.
fn exchange(socket: &Mutex<OwnedFd>, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket.lock();
    rustix::net::send(&*socket, message, SendFlags::NOSIGNAL)?;
    message::receive(&*socket)
}
