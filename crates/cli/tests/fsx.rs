//! fsx: random reads, writes, truncations, mmaps and punches on one file, with every read compared.
//!
//! `STETFS_FSX_OPS` sets the number of operations per file, `STETFS_FSX_SEED` repeats a run.

use std::process::{Command, Stdio};

use crate::common::{kernel, number, seed, stetfs, stetfs_with};
use stetfs_testkit::{Image, Mkfs, Mounter, cmd, tools};

/// All operations that fsx 0.3.2 knows, mmap ones included.
const MIXED: &str = "
flen = 1048576
[opsize]
min = 1
max = 65536
[weights]
close_open = 1
invalidate = 2
mapread = 10
mapwrite = 10
read = 10
write = 20
truncate = 5
fsync = 2
fdatasync = 2
posix_fallocate = 3
punch_hole = 5
sendfile = 3
posix_fadvise = 2
copy_file_range = 5
";

/// Small writes, so that block boundaries and the merging of extents are frequent.
const SMALL: &str = "
flen = 262144
[opsize]
min = 1
max = 3000
[weights]
close_open = 1
mapread = 5
mapwrite = 5
read = 10
write = 20
truncate = 5
fsync = 3
fdatasync = 3
posix_fallocate = 5
punch_hole = 8
copy_file_range = 5
";

/// Two files at a time, so that their blocks interleave and requests are served in parallel.
fn exercise(mounter: &Mounter, mkfs: &Mkfs, config: &str, seed: u64, operations: u64) {
    let fsx = tools::cargo_tool("fsx", "0.3.2").unwrap();
    let image = Image::make(256 << 20, mkfs).unwrap();
    let config_path = image.dir().join("fsx.toml");
    std::fs::write(&config_path, config).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    let runs: Vec<_> = (0..2)
        .map(|i| {
            let mut command = Command::new(&fsx);
            command
                .arg("-f")
                .arg(&config_path)
                .args([
                    "-N",
                    &operations.to_string(),
                    "-S",
                    &(seed + i).to_string(),
                    "-P",
                ])
                .arg(image.dir())
                .arg(mounted.path().join(format!("file-{i}")))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let child = command.spawn().unwrap();
            (cmd::shown(&command), child)
        })
        .collect();
    for (shown, child) in runs {
        let out = child.wait_with_output().unwrap();
        let said = cmd::said(&out);
        let tail: Vec<&str> = said.lines().rev().take(40).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        assert!(
            out.status.success(),
            "{} on {}: {}\n{}",
            shown,
            mounter.name(),
            out.status,
            tail.join("\n")
        );
    }
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}

/// Runs operations on a preset, 16,000 by default.
fn full_length(preset: &str) {
    exercise(
        &stetfs_with(&format!("journal={preset}")),
        &Mkfs::new(),
        MIXED,
        seed("STETFS_FSX_SEED"),
        number("STETFS_FSX_OPS", 8_000),
    );
}

#[test]
fn stetfs_ordered() {
    full_length("ordered");
}

#[test]
fn stetfs_data() {
    full_length("data");
}

#[test]
fn stetfs_writeback() {
    full_length("writeback");
}

#[test]
fn stetfs_small_blocks() {
    exercise(
        &stetfs(),
        &Mkfs::blocks(1024),
        SMALL,
        seed("STETFS_FSX_SEED"),
        number("STETFS_FSX_OPS", 8_000),
    );
}

/// Proves the test itself on the kernel's ext4.
#[test]
fn harness_kernel() {
    exercise(&kernel(), &Mkfs::new(), MIXED, 1, 3_000);
    exercise(&kernel(), &Mkfs::blocks(1024), SMALL, 2, 3_000);
}
