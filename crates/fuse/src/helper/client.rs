//! The server's side: it starts the helper, and sends it orders and questions.

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
use crate::system::passing;

/// The program name under which the helper is started.
pub const HELPER: &str = "stetfs-helper";

/// The server's side of the helper.
#[derive(Debug)]
pub struct Helper {
    pid: u32,
    /// The socket for orders, which may take as long as the unmount that they wait for.
    orders: Mutex<OwnedFd>,
    /// The socket for questions. It is separate, as an unmount waits for the requests that ask
    /// them.
    questions: Mutex<OwnedFd>,
    /// The volume's servers, with a socket for each through which connections to it come. They are
    /// separate, as the helper may wait for a server for long, and an unmount waits for that.
    ways: Vec<(NbdAddress, Mutex<OwnedFd>)>,
    asked: AtomicU64,
}

/// The helper of this process.
static OURS: OnceLock<Helper> = OnceLock::new();

/// Starts the helper of this process, which may then give its privileges away. Once per process.
///
/// The helper gets all its information here, before the volume is read: it learns of the mount from
/// the mounter, through `facts`, and connects to these servers.
///
/// # Errors
/// The helper cannot be started.
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
    // There is no wait for it: it ends after this process.
    OURS.set(helper)
        .map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
    OURS.get().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Has the socket for queries to the server removed. Returns whether a helper did.
pub fn hush() -> bool {
    ours().is_some_and(|helper| helper.order(Order::Hush).is_ok())
}

/// The helper of this process; `None` if the process keeps its privileges.
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
    /// The error of the change; ECONNRESET or EPIPE if the helper is gone.
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

    /// Sends something other than an order, as only a compromised server would.
    #[cfg(debug_assertions)]
    pub(crate) fn lie(&self, text: &[u8]) {
        let _ = exchange(&self.orders, text);
    }

    /// Asks a question, which takes longer than most requests. `None` if the answer is unknown.
    pub(crate) fn ask(&self, question: Question) -> Option<Answer> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = exchange(&self.questions, &question.to_bytes());
        answer.ok().as_deref().and_then(Answer::from_bytes)
    }

    /// Number of questions asked so far.
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

/// Sends a message and waits for its answer; empty if the other end is gone.
fn exchange(socket: &Mutex<OwnedFd>, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket.lock();
    rustix::net::send(&*socket, message, SendFlags::NOSIGNAL)?;
    message::receive(&*socket)
}
