//! SHARE within a file: by the ioctls of a device that `stetfs device serve` serves
//! (`include/stetfs-share.h`), else by the file system that holds the image (FICLONERANGE, on XFS
//! and btrfs).

use std::fs::File;
use std::io;
use std::sync::OnceLock;

use super::{fragments::Fragments, sys};
use crate::{BlockError, Op, Result, ShareLimits, SharePair};

/// Maximum number of pairs per call to a served device: the size field of an ioctl number has room
/// for no more.
const PAIRS_MAX: u64 = 682;
/// The only flag of the limits.
const ATOMIC: u32 = 1;
/// Maximum number of units in a batch that the host shares, with one call for each pair: it bounds
/// the time for which other requests wait for the image.
const CLONES_MAX: u64 = 1024;
/// Limits of a file that shares nothing.
pub(super) const NONE: ShareLimits = ShareLimits {
    unit: 1,
    pairs: 0,
    references: 0,
    atomic: false,
};

/// The sharer of an image's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBy {
    /// Description for messages.
    pub who: &'static str,
    /// Bytes of a unit.
    pub unit: u32,
}

#[derive(Debug)]
enum By {
    /// The program that serves the file as a device.
    Server,
    /// The file system that holds the image.
    Host(Fragments),
}

/// The means of sharing a file's content.
#[derive(Debug)]
pub(super) struct Sharing {
    by: By,
    limits: ShareLimits,
    /// The reason why sharing has ended.
    stopped: OnceLock<String>,
}

impl Sharing {
    /// Finds the means of sharing for a file that is open for writing.
    ///
    /// # Errors
    /// The reason why there is none.
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
        let unit = clone_unit(file).map_err(|e| {
            format!("the file system that holds the image cannot share blocks ({e})")
        })?;
        Ok(Sharing {
            by: By::Host(
                Fragments::of(file).map_err(|e| format!("its extents cannot be counted: {e}"))?,
            ),
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
    /// The reason why sharing has ended.
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
            tracing::info!("blocks are copied from now on instead of shared: {why}");
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
                    // The pairs shared before the refusal have the content that the caller's copy
                    // writes.
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

/// Whether the file system reports that it does not share, in general or these ranges.
fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EXDEV | libc::EINVAL | libc::ENOTTY | libc::ENOSYS)
    )
}

/// The unit of sharing of the file system in bytes, if it shares. The probe shares a unit with
/// itself, which changes nothing: a file system that can share answers that source and destination
/// overlap, any other that it cannot share.
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
