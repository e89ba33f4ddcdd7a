//! Where a volume is: a file or a device, or a part of one, told by bytes or by a partition table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use stetfs_block::{
    BlockDevice, BlockError, Direct, FileDevice, OpenOptions, Peek, Span, SparseDevice, SparseMap,
    Window,
};
use stetfs_ext4::{Foreign, FsError, Partitions, ReadBy, Result, read_partitions};
use stetfs_nbd::Address;

use super::host::{Host, HostOptions};
use super::region::RegionFile;

/// Which part of an image or a device a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// These bytes.
    Range {
        /// The first one, a multiple of the sectors' size (512 of an image).
        offset: u64,
        /// How many; all up to the end if nothing is said.
        size: Option<u64>,
    },
    /// A partition of its GPT or MBR: a number, else a UUID or a name, of the partition or of the
    /// volume in it.
    Partition(String),
}

/// Where a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The image file or block device, or the address of an NBD server's export
    /// ([`Address`](stetfs_nbd::Address)).
    pub path: PathBuf,
    /// Which part of it.
    pub part: Part,
    /// Where the journal is, if on another device and not where udev links it.
    pub journal_path: Option<PathBuf>,
    /// The file, or the part of one, with records of synced files: a region of persistent memory,
    /// or what stands in for one.
    pub nvm: Option<RegionFile>,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Source {
    /// All of an image or a device.
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
    /// Bytes.
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

/// The device of a volume: a file or block device that is open, or a part of it.
#[derive(Clone)]
pub(crate) struct OpenDisk {
    pub(crate) host: Host,
    pub(crate) span: Option<Span>,
    view: Arc<dyn BlockDevice>,
    sparse: bool,
}

impl OpenDisk {
    /// Opens and locks it. Of an image only the part is locked.
    ///
    /// # Errors
    /// As [`FileDevice::open`]; `Unsuitable` where there is no such part.
    /// `Sparse` for an Android sparse image, unless it is opened to be read.
    pub(crate) fn open(path: &Path, part: &Part, how: impl Into<HostOptions>) -> Result<OpenDisk> {
        let mut how = how.into();
        if Address::is_meant(path) {
            return OpenDisk::of_export(path, part, how);
        }
        if let Some(map) = sparse_map(path)? {
            return OpenDisk::of_sparse(path, part, how.file, map);
        }
        let span = find(path, part)?;
        how.file.span = span;
        let host = Host::open(path, how)?;
        let Some(span) = span else {
            return Ok(OpenDisk::whole(host));
        };
        if let Part::Partition(name) = part
            && named(path, read_partitions(&*host.device())?, name).ok() != Some(span)
        {
            return Err(unsuitable(
                path,
                "its partition table is being changed; try again".into(),
            ));
        }
        host.fit_span(span)?;
        OpenDisk::part_of(host, span, path)
    }

    fn part_of(host: Host, span: Span, path: &Path) -> Result<OpenDisk> {
        Ok(OpenDisk {
            view: Arc::new(Window::new(host.device(), span, path)?),
            host,
            span: Some(span),
            sparse: false,
        })
    }

    fn whole(host: Host) -> OpenDisk {
        OpenDisk {
            view: host.device(),
            host,
            span: None,
            sparse: false,
        }
    }

    /// The same of an export, which is locked as a whole.
    fn of_export(path: &Path, part: &Part, how: HostOptions) -> Result<OpenDisk> {
        let host = Host::open(path, how)?;
        if matches!(part, Part::Whole) {
            return Ok(OpenDisk::whole(host));
        }
        let span = find_on(path, part, &by_blocks(&*host.device()))?;
        OpenDisk::part_of(host, span, path)
    }

    /// The same of what an Android sparse image says.
    fn of_sparse(path: &Path, part: &Part, how: OpenOptions, map: SparseMap) -> Result<OpenDisk> {
        if !how.read_only {
            let path = path.to_owned();
            return Err(FsError::Device(Arc::new(BlockError::Sparse { path })));
        }
        let how = OpenOptions {
            // Nothing in it is where a block of the host's would be.
            direct: Direct::Off,
            span: None,
            ..how
        };
        let file = Arc::new(FileDevice::open(path, how)?);
        let plain: Arc<dyn BlockDevice> = Arc::new(SparseDevice::new(Arc::clone(&file), map));
        let span = match part {
            Part::Whole => None,
            _ => Some(find_on(path, part, &by_blocks(&*plain))?),
        };
        let view = match span {
            None => plain,
            Some(span) => Arc::new(Window::new(plain, span, path)?),
        };
        Ok(OpenDisk {
            host: Host::File(file),
            span,
            view,
            sparse: true,
        })
    }

    /// Whether it is an Android sparse image.
    pub(crate) fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// What the volume is on.
    pub(crate) fn view(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.view)
    }

    /// See [`FileDevice::fit_granularity`].
    pub(crate) fn fit_granularity(&self, block: u32) -> Result<()> {
        // Blocks lie at multiples of what both are multiples of.
        let start = self.span.map_or(0, |span| span.start.trailing_zeros());
        let unit = match start {
            0 => block,
            zeros => block.min(1 << zeros.min(31)),
        };
        Ok(self.host.fit_granularity(unit)?)
    }

    /// Of an export: a server that comes back with another content of `range` of the view has given
    /// the volume to somebody else ([`NbdDevice::guard`](stetfs_nbd::NbdDevice::guard)).
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

    /// An error of what was read as a volume. Of a part nobody is told to make a new one: its place
    /// may be wrong.
    pub(crate) fn explain(&self, e: FsError) -> FsError {
        match (self.span, e) {
            (Some(span), FsError::Foreign(found)) if *found == Foreign::Zeroes => {
                FsError::NoVolume(format!(
                    "{}: there is no ext4 volume in the part of it from byte {} to {}: that begins with zeroes",
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

/// What an Android sparse image says; `None` of another image, and of what is not there.
fn sparse_map(path: &Path) -> Result<Option<SparseMap>> {
    // What cannot be opened is told by who opens it to use it.
    let Ok(disk) = Peek::open(path) else {
        return Ok(None);
    };
    if !SparseMap::detect(&disk).unwrap_or(false) {
        return Ok(None);
    }
    let map = SparseMap::read(&disk).map_err(|e| unsuitable(path, e.to_string()))?;
    Ok(Some(map))
}

/// Reads the device by its trait.
fn by_blocks(
    device: &dyn BlockDevice,
) -> ReadBy<impl Fn(u64, &mut [u8]) -> Result<(), FsError> + '_> {
    ReadBy {
        size: device.size(),
        sector: device.sector_size(),
        read: |at, buf: &mut [u8]| Ok(device.read(at, buf)?),
    }
}

/// The bytes of a part, before it is locked.
fn find(path: &Path, part: &Part) -> Result<Option<Span>> {
    if matches!(part, Part::Whole) {
        return Ok(None);
    }
    let disk = Peek::open(path)?;
    let by = ReadBy {
        size: disk.size(),
        sector: disk.sector_size(),
        read: |at, buf: &mut [u8]| Ok::<_, FsError>(disk.read(at, buf)?),
    };
    find_on(path, part, &by).map(Some)
}

/// The bytes of a part of a disk.
fn find_on<R: Fn(u64, &mut [u8]) -> Result<(), FsError>>(
    path: &Path,
    part: &Part,
    disk: &ReadBy<R>,
) -> Result<Span> {
    let fail = |reason| unsuitable(path, reason);
    let span = match part {
        Part::Whole => Span {
            start: 0,
            len: disk.size,
        },
        Part::Range { offset, size } => {
            if *offset > 0 && *offset >= disk.size {
                let reason = format!(
                    "offset={offset} is not inside of its {} bytes (an offset is in bytes, not in sectors)",
                    disk.size
                );
                return Err(fail(reason));
            }
            let start = *offset;
            let len = size.unwrap_or(disk.size.saturating_sub(start));
            Span { start, len }
        }
        Part::Partition(name) => named(path, Partitions::read(disk)?, name)?,
    };
    span.check(disk.size, disk.sector).map_err(fail)?;
    Ok(span)
}

/// The bytes of a partition of the disk at `path`.
fn named(path: &Path, table: Option<Partitions>, name: &str) -> Result<Span> {
    let table = table.ok_or_else(|| {
        let reason = format!(
            "it has no partition table, so no partition {name}; leave partition= out if it is one volume as a whole"
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
