//! Finding the frames of a lane: read ahead in large pieces, proven one after the other.

use std::thread;

use crossbeam_channel::Receiver;
use stetfs_ondisk::stet::frame::{self, Frame};

use super::codec::StetCodec;
use super::read::{corrupt, joined};
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, TxId};
use crate::policy::{EndReason, ImageRef, LogTail, Medium, Scan, ScannedTx};

/// Bytes read at first; each further piece is twice as long …
const FIRST: u64 = 64 << 10;
/// … up to this.
const PIECE: u64 = 4 << 20;
/// Lanes from this size on are read ahead by a thread of its own, bytes.
const AHEAD: u64 = 4 << 20;
/// A frame above this is proven chunk by chunk instead of in one piece, bytes.
const LARGE: u64 = 64 << 20;
/// So far behind the end a frame is sought that proves that the end is damage, bytes: farther than the longest frame
/// that is ever written.
const LOOK_BEHIND: u64 = 32 << 20;

/// Reads the log from its tail to where it ends.
///
/// # Errors
/// The device's.
pub(super) fn scan(
    codec: &StetCodec,
    log: &dyn Medium,
    tail: LogTail,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Scan> {
    // The first frame of an empty lane goes to its start.
    let start = tail.at.unwrap_or(log.first());
    let size = codec.size() as u64;
    let mut pieces = Pieces {
        log,
        start,
        next: 0,
        blocks: (FIRST / size).max(1),
        longest: (PIECE / size).max(1),
    };
    let scanner = |source| Scanner {
        codec,
        log,
        start,
        window: Window {
            source,
            first: 0,
            bytes: Vec::new(),
            size: codec.size(),
        },
    };
    if tail.at.is_none() {
        let found = scanner(Source::Here(pieces)).newer_at(0, tail.seq)?;
        return Ok(Scan {
            txs: Vec::new(),
            end: found.map_or(EndReason::Empty, |seq| {
                EndReason::Lost(format!(
                    "the header says that lane {} is empty, but frame {seq} stands in it: its newer copy is damaged",
                    log.lane().0
                ))
            }),
            next_seq: tail.seq,
        });
    }
    if log.capacity() * size < AHEAD {
        return scanner(Source::Here(pieces)).run(tail.seq, progress);
    }
    thread::scope(|scope| {
        let (send, receive) = crossbeam_channel::bounded(1);
        scope.spawn(move || {
            while let Some(piece) = pieces.read().transpose() {
                // The scan is over.
                if send.send(piece).is_err() {
                    break;
                }
            }
        });
        scanner(Source::Ahead(receive)).run(tail.seq, progress)
    })
}

/// The lane in pieces, from the tail once round.
struct Pieces<'a> {
    log: &'a dyn Medium,
    start: u64,
    /// Blocks from the tail.
    next: u64,
    blocks: u64,
    longest: u64,
}

impl Pieces<'_> {
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        let count = self.blocks.min(self.log.capacity() - self.next);
        if count == 0 {
            return Ok(None);
        }
        let at = self.log.advance(self.start, self.next);
        let bytes = joined(&self.log.read(at, count)?);
        self.next += count;
        self.blocks = (self.blocks * 2).min(self.longest);
        Ok(Some(bytes))
    }
}

enum Source<'a> {
    Here(Pieces<'a>),
    Ahead(Receiver<Result<Vec<u8>>>),
}

/// What was read of the lane and may still be needed.
struct Window<'a> {
    source: Source<'a>,
    /// Blocks from the tail.
    first: u64,
    bytes: Vec<u8>,
    size: usize,
}

impl Window<'_> {
    /// So many blocks, `distance` blocks after the tail; fewer where the lane has been once round. What lies before is
    /// forgotten.
    fn get(&mut self, distance: u64, blocks: u64) -> Result<&[u8]> {
        self.forget(distance);
        while self.bytes.len() < (distance - self.first + blocks) as usize * self.size {
            let piece = match &mut self.source {
                Source::Here(pieces) => pieces.read()?,
                Source::Ahead(pieces) => pieces.recv().ok().transpose()?,
            };
            let Some(piece) = piece else { break };
            self.bytes.extend_from_slice(&piece);
            self.forget(distance);
        }
        let from = (distance - self.first) as usize * self.size;
        let to = (from + blocks as usize * self.size).min(self.bytes.len());
        Ok(self.bytes.get(from..to).unwrap_or_default())
    }

    /// Drops whole blocks before `distance`, once they are many.
    fn forget(&mut self, distance: u64) {
        let before = (distance.saturating_sub(self.first) as usize).saturating_mul(self.size);
        let gone = before.min(self.bytes.len());
        if gone >= PIECE as usize || gone == self.bytes.len() {
            self.bytes.drain(..gone);
            self.first += (gone / self.size) as u64;
        }
    }
}

struct Scanner<'a> {
    codec: &'a StetCodec,
    log: &'a dyn Medium,
    start: u64,
    window: Window<'a>,
}

impl Scanner<'_> {
    fn run(mut self, seq: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<Scan> {
        let (lane, capacity) = (self.log.lane(), self.log.capacity());
        let mut txs = Vec::new();
        let mut next_seq = seq;
        let mut used = 0;
        let end = loop {
            progress(used, capacity);
            if used >= capacity {
                break EndReason::NoNext("the lane is full".into());
            }
            let (frame, blocks) = match self.next(used, next_seq)? {
                Ok(found) => found,
                Err(end) => break end,
            };
            txs.push(self.transaction(frame, self.log.advance(self.start, used), blocks));
            next_seq += 1;
            used += blocks;
        };
        let end = match (&end, self.newer(used, next_seq)?) {
            (EndReason::Torn(why) | EndReason::NoNext(why), Some(newer)) => {
                EndReason::Lost(format!(
                    "frame {next_seq} of lane {} was committed, for frame {newer} follows it, but at log block {}: {why}",
                    lane.0,
                    self.log.advance(self.start, used)
                ))
            }
            _ => end,
        };
        Ok(Scan { txs, end, next_seq })
    }

    /// Proves the frame `distance` blocks after the tail, which must be `seq`; gives it and its blocks.
    fn next(
        &mut self,
        distance: u64,
        seq: u64,
    ) -> Result<std::result::Result<(Frame, u64), EndReason>> {
        let codec = self.codec;
        let (lane, capacity) = (self.log.lane(), self.log.capacity());
        let at = self.log.advance(self.start, distance);
        let first = self.window.get(distance, 1)?;
        let glance = match frame::glance(first, capacity) {
            Ok(glance) => glance,
            Err(e) => return Ok(Err(EndReason::NoNext(e.to_string()))),
        };
        if (glance.epoch, glance.lane, glance.seq) != (codec.epoch, lane.0, seq) {
            return Ok(Err(EndReason::NoNext(format!(
                "frame {} of lane {}, epoch {:016x}, where frame {seq} of lane {} was to follow",
                glance.seq, glance.lane, glance.epoch, lane.0
            ))));
        }
        if distance + glance.blocks > capacity {
            let why = format!("a frame of {} blocks", glance.blocks);
            return Ok(Err(EndReason::NoNext(why)));
        }
        let frame = match codec.head(self.window.get(distance, glance.head_blocks)?) {
            Ok(frame) => frame,
            Err(e) => return Ok(Err(EndReason::Torn(e.to_string()))),
        };
        let size = codec.size() as u64;
        if glance.blocks * size > LARGE {
            for index in 0..frame.chunks.len() {
                if let Err(e) = codec.read_stored(self.log, at, &frame, index)? {
                    return Ok(Err(EndReason::Torn(e.to_string())));
                }
            }
            return Ok(Ok((frame, glance.blocks)));
        }
        let bytes = self.window.get(distance, glance.blocks)?;
        let places = frame.places(codec.size());
        for (index, (chunk, from)) in frame.chunks.iter().zip(&places).enumerate() {
            let to = *from as usize + chunk.stored as usize;
            let stored = bytes.get(*from as usize..to).unwrap_or_default();
            if !codec.chunk_is_whole(&frame, index, stored) {
                let what = format!("chunk {index} does not match its checksum");
                let e = corrupt(at, &frame, what);
                return Ok(Err(EndReason::Torn(e.to_string())));
            }
        }
        Ok(Ok((frame, glance.blocks)))
    }

    /// A frame of this lane behind `distance` that proves itself and is newer than `seq`. Such a one was written when
    /// `seq` was durable, unless it says that there were no barriers.
    fn newer(&mut self, distance: u64, seq: u64) -> Result<Option<u64>> {
        let reach = distance + LOOK_BEHIND / self.codec.size() as u64;
        for distance in distance + 1..reach.min(self.log.capacity()) {
            let found = self.newer_at(distance, seq + 1)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The sequence of the frame `distance` blocks after the tail, if its head proves itself, was written with
    /// barriers, and is `seq` or newer.
    fn newer_at(&mut self, distance: u64, seq: u64) -> Result<Option<u64>> {
        let (lane, capacity) = (self.log.lane(), self.log.capacity());
        let Ok(glance) = frame::glance(self.window.get(distance, 1)?, capacity) else {
            return Ok(None);
        };
        if self.codec.skip_checksums
            || (glance.epoch, glance.lane) != (self.codec.epoch, lane.0)
            || glance.seq < seq
            || distance + glance.blocks > capacity
            || glance.unordered
        {
            return Ok(None);
        }
        let head = self.window.get(distance, glance.head_blocks)?;
        Ok(self.codec.head(head).ok().map(|frame| frame.seq))
    }

    fn transaction(&self, frame: Frame, at: u64, blocks: u64) -> ScannedTx {
        let mut edges = CommitPoint::none();
        for (lane, seq) in &frame.edges {
            edges.add(TxId {
                lane: Lane(*lane),
                seq: *seq,
            });
        }
        let places = frame.chunks.iter().enumerate().flat_map(|(chunk, c)| {
            let images = c.raw / self.codec.block_size.max(1);
            (0..images).map(move |i| ImageRef {
                at,
                flags: chunk as u32,
                check: i,
            })
        });
        ScannedTx {
            id: TxId {
                lane: self.log.lane(),
                seq: frame.seq,
            },
            stamp: frame.stamp,
            edges,
            images: frame.images.iter().copied().zip(places).collect(),
            revokes: frame.revokes.clone(),
            at,
            blocks,
        }
    }
}
