//! Obstacles in the volume: a small journal, small inodes, missing features.

use stetfs::low::VolumeInfo;

use super::hint::Hint;

/// The smallest journal with which writers seldom wait for checkpoints, MiB, for volumes of
/// [`LARGE`].
const JOURNAL: u64 = 64;
/// The size of a volume that has room for such a journal, bytes.
const LARGE: u64 = 2 << 30;
/// The smallest inode with room for nanoseconds and birth times, bytes.
const INODE: u16 = 256;

/// The hints for a volume before it is mounted. The commands are for an unmounted, clean volume.
pub(super) fn hints(info: &VolumeInfo) -> Vec<Hint> {
    let name = &info.volume;
    let mut hints = Vec::new();
    if let Some(why) = &info.refused {
        hints.push(Hint::new(format!(
            "it cannot be mounted for writing: {why}"
        )));
    }
    if info.recovery.needed {
        hints.push(
            Hint::new("it was not unmounted cleanly: recover it first")
                .by(format!("stetfs recover {name}")),
        );
    }
    if info.error_count > 0 {
        let what = format!(
            "{} errors were found since the last check",
            info.error_count
        );
        hints.push(Hint::new(what).by(format!("e2fsck -f {name}")));
    }
    hints.extend(journal(info));
    if info.block_size < 4096 {
        hints.push(Hint::new(format!(
            "its blocks have {} bytes: a page of memory takes several, and only blocks of 4096 \
             bytes can be shared; this can only be changed on a new volume (mke2fs -b 4096)",
            info.block_size
        )));
    }
    if info.inode_size < INODE {
        hints.push(Hint::new(format!(
            "its inodes have {} bytes: times have whole seconds, and end in 2038; this can only be \
             changed on a new volume (mke2fs -I {INODE})",
            info.inode_size
        )));
    }
    let has = |feature: &str| info.features.iter().any(|f| f == feature);
    if !has("metadata_csum") {
        let what = "its metadata has no checksums: damage is found late";
        hints.push(Hint::new(what).by(format!("tune2fs -O metadata_csum {name}")));
    }
    if !has("dir_index") {
        let what = "its directories have no index: large ones are searched from the beginning";
        hints
            .push(Hint::new(what).by(format!("tune2fs -O dir_index {name} && e2fsck -fDy {name}")));
    }
    hints
}

fn journal(info: &VolumeInfo) -> Option<Hint> {
    let name = &info.volume;
    let size = info.blocks * u64::from(info.block_size);
    match &info.journal {
        None => {
            let what = "it has no journal: what is synced is durable, but a crash can leave it inconsistent";
            Some(Hint::new(what).by(format!("tune2fs -j {name}")))
        }
        Some(journal) if journal.size < JOURNAL << 20 && size >= LARGE => {
            let what = format!(
                "its journal has {} MiB: with journaled data writers wait for checkpoints",
                journal.size >> 20
            );
            let command = format!("tune2fs -O ^has_journal {name} && tune2fs -J size=256 {name}");
            Some(Hint::new(what).by(command))
        }
        Some(_) => None,
    }
}
