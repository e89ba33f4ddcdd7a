//! Figures of the papers, run again.
//!
//! A figure is a comparison of certain mounts on certain devices, or a measurement of its own, and
//! what the paper says.

mod afs;
mod afs_databases;
mod afs_servers;
mod afs_sqlite;
mod afs_writes;
mod by_threads;
mod full_log;
mod ijournal;
mod latency;
mod ldj;
mod log_cleaning;
mod modes;
mod nvm;
mod recovery;
mod simulated;
mod zjournal;

use std::fmt::Debug;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use stetfs_flash::Model;

use crate::compare::{
    Beside, CompareConfig, PeerSpec, Peers, PeersConfig, Report, Sizes, Workload, table,
};
use crate::files::write_all;
use crate::flash::claims_table;

/// The figures there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// LDJ, figures 4 and 5 and tables 1 and 2: server profiles, PostMark.
    LdjServers,
    /// LDJ, figure 6 and tables 1 and 2: git clone, SQLite, copying what does not compress.
    LdjApplications,
    /// LDJ, figure 6 and tables 1 and 2: database servers.
    LdjOltp,
    /// LDJ, figures 7 and 8: against the size of the journal.
    LdjJournalSize,
    /// LDJ, figure 9: the time of a recovery.
    LdjRecovery,
    /// AFS, section 3.4.5: the time of a recovery of a full journal that shares, and of one that
    /// writes.
    AfsRecovery,
    /// AFS, figure 3-5: random writes and fsync, a journal of 128 MiB, on simulated SSDs in their
    /// own time.
    #[value(name = "afs-3-5")]
    AfsSmallJournal,
    /// AFS, figure 3-6: the same, a journal of 1 GiB.
    #[value(name = "afs-3-6")]
    AfsLargeJournal,
    /// AFS, figure 3-7: a mail server and a web server, a journal of 128 MiB, on simulated SSDs in
    /// their own time.
    #[value(name = "afs-3-7")]
    AfsServers,
    /// AFS, figure 3-8: MariaDB with and without its double writes, mounted; simulated SSDs share.
    #[value(name = "afs-3-8")]
    AfsDatabases,
    /// AFS, figure 3-9: SQLite with a rollback journal, with a log, and without a journal on atomic
    /// files, mounted, under loads like those of phones.
    #[value(name = "afs-3-9")]
    AfsSqlite,
    /// iJournaling, figures 6 to 8: fsync beside a writer that syncs nothing.
    IjournalFsync,
    /// iJournaling, figure 9: threads that append and sync.
    IjournalThreads,
    /// iJournaling, figures 10 and 11: databases and a mail server, alone and beside a writer.
    IjournalApplications,
    /// Z-Journal, figures 6 and 9 to 11: the same work by more and more threads, in the library and
    /// on a mount.
    Zjournal,
    /// NVM, figure 4: a mail server, on a simulated NVMe SSD and on memory in the library, and
    /// mounted.
    #[value(name = "nvm-4")]
    NvmVarmail,
    /// NVM, figure 5: files of 4 KiB that are made, in the same places.
    #[value(name = "nvm-5")]
    NvmFiles,
    /// As figure 3-10, with StetFS on the log-structured layer: segments cleaned by copies and by
    /// SHARE, on simulated SSDs in their own time.
    LogCleaning,
    /// Of no paper: the time of requests just after a mount, and when the cache is full.
    Latency,
}

impl Name {
    /// Whether it compares mounts of the kernel's and of StetFS, and nothing else.
    fn is_of_mounts(self) -> bool {
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
    /// Which one.
    name: Name,
    /// Devices to run it on: sata-ssd, nvme-ssd, disk (simulated, in memory), or file (a loop
    /// device over a written file; for afs-recovery an image on an XFS in one), or xfs (each image
    /// a file on an XFS of its own in a loop device, which can share blocks; for the figures of
    /// mounts). zjournal and nvm are run in the library on the simulated ones and on memory, which
    /// takes no time, and mounted on file.
    #[arg(long = "device", value_name = "NAME", value_parser = device)]
    devices: Vec<Device>,
    /// Rounds of each workload.
    #[arg(short, long, default_value_t = 3)]
    rounds: u32,
    /// Only these numbers of threads, of those that the figure has (afs-3-5 and afs-3-6: 1 and
    /// 10; zjournal and nvm: 1, 2, 4, 8, 16).
    #[arg(long, value_name = "N", value_delimiter = ',')]
    threads: Vec<u64>,
    /// A first look: less work a round. What it shows counts for no claim.
    #[arg(long)]
    quick: bool,
    /// Also write the tables, JSON and SVG files into this directory. Each run of a workload is
    /// kept there when it is done (…-points.jsonl), and the same program goes on from there.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What a figure is run on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Device {
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
    fn name(self) -> &'static str {
        match self {
            Device::File => "file",
            Device::Xfs => "xfs",
            Device::Memory => "memory",
            Device::Simulated(model) => model.name,
        }
    }

    /// The simulated device; none for a file, wherever it is.
    fn model(self) -> Result<Option<Model>> {
        match self {
            Device::File | Device::Xfs => Ok(None),
            Device::Memory => bail!("only zjournal, nvm-4 and nvm-5 are run on memory"),
            Device::Simulated(model) => Ok(Some(model)),
        }
    }
}

fn device(text: &str) -> std::result::Result<Device, String> {
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

/// One table of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The device.
    pub title: String,
    /// What was measured.
    pub report: Report,
    /// The numbers of threads that the metrics of each workload are of, one after the other, where
    /// they make curves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<&'static [u32]>,
}

impl Part {
    /// Its directory in `dir`.
    fn place(&self, dir: &Path) -> PathBuf {
        let plain = |c: char| if c.is_alphanumeric() { c } else { '-' };
        let name: String = self.title.chars().map(plain).collect();
        dir.join(name)
    }

    fn write(&self, dir: &Path) -> Result<()> {
        self.report.write(&self.place(dir))
    }
}

/// A figure, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// What the paper says, or what is aimed at.
    pub paper: &'static str,
    /// A first look, whose claims do not count.
    pub quick: bool,
    /// What is claimed, the goal, and ours.
    pub claims: Vec<[String; 3]>,
    /// Our numbers.
    pub parts: Vec<Part>,
}

/// What a first look is worth.
const QUICK: &str =
    "A first look (--quick): less work a round. What it says of the claims does not count.";

impl Figure {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            let _ = writeln!(out, "{}\n{}", part.title, part.report.text());
        }
        if !self.claims.is_empty() {
            let _ = writeln!(out, "{}", table::text(&claims_table("goal", &self.claims)));
        }
        if self.quick {
            let _ = writeln!(out, "{QUICK}");
        }
        let _ = writeln!(out, "To compare with: {}", self.paper);
        out
    }

    /// As JSON.
    ///
    /// # Errors
    /// A number that JSON has not.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    fn write(&self, dir: &Path) -> Result<()> {
        for part in &self.parts {
            part.write(dir)?;
            if let Some(threads) = part.threads {
                let curves = by_threads::curves(self, part, threads)?;
                write_all(&part.place(dir), &[("curves.svg", curves)])?;
            }
        }
        let [text, json] = ["txt", "json"].map(|kind| format!("{}.{kind}", self.name));
        write_all(dir, &[(&text, self.text()), (&json, self.json()?)])
    }
}

/// Some mounts under some workloads.
struct Spec {
    kernel: Vec<PeerSpec>,
    stetfs: Vec<PeerSpec>,
    workloads: Vec<Workload>,
    /// What they run beside, as in [`CompareConfig::beside`].
    beside: Vec<Beside>,
    image_mib: u64,
    /// Seconds a round of a server profile, where the journals are to reach a steady state; none:
    /// as `compare` has it.
    profile_seconds: Option<u32>,
    /// Numbers of threads, where they are others than those of `compare`.
    threads: Option<&'static [u32]>,
    /// Simulated devices have flash and SHARE, as in [`PeersConfig::flash`].
    flash: bool,
}

impl FigureArgs {
    /// Of the numbers of threads that a figure has, those that were asked for.
    ///
    /// # Errors
    /// None of them was.
    fn wanted_threads<T: Copy + Debug + Into<u64>>(&self, all: &[T]) -> Result<Vec<T>> {
        let is_wanted = |n: &T| self.threads.is_empty() || self.threads.contains(&(*n).into());
        let wanted: Vec<T> = all.iter().copied().filter(is_wanted).collect();
        ensure!(
            !wanted.is_empty(),
            "the figure has {all:?} threads: leave --threads out, or name one of these"
        );
        Ok(wanted)
    }

    /// Measures; `stetfs` is the program to mount with.
    ///
    /// # Errors
    /// Not root, or something could not be set up.
    pub fn run(&self, stetfs: &Path) -> Result<Figure> {
        let name = self
            .name
            .to_possible_value()
            .map_or_else(String::new, |v| v.get_name().to_owned());
        let has_threads = matches!(
            self.name,
            Name::AfsSmallJournal
                | Name::AfsLargeJournal
                | Name::Zjournal
                | Name::NvmVarmail
                | Name::NvmFiles
        );
        ensure!(
            has_threads || self.threads.is_empty(),
            "--threads is for afs-3-5, afs-3-6, zjournal, nvm-4 and nvm-5: leave it out"
        );
        ensure!(
            self.name.is_of_mounts() || !self.devices.contains(&Device::Xfs),
            "{name} is not run on xfs: only figures of mounts are"
        );
        let (paper, spec) = match self.name {
            Name::LdjServers => (ldj::SERVERS, ldj::servers()),
            Name::LdjApplications => (ldj::APPLICATIONS, ldj::applications()),
            Name::LdjOltp => (ldj::APPLICATIONS, ldj::oltp()),
            Name::LdjJournalSize => (ldj::JOURNAL_SIZE, ldj::journal_size()),
            Name::LdjRecovery => {
                return self.write(name, ldj::RECOVERY, recovery::measure(self)?, vec![]);
            }
            Name::AfsRecovery => {
                return self.write(name, afs::RECOVERY, afs::measure(self)?, vec![]);
            }
            Name::AfsSmallJournal => {
                let parts = afs_writes::measure(self, afs_writes::SMALL)?;
                return self.write(name, afs_writes::SMALL_JOURNAL, parts, vec![]);
            }
            Name::AfsLargeJournal => {
                let parts = afs_writes::measure(self, afs_writes::LARGE)?;
                return self.write(name, afs_writes::LARGE_JOURNAL, parts, vec![]);
            }
            Name::AfsServers => {
                let parts = afs_servers::measure(self)?;
                return self.write(name, afs_servers::SERVERS, parts, vec![]);
            }
            Name::LogCleaning => {
                let parts = log_cleaning::measure(self)?;
                return self.write(name, log_cleaning::PAPER, parts, vec![]);
            }
            Name::AfsDatabases => {
                let parts = self.compare(stetfs, &afs_databases::spec())?;
                let claims = afs_databases::claims(&parts);
                return self.write(name, afs_databases::DATABASES, parts, claims);
            }
            Name::AfsSqlite => {
                let mut parts = self.compare(stetfs, &afs_sqlite::spec()?)?;
                afs_sqlite::mark(&mut parts)?;
                let claims = afs_sqlite::claims(&parts);
                return self.write(name, afs_sqlite::SQLITE, parts, claims);
            }
            Name::Zjournal => {
                let parts = zjournal::measure(self, stetfs)?;
                let claims = zjournal::claims(&parts);
                return self.write(name, zjournal::PAPER, parts, claims);
            }
            Name::NvmVarmail => {
                let parts = nvm::measure(nvm::FIGURE_4, self, stetfs)?;
                let claims = nvm::claims(nvm::FIGURE_4, &parts);
                return self.write(name, nvm::VARMAIL, parts, claims);
            }
            Name::NvmFiles => {
                let parts = nvm::measure(nvm::FIGURE_5, self, stetfs)?;
                let claims = nvm::claims(nvm::FIGURE_5, &parts);
                return self.write(name, nvm::FILES, parts, claims);
            }
            Name::IjournalFsync => (ijournal::FSYNC, ijournal::fsync()),
            Name::IjournalThreads => (ijournal::THREADS, ijournal::threads()),
            Name::IjournalApplications => (ijournal::APPLICATIONS, ijournal::applications()),
            Name::Latency => (latency::GOAL, latency::steady()),
        };
        self.write(name, paper, self.compare(stetfs, &spec)?, vec![])
    }

    fn write(
        &self,
        name: String,
        paper: &'static str,
        parts: Vec<Part>,
        claims: Vec<[String; 3]>,
    ) -> Result<Figure> {
        let figure = Figure {
            name,
            paper,
            quick: self.quick,
            claims,
            parts,
        };
        if let Some(dir) = &self.out {
            figure.write(dir)?;
        }
        Ok(figure)
    }

    fn devices(&self) -> Vec<Device> {
        if !self.devices.is_empty() {
            return self.devices.clone();
        }
        let simulated = Model::ALL.map(Device::Simulated);
        [&[Device::File][..], &simulated].concat()
    }

    /// The devices of flash among those asked for; without a word all that are simulated.
    fn flash(&self) -> Vec<Model> {
        let simulated = |device| match device {
            Device::Simulated(model) => Some(model),
            Device::File | Device::Xfs | Device::Memory => None,
        };
        let models = self.devices().into_iter().filter_map(simulated);
        models.filter(|model| model.seek.is_none()).collect()
    }

    /// Saves what is done of a part, so that an end in the middle loses nothing of it.
    fn save(&self, part: &Part) -> Result<()> {
        self.out.as_deref().map_or(Ok(()), |dir| part.write(dir))
    }

    fn compare(&self, stetfs: &Path, spec: &Spec) -> Result<Vec<Part>> {
        let part = |device| self.part(stetfs, device, spec);
        self.devices().into_iter().map(part).collect()
    }

    fn part(&self, stetfs: &Path, device: Device, spec: &Spec) -> Result<Part> {
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

    /// How much work a round is.
    fn sizes(&self, spec: &Spec) -> Sizes {
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

    /// Where the runs on a device are kept.
    fn points(&self, device: Device) -> Option<PathBuf> {
        let name = self.name.to_possible_value()?;
        let file = format!("{}-{}-points.jsonl", name.get_name(), device.name());
        Some(self.out.as_ref()?.join(file))
    }

    fn one(&self, stetfs: &Path, device: Device, spec: &Spec) -> Result<Report> {
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
