//! The history of a volume before the work: files that were created, changed and deleted by StetFS
//! or by the kernel's ext4, possibly with a power cut.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, lsetxattr, syncfs};
use stetfs::low::{Ctx, FallocateMode, Fs, FsError, MemDevice, ROOT_INO};
use stetfs_testkit::sys::Shutdown;

use super::plan::Plan;
use crate::outside::Files;

/// Number of files that are created; every second one is deleted.
const FILES: u64 = 24;
/// Most bytes of a file.
const LARGEST: u64 = 48 << 10;
/// The directory of these files.
const DIR: &str = "aged";

/// Has the kernel use a volume, if the plan says so.
///
/// # Errors
/// The kernel cannot mount the volume, or an operation fails.
pub(super) fn by_kernel(plan: &Plan, device: MemDevice) -> Result<MemDevice> {
    let is_cut = plan.is("history", "cut");
    if !is_cut && !plan.is("history", "kernel") {
        return Ok(device);
    }
    let mut rng = fastrand::Rng::with_seed(plan.seed ^ 0xa6ed);
    let files = Files::of(&device)?;
    let data = ["data=ordered", "data=journal"][rng.usize(0..2)];
    let (mount, journal) = files.mount(data)?;
    let dir = mount.path().join(DIR);
    fs::create_dir(&dir)?;
    use_files(&dir, &mut rng, 0..FILES / 2)?;
    syncfs(File::open(&dir)?).context("syncfs")?;
    use_files(&dir, &mut rng, FILES / 2..FILES)?;
    match is_cut {
        false => mount.umount()?,
        true => {
            let nameless = dir.join("nameless");
            let open = File::create(&nameless)?;
            open.write_all_at(&[7; 5000], 0)?;
            fs::remove_file(&nameless)?;
            let how = match rng.bool() {
                true => Shutdown::LogFlush,
                false => Shutdown::NoLogFlush,
            };
            mount.crash(how, || drop(open))?;
        }
    }
    drop(journal);
    files.load()
}

/// Creates files with these numbers, and deletes every second one.
fn use_files(dir: &Path, rng: &mut fastrand::Rng, numbers: std::ops::Range<u64>) -> Result<()> {
    let path = |n: u64| dir.join(format!("f{n}"));
    for n in numbers.clone() {
        let file = File::create(path(n))?;
        let len = rng.u64(1..LARGEST);
        let mut bytes = vec![0; usize::try_from(len)?];
        rng.fill(&mut bytes);
        file.write_all_at(&bytes, rng.u64(0..LARGEST))?;
        match rng.u8(0..6) {
            0 => fs::hard_link(path(n), dir.join(format!("link{n}")))?,
            1 => symlink(format!("f{n}"), dir.join(format!("symbolic{n}")))?,
            2 => file.set_len(rng.u64(0..LARGEST))?,
            // This fails with block maps.
            3 => drop(fallocate(&file, FallocateFlags::KEEP_SIZE, len, LARGEST)),
            4 => fs::rename(path(n), dir.join(format!("renamed{n}")))?,
            _ => lsetxattr(
                path(n),
                "user.n",
                &bytes[..8.min(bytes.len())],
                XattrFlags::empty(),
            )?,
        }
    }
    for n in numbers.step_by(2) {
        // Renamed files stay.
        drop(fs::remove_file(path(n)));
    }
    Ok(())
}

/// Has StetFS use a volume, if the plan says so.
///
/// # Errors
/// The volume's, but not ENOSPC.
pub(super) fn by_stetfs(plan: &Plan, fs: &Arc<Fs>) -> Result<()> {
    if !plan.is("history", "aged") {
        return Ok(());
    }
    let mut rng = fastrand::Rng::with_seed(plan.seed ^ 0xa6ed);
    let ctx = Ctx::ROOT;
    let dir = fs.mkdir(&ctx, ROOT_INO, DIR.as_bytes(), 0o755, 0)?;
    let name = |n: u64| format!("f{n}").into_bytes();
    for n in 0..FILES {
        let (attr, file) = fs.create(&ctx, dir.ino, &name(n), 0o644, 0, libc::O_RDWR)?;
        let mut bytes = vec![0; rng.usize(1..LARGEST as usize)];
        rng.fill(&mut bytes);
        let mut at = rng.u64(0..LARGEST);
        // The content is in pieces, with gaps between them.
        for piece in bytes.chunks(4096) {
            fs.write(&ctx, &file, at, piece, false)?;
            at += 4096 * rng.u64(1..4);
        }
        if n % 3 == 0 {
            let mode = FallocateMode::PunchHole;
            match fs.fallocate(&ctx, &file, mode, rng.u64(0..LARGEST), LARGEST / 4) {
                Err(FsError::Errno(libc::EOPNOTSUPP)) => {}
                done => done?,
            }
        }
        drop(file);
        fs.forget(attr.ino, 1);
    }
    for n in (0..FILES).step_by(2) {
        fs.unlink(&ctx, dir.ino, &name(n))?;
    }
    fs.forget(dir.ino, 1);
    Ok(())
}
