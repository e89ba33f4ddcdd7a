//! What becomes of log space that checkpoints free (the paper's self-trimming journal).

use std::ops::Range;
use std::str::FromStr;

use stetfs_block::WriteList;
use stetfs_cache::Page;
use stetfs_ondisk::num::to_usize;

use crate::error::Result;
use crate::jbd2::LogArea;

/// What is done with freed log space (`trim=`). Recovery does not rely on it: frames prove
/// themselves (LDJ does, dissertation ch. 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trim {
    /// Nothing: it is overwritten in its turn.
    #[default]
    Off,
    /// The device is told that it holds nothing.
    Discard,
    /// It is filled with zeros.
    Zero,
}

impl FromStr for Trim {
    type Err = String;

    fn from_str(text: &str) -> Result<Trim, String> {
        match text {
            "off" => Ok(Trim::Off),
            "discard" => Ok(Trim::Discard),
            "zero" => Ok(Trim::Zero),
            _ => Err("must be off, discard or zero".to_owned()),
        }
    }
}

/// Bytes of zeros written at once.
const ZEROS: usize = 1 << 20;

impl Trim {
    /// Trims log blocks, without a flush. Devices that cannot discard ignore it.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn apply(self, area: &LogArea, blocks: Range<u64>) -> Result<()> {
        let device = area.device();
        for run in area.device_runs(blocks) {
            let run = run?;
            match self {
                Trim::Off => {}
                Trim::Discard => device.discard(run)?,
                Trim::Zero => {
                    let zeros = Page::zeroed(ZEROS.min(to_usize(run.end - run.start)));
                    for at in run.clone().step_by(zeros.len().max(1)) {
                        let len = zeros.len().min(to_usize(run.end - at));
                        let mut list = WriteList::new();
                        list.push(at, zeros.get(..len).unwrap_or(&zeros));
                        list.submit(&**device)?;
                    }
                }
            }
        }
        Ok(())
    }
}
