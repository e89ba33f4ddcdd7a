//! Misbehaving devices: flushes that do nothing, writes that land elsewhere, bits that rot.
//!
//! The crash model excludes these faults, so not all of them can be noticed. Damage that checksums
//! cover must not stay silent; other silent damage is counted, with the reason.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Serialize;
use stetfs::low::{BlockDevice, FsOptions, MemDevice};
use stetfs_block::{Event, Log, Replay};

use crate::judge::space::{self, Owner};
use crate::judge::{gone, tree, use_it};
use crate::machine::Crashed;
use crate::newest;
use crate::record::Recording;
use crate::state::{Why, points};
use crate::tree::Seen;
use crate::volume::open;
use crate::work::{Progresses, Work};

/// How a device misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A flush was acknowledged and did nothing, and the power went some flushes later.
    LostFlush,
    /// A write landed in another block.
    Misdirected,
    /// A bit of the log changed while the power was off.
    RotInLog,
    /// A bit of the newest commit block changed (with async_commit: of the whole newest
    /// transaction; in the StetFS log: of a frame that no later one vouches for).
    RotInLastCommit,
    /// A bit of metadata changed.
    RotInMetadata,
    /// A bit of file data changed.
    RotInData,
}

impl Fault {
    const ALL: [Fault; 6] = [
        Fault::LostFlush,
        Fault::Misdirected,
        Fault::RotInLog,
        Fault::RotInLastCommit,
        Fault::RotInMetadata,
        Fault::RotInData,
    ];

    /// The reason why silence about this fault is no defect; `None` if it is one.
    pub fn excuse(self) -> Option<&'static str> {
        match self {
            Fault::LostFlush => Some(
                "a device that keeps old blocks keeps their old checksums: nothing in them says that \
                 newer ones were acknowledged",
            ),
            Fault::Misdirected => Some(
                "what the write should have replaced is old but sound, and file data, where it may \
                 have landed, has no checksum",
            ),
            Fault::RotInLastCommit => Some(
                "a commit block that no longer names its transaction (with async_commit any block of the \
                 transaction, in the StetFS log any of the frame, that does not match its checksum), with nothing \
                 behind it that says it was durable, is what a power cut in the middle of a commit leaves",
            ),
            Fault::RotInData => Some("ext4 keeps no checksum of file data"),
            Fault::RotInLog | Fault::RotInMetadata => None,
        }
    }
}

/// The fate of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// Everything promised is there.
    Correct,
    /// Opening or using the volume fails with an error.
    Error(String),
    /// Something is wrong, and there is no error.
    Silent(String),
}

/// The fates of all volumes with one fault.
#[derive(Clone, Debug, Serialize)]
pub struct Tally {
    /// The fault.
    pub fault: Fault,
    /// Number of volumes tried.
    pub tried: u64,
    /// Volumes that kept everything promised.
    pub correct: u64,
    /// Volumes that reported a clear error.
    pub errors: u64,
    /// Volumes with damage and no error.
    pub silent: u64,
    /// The reason why silence is no defect.
    pub excuse: Option<&'static str>,
    /// An example of an error, as the user sees it.
    pub error: Option<String>,
    /// An example of silent damage.
    pub example: Option<String>,
}

impl Tally {
    /// Whether there was silent damage of a kind that must be noticed.
    pub fn is_defect(&self) -> bool {
        self.silent > 0 && self.excuse.is_none()
    }
}

/// Tries `each` volumes with each fault, on the workload of a recording.
///
/// # Errors
/// The sound volume cannot be recovered.
pub fn try_all(recording: &Recording, each: u64, seed: u64) -> Result<Vec<Tally>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let stage = Stage::of(recording)?;
    Ok(Fault::ALL
        .into_iter()
        .map(|fault| {
            let mut tally = Tally {
                fault,
                tried: 0,
                correct: 0,
                errors: 0,
                silent: 0,
                excuse: fault.excuse(),
                error: None,
                example: None,
            };
            for _ in 0..each {
                let Some((what, fate)) = stage.play(fault, &mut rng) else {
                    continue;
                };
                tally.tried += 1;
                match fate {
                    Fate::Correct => tally.correct += 1,
                    Fate::Error(e) => {
                        tally.errors += 1;
                        tally.error.get_or_insert(format!("{what}: {e}"));
                    }
                    Fate::Silent(e) => {
                        tally.silent += 1;
                        tally.example.get_or_insert(format!("{what}: {e}"));
                    }
                }
            }
            tally
        })
        .collect())
}

/// A recording, and the crashes of it at which synced work is only in the log.
struct Stage<'r> {
    recording: &'r Recording,
    /// Events at which a sync was just acknowledged.
    acked: Vec<usize>,
}

impl Stage<'_> {
    fn of(recording: &Recording) -> Result<Stage<'_>> {
        let acked: Vec<usize> = points(&recording.log, recording.start())
            .into_iter()
            .filter(|(event, why)| *why == Why::Acked && *event < recording.log.len())
            .map(|(event, _)| event)
            .collect();
        acked
            .first()
            .context("the workload has no acknowledged operation")?;
        Ok(Stage { recording, acked })
    }

    fn work(&self) -> &Work {
        &self.recording.work
    }

    fn crash(&self, log: &Log, event: usize, all: bool) -> MemDevice {
        let mut replay = Replay::new(&self.work().base.image, log);
        replay.advance_to(event);
        if all {
            replay.everything()
        } else {
            replay.only_durable()
        }
    }

    /// One volume with the fault: a description of the damage, and the volume's fate. `None` where
    /// the fault does not apply.
    fn play(&self, fault: Fault, rng: &mut fastrand::Rng) -> Option<(String, Fate)> {
        let log = &self.recording.log;
        let event = *rng.choice(&self.acked)?;
        let progress = self.work().progress_at(log, event);
        match fault {
            Fault::LostFlush => {
                let flushes: Vec<u64> = log.events[..event]
                    .iter()
                    .filter_map(|e| match e {
                        Event::Flush { id } => Some(*id),
                        _ => None,
                    })
                    .collect();
                let lost = *rng.choice(&flushes)?;
                let mut changed = log.clone();
                for e in &mut changed.events {
                    // The flush is reported as failed; the writes that it covered stay uncertain.
                    if let Event::Done { id, ok } = e
                        && *id == lost
                    {
                        *ok = false;
                    }
                }
                // A later flush would cover these writes, so the cut comes before it.
                let at = log
                    .events
                    .iter()
                    .position(|e| matches!(e, Event::Done { id, .. } if *id == lost))?;
                let next = log.events[at..]
                    .iter()
                    .position(|e| matches!(e, Event::Flush { .. }))
                    .map_or(log.len(), |n| at + n);
                let progress = self.work().progress_at(log, next);
                let image = self.crash(&changed, next, false);
                Some((format!("flush {lost} lost"), self.fate(&image, &progress)))
            }
            Fault::Misdirected => {
                let writes: Vec<usize> = (0..event)
                    .filter(|i| matches!(log.events[*i], Event::Write { .. }))
                    .collect();
                let which = *rng.choice(&writes)?;
                let mut changed = log.clone();
                let size = self.work().base.image.size();
                let block = u64::from(self.work().base.block);
                if let Event::Write { offset, data, .. } = &mut changed.events[which] {
                    *offset = rng.u64(0..(size - data.len() as u64) / block) * block;
                }
                let image = self.crash(&changed, event, true);
                Some((
                    format!("the write of event {which} landed elsewhere"),
                    self.fate(&image, &progress),
                ))
            }
            Fault::RotInLog | Fault::RotInLastCommit | Fault::RotInMetadata | Fault::RotInData => {
                let image = self.crash(log, event, false);
                let blocks = self.blocks(&image, fault)?;
                let (nr, owner) = *rng.choice(&blocks)?;
                let block = u64::from(self.work().base.block);
                let at = nr * block + rng.u64(0..block);
                let mut byte = [0];
                image.read(at, &mut byte).ok()?;
                image.write(at, &[byte[0] ^ 1 << rng.u8(0..8)]).ok()?;
                Some((
                    format!("a bit of byte {at}, {owner:?} block {nr}, turned"),
                    self.fate(&image, &progress),
                ))
            }
        }
    }

    /// The blocks in which a bit can rot, each with its owner once the volume is recovered.
    fn blocks(&self, image: &MemDevice, fault: Fault) -> Option<Vec<(u64, Owner)>> {
        let device = Arc::new(image.fork());
        let fs = open(&device, &self.work().options).ok()?;
        fs.unmount().ok()?;
        gone(fs).ok()?;
        let owners = space::check(&device).ok()?;
        let block = u64::from(self.work().base.block);
        let mut bytes = vec![0; block as usize];
        let last = newest::unvouched(image, &owners, self.work()).unwrap_or_default();
        let wanted = |nr: u64, owner: &Owner| match fault {
            Fault::RotInLog => *owner == Owner::Journal && !last.contains(&nr),
            Fault::RotInLastCommit => last.contains(&nr),
            Fault::RotInData => *owner == Owner::Data,
            _ => matches!(
                owner,
                Owner::Super
                    | Owner::Bitmap
                    | Owner::InodeTable
                    | Owner::ExtentNode
                    | Owner::Xattr
                    | Owner::Directory
            ),
        };
        let found: Vec<(u64, Owner)> = owners
            .iter()
            .filter(|(nr, owner)| {
                // Rot in a block that was never written cannot be noticed.
                wanted(*nr, owner)
                    && image.read(nr * block, &mut bytes).is_ok()
                    && bytes.iter().any(|b| *b != 0)
            })
            .collect();
        (!found.is_empty()).then_some(found)
    }

    fn fate(&self, image: &MemDevice, progress: &Progresses) -> Fate {
        let work = self.work();
        let device = Arc::new(image.fork());
        let fs = match open(&device, &work.options) {
            Ok(fs) => fs,
            Err(e) => return Fate::Error(e.to_string()),
        };
        let seen = match Seen::capture(&fs) {
            Ok(seen) => seen,
            Err(e) => {
                let _ = gone(fs);
                return blame(e);
            }
        };
        let judged = work.judge(&seen, progress);
        let used = use_it(&fs, &seen);
        let closed = fs.unmount();
        let _ = gone(fs);
        if let Err(e) = judged {
            return Fate::Silent(e.detail);
        }
        if let Err(e) = used {
            return blame(e);
        }
        if let Err(e) = closed {
            return Fate::Error(e.to_string());
        }
        // The volume is walked a second time, opened read-only: everything written since must be
        // readable.
        let options = FsOptions {
            read_only: true,
            ..work.options.clone()
        };
        match tree(&Crashed::of(device.fork()), &options) {
            Ok(_) => Fate::Correct,
            Err(e) => blame(e.detail),
        }
    }
}

/// The fate that a message of the walk stands for: an error, or damage that raised none.
fn blame(what: String) -> Fate {
    if what.contains("damaged") || what.contains("os error") || what.contains("I/O") {
        Fate::Error(what)
    } else {
        Fate::Silent(what)
    }
}
