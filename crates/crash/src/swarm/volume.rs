//! The volume of a plan: made by mke2fs, and filled as far as the plan says.

use std::sync::Arc;

use anyhow::{Context, Result};
use stetfs::low::{Ctx, FallocateMode, Fs, FsError, MemDevice, OpenRef, ROOT_INO};
use stetfs_testkit::Image;

use super::dimension::JOURNAL;
use super::history;
use super::plan::Plan;
use crate::outside::with_journal;
use crate::volume::{Base, Batches, able, mke2fs, settle};

/// Fewest blocks of a journal, a limit of mke2fs.
const LOG_MIN: u64 = 1024;
/// Blocks before the log of an external journal, with some reserve.
const BEFORE: u64 = 8;
/// Fewest bytes of a large journal.
const LOG_LARGE: u64 = 16 << 20;
/// Blocks that are left free on a nearly full volume.
const NEAR: u64 = 24;

/// The arguments for mke2fs, without the image.
pub fn arguments(plan: &Plan) -> Vec<String> {
    let mut features = Vec::new();
    let mut extended = vec!["lazy_itable_init=0".to_owned()];
    let mut on = |feature: &str, is_on: bool| {
        features.push(format!("{}{feature}", if is_on { "" } else { "^" }));
    };
    on("inline_data", plan.is("inline", "yes"));
    on("64bit", plan.is("width", "64"));
    on("extent", plan.is("map", "extents"));
    on("bigalloc", !plan.is("clusters", "one"));
    on("ea_inode", plan.is("values", "inodes"));
    on("orphan_file", plan.is("orphans", "file"));
    on("metadata_csum", plan.is("sums", "yes"));
    on("quota", !plan.is("quota", "no"));
    on("project", plan.is("quota", "project"));
    on("mmp", plan.is("mmp", "yes"));
    on("has_journal", !plan.is("log", "outside"));
    match plan.get("layout") {
        "rigid" => on("flex_bg", false),
        "meta" => {
            on("resize_inode", false);
            on("meta_bg", true);
        }
        _ => {}
    }
    match plan.get("quota") {
        "project" => extended.push("quotatype=usrquota:grpquota:prjquota".into()),
        "user" => extended.push("quotatype=usrquota:grpquota".into()),
        _ => {}
    }
    let block = plan.number("block");
    let mut args: Vec<String> = ["-m", "0", "-b"].map(String::from).into();
    args.push(block.to_string());
    args.extend(["-I".into(), plan.get("inode").into()]);
    args.extend(["-N".into(), "256".into()]);
    args.extend(["-O".into(), features.join(",")]);
    args.extend(["-E".into(), extended.join(",")]);
    if !plan.is("log", "outside") {
        args.extend(["-J".into(), format!("size={}", log_mib(plan))]);
    }
    let ratio = match plan.get("clusters") {
        "four" => 4,
        "sixteen" => 16,
        _ => 1,
    };
    if ratio > 1 {
        args.extend(["-C".into(), (block * ratio).to_string()]);
    } else if plan.is("groups", "small") {
        // The number must be a multiple of 8, and the tables have to fit.
        args.extend(["-g".into(), "1024".into()]);
    }
    args
}

/// Size of the journal in MiB.
fn log_mib(plan: &Plan) -> u64 {
    let least = LOG_MIN * plan.number("block");
    match plan.get("log") {
        "large" => least.max(LOG_LARGE) >> 20,
        _ => least.div_ceil(1 << 20),
    }
}

/// Most bytes of a write that must be whole after a crash: a part of a transaction of the smallest
/// lane.
pub fn write_max(plan: &Plan) -> usize {
    let lanes = plan.number(&format!("{JOURNAL}lanes")).max(2);
    ((log_mib(plan) << 20) / (16 * lanes)) as usize
}

/// Size of the journal in blocks.
pub fn log_blocks(plan: &Plan) -> u32 {
    ((log_mib(plan) << 20) / plan.number("block")) as u32
}

/// Size of the volume in bytes.
fn size(plan: &Plan) -> u64 {
    let rest = match plan.number("block") {
        1024 => 8,
        16384 | 32768 => 32,
        _ => 20,
    };
    // mke2fs refuses a journal that is larger than half of the free space of the empty volume.
    let log = log_mib(plan);
    let of_groups = if plan.is("groups", "small") { 4 } else { 1 };
    (log + of_groups * rest.max(log + log.div_ceil(8) + 3)) << 20
}

/// Makes the volume.
///
/// # Errors
/// mke2fs fails, or the volume that it made cannot be opened.
pub fn make(plan: &Plan) -> Result<Base> {
    let image = Image::in_memory(size(plan))?;
    let args = arguments(plan);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    mke2fs(image.path(), &args).with_context(|| format!("mke2fs {}", args.join(" ")))?;
    let mut device = MemDevice::load(image.path())?;
    let block = plan.number("block");
    if plan.is("log", "outside") {
        let blocks = u64::from(log_blocks(plan)) + BEFORE;
        device = with_journal(&device, block, blocks)?;
    }
    let device = history::by_kernel(plan, device).context("a history by the kernel")?;
    let device = Arc::new(able(device, Batches::default(), false));
    let mut base = settle(device, block as u32, &mut |fs| {
        history::by_stetfs(plan, fs).context("a history")?;
        fill(fs, plan.get("fullness")).context("filling the volume")
    })?;
    base.is_closed = plan.is("quota", "no") && plan.is("values", "blocks");
    Ok(base)
}

/// Takes space or inodes by one or many files, outside the scripts' directories.
fn fill(fs: &Arc<Fs>, fullness: &str) -> Result<()> {
    let free = fs.statfs().bfree;
    match fullness {
        "empty" => Ok(()),
        "half" => take(fs, free / 2),
        "near" => take(fs, free.saturating_sub(NEAR)),
        "full" => take(fs, free),
        _ => take_inodes(fs),
    }
}

/// Makes a file of `blocks` blocks, or as large as it can be.
fn take(fs: &Arc<Fs>, blocks: u64) -> Result<()> {
    let ctx = Ctx::ROOT;
    let (attr, file) = fs.create(&ctx, ROOT_INO, b"full", 0o600, 0, libc::O_RDWR)?;
    fs.forget(attr.ino, 1);
    let block = u64::from(fs.statfs().block_size);
    let (mut at, mut step) = (0, blocks.next_power_of_two().min(4096));
    while step > 0 && at < blocks {
        let len = step.min(blocks - at);
        match grow(fs, &file, at * block, len * block) {
            Ok(()) => at += len,
            Err(FsError::Errno(libc::ENOSPC)) => step /= 2,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Data of one write.
static ZEROES: [u8; 256 << 10] = [0; 256 << 10];

/// Allocates blocks behind the end of a file, or writes zeroes if the file cannot be allocated.
fn grow(fs: &Fs, file: &OpenRef, at: u64, len: u64) -> Result<(), FsError> {
    let ctx = Ctx::ROOT;
    let mode = FallocateMode::Allocate { keep_size: false };
    match fs.fallocate(&ctx, file, mode, at, len) {
        Err(FsError::Errno(libc::EOPNOTSUPP)) => {
            let mut done = 0;
            while done < len {
                let piece = &ZEROES[..ZEROES.len().min((len - done) as usize)];
                match fs.write(&ctx, file, at + done, piece, false)? {
                    n if n == piece.len() => done += n as u64,
                    _ => return Err(FsError::Errno(libc::ENOSPC)),
                }
            }
            Ok(())
        }
        done => done,
    }
}

/// Inodes that are left free.
const INODES: u64 = 3;

fn take_inodes(fs: &Arc<Fs>) -> Result<()> {
    let ctx = Ctx::ROOT;
    let dir = fs.mkdir(&ctx, ROOT_INO, b"many", 0o755, 0)?;
    for n in 0.. {
        if fs.statfs().ffree <= INODES {
            break;
        }
        let name = format!("f{n}");
        let made = fs.create(&ctx, dir.ino, name.as_bytes(), 0o600, 0, libc::O_RDWR);
        let (attr, file) = made?;
        drop(file);
        fs.forget(attr.ino, 1);
    }
    fs.forget(dir.ino, 1);
    Ok(())
}
