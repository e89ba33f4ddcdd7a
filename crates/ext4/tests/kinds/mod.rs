//! The feature matrix: the same three trials for every kind of volume that mke2fs makes and StetFS
//! writes.
//!
//! * StetFS shows everything that the kernel wrote, to the last attribute, and can remove it;
//! * the kernel shows everything that StetFS wrote, and e2fsck finds nothing;
//! * after a crash at any moment, synced data exists (without a journal: after e2fsck).
//!
//! `STETFS_LONG=1` does more of everything. Needs root, loop devices and e2fsprogs.

mod look;
mod script;
mod volumes;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use stetfs_block::{Log, MemDevice, Recorder, Replay};
use stetfs_ext4::{Fs, FsOptions};
use stetfs_testkit::workload::{Plan, Section};
use stetfs_testkit::{CaptureOptions, Image, KernelMount, LoopDev, Tree, tree};

use self::script::Script;
use self::volumes::{Kind, kinds, sealed};

fn long() -> bool {
    std::env::var_os("STETFS_LONG").is_some_and(|v| v != "0")
}

fn kernel(image: &Image, read_only: bool) -> KernelMount {
    let options = stetfs_testkit::LoopOptions {
        read_only,
        ..Default::default()
    };
    let device = LoopDev::attach(image.path(), options).unwrap();
    KernelMount::new(device, "ext4", if read_only { "ro,noload" } else { "" }).unwrap()
}

fn seen_by_kernel(image: &Image) -> Tree {
    let mount = kernel(image, true);
    let options = CaptureOptions {
        exclude: vec!["lost+found".into()],
        ..CaptureOptions::same_image()
    };
    let tree = Tree::capture(mount.path(), &options).unwrap();
    mount.umount().unwrap();
    look::comparable(tree)
}

fn image_of(mem: &MemDevice) -> Image {
    let image = Image::sparse(0).unwrap();
    mem.save(image.path()).unwrap();
    image
}

fn assert_same(what: &str, ours: &Tree, theirs: &Tree) {
    let diff = tree::diff(ours, theirs);
    assert!(
        diff.is_empty(),
        "{what}: {} differences: {:#?}",
        diff.len(),
        &diff[..diff.len().min(8)]
    );
}

fn sync(fs: &Fs) {
    let (tx, rx) = mpsc::channel();
    fs.sync_all(Box::new(move |r| tx.send(r).unwrap()));
    rx.recv().unwrap().unwrap();
}

fn options(read_only: bool) -> FsOptions {
    FsOptions {
        read_only,
        mmp_second: std::time::Duration::from_millis(5),
        ..FsOptions::default()
    }
}

/// The files that the kernel writes.
fn plan(kind: &Kind) -> Plan {
    let plan = Plan {
        entries: if long() { 500 } else { 120 },
        extents: if long() { 400 } else { 60 },
        ..Plan::small(1)
    };
    let dull = [Section::Sparse, Section::Sizes, Section::Fallocate];
    dull.into_iter()
        .filter(|s| match s {
            Section::Fallocate => !kind.preallocates,
            _ => !long(),
        })
        .fold(plan, Plan::without)
}

fn kernel_to_stetfs(kind: &Kind) {
    if !kind.kernel {
        return;
    }
    let image = kind.make_writable();
    let mount = kernel(&image, false);
    plan(kind)
        .populate(mount.path())
        .unwrap_or_else(|e| panic!("{}: {e:#}", kind.name));
    if kind.values {
        large_values(&mount.path().join("values"));
        large_values(&mount.path().join("values-kept"));
    }
    mount.umount().unwrap();
    if kind.values {
        // The kernel (6.18) counts a reference too many when files share a block with references.
        image
            .e2fsck_fy()
            .unwrap_or_else(|e| panic!("{}: written by the kernel: {e:#}", kind.name));
    }
    kind.complete(&image);
    let theirs = seen_by_kernel(&image);
    let mem = Arc::new(MemDevice::load(image.path()).unwrap());
    let fs = Fs::open(mem.clone(), options(false)).unwrap_or_else(|e| panic!("{}: {e}", kind.name));
    assert_same(
        &format!("{}: written by the kernel", kind.name),
        &look::tree(&fs),
        &theirs,
    );
    assert_same_statfs(kind.name, &fs, &image);
    // Half of the files are removed, the rest stays unchanged.
    let mut gone = vec!["deep-extents", "directories", "xattrs", "symlinks"];
    if kind.values {
        gone.push("values");
    }
    for name in &gone {
        script::remove_all(&fs, name);
    }
    fs.unmount().unwrap();
    drop(fs);
    let after = image_of(&mem);
    after
        .e2fsck_fn()
        .unwrap_or_else(|e| panic!("{}: after removing: {e:#}", kind.name));
    let left = seen_by_kernel(&after);
    let kept = |path: &&String| !gone.iter().any(|g| path.split('/').next() == Some(*g));
    let expected: BTreeSet<&String> = theirs.entries.keys().filter(kept).collect();
    assert_eq!(expected, left.entries.keys().collect(), "{}", kind.name);
    for path in expected.into_iter().filter(|p| !p.is_empty()) {
        assert_eq!(
            theirs.entries[path], left.entries[path],
            "{}: {path}",
            kind.name
        );
    }
}

/// Attributes with large values, some of them equal: the kernel lets files share such values, and
/// whole attribute blocks.
fn large_values(dir: &Path) {
    std::fs::create_dir(dir).unwrap();
    let set = |file: &Path, name: &str, seed: usize, len: usize| {
        let value: Vec<u8> = (0..len).map(|i| (i * 7 / 5 + seed) as u8).collect();
        rustix::fs::setxattr(file, name, &value, rustix::fs::XattrFlags::empty())
    };
    for i in 0..6 {
        let file = dir.join(format!("file-{i}"));
        std::fs::write(&file, b"content").unwrap();
        for (n, len) in [3000, 9000, 60_000, 65_536].into_iter().enumerate() {
            // Half of the files share each value.
            set(&file, &format!("user.{n}"), i % 2, len).unwrap();
        }
        set(&file, "trusted.own", i, 5000).unwrap();
        let block = dir.join(format!("same-block-{i}"));
        std::fs::create_dir(&block).unwrap();
        for n in 0..8 {
            set(&block, &format!("user.name-{n}"), n / 5, 3000 - 300 * n).unwrap();
        }
    }
}

/// Kinds that are only read.
fn only_read(kind: &Kind) {
    let image = kind.make();
    let mount = kernel(&image, false);
    plan(kind)
        .populate(mount.path())
        .unwrap_or_else(|e| panic!("{}: {e:#}", kind.name));
    mount.umount().unwrap();
    let theirs = seen_by_kernel(&image);
    let mem = Arc::new(MemDevice::load(image.path()).unwrap());
    let e = Fs::open(mem.clone(), options(false)).err();
    let e = e.unwrap_or_else(|| panic!("{}: opened for writing", kind.name));
    assert_eq!(e.errno(), libc::EOPNOTSUPP, "{}: {e}", kind.name);
    let fs = Fs::open(mem, options(true)).unwrap_or_else(|e| panic!("{}: {e}", kind.name));
    assert_same(kind.name, &look::tree(&fs), &theirs);
    assert_same_statfs(kind.name, &fs, &image);
}

fn assert_same_statfs(what: &str, fs: &Fs, image: &Image) {
    let mount = kernel(image, true);
    let theirs = rustix::fs::statvfs(mount.path()).unwrap();
    mount.umount().unwrap();
    let ours = fs.statfs();
    let theirs = (
        theirs.f_blocks,
        theirs.f_bfree,
        theirs.f_bavail,
        theirs.f_files,
        theirs.f_ffree,
    );
    let ours = (ours.blocks, ours.bfree, ours.bavail, ours.files, ours.ffree);
    assert_eq!(ours, theirs, "{what}");
}

fn stetfs_to_kernel(kind: &Kind) {
    let mem = Arc::new(MemDevice::load(kind.make().path()).unwrap());
    let mut script = Script::new(7, kind);
    // Twice: the second time over the existing files, read from the device again.
    for round in 0..2 {
        let what = format!("{}, round {round}", kind.name);
        let fs = Fs::open(mem.clone(), options(false)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let long = long() && !kind.coarse;
        script.run(&fs, if long { 1500 } else { 250 });
        let live = look::without_runs(look::tree(&fs));
        fs.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
        drop(fs);
        let image = image_of(&mem);
        image
            .e2fsck_fn()
            .unwrap_or_else(|e| panic!("{what}: {e:#}"));
        let theirs = if kind.kernel {
            seen_by_kernel(&image)
        } else {
            look::tree(&Fs::open(mem.clone(), options(true)).unwrap())
        };
        assert_same(&what, &live, &look::without_runs(theirs));
        if kind.kernel {
            let fs = Fs::open(mem.clone(), options(true)).unwrap();
            assert_same_statfs(&what, &fs, &image);
        }
    }
}

/// Volumes after a crash in which any part of the unflushed writes arrived.
fn crashes(kind: &Kind) {
    crashes_with(kind, options(false));
    if kind.own_log && kind.journal {
        let options = FsOptions {
            journal: "data,codec=frames".parse().unwrap(),
            ..options(false)
        };
        crashes_with(kind, options);
    }
}

fn crashes_with(kind: &Kind, options: FsOptions) {
    let base = MemDevice::load(kind.make().path()).unwrap();
    let mem = Arc::new(base.fork());
    let recorder = Arc::new(Recorder::new(mem));
    let fs = Fs::open(recorder.clone(), options.clone()).unwrap();
    let mut script = Script::new(11, kind);
    // Synced trees, each with the position in the log from which on it must exist.
    let mut synced: Vec<(usize, Tree)> = Vec::new();
    let dirs = ["one", "two", "three"];
    for dir in dirs {
        script.enter(&fs, dir);
        script.run(&fs, 60);
        sync(&fs);
        synced.push((
            recorder.position(),
            look::without_runs(look::below(&fs, dir)),
        ));
    }
    script.enter(&fs, "unsynced");
    script.run(&fs, 60);
    let log: Log = recorder.log();
    drop(fs);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut positions: Vec<usize> = (0..if long() { 40 } else { 5 })
        .map(|_| rng.usize(..=log.len()))
        .collect();
    positions.extend(synced.iter().map(|(at, _)| *at));
    positions.push(log.len());
    positions.sort_unstable();
    let mut replay = Replay::new(&base, &log);
    for position in positions {
        replay.advance_to(position);
        let share = rng.u8(..=100);
        let what = format!("{}, {share} % after {position} of {}", kind.name, log.len());
        let crashed = replay.crash(|_| rng.u8(..100) < share);
        let crashed = if kind.journal {
            crashed
        } else {
            // Only e2fsck can help, but synced data must still exist.
            let image = image_of(&crashed);
            // Twice with quota: e2fsck (1.47) counts before it gives lost+found more blocks.
            for _ in 0..2 {
                image
                    .e2fsck_fy()
                    .unwrap_or_else(|e| panic!("{what}: {e:#}"));
            }
            MemDevice::load(image.path()).unwrap()
        };
        let mem = Arc::new(crashed);
        let fs = Fs::open(mem.clone(), options.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
        for ((at, tree), dir) in synced.iter().zip(dirs) {
            if *at <= position {
                let now = look::without_runs(look::below(&fs, dir));
                assert_same(&format!("{what}: {dir}"), tree, &now);
            }
        }
        fs.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
        drop(fs);
        image_of(&mem)
            .e2fsck_fn()
            .unwrap_or_else(|e| panic!("{what}: {e:#}"));
    }
}

/// Runs one trial for all kinds, on all cores. Reports every kind that failed.
fn all(kinds: Vec<Kind>, trial: fn(&Kind)) {
    let queue = Mutex::new(kinds.into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(kind) = queue.lock().unwrap().next() else {
                        return;
                    };
                    let only = std::env::var("STETFS_KIND").ok();
                    if only.is_some_and(|o| o != kind.name) {
                        continue;
                    }
                    let run = std::panic::AssertUnwindSafe(|| trial(&kind));
                    if std::panic::catch_unwind(run).is_err() {
                        failed.lock().unwrap().push(kind.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "kinds of volumes that failed: {failed:?}"
    );
}

#[test]
fn what_the_kernel_wrote_is_there() {
    all(kinds(), kernel_to_stetfs);
}

#[test]
fn what_is_only_read_is_there() {
    all(sealed(), only_read);
}

#[test]
fn the_kernel_sees_what_was_written() {
    all(kinds(), stetfs_to_kernel);
}

#[test]
fn what_was_synced_survives_a_crash() {
    all(kinds(), crashes);
}
