//! Figures of the papers, run again.
//!
//! A figure is a comparison of certain mounts on certain devices, or a measurement of its own, and what the paper says.

mod afs;
mod afs_servers;
mod afs_writes;
mod full_log;
mod ijournal;
mod latency;
mod ldj;
mod modes;
mod recovery;
mod simulated;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;
use stetfs_flash::Model;

use crate::compare::{Beside, CompareConfig, PeerSpec, Peers, PeersConfig, Report, Workload};
use crate::files::write_all;

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
    /// AFS, section 3.4.5: the time of a recovery of a full journal that shares, and of one that writes.
    AfsRecovery,
    /// AFS, figure 3-5: random writes and fsync, a journal of 128 MiB, on simulated SSDs in their own time.
    #[value(name = "afs-3-5")]
    AfsSmallJournal,
    /// AFS, figure 3-6: the same, a journal of 1 GiB.
    #[value(name = "afs-3-6")]
    AfsLargeJournal,
    /// AFS, figure 3-7: a mail server and a web server, a journal of 128 MiB, on simulated SSDs in their own time.
    #[value(name = "afs-3-7")]
    AfsServers,
    /// iJournaling, figures 6 to 8: fsync beside a writer that syncs nothing.
    IjournalFsync,
    /// iJournaling, figure 9: threads that append and sync.
    IjournalThreads,
    /// iJournaling, figures 10 and 11: databases and a mail server, alone and beside a writer.
    IjournalApplications,
    /// Of no paper: the time of requests just after a mount, and when the cache is full.
    Latency,
}

/// Arguments of `bench figure`.
#[derive(Clone, Debug, Args)]
pub struct FigureArgs {
    /// Which one.
    name: Name,
    /// Devices to run it on: sata-ssd, nvme-ssd, disk (simulated, in memory), or file (a loop device over a written file; for afs-recovery an
    /// image on an XFS in one).
    #[arg(long = "device", value_name = "NAME", value_parser = device)]
    devices: Vec<Device>,
    /// Rounds of each workload.
    #[arg(short, long, default_value_t = 3)]
    rounds: u32,
    /// A first look: less work a round. What it shows counts for no claim.
    #[arg(long)]
    quick: bool,
    /// Also write the tables, JSON and SVG files into this directory.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What a figure is run on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Device(Option<Model>);

impl Device {
    fn name(self) -> &'static str {
        self.0.map_or("file", |model| model.name)
    }
}

fn device(text: &str) -> std::result::Result<Device, String> {
    match text {
        "file" => Ok(Device(None)),
        _ => text
            .parse()
            .map(|model| Device(Some(model)))
            .map_err(|e: stetfs_flash::UnknownModel| format!("{e}, and file")),
    }
}

/// One table of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The device.
    pub title: String,
    /// What was measured.
    pub report: Report,
}

impl Part {
    /// Into a directory of its own in `dir`.
    fn write(&self, dir: &Path) -> Result<()> {
        let plain = |c: char| if c.is_alphanumeric() { c } else { '-' };
        let name: String = self.title.chars().map(plain).collect();
        self.report.write(&dir.join(name))
    }
}

/// A figure, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// What the paper says, or what is aimed at.
    pub paper: &'static str,
    /// Our numbers.
    pub parts: Vec<Part>,
}

impl Figure {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            let _ = writeln!(out, "{}\n{}", part.title, part.report.text());
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
    /// Seconds a round of a server profile, where the journals are to reach a steady state; none: as `compare` has it.
    profile_seconds: Option<u32>,
}

impl FigureArgs {
    /// Measures; `stetfs` is the program to mount with.
    ///
    /// # Errors
    /// Not root, or something could not be set up.
    pub fn run(&self, stetfs: &Path) -> Result<Figure> {
        let name = self
            .name
            .to_possible_value()
            .map_or_else(String::new, |v| v.get_name().to_owned());
        let (paper, spec) = match self.name {
            Name::LdjServers => (ldj::SERVERS, ldj::servers()),
            Name::LdjApplications => (ldj::APPLICATIONS, ldj::applications()),
            Name::LdjOltp => (ldj::APPLICATIONS, ldj::oltp()),
            Name::LdjJournalSize => (ldj::JOURNAL_SIZE, ldj::journal_size()),
            Name::LdjRecovery => return self.write(name, ldj::RECOVERY, recovery::measure(self)?),
            Name::AfsRecovery => return self.write(name, afs::RECOVERY, afs::measure(self)?),
            Name::AfsSmallJournal => {
                return self.write(
                    name,
                    afs_writes::SMALL_JOURNAL,
                    afs_writes::measure(self, afs_writes::SMALL)?,
                );
            }
            Name::AfsLargeJournal => {
                return self.write(
                    name,
                    afs_writes::LARGE_JOURNAL,
                    afs_writes::measure(self, afs_writes::LARGE)?,
                );
            }
            Name::AfsServers => {
                return self.write(name, afs_servers::SERVERS, afs_servers::measure(self)?);
            }
            Name::IjournalFsync => (ijournal::FSYNC, ijournal::fsync()),
            Name::IjournalThreads => (ijournal::THREADS, ijournal::threads()),
            Name::IjournalApplications => (ijournal::APPLICATIONS, ijournal::applications()),
            Name::Latency => (latency::GOAL, latency::steady()),
        };
        self.write(name, paper, self.compare(stetfs, &spec)?)
    }

    fn write(&self, name: String, paper: &'static str, parts: Vec<Part>) -> Result<Figure> {
        let figure = Figure { name, paper, parts };
        if let Some(dir) = &self.out {
            figure.write(dir)?;
        }
        Ok(figure)
    }

    fn devices(&self) -> Vec<Device> {
        if !self.devices.is_empty() {
            return self.devices.clone();
        }
        let simulated = Model::ALL.map(|model| Device(Some(model)));
        [&[Device(None)][..], &simulated].concat()
    }

    /// The devices of flash among those asked for; without a word all that are simulated.
    fn flash(&self) -> Vec<Model> {
        let models = self.devices().into_iter().filter_map(|device| device.0);
        models.filter(|model| model.seek.is_none()).collect()
    }

    /// Saves what is done of a part, so that an end in the middle loses nothing of it.
    fn save(&self, part: &Part) -> Result<()> {
        self.out.as_deref().map_or(Ok(()), |dir| part.write(dir))
    }

    fn compare(&self, stetfs: &Path, spec: &Spec) -> Result<Vec<Part>> {
        let part = |device: Device| {
            let title = device.name().to_owned();
            let report = self
                .one(stetfs, device, spec)
                .with_context(|| format!("on {title}"))?;
            Ok(Part { title, report })
        };
        self.devices().into_iter().map(part).collect()
    }

    fn one(&self, stetfs: &Path, device: Device, spec: &Spec) -> Result<Report> {
        let config = PeersConfig {
            image_bytes: spec.image_mib << 20,
            model: device.0,
            kernel: spec.kernel.clone(),
            ..PeersConfig::new(Some(stetfs.to_owned()), spec.stetfs.clone())
        };
        Peers::compare(&config, |c| {
            let mut c = if self.quick { c.quick() } else { c };
            if let Some(seconds) = spec.profile_seconds.filter(|_| !self.quick) {
                c.sizes.profile_seconds = seconds;
            }
            CompareConfig {
                workloads: spec.workloads.clone(),
                beside: spec.beside.clone(),
                rounds: self.rounds,
                ..c
            }
        })
    }
}
