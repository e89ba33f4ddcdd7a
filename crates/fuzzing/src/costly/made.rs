//! What the volumes are made with.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use stetfs_crash::volume::mke2fs;
use stetfs_testkit::cmd;

/// Bytes of a block.
pub(super) const BLOCK: usize = 4096;

/// Bytes of a volume: enough for whatever a log claims.
const VOLUME: u64 = 16 << 30;

/// Blocks of a volume.
pub(super) const BLOCKS: u64 = VOLUME / BLOCK as u64;

/// Makes the volume at a path.
pub type Make = fn(&Path);

/// A volume of a journal of `journal_mib` MiB, made with `args`.
pub(super) fn make(path: &Path, journal_mib: u32, args: &[&str]) {
    make_sized(path, VOLUME, journal_mib, args);
}

/// The same, of `bytes`.
pub(super) fn make_sized(path: &Path, bytes: u64, journal_mib: u32, args: &[&str]) {
    File::create(path).unwrap().set_len(bytes).unwrap();
    let (size, block) = (format!("size={journal_mib}"), BLOCK.to_string());
    let sparse = "lazy_itable_init=1,lazy_journal_init=1";
    let all = ["-b", &block, "-N", "1024", "-J", &size, "-E", sparse];
    mke2fs(path, &[&all[..], args].concat()).unwrap();
    // Tables of inodes are written as zeroes.
    cmd::run(Command::new("fallocate").arg("--dig-holes").arg(path)).unwrap();
}

/// What debugfs says to a request.
pub(super) fn debugfs(path: &Path, request: &str) -> String {
    let mut debugfs = Command::new("debugfs");
    cmd::run(debugfs.args(["-w", "-R", request]).arg(path)).unwrap()
}

/// The volume's block where its log begins.
pub(super) fn log_at(path: &Path) -> u64 {
    debugfs(path, "bmap <8> 0").trim().parse().unwrap()
}
