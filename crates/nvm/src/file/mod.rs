//! A region in a mapped file or block device.

mod map;
mod sync;

use std::fmt;
use std::fs::File;
use std::io::Seek;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use stetfs_block::{BlockError, Op, Result, Span, SpanLock};

use self::map::Mapping;
use self::sync::{Dirty, Failure};
use crate::cpu::LineFlush;
use crate::region::check_flush;
use crate::words;
use crate::{Durability, LINE, Region, WORD};

/// The way in which a fence makes content durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushBy {
    /// The file is in persistent memory (DAX, mapped with MAP_SYNC): the processor flushes lines
    /// and fences.
    Lines(&'static str),
    /// The kernel writes pages to the disk behind the file (msync).
    Pages,
    /// There is no storage behind the file's pages (tmpfs): content lasts as long as the machine
    /// runs.
    Stores,
}

enum Means {
    Lines(LineFlush),
    Pages(Dirty),
    Stores,
}

/// A region in a part of a file or block device.
///
/// The part is locked against other regions on it, and against volumes on the file. Its space is
/// allocated at opening, so that no store meets a full disk.
///
/// **If the file is truncated** while it is open, the next fence and all later ones fail
/// ([`BlockError::Shrunk`]). But a thread that touches a page that is gone before that, to load,
/// store or flush, is killed by the kernel (SIGBUS): there is no way to lock an ordinary file
/// against truncation. The content stored there is lost in either case.
pub struct FileRegion {
    // Dropped in this order: the part stays locked while it is mapped.
    map: Mapping,
    _lock: SpanLock,
    file: File,
    path: PathBuf,
    part: Span,
    means: Means,
    failure: Failure,
}

/// Magic numbers (statfs) of file systems without storage behind their pages, and of one where that
/// cannot be told.
const MEMORY: [u32; 4] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
    0x794c_7630, // overlayfs: depends on the file system below
];

impl FileRegion {
    /// Opens `part` of the file or block device at `path`. A block device is opened exclusively.
    ///
    /// # Errors
    /// [`BlockError::Locked`] if another process holds a byte of it; [`BlockError::Unsuitable`] if
    /// the part is not made of whole lines, the file ends before it does, or its space cannot be
    /// allocated; [`BlockError::Open`].
    pub fn open(path: &Path, part: Span) -> Result<Self> {
        Self::open_as(path, part, LineFlush::detect())
    }

    /// Opens everything from byte `start` to the last whole line.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_from(path: &Path, start: u64) -> Result<Self> {
        let (file, _) = open_file(path)?;
        let size = size_of(&file).map_err(|e| BlockError::open(path, e))?;
        let len = size.saturating_sub(start) / LINE * LINE;
        if start > 0 && len == 0 {
            let reason = format!("it has {size} bytes, and the region begins at byte {start}");
            return Err(unsuitable(path, &reason));
        }
        Self::open(path, Span { start, len })
    }

    /// The part of the file that this region is.
    pub fn part(&self) -> Span {
        self.part
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_as(path: &Path, part: Span, lines: Option<LineFlush>) -> Result<Self> {
        let fail = |e: Errno| BlockError::open(path, e);
        let end = part
            .start
            .checked_add(part.len)
            .filter(|_| part.len > 0)
            .filter(|_| part.start.is_multiple_of(LINE) && part.len.is_multiple_of(LINE))
            .ok_or_else(|| {
                unsuitable(path, "the size of a region must be a multiple of 64 bytes")
            })?;
        let (file, is_device) = open_file(path)?;
        let lock = SpanLock::take(path, &file, part)?;
        let size = size_of(&file).map_err(fail)?;
        if size < end {
            let reason = format!("it has {size} bytes, and the region ends at byte {end}");
            return Err(unsuitable(path, &reason));
        }
        if !is_device {
            allocate(&file, part)
                .map_err(|e| unsuitable(path, &format!("its space cannot be allocated: {e}")))?;
        }
        let (map, means) = match (Mapping::new(&file, part, true), lines) {
            (Ok(map), Some(lines)) => (map, Means::Lines(lines)),
            (Ok(map), None) => (map, Means::Pages(Dirty::default())),
            (Err(_), _) => {
                let map = Mapping::new(&file, part, false).map_err(fail)?;
                let kind = rustix::fs::fstatfs(&file).map_err(fail)?.f_type as u32;
                match !is_device && MEMORY.contains(&kind) {
                    true => (map, Means::Stores),
                    false => (map, Means::Pages(Dirty::default())),
                }
            }
        };
        let region = FileRegion {
            map,
            _lock: lock,
            file,
            path: path.to_owned(),
            part,
            means,
            failure: Failure::default(),
        };
        tracing::debug!(?region, "opened");
        Ok(region)
    }

    /// The way in which a fence makes content durable.
    pub fn write_back_by(&self) -> FlushBy {
        match &self.means {
            Means::Lines(lines) => FlushBy::Lines(lines.name()),
            Means::Pages(_) => FlushBy::Pages,
            Means::Stores => FlushBy::Stores,
        }
    }

    fn words(&self) -> &[AtomicU64] {
        self.map.words()
    }

    /// Checks that the file is as long as it was.
    fn check_size(&self) -> Result<()> {
        let io = |e: Errno| BlockError::io(Op::Flush, 0, self.part.len, e.into());
        let size = size_of(&self.file).map_err(io)?;
        match size < self.part.start + self.part.len {
            true => Err(BlockError::Shrunk {
                offset: size.saturating_sub(self.part.start),
                size: self.part.len,
            }),
            false => Ok(()),
        }
    }

    fn make_durable(&self) -> Result<()> {
        match &self.means {
            Means::Lines(lines) => lines.fence(),
            Means::Stores => fence(Ordering::SeqCst),
            Means::Pages(dirty) => dirty.sync(|bytes| {
                self.failure.check()?;
                let (offset, len) = (bytes.start as u64, bytes.len() as u64);
                let synced = self.map.sync(bytes);
                let failed = |e: Errno| BlockError::io(Op::Flush, offset, len, e.into());
                self.failure.note(synced.map_err(failed))
            })?,
        }
        self.check_size()
    }
}

fn unsuitable(path: &Path, reason: &str) -> BlockError {
    BlockError::Unsuitable {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Opens the file. Returns whether it is a block device.
fn open_file(path: &Path) -> Result<(File, bool)> {
    let fail = |e| BlockError::open(path, e);
    // A FIFO or a terminal must not be opened, so the type is checked first.
    let kind = std::fs::metadata(path).map_err(fail)?.file_type();
    let is_device = kind.is_block_device();
    if !is_device && !kind.is_file() {
        return Err(unsuitable(path, "neither a file nor a block device"));
    }
    let mut options = File::options();
    options.read(true).write(true);
    if is_device {
        // Keeps the kernel's mounts out.
        options.custom_flags(OFlags::EXCL.bits() as i32);
    }
    Ok((options.open(path).map_err(fail)?, is_device))
}

/// The current size in bytes of a file or a block device.
fn size_of(mut file: &File) -> std::result::Result<u64, Errno> {
    // The file's position is free for use: no request depends on it.
    let end = file.seek(std::io::SeekFrom::End(0));
    end.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

/// Allocates space where the file has none; content stays.
fn allocate(file: &File, part: Span) -> std::result::Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, part.start, part.len) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

impl fmt::Debug for FileRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRegion")
            .field("path", &self.path)
            .field("part", &self.part)
            .field("write_back_by", &self.write_back_by())
            .finish_non_exhaustive()
    }
}

impl Region for FileRegion {
    fn size(&self) -> u64 {
        self.words().len() as u64 * WORD
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        words::read(self.words(), offset, buf)
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        words::store(self.words(), offset, bytes)
    }

    fn load_u64(&self, offset: u64) -> Result<u64> {
        words::load_u64(self.words(), offset)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<()> {
        words::store_u64(self.words(), offset, value)
    }

    fn durability(&self) -> Durability {
        match self.means {
            Means::Lines(_) | Means::Pages(_) => Durability::Power,
            Means::Stores => Durability::Process,
        }
    }

    fn flush(&self, range: Range<u64>) -> Result<()> {
        check_flush(&range, self.part.len)?;
        if range.start >= range.end {
            return Ok(());
        }
        match &self.means {
            Means::Lines(lines) => {
                let first = range.start / LINE * (LINE / WORD);
                let end = range.end.div_ceil(LINE) * (LINE / WORD);
                lines.flush(&self.words()[first as usize..end as usize]);
            }
            Means::Pages(dirty) => dirty.note(range.start as usize..range.end as usize),
            Means::Stores => {}
        }
        Ok(())
    }

    fn fence(&self) -> Result<()> {
        self.failure.check()?;
        // A concurrent fence that failed may have dropped content of this one: `note` returns its
        // error.
        let durable = self.make_durable();
        self.failure.note(durable)
    }
}
