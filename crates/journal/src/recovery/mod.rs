//! Recovery: the newest valid image of each block, that with the highest stamp, is written home
//! once.
//!
//! Until its last step, which empties the log, recovery changes only home locations, and it chooses
//! the same images every time: it can be interrupted anywhere and run again.

mod home;
mod report;

use std::collections::{BTreeMap, HashMap};

use stetfs_block::BlockDevice;
use stetfs_ondisk::jbd2::fast_commit::{End, FastCommit};

use crate::canary::Canary;
use crate::edges::{Dropped, dropped, front, valid_fronts};
use crate::error::{Result, lost};
use crate::ids::{BlockNr, CommitPoint, Lane, Stamp, TxId};
use crate::policy::{
    EndReason, LogTail, LoggedRecord, Medium, RecordLog, Scan, ScannedTx, Scheme, set_tails,
};
use crate::scan::scan;
use home::{Chosen, write_home};
pub use report::{Adapt, CannotBe, RecoveryOptions, RecoveryReport};

/// The most that [`JournalConfig::memory`](crate::JournalConfig::memory) should be, in bytes. A
/// recovery accepts a log of images of that size, however well they are packed.
pub const MOST_MEMORY: u64 = 512 << 20;
/// The most bytes that are written home, unless the log itself is larger. A packed log can claim to
/// hold any number.
const HOME: u64 = 2 * MOST_MEMORY;

/// The result of a recovery, with the work that it leaves to the file system.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The report of what was found and done.
    pub report: RecoveryReport,
    /// Records of files to be applied, by stamp. The log still holds them.
    pub records: Vec<LoggedRecord>,
    /// Fast commits to be applied, in order. The log still holds them.
    pub fast_commits: Vec<FastCommit>,
    /// The file-record horizon.
    pub horizon: Stamp,
    /// The highest stamp in the log.
    pub last_stamp: Stamp,
}

/// Recovers the volume: replays and empties the log. `progress` gets (done, of) in log blocks and
/// images.
///
/// # Errors
/// The device's; `Corrupt` if a committed image does not match its checksum or is for a block
/// outside the volume of `blocks` blocks, unless the log is to be salvaged. The log then stays as
/// it is.
pub fn recover(
    scheme: &Scheme,
    device: &dyn BlockDevice,
    blocks: u64,
    how: RecoveryOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Recovery> {
    let scans = scan(scheme, progress)?;
    replay(scheme, scans, None, device, blocks, how, progress)
}

/// Replays scanned transactions. If there are `fast` commits to be applied, the tail is only moved
/// behind the transactions: the fast commits stay in the log.
pub(crate) fn replay(
    scheme: &Scheme,
    mut scans: Vec<Scan>,
    fast: Option<(Vec<FastCommit>, End)>,
    device: &dyn BlockDevice,
    blocks: u64,
    how: RecoveryOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Recovery> {
    let canary = how.canary;
    let mut report = RecoveryReport::default();
    for scan in &scans {
        if let EndReason::Lost(why) = &scan.end {
            report.damaged(how, why.clone())?;
        }
    }
    check_edges(&scans, how, &mut report)?;
    let (mut fronts, dropped) = fronts(&scans);
    for dropped in &dropped {
        tracing::info!("not replayed: {dropped}");
    }
    report.dropped = dropped;
    if canary.ignore_edges {
        let last = |scan: &Scan| scan.txs.last().map_or(0, |tx| tx.id.seq);
        fronts.extend((0..).map(Lane).zip(scans.iter().map(last)));
    }
    let mut chosen = choose(&mut scans, &fronts, canary, &mut report)?;
    for nr in chosen.split_off(&blocks).into_keys() {
        report.damaged(
            how,
            format!("an image for block {nr}, which is outside the volume ({blocks} blocks)"),
        )?;
    }
    let block_size = block_size(scheme)?;
    report.blocks = chosen.len() as u64;
    check_homes(scheme, report.blocks, block_size)?;
    let mut recovery = Recovery::default();
    if let Some((commits, end)) = fast {
        if let End::Lost(why) = end {
            report.damaged(how, why)?;
        }
        report.fast_commits = commits.len() as u64;
        recovery.fast_commits = commits;
    }
    recovery.note_stamps(scheme, &scans, &fronts)?;
    if let Some(records) = &scheme.records {
        recovery.take_records(&**records, &scans, how, &mut report)?;
    }
    recovery.last_stamp = recovery.last_stamp.max(recovery.horizon);
    let images: Vec<(BlockNr, Chosen)> = chosen.into_iter().collect();
    write_home(
        scheme,
        device,
        images,
        block_size,
        how,
        &mut report,
        progress,
    )?;
    if how.dry_run {
        recovery.report = report;
        return Ok(recovery);
    }
    if !canary.no_barrier && !canary.replay_volatile {
        device.flush()?;
    }
    let tails = new_tails(scheme, &scans, &fronts, !recovery.fast_commits.is_empty())?;
    set_tails(tails.into_iter(), recovery.horizon, !canary.no_barrier)?;
    recovery.report = report;
    Ok(recovery)
}

/// Refuses a log that claims more images than a log of its size can hold.
fn check_homes(scheme: &Scheme, home: u64, block_size: u64) -> Result<()> {
    let log: u64 = scheme.media.iter().map(|medium| medium.capacity()).sum();
    if home > log.max(HOME / block_size) {
        let mib = (home * block_size) >> 20;
        return Err(lost(format!(
            "the log ({log} blocks) claims images of {home} blocks ({mib} MiB), more than it can \
             hold"
        ))
        .into());
    }
    Ok(())
}

/// The new tails, once all images are home, of the logs that were not marked empty. If fast commits
/// are still to be applied, the tails are behind the transactions.
fn new_tails<'s>(
    scheme: &'s Scheme,
    scans: &[Scan],
    fronts: &Fronts,
    has_fast_commits: bool,
) -> Result<Vec<(&'s dyn Medium, LogTail)>> {
    let live = scheme.media.iter().zip(scans).zip(0..);
    let live = live.filter(|((medium, _), _)| medium.tail().at.is_some());
    let tails = live.map(|((medium, scan), lane)| {
        let left = match scan.end {
            EndReason::Empty => 0,
            // The most transactions that the log can hold: complete ones may follow the damage.
            EndReason::Lost(_) => medium.capacity(),
            _ => 1,
        };
        // One sequence is left out: blocks of a torn transaction with the next number may still be
        // in the log, and must not complete a new one.
        let seq = scan.next_seq.max(front(fronts, Lane(lane))?) + left;
        let tail = match has_fast_commits {
            false => LogTail { seq, at: None },
            true => behind(&**medium, scan),
        };
        Ok((&**medium, tail))
    });
    tails.collect()
}

impl Recovery {
    /// Notes the horizon and the newest stamp of the valid transactions.
    fn note_stamps(&mut self, scheme: &Scheme, scans: &[Scan], fronts: &Fronts) -> Result<()> {
        for (scan, lane) in scans.iter().zip(0..) {
            let front = front(fronts, Lane(lane))?;
            for tx in scan.txs.iter().filter(|tx| tx.id.seq <= front) {
                self.horizon = self.horizon.max(tx.floor);
                self.last_stamp = self.last_stamp.max(tx.stamp);
            }
        }
        for medium in &scheme.media {
            self.horizon = self.horizon.max(medium.horizon());
        }
        Ok(())
    }

    /// Takes the records of files above the horizon, and checks that transactions they state to be
    /// durable are there.
    fn take_records(
        &mut self,
        records: &dyn RecordLog,
        scans: &[Scan],
        how: RecoveryOptions,
        report: &mut RecoveryReport,
    ) -> Result<()> {
        let horizon = match how.canary.ignore_horizon {
            true => 0,
            false => self.horizon,
        };
        let found = records.scan(horizon)?;
        if let Some(why) = found.lost {
            report.damaged(how, why)?;
        }
        for (scan, lane) in scans.iter().zip(0..) {
            let last = scan
                .txs
                .last()
                .map_or(scan.next_seq.saturating_sub(1), |t| t.id.seq);
            let durable = found.durable.get(&lane).copied().unwrap_or(0);
            if last < durable {
                report.damaged(how, format!(
                    "transaction {durable} of lane {lane} was committed (a file's record says so), \
                     but the log ends after transaction {last}"
                ))?;
            }
        }
        report.records = found.records.len() as u64;
        report.records_superseded = found.superseded;
        self.records = found.records;
        self.last_stamp = self.last_stamp.max(found.last);
        Ok(())
    }
}

/// The newest valid transaction of each lane.
type Fronts = HashMap<Lane, u64>;

/// The verdict of a recovery on a log's transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// For each valid transaction the number of its images that are written home: those that no
    /// later one replaces or revokes.
    pub home: BTreeMap<TxId, u64>,
    /// Durable transactions that are not valid, and what each lacks.
    pub dropped: Vec<Dropped>,
}

/// The verdict of a recovery on the transactions of these lanes; damage is left out.
pub(crate) fn judge(mut scans: Vec<Scan>) -> Result<Verdict> {
    let (fronts, dropped) = fronts(&scans);
    let none = Canary::default();
    let chosen = choose(&mut scans, &fronts, none, &mut RecoveryReport::default())?;
    let mut home = BTreeMap::new();
    for (scan, lane) in scans.iter().zip(0..) {
        let front = front(&fronts, Lane(lane))?;
        let valid = scan.txs.iter().filter(|tx| tx.id.seq <= front);
        home.extend(valid.map(|tx| (tx.id, 0)));
    }
    for image in chosen.values() {
        *home.entry(image.tx).or_default() += 1;
    }
    Ok(Verdict { home, dropped })
}

/// The size of an image, in bytes.
fn block_size(scheme: &Scheme) -> Result<u64> {
    let medium = scheme.media.first();
    medium.map_or(Ok(1), |medium| scheme.codec.image_bytes(&**medium))
}

/// The tail behind the transactions of a scan, where the next one is or would be.
fn behind(medium: &dyn Medium, scan: &Scan) -> LogTail {
    let last = scan.txs.last();
    let at = last.map(|tx| medium.advance(tx.at, tx.blocks));
    LogTail {
        seq: scan.next_seq,
        at: at.or(medium.tail().at),
    }
}

/// The valid front of each lane, and the transactions that are not valid.
fn fronts(scans: &[Scan]) -> (Fronts, Vec<Dropped>) {
    let lanes = || (0..).map(Lane).zip(scans);
    let durable: HashMap<Lane, Vec<(u64, CommitPoint)>> = lanes()
        .map(|(lane, scan)| {
            (
                lane,
                scan.txs
                    .iter()
                    .map(|t| (t.id.seq, t.edges.clone()))
                    .collect(),
            )
        })
        .collect();
    // A transaction that has left the log was valid: edges to it hold.
    let valid = lanes()
        .map(|(lane, scan)| {
            let oldest = scan.txs.first().map_or(scan.next_seq, |t| t.id.seq);
            (lane, oldest.saturating_sub(1))
        })
        .collect();
    let fronts = valid_fronts(&valid, &durable);
    let dropped = dropped(&fronts, &durable);
    (fronts, dropped)
}

/// Checks that every edge leads to a lane of this log: nothing is known of any other.
fn check_edges(scans: &[Scan], how: RecoveryOptions, report: &mut RecoveryReport) -> Result<()> {
    for tx in scans.iter().flat_map(|scan| &scan.txs) {
        let is_none = |edge: &TxId| usize::from(edge.lane.0) >= scans.len();
        if let Some(edge) = tx.edges.iter().find(is_none) {
            report.damaged(
                how,
                format!(
                    "transaction {} of lane {} depends on lane {}, but the log has {} lanes",
                    tx.id.seq,
                    tx.id.lane.0,
                    edge.lane.0,
                    scans.len()
                ),
            )?;
        }
    }
    Ok(())
}

/// The image of each block that is written home. The images are moved out of the scans, so that
/// they are in memory only once.
fn choose(
    scans: &mut [Scan],
    fronts: &HashMap<Lane, u64>,
    canary: Canary,
    report: &mut RecoveryReport,
) -> Result<BTreeMap<BlockNr, Chosen>> {
    let mut chosen: BTreeMap<BlockNr, Chosen> = BTreeMap::new();
    let mut revokes: Vec<(Stamp, &[BlockNr])> = Vec::new();
    for (lane, scan) in (0..).map(Lane).zip(scans) {
        let front = front(fronts, lane)?;
        let count = scan.txs.len();
        let valid = scan.txs.iter_mut().filter(|t| t.id.seq <= front);
        let valid: Vec<&mut ScannedTx> = valid.collect();
        report.transactions += valid.len() as u64;
        report.invalid += (count - valid.len()) as u64;
        if let (Some(first), Some(last)) = (valid.first(), valid.last()) {
            report.range.push((lane, first.id.seq, last.id.seq));
        }
        report.ends.push(scan.end.clone());
        for tx in valid {
            let ScannedTx {
                id,
                stamp,
                images,
                revokes: revoked,
                ..
            } = tx;
            revokes.push((*stamp, revoked.as_slice()));
            for (nr, image) in std::mem::take(images) {
                let new = Chosen {
                    tx: *id,
                    stamp: *stamp,
                    image,
                };
                match chosen.get_mut(&nr) {
                    None => {
                        chosen.insert(nr, new);
                    }
                    Some(old) => {
                        report.superseded += 1;
                        if (new.stamp >= old.stamp) != canary.oldest_wins {
                            *old = new;
                        }
                    }
                }
            }
        }
    }
    if !canary.ignore_revokes {
        let before = chosen.len();
        // jbd2's rule: a revoke voids images of its own and of older transactions. There may be far
        // more revokes than images, so the loop looks images up by revoke.
        for (stamp, blocks) in revokes {
            for nr in blocks {
                let void = |c: &Chosen| c.stamp <= stamp || canary.revoke_newer;
                if chosen.get(nr).is_some_and(void) {
                    chosen.remove(nr);
                }
            }
        }
        report.revoked = (before - chosen.len()) as u64;
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::JournalError;

    /// A transaction that depends on a lane that its log does not have cannot have been written. It
    /// is reported, and not silently left out.
    #[test]
    fn an_edge_to_a_lane_that_is_not_there_is_damage() {
        let scan = |edge: u16| {
            let mut edges = CommitPoint::none();
            edges.add(TxId {
                lane: Lane(edge),
                seq: 4,
            });
            Scan {
                txs: vec![crate::policy::ScannedTx {
                    id: TxId {
                        lane: Lane(0),
                        seq: 1,
                    },
                    stamp: 1,
                    floor: 0,
                    edges,
                    images: Vec::new(),
                    revokes: Vec::new(),
                    at: 1,
                    blocks: 1,
                }],
                end: EndReason::Empty,
                next_seq: 2,
            }
        };
        let check = |edge, salvage| {
            let mut report = RecoveryReport::default();
            let how = RecoveryOptions {
                salvage,
                ..RecoveryOptions::default()
            };
            (check_edges(&[scan(edge)], how, &mut report), report.damage)
        };
        assert!(check(0, false).0.is_ok());
        assert!(matches!(check(1, false).0, Err(JournalError::Format(_))));
        let (checked, damage) = check(1, true);
        assert!(checked.is_ok() && damage.len() == 1, "{damage:?}");
    }
}
