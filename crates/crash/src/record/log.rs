//! The device's log in the file of a recording.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use stetfs_block::{Event, Log, SharePair};

use super::stream::{In, Out};

/// Largest single write in bytes.
const WRITE_MAX: u64 = 256 << 20;
/// Most pairs of a shared batch.
const PAIRS_MAX: u64 = 1 << 20;

pub(super) fn write(log: &Log, out: &mut Out) -> std::io::Result<()> {
    out.number(log.len() as u64)?;
    for event in &log.events {
        match event {
            Event::Write {
                id,
                offset,
                data,
                fua,
            } => {
                out.bytes(&[if *fua { 2 } else { 1 }])?;
                out.number(*id)?;
                out.number(*offset)?;
                out.slice(data)?;
            }
            Event::Discard { id, range } => {
                out.bytes(&[3])?;
                out.number(*id)?;
                out.number(range.start)?;
                out.number(range.end)?;
            }
            Event::Share {
                id,
                pairs,
                unit,
                atomic,
            } => {
                out.bytes(&[if *atomic { 9 } else { 8 }])?;
                out.number(*id)?;
                out.number(u64::from(*unit))?;
                out.number(pairs.len() as u64)?;
                for pair in pairs.iter() {
                    out.number(pair.dst)?;
                    out.number(pair.src)?;
                    out.number(pair.len)?;
                }
            }
            Event::Flush { id } => {
                out.bytes(&[4])?;
                out.number(*id)?;
            }
            Event::Done { id, ok } => {
                out.bytes(&[if *ok { 5 } else { 6 }])?;
                out.number(*id)?;
            }
            Event::Mark { label, value } => {
                out.bytes(&[7])?;
                out.slice(label.as_bytes())?;
                out.number(*value)?;
            }
        }
    }
    Ok(())
}

/// Reads the log of a device of `volume` bytes.
///
/// # Errors
/// The bytes are no such log.
pub(super) fn read(input: &mut In, volume: u64) -> Result<Log> {
    let mut log = Log::default();
    for _ in 0..input.number()? {
        log.events.push(read_event(input, volume)?);
    }
    Ok(log)
}

fn read_event(input: &mut In, volume: u64) -> Result<Event> {
    let kind = input.bytes(1)?[0];
    Ok(match kind {
        1 | 2 => Event::Write {
            id: input.number()?,
            offset: input.number()?,
            data: Arc::from(input.slice(WRITE_MAX)?),
            fua: kind == 2,
        },
        3 => Event::Discard {
            id: input.number()?,
            range: input.number()?..input.number()?,
        },
        4 => Event::Flush {
            id: input.number()?,
        },
        5 | 6 => Event::Done {
            id: input.number()?,
            ok: kind == 5,
        },
        7 => Event::Mark {
            label: String::from_utf8(input.slice(1024)?)?,
            value: input.number()?,
        },
        8 | 9 => read_share(input, volume, kind == 9)?,
        other => bail!("there is no event of kind {other}"),
    })
}

fn read_share(input: &mut In, volume: u64, atomic: bool) -> Result<Event> {
    let (id, unit, count) = (input.number()?, input.number()?, input.number()?);
    ensure!(
        unit.is_power_of_two() && unit <= WRITE_MAX,
        "a share's unit"
    );
    ensure!(count <= PAIRS_MAX, "a batch to share is too long");
    let mut pairs = Vec::new();
    for _ in 0..count {
        let pair = SharePair {
            dst: input.number()?,
            src: input.number()?,
            len: input.number()?,
        };
        let inside = pair.len <= volume && pair.dst.max(pair.src) <= volume;
        ensure!(inside, "a share beyond the volume");
        pairs.push(pair);
    }
    Ok(Event::Share {
        id,
        pairs: pairs.into(),
        unit: unit as u32,
        atomic,
    })
}
