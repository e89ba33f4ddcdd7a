//! SHARE on a device that `stetfs device serve` serves, by its ioctls (`include/stetfs-share.h`).

use std::fs::File;

use super::{FileDevice, sys};
use crate::{BlockDevice, BlockError, Op, Result, Share, ShareLimits, SharePair, check_share};

/// Pairs of one call at most: what the number of an ioctl has room for.
const PAIRS_MAX: u64 = 682;
/// The only flag of the limits.
const ATOMIC: u32 = 1;

/// What the file's server can share, if it is one that can.
pub(super) fn limits(file: &File, read_only: bool) -> Option<ShareLimits> {
    let said = sys::share_limits(file).filter(|said| !read_only && said.unit > 0)?;
    Some(ShareLimits {
        unit: said.unit,
        pairs: said.units.min(PAIRS_MAX),
        references: said.references,
        atomic: said.flags & ATOMIC != 0,
    })
}

impl Share for FileDevice {
    fn limits(&self) -> ShareLimits {
        self.share.unwrap_or(ShareLimits {
            unit: 1,
            pairs: 0,
            references: 0,
            atomic: false,
        })
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        let limits = Share::limits(self);
        check_share(pairs, &limits, self.size())?;
        // Whole units, so there are no more pairs than those.
        let pairs: Vec<SharePair> = pairs.iter().filter(|p| p.len > 0).copied().collect();
        if let Some(first) = pairs.first() {
            sys::share(&self.file, &pairs).map_err(|e| match e.raw_os_error() {
                Some(libc::EMLINK) => BlockError::ShareReferences {
                    offset: first.src,
                    limit: limits.references,
                },
                _ => BlockError::io(Op::Share, first.dst, pairs.iter().map(|p| p.len).sum(), e),
            })?;
        }
        self.counters.share(&pairs);
        Ok(())
    }
}
