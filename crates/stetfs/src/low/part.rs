//! Where a volume is: a file or a device, or a part of one, told by bytes or by a partition table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use stetfs_block::{BlockDevice, BlockError, FileDevice, OpenOptions, Peek, Span, Window};
use stetfs_ext4::{Foreign, FsError, Partitions, ReadBy, Result, read_partitions};

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
    /// The image file or block device.
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
    pub(crate) file: Arc<FileDevice>,
    pub(crate) span: Option<Span>,
    view: Arc<dyn BlockDevice>,
}

impl OpenDisk {
    /// Opens and locks it. Of an image only the part is locked.
    ///
    /// # Errors
    /// As [`FileDevice::open`]; `Unsuitable` where there is no such part.
    pub(crate) fn open(path: &Path, part: &Part, how: OpenOptions) -> Result<OpenDisk> {
        let span = find(path, part)?;
        let file = Arc::new(FileDevice::open(path, OpenOptions { span, ..how })?);
        let Some(span) = span else {
            let view = Arc::clone(&file) as Arc<dyn BlockDevice>;
            return Ok(OpenDisk {
                file,
                span: None,
                view,
            });
        };
        if let Part::Partition(name) = part
            && named(read_partitions(&*file)?, name).ok() != Some(span)
        {
            return Err(unsuitable(
                path,
                "its partition table is being changed; try again".into(),
            ));
        }
        file.fit_span(span)?;
        let view = Arc::new(Window::new(Arc::clone(&file), span, path)?);
        Ok(OpenDisk {
            file,
            span: Some(span),
            view,
        })
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
        Ok(self.file.fit_granularity(unit)?)
    }

    /// See [`FileDevice::check_room`]; the ranges are of the view.
    pub(crate) fn check_room(&self, ranges: &[std::ops::Range<u64>]) -> Result<()> {
        let start = self.span.map_or(0, |span| span.start);
        let moved = ranges.iter().map(|r| r.start + start..r.end + start);
        Ok(self.file.check_room(&moved.collect::<Vec<_>>())?)
    }

    /// An error of what was read as a volume. Of a part nobody is told to make a new one: its place
    /// may be wrong.
    pub(crate) fn explain(&self, e: FsError) -> FsError {
        match (self.span, e) {
            (Some(span), FsError::Foreign(found)) if *found == Foreign::Zeroes => {
                let reason = format!(
                    "there is no ext4 volume in the part of it from byte {} to {}: that begins with zeroes",
                    span.start,
                    span.end()
                );
                unsuitable(self.file.path(), reason)
            }
            (_, e) => e,
        }
    }
}

fn unsuitable(path: &Path, reason: String) -> FsError {
    let path = path.to_owned();
    FsError::Device(Arc::new(BlockError::Unsuitable { path, reason }))
}

/// The bytes of a part, before it is locked.
fn find(path: &Path, part: &Part) -> Result<Option<Span>> {
    let fail = |reason| unsuitable(path, reason);
    let (disk, span) = match part {
        Part::Whole => return Ok(None),
        Part::Range { offset, size } => {
            let disk = Peek::open(path)?;
            if *offset > 0 && *offset >= disk.size() {
                let reason = format!(
                    "offset={offset} is not inside of its {} bytes (an offset is in bytes, not in sectors)",
                    disk.size()
                );
                return Err(fail(reason));
            }
            let start = *offset;
            let len = size.unwrap_or(disk.size().saturating_sub(start));
            (disk, Span { start, len })
        }
        Part::Partition(name) => {
            let disk = Peek::open(path)?;
            let table = Partitions::read(&ReadBy {
                size: disk.size(),
                sector: disk.sector_size(),
                read: |at, buf: &mut [u8]| Ok::<_, FsError>(disk.read(at, buf)?),
            })?;
            let span = named(table, name).map_err(fail)?;
            (disk, span)
        }
    };
    span.check(disk.size(), disk.sector_size()).map_err(fail)?;
    Ok(Some(span))
}

/// The bytes of a partition. What is wrong is a sentence without a subject, which is the disk.
fn named(table: Option<Partitions>, name: &str) -> Result<Span, String> {
    let table = table.ok_or_else(|| {
        format!("it has no partition table, so no partition {name}; leave partition= out if it is one volume as a whole")
    })?;
    let partition = table.named(name).map_err(|no| format!("it has {no}"))?;
    Ok(Span {
        start: partition.offset,
        len: partition.size,
    })
}
