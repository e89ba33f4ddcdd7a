//! The storage below the volume: its kind, and the promises that it makes.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stetfs::low::NbdAddress;

use super::page::Section;

/// `f_type` of file systems that an image may lie in (statfs(2)).
const KINDS: [(i64, &str); 9] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x6969, "NFS"),
    (0x6573_5546, "FUSE"),
    (0x794c_7630, "overlayfs"),
    (0x2fc1_2fc1, "ZFS"),
];

/// The device of a path: the path's own, or the one that its file system lies on.
fn device(path: &Path) -> Option<(PathBuf, String)> {
    let m = fs::metadata(path).ok()?;
    let dev = match m.file_type().is_block_device() {
        true => m.rdev(),
        false => m.dev(),
    };
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let at = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = at.file_name()?.to_string_lossy().into_owned();
    // For a partition, its disk has the queue.
    let queue = [at.join("queue"), at.parent()?.join("queue")];
    let queue = queue.into_iter().find(|queue| queue.is_dir())?;
    Some((queue, name))
}

fn said(queue: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(queue.join(name)).ok()?;
    Some(text.trim().to_owned())
}

/// Describes the storage below `volume`, and adds its faults to `objections`.
pub(super) fn section(volume: &Path, is_device: bool, objections: &mut Vec<String>) -> Section {
    let mut section = Section::new("Below it", "as the kernel reports; nothing was tried");
    if NbdAddress::is_meant(volume) {
        section.row(
            "device",
            "an NBD server; the storage below it cannot be seen from here",
        );
        return section;
    }
    if !is_device {
        let kind = rustix::fs::statfs(volume).map(|s| s.f_type);
        let named = kind.map(|kind| {
            KINDS
                .iter()
                .find(|(n, _)| *n == kind)
                .map(|(_, name)| *name)
        });
        let name = match named {
            Ok(Some(name)) => name.to_owned(),
            Ok(None) => "a file system that this program does not know".into(),
            Err(e) => format!("unknown: {e}"),
        };
        if matches!(name.as_str(), "tmpfs" | "ramfs") {
            objections.push("it is in memory: nothing of it survives a power failure".into());
        }
        if matches!(name.as_str(), "NFS" | "FUSE" | "overlayfs") {
            objections.push(format!(
                "it is on {name}: whether a flush of the image is durable there was not checked"
            ));
        }
        section.row("file system of the image", name);
    }
    match device(volume) {
        None => section.row("device", "none with a queue in the kernel"),
        Some((queue, name)) => {
            section.row("device", name);
            let cache = said(&queue, "write_cache");
            section.row(
                "write cache",
                match cache.as_deref() {
                    Some("write back") => "yes: what is written is durable after a flush".into(),
                    Some("write through") => {
                        "none, as the device reports: every write is durable, and flushes cost \
                         nothing"
                            .into()
                    }
                    other => other.unwrap_or("unknown").to_owned(),
                },
            );
            for (file, what) in [
                ("fua", "durable writes without a flush (FUA)"),
                ("logical_block_size", "bytes of a sector"),
                ("physical_block_size", "bytes that it writes at once"),
                ("rotational", "turns"),
            ] {
                if let Some(value) = said(&queue, file) {
                    let value = match (file, value.as_str()) {
                        ("fua" | "rotational", "0") => "no".into(),
                        ("fua" | "rotational", _) => "yes".into(),
                        _ => value,
                    };
                    section.row(what, value);
                }
            }
        }
    }
    section.row(
        "relied on",
        "after a flush all earlier writes are durable; before it, any of their 512-byte sectors \
         may be lost",
    );
    section
}
