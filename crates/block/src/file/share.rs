//! SHARE of what a file holds: by the ioctls of a device that `stetfs device serve` serves
//! (`include/stetfs-share.h`), else by the file system that holds the image (FICLONERANGE, on XFS
//! and btrfs).

use std::fs::File;
use std::io;
use std::sync::OnceLock;

use super::{fragments::Fragments, sys};
use crate::{BlockError, Op, Result, ShareLimits, SharePair};

/// Pairs of one call at most to a served device: what the number of an ioctl has room for.
const PAIRS_MAX: u64 = 682;
/// The only flag of the limits.
const ATOMIC: u32 = 1;
/// Units of a batch that the file system below shares, one call each pair: no longer than others
/// wait for the image.
const CLONES_MAX: u64 = 1024;
/// Shares nothing.
pub(super) const NONE: ShareLimits = ShareLimits {
    unit: 1,
    pairs: 0,
    references: 0,
    atomic: false,
};

/// Who shares blocks of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBy {
    /// For messages.
    pub who: &'static str,
    /// Bytes that are shared as a whole.
    pub unit: u32,
}

#[derive(Debug)]
enum By {
    /// The program that serves the file as a device.
    Server,
    /// The file system that holds the image.
    Host(Fragments),
}

/// How a file's content is shared.
#[derive(Debug)]
pub(super) struct Sharing {
    by: By,
    limits: ShareLimits,
    /// Why nothing is shared any more.
    stopped: OnceLock<String>,
}

impl Sharing {
    /// What can be shared of a file that is open for writing.
    ///
    /// # Errors
    /// Why nothing can.
    pub(super) fn of(file: &File) -> std::result::Result<Sharing, String> {
        if let Some(said) = sys::share_limits(file).filter(|said| said.unit > 0) {
            return Ok(Sharing {
                by: By::Server,
                limits: ShareLimits {
                    unit: said.unit,
                    pairs: said.units.min(PAIRS_MAX),
                    references: said.references,
                    atomic: said.flags & ATOMIC != 0,
                },
                stopped: OnceLock::new(),
            });
        }
        let unit = clone_unit(file)
            .map_err(|e| format!("the file system that holds the image shares no blocks ({e})"))?;
        Ok(Sharing {
            by: By::Host(Fragments::of(file).map_err(|e| format!("its size is unknown: {e}"))?),
            limits: ShareLimits {
                unit,
                pairs: CLONES_MAX,
                references: u64::MAX,
                atomic: false,
            },
            stopped: OnceLock::new(),
        })
    }

    /// # Errors
    /// Why nothing is shared any more.
    pub(super) fn state(&self, file: &File) -> std::result::Result<SharedBy, String> {
        self.look_at_fragments(file);
        let who = match (self.stopped.get(), &self.by) {
            (Some(why), _) => return Err(why.clone()),
            (None, By::Server) => "the program that serves the device (SHARE)",
            (None, By::Host(_)) => "the file system that holds the image (FICLONERANGE)",
        };
        let unit = self.limits.unit;
        Ok(SharedBy { who, unit })
    }

    fn stop(&self, why: String) {
        if self.stopped.set(why).is_ok()
            && let Some(why) = self.stopped.get()
        {
            tracing::info!("nothing is shared any more: {why}");
        }
    }

    fn look_at_fragments(&self, file: &File) {
        if let By::Host(fragments) = &self.by
            && let Some(why) = fragments.too_many(file)
        {
            self.stop(why);
        }
    }

    pub(super) fn limits(&self) -> ShareLimits {
        match self.stopped.get() {
            None => self.limits,
            Some(_) => ShareLimits {
                pairs: 0,
                ..self.limits
            },
        }
    }

    /// Shares pairs of whole units, none of them empty.
    pub(super) fn share(&self, file: &File, pairs: &[SharePair]) -> Result<()> {
        let By::Host(fragments) = &self.by else {
            let fail = |e| self.served(pairs, e);
            return sys::share(file, pairs).map_err(fail);
        };
        let units = || pairs.iter().map(|p| p.len).sum::<u64>() / u64::from(self.limits.unit);
        let refused = || BlockError::ShareBatch {
            units: units(),
            limit: 0,
        };
        self.look_at_fragments(file);
        if self.stopped.get().is_some() {
            return Err(refused());
        }
        for pair in pairs {
            match sys::clone_range(file, pair) {
                Ok(()) => fragments.add(1),
                Err(e) if is_refusal(&e) => {
                    self.stop(format!("the file system that holds the image refused: {e}"));
                    // What was shared of the batch is what a copy brings there.
                    return Err(refused());
                }
                Err(e) => return Err(BlockError::io(Op::Share, pair.dst, pair.len, e)),
            }
        }
        Ok(())
    }

    fn served(&self, pairs: &[SharePair], e: io::Error) -> BlockError {
        let (dst, src) = pairs.first().map_or((0, 0), |first| (first.dst, first.src));
        match e.raw_os_error() {
            Some(libc::EMLINK) => BlockError::ShareReferences {
                offset: src,
                limit: self.limits.references,
            },
            _ => BlockError::io(Op::Share, dst, pairs.iter().map(|p| p.len).sum(), e),
        }
    }
}

/// Whether the file system says that it does not share at all, or not these.
fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EXDEV | libc::EINVAL | libc::ENOTTY | libc::ENOSYS)
    )
}

/// Bytes that the file system shares as a whole, if it shares: asked to share a unit to itself,
/// which changes nothing, one that can says that source and destination overlap, and one that
/// cannot that it cannot.
fn clone_unit(file: &File) -> io::Result<u32> {
    let unit = u32::try_from(rustix::fs::fstatfs(file)?.f_bsize)
        .ok()
        .filter(|unit| unit.is_power_of_two())
        .ok_or(io::ErrorKind::Unsupported)?;
    let itself = SharePair {
        dst: 0,
        src: 0,
        len: unit.into(),
    };
    match sys::clone_range(file, &itself) {
        Err(e) if e.raw_os_error() != Some(libc::EINVAL) => Err(e),
        _ => Ok(unit),
    }
}
