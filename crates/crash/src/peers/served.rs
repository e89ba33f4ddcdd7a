//! A recording block device that is served as the single file `disk` of a FUSE mount. A loop device
//! or `stetfs mount` can use this file; each of their writes and flushes passes through the
//! recorder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use stetfs::low::MemDevice;
use stetfs_block::{Log, Recorder};
use stetfs_fuse::{DeviceFs, MountOptions, Service};
use stetfs_testkit::Scratch;

/// A recording device in memory, and the mount that serves it.
#[derive(Debug)]
pub struct Served {
    device: Arc<Recorder<MemDevice>>,
    service: Service,
    _scratch: Scratch,
}

impl Served {
    /// Records what `work` does to a copy of `image`; `work` gets the device's file and its
    /// recorder. The mount is removed even if `work` fails; no process may have the file open then.
    ///
    /// # Errors
    /// That of `work`; else the process is not root, there is no FUSE, or a process has the file
    /// open.
    pub fn record(
        image: &MemDevice,
        work: impl FnOnce(&Path, &Recorder<MemDevice>) -> Result<()>,
    ) -> Result<Log> {
        let served = Served::start(image)?;
        let device = Arc::clone(&served.device);
        let done = work(&served.path(), &device);
        done.and(served.stop())?;
        Ok(device.take_log())
    }

    fn start(image: &MemDevice) -> Result<Served> {
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

    fn path(&self) -> PathBuf {
        self.service.dir().join("disk")
    }

    fn stop(self) -> Result<()> {
        let dir = self.service.dir().to_owned();
        // A loop device closes its file a moment after it was detached.
        stetfs_testkit::mount::umount(&dir, std::time::Duration::from_secs(10))
    }
}
