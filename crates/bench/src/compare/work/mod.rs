//! The workloads.

mod beside;
mod cached;
mod copy;
mod database;
mod git;
mod names;
mod oltp;
mod phone;
pub(crate) mod place;
mod postmark;
mod profile;
pub(crate) mod scaling;
mod sqlite;
mod steady;
mod stream;
mod sync;
mod synced;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use stetfs_flash::ftl;
use tempfile::TempDir;

use super::log::LogCounters;
use super::report::Better;
use super::{CompareConfig, Counters, Packing, Sizes, Target, Waits, Worn};
pub use beside::Beside;
use beside::Writer;
use scaling::Work;

/// One workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Append 4 KiB, `fsync`.
    AppendFsync,
    /// The same, StetFS as a library: without FUSE.
    AppendLibrary,
    /// Overwrite 4 KiB at random in a written file, `fdatasync`.
    OverwriteFdatasync,
    /// Append 80 KiB and `fsync`, and read 64 KiB, just after a mount and with a full cache.
    Steady,
    /// `fsync` of 80 KB that were written a tenth of a second before.
    PausedFsync,
    /// Append 4 KiB, `fsync`, in one, two and four threads.
    FsyncThreads,
    /// Overwrite 4 KiB, `fsync`, in as many.
    OverwriteThreads,
    /// Create empty files, in as many.
    CreateThreads,
    /// Create files of 4 KiB, in as many.
    FilesThreads,
    /// Varmail, in as many.
    VarmailThreads,
    /// Create, rename and unlink empty files, one thread.
    Names1,
    /// The same with two threads, each in a directory of its own.
    Names2,
    /// The same with one and two threads, StetFS as a library: without FUSE.
    NamesLibrary,
    /// `stat` of files that are cached.
    Stat,
    /// Open, read and close small files that are cached.
    OpenReadClose,
    /// List a directory of some thousand names that is cached.
    RepeatedListing,
    /// Write a file in 1 MiB calls and `fsync` it; read it again with cold caches.
    Stream,
    /// Write a file in 4 KiB calls and `fsync` it.
    SmallStream,
    /// `git clone` of a local repository.
    GitClone,
    /// SQLite, one row a transaction, rollback journal.
    SqliteDelete,
    /// The same, the journal truncated and not deleted, as on phones.
    SqliteTruncate,
    /// SQLite, one row a transaction, write-ahead log.
    SqliteWal,
    /// SQLite under statements like those of Facebook's application on a phone.
    SqliteFacebook,
    /// The same like those of Gmail's.
    SqliteGmail,
    /// The same as AndroBench does: rows inserted, then updated, then deleted.
    SqliteAndrobench,
    /// Filebench's varmail: mail files that are made, appended to with fsync, read and deleted, 16
    /// threads.
    Varmail,
    /// Filebench's fileserver: whole files written, appended to, read, deleted, 50 threads.
    Fileserver,
    /// The same with five times as many files.
    FileserverMf,
    /// Filebench's webserver: ten small files read whole for each append to a log, 16 threads.
    Webserver,
    /// PostMark's mix: small files that are made, read, appended to and deleted, without a sync.
    Postmark,
    /// PostgreSQL under pgbench: small transactions of several clients.
    Oltp,
    /// The same with YCSB's workload A: half updates, half reads.
    Ycsb,
    /// The same with the transactions of TPC-C.
    Tpcc,
    /// MariaDB under sysbench: its mix of reads and writes, of several clients.
    Sysbench,
    /// The same with a load like LinkBench's: the nodes and links of a social graph.
    Linkbench,
    /// Copy files that do not compress, and `syncfs`.
    Copy,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 36] = [
        Self::AppendFsync,
        Self::AppendLibrary,
        Self::OverwriteFdatasync,
        Self::Steady,
        Self::PausedFsync,
        Self::FsyncThreads,
        Self::OverwriteThreads,
        Self::CreateThreads,
        Self::FilesThreads,
        Self::VarmailThreads,
        Self::Names1,
        Self::Names2,
        Self::NamesLibrary,
        Self::Stat,
        Self::OpenReadClose,
        Self::RepeatedListing,
        Self::Stream,
        Self::SmallStream,
        Self::GitClone,
        Self::SqliteDelete,
        Self::SqliteTruncate,
        Self::SqliteWal,
        Self::SqliteFacebook,
        Self::SqliteGmail,
        Self::SqliteAndrobench,
        Self::Varmail,
        Self::Fileserver,
        Self::FileserverMf,
        Self::Webserver,
        Self::Postmark,
        Self::Oltp,
        Self::Ycsb,
        Self::Tpcc,
        Self::Sysbench,
        Self::Linkbench,
        Self::Copy,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AppendFsync => "append-fsync",
            Self::AppendLibrary => "append-library",
            Self::OverwriteFdatasync => "overwrite-fdatasync",
            Self::Steady => "steady",
            Self::PausedFsync => "paused-fsync",
            Self::FsyncThreads => "fsync-threads",
            Self::OverwriteThreads => "overwrite-threads",
            Self::CreateThreads => "create-threads",
            Self::FilesThreads => "files-threads",
            Self::VarmailThreads => "varmail-threads",
            Self::Names1 => "names-1",
            Self::Names2 => "names-2",
            Self::NamesLibrary => "names-library",
            Self::Stat => "stat",
            Self::OpenReadClose => "open-read-close",
            Self::RepeatedListing => "repeated-listing",
            Self::Stream => "stream",
            Self::SmallStream => "stream-4k",
            Self::GitClone => "git-clone",
            Self::SqliteDelete => "sqlite-delete",
            Self::SqliteTruncate => "sqlite-truncate",
            Self::SqliteWal => "sqlite-wal",
            Self::SqliteFacebook => "sqlite-facebook",
            Self::SqliteGmail => "sqlite-gmail",
            Self::SqliteAndrobench => "sqlite-androbench",
            Self::Varmail => "varmail",
            Self::Fileserver => "fileserver",
            Self::FileserverMf => "fileserver-mf",
            Self::Webserver => "webserver",
            Self::Postmark => "postmark",
            Self::Oltp => "oltp",
            Self::Ycsb => "ycsb-a",
            Self::Tpcc => "tpcc",
            Self::Sysbench => "sysbench",
            Self::Linkbench => "linkbench",
            Self::Copy => "copy",
        }
    }

    /// The workload of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }

    /// What differs between the targets when it runs on them.
    pub(super) fn note(self, targets: &[Target]) -> Option<String> {
        match self {
            _ if self.is_pgbench() => Some(oltp::pgbench::note(targets)),
            Self::Sysbench | Self::Linkbench => Some(oltp::sysbench::note(targets)),
            _ => None,
        }
    }

    /// Whether it needs PostgreSQL.
    fn is_pgbench(self) -> bool {
        matches!(self, Self::Oltp | Self::Ycsb | Self::Tpcc)
    }

    /// Whether it unmounts the file system.
    fn unmounts(self) -> bool {
        matches!(
            self,
            Self::Stream | Self::Steady | Self::NamesLibrary | Self::AppendLibrary
        )
    }

    /// Runs it once on `target`, in a directory that is fresh and removed after it, beside what is
    /// asked for.
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
            // What the device got is the writer's, too.
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
        // A remount may have moved it.
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

use database::{Programs, mariadb, postgres};
pub use phone::SqliteJournal;
pub(crate) use phone::is_missing as sqlite_is_missing;
pub(crate) use profile::text;

/// One number that a run gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) value: f64,
    /// What happened below meanwhile.
    pub(crate) below: Below,
}

/// What happened below a target during a piece of work.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Below {
    /// What the block device got, per operation.
    pub(crate) device: Option<Counters>,
    /// What became of its flash, if it is simulated.
    #[serde(default)]
    pub(crate) worn: Option<Worn>,
    /// What the journal did, of a mount of StetFS.
    pub(crate) log: Option<Packing>,
    /// What its changes waited for, and copied.
    pub(crate) waits: Option<Waits>,
}

/// What one run of a workload gave.
pub(crate) type Outcome = Vec<Measured>;

/// Measures a piece of work: time, and what happens below.
pub(super) struct Meter<'t> {
    target: &'t Target,
    device: Option<Counters>,
    wear: Option<ftl::Counters>,
    log: Option<LogCounters>,
    start: Instant,
}

impl<'t> Meter<'t> {
    /// Starts the clock, on a file system with nothing left to write back.
    pub(super) fn start(target: &'t Target) -> Result<Self> {
        target.settle()?;
        Ok(Self {
            target,
            device: target.counters(),
            wear: target.wear(),
            log: target.log()?,
            start: Instant::now(),
        })
    }

    /// Seconds since the start.
    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// As [`Meter::below`], when all that the work changed is on the device: for work that syncs
    /// nothing itself.
    pub(super) fn below_settled(&self, operations: f64) -> Result<Below> {
        self.target.settle()?;
        self.below(operations)
    }

    /// What happened below since the start, with so many operations. Takes some time: look at the
    /// clock first.
    pub(super) fn below(&self, operations: f64) -> Result<Below> {
        let device = self.target.counters();
        let wear = self.target.wear();
        let log = self.target.log()?;
        Ok(Below {
            device: device
                .zip(self.device)
                .map(|(now, then)| now.since(then, operations)),
            worn: wear
                .zip(self.wear)
                .map(|(now, then)| Worn::since(now, then, operations)),
            log: log.zip(self.log).and_then(|(now, then)| now.since(then)),
            waits: log
                .zip(self.log)
                .and_then(|(now, then)| now.waits_since(then, operations)),
        })
    }
}

/// What several runs use: the repository to clone, the tree to copy, programs.
pub(super) struct Shared {
    pub(super) sqlite3: PathBuf,
    git: std::result::Result<PathBuf, String>,
    sqlite: std::result::Result<(), String>,
    postgres: std::result::Result<Programs, String>,
    mariadb: std::result::Result<Programs, String>,
    tree: Option<PathBuf>,
    _dir: TempDir,
}

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

    /// Why this workload cannot run on this machine and these targets, if it cannot.
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

    fn repository(&self) -> Result<&Path> {
        found(&self.git).map(PathBuf::as_path)
    }

    fn postgres(&self) -> Result<&Programs> {
        found(&self.postgres)
    }

    fn mariadb(&self) -> Result<&Programs> {
        found(&self.mariadb)
    }

    fn tree(&self) -> Result<&Path> {
        self.tree.as_deref().context("there is no tree to copy")
    }
}

/// Why this server cannot run on the targets, if it cannot.
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

fn found<T>(what: &std::result::Result<T, String>) -> Result<&T> {
    what.as_ref().map_err(|reason| anyhow!("{reason}"))
}

fn runs(program: &Path) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success())
}

/// Runs a command; an exit status other than 0 is an error with what it printed.
pub(super) fn checked(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs a command and gives what it printed; as [`checked`].
pub(super) fn output(command: &mut Command) -> Result<String> {
    let out = command
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !out.status.success() {
        // sysbench says on its standard output what went wrong.
        let said = [&out.stderr, &out.stdout]
            .into_iter()
            .find(|s| !s.is_empty());
        bail!(
            "{} failed: {}",
            command.get_program().display(),
            said.map_or("".into(), |said| String::from_utf8_lossy(said))
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
