//! What can be wrong with a server.

use std::fmt;
use std::io;
use std::sync::Arc;

use stetfs_block::printable_line;

use crate::patience::is_overdue;

/// Characters of a text at most; some of it may be the server's.
const TEXT_MAX: usize = 1000;

/// Why a request or a connection came to nothing. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The connection is gone, or what came over it is no NBD. Another one may do better.
    #[error("{0}")]
    Lost(Arc<io::Error>),
    /// The server answered with this errno.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    /// It does not let us have the export; maybe later.
    #[error("{0}")]
    Refused(Said),
    /// What is there now is not what was there. Nothing helps.
    #[error("{0}")]
    Stopped(Arc<str>),
}

/// A text that may hold what the server says (refusals, names in its certificate): in one line, and
/// nothing in it steers a terminal.
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
            io::ErrorKind::UnexpectedEof => io::Error::new(e.kind(), "it hung up"),
            // Not the system's own.
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
    /// The server said what no NBD server says.
    pub(crate) fn nonsense(what: impl Into<String>) -> Trouble {
        io::Error::new(io::ErrorKind::InvalidData, what.into()).into()
    }

    /// The server does not let us have the export.
    pub(crate) fn refused(why: impl AsRef<str>) -> Trouble {
        Trouble::Refused(Said::new(why.as_ref()))
    }

    /// For who asked for a block.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            // An errno for who made a system call, and a reason for who reads messages.
            Trouble::Lost(e) => io::Error::new(e.kind(), e.to_string()),
            Trouble::Errno(errno) => io::Error::from_raw_os_error(errno),
            Trouble::Refused(reason) => io::Error::other(reason.0),
            Trouble::Stopped(reason) => io::Error::other(reason.to_string()),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Trouble>;
