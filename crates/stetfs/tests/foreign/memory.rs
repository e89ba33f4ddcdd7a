//! File systems in memory, for images, so that tests do not wait for a disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use stetfs_testkit::{Image, Scratch, cmd, mount};

/// A file system in memory; taken down when dropped.
pub struct Memory {
    dir: PathBuf,
    _scratch: Scratch,
}

impl Memory {
    /// With space for `mib` MiB.
    pub fn new(mib: u32) -> Memory {
        let scratch = Scratch::new("memory").unwrap();
        let dir = scratch.path().join("fs");
        fs::create_dir(&dir).unwrap();
        let mut tmpfs = Command::new("mount");
        tmpfs.args(["-t", "tmpfs", "-o", &format!("size={mib}M"), "stetfs-test"]);
        cmd::run(tmpfs.arg(&dir)).unwrap();
        Memory {
            dir,
            _scratch: scratch,
        }
    }

    /// The directory where it is mounted.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Copies an image into it, sparsely.
    pub fn copy(&self, image: &Image) -> PathBuf {
        let to = self.dir.join("image");
        let mut copy = Command::new("cp");
        copy.arg("--sparse=always").arg(image.path());
        cmd::run(copy.arg(&to)).unwrap();
        to
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if mount::umount(&self.dir, Duration::from_secs(5)).is_err() {
            mount::detach(&self.dir);
        }
    }
}
