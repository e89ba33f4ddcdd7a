//! The size of an image that is fitted to its content.

use std::path::Path;

use stetfs::low::{FormatError, FormatOptions, FormatTarget, Formatted};

use super::need::Need;
use crate::failure::{Code, Failure, Result};
use crate::files::args::Free;

/// Sizes are multiples of this, bytes: a sector of a disk.
const STEP: u64 = 4096;
/// Most sizes that are tried. Each is larger than the one before it by what was missing.
const TRIES: usize = 200;
/// Bytes of free room for each free inode, as mke2fs has it for volumes of usual sizes.
const PER_INODE: u64 = 16 << 10;
/// Fewest inodes that stay free.
const INODES_LEAST: u64 = 16;
/// Inodes that every volume has, with lost+found.
const INODES_OF_VOLUME: u64 = 11;

/// A size, and the options that a volume of it is made with.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    pub(super) bytes: u64,
    pub(super) options: FormatOptions,
}

/// The smallest volume that holds `need` and has `free` room beside. `path` is a file that does not
/// exist: nothing is written.
///
/// # Errors
/// Options that fit no size; a content that is too large for any volume.
pub(super) fn fit(path: &Path, need: Need, free: Free, options: &FormatOptions) -> Result<Fitted> {
    let mut options = options.clone();
    if options.inodes.is_none() && options.inode_ratio.is_none() {
        let more = match free {
            Free::Percent(percent) => of_percent(need.inodes, percent),
            Free::Bytes(bytes) => bytes / PER_INODE,
        };
        let inodes = INODES_OF_VOLUME + need.inodes + more.max(INODES_LEAST);
        options.inodes = Some(u32::try_from(inodes).unwrap_or(u32::MAX));
    }
    let block = u64::from(options.block_size.unwrap_or(4096));
    let mut bytes = (need.blocks * block).next_multiple_of(STEP) + (64 << 10);
    let mut last = None;
    for _ in 0..TRIES {
        let target = FormatTarget {
            size: Some(bytes),
            dry_run: true,
            ..FormatTarget::default()
        };
        let missing = match stetfs::low::format(path, &target, &options) {
            Ok(planned) => missing(&planned, need, free),
            Err(e @ FormatError::Size(_)) => {
                last = Some(e);
                bytes / 16 + (64 << 10)
            }
            Err(e) => return Err(Failure::of_format(path, &e)),
        };
        if missing == 0 {
            return Ok(Fitted { bytes, options });
        }
        bytes = bytes.saturating_add(missing).next_multiple_of(STEP);
    }
    match last {
        Some(e) => Err(Failure::of_format(path, &e)),
        None => {
            let message = "no size was found for which the volume holds its content";
            Err(Failure::new(Code::Usage, message).hint("give one: --size 4G"))
        }
    }
}

/// Bytes that a planned volume lacks for `need` and the room that stays free.
fn missing(planned: &Formatted, need: Need, free: Free) -> u64 {
    let block = u64::from(planned.block_size);
    // Linux keeps a part back for maps that grow (`s_resv_clusters`), and df(1) does not show it.
    let per_cluster = planned.cluster_size / block;
    let kept = (planned.blocks / per_cluster / 50).min(4096) * per_cluster;
    let usable = planned
        .free_blocks
        .saturating_sub(planned.reserved_blocks + kept);
    let stays = match free {
        Free::Percent(percent) => of_percent(planned.free_blocks, percent),
        Free::Bytes(bytes) => bytes.div_ceil(block),
    };
    let blocks = (need.blocks + stays).saturating_sub(usable);
    // A larger volume has more inodes if the user gave the bytes for each.
    let inodes = need.inodes.saturating_sub(planned.free_inodes.into());
    (blocks * block).max(inodes * PER_INODE)
}

/// A part of `n`, in hundredths of a percent, rounded up.
fn of_percent(n: u64, hundredths: u32) -> u64 {
    let part = (u128::from(n) * u128::from(hundredths)).div_ceil(10_000);
    u64::try_from(part).unwrap_or(u64::MAX)
}
