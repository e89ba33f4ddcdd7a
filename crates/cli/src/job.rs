//! What a server is told to do.

use std::path::PathBuf;

use crate::options::Options;

/// What to serve, where.
#[derive(Clone)]
pub(crate) struct Job {
    /// Absolute.
    pub(crate) source: PathBuf,
    /// Absolute.
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    /// Nobody waits for its end: SIGHUP means nothing.
    pub(crate) daemon: bool,
    /// Read-only because the source cannot be written.
    pub(crate) protected: bool,
}
