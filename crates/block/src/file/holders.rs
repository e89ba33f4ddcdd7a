//! Who has a volume, for the message that refuses it.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::sys;
use crate::{Span, namespaces};

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
    let mounts = fs::read("/proc/thread-self/mountinfo").ok()?;
    let place = namespaces::mounted_on(&mounts, &number(rdev))?;
    Some(format!("the kernel, mounted on {}", place.display()))
}

fn number(rdev: u64) -> String {
    format!("{}:{}", major(rdev), minor(rdev))
}

/// Who keeps block device `rdev` at `path` in use without a mount that this process sees.
pub(super) fn kept_by(path: &Path, rdev: u64) -> Option<String> {
    let viewer = namespaces::viewers(&number(rdev)).into_iter().next();
    viewer.map(|v| v.to_string()).or_else(|| {
        let opener = namespaces::opener(path)?;
        Some(format!("{opener} has it open; end that"))
    })
}

/// A loop device.
pub(super) struct LoopDevice {
    /// `/dev/loopN`.
    pub(super) device: PathBuf,
    /// Its number.
    rdev: u64,
    /// Where it is mounted.
    pub(super) mounted: Option<String>,
}

impl LoopDevice {
    /// For messages, with who keeps it where that is not seen.
    pub(super) fn named_with_keeper(&self) -> String {
        match kept_by(&self.device, self.rdev) {
            Some(keeper) => format!("{self} ({keeper})"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for LoopDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the loop device {}", self.device.display())
    }
}

/// The loop device whose image is this file, or shows something of this part of it.
pub(super) fn loop_device_of(image: &Metadata, part: Option<Span>) -> Option<LoopDevice> {
    let wanted = (image.dev(), image.ino());
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let name = entry.file_name();
        let attached = entry.path().join("loop/backing_file");
        if !name.to_string_lossy().starts_with("loop") || !attached.exists() {
            continue;
        }
        let device = Path::new("/dev").join(&name);
        let backing = File::open(&device)
            .ok()
            .and_then(|d| sys::loop_backing(&d))
            .or_else(|| {
                // Not allowed to ask the device: ask for the path it was given.
                let meta = fs::metadata(read_path(&attached)?).ok()?;
                let number = |name| {
                    let text = fs::read_to_string(attached.with_file_name(name)).ok()?;
                    text.trim().parse().ok()
                };
                Some(sys::LoopBacking {
                    numbers: (meta.dev(), meta.ino()),
                    span: sys::loop_span(number("offset")?, number("sizelimit")?),
                })
            });
        let shows_it = |b: sys::LoopBacking| {
            b.numbers == wanted && part.is_none_or(|part| part.overlaps(&b.span))
        };
        if backing.is_some_and(shows_it) {
            let rdev = fs::metadata(&device).ok()?.rdev();
            return Some(LoopDevice {
                device,
                rdev,
                mounted: mount_of(rdev),
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
