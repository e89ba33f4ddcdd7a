//! Reading a StetFS log frame by frame, for people (`stetfs dump journal`).

use crate::error::Result;
use crate::jbd2::{Record, RecordKind};
use crate::policy::{EndReason, Scheme};

/// Visits the frames of each lane from its tail on, [`RecordKind::End`] last.
///
/// # Errors
/// The device's.
pub(crate) fn walk(scheme: &Scheme, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
    for medium in &scheme.media {
        let tail = medium.tail();
        let scan = scheme.codec.scan(&**medium, tail, &mut |_, _| {})?;
        let mut at = tail.at.unwrap_or(medium.first());
        for tx in scan.txs {
            at = medium.advance(tx.at, tx.blocks);
            visit(Record {
                at: tx.at,
                tid: tx.id.seq,
                kind: RecordKind::Frame {
                    lane: tx.id.lane.0,
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
            kind,
        };
        visit(end(match scan.end {
            EndReason::Empty => RecordKind::End("the lane is empty".into()),
            EndReason::NoNext(why) => RecordKind::End(why),
            EndReason::Torn(why) => RecordKind::Damaged(why),
            EndReason::Lost(why) => RecordKind::Lost(why),
        }))?;
    }
    Ok(())
}
