//! The type of a canary: its switch, its origin, and the settings that show it.

use std::fmt;

use anyhow::{Result, anyhow};
use stetfs::low::Preset;

use crate::setup::{JournalSpec, Shape};
use crate::stress::{End, Round, SyncBy};
use crate::volume::Batches;
use crate::workload::{Case, cases, text};

/// A deliberate fault (canary).
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its name in `canary=`.
    pub name: &'static str,
    /// The step or check that it takes out.
    pub what: &'static str,
    /// Its origin.
    pub from: Origin,
    /// Switches the fault on.
    pub set: fn(&mut JournalSpec),
    /// Settings, each of which finds the fault.
    pub trials: &'static [Trial],
}

/// The origin of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// StetFS had it until this commit.
    Own(&'static str),
    /// Other software had it: the history of jbd2 or ext4, or a paper, reports it.
    Published(&'static str),
    /// Invented for the lab: a step is left out.
    Invented,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Own(commit) => write!(f, "fixed in {commit}"),
            Origin::Published(source) => f.write_str(source),
            Origin::Invented => f.write_str("invented"),
        }
    }
}

/// A setting that shows a fault.
#[derive(Clone, Copy, Debug)]
pub enum Trial {
    /// Crashes of recordings.
    Lab(Lab),
    /// A stress round: threads at work, then an end.
    Stress(Stress),
    /// A test that stops threads at the critical point, or uses means that the lab lacks: a file
    /// below `crates`, and its function.
    Suite(&'static str, &'static str),
    /// A model of the journal's threads: a module of `crates/journal/tests/models`, and its
    /// function.
    Model(&'static str, &'static str),
}

impl Trial {
    /// The journals to run it with, as `PRESET[,option…]`.
    pub(super) fn journals(&self) -> Vec<String> {
        match self {
            Trial::Lab(lab) => lab.journals(),
            Trial::Stress(stress) => vec![stress.journal.into()],
            Trial::Suite(..) | Trial::Model(..) => Vec::new(),
        }
    }

    /// The test that shows the fault where the lab does not: its file below `crates`, and its
    /// function.
    pub(super) fn test(&self) -> Option<(String, &'static str)> {
        match self {
            Trial::Lab(_) | Trial::Stress(_) => None,
            Trial::Suite(file, name) => Some(((*file).into(), name)),
            Trial::Model(model, name) => Some((format!("journal/tests/models/{model}.rs"), name)),
        }
    }

    /// The preset that the setting needs and this program lacks because a cargo feature is off.
    pub fn missing(&self) -> Option<String> {
        self.journals().into_iter().find_map(|journal| {
            let preset = journal.split(',').next().unwrap_or_default();
            preset.parse::<Preset>().is_err().then(|| preset.to_owned())
        })
    }

    /// Whether the setting takes more than a moment.
    pub(super) fn is_slow(&self) -> bool {
        match self {
            Trial::Lab(lab) => lab.slow,
            Trial::Stress(_) | Trial::Suite(..) | Trial::Model(..) => true,
        }
    }
}

/// A search of the crashes of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Lab {
    journal: Journals,
    work: Workload,
    pub(super) shape: Shape,
    /// The fault is in recovery alone: without it the same image must be judged sound.
    pub(super) in_recovery: bool,
    /// Whether crashes inside recoveries are tried.
    pub(super) cuts: bool,
    /// Whether it takes more than a moment; the tests leave such settings to `stetfs crash
    /// canaries`.
    pub(super) slow: bool,
}

/// The journals that show a fault.
#[derive(Clone, Copy, Debug)]
enum Journals {
    /// One journal, `PRESET[,option…]`.
    One(&'static str),
    /// Every preset, each with `[,option…]`.
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

    /// A named workload on one journal.
    pub(super) const fn named(journal: &'static str, work: &'static str) -> Lab {
        Lab::new(Journals::One(journal), Workload::Named(work))
    }

    /// A named workload on each preset with these options.
    pub(super) const fn each(options: &'static str, work: &'static str) -> Lab {
        Lab::new(Journals::Each(options), Workload::Named(work))
    }

    /// A script on one journal.
    pub(super) const fn script(journal: &'static str, script: &'static str) -> Lab {
        Lab::new(Journals::One(journal), Workload::Script(script))
    }

    /// The same setting on a device with FUA.
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

    /// The same setting with the sync records of files in a region that is so small that its log
    /// wraps often.
    pub(super) const fn in_region(mut self) -> Lab {
        self.shape.region = Some(64 << 10);
        self
    }

    /// The same setting with the whole log in a region.
    pub(super) const fn with_log_in_region(mut self) -> Lab {
        self.shape.region = Some(5 << 20);
        self
    }

    /// The same setting with blocks of 4096 bytes, the units that the lab's volumes share.
    pub(super) const fn in_units(mut self) -> Lab {
        self.shape.block = 4096;
        self
    }

    /// The finished setting.
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

/// Ways to sync: some writes by fsync, some by fdatasync, some not until the next sync of the file.
pub(super) const MIXED: &[SyncBy] = &[SyncBy::Fsync, SyncBy::Fdatasync, SyncBy::None];

/// A stress round: threads at work, then an end.
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

    /// The same setting with few files, so that the same blocks are written again and again.
    pub(super) const fn few_files(mut self) -> Stress {
        self.files = 60;
        self
    }

    /// The same setting with these ways to sync writes.
    pub(super) const fn by(mut self, syncs: &'static [SyncBy]) -> Stress {
        self.syncs = syncs;
        self
    }

    pub(super) const fn writers(mut self, writers: usize) -> Stress {
        self.writers = writers;
        self
    }

    /// The finished setting.
    pub(super) const fn trial(self) -> Trial {
        Trial::Stress(self)
    }

    /// Round number `n` with this journal.
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
