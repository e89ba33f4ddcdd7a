//! Any [`FileSystem`] served on a directory by threads of this process: for what is no volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::mount::{self, MountError, MountOptions, Unmount, What};
use crate::ops::FileSystem;
use crate::wire::{Session, SessionOptions};

/// A file system being served; taken down when dropped.
#[derive(Debug)]
pub struct Service {
    dir: PathBuf,
    session: Mutex<Option<JoinHandle<std::io::Result<()>>>>,
}

impl Service {
    /// Mounts `fs` on `dir` (root only) and serves it with `threads` threads.
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted then.
    pub fn start<F: FileSystem>(
        fs: Arc<F>,
        dir: &Path,
        options: &MountOptions,
        threads: usize,
    ) -> Result<Service, MountError> {
        let dir = mount::check_dir(dir)?;
        let fuse = mount::open_fuse()?;
        mount::mount(&fuse, What::Nothing, &dir, options)?;
        let take_down = |e: std::io::Error| {
            let _ = mount::unmount(&dir, Unmount::Lazy);
            MountError::Session(e)
        };
        let options = SessionOptions {
            writeback_cache: false,
            async_dio: false,
            io_uring: false,
        };
        let session = Session::start(fs, fuse, options).map_err(take_down)?;
        let session = std::thread::Builder::new()
            .name("fuse-service".into())
            .spawn(move || session.run(threads.max(1)))
            .map_err(take_down)?;
        Ok(Service {
            dir,
            session: Mutex::new(Some(session)),
        })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes it off its directory. Who still uses it is served to the end.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&self) -> Result<(), MountError> {
        mount::unmount_or_detach(&self.dir)
    }

    /// Waits until it is off its directory, whoever does that, the last user is gone and the last request is answered.
    ///
    /// # Errors
    /// The connection broke.
    pub fn wait(&self) -> Result<(), MountError> {
        let session = self.session.lock().take();
        match session.map(JoinHandle::join) {
            Some(Ok(result)) => result.map_err(MountError::Session),
            _ => Ok(()),
        }
    }

    /// Takes it down, and waits for that.
    ///
    /// # Errors
    /// See [`detach`](Self::detach) and [`wait`](Self::wait).
    pub fn stop(self) -> Result<(), MountError> {
        self.detach()?;
        self.wait()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Who still uses it is served to its end; nothing is waited for.
        if self.session.get_mut().is_some() {
            let _ = mount::unmount(&self.dir, Unmount::Lazy);
        }
    }
}
