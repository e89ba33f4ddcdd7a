//! The scan of a lane for its frames.
//!
//! A frame is written when the one before it is durable. So all frames of a lane but the last were
//! complete once, and their heads are enough to find them; their chunks are checked when they are
//! read. The last frame is checked as a whole.

use stetfs_ondisk::num::to_usize;
use stetfs_ondisk::stet::frame::{self, Frame};

use super::codec::StetCodec;
use super::read::corrupt;
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, TxId};
use crate::policy::{EndReason, LogTail, Medium, Scan, ScannedTx};

/// The bytes of the first piece, read at a new place. Each further piece is twice as long, up to
/// [`PIECE`].
const FIRST: u64 = 64 << 10;
/// The bytes of the longest piece.
const PIECE: u64 = 4 << 20;
/// The size in bytes above which a frame is checked chunk by chunk instead of in one piece.
const LARGE: u64 = 64 << 20;
/// The distance behind the end, in bytes, within which a later frame is sought, which would prove
/// that the end is damage. It is as long as the longest frame of a journal with the default memory.
const LOOK_BEHIND: u64 = 17 << 20;

/// Reads the log from its tail to its end.
///
/// # Errors
/// The device's.
pub(super) fn scan(
    codec: &StetCodec,
    log: &dyn Medium,
    tail: LogTail,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Scan> {
    // The first frame of an empty lane is written to its start.
    let start = tail.at.unwrap_or(log.first());
    let window = Window {
        log,
        start,
        size: codec.size(),
        first: 0,
        bytes: Vec::new(),
        piece: 0,
    };
    let mut scanner = Scanner {
        codec,
        log,
        start,
        window,
    };
    if tail.at.is_none() {
        let found = scanner.newer_at(0, tail.seq)?;
        return Ok(Scan {
            txs: Vec::new(),
            end: found.map_or(EndReason::Empty, |seq| {
                EndReason::Lost(format!(
                    "the header says that lane {} is empty, but the lane holds frame {seq}: the \
                     header's newer copy is damaged",
                    log.lane().0
                ))
            }),
            next_seq: tail.seq,
        });
    }
    scanner.run(tail.seq, progress)
}

/// A part of a lane, in memory.
struct Window<'a> {
    log: &'a dyn Medium,
    start: u64,
    /// The size of a block, in bytes.
    size: usize,
    /// The first block, counted from the tail.
    first: u64,
    bytes: Vec<u8>,
    /// The number of blocks of the last piece that was read.
    piece: u64,
}

impl Window<'_> {
    /// The bytes of `blocks` blocks, `distance` blocks after the tail; fewer if the lane ends
    /// before.
    fn get(&mut self, distance: u64, blocks: u64) -> Result<&[u8]> {
        let size = self.size as u64;
        let end = self.first + self.bytes.len() as u64 / size;
        if distance < self.first || distance > end {
            self.bytes.clear();
            self.first = distance;
            self.piece = 0;
        } else if distance + blocks > end {
            self.bytes
                .drain(..to_usize(distance - self.first) * self.size);
            self.first = distance;
        }
        let wanted = distance + blocks;
        loop {
            let have = self.first + self.bytes.len() as u64 / size;
            let left = self.log.capacity().saturating_sub(have);
            if have >= wanted || left == 0 {
                break;
            }
            self.piece = match self.piece {
                0 => FIRST / size,
                piece => (piece * 2).min(PIECE / size),
            }
            .max(1);
            let count = self.piece.max(wanted - have).min(left);
            let at = self.log.advance(self.start, have);
            self.log.read_bytes(at, count, &mut self.bytes)?;
        }
        let from = to_usize(distance - self.first) * self.size;
        let to = (from + to_usize(blocks) * self.size).min(self.bytes.len());
        Ok(self.bytes.get(from..to).unwrap_or_default())
    }
}

/// A frame whose head was checked: its distance from the tail and its length, in blocks.
struct Found {
    frame: Frame,
    distance: u64,
    blocks: u64,
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
        let mut last: Option<Found> = None;
        let (mut used, mut next_seq) = (0, seq);
        let end = loop {
            progress(used, capacity);
            let next = self.head(used, next_seq)?;
            if let Some(found) = last.take() {
                let known = matches!(&next, Ok(next) if !next.frame.unordered);
                if !known
                    && !self.codec.canary.frame_unproven
                    && let Err(why) = self.prove(&found)?
                {
                    (used, next_seq) = (found.distance, found.frame.seq);
                    break EndReason::Torn(why);
                }
                txs.push(self.transaction(found)?);
            }
            match next {
                Ok(found) => {
                    next_seq += 1;
                    used += found.blocks;
                    last = Some(found);
                }
                Err(end) => break end,
            }
        };
        let end = match (&end, self.newer(used, next_seq)?) {
            (EndReason::Torn(why) | EndReason::NoNext(why), Some(newer)) => {
                EndReason::Lost(format!(
                    "frame {next_seq} of lane {} was committed (frame {newer} follows it), but at \
                     log block {}: {why}",
                    lane.0,
                    self.log.advance(self.start, used)
                ))
            }
            _ => end,
        };
        Ok(Scan { txs, end, next_seq })
    }

    /// Reads and checks the head of the frame `distance` blocks after the tail, which must be
    /// `seq`.
    fn head(&mut self, distance: u64, seq: u64) -> Result<std::result::Result<Found, EndReason>> {
        let (lane, capacity) = (self.log.lane(), self.log.capacity());
        if distance >= capacity {
            return Ok(Err(EndReason::NoNext("the lane is full".into())));
        }
        let glance = match frame::glance(self.window.get(distance, 1)?, capacity) {
            Ok(glance) => glance,
            Err(e) => return Ok(Err(EndReason::NoNext(e.to_string()))),
        };
        if (glance.epoch, glance.lane, glance.seq) != (self.codec.epoch, lane.0, seq) {
            return Ok(Err(EndReason::NoNext(format!(
                "found frame {} of lane {}, epoch {:016x}, where frame {seq} of lane {} was \
                 expected",
                glance.seq, glance.lane, glance.epoch, lane.0
            ))));
        }
        if distance + glance.blocks > capacity {
            let why = format!(
                "a frame of {} blocks does not fit into the lane",
                glance.blocks
            );
            return Ok(Err(EndReason::NoNext(why)));
        }
        let bytes = self.window.get(distance, glance.head_blocks)?;
        Ok(match self.codec.head(bytes) {
            Ok(frame) => Ok(Found {
                frame,
                distance,
                blocks: glance.blocks,
            }),
            Err(e) => Err(EndReason::Torn(e.to_string())),
        })
    }

    /// Checks the chunks of a frame; returns what is wrong.
    fn prove(&mut self, found: &Found) -> Result<std::result::Result<(), String>> {
        let (codec, frame) = (self.codec, &found.frame);
        let at = self.log.advance(self.start, found.distance);
        let whole = if found.blocks * codec.size() as u64 > LARGE {
            None
        } else {
            Some(self.window.get(found.distance, found.blocks)?)
        };
        let places = frame.places(codec.size());
        for (index, (chunk, from)) in frame.chunks.iter().zip(&places).enumerate() {
            let bytes;
            let stored = match whole {
                Some(whole) => {
                    let to = to_usize(*from) + chunk.stored as usize;
                    whole.get(to_usize(*from)..to).unwrap_or_default()
                }
                None => {
                    bytes = codec.read_bytes(self.log, at, *from, chunk.stored)?;
                    &bytes[..]
                }
            };
            if !codec.chunk_is_whole(frame, index, stored) {
                let what = format!("chunk {index} does not match its checksum");
                return Ok(Err(corrupt(at, frame, what).to_string()));
            }
        }
        Ok(Ok(()))
    }

    /// The sequence of a frame of this lane behind `distance` that is newer than `seq`. Such a
    /// frame was written when `seq` was durable; frames written without barriers do not count.
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

    /// The sequence of the frame `distance` blocks after the tail, if its head passes its check, it
    /// was written with barriers, and it is `seq` or newer.
    fn newer_at(&mut self, distance: u64, seq: u64) -> Result<Option<u64>> {
        let (lane, capacity) = (self.log.lane(), self.log.capacity());
        let block = self.window.get(distance, 1)?;
        if !frame::may_begin_in(block) {
            return Ok(None);
        }
        let Ok(glance) = frame::glance(block, capacity) else {
            return Ok(None);
        };
        if self.codec.canary.skip_checksums
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

    fn transaction(&self, found: Found) -> Result<ScannedTx> {
        let Found {
            frame,
            distance,
            blocks,
        } = found;
        let at = self.log.advance(self.start, distance);
        let mut edges = CommitPoint::none();
        for (lane, seq) in &frame.edges {
            edges.add(TxId {
                lane: Lane(*lane),
                seq: *seq,
            });
        }
        let refs = self.codec.image_refs(self.log, &frame, at)?;
        Ok(ScannedTx {
            id: TxId {
                lane: self.log.lane(),
                seq: frame.seq,
            },
            stamp: frame.stamp,
            floor: frame.floor,
            edges,
            images: frame.images.iter().copied().zip(refs).collect(),
            revokes: frame.revokes.clone(),
            at,
            blocks,
        })
    }
}
