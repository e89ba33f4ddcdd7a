//! The verdict on each request: whether it passes, is lost or fails.

use std::io;

use super::plan::{Action, Fault};
use crate::{BlockError, Gather, Op, SECTOR, SharePair, Write};

/// The armed faults, and the counts of requests so far.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) faults: Vec<Fault>,
    /// Number of writes until the power fails; `None` if it does not.
    pub(super) power: Option<u64>,
    pub(super) seen: Seen,
    pub(super) hits: u64,
}

/// Counts of requests, with any outcome. In a batch each counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) flushes: u64,
    pub(super) shares: u64,
}

/// The outcome of a request.
pub(super) enum Verdict {
    Pass,
    Lost,
    Failed(i32),
    /// These parts of a write arrive (altered or not), then the error if any.
    Parts(Vec<(u64, Vec<u8>)>, Option<i32>),
}

impl State {
    /// The fault that hits this request.
    pub(super) fn hit(&mut self, op: Op, offset: u64, len: u64) -> Option<&mut Fault> {
        self.hit_any(op, &[(offset, len)])
    }

    /// The fault that hits this request, which touches these places: offset and length of each.
    fn hit_any(&mut self, op: Op, places: &[(u64, u64)]) -> Option<&mut Fault> {
        let fault = self
            .faults
            .iter_mut()
            .find_map(|f| f.hits(op, places).then_some(f))?;
        self.hits += 1;
        Some(fault)
    }

    pub(super) fn dead(&self) -> bool {
        self.power == Some(0)
    }

    /// The outcome of a flush or discard.
    pub(super) fn judge(&mut self, op: Op, offset: u64, len: u64) -> Verdict {
        if self.dead() {
            return Verdict::Failed(libc::EIO);
        }
        match self.hit(op, offset, len).map(|f| &f.action) {
            Some(Action::Fail(errno)) => Verdict::Failed(*errno),
            Some(Action::Lose) => Verdict::Lost,
            // Neither has data to tear or corrupt.
            Some(Action::Tear { .. } | Action::Corrupt(_)) | None => Verdict::Pass,
        }
    }

    pub(super) fn judge_write(&mut self, write: &Write<'_>) -> Verdict {
        self.seen.writes += 1;
        if self.dead() {
            return Verdict::Failed(libc::EIO);
        }
        if let Some(left) = &mut self.power {
            *left -= 1;
        }
        let (offset, len) = (write.offset, write.len());
        match self.hit(Op::Write, offset, len).map(|f| &mut f.action) {
            None => Verdict::Pass,
            Some(Action::Fail(errno)) => Verdict::Failed(*errno),
            Some(Action::Lose) => Verdict::Lost,
            Some(Action::Corrupt(change)) => {
                let mut data = write.data.to_vec();
                change(offset, &mut data);
                Verdict::Parts(vec![(offset, data)], None)
            }
            Some(Action::Tear { arrives, errno }) => {
                let mut parts = sectors(offset, &write.data);
                parts.retain(|(at, data)| arrives(*at, data.len() as u64));
                Verdict::Parts(parts, *errno)
            }
        }
    }

    /// The outcome of a SHARE batch: the pairs that arrive, then the error if any.
    pub(super) fn judge_share(
        &mut self,
        pairs: &[SharePair],
        unit: u32,
    ) -> (Vec<SharePair>, Option<i32>) {
        self.seen.shares += 1;
        if self.dead() {
            return (Vec::new(), Some(libc::EIO));
        }
        if let Some(left) = &mut self.power {
            *left -= 1;
        }
        let places: Vec<_> = pairs.iter().map(|p| (p.dst, p.len)).collect();
        match self.hit_any(Op::Share, &places).map(|f| &mut f.action) {
            Some(Action::Fail(errno)) => (Vec::new(), Some(*errno)),
            Some(Action::Lose) => (Vec::new(), None),
            Some(Action::Tear { arrives, errno }) => {
                let units = pairs.iter().flat_map(|pair| pair.units(unit));
                let len = u64::from(unit);
                let units = units.map(|(dst, src)| SharePair { dst, src, len });
                (units.filter(|u| arrives(u.dst, len)).collect(), *errno)
            }
            // A SHARE batch has no data to corrupt.
            Some(Action::Corrupt(_)) | None => (pairs.to_vec(), None),
        }
    }
}

/// Splits a write at multiples of 512.
fn sectors(offset: u64, data: &Gather<'_>) -> Vec<(u64, Vec<u8>)> {
    let bytes = data.to_vec();
    let mut rest = bytes.as_slice();
    let mut at = offset;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let room = u64::from(SECTOR) - at % u64::from(SECTOR);
        let (part, others) = rest.split_at(rest.len().min(room as usize));
        parts.push((at, part.to_vec()));
        at += part.len() as u64;
        rest = others;
    }
    parts
}

/// The error of a request that failed with `errno`.
pub(crate) fn refused(op: Op, offset: u64, len: u64, errno: i32) -> BlockError {
    BlockError::io(op, offset, len, io::Error::from_raw_os_error(errno))
}
