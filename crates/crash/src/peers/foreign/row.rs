//! What came of a volume and workload, counted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cuts::Cuts;
use super::difference::difference;
use super::reader::{Outcome, Reader};

/// What came of one reader.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Readings {
    /// Images that it could not recover.
    pub refused: usize,
    /// Images in which something is lost that was synced.
    pub lost: usize,
    /// Images in which e2fsck finds something afterwards.
    pub unsound: usize,
}

/// What came of one volume and workload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ForeignRow {
    /// Features given to mke2fs, and mount options.
    pub volume: String,
    /// The workload.
    pub workload: String,
    /// Different images, each recovered by all.
    pub distinct: usize,
    /// Of these, how many had fast commits to be carried out.
    pub fast: usize,
    /// By reader.
    pub readers: BTreeMap<Reader, Readings>,
    /// Images of which StetFS shows something else than e2fsck does, and than the kernel does.
    pub differ: (usize, usize),
    /// Images with which StetFS did worse than another.
    pub worse: usize,
    /// Recoveries of StetFS that were cut, and of these, those after which another one did not
    /// come to the same.
    pub cut: (usize, usize),
    /// The same with mounts of the kernel that were cut while they carried out fast commits.
    pub kernel_cut: (usize, usize),
    /// Time.
    pub seconds: f64,
    /// The first of each kind.
    pub examples: Vec<String>,
}

/// Something to be told, and whose recovery it is about.
pub(super) type Example = (Reader, String);

impl ForeignRow {
    /// Counts what came of cut recoveries, and gives the first of each kind.
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

    /// Counts what came of each reader, and gives the first of each kind.
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

    /// Counts in what StetFS did otherwise than the others, and gives the first of each kind.
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
