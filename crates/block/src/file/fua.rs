//! Detects whether a write to an image file with RWF_DSYNC avoids a flush of the disk below.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// ext4 and XFS (`f_type` of statfs(2)): they send O_DIRECT overwrites of written blocks to the
/// disk with FUA, if the disk has it. On a block device the kernel follows RWF_DSYNC with a flush
/// whatever the disk can do.
const FILE_SYSTEMS: [i64; 2] = [0xef53, 0x5846_5342];

/// Whether RWF_DSYNC avoids a flush on this file, if that is open with O_DIRECT.
pub(super) fn is_cheap(file: &File) -> bool {
    let kind = rustix::fs::fstatfs(file).map(|fs| fs.f_type);
    let disk = rustix::fs::fstat(file).map(|stat| stat.st_dev);
    match (kind, disk) {
        (Ok(kind), Ok(disk)) if FILE_SYSTEMS.contains(&kind) => {
            let (major, minor) = (rustix::fs::major(disk), rustix::fs::minor(disk));
            disk_has_fua(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
        }
        _ => false,
    }
}

/// Whether a disk, or a partition's disk, has FUA. `device` is its directory in sysfs.
fn disk_has_fua(device: &Path) -> bool {
    let queues = ["queue/fua", "../queue/fua"].map(|queue| device.join(queue));
    let said = queues
        .iter()
        .find_map(|queue| fs::read_to_string(queue).ok());
    said.is_some_and(|said| said.trim() == "1")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_what_its_disk_has() {
        let sys = tempfile::tempdir().unwrap();
        let part = sys.path().join("disk/part");
        fs::create_dir_all(&part).unwrap();
        let disk = sys.path().join("disk");
        assert!(!disk_has_fua(&disk), "it says nothing");
        fs::create_dir(disk.join("queue")).unwrap();
        for (said, has) in [("1\n", true), ("0\n", false)] {
            fs::write(disk.join("queue/fua"), said).unwrap();
            assert_eq!(disk_has_fua(&disk), has);
            assert_eq!(disk_has_fua(&part), has);
        }
    }
}
