//! Volumes of a few MiB that claim to hold far more: sparse files, logs that are well packed, and
//! structures that name each other, or themselves, again and again.

mod attributes;
mod directories;
mod fast;
mod layout;
mod logs;
mod orphans;
mod raw;
mod records;
mod trees;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use stetfs_crash::volume::mke2fs;
use stetfs_testkit::cmd;

const BLOCK: usize = 4096;
/// Bytes of a volume: enough for whatever a log claims.
const VOLUME: u64 = 16 << 30;
/// Blocks of a volume.
const BLOCKS: u64 = VOLUME / BLOCK as u64;

/// Makes the volume at a path.
pub type Make = fn(&Path);

/// All of them, by what they claim: name of the kind, and volumes of it.
pub const ALL: [(&str, &[(&str, Make)]); 8] = [
    ("logs", &logs::ALL),
    ("fast commits", &fast::ALL),
    ("records", &records::ALL),
    ("orphans", &orphans::ALL),
    ("trees", &trees::ALL),
    ("directories", &directories::ALL),
    ("attributes", &attributes::ALL),
    ("layouts", &layout::ALL),
];

fn make(path: &Path, journal_mib: u32, args: &[&str]) {
    make_sized(path, VOLUME, journal_mib, args);
}

fn make_sized(path: &Path, bytes: u64, journal_mib: u32, args: &[&str]) {
    File::create(path).unwrap().set_len(bytes).unwrap();
    let (size, block) = (format!("size={journal_mib}"), BLOCK.to_string());
    let sparse = "lazy_itable_init=1,lazy_journal_init=1";
    let all = ["-b", &block, "-N", "1024", "-J", &size, "-E", sparse];
    mke2fs(path, &[&all[..], args].concat()).unwrap();
    // Tables of inodes are written as zeroes.
    cmd::run(Command::new("fallocate").arg("--dig-holes").arg(path)).unwrap();
}

/// What debugfs says to a request.
fn debugfs(path: &Path, request: &str) -> String {
    let mut debugfs = Command::new("debugfs");
    cmd::run(debugfs.args(["-w", "-R", request]).arg(path)).unwrap()
}

/// The volume's block where its log begins.
fn log_at(path: &Path) -> u64 {
    debugfs(path, "bmap <8> 0").trim().parse().unwrap()
}

/// Bytes that the file takes.
pub fn taken(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}
