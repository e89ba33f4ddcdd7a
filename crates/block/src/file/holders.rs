//! Who has a volume, for the message that refuses it.

use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::sys;

/// The living process that holds a lock on this file, from /proc/locks.
pub(super) fn lock_holder(meta: &Metadata) -> Option<String> {
    let wanted = format!(
        "{:02x}:{:02x}:{}",
        major(meta.dev()),
        minor(meta.dev()),
        meta.ino()
    );
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        // "1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF"; a waiter has "->" in second place.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let pid: u32 = fields.get(4)?.parse().ok()?;
        (*fields.get(1)? != "->" && *fields.get(5)? == wanted && pid > 0).then_some(pid)
    })?;
    if pid == std::process::id() {
        return Some("this process".to_owned());
    }
    // "1234 (name) S …": Z and X are dead, and what they held is about to go.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let dead = matches!(tail.split_whitespace().next(), Some("Z" | "X"));
    (!dead).then(|| format!("process {pid} ({name})"))
}

/// Where the kernel has block device `rdev` mounted.
pub(super) fn mount_of(rdev: u64) -> Option<String> {
    let wanted = format!("{}:{}", major(rdev), minor(rdev));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == wanted).then_some(())?;
        let place = fields.nth(1)?;
        Some(format!(
            "the kernel, mounted on {}",
            place.replace("\\040", " ")
        ))
    })
}

/// A loop device.
pub(super) struct LoopDevice {
    /// Its name, for messages.
    pub(super) device: String,
    /// Where it is mounted.
    pub(super) mounted: Option<String>,
}

/// The loop device whose image is this file.
pub(super) fn loop_device_of(image: &Metadata) -> Option<LoopDevice> {
    let wanted = (image.dev(), image.ino());
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let name = entry.file_name();
        let attached = entry.path().join("loop/backing_file");
        if !name.to_string_lossy().starts_with("loop") || !attached.exists() {
            continue;
        }
        let device = Path::new("/dev").join(&name);
        let numbers = File::open(&device)
            .ok()
            .and_then(|d| sys::loop_backing(&d))
            .or_else(|| {
                // Not allowed to ask the device: ask for the path it was given.
                let meta = fs::metadata(read_path(&attached)?).ok()?;
                Some((meta.dev(), meta.ino()))
            });
        if numbers == Some(wanted) {
            let mounted = fs::metadata(&device).ok().and_then(|m| mount_of(m.rdev()));
            return Some(LoopDevice {
                device: format!("the loop device {}", device.display()),
                mounted,
            });
        }
    }
    None
}

/// Path of the image behind loop device `rdev`.
pub(super) fn backing_path(rdev: u64) -> Option<PathBuf> {
    let dir = format!("/sys/dev/block/{}:{}", major(rdev), minor(rdev));
    // A partition of a loop device has it one level up.
    ["loop/backing_file", "../loop/backing_file"]
        .iter()
        .find_map(|p| read_path(&Path::new(&dir).join(p)))
}

/// A sysfs attribute that holds a path.
fn read_path(attribute: &Path) -> Option<PathBuf> {
    let mut bytes = fs::read(attribute).ok()?;
    while bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Some(std::ffi::OsString::from_vec(bytes).into())
}
