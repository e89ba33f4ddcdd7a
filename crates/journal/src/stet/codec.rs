//! The codec of the StetFS log: a transaction is one frame.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use stetfs_cache::PageRef;
use stetfs_ondisk::stet::checksum;
use stetfs_ondisk::stet::frame::{self, Frame, Stored};
use stetfs_ondisk::{OnDiskError, error::Result as OnDiskResult};

use super::compress::{Compression, Packed, unpack};
use super::pace::Pace;
use super::pack::pack;
use super::payload::{Payload, page_of};
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, TxId};
use crate::policy::{
    Codec, Early, Encoded, EndReason, ImageRef, LogTail, Medium, Packing, Scan, ScannedTx,
};
use crate::tx::Snapshot;

/// How far behind the end of the log a newer frame is sought, bytes: behind a damaged frame of more than this it is
/// not found. Reading so much takes a small part of a second on any disk.
const LOOK_BEHIND: u64 = 16 << 20;
/// Log blocks read at once for that.
const WINDOW: u64 = 256;

/// Frames of one log.
pub struct StetCodec {
    /// Bytes in a block.
    pub block_size: u32,
    /// The log's epoch.
    pub epoch: u64,
    /// Lanes of the log: the most edges a frame can have.
    pub lanes: u16,
    /// How chunks are compressed.
    pub compression: Compression,
    /// Raw bytes of a chunk.
    pub chunk: u32,
    /// Measured speeds.
    pub pace: Arc<Pace>,
    /// Deliberate fault: checksums are not looked at when reading.
    pub skip_checksums: bool,
}

impl StetCodec {
    fn per_chunk(&self) -> usize {
        (self.chunk.min(frame::MAX_CHUNK as u32) / self.block_size.max(1)).max(1) as usize
    }

    fn size(&self) -> usize {
        self.block_size as usize
    }

    /// Reads and proves the head of the frame at `at`; of its chunks nothing is known then.
    fn read_head(
        &self,
        log: &dyn Medium,
        at: u64,
        head_blocks: u64,
    ) -> Result<OnDiskResult<Frame>> {
        let bytes = joined(&log.read(at, head_blocks)?);
        if !self.skip_checksums {
            return Ok(frame::decode(&bytes, self.size()));
        }
        Ok(frame::decode_unproven(&bytes, self.size()))
    }

    /// Reads chunk `index` of a frame and proves it.
    fn read_chunk(
        &self,
        log: &dyn Medium,
        at: u64,
        frame: &Frame,
        index: usize,
    ) -> Result<OnDiskResult<Vec<u8>>> {
        let Some(chunk) = frame.chunks.get(index) else {
            return Ok(Err(corrupt(at, frame, index, "is not there")));
        };
        let size = self.size() as u64;
        let place = frame.places(self.size()).get(index).copied().unwrap_or(0);
        let (first, skip) = (place / size, (place % size) as usize);
        let count = (skip as u64 + u64::from(chunk.stored)).div_ceil(size);
        let bytes = joined(&log.read(log.advance(at, first), count)?);
        let stored = bytes
            .get(skip..skip + chunk.stored as usize)
            .unwrap_or_default();
        if !self.skip_checksums && checksum(stored) != chunk.sum {
            return Ok(Err(corrupt(
                at,
                frame,
                index,
                "does not match its checksum",
            )));
        }
        let raw = unpack(chunk, stored);
        Ok(raw.ok_or_else(|| corrupt(at, frame, index, "cannot be decompressed")))
    }

    /// A frame of this log that stands behind `at`, where frame `seq` should be, and is newer. The head of a frame
    /// is written when all frames before it are durable, so then the device lost what it had acknowledged.
    ///
    /// Every log that a crash left ends somewhere, so this must cost little: only [`LOOK_BEHIND`] is looked through.
    fn goes_on(&self, log: &dyn Medium, at: u64, left: u64, seq: u64) -> Result<Option<u64>> {
        if self.skip_checksums {
            return Ok(None);
        }
        let reach = left.min(LOOK_BEHIND / u64::from(self.block_size.max(1)));
        let mut window = Vec::new().into_iter();
        for distance in 1..reach {
            let block: PageRef = match window.next() {
                Some(block) => block,
                None => {
                    let count = WINDOW.min(reach - distance);
                    window = log.read(log.advance(at, distance), count)?.into_iter();
                    let Some(block) = window.next() else { break };
                    block
                }
            };
            let Ok(glance) = frame::glance(&block, log.capacity()) else {
                continue;
            };
            if (glance.epoch, glance.lane) == (self.epoch, log.lane().0)
                && glance.seq > seq
                && distance + glance.head_blocks <= left
                && self
                    .read_head(log, log.advance(at, distance), glance.head_blocks)?
                    .is_ok()
            {
                return Ok(Some(glance.seq));
            }
        }
        Ok(None)
    }

    /// Proves all chunks of a frame, several at once.
    fn prove(&self, log: &dyn Medium, at: u64, frame: &Frame) -> Result<OnDiskResult<()>> {
        let threads = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(8);
        let all: Vec<usize> = (0..frame.chunks.len()).collect();
        let each = all.len().div_ceil(threads).max(4);
        let prove = |mine: &[usize]| -> Result<OnDiskResult<()>> {
            for index in mine {
                if let Err(e) = self.read_chunk(log, at, frame, *index)? {
                    return Ok(Err(e));
                }
            }
            Ok(Ok(()))
        };
        if all.len() <= each {
            return prove(&all);
        }
        let results: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = all
                .chunks(each)
                .map(|mine| scope.spawn(move || prove(mine)))
                .collect();
            workers.into_iter().map(|w| w.join()).collect()
        });
        for result in results {
            let died = || {
                Ok(Err(corrupt(
                    at,
                    frame,
                    0,
                    "could not be read: a thread died",
                )))
            };
            if let Err(e) = result.unwrap_or_else(|_| died())? {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }
}

fn corrupt(at: u64, frame: &Frame, index: usize, what: &str) -> OnDiskError {
    OnDiskError::Corrupt {
        what: "StetFS log frame",
        detail: format!(
            "chunk {index} of frame {} of lane {} at log block {at} {what}",
            frame.seq, frame.lane
        ),
    }
}

fn joined(pages: &[PageRef]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pages.iter().map(|p| p.len()).sum());
    for page in pages {
        bytes.extend_from_slice(page);
    }
    bytes
}

impl Codec for StetCodec {
    fn bound(&self, images: u64, revokes: u64) -> u64 {
        let chunks = (images as usize).div_ceil(self.per_chunk());
        let head = frame::head_blocks(
            chunks,
            usize::from(self.lanes),
            images as usize,
            revokes as usize,
            self.size(),
        );
        // What is stored as it is begins on a block boundary: a block may stay unfilled before each chunk.
        head as u64 + images + chunks as u64
    }

    fn encode(&self, tx: &Snapshot, early: &mut Early<'_>) -> Result<Encoded> {
        let pages: Vec<PageRef> = tx.images.iter().map(|i| Arc::clone(&i.page)).collect();
        let groups: Vec<&[PageRef]> = pages.chunks(self.per_chunk()).collect();
        let head_blocks = frame::head_blocks(
            groups.len(),
            tx.edges.iter().count(),
            pages.len(),
            tx.revokes.len(),
            self.size(),
        );
        let mut payload = Payload::new(self.size(), head_blocks as u64);
        let mut packing = Packing::default();
        let mut chunks = Vec::with_capacity(groups.len());
        pack(
            self.compression,
            &self.pace,
            &groups,
            &mut |i, packed: Packed| {
                packing.micros += packed.micros;
                *match packed.chunk.how {
                    Stored::Raw => &mut packing.raw,
                    Stored::Lz4 => &mut packing.lz4,
                    Stored::Zstd => &mut packing.zstd,
                } += 1;
                chunks.push(packed.chunk);
                let group = groups.get(i).copied().unwrap_or_default();
                match &packed.bytes {
                    Some(bytes) => payload.packed(bytes, group.len()),
                    None => payload.verbatim(group),
                }
                payload.send(early)
            },
        )?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let frame = Frame {
            epoch: self.epoch,
            seq: tx.id.seq,
            stamp: tx.stamp,
            nanoseconds: now.as_nanos() as u64,
            lane: tx.id.lane.0,
            chunks,
            edges: tx.edges.iter().map(|e| (e.lane.0, e.seq)).collect(),
            images: tx.images.iter().map(|image| image.nr).collect(),
            revokes: tx.revokes.clone(),
        };
        let mut body: Vec<PageRef> = frame
            .encode(self.size())
            .chunks(self.size())
            .map(|bytes| page_of(self.size(), bytes))
            .collect();
        let (rest, sent, verbatim) = payload.finish();
        body.extend(rest);
        Ok(Encoded {
            body,
            early: (head_blocks, sent),
            seal: None,
            verbatim,
            packing,
        })
    }

    fn note(&self) -> Option<String> {
        (self.compression == Compression::Auto).then(|| self.pace.note())
    }

    fn scan(
        &self,
        log: &dyn Medium,
        tail: LogTail,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Scan> {
        let mut scan = Scan {
            txs: Vec::new(),
            end: EndReason::Empty,
            next_seq: tail.seq,
        };
        let Some(start) = tail.at else {
            return Ok(scan);
        };
        let (lane, capacity) = (log.lane(), log.capacity());
        let (mut at, mut used) = (start, 0);
        scan.end = loop {
            progress(used, capacity);
            if used >= capacity {
                break EndReason::NoNext("the lane is full".into());
            }
            let first = log.read(at, 1)?;
            let glance = match frame::glance(first.first().map_or(&[][..], |p| &p[..]), capacity) {
                Ok(glance) => glance,
                Err(e) => break EndReason::NoNext(e.to_string()),
            };
            if (glance.epoch, glance.lane, glance.seq) != (self.epoch, lane.0, scan.next_seq) {
                break EndReason::NoNext(format!(
                    "frame {} of lane {}, epoch {:016x}, where frame {} of lane {} was to follow",
                    glance.seq, glance.lane, glance.epoch, scan.next_seq, lane.0
                ));
            }
            if used + glance.blocks > capacity {
                break EndReason::NoNext(format!("a frame of {} blocks", glance.blocks));
            }
            let frame = match self.read_head(log, at, glance.head_blocks)? {
                Ok(frame) => frame,
                Err(e) => break EndReason::Torn(e.to_string()),
            };
            if let Err(e) = self.prove(log, at, &frame)? {
                break EndReason::Torn(e.to_string());
            }
            let mut edges = CommitPoint::none();
            for (lane, seq) in &frame.edges {
                edges.add(TxId {
                    lane: Lane(*lane),
                    seq: *seq,
                });
            }
            let places = frame.chunks.iter().enumerate().flat_map(|(chunk, c)| {
                let images = c.raw / self.block_size.max(1);
                (0..images).map(move |i| ImageRef {
                    at,
                    flags: chunk as u32,
                    check: i,
                })
            });
            scan.txs.push(ScannedTx {
                id: TxId {
                    lane,
                    seq: frame.seq,
                },
                stamp: frame.stamp,
                edges,
                images: frame.images.iter().copied().zip(places).collect(),
                revokes: frame.revokes.clone(),
                at,
                blocks: glance.blocks,
            });
            scan.next_seq += 1;
            used += glance.blocks;
            at = log.advance(at, glance.blocks);
        };
        if let EndReason::NoNext(why) | EndReason::Torn(why) = &scan.end
            && let Some(seq) = self.goes_on(log, at, capacity - used, scan.next_seq)?
        {
            return Err(OnDiskError::Corrupt {
                what: "journal",
                detail: format!(
                    "frame {} of lane {} was committed, for frame {seq} stands behind it, but at log block {at}: {why}",
                    scan.next_seq, lane.0
                ),
            }
            .into());
        }
        Ok(scan)
    }

    fn images(&self, log: &dyn Medium, _: TxId, refs: &[ImageRef]) -> Result<Vec<PageRef>> {
        let mut frames: HashMap<u64, Frame> = HashMap::new();
        let mut chunks: HashMap<(u64, u32), Vec<u8>> = HashMap::new();
        let mut out = Vec::with_capacity(refs.len());
        for image in refs {
            if let Entry::Vacant(entry) = frames.entry(image.at) {
                let first = log.read(image.at, 1)?;
                let block = first.first().map_or(&[][..], |p| &p[..]);
                let glance = frame::glance(block, log.capacity())?;
                let frame = self.read_head(log, image.at, glance.head_blocks)??;
                entry.insert(frame);
            }
            let key = (image.at, image.flags);
            if let Some(frame) = frames.get(&image.at)
                && !chunks.contains_key(&key)
            {
                let chunk = self.read_chunk(log, image.at, frame, image.flags as usize)??;
                chunks.insert(key, chunk);
            }
            let from = image.check as usize * self.size();
            let bytes = chunks
                .get(&key)
                .and_then(|c| c.get(from..from + self.size()))
                .ok_or_else(|| OnDiskError::Corrupt {
                    what: "StetFS log frame",
                    detail: format!(
                        "image {} of chunk {} at log block {}",
                        image.check, image.flags, image.at
                    ),
                })?;
            out.push(page_of(self.size(), bytes));
        }
        Ok(out)
    }
}
