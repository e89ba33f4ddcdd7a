//! The setup of a comparison: the file systems, and the storage of each.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use stetfs::low::{Composition, DataMode, Preset};
use stetfs_flash::Model;

use crate::compare::SqliteJournal;
use crate::compare::format::Format;

/// A file system and its mount options for the comparison.
#[derive(Clone, Debug, Default)]
pub struct PeerSpec {
    /// Its name in the report.
    pub name: String,
    /// Mount options (`-o`).
    pub options: String,
    /// Size of its journal in MiB, if it differs from the others'.
    pub journal_mib: Option<u32>,
    /// The parts of it that are in this machine's memory, whatever the storage of the others.
    pub memory: InMemory,
    /// The file system.
    pub format: Format,
    /// Whether database servers on it protect their pages from torn writes; `None`: where a crash
    /// may tear them.
    pub protects: Option<bool>,
    /// The journal mode of SQLite under the phone loads.
    pub sqlite: SqliteJournal,
    /// Another `stetfs` program than the others', e.g. an older one. Results of the library are
    /// then taken on the mount, too.
    pub program: Option<PathBuf>,
}

/// The parts of a file system that are in a file in memory, behind a loop device, as a substitute
/// for a RAM disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InMemory {
    /// Nothing.
    #[default]
    Nothing,
    /// Its journal, which is then on a separate device (ext4).
    Journal,
    /// The whole. There is no simulated device below it.
    All,
}

/// A file system of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelFs {
    /// ext4, `data=ordered`.
    Ordered,
    /// ext4, `data=journal`.
    Journal,
    /// ext4, `data=writeback`.
    Writeback,
    /// ext4 with fast commits.
    FastCommit,
    /// XFS.
    Xfs,
}

impl From<KernelFs> for PeerSpec {
    fn from(fs: KernelFs) -> Self {
        let (name, options, format) = match fs {
            KernelFs::Ordered => ("ext4 ordered", "data=ordered", Format::Ext4),
            KernelFs::Journal => ("ext4 journal", "data=journal", Format::Ext4),
            KernelFs::Writeback => ("ext4 writeback", "data=writeback", Format::Ext4),
            KernelFs::FastCommit => ("ext4 fast_commit", "data=ordered", Format::FastCommit),
            KernelFs::Xfs => ("XFS", "", Format::Xfs),
        };
        Self {
            name: name.into(),
            options: options.into(),
            format,
            ..Self::default()
        }
    }
}

impl PeerSpec {
    /// Whether one write call up to 1 MiB is one transaction of StetFS: data is journaled, and the
    /// kernel passes writes on unsplit.
    pub(super) fn whole_writes(&self, journal: &Composition) -> bool {
        let option = |name: &str| self.options.split(',').any(|o| o == name);
        journal.data() == DataMode::Journal && option("direct_io") && !option("writeback_cache")
    }

    /// Mount options with a value: name and value.
    fn values(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> {
        self.options.split(',').filter_map(|o| o.split_once('='))
    }

    /// The value of a mount option; the last occurrence counts.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let said = self.values().rfind(|(said, _)| *said == name);
        said.map(|(_, value)| value)
    }

    /// The journal of StetFS.
    pub(super) fn journal(&self) -> Result<Composition> {
        let preset = self.value("journal");
        let preset = preset.map_or(Ok(Preset::default()), str::parse)?;
        let said = self
            .values()
            .filter(|(name, _)| stetfs::low::is_option(name));
        Ok(Composition::new(preset, said)?)
    }
}

/// The setup of a comparison.
#[derive(Clone, Debug)]
pub struct PeersConfig {
    /// Size of each image, bytes.
    pub image_bytes: u64,
    /// Size of the journals, MiB.
    pub journal_mib: u32,
    /// The simulated device, in memory, below each; `None`: a file.
    pub model: Option<Model>,
    /// Each image is a file on an XFS of its own, which can share its blocks (reflinks); StetFS
    /// opens the file directly. Not with a simulated device.
    pub xfs: bool,
    /// The simulated device has aged flash, which reports its wear, and can share pages; StetFS
    /// opens it directly.
    pub flash: bool,
    /// The kernel's mounts. Ratios are relative to the first.
    pub kernel: Vec<PeerSpec>,
    /// The `stetfs` program, e.g. the running one.
    pub stetfs: Option<PathBuf>,
    /// StetFS mounts.
    pub presets: Vec<PeerSpec>,
    /// Before a workload mounts again, free memory is brought into the state that it has on a
    /// machine that has been up for long (free page reporting of virtual machines).
    pub untouched: bool,
}

impl PeersConfig {
    /// Kernel ext4 with ordered and with journalled data, and StetFS with these presets.
    pub fn new(stetfs: Option<PathBuf>, presets: Vec<PeerSpec>) -> Self {
        Self {
            image_bytes: 2 << 30,
            journal_mib: 128,
            model: None,
            xfs: false,
            flash: false,
            kernel: [KernelFs::Ordered, KernelFs::Journal]
                .map(PeerSpec::from)
                .into(),
            stetfs,
            presets,
            untouched: false,
        }
    }

    /// Whether the storage of the images can share blocks.
    pub(super) fn shares(&self) -> bool {
        self.xfs || (self.model.is_some() && self.flash)
    }
}
