//! Repetitions of the figures of papers.
//!
//! A figure is a comparison of certain mounts on certain devices, or a measurement of its own,
//! together with the paper's numbers.

mod afs;
mod afs_databases;
mod afs_servers;
mod afs_sqlite;
mod afs_writes;
mod args;
mod by_threads;
mod full_log;
mod ijournal;
mod latency;
mod ldj;
mod log_cleaning;
mod modes;
mod nvm;
mod part;
mod recovery;
mod simulated;
mod zjournal;

use std::path::Path;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::files::write_all;
use args::Device;
pub use args::{FigureArgs, Name};
pub use part::{Figure, Part};

impl FigureArgs {
    /// Measures a figure; `stetfs` is the program to mount with.
    ///
    /// # Errors
    /// Not root, or the setup failed.
    pub fn run(&self, stetfs: &Path) -> Result<Figure> {
        let name = self
            .name
            .to_possible_value()
            .map_or_else(String::new, |v| v.get_name().to_owned());
        self.check(&name)?;
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

    /// Fails if there are options that have no meaning for the figure of this name.
    fn check(&self, name: &str) -> Result<()> {
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
        Ok(())
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
}

impl Figure {
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
