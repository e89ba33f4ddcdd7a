//! Who recovers the volumes, and what comes of it.

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

/// Who recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reader {
    /// The library.
    Stetfs,
    /// `e2fsck -fy`.
    E2fsck,
    /// A mount.
    Kernel,
}

/// A kernel's volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// `-O` of mke2fs.
    pub features: String,
    /// Bytes in a block.
    pub block: u32,
    /// Mount options.
    pub options: String,
    /// Where the images of examples are kept.
    pub keep: Option<PathBuf>,
}

impl Volume {
    pub(super) fn make(&self) -> Result<MemDevice> {
        let has = |feature: &str| self.features.split(',').any(|f| f == feature);
        // Linux 6.18 hits a BUG (fs/ext4/extents.c:3230), and sync(2) hangs from then on.
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

    /// The kernel that mounts it.
    pub(super) fn kernel(&self) -> System {
        System::Kernel {
            fstype: "ext4".into(),
            options: self.options.clone(),
        }
    }
}

/// What a reader made of an image.
pub(super) struct Reading {
    pub(super) seen: Seen,
    /// What e2fsck finds afterwards.
    pub(super) unsound: Option<String>,
}

impl Reader {
    /// All of them, StetFS first.
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

/// What came of one reader and image.
pub(super) struct Outcome {
    pub(super) by: Reader,
    pub(super) reading: Result<Reading, String>,
    /// What was synced, or what a program was told, and is not there.
    pub(super) lost: Option<String>,
}

impl Outcome {
    /// Has a crashed volume recovered.
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
