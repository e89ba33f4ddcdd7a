//! Any [`FileSystem`] served on a directory by threads of this process: for mounts that are no
//! volumes.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::api::ops::FileSystem;
use crate::mount::mounted::Mounted;
use crate::mount::mountinfo;
use crate::mount::{self, MountError, MountOptions, Unmount, What};
use crate::session::Session;
use crate::transport::awake::Awake;
use crate::transport::ring::Rings;
use crate::wire::negotiate::SessionOptions;

/// A file system being served; dropping it unmounts.
#[derive(Debug)]
pub struct Service {
    mounted: Mounted,
    /// The session, until it is joined.
    session: Option<JoinHandle<std::io::Result<()>>>,
}

impl Service {
    /// Mounts `fs` on `dir` (root only) and serves it with `threads` threads.
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted then. [`MountError::Gone`]: it was unmounted at
    /// once.
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
            // No file of such a mount is cached.
            maps_past_cache: true,
            ..SessionOptions::default()
        };
        let session = Session::start(fs, fuse, options, Rings::default()).map_err(take_down)?;
        let entry = mountinfo::mount_at(&dir).map_err(take_down)?;
        let entry = entry.ok_or(MountError::Gone)?;
        let session = std::thread::Builder::new()
            .name("fuse-service".into())
            .spawn(move || session.run(threads.max(1), &Awake::off()))
            .map_err(take_down)?;
        Ok(Service {
            mounted: Mounted::here(entry),
            session: Some(session),
        })
    }

    /// The directory of the mount.
    pub fn dir(&self) -> &Path {
        self.mounted.dir()
    }

    /// The mount, for unmounting from another thread. Programs that still use it are served to the
    /// end.
    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// Waits until it is unmounted, by whatever program, the last user is gone and the last request
    /// is answered.
    ///
    /// # Errors
    /// The connection broke.
    pub fn wait(mut self) -> Result<(), MountError> {
        match self.session.take().map(JoinHandle::join) {
            Some(Ok(result)) => result.map_err(MountError::Session),
            Some(Err(_)) => {
                let why = std::io::Error::other("the thread that serves it panicked");
                Err(MountError::Session(why))
            }
            // `Drop` takes it, and does not wait.
            None => Ok(()),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Programs that still use it are served to the end; there is no wait.
        if self.mounted.is_there() {
            let _ = mount::unmount(self.dir(), Unmount::Lazy);
        }
    }
}
