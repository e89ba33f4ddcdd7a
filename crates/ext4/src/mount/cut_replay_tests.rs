//! Interrupted recoveries: power is cut while recovery applies records of files. The next recovery
//! accepts everything that the first one made (replay.A1, replay.A4, replay.A5).
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use stetfs_block::{FaultInjector, MemDevice};
use stetfs_journal::Canary;
use stetfs_ondisk::stet::record::{FileRecord, Node, Range};
use stetfs_testkit::Mkfs;

use super::redo_tests::{Volume, WITH_RECORDS, content};
use super::remapped::Remapped;
use super::replaced::Replaced;
use crate::data::Mapping;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::testing::{fsck, fsync};
use crate::types::{Ctx, FsOptions, Ino, ROOT_INO, RenameFlags, SetAttr};

/// The device after a recovery whose power is cut after so many writes; `None` if the recovery
/// ended before.
pub(super) fn cut_replay(crashed: &Arc<MemDevice>, writes: u64) -> Option<Arc<MemDevice>> {
    let device = Arc::new(FaultInjector::new(crashed.fork()));
    device.power_off_after(writes);
    let opened = Fs::open(device.clone(), FsOptions::default());
    let is_whole = opened.is_ok() && !device.is_off();
    drop(opened);
    (!is_whole).then(|| Arc::new(device.inner().fork()))
}

impl Volume {
    /// Cuts the power now, and again at each write of the recovery. Returns the error of the next
    /// recovery, if it has one. Otherwise checks that e2fsck finds nothing, and that the file with
    /// this path holds `synced`.
    fn cut_twice(&self, path: &[&str], synced: &[u8], canary: Canary) -> Result<()> {
        let crashed = Arc::new(self.device.fork());
        for writes in 0.. {
            let Some(left) = cut_replay(&crashed, writes) else {
                assert!(writes > 5, "the recovery wrote nothing");
                return Ok(());
            };
            let options = FsOptions {
                canary,
                ..FsOptions::default()
            };
            let fs = Fs::open(left.clone(), options)?;
            assert!(content(&fs, path) == synced, "cut after {writes} writes");
            fs.unmount()?;
            drop(fs);
            if writes % 8 == 0 {
                fsck(&left);
            }
        }
        Ok(())
    }

    fn make_synced(&self, dir: Ino, name: &str, text: &[u8]) -> OpenRef {
        let file = self.make(dir, name);
        self.write_synced(&file, text);
        file
    }

    fn write_synced(&self, file: &OpenRef, text: &[u8]) {
        self.write(file, text);
        fsync(&self.fs, file, false);
    }

    fn truncate(&self, file: &OpenRef, size: u64) {
        let change = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.fs.setattr(&Ctx::ROOT, file.ino(), &change).unwrap();
    }

    fn unlink(&self, dir: Ino, name: &str) {
        self.fs.unlink(&Ctx::ROOT, dir, name.as_bytes()).unwrap();
    }

    fn rmdir(&self, name: &str) {
        let name = name.as_bytes();
        self.fs.rmdir(&Ctx::ROOT, ROOT_INO, name).unwrap();
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let renamed = self
            .fs
            .rename(&Ctx::ROOT, ROOT_INO, from, ROOT_INO, to, flags);
        renamed.unwrap();
    }

    fn link(&self, file: &OpenRef, name: &str) {
        let linked = self
            .fs
            .link(&Ctx::ROOT, file.ino(), ROOT_INO, name.as_bytes());
        self.fs.forget(linked.unwrap().ino, 1);
    }
}

/// A way in which a file takes the name of another file that was synced.
struct Replacing {
    what: &'static str,
    path: &'static [&'static str],
    run: fn(&Volume, &[u8]),
}

const REPLACING: [Replacing; 7] = [
    Replacing {
        what: "of a file that was made since the last commit",
        path: &["log"],
        run: |v, text| {
            drop(v.make_synced(ROOT_INO, "log", b"old"));
            v.unlink(ROOT_INO, "log");
            v.make_synced(ROOT_INO, "log", text);
        },
    },
    Replacing {
        what: "of one after the other",
        path: &["log"],
        run: |v, text| {
            for i in 0..5 {
                drop(v.make_synced(ROOT_INO, "log", &[i; 9000]));
                v.unlink(ROOT_INO, "log");
            }
            v.make_synced(ROOT_INO, "log", text);
        },
    },
    Replacing {
        what: "of one that is written and synced again and again",
        path: &["log"],
        run: |v, text| {
            let old = v.make_synced(ROOT_INO, "log", b"old");
            v.write_synced(&old, &[1; 50_000]);
            v.write_synced(&old, &[2; 90_000]);
            drop(old);
            v.unlink(ROOT_INO, "log");
            let new = v.make_synced(ROOT_INO, "log", b"new");
            v.write_synced(&new, text);
        },
    },
    Replacing {
        what: "of a file that is committed, and has a record",
        path: &["log"],
        run: |v, text| {
            let old = v.make(ROOT_INO, "log");
            v.write(&old, b"older");
            v.commit();
            v.write_synced(&old, &[1; 50_000]);
            drop(old);
            v.unlink(ROOT_INO, "log");
            v.make_synced(ROOT_INO, "log", text);
        },
    },
    Replacing {
        what: "of a file that is committed, twice",
        path: &["dir", "log"],
        run: |v, text| {
            let dir = v.mkdir(ROOT_INO, "dir");
            let old = v.make(dir, "log");
            v.commit();
            v.write_synced(&old, &[1; 50_000]);
            drop(old);
            v.unlink(dir, "log");
            drop(v.make_synced(dir, "log", b"new"));
            v.unlink(dir, "log");
            v.make_synced(dir, "log", text);
        },
    },
    Replacing {
        what: "in a directory that the record of the first one makes",
        path: &["dir", "log"],
        run: |v, text| {
            let dir = v.mkdir(ROOT_INO, "dir");
            drop(v.make_synced(dir, "log", b"old"));
            v.unlink(dir, "log");
            v.make_synced(dir, "log", text);
        },
    },
    Replacing {
        what: "as the name of a directory, in which the new one is",
        path: &["log", "new"],
        run: |v, text| {
            drop(v.make_synced(ROOT_INO, "log", b"old"));
            v.unlink(ROOT_INO, "log");
            let dir = v.mkdir(ROOT_INO, "log");
            v.make_synced(dir, "new", text);
        },
    },
];

/// replay.A4: the first recovery has removed the replaced file, and the next one does not make it
/// again.
#[test]
fn a_file_that_replaces_a_synced_one_outlives_a_recovery_that_is_cut() {
    for journal in WITH_RECORDS {
        for case in &REPLACING {
            for len in [3, 9000, 100_000] {
                let v = Volume::new(journal, 32, &Mkfs::blocks(4096));
                let text = vec![b'n'; len];
                (case.run)(&v, &text);
                let what = format!("{journal}, {len} bytes, {}", case.what);
                assert_eq!(v.file_commits(), 0, "{what}: records are what is tested");
                let cut = v.cut_twice(case.path, &text, Canary::default());
                cut.unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
}

/// Changes that no record can describe: the sync takes a commit, which ends the earlier records.
const COMMITTED: [Replacing; 8] = [
    Replacing {
        what: "of a directory whose file has a record",
        path: &["log"],
        run: |v, text| {
            let dir = v.mkdir(ROOT_INO, "log");
            drop(v.make_synced(dir, "old", b"old"));
            v.unlink(dir, "old");
            v.rmdir("log");
            v.make_synced(ROOT_INO, "log", text);
        },
    },
    Replacing {
        what: "of such a directory, as a directory",
        path: &["log", "new"],
        run: |v, text| {
            let dir = v.mkdir(ROOT_INO, "log");
            drop(v.make_synced(dir, "old", b"old"));
            v.unlink(dir, "old");
            v.rmdir("log");
            let dir = v.mkdir(ROOT_INO, "log");
            v.make_synced(dir, "new", text);
        },
    },
    Replacing {
        what: "that was renamed, as logs are rotated",
        path: &["log"],
        run: |v, text| {
            drop(v.make_synced(ROOT_INO, "log", b"old"));
            v.rename("log", "log.1", RenameFlags::default());
            v.make_synced(ROOT_INO, "log", text);
        },
    },
    Replacing {
        what: "by a rename over it",
        path: &["log"],
        run: |v, text| {
            drop(v.make_synced(ROOT_INO, "log", b"old"));
            let new = v.make_synced(ROOT_INO, "new", b"new");
            v.rename("new", "log", RenameFlags::default());
            v.write_synced(&new, text);
        },
    },
    Replacing {
        what: "by an exchange",
        path: &["log"],
        run: |v, text| {
            drop(v.make_synced(ROOT_INO, "log", b"old"));
            let new = v.make_synced(ROOT_INO, "new", b"new");
            let exchange = RenameFlags {
                exchange: true,
                ..RenameFlags::default()
            };
            v.rename("new", "log", exchange);
            v.write_synced(&new, text);
        },
    },
    Replacing {
        what: "of one that has another name",
        path: &["log"],
        run: |v, text| {
            let old = v.make_synced(ROOT_INO, "log", b"old");
            v.link(&old, "other");
            v.unlink(ROOT_INO, "log");
            v.make_synced(ROOT_INO, "log", text);
            v.write_synced(&old, b"older");
        },
    },
    Replacing {
        what: "as the first name that it has",
        path: &["log"],
        run: |v, text| {
            drop(v.make_synced(ROOT_INO, "log", b"old"));
            v.unlink(ROOT_INO, "log");
            let made = v.fs.tmpfile(&Ctx::ROOT, ROOT_INO, 0o600, 0, libc::O_RDWR);
            let (attr, new) = made.unwrap();
            v.fs.forget(attr.ino, 1);
            v.link(&new, "log");
            v.write_synced(&new, text);
        },
    },
    Replacing {
        what: "and its number, after a commit",
        path: &["new"],
        run: |v, text| {
            let old = v.make_synced(ROOT_INO, "log", b"old").ino();
            v.unlink(ROOT_INO, "log");
            v.commit();
            let new = v.make_synced(ROOT_INO, "new", text);
            assert_eq!(new.ino(), old, "the number is free again");
        },
    },
];

#[test]
fn what_no_record_says_outlives_a_recovery_that_is_cut() {
    for journal in ["ijournal", "stet"] {
        for case in &COMMITTED {
            let v = Volume::new(journal, 32, &Mkfs::blocks(4096));
            let text = [b'n'; 9000];
            (case.run)(&v, &text);
            let cut = v.cut_twice(case.path, &text, Canary::default());
            cut.unwrap_or_else(|e| panic!("{journal}, {}: {e}", case.what));
        }
    }
}

/// A recovery that makes replaced files again refuses all of these.
#[test]
fn a_recovery_that_makes_replaced_files_again_is_seen() {
    let canary = Canary {
        redo_replaced: true,
        ..Canary::default()
    };
    for case in &REPLACING {
        let v = Volume::new("ijournal", 32, &Mkfs::blocks(4096));
        (case.run)(&v, b"new");
        let refused = v.cut_twice(case.path, b"new", canary);
        assert!(
            matches!(refused, Err(FsError::Corrupt { .. })),
            "{}",
            case.what
        );
    }
}

/// Applies two records of a file, one with content of its first block and one after all of it was
/// cut off, to the state that an interrupted recovery left behind the second record. Returns the
/// error.
fn apply_content_of_what_was_cut_off(
    remapped: impl Fn(&[FileRecord; 2]) -> Remapped,
) -> Result<()> {
    let v = Volume::new("ijournal", 32, &Mkfs::blocks(4096));
    let file = v.make_synced(ROOT_INO, "log", &[b'a'; 40_000]);
    v.commit();
    let inode = v.fs.inodes.iget(file.ino()).unwrap();
    let node = || Node {
        ino: file.ino(),
        inode: inode.body.read().bytes().to_vec(),
        name: None,
    };
    let mapped = v.fs.data.map(&inode, &inode.body.read(), 0, 1).unwrap();
    let Mapping::Mapped { start, .. } = mapped else {
        panic!("{mapped:?}");
    };
    let page = v.fs.vol.cache.read(start).unwrap().page().unwrap();
    let record = |file, ranges, pages| FileRecord {
        dirs: Vec::new(),
        file,
        ranges,
        pages,
    };
    let first = record(node(), Vec::new(), vec![0]);
    v.truncate(&file, 0);
    let all = Range {
        first: 0,
        count: 10,
        runs: Vec::new(),
    };
    let records = [first, record(node(), vec![all], Vec::new())];
    let remapped = remapped(&records);
    let pages = [vec![(start, page)], Vec::new()];
    for (at, (record, pages)) in records.iter().zip(&pages).enumerate() {
        let mut replaced = Replaced::default();
        let record = (at, record);
        v.fs.apply_record(record, pages, (&mut replaced, &remapped))?;
    }
    assert_eq!(content(&v.fs, &["log"]), b"");
    fsync(&v.fs, &file, false);
    Ok(())
}

/// replay.A5.
#[test]
fn content_of_what_was_cut_off_is_left_to_the_record_that_says_so() {
    apply_content_of_what_was_cut_off(|records| Remapped::of(records.iter())).unwrap();
}

#[test]
fn a_recovery_that_refuses_content_of_remapped_blocks_is_seen() {
    let refused = apply_content_of_what_was_cut_off(|_| Remapped::default());
    assert!(matches!(refused, Err(FsError::Corrupt { .. })));
}

/// A later record of the same file determines the places of its blocks; earlier records and those
/// of other files do not.
#[test]
fn what_later_records_map_is_known() {
    let of = |ino, first| FileRecord {
        dirs: Vec::new(),
        file: Node {
            ino,
            inode: vec![0; 256],
            name: None,
        },
        ranges: vec![Range {
            first,
            count: 2,
            runs: Vec::new(),
        }],
        pages: Vec::new(),
    };
    let remapped = Remapped::of([of(12, 0), of(13, 5), of(12, 7)].iter());
    let said = |at, ino, lblk| remapped.is_said_later(at, ino, lblk);
    assert!(said(0, 12, 7) && said(1, 12, 8) && said(0, 13, 6));
    assert!(!said(0, 12, 0) && !said(2, 12, 7) && !said(0, 12, 9) && !said(0, 12, 5));
}
