//! Where a server's messages go: a file that was asked for, else standard error in the foreground,
//! syslog in a daemon.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::{Code, Failure, Result};

/// Which messages: the environment variable, in tracing's filter syntax.
const FILTER: &str = "STETFS_LOG";

fn filter() -> EnvFilter {
    EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new("warn"))
}

/// Messages to standard error.
pub(crate) fn to_stderr() {
    // Fails only if it was done before.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .try_init();
}

/// Messages to a file, behind what is in it. It stays open: who makes it short (logrotate's
/// `copytruncate`) finds the next message at its beginning. Each message is one write, so that
/// several servers may have the same file.
///
/// # Errors
/// It cannot be opened or made.
pub(crate) fn to_file(path: &Path) -> Result {
    // What messages say of names is for those alone who may read them. Nobody is waited for (a
    // pipe). A symbolic link may be somebody else's, who has the server write elsewhere.
    let opened = File::options()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path);
    let file = opened.map_err(|e| {
        let message = format!("cannot open the log file {}: {e}", path.display());
        let hint = match e.raw_os_error() {
            Some(libc::ELOOP) => "it is a symbolic link: name what it leads to",
            _ => "name a file in a directory that is there, and that you may write",
        };
        Failure::new(Code::Usage, message).hint(hint)
    })?;
    // Fails only if it was done before.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_ansi(false)
        .with_writer(Arc::new(file))
        .try_init();
    Ok(())
}

/// Messages to syslog, if there is one.
pub(crate) fn to_syslog() {
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    if socket.connect("/dev/log").is_err() {
        return;
    }
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_ansi(false)
        .without_time()
        .with_level(false)
        .with_writer(Syslog(socket))
        .try_init();
}

struct Syslog(UnixDatagram);

/// One message, sent when it is complete.
struct Message<'a> {
    socket: &'a UnixDatagram,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Message<'a>;

    fn make_writer(&'a self) -> Message<'a> {
        self.message(&Level::INFO)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Message<'a> {
        self.message(meta.level())
    }
}

impl Syslog {
    fn message(&self, level: &Level) -> Message<'_> {
        // Facility daemon (3), severities of RFC 5424.
        let severity = match *level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let text = format!("<{}>stetfs[{}]: ", 3 * 8 + severity, std::process::id()).into_bytes();
        Message {
            socket: &self.0,
            text,
        }
    }
}

impl Write for Message<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        let _ = self.socket.send(self.text.trim_ascii_end());
    }
}

/// Of a remount that names another.
pub(crate) fn file_stays() -> Failure {
    Failure::new(Code::Usage, "a remount cannot change the log file")
        .hint("unmount it, and mount it again with the other log_file=")
}
