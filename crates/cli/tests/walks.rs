//! Tests of the requests of tree walks: `find`, `ls -l` and `rm -r` read a directory to its end
//! before they look at its entries.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::common::daemon::{Daemon, json, ok};

/// Number of names in a directory, so that its listing takes several answers.
const NAMES: usize = 900;

fn directories(d: &Daemon) -> Vec<PathBuf> {
    (0..4).map(|i| d.file(&format!("d{i}"))).collect()
}

/// A volume with four directories, just mounted.
fn mounted() -> Daemon {
    let d = Daemon::new("");
    for dir in directories(&d) {
        fs::create_dir(&dir).unwrap();
        for i in 0..NAMES {
            drop(File::create(dir.join(format!("f{i}"))).unwrap());
        }
    }
    ok(&["umount", d.dir()]);
    d.mount("");
    d
}

fn requests(d: &Daemon, kind: &str) -> u64 {
    let shown = json(&["stat", d.dir()]);
    shown["requests"][kind].as_u64().unwrap_or(0)
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn who_walks_through_a_tree_looks_nothing_up_after_its_first_directory() {
    let d = mounted();
    let lookups: Vec<u64> = directories(&d)
        .iter()
        .map(|dir| {
            let before = requests(&d, "lookup");
            let all = names(dir);
            assert_eq!(all.len(), NAMES);
            for path in all {
                assert_eq!(path.symlink_metadata().unwrap().len(), 0);
            }
            requests(&d, "lookup") - before
        })
        .collect();
    assert!(lookups[0] > NAMES as u64 / 4, "{lookups:?}");
    // At most its own name.
    assert!(lookups[1..].iter().all(|n| *n < 5), "{lookups:?}");
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn who_lists_names_alone_has_few_inodes_read() {
    let d = mounted();
    let known = || {
        let shown = json(&["stat", d.dir()]);
        shown["inodes"]["known_to_kernel"].as_u64().unwrap()
    };
    for dir in directories(&d) {
        assert_eq!(names(&dir).len(), NAMES);
    }
    let known = known();
    assert!(known < 4 * NAMES as u64 / 2, "{known}");
}

/// The inode table is read in large pieces, not block by block.
#[test]
fn a_walk_reads_inodes_in_few_pieces() {
    let d = mounted();
    for dir in directories(&d) {
        for path in names(&dir) {
            path.symlink_metadata().unwrap();
        }
    }
    let shown = json(&["stat", d.dir()]);
    let reads = shown["device"]["reads"].as_u64().unwrap();
    // 3600 inodes of 256 bytes are 225 blocks.
    assert!(reads < 100, "{reads} reads");
}
