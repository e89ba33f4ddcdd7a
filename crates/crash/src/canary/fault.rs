//! What a deliberate fault is: how it is switched on, where it is from, and the settings that show
//! it.

use std::fmt;

use anyhow::{Result, anyhow};
use stetfs::low::Preset;

use crate::setup::{JournalSpec, Shape};
use crate::stress::{End, Round, SyncBy};
use crate::volume::Batches;
use crate::workload::{Case, cases, text};

/// A deliberate fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its name in `canary=`.
    pub name: &'static str,
    /// What it takes out.
    pub what: &'static str,
    /// Where it is from.
    pub from: Origin,
    /// Switches it on.
    pub set: fn(&mut JournalSpec),
    /// Each of these finds it.
    pub trials: &'static [Trial],
}

/// Where a fault is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was here until this commit.
    Own(&'static str),
    /// It was elsewhere: jbd2's or ext4's history, a paper.
    Published(&'static str),
    /// It never was: a step left out.
    Invented,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Own(commit) => write!(f, "mended in {commit}"),
            Origin::Published(source) => f.write_str(source),
            Origin::Invented => f.write_str("invented"),
        }
    }
}

/// A setting that shows a fault.
#[derive(Clone, Copy, Debug)]
pub enum Trial {
    /// Crashes of records.
    Lab(Lab),
    /// Threads, then an end.
    Stress(Stress),
    /// A test that holds threads at the point, or has what the lab has not: a file below `crates`,
    /// its function.
    Suite(&'static str, &'static str),
}

impl Trial {
    /// The journals it is run on, as `PRESET[,option…]`.
    pub(super) fn journals(&self) -> Vec<String> {
        match self {
            Trial::Lab(lab) => lab.journals(),
            Trial::Stress(stress) => vec![stress.journal.into()],
            Trial::Suite(..) => Vec::new(),
        }
    }

    /// The preset that it needs and this program does not have: it is built without a feature.
    pub fn missing(&self) -> Option<String> {
        self.journals().into_iter().find_map(|journal| {
            let preset = journal.split(',').next().unwrap_or_default();
            preset.parse::<Preset>().is_err().then(|| preset.to_owned())
        })
    }

    /// Whether it takes more than a moment.
    pub(super) fn is_slow(&self) -> bool {
        match self {
            Trial::Lab(lab) => lab.slow,
            Trial::Stress(_) | Trial::Suite(..) => true,
        }
    }
}

/// Crashes of records.
#[derive(Clone, Copy, Debug)]
pub struct Lab {
    journal: Journals,
    work: Workload,
    pub(super) shape: Shape,
    /// The fault is one of recovery alone: without it the same image is judged sound.
    pub(super) in_recovery: bool,
    /// Crashes inside recoveries are tried.
    pub(super) cuts: bool,
    /// It takes more than a moment: the tests leave it to `stetfs crash canaries`.
    pub(super) slow: bool,
}

/// The journals that a fault shows in.
#[derive(Clone, Copy, Debug)]
enum Journals {
    /// `PRESET[,option…]`.
    One(&'static str),
    /// All presets, with `[,option…]`.
    Each(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Workload {
    Named(&'static str),
    Script(&'static str),
}

impl Lab {
    const fn new(journal: Journals, work: Workload) -> Lab {
        Lab {
            journal,
            work,
            shape: Shape {
                block: 1024,
                journal_blocks: 1024,
                batches: Batches::Torn,
                fua: false,
                region: None,
            },
            in_recovery: false,
            cuts: false,
            slow: false,
        }
    }

    /// The named workload on a journal.
    pub(super) const fn named(journal: &'static str, work: &'static str) -> Lab {
        Lab::new(Journals::One(journal), Workload::Named(work))
    }

    /// The named workload on each preset, with these options.
    pub(super) const fn each(options: &'static str, work: &'static str) -> Lab {
        Lab::new(Journals::Each(options), Workload::Named(work))
    }

    /// A script on a journal.
    pub(super) const fn script(journal: &'static str, script: &'static str) -> Lab {
        Lab::new(Journals::One(journal), Workload::Script(script))
    }

    /// Its device has FUA.
    pub(super) const fn fua(mut self) -> Lab {
        self.shape.fua = true;
        self
    }

    pub(super) const fn in_recovery(mut self) -> Lab {
        self.in_recovery = true;
        self
    }

    pub(super) const fn with_cuts(mut self) -> Lab {
        self.cuts = true;
        self
    }

    pub(super) const fn slow(mut self) -> Lab {
        self.slow = true;
        self
    }

    /// Its records of files are in a region, which goes round often.
    pub(super) const fn in_region(mut self) -> Lab {
        self.shape.region = Some(64 << 10);
        self
    }

    /// Its log is in a region.
    pub(super) const fn with_log_in_region(mut self) -> Lab {
        self.shape.region = Some(5 << 20);
        self
    }

    /// In blocks of 4096 bytes, the units that the lab's volumes share.
    pub(super) const fn in_units(mut self) -> Lab {
        self.shape.block = 4096;
        self
    }

    /// Ends the setting.
    pub(super) const fn trial(self) -> Trial {
        Trial::Lab(self)
    }

    pub(super) fn cases(&self, name: &str, seed: u64) -> Result<Vec<Case>> {
        match self.work {
            Workload::Named(work) => cases(work, seed),
            Workload::Script(script) => Ok(vec![Case {
                name: name.into(),
                scripts: text::parse(script).map_err(|e| anyhow!("the script of {name}: {e}"))?,
                setup: 0,
                fail_flush: None,
            }]),
        }
    }

    pub(super) fn work(&self) -> &'static str {
        match self.work {
            Workload::Named(name) => name,
            Workload::Script(_) => "script",
        }
    }

    fn journals(&self) -> Vec<String> {
        match self.journal {
            Journals::One(journal) => vec![journal.into()],
            Journals::Each(options) => Preset::on_a_device()
                .iter()
                .map(|preset| format!("{preset}{options}"))
                .collect(),
        }
    }
}

/// Some writes are synced by fdatasync, some by the next sync of the file.
pub(super) const MIXED: &[SyncBy] = &[SyncBy::Fsync, SyncBy::Fdatasync, SyncBy::None];

/// Threads, then an end.
#[derive(Clone, Copy, Debug)]
pub struct Stress {
    pub(super) end: End,
    journal: &'static str,
    syncs: &'static [SyncBy],
    writers: usize,
    changers: usize,
    files: usize,
}

impl Stress {
    pub(super) const fn new(end: End, journal: &'static str) -> Stress {
        Stress {
            end,
            journal,
            syncs: &[SyncBy::Fsync],
            writers: 4,
            changers: 1,
            files: 400,
        }
    }

    /// So few files that the same blocks are written again and again.
    pub(super) const fn few_files(mut self) -> Stress {
        self.files = 60;
        self
    }

    /// How writes are synced.
    pub(super) const fn by(mut self, syncs: &'static [SyncBy]) -> Stress {
        self.syncs = syncs;
        self
    }

    pub(super) const fn writers(mut self, writers: usize) -> Stress {
        self.writers = writers;
        self
    }

    /// Ends the setting.
    pub(super) const fn trial(self) -> Trial {
        Trial::Stress(self)
    }

    /// Round number `n` on this journal.
    pub(super) fn round(&self, journal: String, seed: u64, n: u64) -> Round {
        Round {
            end: self.end,
            journal,
            block: if n.is_multiple_of(2) { 4096 } else { 1024 },
            journal_mib: 4,
            region: None,
            writers: self.writers,
            changers: self.changers,
            files: self.files,
            shared: false,
            syncs: self.syncs.to_vec(),
            millis: 150,
            failing: 1,
            seed: seed.wrapping_add(n),
        }
    }
}
