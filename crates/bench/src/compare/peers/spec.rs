//! What is to be set up: the file systems, and what each of them is on.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use stetfs::low::{Composition, DataMode, Preset};
use stetfs_flash::Model;

use crate::compare::SqliteJournal;
use crate::compare::format::Format;

/// A way to mount a file system for the comparison.
#[derive(Clone, Debug, Default)]
pub struct PeerSpec {
    /// Its name in the report.
    pub name: String,
    /// Mount options (`-o`).
    pub options: String,
    /// Size of its journal in MiB, if it is another than the others'.
    pub journal_mib: Option<u32>,
    /// What of it is in this machine's memory, whatever the others are on.
    pub memory: InMemory,
    /// What is mounted.
    pub format: Format,
    /// Whether database servers on it protect their pages from writes that a crash tears; none:
    /// where it may tear them.
    pub protects: Option<bool>,
    /// How SQLite keeps its transactions whole, under the loads of phones.
    pub sqlite: SqliteJournal,
    /// Another `stetfs` program than the others', e.g. an older one. Rows by the library are then
    /// of the mount, too.
    pub program: Option<PathBuf>,
}

/// What of a file system is a file in memory, behind a loop device, as a stand-in for a RAM disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InMemory {
    /// Nothing.
    #[default]
    Nothing,
    /// Its journal, which is on a device of its own then (ext4).
    Journal,
    /// All of it. There is no simulated device below it.
    All,
}

/// One of the kernel's file systems.
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
    /// kernel passes writes on as they come.
    pub(super) fn whole_writes(&self, journal: &Composition) -> bool {
        let option = |name: &str| self.options.split(',').any(|o| o == name);
        journal.data() == DataMode::Journal && option("direct_io") && !option("writeback_cache")
    }

    /// Mount options that have a value: name and value.
    fn values(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> {
        self.options.split(',').filter_map(|o| o.split_once('='))
    }

    /// The value of a mount option; the last counts.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let said = self.values().rfind(|(said, _)| *said == name);
        said.map(|(_, value)| value)
    }

    /// StetFS's journal.
    pub(super) fn journal(&self) -> Result<Composition> {
        let preset = self.value("journal");
        let preset = preset.map_or(Ok(Preset::default()), str::parse)?;
        let said = self
            .values()
            .filter(|(name, _)| stetfs::low::is_option(name));
        Ok(Composition::new(preset, said)?)
    }
}

/// What is set up.
#[derive(Clone, Debug)]
pub struct PeersConfig {
    /// Size of each image in bytes.
    pub image_bytes: u64,
    /// Size of the journals in MiB.
    pub journal_mib: u32,
    /// A simulated device below each, in memory; else a file.
    pub model: Option<Model>,
    /// Each image is a file on an XFS of its own, which can share blocks of it (reflinks); StetFS
    /// is given the file as it is. With no simulated device.
    pub xfs: bool,
    /// The simulated device has flash, aged, which tells what becomes of it, and can share pages;
    /// StetFS is given it as it is.
    pub flash: bool,
    /// The kernel's mounts. The first is what ratios are to.
    pub kernel: Vec<PeerSpec>,
    /// The `stetfs` program, e.g. the running one.
    pub stetfs: Option<PathBuf>,
    /// StetFS mounts.
    pub presets: Vec<PeerSpec>,
    /// Where something is mounted again for a workload, free memory is first what it is on a
    /// machine that has been up for long (free page reporting of virtual machines).
    pub untouched: bool,
}

impl PeersConfig {
    /// Kernel ext4 with ordered and with journalled data, and StetFS with the presets of these
    /// options.
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

    /// Whether what an image is on can share its blocks.
    pub(super) fn shares(&self) -> bool {
        self.xfs || (self.model.is_some() && self.flash)
    }
}
