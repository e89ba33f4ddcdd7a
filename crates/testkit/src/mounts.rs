//! The mount points of this process, and unmounting.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, unmount};

/// All mount points in this process's mount namespace that lie below `dir` (not `dir` itself),
/// innermost first.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mount_points()
        .into_iter()
        .filter(|m| m != dir && m.starts_with(dir))
        .collect();
    found.reverse();
    found
}

/// True if something is mounted exactly at `dir`.
pub fn is_mounted(dir: &Path) -> bool {
    mount_points().iter().any(|m| m == dir)
}

fn mount_points() -> Vec<PathBuf> {
    let Ok(info) = std::fs::read("/proc/self/mountinfo") else {
        return Vec::new();
    };
    info.split(|&b| b == b'\n')
        .filter_map(|line| line.split(|&b| b == b' ').nth(4))
        .map(|field| PathBuf::from(std::ffi::OsString::from_vec(unescape(field))))
        .collect()
}

/// Undoes the `\040` escapes of mountinfo.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| first == b'\\');
        let value = code.and_then(|c| u8::from_str_radix(std::str::from_utf8(c).ok()?, 8).ok());
        if let Some(byte) = value {
            out.push(byte);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

/// Unmounts `dir`, retrying for up to `timeout` while it is busy.
pub fn umount(dir: &Path, timeout: Duration) -> Result<()> {
    let until = Instant::now() + timeout;
    loop {
        match unmount(dir, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(e).with_context(|| format!("umount {}", dir.display())),
        }
    }
}

/// Lazily unmounts everything mounted at `dir`; for cleaning up after a failure.
pub fn detach(dir: &Path) {
    while is_mounted(dir) {
        if unmount(dir, UnmountFlags::DETACH).is_err() {
            break;
        }
    }
}

/// A mount that is taken down when this value is dropped, also on failure.
pub struct TakenDown<'a>(pub &'a Path);

impl Drop for TakenDown<'_> {
    fn drop(&mut self) {
        detach(self.0);
    }
}

/// [`detach`] for everything mounted below `dir`.
pub fn detach_below(dir: &Path) {
    for mount in mounts_below(dir) {
        detach(&mount);
    }
}
