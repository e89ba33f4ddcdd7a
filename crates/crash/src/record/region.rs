//! The region's log in the file of a recording.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use stetfs_nvm::{LINE, RegionEvent, RegionLog, What};

use super::stream::{In, Out};

/// Most bytes of a store or a label.
const LONGEST: u64 = 256 << 20;

pub(super) fn write(log: &RegionLog, out: &mut Out) -> std::io::Result<()> {
    out.number(log.len() as u64)?;
    for event in &log.events {
        let kind = match event.what {
            What::Store { .. } => 1,
            What::Flush { .. } => 2,
            What::Fence => 3,
            What::Mark { .. } => 4,
        };
        out.bytes(&[kind])?;
        out.number(event.at)?;
        out.number(event.thread.into())?;
        match &event.what {
            What::Store { offset, data } => {
                out.number(*offset)?;
                out.slice(data)?;
            }
            What::Flush { lines } => {
                out.number(lines.start)?;
                out.number(lines.end)?;
            }
            What::Fence => {}
            What::Mark { label, value } => {
                out.slice(label.as_bytes())?;
                out.number(*value)?;
            }
        }
    }
    Ok(())
}

/// Reads the log of a region of `size` bytes.
///
/// # Errors
/// The bytes are no such log.
pub(super) fn read(input: &mut In, size: u64) -> Result<RegionLog> {
    let mut log = RegionLog::default();
    let mut clock = 0;
    for _ in 0..input.number()? {
        let kind = input.bytes(1)?[0];
        let (at, thread) = (input.number()?, u32::try_from(input.number()?)?);
        ensure!(at >= clock, "the region's events are out of order");
        clock = at;
        let what = match kind {
            1 => {
                let (offset, data) = (input.number()?, input.slice(LONGEST)?);
                let end = offset.checked_add(data.len() as u64);
                ensure!(
                    end.is_some_and(|end| end <= size),
                    "a store beyond the region"
                );
                let data = Arc::from(data);
                What::Store { offset, data }
            }
            2 => {
                let lines = input.number()?..input.number()?;
                ensure!(
                    lines.start <= lines.end && lines.end <= size.div_ceil(LINE),
                    "a flush beyond the region"
                );
                What::Flush { lines }
            }
            3 => What::Fence,
            4 => What::Mark {
                label: String::from_utf8(input.slice(LONGEST)?)?,
                value: input.number()?,
            },
            other => bail!("the region has no event of kind {other}"),
        };
        log.events.push(RegionEvent { at, thread, what });
    }
    Ok(log)
}
