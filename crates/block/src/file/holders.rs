//! Finds the holder of a volume, for the message that refuses to open it.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::sys;
use crate::{Holder, Span, namespaces};

/// A lock that could not be taken.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// flock(2).
    Flock,
    /// An open-file-description lock on a part of the file; `None` means all of it.
    Range(Option<Span>),
    /// Any use of the file.
    Any,
}

/// A line of /proc/locks, or of /proc/PID/fdinfo behind "lock:".
struct Lock<'a> {
    kind: &'a str,
    /// The process that took it; unknown for open-file-description locks.
    pid: Option<u32>,
    file: &'a str,
    /// The first and the last byte.
    range: (u64, u64),
}

impl<'a> Lock<'a> {
    /// "1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF"; a waiter has "->" in second place.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_whitespace().skip(1);
        let kind = fields.next().filter(|kind| *kind != "->")?;
        let pid = fields.nth(2)?.parse().ok().filter(|pid| *pid > 0);
        let file = fields.next()?;
        let start = fields.next()?.parse().ok()?;
        let end = fields.next()?.parse().unwrap_or(u64::MAX);
        Some(Lock {
            kind,
            pid,
            file,
            range: (start, end),
        })
    }

    fn is_in_the_way_of(&self, wanted: Wanted) -> bool {
        match wanted {
            Wanted::Any => true,
            Wanted::Flock => self.kind == "FLOCK",
            Wanted::Range(part) => {
                let (start, end) = self.range;
                self.kind != "FLOCK"
                    && part.is_none_or(|part| start < part.end() && part.start <= end)
            }
        }
    }
}

/// The living process whose lock on `file` conflicts with `wanted`. The locks of `file` itself do
/// not count.
pub(super) fn lock_holder(file: &File, meta: &Metadata, wanted: Wanted) -> Option<Holder> {
    let name = format!(
        "{:02x}:{:02x}:{}",
        major(meta.dev()),
        minor(meta.dev()),
        meta.ino()
    );
    let table = fs::read_to_string("/proc/locks").ok()?;
    let locks: Vec<Lock<'_>> = table
        .lines()
        .filter_map(Lock::parse)
        .filter(|lock| lock.file == name)
        .collect();
    let own = std::process::id();
    let others = || locks.iter().filter(|lock| lock.pid != Some(own));
    // A process with a known lock comes first, then one with a flock: a process that locks a part
    // has a flock as well, but its other lock may not be visible.
    let known = others().find(|l| l.pid.is_some() && l.is_in_the_way_of(wanted));
    let pid = known.and_then(|l| l.pid).or_else(|| {
        let having = || others().filter_map(|l| l.pid);
        let shown = having().find(|pid| has_lock(*pid, None, &name, wanted) == Some(true));
        shown.or_else(|| having().find(|pid| has_lock(*pid, None, &name, wanted).is_none()))
    });
    match pid {
        Some(pid) => living(pid),
        None if has_lock(own, Some(file), &name, wanted) == Some(true) => {
            Some("this process".to_owned().into())
        }
        None => None,
    }
}

/// Whether process `pid` has a lock on the file called `name` that conflicts with `wanted`, on
/// another descriptor than `but`. `None` if that is not visible.
fn has_lock(pid: u32, but: Option<&File>, name: &str, wanted: Wanted) -> Option<bool> {
    let but = but.map(|file| file.as_raw_fd().to_string());
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    let mut others = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str() != but.as_deref());
    Some(others.any(|entry| {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        text.lines()
            .filter_map(|line| Lock::parse(line.strip_prefix("lock:")?))
            .any(|lock| lock.file == name && lock.is_in_the_way_of(wanted))
    }))
}

/// The process `pid`, unless it is dead.
fn living(pid: u32) -> Option<Holder> {
    // The format is "1234 (name) S …". Processes in the states Z and X are dead, and their locks
    // are about to go.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let dead = matches!(tail.split_whitespace().next(), Some("Z" | "X"));
    (!dead).then(|| Holder {
        name: format!("process {pid} ({name})"),
        pid: Some(pid),
    })
}

/// The mount of block device `rdev`, with the mount point as the user sees it.
pub(super) fn mount_of(rdev: u64) -> Option<String> {
    let dev = number(rdev);
    let place = namespaces::own_tables()
        .iter()
        .find_map(|table| namespaces::mounted_on(table, &dev))?;
    Some(format!("the kernel, mounted on {}", place.display()))
}

fn number(rdev: u64) -> String {
    format!("{}:{}", major(rdev), minor(rdev))
}

/// The process that keeps block device `rdev` at `path` in use without a mount that this process
/// sees.
pub(super) fn kept_by(path: &Path, rdev: u64) -> Option<String> {
    let viewer = namespaces::viewers(&number(rdev)).into_iter().next();
    viewer.map(|v| v.to_string()).or_else(|| {
        let opener = namespaces::opener(path)?;
        Some(format!("{opener} has it open; end it"))
    })
}

/// A loop device.
pub(super) struct LoopDevice {
    /// `/dev/loopN`.
    pub(super) device: PathBuf,
    /// The device number.
    rdev: u64,
    /// The mount point, if it is mounted.
    pub(super) mounted: Option<String>,
}

impl LoopDevice {
    /// Name for messages, with the process that keeps it in use if there is no visible mount.
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

/// The loop device that shows this image file or a part of `part`.
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
                // Without permission to query the device: its recorded path is used.
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

/// The path of the image behind loop device `rdev`.
pub(super) fn backing_path(rdev: u64) -> Option<PathBuf> {
    let dir = format!("/sys/dev/block/{}:{}", major(rdev), minor(rdev));
    // For a partition of a loop device the attribute is one level up.
    ["loop/backing_file", "../loop/backing_file"]
        .iter()
        .find_map(|p| read_path(&Path::new(&dir).join(p)))
}

/// Reads a sysfs attribute that holds a path.
fn read_path(attribute: &Path) -> Option<PathBuf> {
    let mut bytes = fs::read(attribute).ok()?;
    while bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_lock_is_in_the_way_where_it_overlaps() {
        let flock = Lock::parse("1: FLOCK  ADVISORY  READ 12 fe:00:56 0 EOF").unwrap();
        assert_eq!((flock.pid, flock.file), (Some(12), "fe:00:56"));
        assert!(flock.is_in_the_way_of(Wanted::Flock));
        assert!(!flock.is_in_the_way_of(Wanted::Range(None)));
        let part = Lock::parse("\t2: OFDLCK ADVISORY  WRITE -1 fe:00:56 512 1023").unwrap();
        assert_eq!(part.pid, None);
        assert!(!part.is_in_the_way_of(Wanted::Flock));
        for (start, len, is) in [
            (0, 512, false),
            (0, 513, true),
            (1023, 1, true),
            (1024, 9, false),
        ] {
            let wanted = Wanted::Range(Some(Span { start, len }));
            assert_eq!(part.is_in_the_way_of(wanted), is, "{start}+{len}");
        }
        assert!(Lock::parse("1: -> FLOCK ADVISORY WRITE 12 fe:00:56 0 EOF").is_none());
        assert!(Lock::parse("").is_none());
    }
}
