//! The storage of a volume: a file or block device of this machine, or an export of an NBD server.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use stetfs_block::{BlockDevice, FileDevice, OpenOptions, Result, SharedBy, Span};
use stetfs_nbd::{Address, NbdDevice, NbdOptions, Unconnected};

/// The options with which it is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostOptions {
    pub(crate) file: OpenOptions,
    /// Options of a server. Whether access is read-only is in `file`.
    pub(crate) nbd: NbdOptions,
}

impl From<OpenOptions> for HostOptions {
    /// For a look at a volume, for which one connection is enough.
    fn from(file: OpenOptions) -> HostOptions {
        let nbd = NbdOptions {
            connections: 1,
            ..NbdOptions::default()
        };
        HostOptions { file, nbd }
    }
}

/// The storage of a volume, open and locked.
#[derive(Clone, Debug)]
pub enum Host {
    /// An image file or a block device.
    File(Arc<FileDevice>),
    /// An export of an NBD server. The lock excludes only other programs of this machine.
    Export(Arc<NbdDevice>),
}

/// The storage, open and locked, before anything is read from it: an export is not connected.
pub(crate) enum Unread {
    File(Arc<FileDevice>),
    Export(Box<Unconnected>),
}

impl Unread {
    /// Opens the export or the file at `path`.
    ///
    /// # Errors
    /// As [`FileDevice::open`] and [`Unconnected::prepare`].
    pub(crate) fn open(path: &Path, how: HostOptions) -> Result<Unread> {
        Ok(match Address::is_meant(path) {
            true => Unread::Export(Box::new(Unconnected::prepare(path, how.nbd)?)),
            false => Unread::File(Arc::new(FileDevice::open(path, how.file)?)),
        })
    }

    /// Connects to an export; a file is ready.
    ///
    /// # Errors
    /// As [`Unconnected::connect`].
    pub(crate) fn connect(&self, read_only: bool) -> Result<Host> {
        Ok(match self {
            Unread::File(file) => Host::File(Arc::clone(file)),
            Unread::Export(export) => Host::Export(Arc::new(export.connect(read_only)?)),
        })
    }

    /// See [`FileDevice::prepare_rings`].
    pub(crate) fn prepare_rings(&self, threads: usize) {
        if let Unread::File(file) = self {
            file.prepare_rings(threads);
        }
    }

    /// Whether anything was read, by the file's counters.
    pub(crate) fn was_read(&self) -> bool {
        match self {
            Unread::File(file) => file.stats().reads > 0,
            Unread::Export(_) => false,
        }
    }
}

impl Host {
    /// Opens the export or the file at `path`.
    ///
    /// # Errors
    /// As [`Unread::open`] and [`Unread::connect`].
    pub(crate) fn open(path: &Path, how: HostOptions) -> Result<Host> {
        Unread::open(path, how)?.connect(how.file.read_only)
    }

    /// The whole storage as a block device.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Host::File(file) => Arc::clone(file) as Arc<dyn BlockDevice>,
            Host::Export(export) => Arc::clone(export) as Arc<dyn BlockDevice>,
        }
    }

    /// The file or block device, if it is one.
    pub fn file(&self) -> Option<&FileDevice> {
        match self {
            Host::File(file) => Some(file),
            Host::Export(_) => None,
        }
    }

    /// The export, if it is one.
    pub fn export(&self) -> Option<&NbdDevice> {
        match self {
            Host::File(_) => None,
            Host::Export(export) => Some(export),
        }
    }

    /// The path or address by which it was opened.
    pub fn path(&self) -> &Path {
        match self {
            Host::File(file) => file.path(),
            Host::Export(export) => export.path(),
        }
    }

    /// See [`FileDevice::fit_span`].
    pub(crate) fn fit_span(&self, span: Span) -> Result<()> {
        self.file().map_or(Ok(()), |file| file.fit_span(span))
    }

    /// See [`FileDevice::fit_granularity`].
    pub(crate) fn fit_granularity(&self, block: u32) -> Result<()> {
        self.file()
            .map_or(Ok(()), |file| file.fit_granularity(block))
    }

    /// See [`FileDevice::check_room`].
    pub(crate) fn check_room(&self, ranges: &[Range<u64>]) -> Result<()> {
        self.file().map_or(Ok(()), |file| file.check_room(ranges))
    }

    /// Checks that it could be opened for writing, too.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self {
            Host::File(file) => file.check_writable(),
            Host::Export(export) => export.check_writable(),
        }
    }

    /// See [`FileDevice::sharing`].
    pub(crate) fn sharing(&self) -> std::result::Result<SharedBy, String> {
        match self {
            Host::File(file) => file.sharing(),
            Host::Export(_) => Err("exports of NBD servers cannot share blocks".into()),
        }
    }
}
