//! Makes the base volumes by mke2fs and debugfs.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use stetfs_crash::volume::mke2fs;
use stetfs_testkit::cmd;

/// Bytes of a block.
pub(super) const BLOCK: usize = 4096;

/// Bytes of a volume; large enough for the claims of any log.
const VOLUME: u64 = 16 << 30;

/// Blocks of a volume.
pub(super) const BLOCKS: u64 = VOLUME / BLOCK as u64;

/// A function that makes a volume at a path.
pub type Make = fn(&Path);

/// Makes a volume with a journal of `journal_mib` MiB and with `args`.
pub(super) fn make(path: &Path, journal_mib: u32, args: &[&str]) {
    make_sized(path, VOLUME, journal_mib, args);
}

/// Makes such a volume of `bytes` bytes.
pub(super) fn make_sized(path: &Path, bytes: u64, journal_mib: u32, args: &[&str]) {
    File::create(path).unwrap().set_len(bytes).unwrap();
    let (size, block) = (format!("size={journal_mib}"), BLOCK.to_string());
    let sparse = "lazy_itable_init=1,lazy_journal_init=1";
    let all = ["-b", &block, "-N", "1024", "-J", &size, "-E", sparse];
    mke2fs(path, &[&all[..], args].concat()).unwrap();
    // mke2fs writes the inode tables as zeroes.
    cmd::run(Command::new("fallocate").arg("--dig-holes").arg(path)).unwrap();
}

/// Runs a debugfs request. Gives its output.
pub(super) fn debugfs(path: &Path, request: &str) -> String {
    let mut debugfs = Command::new("debugfs");
    cmd::run(debugfs.args(["-w", "-R", request]).arg(path)).unwrap()
}

/// The volume's block at which its log begins.
pub(super) fn log_at(path: &Path) -> u64 {
    debugfs(path, "bmap <8> 0").trim().parse().unwrap()
}
