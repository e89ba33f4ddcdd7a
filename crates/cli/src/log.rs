//! The destination of a server's messages: a file if one is named, else standard error in the
//! foreground and syslog in a daemon.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, Registry};

use crate::failure::{Code, Failure, Result};

/// The environment variable that selects messages: a level or `TARGET=LEVEL`, separated by commas.
const FILTER: &str = "STETFS_LOG";

/// The filter for these messages; warnings and errors if nothing valid is chosen.
fn filter(chosen: Option<&str>) -> Targets {
    let read = chosen.filter(|text| !text.is_empty());
    let read = read.and_then(|text| text.parse().ok());
    read.unwrap_or_else(|| Targets::new().with_default(Level::WARN))
}

/// Sends messages to this place from now on.
fn go_to(place: impl Layer<Registry> + Send + Sync + 'static) {
    let chosen = std::env::var(FILTER).ok();
    let place = place.with_filter(filter(chosen.as_deref()));
    // The call fails only if it was done before.
    let _ = tracing_subscriber::registry().with(place).try_init();
}

/// Sends messages to standard error.
pub(crate) fn to_stderr() {
    let lines = fmt::layer().with_ansi(io::stderr().is_terminal());
    go_to(lines.with_writer(io::stderr));
}

/// Appends messages to a file. The file stays open: if it is truncated (logrotate's
/// `copytruncate`), the next message is at its beginning. Each message is one write, so that
/// several servers may share a file.
///
/// # Errors
/// The file cannot be opened or created.
pub(crate) fn to_file(path: &Path) -> Result {
    // The mode: messages contain names, which not everybody may read. The flags: opening a pipe
    // does not wait, and a symbolic link, which another user may have made, is not followed.
    let opened = File::options()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path);
    let file = opened.map_err(|e| {
        let message = format!("cannot open the log file {}: {e}", path.display());
        let hint = match e.raw_os_error() {
            Some(libc::ELOOP) => "it is a symbolic link: name its target",
            _ => "name a file in a directory that is there, and that you may write",
        };
        Failure::new(Code::Usage, message).hint(hint)
    })?;
    go_to(fmt::layer().with_ansi(false).with_writer(Arc::new(file)));
    Ok(())
}

/// Sends messages to syslog, if there is one.
pub(crate) fn to_syslog() {
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    if socket.connect("/dev/log").is_err() {
        return;
    }
    let lines = fmt::layer().with_ansi(false).without_time();
    go_to(lines.with_level(false).with_writer(Syslog(socket)));
}

struct Syslog(UnixDatagram);

/// A message, sent when it is complete.
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
        // The facility is daemon (3); the severities are those of RFC 5424.
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

/// The failure of a remount that names another file.
pub(crate) fn file_stays() -> Failure {
    Failure::new(Code::Usage, "a remount cannot change the log file")
        .hint("unmount it, and mount it again with the other log_file=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_chosen_by_level_and_by_target() {
        let tells = |chosen, target| {
            let filter = filter(chosen);
            let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN];
            let mut told = levels.into_iter();
            told.find(|level| filter.would_enable(target, level))
        };
        for (chosen, journal, ext4) in [
            (None, Some(Level::WARN), Some(Level::WARN)),
            (Some(""), Some(Level::WARN), Some(Level::WARN)),
            (Some("loud=7"), Some(Level::WARN), Some(Level::WARN)),
            (Some("debug"), Some(Level::DEBUG), Some(Level::DEBUG)),
            (Some("stetfs_journal=debug"), Some(Level::DEBUG), None),
            (
                Some("info,stetfs_journal=trace"),
                Some(Level::TRACE),
                Some(Level::INFO),
            ),
            (Some("error"), None, None),
        ] {
            let found = ["stetfs_journal::engine", "stetfs_ext4"].map(|t| tells(chosen, t));
            assert_eq!(found, [journal, ext4], "{chosen:?}");
        }
    }
}
