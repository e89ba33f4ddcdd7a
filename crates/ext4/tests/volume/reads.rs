//! Failing reads: each read of an operation fails once, with an empty cache. The operation is
//! complete, or leaves nothing behind.

use std::sync::Arc;

use stetfs_block::{Fault, FaultInjector, MemDevice, Op};
use stetfs_ext4::{
    Ctx, FallocateMode, Fs, FsError, FsOptions, Ino, ROOT_INO, RenameFlags, SetAttr, XattrSet,
};
use stetfs_journal::Canary;
use stetfs_testkit::image::e2fsck_said;
use stetfs_testkit::{Image, Mkfs};

/// The files to work on: a directory with an index, files, links.
struct Tree {
    dir: Ino,
    other: Ino,
}

const LONG: [u8; 200] = [b'l'; 200];
const ROOT: &Ctx = &Ctx::ROOT;

fn file(fs: &Fs, dir: Ino, name: &str, bytes: usize) -> Result<Ino, FsError> {
    let made = fs.create(ROOT, dir, name.as_bytes(), 0o644, 0, libc::O_RDWR);
    let (attr, open) = made?;
    let written = fs.write(ROOT, &open, 0, &vec![3; bytes], false);
    drop(open);
    fs.forget(attr.ino, 1);
    written.map(|_| attr.ino)
}

fn mkdir(fs: &Fs, dir: Ino, name: &str) -> Result<Ino, FsError> {
    let ino = fs.mkdir(ROOT, dir, name.as_bytes(), 0o755, 0)?.ino;
    fs.forget(ino, 1);
    Ok(ino)
}

fn find(fs: &Fs, dir: Ino, name: &str) -> Result<Ino, FsError> {
    let ino = fs.lookup(dir, name.as_bytes())?.ino;
    fs.forget(ino, 1);
    Ok(ino)
}

fn cut(fs: &Fs, ino: Ino, size: u64) -> Result<(), FsError> {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    fs.setattr(ROOT, ino, &set).map(drop)
}

fn rename(fs: &Fs, from: (Ino, &str), to: (Ino, &str), flags: RenameFlags) -> Result<(), FsError> {
    let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
    fs.rename(ROOT, from.0, from.1, to.0, to.1, flags)
}

fn prepared(mkfs: &Mkfs) -> (MemDevice, Tree) {
    let image = Image::make(24 << 20, mkfs).unwrap();
    let device = Arc::new(MemDevice::load(image.path()).unwrap());
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    let dir = mkdir(&fs, ROOT_INO, "dir").unwrap();
    let other = mkdir(&fs, ROOT_INO, "other").unwrap();
    for i in 0..300 {
        file(&fs, dir, &format!("a-rather-long-name-{i}"), 100).unwrap();
    }
    file(&fs, dir, "file", 300_000).unwrap();
    let held = file(&fs, other, "target", 90_000).unwrap();
    let set = |name: &[u8], len| {
        let value = vec![5; len];
        fs.setxattr(ROOT, held, name, &value, XattrSet::Any)
            .unwrap();
    };
    set(b"user.small", 30);
    set(b"user.large", 700);
    mkdir(&fs, dir, "empty").unwrap();
    fs.symlink(ROOT, other, b"link", &LONG)
        .map(|a| fs.forget(a.ino, 1))
        .unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let device = Arc::into_inner(device).unwrap();
    (device, Tree { dir, other })
}

type Deed = fn(&Fs, &Tree) -> Result<(), FsError>;

const DEEDS: &[(&str, Deed)] = &[
    ("create", |fs, t| file(fs, t.dir, "new", 9000).map(drop)),
    ("mkdir", |fs, t| mkdir(fs, t.dir, "new").map(drop)),
    ("symlink", |fs, t| {
        let made = fs.symlink(ROOT, t.dir, b"new", &LONG)?;
        fs.forget(made.ino, 1);
        Ok(())
    }),
    ("link", |fs, t| {
        let ino = find(fs, t.other, "target")?;
        fs.link(ROOT, ino, t.dir, b"new")
            .map(|a| fs.forget(a.ino, 1))
    }),
    ("unlink", |fs, t| fs.unlink(ROOT, t.other, b"target")),
    ("unlink a link", |fs, t| fs.unlink(ROOT, t.other, b"link")),
    ("rmdir", |fs, t| fs.rmdir(ROOT, t.dir, b"empty")),
    ("rename", |fs, t| {
        rename(
            fs,
            (t.dir, "file"),
            (t.other, "target"),
            RenameFlags::default(),
        )
    }),
    ("exchange", |fs, t| {
        let flags = RenameFlags {
            exchange: true,
            ..RenameFlags::default()
        };
        rename(fs, (t.dir, "empty"), (t.other, "target"), flags)
    }),
    ("whiteout", |fs, t| {
        let flags = RenameFlags {
            whiteout: true,
            ..RenameFlags::default()
        };
        rename(fs, (t.dir, "file"), (t.other, "new"), flags)
    }),
    ("append", |fs, t| {
        let ino = find(fs, t.dir, "file")?;
        let open = fs.open_inode(ROOT, ino, libc::O_RDWR)?;
        fs.write(ROOT, &open, 299_500, &[4; 40_000], false)
            .map(drop)
    }),
    ("truncate", |fs, t| cut(fs, find(fs, t.dir, "file")?, 5_100)),
    ("punch", |fs, t| {
        let open = fs.open_inode(ROOT, find(fs, t.dir, "file")?, libc::O_RDWR)?;
        fs.fallocate(ROOT, &open, FallocateMode::PunchHole, 3_000, 100_000)
    }),
    ("allocate", |fs, t| {
        let open = fs.open_inode(ROOT, find(fs, t.dir, "file")?, libc::O_RDWR)?;
        let mode = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(ROOT, &open, mode, 200_000, 900_000)
    }),
    ("setxattr", |fs, t| {
        let ino = find(fs, t.dir, "file")?;
        fs.setxattr(ROOT, ino, b"user.new", &[6; 800], XattrSet::Any)
    }),
    ("removexattr", |fs, t| {
        fs.removexattr(ROOT, find(fs, t.other, "target")?, b"user.large")
    }),
    ("change of a shared attribute", |fs, t| {
        let ino = find(fs, t.other, "target")?;
        fs.setxattr(ROOT, ino, b"user.large", &[7; 600], XattrSet::Any)
    }),
    ("tmpfile", |fs, t| {
        let (attr, open) = fs.tmpfile(ROOT, t.other, 0o644, 0, libc::O_RDWR)?;
        let written = fs.write(ROOT, &open, 0, &[8; 20_000], false);
        let linked = written.and_then(|_| fs.link(ROOT, attr.ino, t.dir, b"new"));
        drop(open);
        fs.forget(attr.ino, 1);
        linked.map(|a| fs.forget(a.ino, 1))
    }),
    ("chown", |fs, t| {
        let set = SetAttr {
            uid: Some(7),
            ..SetAttr::default()
        };
        fs.setattr(ROOT, find(fs, t.dir, "file")?, &set).map(drop)
    }),
];

/// Runs the operation with its read number `n` failing. Returns whether it made so many reads.
fn try_one(
    base: &MemDevice,
    tree: &Tree,
    (name, deed): (&str, Deed),
    n: u64,
    canary: Canary,
) -> bool {
    let what = format!("{name}, read {n}");
    let device = Arc::new(FaultInjector::new(base.fork()));
    let options = FsOptions {
        commit_secs: 3600,
        canary,
        ..FsOptions::default()
    };
    let fs = Fs::open(device.clone(), options).unwrap();
    fs.set_cache_bytes(0);
    fs.set_cache_bytes(4 << 20);
    device.add(Fault::fail(Op::Read, libc::EIO).after(n).once());
    let done = deed(&fs, tree);
    let is_hit = device.hits() > 0;
    device.clear();
    if let Err(e) = &done
        && e.errno() != libc::EOPNOTSUPP
    {
        // If an operation fails half done, the journal stops.
        let is_told = [libc::EIO, libc::EROFS].contains(&e.errno());
        assert!(is_hit && is_told, "{what}: {e}");
    }
    let _ = fs.unmount();
    drop(fs);
    // The next mount deletes an orphan, or leaves it to e2fsck if the failure was noted as an error
    // of the volume, as the kernel does.
    let left = Arc::new(device.inner().fork());
    let fs = Fs::open(left.clone(), FsOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let orphans = fs.orphans_finished().left;
    fs.unmount().unwrap();
    drop(fs);
    let image = Image::sparse(0).unwrap();
    left.save(image.path()).unwrap();
    let ended = format!("{what}, which ended with {done:?}");
    if orphans > 0 {
        let told = e2fsck_said(image.path(), &["-fy"], 1).expect(&ended);
        let of_others = ["Unattached", "Multiply", "differences:  +", "should be"];
        assert!(
            !of_others.iter().any(|word| told.contains(word)),
            "{what}: {told}"
        );
    }
    image.e2fsck_fn().expect(&ended);
    is_hit
}

fn each_read_fails(mkfs: &Mkfs) {
    let (base, tree) = prepared(mkfs);
    for deed in DEEDS {
        let reads = (0..).take_while(|n| try_one(&base, &tree, *deed, *n, Canary::default()));
        let reads = reads.count();
        // Block maps have no preallocation.
        let least = if deed.0 == "allocate" { 0 } else { 2 };
        assert!(
            reads >= least && reads < 200,
            "{} took {reads} reads",
            deed.0
        );
    }
}

/// space.S5.
#[test]
fn what_fails_at_any_read_leaves_nothing_behind() {
    each_read_fails(&Mkfs::blocks(1024).journal_mib(1));
}

#[test]
fn nor_with_inodes_for_values_and_clusters() {
    let mut mkfs = Mkfs::blocks(1024)
        .feature("ea_inode,bigalloc,^resize_inode,quota")
        .journal_mib(1);
    mkfs.args.extend(["-C".into(), "4096".into()]);
    each_read_fails(&mkfs);
}

#[test]
fn nor_with_block_maps_and_small_groups() {
    let mut mkfs = Mkfs::blocks(1024)
        .feature("^extents,^64bit,^flex_bg,inline_data")
        .journal_mib(1);
    mkfs.args.extend(["-g".into(), "2048".into()]);
    each_read_fails(&mkfs);
}

#[test]
fn nor_with_a_file_of_orphans() {
    each_read_fails(&Mkfs::blocks(1024).feature("orphan_file").journal_mib(1));
}

/// The same with the fault that space.S5 prevents.
#[test]
#[should_panic(expected = "inode bitmap")]
fn a_descriptor_that_is_read_late_is_seen() {
    let (base, tree) = prepared(&Mkfs::blocks(1024).journal_mib(1));
    let canary = Canary {
        late_descriptor: true,
        ..Canary::default()
    };
    for n in 0..20 {
        try_one(&base, &tree, DEEDS[0], n, canary);
    }
}
