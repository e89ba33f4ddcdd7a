//! Errors of a connection or a request.

use std::fmt;
use std::io;
use std::sync::Arc;

use stetfs_block::printable_line;

use crate::patience::is_overdue;

/// Maximum length of an error text in characters; some of it may be the server's.
const TEXT_MAX: usize = 1000;

/// The error of a request or a connection. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The connection is lost, or it received data that is no NBD. A new connection may work.
    #[error("{0}")]
    Lost(Arc<io::Error>),
    /// The server answered with this errno.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    /// The server refuses the export; maybe only for now.
    #[error("{0}")]
    Refused(Said),
    /// The export that came back is not the same as before, or the server missed a deadline.
    /// Permanent.
    #[error("{0}")]
    Stopped(Arc<str>),
}

/// A text that may hold words of the server (refusals, names in its certificate), made safe for
/// terminals: one line without control characters.
#[derive(Clone, Debug)]
pub(crate) struct Said(String);

impl Said {
    fn new(text: &str) -> Said {
        let short: String = text.chars().take(TEXT_MAX).collect();
        Said(printable_line(&short))
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Trouble {
    fn from(e: io::Error) -> Trouble {
        let e = match e.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(e.kind(), "it closed the connection"),
            // The error carries a text that is not the system's.
            kind if e.get_ref().is_some() && !is_overdue(&e) => {
                io::Error::new(kind, Said::new(&e.to_string()).0)
            }
            _ => e,
        };
        Trouble::Lost(Arc::new(e))
    }
}

impl From<rustix::io::Errno> for Trouble {
    fn from(e: rustix::io::Errno) -> Trouble {
        io::Error::from(e).into()
    }
}

impl Trouble {
    /// The error for a message that no NBD server sends.
    pub(crate) fn nonsense(what: impl Into<String>) -> Trouble {
        io::Error::new(io::ErrorKind::InvalidData, what.into()).into()
    }

    /// The error for an export that the server refuses.
    pub(crate) fn refused(why: impl AsRef<str>) -> Trouble {
        Trouble::Refused(Said::new(why.as_ref()))
    }

    /// The error for a caller of the block device.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            // System calls return the errno; messages show the reason.
            Trouble::Lost(e) => io::Error::new(e.kind(), e.to_string()),
            Trouble::Errno(errno) => io::Error::from_raw_os_error(errno),
            Trouble::Refused(reason) => io::Error::other(reason.0),
            Trouble::Stopped(reason) => io::Error::other(reason.to_string()),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Trouble>;
