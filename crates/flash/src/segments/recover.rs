//! Making a log, and opening one after a crash.

use stetfs_block::{BlockDevice, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::format::{BLOCK, Block, Checkpoint, Chunk, LEN, NONE, Place, Shape, sum};
use super::log::{Buffer, Log};
use super::options::{LogError, LogOptions, LogReport, SPARE};
use super::space::Space;

/// The shape of a new log on `size` bytes.
///
/// # Errors
/// The capacity does not fit.
pub(super) fn shape(
    size: u64,
    options: &LogOptions,
    epoch: u64,
) -> std::result::Result<Shape, LogError> {
    let segment_blocks = options.segment / BLOCK;
    let logical = options.capacity / BLOCK;
    let whole = options.segment.is_multiple_of(BLOCK) && options.capacity.is_multiple_of(BLOCK);
    if !whole || segment_blocks < 8 || logical == 0 || size / BLOCK >= u64::from(NONE) {
        return Err(LogError::Sizes);
    }
    let mut shape = Shape {
        epoch,
        segment_blocks: segment_blocks as u32,
        segments: 0,
        logical: logical as u32,
    };
    let first = shape.byte_of(0);
    shape.segments = (size.saturating_sub(first) / options.segment) as u32;
    // A tenth is added for the headers of chunks, and so that cleaning gains space.
    let needed = (logical + logical / 10).div_ceil(segment_blocks) + u64::from(SPARE);
    if u64::from(shape.segments) < needed {
        return Err(LogError::NoRoom {
            size,
            capacity: options.capacity,
            needed: first + needed * options.segment,
        });
    }
    Ok(shape)
}

/// Writes an empty log.
pub(super) fn format(dev: &impl BlockDevice, shape: Shape, options: LogOptions) -> Result<Log> {
    // Former checkpoints are overwritten.
    for place in 0..2 {
        dev.write(shape.checkpoint_at(place), &[0; LEN])?;
    }
    dev.flush()?;
    dev.write(0, &shape.encode())?;
    dev.flush()?;
    let map = vec![NONE; shape.logical as usize];
    let place = Place {
        segment: 0,
        offset: 0,
        next: 1,
    };
    let mut log = log(shape, options, map, place, 1);
    log.write_checkpoint(dev)?;
    Ok(log)
}

/// A log with this map and this end.
fn log(shape: Shape, options: LogOptions, map: Vec<u32>, place: Place, life: u64) -> Log {
    let mut space = Space::new(&shape, map);
    space.chain = [place.segment, place.next].into();
    let free = (0..shape.segments).filter(|s| space.live(*s) == 0 && !space.chain.contains(s));
    space.free = free.collect();
    Log {
        chunks: vec![0; shape.segments as usize],
        shape,
        options,
        space,
        buffer: Buffer::new(),
        place,
        broken: false,
        life,
        number: 0,
        flushed: 0,
        trusted: 0,
        checkpoint: 0,
        report: LogReport::default(),
    }
}

fn block(dev: &impl BlockDevice, at: u64) -> Result<Block> {
    let mut block = [0; LEN];
    dev.read(at, &mut block)?;
    Ok(block)
}

/// Opens the log of a device; the sizes in `options` are ignored.
pub(super) fn open(
    dev: &impl BlockDevice,
    options: &LogOptions,
) -> std::result::Result<Log, LogError> {
    let shape = Shape::decode(&block(dev, 0)?).ok_or(LogError::NoLog)?;
    let mut newest: Option<(u64, Checkpoint, Vec<u32>)> = None;
    for place in 0..2 {
        let at = shape.checkpoint_at(place);
        let Some(checkpoint) = Checkpoint::decode(&block(dev, at)?, shape.epoch) else {
            continue;
        };
        let mut bytes = vec![0; shape.map_blocks() as usize * LEN];
        dev.read(at + BLOCK, &mut bytes)?;
        let order = |c: &Checkpoint| (c.life, c.chunk);
        let newer = newest
            .as_ref()
            .is_none_or(|(_, c, _)| order(c) <= order(&checkpoint));
        if xxh3_64(&bytes) == checkpoint.sum && newer {
            let word = |b: &[u8]| b.first_chunk().map_or(NONE, |b| u32::from_le_bytes(*b));
            let map = bytes.chunks_exact(4).map(word).take(shape.logical as usize);
            newest = Some((place, checkpoint, map.collect()));
        }
    }
    let (place, checkpoint, map) = newest.ok_or(LogError::Damaged)?;
    let options = LogOptions {
        segment: u64::from(shape.segment_blocks) * BLOCK,
        capacity: u64::from(shape.logical) * BLOCK,
        ..*options
    };
    let blocks = shape.segments.saturating_mul(shape.segment_blocks);
    if map.iter().any(|p| *p != NONE && *p >= blocks) {
        return Err(LogError::Damaged);
    }
    let found = chunks(dev, &shape, &checkpoint)?;
    let mut log = log(shape, options, map, checkpoint.place, checkpoint.life);
    (log.number, log.checkpoint) = (checkpoint.chunk, 1 - place);
    for (chunk, first, behind) in found {
        log.apply(&chunk, first);
        log.number = chunk.number;
        log.place = behind;
    }
    let chain = [log.place.segment, log.place.next].into();
    log.space.chain = chain;
    let unused = |s: &u32| log.space.live(*s) == 0 && !log.space.chain.contains(s);
    log.space.free = (0..shape.segments).filter(unused).collect();
    // Chunks that the crash cut off do not belong to the next life.
    log.life += 1;
    log.write_checkpoint(dev)?;
    Ok(log)
}

/// The valid chunks after a checkpoint, with their header's positions, and the end of the log after
/// each.
fn chunks(
    dev: &impl BlockDevice,
    shape: &Shape,
    checkpoint: &Checkpoint,
) -> Result<Vec<(Chunk, u32, Place)>> {
    let seal = shape.epoch.wrapping_add(checkpoint.life);
    let mut place = checkpoint.place;
    let (mut number, mut flushed) = (checkpoint.chunk, checkpoint.chunk);
    let mut found = Vec::new();
    while let Some((chunk, first, behind)) = next(dev, shape, place, number + 1, seal)? {
        number = chunk.number;
        flushed = flushed.max(chunk.flushed);
        place = behind;
        found.push((chunk, first, behind));
    }
    for (i, (chunk, first, _)) in found.iter().enumerate() {
        if !(chunk.moved || chunk.number <= flushed || is_whole(dev, shape, chunk, *first)?) {
            found.truncate(i);
            break;
        }
    }
    Ok(found)
}

/// The chunk with the expected number at a place, if there is one.
fn next(
    dev: &impl BlockDevice,
    shape: &Shape,
    place: Place,
    number: u64,
    seal: u64,
) -> Result<Option<(Chunk, u32, Place)>> {
    let (segment, offset) = match shape.segment_blocks - place.offset {
        0 | 1 => (place.next, 0),
        _ => (place.segment, place.offset),
    };
    let first = segment * shape.segment_blocks + offset;
    let header = block(dev, shape.byte_of(first))?;
    let Some(chunk) = Chunk::decode(&header, seal).filter(|c| c.number == number) else {
        return Ok(None);
    };
    let end = offset + 1 + chunk.blocks.len() as u32;
    let trims = || {
        chunk
            .trims
            .iter()
            .map(|(first, n)| first.saturating_add(*n))
    };
    let inside = end <= shape.segment_blocks
        && chunk.next < shape.segments
        && chunk
            .blocks
            .iter()
            .all(|(logical, _)| *logical < shape.logical)
        && trims().all(|end| end <= shape.logical);
    let behind = Place {
        segment,
        offset: end,
        next: chunk.next,
    };
    Ok(inside.then_some((chunk, first, behind)))
}

/// Whether all blocks of a chunk have arrived.
fn is_whole(dev: &impl BlockDevice, shape: &Shape, chunk: &Chunk, first: u32) -> Result<bool> {
    for (position, (_, want)) in (first + 1..).zip(&chunk.blocks) {
        if sum(&block(dev, shape.byte_of(position))?) != *want {
            return Ok(false);
        }
    }
    Ok(true)
}
