//! The counts for one volume and workload.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cuts::Cuts;
use super::difference::difference;
use super::reader::{Outcome, Reader};

/// The counts for one reader.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Readings {
    /// Images that the reader could not recover.
    pub refused: usize,
    /// Images in which synced data is lost.
    pub lost: usize,
    /// Images in which e2fsck finds errors afterwards.
    pub unsound: usize,
}

/// The counts for one volume and workload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ForeignRow {
    /// Features given to mke2fs, and mount options.
    pub volume: String,
    /// The workload.
    pub workload: String,
    /// Different images, each recovered by all readers.
    pub distinct: usize,
    /// Images among these with fast commits to apply.
    pub fast: usize,
    /// The counts by reader.
    pub readers: BTreeMap<Reader, Readings>,
    /// Images on which StetFS's tree differs from e2fsck's, and from the kernel's.
    pub differ: (usize, usize),
    /// Images on which StetFS did worse than another reader.
    pub worse: usize,
    /// Cuts inside recoveries by StetFS, and those after which the next recovery had another
    /// result.
    pub cut: (usize, usize),
    /// The same counts for mounts by the kernel that were cut while they applied fast commits.
    pub kernel_cut: (usize, usize),
    /// Time in seconds.
    pub seconds: f64,
    /// The first example of each kind.
    pub examples: Vec<String>,
}

/// An example to report, and the reader that it is about.
pub(super) type Example = (Reader, String);

impl ForeignRow {
    /// Counts the results of cut recoveries. Gives the first example of each kind.
    pub(super) fn count_cuts(&mut self, all: &[Cuts]) -> Vec<Example> {
        let mut examples = Vec::new();
        for Cuts { by, tried, broken } in all {
            let counts = match by {
                Reader::Kernel => &mut self.kernel_cut,
                _ => &mut self.cut,
            };
            counts.0 += tried;
            counts.1 += broken.len();
            let first = counts.1 == broken.len();
            if *by == Reader::Stetfs {
                self.worse += broken.len();
            }
            if let Some(what) = broken.first().filter(|_| first) {
                examples.push((*by, format!("cut in its recovery: {what}")));
            }
        }
        examples
    }

    /// Counts the outcomes of the readers. Gives the first example of each kind.
    pub(super) fn count_readers(&mut self, all: &[Outcome]) -> Vec<Example> {
        let mut examples = Vec::new();
        for Outcome { by, reading, lost } in all {
            let counts = self.readers.entry(*by).or_default();
            let unsound = reading.as_ref().ok().and_then(|r| r.unsound.as_ref());
            counts.refused += usize::from(reading.is_err());
            counts.lost += usize::from(lost.is_some());
            counts.unsound += usize::from(unsound.is_some());
            let first = [
                (counts.refused, reading.as_ref().err()),
                (counts.lost, lost.as_ref()),
                (counts.unsound, unsound),
            ];
            for (count, what) in first {
                if let Some(what) = what.filter(|_| count == 1) {
                    examples.push((*by, what.clone()));
                }
            }
        }
        examples
    }

    /// Counts the differences between StetFS and the other readers. Gives the first example of each
    /// kind.
    pub(super) fn compare(&mut self, ours: &Outcome, others: &[Outcome]) -> Vec<Example> {
        let mut examples = Vec::new();
        let seen = ours.reading.as_ref().ok();
        let mut worse = seen.is_some_and(|r| r.unsound.is_some());
        for other in others {
            let Ok(theirs) = &other.reading else { continue };
            worse |= other.lost.is_none() && (seen.is_none() || ours.lost.is_some());
            let Some(what) = seen.and_then(|o| difference(&o.seen, &theirs.seen)) else {
                continue;
            };
            let count = match other.by {
                Reader::E2fsck => &mut self.differ.0,
                _ => &mut self.differ.1,
            };
            *count += 1;
            if *count == 1 {
                examples.push((other.by, format!("{what} (StetFS first)")));
            }
        }
        self.worse += usize::from(worse);
        examples
    }
}
