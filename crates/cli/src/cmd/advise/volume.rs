//! What of a volume stands in the way.

use stetfs::low::VolumeInfo;

use super::hint::Hint;

/// A smaller journal makes writers wait for checkpoints, MiB, on volumes of [`LARGE`].
const JOURNAL: u64 = 64;
/// Bytes of a volume that has room for such a journal.
const LARGE: u64 = 2 << 30;
/// Bytes of an inode that has room for nanoseconds and birth times.
const INODE: u16 = 256;

/// What to do with it before it is mounted. The commands are for an unmounted, clean volume.
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
            "its blocks have {} bytes: a page of memory is several of them, and only blocks of 4096 can be shared; \
             only mke2fs -b 4096 changes that, on a new volume",
            info.block_size
        )));
    }
    if info.inode_size < INODE {
        hints.push(Hint::new(format!(
            "its inodes have {} bytes: times have whole seconds, and end in 2038; \
             only mke2fs -I {INODE} changes that, on a new volume",
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
