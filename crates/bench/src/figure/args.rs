//! The arguments of `bench figure`, and the comparisons that they describe.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use stetfs_flash::Model;

use super::part::Part;
use crate::compare::{
    Beside, CompareConfig, PeerSpec, Peers, PeersConfig, Report, Sizes, Workload,
};

/// The figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// LDJ, figures 4 and 5 and tables 1 and 2: server profiles, PostMark.
    LdjServers,
    /// LDJ, figure 6 and tables 1 and 2: git clone, SQLite, copying incompressible files.
    LdjApplications,
    /// LDJ, figure 6 and tables 1 and 2: database servers.
    LdjOltp,
    /// LDJ, figures 7 and 8: performance by size of the journal.
    LdjJournalSize,
    /// LDJ, figure 9: the time of a recovery.
    LdjRecovery,
    /// AFS, section 3.4.5: the time of a recovery of a full journal, by sharing and by copying.
    AfsRecovery,
    /// AFS, figure 3-5: random writes and fsync, a journal of 128 MiB, on simulated SSDs in
    /// simulated time.
    #[value(name = "afs-3-5")]
    AfsSmallJournal,
    /// AFS, figure 3-6: the same, a journal of 1 GiB.
    #[value(name = "afs-3-6")]
    AfsLargeJournal,
    /// AFS, figure 3-7: a mail server and a web server, a journal of 128 MiB, on simulated SSDs in
    /// simulated time.
    #[value(name = "afs-3-7")]
    AfsServers,
    /// AFS, figure 3-8: MariaDB with and without its double writes, on mounts; simulated SSDs
    /// share.
    #[value(name = "afs-3-8")]
    AfsDatabases,
    /// AFS, figure 3-9: SQLite with a rollback journal, with a write-ahead log, and without a
    /// journal on atomic files, on mounts, under loads like those of phones.
    #[value(name = "afs-3-9")]
    AfsSqlite,
    /// iJournaling, figures 6 to 8: fsync beside a writer without syncs.
    IjournalFsync,
    /// iJournaling, figure 9: threads that append and sync.
    IjournalThreads,
    /// iJournaling, figures 10 and 11: databases and a mail server, alone and beside a writer.
    IjournalApplications,
    /// Z-Journal, figures 6 and 9 to 11: the same work with increasing numbers of threads, in the
    /// library and on a mount.
    Zjournal,
    /// NVM, figure 4: a mail server, on a simulated NVMe SSD and on memory in the library, and
    /// mounted.
    #[value(name = "nvm-4")]
    NvmVarmail,
    /// NVM, figure 5: creating files of 4 KiB, in the same places.
    #[value(name = "nvm-5")]
    NvmFiles,
    /// As figure 3-10, with StetFS on the log-structured layer: segments cleaned by copies and by
    /// SHARE, on simulated SSDs in simulated time.
    LogCleaning,
    /// From no paper: latency just after a mount, and with a full cache.
    Latency,
}

impl Name {
    /// Whether it only compares mounts of the kernel's file systems and of StetFS.
    pub(super) fn is_of_mounts(self) -> bool {
        match self {
            Name::LdjServers
            | Name::LdjApplications
            | Name::LdjOltp
            | Name::LdjJournalSize
            | Name::AfsDatabases
            | Name::AfsSqlite
            | Name::IjournalFsync
            | Name::IjournalThreads
            | Name::IjournalApplications
            | Name::Latency => true,
            Name::LdjRecovery
            | Name::AfsRecovery
            | Name::AfsSmallJournal
            | Name::AfsLargeJournal
            | Name::AfsServers
            | Name::Zjournal
            | Name::NvmVarmail
            | Name::NvmFiles
            | Name::LogCleaning => false,
        }
    }
}

/// Arguments of `bench figure`.
#[derive(Clone, Debug, Args)]
pub struct FigureArgs {
    /// The figure.
    pub(super) name: Name,
    /// Devices to run on: sata-ssd, nvme-ssd, disk (simulated, in memory), file (a loop device over
    /// a written file; for afs-recovery an image on an XFS in one), or xfs (each image a file on an
    /// XFS of its own in a loop device, which can share blocks; for figures of mounts). zjournal
    /// and nvm run in the library on simulated devices and on memory, which takes no time, and
    /// mounted on file.
    #[arg(long = "device", value_name = "NAME", value_parser = device)]
    pub(super) devices: Vec<Device>,
    /// Rounds of each workload.
    #[arg(short, long, default_value_t = 3)]
    pub(super) rounds: u32,
    /// Run only these numbers of threads, of those in the figure (afs-3-5 and afs-3-6: 1 and 10;
    /// zjournal and nvm: 1, 2, 4, 8, 16).
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(super) threads: Vec<u64>,
    /// Do less work per round, for a first impression. The results support no claim.
    #[arg(long)]
    pub(super) quick: bool,
    /// Write the tables, JSON and SVG files into this directory, too. Each run of a workload is
    /// kept there when it is done (…-points.jsonl), and the same program continues from there.
    #[arg(short, long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

/// The storage on which a figure runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Device {
    /// A file behind a loop device.
    File,
    /// A file on an XFS in a loop device.
    Xfs,
    /// Memory.
    Memory,
    /// A simulated device.
    Simulated(Model),
}

impl Device {
    pub(super) fn name(self) -> &'static str {
        match self {
            Device::File => "file",
            Device::Xfs => "xfs",
            Device::Memory => "memory",
            Device::Simulated(model) => model.name,
        }
    }

    /// The simulated device; `None` for a file.
    pub(super) fn model(self) -> Result<Option<Model>> {
        match self {
            Device::File | Device::Xfs => Ok(None),
            Device::Memory => bail!("only zjournal, nvm-4 and nvm-5 are run on memory"),
            Device::Simulated(model) => Ok(Some(model)),
        }
    }
}

pub(super) fn device(text: &str) -> std::result::Result<Device, String> {
    match text {
        "file" => Ok(Device::File),
        "xfs" => Ok(Device::Xfs),
        "memory" => Ok(Device::Memory),
        _ => text
            .parse()
            .map(Device::Simulated)
            .map_err(|e: stetfs_flash::UnknownModel| format!("{e}, file, xfs, and memory")),
    }
}

/// Mounts and workloads of a comparison.
pub(super) struct Spec {
    pub(super) kernel: Vec<PeerSpec>,
    pub(super) stetfs: Vec<PeerSpec>,
    pub(super) workloads: Vec<Workload>,
    /// The background writers, as in [`CompareConfig::beside`].
    pub(super) beside: Vec<Beside>,
    pub(super) image_mib: u64,
    /// Seconds per round of a server profile, if the journals must reach a steady state; `None`: as
    /// in `compare`.
    pub(super) profile_seconds: Option<u32>,
    /// Numbers of threads, if they differ from those of `compare`.
    pub(super) threads: Option<&'static [u32]>,
    /// Simulated devices have flash and SHARE, as in [`PeersConfig::flash`].
    pub(super) flash: bool,
}

impl FigureArgs {
    /// The requested numbers of threads, of those that a figure has.
    ///
    /// # Errors
    /// No requested number is in the figure.
    pub(super) fn wanted_threads<T: Copy + Debug + Into<u64>>(&self, all: &[T]) -> Result<Vec<T>> {
        let is_wanted = |n: &T| self.threads.is_empty() || self.threads.contains(&(*n).into());
        let wanted: Vec<T> = all.iter().copied().filter(is_wanted).collect();
        ensure!(
            !wanted.is_empty(),
            "the figure has {all:?} threads: leave --threads out, or name one of these"
        );
        Ok(wanted)
    }

    pub(super) fn devices(&self) -> Vec<Device> {
        if !self.devices.is_empty() {
            return self.devices.clone();
        }
        let simulated = Model::ALL.map(Device::Simulated);
        [&[Device::File][..], &simulated].concat()
    }

    /// The requested devices with flash; by default all simulated ones.
    pub(super) fn flash(&self) -> Vec<Model> {
        let simulated = |device| match device {
            Device::Simulated(model) => Some(model),
            Device::File | Device::Xfs | Device::Memory => None,
        };
        let models = self.devices().into_iter().filter_map(simulated);
        models.filter(|model| model.seek.is_none()).collect()
    }

    /// Saves the finished results of a part, so that an interruption loses none of them.
    pub(super) fn save(&self, part: &Part) -> Result<()> {
        self.out.as_deref().map_or(Ok(()), |dir| part.write(dir))
    }

    pub(super) fn compare(&self, stetfs: &Path, spec: &Spec) -> Result<Vec<Part>> {
        let part = |device| self.part(stetfs, device, spec);
        self.devices().into_iter().map(part).collect()
    }

    pub(super) fn part(&self, stetfs: &Path, device: Device, spec: &Spec) -> Result<Part> {
        let title = device.name().to_owned();
        let report = self
            .one(stetfs, device, spec)
            .with_context(|| format!("on {title}"))?;
        Ok(Part {
            title,
            report,
            threads: spec.threads,
        })
    }

    /// The amount of work per round.
    pub(super) fn sizes(&self, spec: &Spec) -> Sizes {
        let sizes = match self.quick {
            true => Sizes::quick(),
            false => Sizes::normal(),
        };
        let seconds = spec.profile_seconds.filter(|_| !self.quick);
        Sizes {
            profile_seconds: seconds.unwrap_or(sizes.profile_seconds),
            threads: spec.threads.unwrap_or(sizes.threads),
            ..sizes
        }
    }

    /// The file that keeps the runs on a device.
    pub(super) fn points(&self, device: Device) -> Option<PathBuf> {
        let name = self.name.to_possible_value()?;
        let file = format!("{}-{}-points.jsonl", name.get_name(), device.name());
        Some(self.out.as_ref()?.join(file))
    }

    pub(super) fn one(&self, stetfs: &Path, device: Device, spec: &Spec) -> Result<Report> {
        let config = PeersConfig {
            image_bytes: spec.image_mib << 20,
            model: device.model()?,
            xfs: device == Device::Xfs,
            flash: spec.flash,
            kernel: spec.kernel.clone(),
            ..PeersConfig::new(Some(stetfs.to_owned()), spec.stetfs.clone())
        };
        Peers::compare(&config, |c| CompareConfig {
            workloads: spec.workloads.clone(),
            beside: spec.beside.clone(),
            rounds: self.rounds,
            sizes: self.sizes(spec),
            saved: self.points(device),
            ..c
        })
    }
}
