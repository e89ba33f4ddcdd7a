//! The volume of a plan, made by mke2fs and filled as far as the plan says.

use std::sync::Arc;

use anyhow::{Context, Result};
use stetfs::low::{Ctx, FallocateMode, Fs, FsError, MemDevice, OpenRef, ROOT_INO};
use stetfs_testkit::Image;

use super::dimension::JOURNAL;
use super::plan::Plan;
use crate::volume::{Base, Batches, able, mke2fs, settle};

/// Blocks of a journal at least, as mke2fs has it.
const LOG_MIN: u64 = 1024;
/// Bytes of a large journal at least.
const LOG_LARGE: u64 = 16 << 20;
/// Blocks that are left free on a volume that is nearly full.
const NEAR: u64 = 24;

/// Arguments for mke2fs, but for the image.
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
    args.extend(["-J".into(), format!("size={}", log_mib(plan))]);
    let ratio = match plan.get("clusters") {
        "four" => 4,
        "sixteen" => 16,
        _ => 1,
    };
    if ratio > 1 {
        args.extend(["-C".into(), (block * ratio).to_string()]);
    } else if plan.is("groups", "small") {
        // A multiple of 8, and the tables have to fit.
        args.extend(["-g".into(), "1024".into()]);
    }
    args
}

/// Size of the journal, MiB.
fn log_mib(plan: &Plan) -> u64 {
    let least = LOG_MIN * plan.number("block");
    match plan.get("log") {
        "large" => least.max(LOG_LARGE) >> 20,
        _ => least.div_ceil(1 << 20),
    }
}

/// Bytes that a write has at most, so that it is whole after a crash where writes are: a part of
/// what the smallest lane's transactions hold.
pub fn write_max(plan: &Plan) -> usize {
    let lanes = plan.number(&format!("{JOURNAL}lanes")).max(2);
    ((log_mib(plan) << 20) / (16 * lanes)) as usize
}

/// Blocks of the journal.
pub fn log_blocks(plan: &Plan) -> u32 {
    ((log_mib(plan) << 20) / plan.number("block")) as u32
}

/// Size of the volume, bytes.
fn size(plan: &Plan) -> u64 {
    let rest = match plan.number("block") {
        1024 => 8,
        16384 | 32768 => 32,
        _ => 20,
    };
    // mke2fs makes no journal that is larger than half of what the empty volume has free.
    let log = log_mib(plan);
    let of_groups = if plan.is("groups", "small") { 4 } else { 1 };
    (log + of_groups * rest.max(log + log.div_ceil(8) + 3)) << 20
}

/// Makes the volume.
///
/// # Errors
/// mke2fs failed, or the volume it made.
pub fn make(plan: &Plan) -> Result<Base> {
    let image = Image::in_memory(size(plan))?;
    let args = arguments(plan);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    mke2fs(image.path(), &args).with_context(|| format!("mke2fs {}", args.join(" ")))?;
    let device = MemDevice::load(image.path())?;
    let device = Arc::new(able(device, Batches::default(), false));
    let mut base = settle(device, plan.number("block") as u32, &mut |fs| {
        fill(fs, plan.get("fullness")).context("filling the volume")
    })?;
    base.is_closed = plan.is("quota", "no") && plan.is("values", "blocks");
    Ok(base)
}

/// Takes space or inodes, by a file or by many, outside of where the work is.
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

/// A file of so many blocks; of a file that does not fit all that fits.
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

/// Blocks behind the end of a file, written where they cannot be allocated without.
fn grow(fs: &Fs, file: &OpenRef, at: u64, len: u64) -> Result<(), FsError> {
    let ctx = Ctx::ROOT;
    let mode = FallocateMode::Allocate { keep_size: false };
    match fs.fallocate(&ctx, file, mode, at, len) {
        Err(FsError::Errno(libc::EOPNOTSUPP)) => {
            let zeroes = vec![0; len as usize];
            match fs.write(&ctx, file, at, &zeroes, false)? as u64 {
                n if n == len => Ok(()),
                _ => Err(FsError::Errno(libc::ENOSPC)),
            }
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
