//! New volumes: the file or device, the check of what it holds, and the format.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use serde::Serialize;
use stetfs_block::{BlockDevice, BlockError, Direct, OpenOptions, SECTOR};
use stetfs_ext4::FsError;
use stetfs_format::{
    Before, FormatError, FormatOptions, FormatResult, Plan, Space, Summary, found,
};
use stetfs_nbd::Address;
use stetfs_ondisk::uuid;

use super::part::{OpenDisk, Part, PartInfo};

/// The place of a new volume, and what may be done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatTarget {
    /// Bytes. `None` is all of the file, device or part. A file that does not exist takes a size,
    /// and one that is shorter grows to it.
    pub size: Option<u64>,
    /// The part of the file or device.
    pub part: Part,
    /// Whether recognised content is overwritten: file systems, partition tables and the like.
    pub force: bool,
    /// Whether the old content is discarded first: the blocks of an image are freed, and a device
    /// may forget.
    pub discard: bool,
    /// Whether everything is checked, and nothing is written.
    pub dry_run: bool,
}

impl Default for FormatTarget {
    fn default() -> FormatTarget {
        FormatTarget {
            size: None,
            part: Part::Whole,
            force: false,
            discard: true,
            dry_run: false,
        }
    }
}

/// A volume that was made, or that would be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Formatted {
    /// The file or device.
    pub volume: PathBuf,
    /// The part of it, if it is not the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartInfo>,
    /// Whether it was written; not in a dry run.
    pub written: bool,
    /// Size, bytes.
    pub bytes: u64,
    /// The UUID.
    pub uuid: String,
    /// The label; bytes that are not UTF-8 are replaced.
    pub label: String,
    /// The features' names.
    pub features: String,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a cluster; the block size without `bigalloc`.
    pub cluster_size: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Blocks reserved for the superuser.
    pub reserved_blocks: u64,
    /// Blocks that are free in the new volume, the reserved ones included.
    pub free_blocks: u64,
    /// Number of groups.
    pub groups: u32,
    /// Number of inodes.
    pub inodes: u32,
    /// Inodes that are free in the new volume.
    pub free_inodes: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Bytes of the journal; 0 without one.
    pub journal_bytes: u64,
    /// Deviations from the profile, each a sentence.
    pub notes: Vec<String>,
}

impl Formatted {
    fn new(path: &Path, part: Option<PartInfo>, written: bool, summary: Summary) -> Formatted {
        Formatted {
            volume: path.to_owned(),
            part,
            written,
            bytes: summary.bytes,
            uuid: uuid::text(&summary.uuid),
            label: String::from_utf8_lossy(&summary.label).into_owned(),
            features: summary.features,
            block_size: summary.block_size,
            cluster_size: summary.cluster_size,
            blocks: summary.blocks,
            reserved_blocks: summary.reserved_blocks,
            free_blocks: summary.free_blocks,
            groups: summary.groups,
            inodes: summary.inodes,
            free_inodes: summary.free_inodes,
            inode_size: summary.inode_size,
            journal_bytes: summary.journal_bytes,
            notes: summary.notes,
        }
    }
}

/// Makes a new ext4 volume in the file, on the block device or on the export at `path`, which is
/// locked meanwhile as for a mount. A file that does not exist is made, sparse, and removed again
/// if that fails. The volume is durable on return.
///
/// # Errors
/// [`FormatError::Occupied`] without [`FormatTarget::force`]; [`FormatError::Device`] with
/// [`BlockError::Locked`] if it is in use, with or without force, and with the host's errors;
/// options that contradict each other or do not fit the size.
pub fn format(
    path: &Path,
    target: &FormatTarget,
    options: &FormatOptions,
) -> FormatResult<Formatted> {
    let exists = Address::is_meant(path)
        || match std::fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            // Opening it reports other errors.
            _ => true,
        };
    match (exists, target.size) {
        (true, _) => existing(path, target, options),
        (false, None) => Err(FormatError::Options(format!(
            "{} does not exist: give a size (--size) to make it",
            path.display()
        ))),
        (false, Some(_)) if target.part != Part::Whole => Err(FormatError::Options(format!(
            "{} does not exist, so it has no parts: make it first (truncate -s SIZE)",
            path.display()
        ))),
        (false, Some(size)) => new_file(path, size, target.dry_run, options),
    }
}

/// Makes a volume in a file that does not exist.
fn new_file(
    path: &Path,
    size: u64,
    dry_run: bool,
    options: &FormatOptions,
) -> FormatResult<Formatted> {
    let space = Space {
        bytes: size,
        sector: SECTOR,
    };
    let plan = Plan::new(space, options)?;
    if !dry_run {
        let file = File::create_new(path).map_err(|e| of_host(path, e))?;
        let made = lengthen(path, &file, size).and_then(|()| {
            let disk = open(path, &Part::Whole)?;
            plan.write(&*disk.view(), Before::Zeros)?;
            sync_dir_of(path)
        });
        if let Err(e) = made {
            if let Err(e) = std::fs::remove_file(path) {
                tracing::warn!("cannot remove the incomplete file {}: {e}", path.display());
            }
            return Err(e);
        }
    }
    Ok(Formatted::new(path, None, !dry_run, plan.summary()))
}

/// Makes a volume in a file or on a device that exists.
fn existing(
    path: &Path,
    target: &FormatTarget,
    options: &FormatOptions,
) -> FormatResult<Formatted> {
    let mut disk = open(path, &target.part)?;
    let mut view = disk.view();
    if !target.force
        && let Some(found) = found(&*view)?
    {
        return Err(FormatError::Occupied(found));
    }
    let file = disk.host.file().filter(|file| !file.is_block_device());
    let is_image = file.is_some();
    let old_size = view.size();
    let space = Space {
        bytes: target.size.unwrap_or(old_size),
        sector: view.sector_size(),
    };
    let grows = space.bytes > old_size;
    if grows && !(is_image && target.part == Part::Whole) {
        return Err(FormatError::Size(format!(
            "it has {old_size} bytes, fewer than the {} of the new volume: give a smaller size, or \
             none for all of it",
            space.bytes
        )));
    }
    let mut options = options.clone();
    // Zeroing a part of an image frees its blocks.
    options.zero_tables |= is_image;
    let plan = Plan::new(space, &options)?;
    let part = disk.span.map(PartInfo::from);
    if target.dry_run {
        return Ok(Formatted::new(path, part, false, plan.summary()));
    }
    if grows {
        let opened = File::options().write(true).open(path);
        let file = opened.map_err(|e| of_host(path, e))?;
        // The size of an open device is fixed.
        drop((disk, view));
        lengthen(path, &file, space.bytes)?;
        disk = open(path, &target.part)?;
        view = disk.view();
    }
    let before = match is_image && old_size == 0 {
        true => Before::Zeros,
        false => Before::Anything,
    };
    if target.discard && before == Before::Anything {
        view.discard(0..space.bytes)?;
    }
    plan.write(&*view, before)?;
    Ok(Formatted::new(path, part, true, plan.summary()))
}

fn open(path: &Path, part: &Part) -> FormatResult<OpenDisk> {
    let how = OpenOptions {
        direct: Direct::Off,
        ..OpenOptions::default()
    };
    OpenDisk::open(path, part, how).map_err(|e| match e {
        FsError::Device(e) => FormatError::Device(Arc::unwrap_or_clone(e)),
        e => FormatError::Options(e.to_string()),
    })
}

fn of_host(path: &Path, e: std::io::Error) -> FormatError {
    FormatError::Device(BlockError::Open {
        path: path.to_owned(),
        source: Arc::new(e),
    })
}

/// Makes a file `size` bytes long.
fn lengthen(path: &Path, file: &File, size: u64) -> FormatResult<()> {
    file.set_len(size).map_err(|e| {
        let too_large = [Errno::FBIG, Errno::INVAL].map(Errno::raw_os_error);
        match e.raw_os_error().is_some_and(|e| too_large.contains(&e)) {
            true => FormatError::Size(format!(
                "the file system that holds {} has no files of {size} bytes: give a smaller size, \
                 or another place",
                path.display()
            )),
            false => of_host(path, e),
        }
    })
}

/// Makes the name of a new file durable.
fn sync_dir_of(path: &Path) -> FormatResult<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|e| of_host(path, e))
}
