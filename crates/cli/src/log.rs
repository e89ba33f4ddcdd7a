//! Where a server's messages go: standard error in the foreground, syslog in a daemon.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

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
        .with_writer(io::stderr)
        .try_init();
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
