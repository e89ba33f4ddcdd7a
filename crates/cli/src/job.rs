//! What a server is told to do.

use std::path::PathBuf;

use stetfs::low::FirstLook;

use crate::failure::Result;
use crate::options::{self, Options};

/// What to serve, where.
#[derive(Clone)]
pub(crate) struct Job {
    /// Absolute.
    pub(crate) source: PathBuf,
    /// Absolute.
    pub(crate) dir: PathBuf,
    /// Its options as they were said.
    pub(crate) text: String,
    /// Their meaning; once the volume was looked at, with those that it has of its own.
    pub(crate) options: Options,
    /// The source, as it says to be opened.
    pub(crate) look: FirstLook,
    /// Nobody waits for its end: SIGHUP means nothing.
    pub(crate) daemon: bool,
    /// Read-only because the source cannot be written.
    pub(crate) protected: bool,
}

impl Job {
    /// The job when the volume was looked at.
    ///
    /// # Errors
    /// As [`options::of_mount`].
    pub(crate) fn looked_at(&self) -> Result<Job> {
        let (mut options, look) = options::of_mount(&self.source, &self.text)?;
        options.log_file.clone_from(&self.options.log_file);
        Ok(Job {
            options,
            look,
            ..self.clone()
        })
    }
}
