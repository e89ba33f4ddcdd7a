//! Freezing: changes wait, and the device holds the volume as a clean unmount leaves it (ext4's
//! `freeze_fs`).

use std::sync::atomic::Ordering;

use super::shared::Volume;

impl Volume {
    /// Whether changes are held back.
    pub(crate) fn is_frozen(&self) -> bool {
        self.sb.frost.frozen.load(Ordering::Acquire)
    }

    /// Waits until changes are allowed.
    pub(crate) fn pass_frost(&self) {
        self.sb.frost.pass();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs_block::BlockDevice;
    use stetfs_testkit::Mkfs;

    use crate::error::FsError;
    use crate::fs::Fs;
    use crate::testing::{fsck, mkfs};
    use crate::types::{FsOptions, OnError};

    /// Concurrent freezes and thaws: one of each succeeds.
    #[test]
    fn freezes_take_turns() {
        let disk = mkfs(32, &Mkfs::blocks(4096));
        let fs = Fs::open(disk.clone(), FsOptions::default()).unwrap();
        for _ in 0..20 {
            let times = |turn: fn(&Fs) -> bool| {
                std::thread::scope(|scope| {
                    let all: Vec<_> = (0..3).map(|_| scope.spawn(|| turn(&fs))).collect();
                    let done = all.into_iter().map(|thread| thread.join().unwrap());
                    done.filter(|done| *done).count()
                })
            };
            assert_eq!(times(|fs| fs.freeze().is_ok()), 1);
            fsck(&disk);
            assert_eq!(times(|fs| fs.thaw().is_ok()), 1);
        }
        fs.unmount().unwrap();
    }

    /// Errors on a frozen volume are noted in the superblock at the thaw, also errors that make it
    /// read-only.
    #[test]
    fn errors_that_are_found_wait_for_the_thaw() {
        for on_error in [OnError::Continue, OnError::RemountRo] {
            let disk = mkfs(32, &Mkfs::blocks(4096));
            let opts = FsOptions {
                commit_secs: 3600,
                on_error: Some(on_error),
                ..FsOptions::default()
            };
            let fs = Fs::open(disk.clone(), opts).unwrap();
            fs.freeze().unwrap();
            let frozen = disk.to_vec();
            fs.vol
                .report(&FsError::corrupt("a test", 0, "found while frozen"));
            let read_only = on_error == OnError::RemountRo;
            assert_eq!(fs.vol.writable().is_err(), read_only);
            assert!(disk.to_vec() == frozen, "{on_error:?}");
            fsck(&disk);
            fs.thaw().unwrap();
            fs.unmount().unwrap_or_else(|e| assert!(read_only, "{e}"));
            let mut noted = [0; 4];
            disk.read(1024 + 0x194, &mut noted).unwrap();
            assert!(u32::from_le_bytes(noted) > 0, "{on_error:?}");
        }
    }
}
