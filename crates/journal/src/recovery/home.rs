//! The second half of a recovery: images are read from the log, checked, and written home.

use stetfs_block::BlockDevice;
use stetfs_cache::PageRef;
use stetfs_ondisk::num::to_usize;

use super::report::{RecoveryOptions, RecoveryReport};
use crate::error::no_lane;
use crate::error::{JournalError, Result};
use crate::ids::{BlockNr, Stamp, TxId};
use crate::policy::{HomeImage, ImageRef, Scheme, Standing};

/// Bytes of images read and written at once. If there are more, they are taken in the order of the
/// log, so that no chunk of it is unpacked for several batches.
const BATCH: u64 = 32 << 20;

/// The newest valid image of a block.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    pub(super) tx: TxId,
    pub(super) stamp: Stamp,
    pub(super) image: ImageRef,
}

/// Brings these images home, which are sorted by block; in a dry run they are only read and
/// checked. More than one batch is read twice, because a damaged image has to be found before the
/// first one goes home. Images that the device shares are read only once (share.S5).
pub(super) fn write_home(
    scheme: &Scheme,
    device: &dyn BlockDevice,
    mut images: Vec<(BlockNr, Chosen)>,
    block: u64,
    how: RecoveryOptions,
    report: &mut RecoveryReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let count = images.len() as u64;
    let per_batch = to_usize(BATCH / block).max(1);
    let standing = |(nr, chosen): &(BlockNr, Chosen)| Standing {
        nr: *nr,
        place: chosen.image.place,
    };
    let all: Vec<Standing> = images.iter().map(standing).collect();
    let in_memory = images.len() <= per_batch;
    if !in_memory {
        images.sort_unstable_by_key(|(_, c)| (c.tx, c.image.at, c.image.flags, c.image.check));
    }
    if how.dry_run || !(in_memory || how.salvage) {
        for batch in images.chunks(per_batch) {
            load(scheme, batch, how, report)?;
        }
    }
    if how.dry_run {
        return Ok(());
    }
    report.blocks = 0;
    if !(in_memory || how.salvage) {
        let home = scheme.home.send_standing(device, block, &all)?;
        images.retain(|(nr, _)| !home.contains(nr));
        report.shared += home.len() as u64;
        report.blocks += home.len() as u64;
    }
    for batch in images.chunks_mut(per_batch) {
        progress(report.blocks, count);
        batch.sort_unstable_by_key(|(nr, _)| *nr);
        let mut images = load(scheme, batch, how, report)?;
        if let Some(adapt) = how.adapt {
            for image in &mut images {
                if let Some(page) = adapt(device, image.nr, &image.page)? {
                    (image.page, image.place) = (page, None);
                }
            }
        }
        report.shared += scheme.home.send(device, &images)?.shared;
        report.blocks += images.len() as u64;
    }
    Ok(())
}

/// The images that can be read, in the order of `refs`; none for each of the others. All that lie
/// in one place of the log are read, and unpacked, together.
fn salvaged(
    refs: &[ImageRef],
    read: &dyn Fn(&[ImageRef]) -> Result<Vec<PageRef>>,
) -> Vec<Option<PageRef>> {
    let mut order: Vec<usize> = (0..refs.len()).collect();
    let place = |i: &usize| refs.get(*i).map(|image| (image.at, image.flags));
    order.sort_by_key(place);
    let mut pages = vec![None; refs.len()];
    for group in order.chunk_by(|a, b| place(a) == place(b)) {
        let images: Vec<ImageRef> = group.iter().filter_map(|i| refs.get(*i).copied()).collect();
        let Ok(found) = read(&images) else {
            continue;
        };
        for (i, page) in group.iter().zip(found) {
            if let Some(to) = pages.get_mut(*i) {
                *to = Some(page);
            }
        }
    }
    pages
}

/// Reads and checks the images of a batch, those of one transaction together.
fn load(
    scheme: &Scheme,
    batch: &[(BlockNr, Chosen)],
    how: RecoveryOptions,
    report: &mut RecoveryReport,
) -> Result<Vec<HomeImage>> {
    let mut order: Vec<usize> = (0..batch.len()).collect();
    let key = |i: &usize| batch.get(*i).map(|(_, c)| (c.tx, c.image.at));
    order.sort_unstable_by_key(key);
    let mut out: Vec<(usize, HomeImage)> = Vec::with_capacity(batch.len());
    for run in order.chunk_by(|a, b| key(a).map(|k| k.0) == key(b).map(|k| k.0)) {
        let entries: Vec<(usize, &(BlockNr, Chosen))> = run
            .iter()
            .filter_map(|i| batch.get(*i).map(|e| (*i, e)))
            .collect();
        let Some((_, (_, first))) = entries.first() else {
            continue;
        };
        let lane = first.tx.lane;
        let medium = scheme.media.get(usize::from(lane.0));
        let medium = medium.ok_or_else(|| no_lane(lane))?;
        let refs: Vec<ImageRef> = entries.iter().map(|(_, (_, c))| c.image).collect();
        let read = |refs: &[ImageRef]| scheme.codec.images(&**medium, first.tx, refs);
        let pages: Vec<Option<PageRef>> = match read(&refs) {
            Err(e @ JournalError::Format(_)) if how.salvage => {
                report.damaged(how, e.to_string())?;
                salvaged(&refs, &read)
            }
            read => read?.into_iter().map(Some).collect(),
        };
        for ((i, (nr, c)), page) in entries.iter().zip(pages) {
            let Some(page) = page else {
                report.damage.push(format!("the image of block {nr}"));
                continue;
            };
            if let Some(why) = how.cannot_be.and_then(|wrong| wrong(*nr, &page)) {
                report.damaged(how, format!("the image of block {nr}: {why}"))?;
                continue;
            }
            out.push((
                *i,
                HomeImage {
                    nr: *nr,
                    page,
                    place: c.image.place,
                },
            ));
        }
    }
    out.sort_unstable_by_key(|(i, _)| *i);
    Ok(out.into_iter().map(|(_, image)| image).collect())
}
