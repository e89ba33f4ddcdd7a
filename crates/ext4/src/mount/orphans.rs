//! Orphans that an earlier mount left: the next mount finds them before the volume is open, and
//! deletes or truncates them afterwards.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use stetfs_ondisk::ext4::orphan_file;
use stetfs_ondisk::ext4::superblock::{State, Superblock};

use super::early::{Early, Held};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{OrphanFile, OrphanPlace, Orphans, OrphansFinished};
use crate::types::Ino;
use stetfs_ondisk::num::count32;

/// The most damaged orphans; further orphans are left to e2fsck. Otherwise a malicious volume could
/// keep the mount busy without end.
const DAMAGED: u64 = 100;

/// The orphans that were found.
pub(crate) struct Found {
    /// The orphans, in the order in which they are processed.
    pub(super) inodes: Vec<(Ino, OrphanPlace)>,
    /// The list continues, but leads to an inode that cannot be an orphan.
    broken: Option<FsError>,
}

impl Found {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.broken.is_none()
    }
}

/// Reads the orphan list and the orphan file of a recovered volume.
pub(super) fn find(early: &Early<'_>, sb: &Superblock) -> Result<(Orphans, Found)> {
    let (list, broken) = read_list(early, sb);
    let mut inodes = list.iter().map(|ino| (*ino, OrphanPlace::List)).collect();
    let file = read_file(early, sb, &mut inodes)?;
    Ok((Orphans::new(&list, file), Found { inodes, broken }))
}

/// Follows the list as far as it is valid.
fn read_list(early: &Early<'_>, sb: &Superblock) -> (Vec<Ino>, Option<FsError>) {
    let mut list = Vec::new();
    let (mut seen, mut held) = (HashSet::new(), Held::default());
    let mut at = sb.last_orphan.get();
    while at != 0 {
        let ordinary = at >= early.layout.first_inode && at <= early.layout.inodes_count;
        let inode = match early.one_of_many(at, &mut held) {
            Ok(inode) if ordinary && seen.insert(at) => inode,
            _ => {
                let detail = format!("it leads to inode {at}, which is not an orphan");
                return (list, Some(FsError::corrupt("orphan list", 0, detail)));
            }
        };
        list.push(at);
        at = inode.dtime();
    }
    (list, None)
}

fn read_file(
    early: &Early<'_>,
    sb: &Superblock,
    found: &mut Vec<(Ino, OrphanPlace)>,
) -> Result<Option<(OrphanFile, Vec<u32>)>> {
    use stetfs_ondisk::ext4::features::Compat;
    let ino = sb.orphan_file_inum.get();
    if !sb.compat().contains(Compat::ORPHAN_FILE) || ino == 0 {
        return Ok(None);
    }
    let inode = early.inode(ino)?;
    // The same limit as in Linux: no volume needs more, and every block is read now.
    if inode.size() / u64::from(early.layout.block_size) > u64::from(orphan_file::MAX_BLOCKS) {
        return Err(FsError::Unsupported(format!(
            "an orphan file of {} bytes",
            inode.size()
        )));
    }
    let seed = inode.csum_seed(ino, &early.checksums);
    let blocks: Vec<u64> = early
        .runs(ino, &inode)?
        .into_iter()
        .flat_map(|(start, len)| start..start.saturating_add(len))
        .collect();
    let mut free = Vec::with_capacity(blocks.len());
    for (index, nr) in blocks.iter().enumerate() {
        let block = early.block(*nr)?;
        orphan_file::check(&block)?;
        if !orphan_file::verify_checksum(seed, *nr, &block) {
            return Err(FsError::corrupt(
                "orphan file",
                *nr,
                "checksum does not match",
            ));
        }
        let before = found.len();
        let place = |(slot, ino)| {
            (
                ino,
                OrphanPlace::File {
                    block: count32(index),
                    slot: count32(slot),
                },
            )
        };
        found.extend(orphan_file::used(&block).map(place));
        let empty = orphan_file::slots_per_block(block.len()) - (found.len() - before);
        let empty = count32(empty);
        free.push(empty);
    }
    Ok(Some((OrphanFile { blocks, seed }, free)))
}

impl Fs {
    /// Finishes the deletions and truncations that an earlier mount left.
    pub(super) fn work_off_orphans(&self, found: Found) -> Result<()> {
        if found.is_empty() || self.vol.opts.canary.leave_orphans {
            return Ok(());
        }
        if self.vol.sb.current()?.state().contains(State::ERROR_FS) {
            tracing::warn!(
                "the volume has errors; {} orphans are left to e2fsck",
                found.inodes.len()
            );
            self.inodes.orphans().finished.lock().left += found.inodes.len() as u64;
            return Ok(());
        }
        let mut finished = OrphansFinished::default();
        let all = found.inodes.len();
        for (i, (ino, place)) in found.inodes.into_iter().enumerate() {
            if finished.left >= DAMAGED {
                let more = all - i;
                tracing::error!("{DAMAGED} orphans are damaged; {more} more are left to e2fsck");
                finished.left += more as u64;
                break;
            }
            match self.work_off(ino, place) {
                Ok(true) => finished.deleted += 1,
                Ok(false) => finished.truncated += 1,
                Err(e @ FsError::Journal(_)) => return Err(e),
                Err(e) => {
                    self.vol.report(&e);
                    finished.left += 1;
                }
            }
        }
        if let Some(e) = found.broken {
            self.vol.report(&e);
            finished.left += 1;
        }
        self.reap_values();
        tracing::info!(?finished, "orphans of an earlier mount");
        *self.inodes.orphans().finished.lock() += finished;
        Ok(())
    }

    /// The report of the journal replay when the volume was opened.
    pub fn recovered(&self) -> Option<&stetfs_journal::RecoveryReport> {
        self.recovered.as_ref()
    }

    /// The report on the orphans of an earlier mount, from when the volume was opened.
    pub fn orphans_finished(&self) -> OrphansFinished {
        *self.inodes.orphans().finished.lock()
    }

    fn work_off(&self, ino: Ino, place: OrphanPlace) -> Result<bool> {
        let inode = match self.inodes.iget_special(ino) {
            Err(FsError::Errno(_)) => {
                return Err(FsError::corrupt(
                    "orphan",
                    0,
                    format!("inode {ino} is to be deleted, but is free already"),
                ));
            }
            other => other?,
        };
        inode.body.write().orphan = Some(place);
        inode.orphaned.store(true, Ordering::Release);
        self.finish_orphan(&inode)
    }
}
