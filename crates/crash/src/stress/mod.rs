//! Stress: threads overwrite files in place and sync them, while others create, rename, append and
//! sync; then the process is killed, the device fails, or the power is cut. What was acknowledged
//! must be there.
//!
//! Unlike the rest of the lab it does not repeat: the threads race, and a seed gives only their
//! choices and the moment of the end. What it finds is what takes a race.

mod blocks;
pub mod command;
mod ends;
mod round;

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
use crate::work::Work;

/// What was broken in a round.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// The round.
    pub round: Round,
    /// Which of its moments.
    pub moment: String,
    /// What was found instead of what was promised.
    pub detail: String,
    /// Blocks that lost an acknowledged version, or hold one that was never written.
    pub lost: Vec<LostBlock>,
    /// The image that was left, if it was kept; its region is beside it, with the extension
    /// `region`.
    pub image: Option<String>,
}

/// What came of one round.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Told {
    /// Versions and operations that were acknowledged.
    pub acked: u64,
    /// Images that were recovered and judged.
    pub images: u64,
    /// The fault that was to happen did.
    pub hit: bool,
    /// What was broken.
    pub broken: Vec<Broken>,
}

/// Does one round, and judges what it left. With `fsck` e2fsck looks at the recovered image.
///
/// # Errors
/// The round cannot be done, or an operation failed on a sound device.
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
        // As it is opened again; nothing commits by itself meanwhile.
        options: FsOptions {
            commit_secs: 3600,
            ..options
        },
        before: vec![0; scripts.len()],
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

/// The settings that are run one after the other: all combinations.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How rounds end.
    pub ends: Vec<End>,
    /// Journals.
    pub journals: Vec<String>,
    /// Bytes in a block.
    pub blocks: Vec<u32>,
    /// Sizes of journals, MiB.
    pub journals_mib: Vec<u64>,
    /// Bytes of regions for records of files, of journals that have them; 0: there is none.
    pub regions: Vec<u64>,
    /// Overwriting threads.
    pub writers: Vec<usize>,
    /// Changing threads.
    pub changers: Vec<usize>,
    /// Requests that fail.
    pub failing: Vec<u64>,
    /// Preallocated files.
    pub files: usize,
    /// Whether threads share files.
    pub shared: Vec<bool>,
    /// How is synced.
    pub syncs: Vec<SyncBy>,
    /// The longest time until the end, ms.
    pub millis: u64,
}

/// All journals that are tried unless one is named.
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
    "zjournal,data=journal,lanes=2",
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
    /// Round number `n`: journals take turns, then the rest; its seed is `seed + n`.
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

/// What became of the rounds with one journal and one end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Rounds in which the fault that was to happen did.
    pub hit: u64,
    /// Images that were recovered and judged.
    pub images: u64,
    /// Versions and operations that were acknowledged.
    pub acked: u64,
    /// Images in which a promise is broken.
    pub broken: u64,
    /// Blocks that were lost.
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
