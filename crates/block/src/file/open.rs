//! Opening: options, geometry, and detection of the alignment for O_DIRECT.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

use super::align::Align;
use super::claim::Claim;
use super::request::Request;
use super::uring::RingPool;
use super::{FileDevice, fua, share, sys};
use crate::{AlignedBuf, BlockError, Counters, Result, SECTOR, Span};

/// The use of O_DIRECT, which bypasses the host's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// Used if the host supports it.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Required: opening fails without it.
    Required,
}

/// The use of io_uring for batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uring {
    /// Used if the kernel allows it; vectored system calls otherwise.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Options for opening a [`FileDevice`]. The default opens for writing, with O_DIRECT and io_uring
/// if they work.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// Refuses writes; allows other readers.
    pub read_only: bool,
    /// The use of O_DIRECT.
    pub direct: Direct,
    /// The use of io_uring.
    pub uring: Uring,
    /// The part of an image that will be used: other programs may use the rest. `None` is the whole
    /// image. Block devices are always used whole.
    pub span: Option<Span>,
}

/// Maximum alignment of buffers in bytes.
const MAX_ALIGN: u32 = 4096;

fn unsuitable(path: &Path, reason: &str) -> BlockError {
    BlockError::Unsuitable {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Opens the file. Returns whether it is a block device.
pub(super) fn open_file(path: &Path, read_only: bool) -> Result<(File, bool)> {
    let fail = |e| BlockError::open(path, e);
    // A FIFO or a terminal must not be opened, so the type is checked first.
    let kind = std::fs::metadata(path).map_err(fail)?.file_type();
    let is_block_device = kind.is_block_device();
    if !is_block_device && !kind.is_file() {
        let reason = "neither an image file nor a block device";
        return Err(unsuitable(path, reason));
    }
    let file = File::options()
        .read(true)
        .write(!read_only)
        .open(path)
        .map_err(fail)?;
    // The kernel opens a read-only device for writing, and refuses the writes.
    if is_block_device && !read_only && sys::is_read_only(&file).map_err(fail)? {
        return Err(BlockError::open(path, Errno::ROFS));
    }
    Ok((file, is_block_device))
}

/// The smallest unit that is written atomically, in bytes.
pub(super) fn sector_of(file: &File, is_block_device: bool) -> std::io::Result<u32> {
    match is_block_device {
        true => Ok(rustix::fs::ioctl_blksszget(file)?),
        false => Ok(SECTOR),
    }
}

impl FileDevice {
    /// Opens the image file or block device at `path`, and keeps every other writer out (readers
    /// too, unless `options.read_only`).
    ///
    /// # Errors
    /// [`BlockError::Locked`] if it is in use: by another StetFS, a program that holds a lock, or
    /// the kernel (mounted, or attached to a loop device); [`BlockError::Open`],
    /// [`BlockError::Unsuitable`].
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        open(path.as_ref(), options)
    }
}

fn open(path: &Path, options: OpenOptions) -> Result<FileDevice> {
    let fail = |e| BlockError::open(path, e);
    let (file, is_block_device) = open_file(path, options.read_only)?;
    let claim = Claim::take(path, &file, options.read_only, options.span)?;

    let size = sys::size(&file).map_err(fail)?;
    let sector = sector_of(&file, is_block_device).map_err(fail)?;
    let align = match options.direct {
        Direct::Off => None,
        _ => direct_align(&file, size, is_block_device.then_some(sector)),
    };
    if align.is_none() && options.direct == Direct::Required {
        return Err(unsuitable(path, "O_DIRECT is not possible here"));
    }
    let rings = match options.uring {
        Uring::Off => None,
        Uring::Auto => RingPool::new()
            .inspect_err(|e| tracing::info!("no io_uring, using preadv and pwritev: {e}"))
            .ok(),
    };
    tracing::debug!(path = %path.display(), size, sector, ?align, uring = rings.is_some(), "opened");
    // On a device the ioctl number may mean something else to the driver.
    let share = match is_block_device || options.read_only {
        true => Err("it is a block device, or was opened for reading".into()),
        false => share::Sharing::of(&file),
    };
    Ok(FileDevice {
        path: path.to_owned(),
        fua: !is_block_device && fua::is_cheap(&file),
        share,
        file,
        claim,
        is_block_device,
        size,
        sector,
        read_only: options.read_only,
        direct: AtomicBool::new(align.is_some()),
        align: align.unwrap_or(Align {
            memory: 1,
            offset: 1,
        }),
        rings,
        rmw: Mutex::new(()),
        no_discard: AtomicBool::new(false),
        counters: Counters::default(),
    })
}

/// Turns O_DIRECT on if it works, and returns the alignment that it needs. `sector` is a block
/// device's.
fn direct_align(file: &File, size: u64, sector: Option<u32>) -> Option<Align> {
    sys::set_direct(file, true).ok()?;
    let align = match (stated_align(file), sector) {
        (Some(align), _) => align,
        (None, Some(sector)) => Some(Align {
            memory: sector as usize,
            offset: sector,
        }),
        (None, None) => probed_align(file, size),
    };
    let usable = align.filter(|a| {
        a.offset.is_power_of_two()
            && a.memory.is_power_of_two()
            && a.offset <= MAX_ALIGN
            && a.memory <= MAX_ALIGN as usize
            // In an image that ends inside a sector O_DIRECT would have to extend it.
            && size.is_multiple_of(u64::from(a.offset))
    });
    if usable.is_none() {
        // This cannot fail where setting it worked; if it does, requests fail with an error.
        let _ = sys::set_direct(file, false);
    }
    usable
}

/// The alignment from statx: `None` if the host does not report it, `Some(None)` if it has no
/// direct I/O.
fn stated_align(file: &File) -> Option<Option<Align>> {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    let (memory, offset) = (stat.stx_dio_mem_align as usize, stat.stx_dio_offset_align);
    Some((memory != 0 && offset != 0).then_some(Align { memory, offset }))
}

/// Finds the alignment by trying: a read at an odd multiple of the candidate.
fn probed_align(file: &File, size: u64) -> Option<Align> {
    let mut buf = AlignedBuf::scratch(MAX_ALIGN as usize);
    [SECTOR, MAX_ALIGN].into_iter().find_map(|a| {
        if size < 2 * u64::from(a) {
            return None;
        }
        let mut part = [IoSliceMut::new(&mut buf[..a as usize])];
        let tried = Request::read(u64::from(a), &mut part).finish(file);
        tried.is_ok().then_some(Align {
            memory: a as usize,
            offset: a,
        })
    })
}
