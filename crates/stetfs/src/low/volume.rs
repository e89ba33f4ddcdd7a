//! An open volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stetfs_block::{BlockError, Direct, OpenOptions, Span, Uring};
use stetfs_ext4::{Fs, FsError, FsOptions, Result};

use stetfs_journal::Composition;
use stetfs_journal::region::RegionSource;
use stetfs_nbd::NbdOptions;
use stetfs_nvm::{FileRegion, MemRegion, Region};

use super::external::{self, is_only_read};
use super::home::HomeInfo;
use super::host::{Host, HostOptions};
use super::part::{OpenDisk, Part, Source};
use super::region::{self, RegionFile, RegionInfo};

/// How a volume is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Options of the file system, its journal's included.
    pub fs: FsOptions,
    /// Which part of the image or device it is.
    pub part: Part,
    /// Where the journal is, on a volume that has it on another device.
    pub journal_path: Option<PathBuf>,
    /// The file, or the part of one, for records of synced files: a region of persistent memory,
    /// or what stands in for one. The journal has to have such
    /// records ([`check_region`](super::check_region)).
    pub nvm: Option<RegionFile>,
    /// Whether requests pass the host's page cache by.
    pub direct: Direct,
    /// Whether io_uring is used.
    pub uring: Uring,
    /// How an NBD server is used; whether it is only read follows from `fs`.
    pub nbd: NbdOptions,
}

/// A volume that is open, and locked against everyone else, until it is closed.
pub struct Volume {
    path: PathBuf,
    options: FsOptions,
    disk: OpenDisk,
    /// The journal's, if that is another.
    journal: Option<Host>,
    region: Option<Arc<FileRegion>>,
    fs: Arc<Fs>,
}

/// The devices of a volume, open and locked, before anything of the file system is looked at but
/// where its journal is.
pub struct OpenedDevices {
    path: PathBuf,
    disk: OpenDisk,
    journal: Option<Host>,
    region: Option<Arc<FileRegion>>,
}

impl OpenedDevices {
    /// Opens the image file or block device at `path`, and the journal's device if that is another,
    /// and locks them.
    ///
    /// # Errors
    /// Those of [`FileDevice::open`][open] (`Locked` if somebody has the volume).
    ///
    /// [open]: stetfs_block::FileDevice::open
    pub fn open(path: impl AsRef<Path>, options: &VolumeOptions) -> Result<OpenedDevices> {
        let source = Source {
            path: path.as_ref().to_owned(),
            part: options.part.clone(),
            journal_path: options.journal_path.clone(),
            nvm: options.nvm.clone(),
        };
        let open = |read_only| {
            let how = HostOptions {
                file: OpenOptions {
                    read_only,
                    direct: options.direct,
                    uring: options.uring,
                    span: None,
                },
                nbd: options.nbd,
            };
            external::devices(&source, how)
        };
        // `ro` alone still replays the journal, if the device can be written.
        let (disk, journal) = match open(options.fs.read_only && options.fs.no_recovery) {
            Err(e) if options.fs.read_only && is_only_read(&e) => open(true)?,
            other => other?,
        };
        let used = source.nvm.as_ref().filter(|_| !options.fs.no_recovery);
        let region = used.map(region::open).transpose()?;
        Ok(OpenedDevices {
            path: source.path,
            disk,
            journal,
            region,
        })
    }

    /// Whether the volume is in an Android sparse image.
    pub fn is_sparse(&self) -> bool {
        self.disk.is_sparse()
    }

    /// What is below, the journal's too.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        [&self.disk.host].into_iter().chain(&self.journal)
    }

    /// Makes the rings that so many threads need at once.
    pub fn prepare_rings(&self, threads: usize) {
        self.disk.host.prepare_rings(threads);
        if let Some(journal) = &self.journal {
            journal.prepare_rings(threads);
        }
    }

    /// Replays the journal, and finishes what a crash interrupted. No file is opened any more.
    ///
    /// # Errors
    /// Those of [`Fs::open`].
    pub fn start(self, options: &VolumeOptions) -> Result<Arc<Volume>> {
        Volume::start(self.path, self.disk, self.journal, self.region, &options.fs)
    }
}

impl Volume {
    /// Opens the image file or block device at `path`: locks it, replays its journal, and finishes
    /// what a crash interrupted.
    ///
    /// # Errors
    /// Those of [`FileDevice::open`][open] (`Locked` if somebody has the volume), and of
    /// [`Fs::open`].
    ///
    /// [open]: stetfs_block::FileDevice::open
    pub fn open(path: impl AsRef<Path>, options: &VolumeOptions) -> Result<Arc<Volume>> {
        OpenedDevices::open(path, options)?.start(options)
    }

    fn start(
        path: PathBuf,
        disk: OpenDisk,
        journal: Option<Host>,
        region: Option<Arc<FileRegion>>,
        options: &FsOptions,
    ) -> Result<Arc<Volume>> {
        let mut opts = options.clone();
        if let Some(region) = &region {
            opts.region = RegionSource::Open(region.clone());
        }
        let fs = Fs::open_with(
            disk.view(),
            journal.as_ref().map(Host::device),
            opts,
            &mut |_, _| {},
        )?;
        disk.fit_granularity(fs.statfs().block_size)?;
        disk.guard(fs.mmp_range())?;
        if let Some(journal) = &journal {
            journal.fit_granularity(fs.statfs().block_size)?;
        }
        Ok(Arc::new(Volume {
            path,
            options: options.clone(),
            disk,
            journal,
            region,
            fs,
        }))
    }

    /// Closes the volume and opens it again with other options, keeping the device and its lock;
    /// where that fails, with those that it had. Gives what is open then, and why it is not as
    /// wanted. [`Volume::rehearse`] tells before what would be refused.
    ///
    /// # Errors
    /// As [`Volume::close`], and as [`Volume::open`] with the options that it had: the volume is
    /// closed then, and what is not home is in its journal.
    pub fn reopen(&self, options: &FsOptions) -> Result<(Arc<Volume>, Option<FsError>)> {
        self.close()?;
        let start = |options: &FsOptions| {
            Volume::start(
                self.path.clone(),
                self.disk.clone(),
                self.journal.clone(),
                self.region.clone(),
                options,
            )
        };
        match start(options) {
            Ok(new) => Ok((new, None)),
            Err(e) => {
                tracing::error!("the volume is opened again as it was: {e}");
                Ok((start(&self.options)?, Some(e)))
            }
        }
    }

    /// Whether the volume can be opened with other options: it is held still, and opened over a
    /// copy in memory. To be called with no operation under way.
    ///
    /// # Errors
    /// Nothing changed: EROFS if the volume is to be written, but was opened without write access
    /// to the device; else as [`Fs::rehearse`], [`Fs::freeze`] and [`Fs::thaw`].
    pub fn rehearse(&self, options: &FsOptions) -> Result<()> {
        if !options.read_only && self.disk.host.device().read_only() {
            return Err(FsError::Errno(rustix::io::Errno::ROFS.raw_os_error()));
        }
        let mut opts = options.clone();
        if let Some(region) = &self.region {
            // Of a volume that is held still nothing is in the region.
            let copy = MemRegion::new(region.size());
            opts.region = RegionSource::Open(Arc::new(copy));
        }
        let journal = self.journal.as_ref().map(Host::device);
        self.fs.freeze()?;
        let rehearsed = Fs::rehearse(self.disk.view(), journal, opts);
        self.fs.thaw()?;
        rehearsed
    }

    /// The file system's operations.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The journal in use.
    pub fn journal(&self) -> &Composition {
        &self.options.journal
    }

    /// The options of the file system.
    pub(super) fn options(&self) -> &FsOptions {
        &self.options
    }

    /// The region for records of synced files.
    pub fn region(&self) -> Option<RegionInfo> {
        let has_log = self.journal().is_in_region();
        let region = self.region.as_deref();
        region.map(|region| RegionInfo::of(region, has_log))
    }

    /// How checkpoints bring blocks home.
    pub(super) fn home(&self) -> HomeInfo {
        HomeInfo::of(
            self.journal(),
            &self.disk,
            self.journal.is_some(),
            self.fs.statfs().block_size,
        )
    }

    /// What is below, as a whole.
    pub fn host(&self) -> &Host {
        &self.disk.host
    }

    /// Whether that is an Android sparse image, which holds the volume's bytes elsewhere.
    pub fn is_sparse(&self) -> bool {
        self.disk.is_sparse()
    }

    /// The part of it that the volume is, if not all.
    pub fn span(&self) -> Option<Span> {
        self.disk.span
    }

    /// Brings everything home and marks the volume clean. Operations that come later fail. The lock
    /// is given up when the last reference to the volume is dropped.
    ///
    /// # Errors
    /// The device or the journal failed: the volume stays marked for recovery.
    pub fn close(&self) -> Result<()> {
        self.fs.unmount()
    }
}

/// Whether somebody has a volume open for writing.
///
/// # Errors
/// The volume cannot be looked at.
pub fn is_in_use(source: &Source) -> Result<bool> {
    user_of(source).map(|user| user.is_some())
}

/// The error that says who has a volume open for writing, if somebody has.
///
/// # Errors
/// The volume cannot be looked at.
pub fn user_of(source: &Source) -> Result<Option<Arc<BlockError>>> {
    let how = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    match OpenDisk::open(&source.path, &source.part, how) {
        Ok(_) => Ok(None),
        Err(FsError::Device(e)) if matches!(*e, BlockError::Locked { .. }) => Ok(Some(e)),
        Err(e) => Err(e),
    }
}
