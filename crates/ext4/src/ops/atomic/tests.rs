#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_block::MemDevice;
use stetfs_testkit::{Image, Mkfs};

mod content;
mod early;

use super::AtomicGroup;
use crate::error::FsError;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::testing::{flavours, fsck, fsync, mkfs};
use crate::types::{Ctx, FallocateMode, FsOptions, Ino, ROOT_INO, SeekWhat, SetAttr};

const JOURNALS: [&str; 5] = [
    "data",
    "ldj",
    "stet",
    "data,codec=frames",
    "ijournal,data=journal",
];

fn options(journal: &str) -> FsOptions {
    FsOptions {
        journal: journal.parse().unwrap(),
        commit_secs: 3600,
        ..FsOptions::default()
    }
}

struct Volume {
    device: Arc<MemDevice>,
    fs: Arc<Fs>,
    files: Vec<OpenRef>,
}

impl Volume {
    /// A volume with files `0`, `1` … of these sizes, durable. All bytes of a file are its number
    /// plus 10.
    fn new(mib: u64, mkfs_options: &Mkfs, opts: FsOptions, sizes: &[usize]) -> Volume {
        let device = mkfs(mib, mkfs_options);
        let fs = Fs::open(device.clone(), opts).unwrap();
        for (nr, size) in sizes.iter().enumerate() {
            let name = nr.to_string();
            let made = fs.create(
                &Ctx::ROOT,
                ROOT_INO,
                name.as_bytes(),
                0o644,
                0,
                libc::O_RDWR,
            );
            let bytes = vec![10 + nr as u8; *size];
            let written = fs.write(&Ctx::ROOT, &made.unwrap().1, 0, &bytes, false);
            assert_eq!(written.unwrap(), *size);
        }
        fs.vol.journal.commit_all().unwrap();
        Volume::of(device, fs, sizes.len())
    }

    /// The same, with inline content.
    fn inline(opts: FsOptions, sizes: &[usize]) -> Volume {
        let options = Mkfs::blocks(1024).feature("inline_data").inode_size(256);
        let image = Image::make(40 << 20, &options).unwrap();
        let source = image.dir().join("source");
        for (nr, size) in sizes.iter().enumerate() {
            std::fs::write(&source, vec![10 + nr as u8; *size]).unwrap();
            let write = format!("write {} {nr}", source.display());
            image.debugfs_write(&write).unwrap();
        }
        let device = Arc::new(MemDevice::load(image.path()).unwrap());
        let fs = Fs::open(device.clone(), opts).unwrap();
        let v = Volume::of(device, fs, sizes.len());
        let is_inline = |file: &OpenRef| file.inode.body.read().is_inline();
        assert!(v.files.iter().all(is_inline));
        v
    }

    fn of(device: Arc<MemDevice>, fs: Arc<Fs>, count: usize) -> Volume {
        let open = |nr: usize| {
            let ino = fs.lookup(ROOT_INO, nr.to_string().as_bytes()).unwrap().ino;
            fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap()
        };
        let files = (0..count).map(open).collect();
        Volume { device, fs, files }
    }

    fn simple(journal: &str, sizes: &[usize]) -> Volume {
        Volume::new(32, &Mkfs::blocks(1024), options(journal), sizes)
    }

    fn ino(&self, nr: usize) -> Ino {
        self.files[nr].ino()
    }

    fn group(&self) -> AtomicGroup {
        self.fs.atomic_group(&self.files).unwrap()
    }

    fn content(&self, nr: usize) -> Vec<u8> {
        read(&self.fs, &self.files[nr])
    }

    /// The contents of the files after a crash now.
    fn crashed(&self) -> Vec<Vec<u8>> {
        let device = Arc::new(self.device.fork());
        let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
        let find = |nr: usize| {
            let ino = fs.lookup(ROOT_INO, nr.to_string().as_bytes()).unwrap().ino;
            read(
                &fs,
                &fs.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap(),
            )
        };
        let all = (0..self.files.len()).map(find).collect();
        fs.unmount().unwrap();
        fsck(&device);
        all
    }

    fn sync(&self, nr: usize) {
        fsync(&self.fs, &self.files[nr], false);
    }

    fn close(self) {
        drop(self.files);
        self.fs.unmount().unwrap();
        fsck(&self.device);
    }
}

fn read(fs: &Fs, file: &OpenRef) -> Vec<u8> {
    let size = fs.getattr(file.ino()).unwrap().size;
    let mut data = vec![0; size as usize];
    assert_eq!(fs.read(file, 0, &mut data).unwrap(), data.len());
    data
}

fn seen(group: &AtomicGroup, ino: Ino) -> Vec<u8> {
    let mut data = vec![0xEE; group.size(ino).unwrap() as usize + 1];
    let n = group.read(ino, 0, &mut data).unwrap();
    assert_eq!(n as u64, group.size(ino).unwrap());
    data.truncate(n);
    data
}

fn errno<T: std::fmt::Debug>(result: Result<T, FsError>) -> i32 {
    result.unwrap_err().errno()
}

/// `old` with `new` written at `at`: a model of a file.
fn over(old: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut all = old.to_vec();
    all.resize(all.len().max(at + new.len()), 0);
    all[at..at + new.len()].copy_from_slice(new);
    all
}

/// One transaction holds all changes (atomic.A3).
#[test]
fn a_group_changes_all_its_files_at_once() {
    for journal in JOURNALS {
        let v = Volume::simple(journal, &[5000, 3000, 0, 9000]);
        let old: Vec<Vec<u8>> = (0..4).map(|nr| v.content(nr)).collect();
        let mut group = v.group();
        // Writes in the middle, at the end, and behind a hole; a file made shorter and longer
        // again.
        group.write(&Ctx::ROOT, v.ino(0), 700, &[1; 2000]).unwrap();
        group.write(&Ctx::ROOT, v.ino(1), 2500, &[2; 4000]).unwrap();
        group.write(&Ctx::ROOT, v.ino(2), 6000, b"far").unwrap();
        group.set_size(&Ctx::ROOT, v.ino(3), 1500).unwrap();
        group.write(&Ctx::ROOT, v.ino(3), 4000, &[3; 100]).unwrap();
        group.zero(&Ctx::ROOT, v.ino(0), 1000, 3500).unwrap();
        let mut new = [
            over(&over(&old[0], 700, &[1; 2000]), 1000, &[0; 3500]),
            over(&old[1], 2500, &[2; 4000]),
            over(&[], 6000, b"far"),
            over(&old[3][..1500], 4000, &[3; 100]),
        ]
        .to_vec();
        for (nr, new) in new.iter().enumerate() {
            assert!(
                seen(&group, v.ino(nr)) == *new,
                "{journal}: {nr} through it"
            );
            assert!(v.content(nr) == old[nr], "{journal}: {nr} beside it");
        }
        // Syncs of other files make none of the changes durable.
        v.sync(0);
        v.fs.vol.journal.commit_all().unwrap();
        assert!(v.crashed() == old, "{journal}: not committed");
        group.commit().unwrap();
        for (nr, new) in new.iter().enumerate() {
            assert!(v.content(nr) == *new, "{journal}: {nr} after it");
        }
        assert!(v.crashed() == new, "{journal}: committed");
        // Other users may change the files again.
        v.fs.write(&Ctx::ROOT, &v.files[0], 0, b"x", false).unwrap();
        new[0][0] = b'x';
        assert!(v.content(0) == new[0]);
        v.close();
    }
}

#[test]
fn a_group_that_ends_otherwise_leaves_nothing() {
    let v = Volume::simple("data", &[5000, 3000]);
    let old = [v.content(0), v.content(1)];
    let free = v.fs.statfs().bfree;
    for drops in [false, true] {
        let mut group = v.group();
        group.write(&Ctx::ROOT, v.ino(0), 0, &[1; 20_000]).unwrap();
        group.set_size(&Ctx::ROOT, v.ino(1), 0).unwrap();
        match drops {
            true => drop(group),
            false => group.abort(),
        }
        assert!([v.content(0), v.content(1)] == old);
        v.fs.vol.journal.commit_all().unwrap();
        assert!(v.crashed() == old);
    }
    assert_eq!(v.fs.statfs().bfree, free);
    assert_eq!(v.fs.data.state.groups.0.load(Ordering::Relaxed), 0);
    v.close();
}

/// atomic.A1
#[test]
fn nobody_else_changes_what_is_in_a_group() {
    let v = Volume::simple("data", &[5000, 3000]);
    let mut group = v.fs.atomic_group(&v.files[..1]).unwrap();
    let file = &v.files[0];
    assert_eq!(errno(v.fs.atomic_group(&v.files)), libc::EBUSY);
    assert_eq!(
        errno(v.fs.write(&Ctx::ROOT, file, 0, b"x", false)),
        libc::EBUSY
    );
    let set = SetAttr {
        size: Some(10),
        ..SetAttr::default()
    };
    assert_eq!(
        errno(v.fs.setattr(&Ctx::ROOT, file.ino(), &set)),
        libc::EBUSY
    );
    let punch =
        v.fs.fallocate(&Ctx::ROOT, file, FallocateMode::PunchHole, 0, 5000);
    assert_eq!(errno(punch), libc::EBUSY);
    // The refused group did not take the other file.
    v.fs.write(&Ctx::ROOT, &v.files[1], 0, b"x", false).unwrap();
    // A change of attributes is allowed, and a file without a name has content as well.
    let set = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    v.fs.setattr(&Ctx::ROOT, file.ino(), &set).unwrap();
    v.fs.unlink(&Ctx::ROOT, ROOT_INO, b"0").unwrap();
    group.write(&Ctx::ROOT, file.ino(), 0, b"new").unwrap();
    assert_eq!(
        errno(group.write(&Ctx::ROOT, v.ino(1), 0, b"x")),
        libc::EBADF
    );
    group.commit().unwrap();
    assert_eq!(&v.content(0)[..4], b"new\x0a");
    v.fs.atomic_group(&v.files).unwrap().abort();
    v.close();
}

/// `chattr +a`, `+i`: the content of such a file must not change, so it cannot be in a group.
#[test]
fn a_file_is_guarded_or_in_a_group() {
    const APPEND: u32 = 0x20;
    const IMMUTABLE: u32 = 0x10;
    const JOURNAL_DATA: u32 = 0x4000;
    const EXTENTS: u32 = 0x8_0000;
    const NO_ATIME: u32 = 0x80;
    for canary in [false, true] {
        let mut opts = options("data");
        opts.canary.guard_grouped = canary;
        let v = Volume::new(32, &Mkfs::blocks(1024), opts, &[5000, 0]);
        let flip = |nr: usize, flag: u32| {
            let flags = v.fs.get_flags(v.ino(nr)).unwrap();
            v.fs.set_flags(&Ctx::ROOT, v.ino(nr), flags ^ flag)
        };
        for guard in [APPEND, IMMUTABLE] {
            let mut group = v.group();
            group.write(&Ctx::ROOT, v.ino(0), 5000, b"entry").unwrap();
            if canary {
                flip(0, guard).unwrap();
                group.abort();
                assert_eq!(
                    v.content(0).len(),
                    5000,
                    "an append-only file became shorter"
                );
                flip(0, guard).unwrap();
                continue;
            }
            for flag in [guard, JOURNAL_DATA, EXTENTS] {
                assert_eq!(errno(flip(0, flag)), libc::EBUSY, "{flag:x}");
            }
            // Flags that do not concern content can be set.
            flip(0, NO_ATIME).unwrap();
            group.commit().unwrap();
            // An empty append-only file is refused, too.
            for nr in [0, 1] {
                flip(nr, guard).unwrap();
                assert_eq!(errno(v.fs.atomic_group(&v.files)), libc::EPERM, "{nr}");
                flip(nr, guard).unwrap();
            }
            let mut group = v.fs.atomic_group(&v.files[..1]).unwrap();
            flip(1, guard).unwrap();
            assert_eq!(errno(group.join(&Ctx::ROOT, &v.files[1])), libc::EPERM);
            flip(1, guard).unwrap();
        }
        v.close();
    }
}

#[test]
fn it_is_refused_where_nothing_could_hold_it_together() {
    for journal in ["ordered", "writeback", "ijournal"] {
        let v = Volume::simple(journal, &[100]);
        let refused = v.fs.atomic_group(&v.files).unwrap_err();
        assert_eq!(refused.errno(), libc::EOPNOTSUPP);
        assert!(refused.to_string().contains("journal=data"), "{refused}");
        assert!(!v.fs.can_be_atomic(&v.files[0]));
        v.close();
    }
    let v = Volume::simple("data", &[100]);
    assert!(v.fs.can_be_atomic(&v.files[0]));
    let dir =
        v.fs.open_inode(&Ctx::ROOT, ROOT_INO, libc::O_RDONLY)
            .unwrap();
    assert_eq!(errno(v.fs.atomic_group(&[dir])), libc::EINVAL);
    assert_eq!(errno(v.fs.atomic_group(&[])), libc::EINVAL);
    let reader =
        v.fs.open_inode(&Ctx::ROOT, v.ino(0), libc::O_RDONLY)
            .unwrap();
    assert_eq!(errno(v.fs.atomic_group(&[reader])), libc::EBADF);
    v.close();
}

/// Fills the volume to the last block.
fn fill(v: &Volume) {
    let made =
        v.fs.create(&Ctx::ROOT, ROOT_INO, b"filler", 0o644, 0, libc::O_RDWR);
    let filler = made.unwrap().1;
    for size in [256 << 10, 1024] {
        let mut at = v.fs.getattr(filler.ino()).unwrap().size;
        while let Ok(n) = v.fs.write(&Ctx::ROOT, &filler, at, &vec![5; size], false) {
            at += n as u64;
        }
    }
}

/// The space is promised (atomic.A2).
#[test]
fn what_was_written_is_committed_though_the_volume_is_full() {
    for journal in JOURNALS {
        let v = Volume::simple(journal, &[5000, 3000]);
        let old = [v.content(0), v.content(1)];
        let mut group = v.group();
        group
            .write(&Ctx::ROOT, v.ino(0), 3000, &[1; 60_000])
            .unwrap();
        for at in (10..80).step_by(3) {
            group
                .write(&Ctx::ROOT, v.ino(1), at * 1024, &[2; 1024])
                .unwrap();
        }
        let expected = [seen(&group, v.ino(0)), seen(&group, v.ino(1))];
        fill(&v);
        assert_eq!(
            errno(group.write(&Ctx::ROOT, v.ino(0), 200_000, b"x")),
            libc::ENOSPC
        );
        // Overwriting existing blocks takes no space, even on a full volume.
        group.write(&Ctx::ROOT, v.ino(0), 0, b"over").unwrap();
        let expected = [over(&expected[0], 0, b"over"), expected[1].clone()];
        assert!([v.content(0), v.content(1)] == old);
        group.commit().unwrap();
        assert!([v.content(0), v.content(1)] == expected, "{journal}");
        assert!(v.crashed() == expected, "{journal}");
        v.close();
    }
}

#[test]
fn the_limit_is_known_and_what_is_below_it_commits() {
    for journal in JOURNALS {
        let sizes = [3 << 20, 3 << 20];
        // Early writes are not possible there.
        let mkfs = Mkfs::blocks(1024).feature("^64bit,^extent").journal_mib(4);
        let v = Volume::new(64, &mkfs, options(journal), &sizes);
        let mut group = v.group();
        let limit = group.limit();
        assert!((200 << 10..4 << 20).contains(&limit), "{journal}: {limit}");
        let bytes = vec![1; (limit / 2) as usize & !1023];
        group.write(&Ctx::ROOT, v.ino(0), 0, &bytes).unwrap();
        group.write(&Ctx::ROOT, v.ino(1), 1024, &bytes).unwrap();
        let more = vec![2; limit as usize / 2];
        let n = group
            .write(&Ctx::ROOT, v.ino(1), 2 << 20, &more)
            .unwrap_or(0);
        assert!(n < more.len(), "{journal}: {n}");
        let refused = group.write(&Ctx::ROOT, v.ino(1), (2 << 20) + n as u64, &[2]);
        let refused = refused.unwrap_err();
        assert_eq!(refused.errno(), libc::EFBIG);
        assert!(
            refused.to_string().contains(&limit.to_string()),
            "{refused}"
        );
        let expected = [
            over(&v.content(0), 0, &bytes),
            over(&over(&v.content(1), 1024, &bytes), 2 << 20, &more[..n]),
        ];
        group.commit().unwrap();
        assert!(v.crashed() == expected, "{journal}");
        v.close();
    }
}

/// Writes block by block into holes of a fragmented file, until the group is full: what was
/// accepted commits (atomic.A2).
#[test]
fn new_blocks_count_for_what_they_take() {
    for blocks in [1024, 4096] {
        let mkfs = Mkfs::blocks(blocks).journal_mib(4);
        let v = Volume::new(64, &mkfs, options("data"), &[0, 0]);
        let size = u64::from(blocks);
        for piece in 0..600 {
            let at = piece * 3 * size;
            v.fs.write(
                &Ctx::ROOT,
                &v.files[0],
                at,
                &vec![1; blocks as usize],
                false,
            )
            .unwrap();
        }
        v.fs.vol.journal.commit_all().unwrap();
        let old = v.content(0);
        for step in [1, 3] {
            let mut group = v.group();
            let (mut taken, mut at) = (0, size);
            while group
                .write(&Ctx::ROOT, v.ino(0), at, &vec![7; blocks as usize])
                .is_ok()
            {
                taken += 1;
                at += step * size;
                if taken == 4000 {
                    break;
                }
            }
            assert!(taken > 10, "{blocks} {step}: {taken}");
            let expected = seen(&group, v.ino(0));
            group.commit().unwrap();
            assert!(v.content(0) == expected);
            assert!(v.crashed()[0] == expected);
            v.fs.setattr(
                &Ctx::ROOT,
                v.ino(0),
                &SetAttr {
                    size: Some(size),
                    ..SetAttr::default()
                },
            )
            .unwrap();
            v.fs.write(&Ctx::ROOT, &v.files[0], 0, &old, false).unwrap();
        }
        v.close();
    }
}

#[test]
fn a_file_in_many_pieces_becomes_short_at_once() {
    let v = Volume::simple("data", &[0, 3000]);
    for piece in 0..300 {
        v.fs.write(&Ctx::ROOT, &v.files[0], piece * 3072, &[1; 1024], false)
            .unwrap();
    }
    v.fs.vol.journal.commit_all().unwrap();
    let free = v.fs.statfs().bfree;
    let mut group = v.group();
    group.set_size(&Ctx::ROOT, v.ino(0), 5).unwrap();
    group.write(&Ctx::ROOT, v.ino(1), 0, b"other").unwrap();
    let other = over(&v.content(1), 0, b"other");
    group.commit().unwrap();
    assert!(v.crashed() == [vec![1; 5], other]);
    v.fs.vol.journal.commit_all().unwrap();
    assert!(v.fs.statfs().bfree > free + 290);
    v.close();
}

/// Whether a record makes one file of the group durable, and not the other.
fn half_by_a_record(journal: &str, canary: bool) -> bool {
    let mut opts = options(journal);
    opts.canary.record_of_group = canary;
    let v = Volume::new(32, &Mkfs::blocks(1024), opts, &[3000, 3000]);
    let old = [v.content(0), v.content(1)];
    let mut group = v.group();
    group.write(&Ctx::ROOT, v.ino(0), 0, &[1; 3000]).unwrap();
    group.write(&Ctx::ROOT, v.ino(1), 0, &[2; 3000]).unwrap();
    // Applied, but not durable yet.
    group.apply().unwrap();
    drop(group);
    assert!(v.crashed() == old, "{journal}");
    v.sync(0);
    let left = v.crashed();
    let new = [vec![1; 3000], vec![2; 3000]];
    assert!(left[0] == new[0], "{journal}: it was synced");
    v.close();
    left != new
}

/// atomic.A4
#[test]
fn a_record_does_not_take_one_file_out_of_a_group() {
    for journal in ["stet", "ijournal,data=journal", "ldj,sync=file"] {
        assert!(!half_by_a_record(journal, false), "{journal}");
        assert!(half_by_a_record(journal, true), "{journal}: the canary");
    }
}

/// A random change of a file by the group, applied to the model of the file as well.
fn step(rng: &mut u64, group: &mut AtomicGroup, ino: Ino, model: &mut Vec<u8>) {
    let mut draw = |below: u64| {
        *rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*rng >> 33) % below
    };
    let (at, len, fill) = (draw(120_000), 1 + draw(20_000), draw(255) as u8 + 1);
    let end = at + len;
    if draw(4) == 0 {
        group.write_early(&Ctx::ROOT).unwrap();
    }
    match draw(6) {
        0 => {
            group.set_size(&Ctx::ROOT, ino, at).unwrap();
            model.resize(at as usize, 0);
        }
        1 => {
            group.zero(&Ctx::ROOT, ino, at, len).unwrap();
            let size = model.len() as u64;
            model[at.min(size) as usize..end.min(size) as usize].fill(0);
        }
        _ => {
            let bytes = vec![fill; len as usize];
            group.write(&Ctx::ROOT, ino, at, &bytes).unwrap();
            *model = over(model, at as usize, &bytes);
        }
    }
}

#[test]
fn on_all_kinds_of_volumes_groups_do_what_a_model_does() {
    // These volumes have no journal for data.
    let is_without = |name: &str| name.starts_with("no journal") || name.starts_with("ext2");
    let with_journal = flavours()
        .into_iter()
        .filter(|(name, ..)| !is_without(name))
        .map(|(name, mib, mkfs)| {
            let v = Volume::new(mib, &mkfs, options("data"), &[50, 30_000, 0]);
            (name, mib, v)
        });
    let inline = Volume::inline(options("data"), &[50, 20, 0]);
    for (name, mib, v) in with_journal.chain([("inline".into(), 40, inline)]) {
        let mut model: Vec<Vec<u8>> = (0..3).map(|nr| v.content(nr)).collect();
        let mut rng = mib;
        for round in 0..8 {
            let (mut group, mut changed) = (v.group(), model.clone());
            for nr in [0, 1, 2, 1, 0] {
                step(&mut rng, &mut group, v.ino(nr), &mut changed[nr]);
                assert!(seen(&group, v.ino(nr)) == changed[nr], "{name}, {round}");
            }
            match round % 3 {
                2 => group.abort(),
                _ => {
                    group.commit().unwrap();
                    model = changed;
                }
            }
            for (nr, model) in model.iter().enumerate() {
                assert!(v.content(nr) == *model, "{name}, {round}: {nr}");
            }
        }
        assert!(v.crashed() == model, "{name}");
        v.close();
    }
}

/// Data and holes seen through the group: data where something was written, holes where content was
/// cut off.
#[test]
fn data_and_holes_are_those_of_the_group() {
    for journal in JOURNALS {
        let v = Volume::simple(journal, &[5000, 0]);
        let mut group = v.group();
        let (cut, far) = (v.ino(0), v.ino(1));
        assert_eq!(group.seek(cut, 0, SeekWhat::Hole).unwrap(), 5000);
        assert_eq!(errno(group.seek(far, 0, SeekWhat::Data)), libc::ENXIO);
        group.write(&Ctx::ROOT, far, 6000, b"far").unwrap();
        assert_eq!(group.seek(far, 0, SeekWhat::Data).unwrap(), 5120);
        assert_eq!(group.seek(far, 0, SeekWhat::Hole).unwrap(), 0);
        assert_eq!(group.seek(far, 5120, SeekWhat::Hole).unwrap(), 6003);
        assert_eq!(errno(group.seek(far, 6003, SeekWhat::Data)), libc::ENXIO);
        group.set_size(&Ctx::ROOT, cut, 1500).unwrap();
        group.set_size(&Ctx::ROOT, cut, 9000).unwrap();
        assert_eq!(group.seek(cut, 0, SeekWhat::Hole).unwrap(), 1500);
        assert_eq!(errno(group.seek(cut, 1500, SeekWhat::Data)), libc::ENXIO);
        group.write(&Ctx::ROOT, cut, 4096, b"again").unwrap();
        assert_eq!(group.seek(cut, 1500, SeekWhat::Data).unwrap(), 4096);
        assert_eq!(group.seek(cut, 4096, SeekWhat::Hole).unwrap(), 5120);
        assert_eq!(errno(group.seek(ROOT_INO, 0, SeekWhat::Hole)), libc::EBADF);
        group.commit().unwrap();
        let seek = |nr: usize, at| v.fs.seek(&v.files[nr], at, SeekWhat::Data).unwrap();
        assert_eq!((seek(0, 2048), seek(1, 0)), (4096, 5120));
        v.close();
    }
}

#[test]
fn room_and_zeroes_by_fallocate_are_a_part_of_the_group() {
    use FallocateMode::{Allocate, PunchHole, ZeroRange};
    let all = Allocate { keep_size: false };
    let within = Allocate { keep_size: true };
    for journal in JOURNALS {
        let v = Volume::simple(journal, &[5000, 0, 5000, 5000, 5000]);
        let old: Vec<Vec<u8>> = (0..5).map(|nr| v.content(nr)).collect();
        let mut group = v.group();
        let mut change =
            |nr: usize, mode, at, len| group.fallocate(&Ctx::ROOT, v.ino(nr), mode, at, len);
        change(0, all, 500, 3000).unwrap();
        change(1, all, 100, 8092).unwrap();
        change(2, PunchHole, 100, 4000).unwrap();
        change(3, ZeroRange { keep_size: false }, 4500, 2000).unwrap();
        change(4, ZeroRange { keep_size: true }, 1000, 4000).unwrap();
        // A group has no space behind the end of a file; a refused change changes nothing.
        for mode in [within, ZeroRange { keep_size: true }] {
            assert_eq!(errno(change(0, mode, 4000, 1001)), libc::EOPNOTSUPP);
        }
        change(0, within, 4000, 1000).unwrap();
        assert_eq!(errno(change(0, all, 0, 0)), libc::EINVAL);
        change(0, PunchHole, 5000, 5000).unwrap();
        assert_eq!(errno(change(0, all, u64::MAX, 2)), libc::EFBIG);
        // A change beyond the limit is refused before any memory is used.
        assert_eq!(errno(change(0, all, 0, 1 << 41)), libc::EFBIG);
        let new = [
            old[0].clone(),
            vec![0; 8192],
            over(&old[2], 100, &[0; 4000]),
            over(&old[3], 4500, &[0; 2000]),
            over(&old[4], 1000, &[0; 4000]),
        ];
        for (nr, new) in new.iter().enumerate() {
            assert!(seen(&group, v.ino(nr)) == *new, "{journal}: {nr}");
        }
        assert!(v.crashed() == old);
        group.commit().unwrap();
        assert!(v.crashed() == new);
        let blocks = v.fs.getattr(v.ino(1)).unwrap().blocks;
        assert_eq!(blocks, 16, "{journal}");
        v.close();
    }
}

/// Inline content stays the content of the file.
#[test]
fn files_in_their_inode_are_filled() {
    let v = Volume::inline(options("data"), &[40, 40]);
    // These bytes, taken for a map, would mean that there is no block.
    v.fs.write(&Ctx::ROOT, &v.files[1], 0, &[0; 8], false)
        .unwrap();
    let mut group = v.group();
    assert_eq!(group.seek(v.ino(0), 3, SeekWhat::Data).unwrap(), 3);
    assert_eq!(group.seek(v.ino(0), 3, SeekWhat::Hole).unwrap(), 40);
    let all = FallocateMode::Allocate { keep_size: false };
    group.fallocate(&Ctx::ROOT, v.ino(0), all, 0, 3000).unwrap();
    group.zero(&Ctx::ROOT, v.ino(1), 10, 20).unwrap();
    let mut filled = vec![10; 40];
    filled.resize(3000, 0);
    assert!(seen(&group, v.ino(0)) == filled);
    group.commit().unwrap();
    let zeroed = over(&over(&[11; 40], 0, &[0; 8]), 10, &[0; 20]);
    assert!(v.content(0) == filled && v.content(1) == zeroed);
    v.close();
}

#[test]
fn files_that_join_change_with_the_others() {
    for journal in JOURNALS {
        let v = Volume::simple(journal, &[3000, 3000, 3000]);
        let old: Vec<Vec<u8>> = (0..3).map(|nr| v.content(nr)).collect();
        let mut group = v.fs.atomic_group(&v.files[2..]).unwrap();
        group.write(&Ctx::ROOT, v.ino(2), 0, &[1; 100]).unwrap();
        assert_eq!(errno(group.join(&Ctx::ROOT, &v.files[2])), libc::EBUSY);
        // Lower inode numbers: locks are still taken in inode order.
        group.join(&Ctx::ROOT, &v.files[0]).unwrap();
        group.join(&Ctx::ROOT, &v.files[1]).unwrap();
        for nr in [0, 1] {
            group.write(&Ctx::ROOT, v.ino(nr), 2950, &[1; 100]).unwrap();
            let refused = v.fs.write(&Ctx::ROOT, &v.files[nr], 0, b"x", false);
            assert_eq!(errno(refused), libc::EBUSY);
        }
        assert!(v.crashed() == old);
        group.commit().unwrap();
        let new = [
            over(&old[0], 2950, &[1; 100]),
            over(&old[1], 2950, &[1; 100]),
            over(&old[2], 0, &[1; 100]),
        ];
        assert!(v.crashed() == new, "{journal}");
        v.close();
    }
}

/// Each file needs room in the transaction: one too many is refused, and is in no group.
#[test]
fn as_many_files_join_as_one_transaction_holds() {
    let v = Volume::simple("data", &[10; 200]);
    let mut group = v.fs.atomic_group(&v.files[..1]).unwrap();
    let refused = (1..200)
        .find(|nr| group.join(&Ctx::ROOT, &v.files[*nr]).is_err())
        .unwrap();
    assert_eq!(
        errno(group.join(&Ctx::ROOT, &v.files[refused])),
        libc::EFBIG
    );
    v.fs.write(&Ctx::ROOT, &v.files[refused], 0, b"x", false)
        .unwrap();
    group.commit().unwrap();
    v.close();
}

/// A commit makes everything before it durable, even if the group has no changes.
#[test]
fn what_was_done_before_stands_after_a_commit_of_nothing() {
    for journal in JOURNALS {
        let v = Volume::simple(journal, &[3000]);
        let private = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        v.fs.setattr(&Ctx::ROOT, v.ino(0), &private).unwrap();
        let group = v.group();
        assert!(group.is_clean());
        group.commit().unwrap();
        let crashed = Fs::open(Arc::new(v.device.fork()), FsOptions::default()).unwrap();
        let mode = crashed.lookup(ROOT_INO, b"0").unwrap().mode;
        assert_eq!(mode & 0o777, 0o600, "{journal}");
        crashed.unmount().unwrap();
    }
}
