//! The treatment of log space that checkpoints free (the self-trimming journal of LDJ).

use std::ops::Range;
use std::str::FromStr;

use stetfs_block::WriteList;
use stetfs_cache::Page;
use stetfs_ondisk::num::to_usize;

use crate::error::Result;
use crate::jbd2::LogArea;

/// The treatment of freed log space (`trim=`). Recovery does not rely on it, because frames prove
/// themselves by checksums (LDJ relies on it, dissertation ch. 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trim {
    /// None: it is overwritten later.
    #[default]
    Off,
    /// The device discards it.
    Discard,
    /// It is overwritten with zeroes.
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

/// The number of zero bytes written at once.
const ZEROS: usize = 1 << 20;

impl Trim {
    /// Trims log blocks, without a flush. Devices without discard ignore it.
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
