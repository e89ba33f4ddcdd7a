//! The walk over a StetFS log, frame by frame, for people (`stetfs dump journal`).

use stetfs_ondisk::stet::record::FileRecord;

use crate::error::Result;
use crate::ids::Stamp;
use crate::jbd2::{Record, RecordKind};
use crate::policy::{EndReason, RecordLog, Scheme};

/// Visits the frames of each lane from its tail on, then the records of files. The last record of a
/// lane is its end: [`RecordKind::End`], `Damaged` if it is torn, or `Lost`. Blocks have
/// `block_size` bytes.
///
/// # Errors
/// The device's, and those of `visit`.
pub(crate) fn walk(
    scheme: &Scheme,
    block_size: u32,
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let mut horizon = 0;
    for medium in &scheme.media {
        let tail = medium.tail();
        let scan = scheme.codec.scan(&**medium, tail, &mut |_, _| {})?;
        let mut at = tail.at.unwrap_or(medium.first());
        horizon = horizon.max(medium.horizon());
        for tx in scan.txs {
            horizon = horizon.max(tx.floor);
            at = medium.advance(tx.at, tx.blocks);
            visit(Record {
                at: tx.at,
                tid: tx.id.seq,
                lane: Some(tx.id.lane.0),
                kind: RecordKind::Frame {
                    stamp: tx.stamp,
                    blocks: tx.blocks,
                    images: tx.images.iter().map(|(nr, _)| *nr).collect(),
                    revokes: tx.revokes,
                    edges: tx.edges.iter().map(|e| (e.lane.0, e.seq)).collect(),
                },
            })?;
        }
        let end = |kind| Record {
            at,
            tid: scan.next_seq,
            lane: Some(medium.lane().0),
            kind,
        };
        visit(end(match scan.end {
            EndReason::Empty => RecordKind::End("the lane is empty".into()),
            EndReason::NoNext(why) => RecordKind::End(why),
            EndReason::Torn(why) => RecordKind::Damaged(why),
            EndReason::Lost(why) => RecordKind::Lost(why),
        }))?;
    }
    match &scheme.records {
        Some(records) => walk_records(&**records, horizon, block_size.into(), visit),
        None => Ok(()),
    }
}

/// Visits the records of files above the horizon, by stamp.
fn walk_records(
    records: &dyn RecordLog,
    horizon: Stamp,
    block_size: u64,
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let found = records.scan(horizon)?;
    let mut last = (0, 0);
    for logged in found.records {
        let at = logged.at / block_size.max(1);
        last = (at, logged.id.seq);
        visit(Record {
            at,
            tid: logged.id.seq,
            lane: Some(logged.id.lane.0),
            kind: RecordKind::File {
                stamp: logged.stamp,
                blocks: logged.bytes.div_ceil(block_size.max(1)),
                record: FileRecord::decode(&logged.body).ok().map(Box::new),
                pages: logged.pages.iter().map(|(nr, _)| *nr).collect(),
            },
        })?;
    }
    visit(Record {
        at: last.0,
        tid: last.1,
        lane: None,
        kind: match found.lost {
            Some(why) => RecordKind::Lost(why),
            None => RecordKind::End(format!(
                "no more records of files; {} are superseded",
                found.superseded
            )),
        },
    })
}
