//! The readers that recover a crashed volume, and their results.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde::Serialize;
use stetfs::low::{MemDevice, preset};
use stetfs_testkit::{Image, Mkfs};

use crate::peers::classify::{Broken, classify};
use crate::peers::recorded::Task;
use crate::peers::system::System;
use crate::tree::Seen;
use crate::volume::{DIRS, by_e2fsck, fsck};
use crate::workload::Progress;

/// A reader: a program that recovers volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reader {
    /// The StetFS library.
    Stetfs,
    /// `e2fsck -fy`.
    E2fsck,
    /// A mount by the kernel.
    Kernel,
}

/// A volume to be made for the kernel.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Features, as for `-O` of mke2fs.
    pub features: String,
    /// Bytes in a block.
    pub block: u32,
    /// Mount options.
    pub options: String,
    /// Directory for the images of examples.
    pub keep: Option<PathBuf>,
}

impl Volume {
    pub(super) fn make(&self) -> Result<MemDevice> {
        let has = |feature: &str| self.features.split(',').any(|f| f == feature);
        // Linux 6.18 meets a BUG here (fs/ext4/extents.c:3230), and sync(2) hangs from then on.
        ensure!(
            !(has("fast_commit") && has("^extents")),
            "the kernel does not survive fast commits of files that are mapped by blocks"
        );
        let mut mkfs = Mkfs::blocks(self.block).journal_mib(4);
        for feature in self.features.split(',').filter(|f| !f.is_empty()) {
            mkfs = mkfs.feature(feature);
        }
        let image = Image::make(32 << 20, &mkfs)?;
        Ok(MemDevice::load(image.path())?)
    }

    /// The system that mounts the volume by the kernel.
    pub(super) fn kernel(&self) -> System {
        System::Kernel {
            fstype: "ext4".into(),
            options: self.options.clone(),
        }
    }
}

/// The result of a recovery.
pub(super) struct Reading {
    pub(super) seen: Seen,
    /// The errors that e2fsck finds afterwards.
    pub(super) unsound: Option<String>,
}

impl Reader {
    /// All readers, StetFS first.
    pub(super) const ALL: [Reader; 3] = [Reader::Stetfs, Reader::E2fsck, Reader::Kernel];

    fn read(self, crashed: &MemDevice, volume: &Volume) -> Result<Reading, String> {
        let stetfs = System::Stetfs(preset::ORDERED);
        let (seen, after) = match self {
            Reader::Stetfs => stetfs.recover(crashed)?,
            Reader::E2fsck => {
                let (after, _) = by_e2fsck(crashed, &["-fy"])?;
                (stetfs.recover(&after)?.0, after)
            }
            Reader::Kernel => volume.kernel().recover(crashed)?,
        };
        Ok(Reading {
            seen,
            unsound: fsck(&after).err(),
        })
    }
}

/// The outcome of one reader on one image.
pub(super) struct Outcome {
    pub(super) by: Reader,
    pub(super) reading: Result<Reading, String>,
    /// Synced data, or data that a program was told is durable, that is gone.
    pub(super) lost: Option<String>,
}

impl Outcome {
    /// Has a reader recover a crashed volume.
    pub(super) fn of(
        by: Reader,
        crashed: &MemDevice,
        volume: &Volume,
        task: &Task,
        told: Progress,
    ) -> Outcome {
        let reading = by.read(crashed, volume);
        let lost = match (&reading, task) {
            (Ok(reading), Task::Script(script)) => {
                let Broken { lost, .. } = classify(&reading.seen, DIRS[0], script, told);
                lost
            }
            (Ok(reading), Task::Program(p)) => {
                (p.check)(&reading.seen, DIRS[0], (told.begun, told.acked)).err()
            }
            (Err(_), _) => None,
        };
        Outcome { by, reading, lost }
    }
}
