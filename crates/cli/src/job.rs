//! The job of a server: the volume, the directory and the options.

use std::path::PathBuf;

use stetfs::low::FirstLook;

use crate::failure::Result;
use crate::options::{self, Options};

/// A mount to be served.
#[derive(Clone)]
pub(crate) struct Job {
    /// The volume; an absolute path.
    pub(crate) source: PathBuf,
    /// The directory; an absolute path.
    pub(crate) dir: PathBuf,
    /// The options as they were given.
    pub(crate) text: String,
    /// The options, read; after the first look with those that the volume stores itself.
    pub(crate) options: Options,
    /// The result of the first look at the source.
    pub(crate) look: FirstLook,
    /// No process waits for the end of the server: SIGHUP is ignored.
    pub(crate) daemon: bool,
    /// Read-only because the source cannot be written.
    pub(crate) protected: bool,
}

impl Job {
    /// The job after the first look at the volume.
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
