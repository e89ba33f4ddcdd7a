//! The implementations of the workloads.

mod behind;
mod beside;
mod cached;
mod copy;
mod database;
mod drive;
mod git;
mod measured;
mod names;
mod oltp;
mod phone;
pub(crate) mod place;
mod postmark;
mod profile;
mod scaling;
mod shared;
mod sqlite;
mod steady;
mod stream;
mod sync;
mod synced;
mod workload;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

pub use beside::Beside;
use beside::Writer;
use database::{Programs, mariadb, postgres};
pub(crate) use drive::drive;
pub use measured::Better;
pub(crate) use measured::{Below, Measured, Outcome};
pub use phone::SqliteJournal;
pub(crate) use phone::is_missing as sqlite_is_missing;
pub(crate) use profile::text;
pub(crate) use scaling::Work;
pub(super) use shared::Shared;
pub use workload::Workload;

use super::{CompareConfig, Sizes, Target};

impl Shared {
    pub(super) fn prepare(config: &CompareConfig) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("stetfs-bench-").tempdir()?;
        let wanted = |w: &[Workload]| config.workloads.iter().any(|x| w.contains(x));
        let git = if wanted(&[Workload::GitClone]) && runs(Path::new("git")) {
            Ok(git::make_repository(dir.path(), config.sizes.git_files)?)
        } else {
            Err("git is not installed".to_owned())
        };
        let sqlite = if runs(&config.sqlite3) {
            Ok(())
        } else {
            Err(format!("{} is not installed", config.sqlite3.display()))
        };
        let tree = wanted(&[Workload::Copy])
            .then(|| copy::make_tree(dir.path(), config.sizes.copy_bytes))
            .transpose()?;
        Ok(Self {
            sqlite3: config.sqlite3.clone(),
            git,
            sqlite,
            postgres: postgres::find(),
            mariadb: mariadb::find(),
            tree,
            _dir: dir,
        })
    }

    /// The reason why this workload cannot run on this machine and these targets, if so.
    pub(super) fn cannot_run(
        &self,
        workload: Workload,
        targets: &[Target],
        beside: Beside,
    ) -> Option<String> {
        match workload {
            _ if beside.rate > 0 && workload.unmounts() => {
                Some("it unmounts, which a writer beside it forbids".to_owned())
            }
            Workload::GitClone => self.git.as_ref().err().cloned(),
            Workload::SqliteDelete | Workload::SqliteTruncate | Workload::SqliteWal => {
                self.sqlite.as_ref().err().cloned()
            }
            Workload::SqliteFacebook | Workload::SqliteGmail | Workload::SqliteAndrobench => {
                let atomic = targets.iter().any(|t| t.sqlite() == SqliteJournal::None);
                sqlite_is_missing().filter(|_| atomic)
            }
            Workload::Sysbench | Workload::Linkbench => cannot_serve(&self.mariadb, targets),
            _ if workload.is_pgbench() => cannot_serve(&self.postgres, targets),
            _ => None,
        }
    }
}

/// The reason why this server cannot run on the targets, if so.
fn cannot_serve(
    server: &std::result::Result<Programs, String>,
    targets: &[Target],
) -> Option<String> {
    match server {
        Ok(programs) => targets
            .iter()
            .find_map(|target| programs.cannot_reach(&target.work_dir())),
        Err(reason) => Some(reason.clone()),
    }
}

fn runs(program: &Path) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success())
}

impl Workload {
    /// Differences between the targets when the workload runs on them.
    pub(super) fn note(self, targets: &[Target]) -> Option<String> {
        match self {
            _ if self.is_pgbench() => Some(oltp::pgbench::note(targets)),
            Self::Sysbench | Self::Linkbench => Some(oltp::sysbench::note(targets)),
            _ => None,
        }
    }

    /// Runs the workload once on `target`, in a fresh directory that is removed afterwards, beside
    /// the given writer.
    pub(super) fn run(
        self,
        target: &mut Target,
        sizes: &Sizes,
        shared: &Shared,
        beside: Beside,
    ) -> Result<Outcome> {
        if beside.rate == 0 {
            return self.run_alone(target, sizes, shared);
        }
        let writer = Writer::start(&target.work_dir(), beside, sizes)?;
        let outcome = self.run_alone(target, sizes, shared);
        writer.stop()?;
        let mut outcome = outcome?;
        for measured in &mut outcome {
            let _ = write!(measured.title, ", beside {beside}");
            // The device also got the writer's requests.
            measured.below = Below::default();
        }
        Ok(outcome)
    }

    fn run_alone(self, target: &mut Target, sizes: &Sizes, shared: &Shared) -> Result<Outcome> {
        let name = self.name();
        let dir = target.work_dir().join(name);
        fs::create_dir(&dir).with_context(|| format!("mkdir {}", dir.display()))?;
        let outcome = match self {
            Self::AppendFsync => sync::append(target, &dir, sizes),
            Self::AppendLibrary => sync::append_library(target, &dir, sizes),
            Self::OverwriteFdatasync => sync::overwrite(target, &dir, sizes),
            Self::Steady => steady::steady(target, name, sizes),
            Self::PausedFsync => synced::paused(target, &dir, sizes),
            Self::BehindSync => behind::a_sync(&dir, sizes),
            Self::FsyncThreads => scaling::mounted(Work::Append, target, &dir, sizes),
            Self::OverwriteThreads => scaling::mounted(Work::Overwrite, target, &dir, sizes),
            Self::CreateThreads => scaling::mounted(Work::Create, target, &dir, sizes),
            Self::FilesThreads => scaling::mounted(Work::Files, target, &dir, sizes),
            Self::VarmailThreads => scaling::mounted(Work::Varmail, target, &dir, sizes),
            Self::Names1 => names::names(target, &dir, sizes, 1),
            Self::Names2 => names::names(target, &dir, sizes, 2),
            Self::NamesLibrary => names::library(target, &dir, sizes),
            Self::Stat => names::stat(target, &dir, sizes),
            Self::OpenReadClose => cached::open_read_close(target, &dir, sizes),
            Self::RepeatedListing => cached::listing(target, &dir, sizes),
            Self::Stream => stream::stream(target, name, sizes),
            Self::SmallStream => stream::small(target, &dir, sizes),
            Self::GitClone => git::clone(target, &dir, shared),
            Self::SqliteDelete => sqlite::transactions(target, &dir, sizes, shared, "DELETE"),
            Self::SqliteTruncate => sqlite::transactions(target, &dir, sizes, shared, "TRUNCATE"),
            Self::SqliteWal => sqlite::transactions(target, &dir, sizes, shared, "WAL"),
            Self::SqliteFacebook => phone::run(target, &dir, sizes, &phone::FACEBOOK),
            Self::SqliteGmail => phone::run(target, &dir, sizes, &phone::GMAIL),
            Self::SqliteAndrobench => phone::run(target, &dir, sizes, &phone::ANDROBENCH),
            Self::Varmail => profile::varmail(target, &dir, sizes),
            Self::Fileserver => profile::fileserver(target, &dir, sizes),
            Self::FileserverMf => profile::fileserver_mf(target, &dir, sizes),
            Self::Webserver => profile::webserver(target, &dir, sizes),
            Self::Postmark => postmark::mix(target, &dir, sizes),
            Self::Oltp => oltp::pgbench::run(target, &dir, sizes, shared, &oltp::TPCB),
            Self::Ycsb => oltp::pgbench::run(target, &dir, sizes, shared, &oltp::YCSB_A),
            Self::Tpcc => oltp::pgbench::run(target, &dir, sizes, shared, &oltp::TPCC),
            Self::Sysbench => oltp::sysbench::run(target, &dir, sizes, shared, &oltp::READ_WRITE),
            Self::Linkbench => oltp::sysbench::run(target, &dir, sizes, shared, &oltp::LINKBENCH),
            Self::Copy => copy::copy(target, &dir, shared),
        };
        // A remount may have moved the directory.
        let dir = target.work_dir().join(name);
        let removed =
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()));
        let outcome = outcome?;
        removed?;
        target.settle()?;
        target.give_back()?;
        Ok(outcome)
    }
}
