//! A block device as the one file `disk` of a FUSE mount: what a loop device, or a `stetfs mount`,
//! can be put on, with every write and flush passing through a recorder.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use stetfs::low::MemDevice;
use stetfs_block::Recorder;
use stetfs_fuse::{DeviceFs, MountOptions, Service};
use stetfs_testkit::Scratch;

/// A recording device in memory, served.
#[derive(Debug)]
pub struct Served {
    device: Arc<Recorder<MemDevice>>,
    service: Service,
    _scratch: Scratch,
}

impl Served {
    /// Serves a copy of `image`.
    ///
    /// # Errors
    /// Not root, or no FUSE.
    pub fn start(image: &MemDevice) -> Result<Served> {
        let scratch = Scratch::new("served")?;
        let dir = scratch.path().join("dev");
        std::fs::create_dir(&dir)?;
        let device = Arc::new(Recorder::new(image.fork()));
        let fs = Arc::new(DeviceFs::new(Arc::clone(&device)));
        let service = Service::start(fs, &dir, &MountOptions::new("crash-lab"), 4)
            .context("serving the recorded device; this needs root and /dev/fuse")?;
        Ok(Served {
            device,
            service,
            _scratch: scratch,
        })
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.service.dir().join("disk")
    }

    /// The recorder.
    pub fn device(&self) -> &Arc<Recorder<MemDevice>> {
        &self.device
    }

    /// Takes it down; nobody may have the file open.
    ///
    /// # Errors
    /// Somebody has.
    pub fn stop(self) -> Result<()> {
        let dir = self.service.dir().to_owned();
        // A loop device lets go of its file a moment after it was detached.
        stetfs_testkit::mount::umount(&dir, std::time::Duration::from_secs(10))
    }
}
