//! The server's end: starting the helper, and asking it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::net::SendFlags;
use stetfs::low::{Connect, NbdAddress};

use super::message::{self, Answer, Order, Question};
use crate::passing;

/// The name under which this program is started as a helper.
pub const HELPER: &str = "stetfs-helper";

/// The server's end.
#[derive(Debug)]
pub struct Helper {
    pid: u32,
    /// Orders may take as long as the unmount that they wait for, …
    orders: Mutex<OwnedFd>,
    /// … and questions come from requests that an unmount waits for.
    questions: Mutex<OwnedFd>,
    /// Servers of volumes, and a socket for each through which connections to it come: the helper
    /// may wait for one for long, and an unmount for that.
    ways: Vec<(NbdAddress, Mutex<OwnedFd>)>,
    asked: AtomicU64,
}

/// The one of this process.
static OURS: OnceLock<Helper> = OnceLock::new();

/// Starts the helper of this process, which may then give its privileges away. Once a process.
///
/// All that it is told, it is told here, before the volume is looked at: that it hears of the mount
/// from the mounter, through `facts`, and connects to these servers.
///
/// # Errors
/// It cannot be started.
pub fn start_helper(facts: Option<OwnedFd>, servers: &[NbdAddress]) -> io::Result<&'static Helper> {
    let ((orders, its_orders), (questions, its_questions)) = (passing::pair()?, passing::pair()?);
    let started = Command::new("/proc/self/exe")
        .arg0(HELPER)
        .current_dir("/")
        .stdin(Stdio::from(its_orders))
        .stdout(Stdio::from(its_questions))
        .stderr(Stdio::null())
        .spawn()?;
    let (mut ways, mut its) = (Vec::new(), Vec::new());
    for server in servers {
        let (way, its_way) = passing::pair()?;
        ways.push((server.clone(), Mutex::new(way)));
        its.push(its_way);
    }
    let facts = facts.ok_or(io::ErrorKind::AlreadyExists)?;
    let fds: Vec<_> = [&facts].into_iter().chain(&its).map(AsFd::as_fd).collect();
    passing::send(&orders, &message::addresses(servers), &fds)?;
    let helper = Helper {
        pid: started.id(),
        orders: Mutex::new(orders),
        questions: Mutex::new(questions),
        ways,
        asked: AtomicU64::new(0),
    };
    // It is not waited for: it ends after this process.
    OURS.set(helper)
        .map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
    OURS.get().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Has the socket removed at which the server could be asked. Whether somebody does.
pub fn hush() -> bool {
    ours().is_some_and(|helper| helper.order(Order::Hush).is_ok())
}

/// The helper of this process; none in one that keeps its privileges.
pub(crate) fn ours() -> Option<&'static Helper> {
    OURS.get()
}

impl Helper {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
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

    /// Says something else than an order, as nobody does who was not taken over.
    #[cfg(debug_assertions)]
    pub(crate) fn lie(&self, text: &[u8]) {
        let _ = exchange(&self.orders, text);
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

impl Connect for Helper {
    fn connect(&self, address: &NbdAddress) -> io::Result<OwnedFd> {
        let way = self.ways.iter().find(|(known, _)| known == address);
        let (_, way) = way.ok_or(io::ErrorKind::PermissionDenied)?;
        let way = way.lock();
        rustix::net::send(&*way, b".", SendFlags::NOSIGNAL)?;
        let (said, fds) = passing::receive(&*way)?;
        let socket = fds.into_iter().next();
        socket.ok_or_else(|| message::read_refusal(&said))
    }
}

/// Sends a message and waits for its answer: empty if the other end is gone.
fn exchange(socket: &Mutex<OwnedFd>, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket.lock();
    rustix::net::send(&*socket, message, SendFlags::NOSIGNAL)?;
    message::receive(&*socket)
}
