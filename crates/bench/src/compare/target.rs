//! Targets: the file systems under comparison.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};

use stetfs::low::{BlockDevice, Volume};
use stetfs_flash::{Ssd, ftl};

use super::device::{self, Counters};
use super::log::LogCounters;
use super::program::checked;
use super::work::SqliteJournal;

/// The error for a target in whose directory nothing can be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a directory in {}: {why}", dir.display())]
pub struct Unusable {
    dir: PathBuf,
    why: io::Error,
}

impl Unusable {
    /// The kind of the reason.
    pub fn kind(&self) -> io::ErrorKind {
        self.why.kind()
    }
}

/// A function that mounts the file system again; returns its directory and its block device node,
/// if there is one.
pub(super) type Remount = Box<dyn FnMut() -> Result<(PathBuf, Option<PathBuf>)> + Send>;

/// Work on a volume that is open as a library.
pub(super) type OnVolume<'w> = dyn FnMut(&Volume) -> Result<()> + 'w;

/// A function that unmounts the file system, opens its volume as a library for a piece of work, and
/// mounts it again; returns the same as [`Remount`].
pub(super) type Library =
    Box<dyn FnMut(&mut OnVolume<'_>) -> Result<(PathBuf, Option<PathBuf>)> + Send>;

/// A mounted directory with a name for the report.
pub struct Target {
    name: String,
    dir: PathBuf,
    device: Option<PathBuf>,
    remount: Option<Remount>,
    library: Option<Library>,
    /// The program that reads the journal's counters, for a mount of StetFS.
    stetfs: Option<PathBuf>,
    whole_writes: bool,
    /// Whether servers on it protect their pages; `None`: where they have to.
    protects: Option<bool>,
    /// The journal mode of SQLite on it.
    sqlite: SqliteJournal,
    /// The simulated flash below it.
    flash: Option<Arc<Ssd>>,
    /// Its device keeps its content in this process's memory.
    in_memory: bool,
    /// The name of the working directory in it, once created; removed when the target is dropped.
    work: Option<String>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Target {
    /// A directory on the file system to measure. Its block device is found automatically, if there
    /// is one.
    pub fn new(name: impl Into<String>, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self {
            name: name.into(),
            device: device::below(&dir),
            dir,
            remount: None,
            library: None,
            stetfs: None,
            whole_writes: false,
            protects: None,
            sqlite: SqliteJournal::default(),
            flash: None,
            in_memory: false,
            work: None,
        }
    }

    /// Sets the block device (node) below, if the mount table does not name it.
    #[must_use]
    pub fn on_device(mut self, node: &Path) -> Self {
        if let Some(found) = device::of_node(node) {
            self.device = Some(found);
        }
        self
    }

    /// Sets the function that mounts it again, which empties every cache, the server's own
    /// included.
    #[must_use]
    pub(super) fn with_remount(mut self, remount: Remount) -> Self {
        self.remount = Some(remount);
        self
    }

    /// Sets the function for work on the volume as a library.
    #[must_use]
    pub(super) fn with_library(mut self, library: Library) -> Self {
        self.library = Some(library);
        self
    }

    /// Marks it as a mount of StetFS, whose counters the program `stetfs` reads.
    #[must_use]
    pub(super) fn with_stat(mut self, stetfs: &Path) -> Self {
        self.stetfs = Some(stetfs.to_owned());
        self
    }

    /// Sets whether one write call up to 1 MiB is whole or absent after a crash.
    #[must_use]
    pub(super) fn with_whole_writes(mut self, whole: bool) -> Self {
        self.whole_writes = whole;
        self
    }

    /// Sets whether database servers on it protect their pages from torn writes, whether they have
    /// to or not.
    #[must_use]
    pub(super) fn with_protection(mut self, protects: Option<bool>) -> Self {
        self.protects = protects;
        self
    }

    /// Sets the journal mode of SQLite on it.
    #[must_use]
    pub(super) fn with_sqlite(mut self, journal: SqliteJournal) -> Self {
        self.sqlite = journal;
        self
    }

    /// Sets the simulated flash below it.
    #[must_use]
    pub(super) fn on_flash(mut self, flash: Arc<Ssd>) -> Self {
        self.flash = Some(flash);
        self
    }

    /// Sets whether its device is a simulated one, which keeps its content in this process's
    /// memory.
    #[must_use]
    pub(super) fn with_memory(mut self, in_memory: bool) -> Self {
        self.in_memory = in_memory;
        self
    }

    /// Whether one write call up to 1 MiB is whole or absent after a crash. For directories that
    /// were not set up here this is unknown, and false.
    pub(super) fn whole_writes(&self) -> bool {
        self.whole_writes
    }

    /// Whether database servers on it protect their pages from torn writes.
    pub(super) fn protects(&self) -> bool {
        self.protects.unwrap_or(!self.whole_writes)
    }

    /// The journal mode of SQLite on it.
    pub(super) fn sqlite(&self) -> SqliteJournal {
        self.sqlite
    }

    /// The counters of its device, if known.
    pub(super) fn counters(&self) -> Option<Counters> {
        match (&self.flash, &self.device) {
            (Some(flash), _) => Some(Counters::from(flash.stats())),
            (None, Some(sysfs)) => Counters::read(sysfs),
            (None, None) => None,
        }
    }

    /// The counters of its flash, if simulated.
    pub(super) fn wear(&self) -> Option<ftl::Counters> {
        self.flash.as_ref().map(|flash| flash.report().counters)
    }

    /// The counters of its journal, for a mount of StetFS.
    pub(super) fn log(&self) -> Result<Option<LogCounters>> {
        self.stetfs
            .as_deref()
            .map(|stetfs| LogCounters::ask(stetfs, &self.dir))
            .transpose()
    }

    /// Works on the volume as a library; false if that is not possible.
    pub(super) fn with_volume(&mut self, work: &mut OnVolume<'_>) -> Result<bool> {
        let Some(library) = &mut self.library else {
            return Ok(false);
        };
        let place = library(work)?;
        self.moved(place);
        Ok(true)
    }

    fn moved(&mut self, (dir, node): (PathBuf, Option<PathBuf>)) {
        self.dir = dir;
        self.device = node.and_then(|n| device::of_node(&n));
    }

    /// Its name in the report.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn make_work_dir(&mut self) -> Result<()> {
        // If it is not a directory, the error names it and not the file to be created in it.
        let dir = fs::read_dir(&self.dir)
            .and_then(|_| {
                tempfile::Builder::new()
                    .prefix("stetfs-bench-")
                    .tempdir_in(&self.dir)
            })
            .map_err(|why| Unusable {
                dir: self.dir.clone(),
                why,
            })?;
        let path = dir.keep();
        self.work = path.file_name().map(|n| n.to_string_lossy().into_owned());
        Ok(())
    }

    /// The working directory on it.
    pub(super) fn work_dir(&self) -> PathBuf {
        self.work
            .as_ref()
            .map_or_else(|| self.dir.clone(), |name| self.dir.join(name))
    }

    /// Writes everything back, so that the next workload does not pay for the one before.
    pub(super) fn settle(&self) -> Result<()> {
        let dir = fs::File::open(&self.dir)?;
        rustix::fs::syncfs(&dir).with_context(|| format!("syncfs {}", self.dir.display()))?;
        // The kernel does not pass syncfs to FUSE servers; on most of them the sync of a change
        // commits all earlier ones.
        let path = self.work_dir().join("settle");
        let settled = fs::File::create(&path).and_then(|file| file.sync_all());
        settled.with_context(|| format!("fsync {}", path.display()))?;
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }

    /// Frees the memory of a simulated device that holds nothing any more. Several devices with
    /// everything ever written to them would not fit.
    pub(super) fn give_back(&self) -> Result<()> {
        if !self.in_memory {
            return Ok(());
        }
        checked(Command::new("fstrim").arg(&self.dir))
    }

    /// Empties the caches: by a remount if possible, else the kernel's (as far as permitted).
    pub(super) fn make_cold(&mut self, file: &Path) -> Result<()> {
        if let Some(remount) = &mut self.remount {
            let place = remount()?;
            self.moved(place);
            return Ok(());
        }
        self.settle()?;
        let file = fs::File::open(file)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        // Only root may; for other users fadvise must do.
        crate::cold::try_drop_caches();
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.work.is_some() {
            let _ = fs::remove_dir_all(self.work_dir());
        }
    }
}
