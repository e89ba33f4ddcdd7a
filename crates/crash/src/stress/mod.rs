//! Stress: threads overwrite files in place and sync them, while others create, rename, append and
//! sync; then the process is killed, the device fails, or the power is cut. All acknowledged
//! changes must be there.
//!
//! Unlike the rest of the lab, stress is not reproducible: the threads race, and a seed decides
//! only their choices and the moment of the end. It finds the faults that need a race.

mod blocks;
pub mod command;
mod ends;
mod round;

use std::sync::OnceLock;

use anyhow::{Context, Result};
use serde::Serialize;
use stetfs::low::FsOptions;

use self::blocks::Stage;
pub use self::blocks::{LostBlock, PER_FILE};
pub use self::ends::{Reexec, child};
pub use self::round::{End, Round, SyncBy};
use crate::judge::promise::Promise;
use crate::judge::{Checks, Oracle};
use crate::setup::JournalSpec;
use crate::work::{Rest, Work};

/// A broken promise of a round.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// The round.
    pub round: Round,
    /// The moment of the round.
    pub moment: String,
    /// The promise, and the actual state.
    pub detail: String,
    /// Blocks that lost an acknowledged version, or hold one that was never written.
    pub lost: Vec<LostBlock>,
    /// The image before recovery, if it was kept; its region is beside it, with the extension
    /// `region`.
    pub image: Option<String>,
}

/// The result of one round.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Told {
    /// Number of acknowledged versions and operations.
    pub acked: u64,
    /// Number of images that were recovered and judged.
    pub images: u64,
    /// Whether the intended fault happened.
    pub hit: bool,
    /// The broken promises.
    pub broken: Vec<Broken>,
}

/// Runs one round, and judges the images that it leaves. With `fsck` e2fsck checks each recovered
/// image.
///
/// # Errors
/// The round cannot be run, or an operation failed on a sound device.
pub fn round(
    round: &Round,
    fsck: bool,
    keep: Option<&std::path::Path>,
    reexec: Reexec<'_>,
) -> Result<Told> {
    let options = round.options()?;
    let stage = Stage::of(round.block, round.journal_mib, round.files)?;
    let scripts = round.scripts(&options);
    let all = ends::run(round, &stage, &options, &scripts, reexec)
        .with_context(|| format!("stetfs crash stress {round}"))?;
    let whole = options.journal.data().keeps_whole();
    let work = Work {
        base: stage.base.clone(),
        region: round.region,
        // These options open the volume again; no timed commit may happen meanwhile.
        options: FsOptions {
            commit_secs: 3600,
            ..options
        },
        before: vec![0; scripts.len()],
        // The block files lie outside the scripts' directories, and have their own judge.
        rest: OnceLock::from(Rest::new()),
        scripts,
        promise: Promise::Synced,
    };
    let mut told = Told::default();
    let checks = Checks {
        fsck,
        ..Checks::default()
    };
    for left in all {
        let (scripts, blocks) = left.noted.split_at(round.changers);
        told.acked += left.noted.iter().map(|p| p.acked as u64).sum::<u64>();
        told.images += 1;
        told.hit |= left.hit;
        let mut lost = Vec::new();
        let judged = work.check_with(&left.crashed, &scripts.to_vec(), checks, &mut |seen| {
            lost = stage.judge(seen, &left.crashed.device, blocks, whole);
            match lost.first() {
                None => Ok(()),
                Some(first) => Err(Oracle::Promise.says(format!(
                    "{} blocks are not what was acknowledged, first {first}",
                    lost.len()
                ))),
            }
        });
        let Err(finding) = judged else {
            continue;
        };
        let image = keep
            .map(|dir| -> Result<String> {
                std::fs::create_dir_all(dir)?;
                let path = dir.join(format!("{}-{}.img", round.seed, told.images));
                left.crashed.device.save(&path)?;
                if let Some(region) = &left.crashed.region {
                    std::fs::write(path.with_extension("region"), region.to_vec())?;
                }
                Ok(path.display().to_string())
            })
            .transpose()
            .context("keeping an image")?;
        told.broken.push(Broken {
            round: round.clone(),
            moment: left.moment,
            detail: finding.to_string(),
            lost,
            image,
        });
    }
    Ok(told)
}

/// The settings of a test; rounds take all combinations in turn.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The ends of rounds.
    pub ends: Vec<End>,
    /// Journals.
    pub journals: Vec<String>,
    /// Bytes in a block.
    pub blocks: Vec<u32>,
    /// Sizes of journals in MiB.
    pub journals_mib: Vec<u64>,
    /// Bytes of regions for sync records, for journals that have these; 0: no region.
    pub regions: Vec<u64>,
    /// Numbers of overwriting threads.
    pub writers: Vec<usize>,
    /// Numbers of changing threads.
    pub changers: Vec<usize>,
    /// Numbers of requests that fail.
    pub failing: Vec<u64>,
    /// Number of preallocated files.
    pub files: usize,
    /// Whether threads share files.
    pub shared: Vec<bool>,
    /// The ways to sync overwrites.
    pub syncs: Vec<SyncBy>,
    /// Longest time until the end of a round in ms.
    pub millis: u64,
}

/// The journals that are tried if none is named.
pub const JOURNALS: [&str; 11] = [
    "ordered",
    "ijournal",
    "writeback",
    "writeback,sync=file",
    "data",
    "data,sync=file",
    "data,data=overwrites",
    "ldj",
    "stet",
    "zjournal,lanes=2",
    "zjournal,data=journal,lanes=2,commits=apart",
];

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ends: vec![End::Kill, End::Flush, End::Write, End::Cut],
            journals: JOURNALS.map(String::from).to_vec(),
            blocks: vec![4096, 1024],
            journals_mib: vec![4, 64],
            regions: vec![0, 1 << 20],
            writers: vec![1, 4, 8],
            changers: vec![1, 2],
            failing: vec![1, u64::MAX],
            files: 1500,
            shared: vec![false, true],
            syncs: vec![
                SyncBy::Fsync,
                SyncBy::Fsync,
                SyncBy::Fdatasync,
                SyncBy::Osync,
                SyncBy::None,
            ],
            millis: 300,
        }
    }
}

impl Settings {
    /// Round number `n`: journals take turns first, then the other settings; its seed is `seed +
    /// n`.
    pub fn round(&self, seed: u64, n: u64) -> Round {
        let mut rest = n as usize;
        let mut turn = |count: usize| {
            let i = rest % count.max(1);
            rest /= count.max(1);
            i
        };
        let journal = self.journals[turn(self.journals.len())].clone();
        let end = self.ends[turn(self.ends.len())];
        let writers = self.writers[turn(self.writers.len())];
        let block = self.blocks[turn(self.blocks.len())];
        let journal_mib = self.journals_mib[turn(self.journals_mib.len())];
        let failing = self.failing[turn(self.failing.len())];
        let changers = self.changers[turn(self.changers.len())];
        let shared = self.shared[turn(self.shared.len())];
        let region = self.regions[turn(self.regions.len())];
        let has_records = |spec: JournalSpec| spec.options.journal.has_records();
        let has_records = journal.parse().is_ok_and(has_records);
        Round {
            end,
            journal,
            block,
            journal_mib,
            region: (has_records && region > 0).then_some(region),
            writers,
            changers,
            files: self.files,
            shared,
            syncs: self.syncs.clone(),
            millis: self.millis,
            failing,
            seed: seed.wrapping_add(n),
        }
    }
}

/// The sums over the rounds with one journal and one end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Number of rounds.
    pub rounds: u64,
    /// Rounds in which the intended fault happened.
    pub hit: u64,
    /// Images that were recovered and judged.
    pub images: u64,
    /// Acknowledged versions and operations.
    pub acked: u64,
    /// Images with a broken promise.
    pub broken: u64,
    /// Blocks with wrong content.
    pub lost: u64,
}

impl Tally {
    /// Counts a round.
    pub fn add(&mut self, told: &Told) {
        self.rounds += 1;
        self.hit += u64::from(told.hit);
        self.images += told.images;
        self.acked += told.acked;
        self.broken += told.broken.len() as u64;
        self.lost += told.broken.iter().map(|b| b.lost.len() as u64).sum::<u64>();
    }
}
