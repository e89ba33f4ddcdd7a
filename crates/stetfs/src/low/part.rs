//! The place of a volume: a file or a device, or a part of one, given in bytes or by a partition
//! table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use stetfs_block::{BlockDevice, BlockError, Direct, Peek, Span, SparseDevice, SparseMap, Window};
use stetfs_ext4::{Foreign, FsError, Partitions, Result, read_partitions};
use stetfs_nbd::Address;

use super::host::{Host, HostOptions, Unread};
use super::region::RegionFile;

/// The part of an image or a device that is the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The whole.
    #[default]
    Whole,
    /// A range of bytes.
    Range {
        /// The first byte, a multiple of the sector size (512 in an image).
        offset: u64,
        /// Number of bytes; `None` up to the end.
        size: Option<u64>,
    },
    /// A partition in its GPT or MBR: a number, else a UUID or a name, of the partition or of the
    /// volume in it.
    Partition(String),
}

/// The source of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The image file or block device, or the address of an NBD server's export
    /// ([`Address`](stetfs_nbd::Address)).
    pub path: PathBuf,
    /// The part of it.
    pub part: Part,
    /// The path of the journal, if it is on another device and not where udev links it.
    pub journal_path: Option<PathBuf>,
    /// The file, or the part of one, with records of synced files: a region of persistent memory,
    /// or a substitute for one.
    pub nvm: Option<RegionFile>,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Source {
    /// The whole of an image or a device.
    fn from(path: &P) -> Source {
        Source {
            path: path.as_ref().to_owned(),
            ..Source::default()
        }
    }
}

/// The part of an image or a device that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PartInfo {
    /// The first byte.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

impl From<Span> for PartInfo {
    fn from(span: Span) -> PartInfo {
        PartInfo {
            offset: span.start,
            size: span.len,
        }
    }
}

/// The open device of a volume: a file or block device, or a part of it.
#[derive(Clone)]
pub(crate) struct OpenDisk {
    pub(crate) host: Host,
    pub(crate) span: Option<Span>,
    view: Arc<dyn BlockDevice>,
    sparse: bool,
}

/// The place of a volume in a file or device, as found before it is locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The volume is in an Android sparse image, whose bytes are stored elsewhere.
    pub is_sparse: bool,
    /// The range of bytes, if it is known and not the whole.
    pub span: Option<Span>,
}

impl Place {
    /// Reads it. For an export nothing is known before it is connected.
    ///
    /// # Errors
    /// `Unsuitable` and `Missing` if there is no such part, and the errors of the host.
    pub(crate) fn find(path: &Path, part: &Part) -> Result<Place> {
        if Address::is_meant(path) {
            return Ok(Place::default());
        }
        match Peek::open(path) {
            Ok(disk) => Place::read(&disk, path, part),
            // Opening it for use will report the error.
            Err(_) if matches!(part, Part::Whole) => Ok(Place::default()),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads it from an open file.
    pub(super) fn read(disk: &Peek, path: &Path, part: &Part) -> Result<Place> {
        let is_sparse = SparseMap::detect(disk).unwrap_or(false);
        let span = match is_sparse {
            false => span_of(path, part, disk)?,
            true => None,
        };
        Ok(Place { is_sparse, span })
    }
}

/// A disk, open and locked, before anything is read from it. Of an image only the part is locked;
/// an export as a whole.
pub(crate) struct UnreadDisk {
    host: Unread,
    place: Place,
    /// For reading the map of an Android sparse image.
    sparse: Option<Peek>,
}

impl UnreadDisk {
    /// Opens and locks it.
    ///
    /// # Errors
    /// As [`Unread::open`]. `Sparse` for an Android sparse image that is not opened read-only.
    pub(crate) fn open(path: &Path, place: Place, mut how: HostOptions) -> Result<UnreadDisk> {
        how.file.span = place.span;
        let mut sparse = None;
        if place.is_sparse {
            if !how.file.read_only {
                let path = path.to_owned();
                return Err(FsError::Device(Arc::new(BlockError::Sparse { path })));
            }
            // No block in it is aligned to the host's blocks.
            how.file.direct = Direct::Off;
            sparse = Some(Peek::open(path)?);
        }
        Ok(UnreadDisk {
            host: Unread::open(path, how)?,
            place,
            sparse,
        })
    }

    /// The storage of the disk.
    pub(crate) fn host(&self) -> &Unread {
        &self.host
    }

    /// Finds the part in it.
    ///
    /// # Errors
    /// As [`Unread::connect`]; `Unsuitable` and `Missing` if there is no such part, or it has
    /// moved.
    pub(crate) fn read(&self, path: &Path, part: &Part, read_only: bool) -> Result<OpenDisk> {
        let host = self.host.connect(read_only)?;
        let plain: Arc<dyn BlockDevice> = match (&self.sparse, &self.host) {
            (Some(sparse), Unread::File(file)) => {
                let map = SparseMap::read(sparse).map_err(|e| unsuitable(path, e.to_string()))?;
                Arc::new(SparseDevice::new(Arc::clone(file), map))
            }
            _ => host.device(),
        };
        let span = span_of(path, part, &*plain)?;
        if self.place.span.is_some() && span != self.place.span {
            let reason = "its partition table is being changed; try again";
            return Err(unsuitable(path, reason.into()));
        }
        let view = match span {
            None => plain,
            Some(span) => {
                if self.sparse.is_none() {
                    host.fit_span(span)?;
                }
                Arc::new(Window::new(plain, span, path)?)
            }
        };
        Ok(OpenDisk {
            host,
            span,
            view,
            sparse: self.sparse.is_some(),
        })
    }
}

impl OpenDisk {
    /// Opens and locks it. Of an image only the part is locked.
    ///
    /// # Errors
    /// As [`FileDevice::open`]; `Unsuitable` if there is no such part. `Sparse` for an Android
    /// sparse image that is not opened read-only.
    pub(crate) fn open(path: &Path, part: &Part, how: impl Into<HostOptions>) -> Result<OpenDisk> {
        let how = how.into();
        let unread = UnreadDisk::open(path, Place::find(path, part)?, how)?;
        unread.read(path, part, how.file.read_only)
    }

    /// Whether it is an Android sparse image.
    pub(crate) fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// The block device of the volume.
    pub(crate) fn view(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.view)
    }

    /// See [`FileDevice::fit_granularity`].
    pub(crate) fn fit_granularity(&self, block: u32) -> Result<()> {
        // The offsets of blocks on the host are multiples of the smaller power of two.
        let start = self.span.map_or(0, |span| span.start.trailing_zeros());
        let unit = match start {
            0 => block,
            zeros => block.min(1 << zeros.min(31)),
        };
        Ok(self.host.fit_granularity(unit)?)
    }

    /// For an export: fixes the content of `range` (of the view). A server that comes back with
    /// other content there has given the volume to another user
    /// ([`NbdDevice::guard`](stetfs_nbd::NbdDevice::guard)).
    pub(crate) fn guard(&self, range: Option<std::ops::Range<u64>>) -> Result<()> {
        if let (Some(export), Some(range)) = (self.host.export(), range) {
            let start = self.span.map_or(0, |span| span.start);
            export.guard(range.start + start..range.end + start)?;
        }
        Ok(())
    }

    /// See [`FileDevice::check_room`]; the ranges are of the view.
    pub(crate) fn check_room(&self, ranges: &[std::ops::Range<u64>]) -> Result<()> {
        let start = self.span.map_or(0, |span| span.start);
        let moved = ranges.iter().map(|r| r.start + start..r.end + start);
        Ok(self.host.check_room(&moved.collect::<Vec<_>>())?)
    }

    /// Explains an error of reading the volume. For a part there is no advice to make a new volume:
    /// the place may be wrong.
    pub(crate) fn explain(&self, e: FsError) -> FsError {
        match (self.span, e) {
            (Some(span), FsError::Foreign(found)) if *found == Foreign::Zeroes => {
                FsError::NoVolume(format!(
                    "{}: there is no ext4 volume in its part from byte {} to {}, which begins with \
                     zeroes",
                    self.host.path().display(),
                    span.start,
                    span.end()
                ))
            }
            (_, e) => e,
        }
    }
}

fn unsuitable(path: &Path, reason: String) -> FsError {
    let path = path.to_owned();
    FsError::Device(Arc::new(BlockError::Unsuitable { path, reason }))
}

fn missing(path: &Path, reason: String) -> FsError {
    let path = path.to_owned();
    FsError::Device(Arc::new(BlockError::Missing { path, reason }))
}

/// The bytes of a part of a disk; `None` for the whole.
pub(super) fn span_of(path: &Path, part: &Part, disk: &dyn BlockDevice) -> Result<Option<Span>> {
    let fail = |reason| unsuitable(path, reason);
    let (bytes, sector) = (disk.size(), disk.sector_size());
    let span = match part {
        Part::Whole => return Ok(None),
        Part::Range { offset, size } => {
            if *offset > 0 && *offset >= bytes {
                let reason = format!(
                    "offset={offset} is beyond its end ({bytes} bytes); an offset is in bytes, not \
                     in sectors"
                );
                return Err(fail(reason));
            }
            let start = *offset;
            let len = size.unwrap_or(bytes.saturating_sub(start));
            Span { start, len }
        }
        Part::Partition(name) => named(path, read_partitions(disk)?, name)?,
    };
    span.check(bytes, sector).map_err(fail)?;
    Ok(Some(span))
}

/// The bytes of a partition of the disk at `path`.
fn named(path: &Path, table: Option<Partitions>, name: &str) -> Result<Span> {
    let table = table.ok_or_else(|| {
        let reason = format!(
            "it has no partition table, so no partition {name}; remove partition= if the whole is \
             one volume"
        );
        missing(path, reason)
    })?;
    let partition = table.named(name).map_err(|no| match no.is_missing {
        true => missing(path, format!("it has {no}")),
        false => unsuitable(path, format!("it has {no}")),
    })?;
    Ok(Span {
        start: partition.offset,
        len: partition.size,
    })
}
