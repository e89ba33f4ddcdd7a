//! An open volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stetfs_block::{BlockError, Direct, OpenOptions, Span, Uring};
use stetfs_ext4::{Fs, FsError, FsOptions, Result, read_superblock};

use stetfs_journal::Composition;
use stetfs_journal::region::RegionSource;
use stetfs_nbd::NbdOptions;
use stetfs_nvm::{FileRegion, MemRegion, Region};

use super::external::{UnreadDevices, is_only_read};
use super::first_look::FirstLook;
use super::home::HomeInfo;
use super::host::{Host, HostOptions, Unread};
use super::part::{OpenDisk, Part, Place, Source};
use super::region::{self, RegionFile, RegionInfo};

/// Options with which a volume is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Options of the file system, its journal's included.
    pub fs: FsOptions,
    /// The part of the image or device.
    pub part: Part,
    /// The path of the journal, on a volume that has it on another device.
    pub journal_path: Option<PathBuf>,
    /// The file, or the part of one, for records of synced files: a region of persistent memory, or
    /// a substitute for one. The journal must have such records
    /// ([`check_region`](super::check_region)).
    pub nvm: Option<RegionFile>,
    /// Whether requests bypass the host's page cache.
    pub direct: Direct,
    /// Whether io_uring is used.
    pub uring: Uring,
    /// Options of the connection to an NBD server; whether access is read-only follows from `fs`.
    pub nbd: NbdOptions,
}

impl VolumeOptions {
    fn source(&self, path: &Path) -> Source {
        Source {
            path: path.to_owned(),
            part: self.part.clone(),
            journal_path: self.journal_path.clone(),
            nvm: self.nvm.clone(),
        }
    }

    fn how(&self, read_only: bool) -> HostOptions {
        HostOptions {
            file: OpenOptions {
                read_only,
                direct: self.direct,
                uring: self.uring,
                span: None,
            },
            nbd: self.nbd,
        }
    }
}

/// An open volume. It is locked against all other users until it is closed.
pub struct Volume {
    path: PathBuf,
    options: FsOptions,
    disk: OpenDisk,
    /// The device of the journal, if it is another.
    journal: Option<Host>,
    region: Option<Arc<FileRegion>>,
    fs: Arc<Fs>,
}

/// The devices of a volume, open and locked, before anything is read from them.
pub struct OpenedDevices {
    source: Source,
    how: HostOptions,
    devices: UnreadDevices,
    region: Option<Arc<FileRegion>>,
}

impl OpenedDevices {
    /// Opens and locks the image file or block device at `path`, in the place that `look` found,
    /// and the journal's device if it is another. An export is not connected.
    ///
    /// # Errors
    /// The errors of [`FileDevice::open`][open] (`Locked` if the volume is in use).
    ///
    /// [open]: stetfs_block::FileDevice::open
    pub fn open(path: &Path, options: &VolumeOptions, look: &FirstLook) -> Result<OpenedDevices> {
        let source = options.source(path);
        let open = |read_only| {
            let how = options.how(read_only);
            Ok::<_, FsError>((
                UnreadDevices::open(&source, look.place, look.journal.as_deref(), how)?,
                how,
            ))
        };
        // `ro` alone still replays the journal, if the device can be written.
        let (devices, how) = match open(options.fs.read_only && options.fs.no_recovery) {
            Err(e) if options.fs.read_only && is_only_read(&e) => open(true)?,
            other => other?,
        };
        let used = source.nvm.as_ref().filter(|_| !options.fs.no_recovery);
        let region = used.map(region::open).transpose()?;
        Ok(OpenedDevices {
            source,
            how,
            devices,
            region,
        })
    }

    /// Creates the rings for so many threads.
    pub fn prepare_rings(&self, threads: usize) {
        let hosts = self.devices.hosts();
        hosts.for_each(|host| host.prepare_rings(threads));
    }

    /// Whether anything was read from them.
    pub fn were_read(&self) -> bool {
        self.devices.hosts().any(Unread::was_read)
    }

    /// Finds the volume in the devices; connects to exports. After this no file is opened, except
    /// the journal's device of an export without a given path.
    ///
    /// # Errors
    /// The volume or the journal has moved; the errors of an export's server; `JournalDevice`.
    pub fn read(&self, options: &VolumeOptions) -> Result<ReadDevices> {
        let read = |read_only| {
            let mut how = self.how;
            how.file.read_only |= read_only;
            self.devices.read(&self.source, how)
        };
        let (disk, journal) = match read(false) {
            Err(e) if options.fs.read_only && is_only_read(&e) => read(true)?,
            other => other?,
        };
        Ok(ReadDevices {
            path: self.source.path.clone(),
            disk,
            journal,
            region: self.region.clone(),
        })
    }
}

/// The devices of a volume, before anything of the file system is read except the location of its
/// journal.
pub struct ReadDevices {
    path: PathBuf,
    disk: OpenDisk,
    journal: Option<Host>,
    region: Option<Arc<FileRegion>>,
}

impl ReadDevices {
    /// Whether the volume is in an Android sparse image.
    pub fn is_sparse(&self) -> bool {
        self.disk.is_sparse()
    }

    /// The volume's label; empty if there is none, or if it cannot be read. Bytes that are not
    /// UTF-8 are replaced.
    pub fn label(&self) -> String {
        let found = read_superblock(&*self.disk.view());
        found.map_or_else(
            |_| String::new(),
            |sb| String::from_utf8_lossy(sb.label()).into_owned(),
        )
    }

    /// Replays the journal, and finishes operations that a crash interrupted. Opens no files.
    ///
    /// # Errors
    /// The errors of [`Fs::open`].
    pub fn start(self, options: &VolumeOptions) -> Result<Arc<Volume>> {
        Volume::start(self.path, self.disk, self.journal, self.region, &options.fs)
    }
}

impl Volume {
    /// Opens the image file or block device at `path`: locks it, replays its journal, and finishes
    /// operations that a crash interrupted.
    ///
    /// # Errors
    /// The errors of [`FileDevice::open`][open] (`Locked` if the volume is in use), and of
    /// [`Fs::open`].
    ///
    /// [open]: stetfs_block::FileDevice::open
    pub fn open(path: impl AsRef<Path>, options: &VolumeOptions) -> Result<Arc<Volume>> {
        let path = path.as_ref();
        let look = FirstLook {
            place: Place::find(path, &options.part)?,
            ..FirstLook::default()
        };
        OpenedDevices::open(path, options, &look)?
            .read(options)?
            .start(options)
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

    /// Closes the volume and opens it again with other options, keeping the device and its lock; if
    /// that fails, with its former options. Returns the open volume, and the error of the new
    /// options if they failed. [`Volume::rehearse`] finds such errors beforehand.
    ///
    /// # Errors
    /// As [`Volume::close`], and as [`Volume::open`] with the former options: then the volume is
    /// closed, and changes that are not in their home locations are in its journal.
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
                tracing::error!(
                    "the new options failed, so the volume is opened again with the old ones: {e}"
                );
                Ok((start(&self.options)?, Some(e)))
            }
        }
    }

    /// Checks that the volume can be opened with other options: freezes it, and opens it over an
    /// overlay in memory. To be called with no operation under way.
    ///
    /// # Errors
    /// Nothing changed: EROFS if the options ask for write access, but the device was opened
    /// without; else as [`Fs::rehearse`], [`Fs::freeze`] and [`Fs::thaw`].
    pub fn rehearse(&self, options: &FsOptions) -> Result<()> {
        if !options.read_only && self.disk.host.device().read_only() {
            return Err(FsError::Errno(rustix::io::Errno::ROFS.raw_os_error()));
        }
        let mut opts = options.clone();
        if let Some(region) = &self.region {
            // While the volume is frozen its region holds nothing.
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

    /// The path or address by which it was opened.
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

    /// The way in which checkpoints write blocks to home locations.
    pub(super) fn home(&self) -> HomeInfo {
        HomeInfo::of(
            self.journal(),
            &self.disk,
            self.journal.is_some(),
            self.fs.statfs().block_size,
        )
    }

    /// The storage below the volume, as a whole.
    pub fn host(&self) -> &Host {
        &self.disk.host
    }

    /// Whether the storage is an Android sparse image, which holds the volume's bytes elsewhere.
    pub fn is_sparse(&self) -> bool {
        self.disk.is_sparse()
    }

    /// The part of the storage that the volume is, if not the whole.
    pub fn span(&self) -> Option<Span> {
        self.disk.span
    }

    /// Writes everything back and marks the volume clean. Later operations fail. The lock is
    /// released when the last reference to the volume is dropped.
    ///
    /// # Errors
    /// The device or the journal failed: the volume stays marked for recovery.
    pub fn close(&self) -> Result<()> {
        self.fs.unmount()
    }
}

/// Whether the volume is open for writing.
///
/// # Errors
/// The volume cannot be opened for reading.
pub fn is_in_use(source: &Source) -> Result<bool> {
    user_of(source).map(|user| user.is_some())
}

/// The error that names the program that has a volume open for writing, if there is one.
///
/// # Errors
/// The volume cannot be opened for reading.
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
