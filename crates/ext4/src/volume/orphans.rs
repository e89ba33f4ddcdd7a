//! Orphans that an earlier mount left.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use stetfs_ondisk::ext4::orphan_file;
use stetfs_ondisk::ext4::superblock::{State, Superblock};

use super::early::Early;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{OrphanFile, OrphanPlace, Orphans};
use crate::types::Ino;

/// What was found, in the order it is to be worked off.
pub(super) type Found = Vec<(Ino, OrphanPlace)>;

/// Reads the orphan list and the orphan file of a recovered volume.
pub(super) fn find(early: &Early<'_>, sb: &Superblock) -> Result<(Orphans, Found)> {
    let list = read_list(early, sb);
    let mut found: Found = list.iter().map(|ino| (*ino, OrphanPlace::List)).collect();
    let file = read_file(early, sb, &mut found)?;
    Ok((Orphans::new(&list, file), found))
}

/// Follows the list as far as it makes sense.
fn read_list(early: &Early<'_>, sb: &Superblock) -> Vec<Ino> {
    let mut list = Vec::new();
    let mut seen = HashSet::new();
    let mut at = sb.last_orphan.get();
    while at != 0 {
        let ordinary = at >= early.layout.first_inode && at <= early.layout.inodes_count;
        let inode = match early.inode(at) {
            Ok(inode) if ordinary && seen.insert(at) => inode,
            _ => {
                tracing::warn!(
                    ino = at,
                    "the orphan list leads to a number that is no orphan; the rest is dropped"
                );
                break;
            }
        };
        list.push(at);
        at = inode.dtime();
    }
    list
}

fn read_file(
    early: &Early<'_>,
    sb: &Superblock,
    found: &mut Found,
) -> Result<Option<(OrphanFile, Vec<u32>)>> {
    use stetfs_ondisk::ext4::features::Compat;
    let ino = sb.orphan_file_inum.get();
    if !sb.compat().contains(Compat::ORPHAN_FILE) || ino == 0 {
        return Ok(None);
    }
    let inode = early.inode(ino)?;
    // As in Linux: nobody needs more, and every block is read now.
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
                    block: index as u32,
                    slot: slot as u32,
                },
            )
        };
        found.extend(orphan_file::used(&block).map(place));
        let empty = orphan_file::slots_per_block(block.len()) - (found.len() - before);
        let empty = empty as u32;
        free.push(empty);
    }
    Ok(Some((OrphanFile { blocks, seed }, free)))
}

impl Fs {
    /// Deletes and truncates what an earlier mount left to do.
    pub(super) fn work_off_orphans(&self, found: Found) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        if self.sb.current()?.state().contains(State::ERROR_FS) {
            tracing::warn!(
                "the volume has errors; {} orphans are left to e2fsck",
                found.len()
            );
            return Ok(());
        }
        let (mut deleted, mut truncated) = (0, 0);
        for (ino, place) in found {
            match self.work_off(ino, place) {
                Ok(true) => deleted += 1,
                Ok(false) => truncated += 1,
                Err(e @ FsError::Journal(_)) => return Err(e),
                Err(e) => self.report(&e),
            }
        }
        self.reap_values();
        tracing::info!(deleted, truncated, "orphans of an earlier mount");
        let finished = &self.orphans.finished;
        finished.store(deleted + truncated, Ordering::Relaxed);
        Ok(())
    }

    /// What was replayed of the journal when the volume was opened.
    pub fn recovered(&self) -> Option<&stetfs_journal::RecoveryReport> {
        self.recovered.as_ref()
    }

    /// How many inodes of an earlier mount were deleted or truncated when the volume was opened.
    pub fn orphans_finished(&self) -> u64 {
        self.orphans.finished.load(Ordering::Relaxed)
    }

    fn work_off(&self, ino: Ino, place: OrphanPlace) -> Result<bool> {
        let inode = match self.iget_special(ino) {
            Err(FsError::Errno(_)) => {
                return Err(FsError::corrupt(
                    "orphan",
                    0,
                    format!("inode {ino} is to be deleted but is free"),
                ));
            }
            other => other?,
        };
        inode.body.write().orphan = Some(place);
        inode.orphaned.store(true, Ordering::Release);
        self.finish_orphan(&inode)
    }
}
