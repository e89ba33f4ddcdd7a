//! The places that a server's messages go to. Each is opened at the start: a server that has given
//! up its privileges opens no others.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use stetfs::low::printable_line;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::name::volume;
use crate::control;

/// The kernel takes no longer line (its `LOG_LINE_MAX` is 1024 bytes); bytes.
const KERNEL_LINE: usize = 900;
/// The largest log in the directory of the control sockets, which is in memory; bytes.
const IN_MEMORY: u64 = 1 << 20;

/// A place for messages.
pub(super) enum Place {
    /// Standard error.
    Stderr,
    /// A file that lines are appended to.
    File(File),
    /// The socket `/dev/log`.
    Syslog(UnixDatagram),
    /// The kernel's log, `/dev/kmsg`.
    Kernel(File),
}

impl Place {
    /// A file, made if there is none. It stays open: if it is truncated (logrotate's
    /// `copytruncate`), the next message is at its beginning. Each message is one write, so that
    /// several servers may share a file.
    ///
    /// # Errors
    /// It cannot be opened or created.
    pub(super) fn file(path: &Path) -> io::Result<Place> {
        open(path, true).map(Place::File)
    }

    /// Syslog, if somebody listens there.
    pub(super) fn syslog() -> Option<Place> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect("/dev/log").ok()?;
        // A listener that is stuck, perhaps waiting for this very volume, stops no request.
        socket.set_nonblocking(true).ok()?;
        Some(Place::Syslog(socket))
    }

    /// Standard error, if it is a file: nobody waits for its end, so that a daemon may keep it.
    pub(super) fn kept_stderr() -> Option<Place> {
        let stat = rustix::fs::fstat(io::stderr()).ok()?;
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        kind.is_file().then_some(Place::Stderr)
    }

    /// The kernel's log, if this process may write to it.
    pub(super) fn kernel() -> Option<Place> {
        let file = open(Path::new("/dev/kmsg"), false).ok()?;
        let is = file.metadata().ok()?;
        // Containers put other files in its place.
        let device = rustix::fs::makedev(1, 11);
        (is.file_type().is_char_device() && is.rdev() == device).then_some(Place::Kernel(file))
    }

    /// The file `log` in the directory of the control sockets.
    pub(super) fn own_file() -> Option<Place> {
        let path = control::own_dir().ok()?.join("log");
        let file = open(&path, true).ok()?;
        if file.metadata().ok()?.len() > IN_MEMORY {
            file.set_len(0).ok()?;
        }
        Some(Place::File(file))
    }

    /// Writes a line. A line is one write.
    fn tell(&self, level: Level, text: &str) -> io::Result<()> {
        match self {
            Place::Stderr => io::stderr().write_all(dated(level, text).as_bytes()),
            Place::File(file) => {
                let mut file: &File = file;
                file.write_all(dated(level, text).as_bytes())
            }
            Place::Syslog(socket) => {
                let line = ranked(level, text);
                socket.send(line.as_bytes()).map(drop)
            }
            Place::Kernel(file) => {
                let mut line = ranked(level, text);
                line.truncate(line.floor_char_boundary(KERNEL_LINE));
                // Without it the line is shown when the next one comes.
                line.push('\n');
                let mut file: &File = file;
                file.write(line.as_bytes()).map(drop)
            }
        }
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    // The mode: messages contain names, which not everybody may read. The flags: opening a pipe
    // does not wait, and a symbolic link, which another user may have made, is not followed.
    File::options()
        .append(true)
        .create(create)
        .mode(0o640)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path)
}

/// A line with time and level, for a file or a terminal.
fn dated(level: Level, text: &str) -> String {
    let mut line = String::new();
    // Writing to memory does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut line));
    line + &format!(" {level:>5} {text}\n")
}

/// A line for syslog or the kernel, which note the time themselves.
fn ranked(level: Level, text: &str) -> String {
    // The facility is daemon (3); the severities are those of RFC 5424.
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    format!("<{}>{text}", 3 * 8 + severity)
}

/// Places in the order of preference: a line goes to the first that takes it.
pub(super) struct Places(pub(super) Vec<Place>);

impl<'a> MakeWriter<'a> for Places {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        self.line(Level::INFO)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        self.line(*meta.level())
    }
}

impl Places {
    fn line(&self, level: Level) -> Line<'_> {
        Line {
            places: &self.0,
            level,
            text: Vec::new(),
        }
    }
}

/// A line, written when it is complete.
pub(super) struct Line<'a> {
    places: &'a [Place],
    level: Level,
    text: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let message = String::from_utf8_lossy(&self.text);
        // Hints are lines of their own.
        let message: Vec<&str> = message.lines().map(str::trim).collect();
        let message = message.join("; ");
        let text = format!("stetfs[{}]: {}: {message}", std::process::id(), volume());
        let text = printable_line(&text);
        let _ = self
            .places
            .iter()
            .any(|place| place.tell(self.level, &text).is_ok());
    }
}
