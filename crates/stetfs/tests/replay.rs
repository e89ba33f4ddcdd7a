//! Tests of replaying the journal by StetFS, by the kernel and by e2fsck: the resulting volumes are
//! equal.
//!
//! Needs root, loop devices and e2fsprogs.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::common::long;
use stetfs::low::{MemDevice, Preset, Volume, VolumeOptions, preset};
use stetfs_block::{Event, Log, Replay};
use stetfs_crash::volume::{base, options};
use stetfs_crash::work::Work;
use stetfs_crash::workload::{Op, Script};
use stetfs_testkit::sys::Shutdown;
use stetfs_testkit::workload::mutate::Mutator;
use stetfs_testkit::{CaptureOptions, Image, Mkfs, Mounter, Tree, tree};

/// The implementation that replays the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Kernel,
    E2fsck,
    Stetfs,
}

/// The tree of the volume after its recovery, seen by the kernel; e2fsck must find it clean.
fn recovered(image: &Image, by: By, what: &str) -> Tree {
    let image = image.copy().unwrap();
    match by {
        By::Kernel => Mounter::ext4("").recover(image.path()).unwrap(),
        By::E2fsck => {
            image
                .e2fsck_replay()
                .unwrap_or_else(|e| panic!("{what}: {e:#}"));
            // e2fsck leaves orphans to the next mount.
            Mounter::ext4("").recover(image.path()).unwrap();
        }
        By::Stetfs => {
            let options = VolumeOptions::default();
            let volume =
                Volume::open(image.path(), &options).unwrap_or_else(|e| panic!("{what}: {e}"));
            volume.close().unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
    image
        .e2fsck_fn()
        .unwrap_or_else(|e| panic!("{what}, recovered by {by:?}: {e:#}"));
    let mounted = Mounter::ext4("ro,noload").mount(image.path()).unwrap();
    let tree = Tree::capture(mounted.path(), &CaptureOptions::same_image()).unwrap();
    mounted.umount().unwrap();
    tree
}

/// Recovers copies in all three ways, and compares.
fn compare(image: &Image, what: &str) -> Tree {
    let kernel = recovered(image, By::Kernel, what);
    for by in [By::E2fsck, By::Stetfs] {
        let other = recovered(image, by, what);
        let lines = tree::diff(&kernel, &other);
        assert!(
            lines.is_empty(),
            "{what}: kernel and {by:?} differ:\n{}",
            lines.join("\n")
        );
    }
    kernel
}

fn image_of(device: &MemDevice) -> Image {
    let image = Image::sparse(1 << 20).unwrap();
    device.save(image.path()).unwrap();
    image
}

/// The positions in the log where flushes were done.
fn boundaries(log: &Log) -> Vec<usize> {
    let mut flushes = Vec::new();
    let mut at = Vec::new();
    for (i, event) in log.events.iter().enumerate() {
        match event {
            Event::Flush { id } | Event::Write { id, fua: true, .. } => flushes.push(*id),
            Event::Done { id, .. } if flushes.contains(id) => at.push(i + 1),
            _ => {}
        }
    }
    at
}

/// All kinds of changes, removed directories whose blocks become data, and orphans; then more, so
/// that the log ends in the middle of an operation.
fn script(seed: u64, block: u32, preset: Preset) -> Script {
    let mut script = Script::random(seed, 250, block.into(), preset.data_mode());
    let dir = |i: u32| format!("short-lived/{i}-{}", "n".repeat(120));
    script.push(Op::Mkdir {
        path: "short-lived".into(),
        mode: 0o755,
    });
    (0..40).for_each(|i| {
        script.push(Op::Mkdir {
            path: dir(i),
            mode: 0o755,
        })
    });
    script.push(Op::SyncAll);
    (0..40).for_each(|i| script.push(Op::Rmdir { path: dir(i) }));
    script.push(Op::Rmdir {
        path: "short-lived".into(),
    });
    for i in 0..3 {
        let path = format!("orphan{i}");
        script.push(Op::Create {
            path: path.clone(),
            mode: 0o644,
        });
        script.push(Op::Write {
            path: path.clone(),
            offset: 0,
            len: 40_000,
            key: i,
        });
        script.push(Op::HoldUnlink {
            path,
            held: i as u32 + 1,
        });
        script.push(Op::SyncAll);
    }
    script
}

fn same_replays(preset: Preset) {
    let seeds = if long() { 1..=10 } else { 1..=1 };
    for (block, seed) in [1024, 4096]
        .into_iter()
        .flat_map(|b| seeds.clone().map(move |s| (b, s)))
    {
        let base = base(block).unwrap();
        let work = Work {
            base: base.clone(),
            region: None,
            options: options(preset),
            scripts: vec![script(seed, block, preset)],
            promise: Default::default(),
            before: vec![0],
            rest: Default::default(),
        };
        let (log, _) = work.record(None).unwrap();
        let at = boundaries(&log);
        let count = if long() { 40 } else { 3 };
        // Spread over the work and its end, but not the unmount after it.
        let marks = log
            .events
            .iter()
            .rposition(|e| matches!(e, Event::Mark { .. }))
            .unwrap();
        let at: Vec<usize> = at.into_iter().filter(|i| *i <= marks).collect();
        let mut replay = Replay::new(&base.image, &log);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut dirty = 0;
        for i in 1..=count {
            let point = at[at.len() * i / count - 1];
            replay.advance_to(point);
            let what = format!("{preset}, blocks of {block} bytes, seed {seed}, event {point}");
            let durable = replay.only_durable();
            dirty += u32::from(is_dirty(&durable));
            compare(&image_of(&durable), &what);
            // On the way to the next: any sectors of the blocks written meanwhile. A commit block
            // is left whole: if only its first sector arrived, the kernel (from 6.12 on) takes the
            // rest for zeroes and replays the transaction, e2fsck 1.47 does not; either is right,
            // because the transaction was not acknowledged.
            let between = point + rng.usize(0..6);
            replay.advance_to(between);
            let commits = rng.bool();
            let torn = replay.crash(|s| match &log.events[s.event] {
                Event::Write { fua: true, .. } => commits,
                _ => rng.bool(),
            });
            compare(
                &image_of(&torn),
                &format!("{what}, torn at event {between}"),
            );
        }
        println!(
            "{preset}, blocks of {block} bytes, seed {seed}: {count} of {} boundaries",
            at.len()
        );
        assert!(dirty > 0, "no journal had anything to replay");
    }
}

/// Whether the journal is not empty.
fn is_dirty(device: &MemDevice) -> bool {
    let looked_at = stetfs::low::inspect(Arc::new(device.fork()), None).unwrap();
    looked_at.log.is_some_and(|log| log.is_dirty())
}

#[test]
fn ordered_is_replayed_alike() {
    same_replays(preset::ORDERED);
}

#[test]
fn data_is_replayed_alike() {
    same_replays(preset::DATA);
}

#[test]
fn writeback_is_replayed_alike() {
    same_replays(preset::WRITEBACK);
}

/// Works on a kernel mount and stops it in the middle.
fn kernel_crash(options: &str, mkfs: &Mkfs, how: Shutdown) -> (Image, Mutator) {
    let image = Image::make(48 << 20, mkfs).unwrap();
    let mounted = Mounter::ext4(options).mount(image.path()).unwrap();
    let root = mounted.path().join("work");
    fs::create_dir(&root).unwrap();
    let mut work = Mutator::new(11);
    work.run(&root, 150).unwrap();
    work.sync_and_mark(&root).unwrap();
    let orphan = orphan(mounted.path());
    work.run(&root, 40).unwrap();
    // A commit that stays in the journal, with the orphan in it.
    fs::File::create(mounted.path().join("synced-last"))
        .unwrap()
        .sync_all()
        .unwrap();
    work.run(&root, 10).unwrap();
    mounted.crash_with(how, || drop(orphan)).unwrap();
    (image, work)
}

/// A file that is unlinked but open.
fn orphan(root: &Path) -> fs::File {
    let path = root.join("orphan");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&[5; 100_000]).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(&path).unwrap();
    file
}

#[test]
fn crashes_of_the_kernel_are_replayed_alike() {
    let journals = [
        ("data=ordered", Mkfs::blocks(1024), Shutdown::LogFlush),
        ("data=journal", Mkfs::blocks(4096), Shutdown::NoLogFlush),
        (
            "data=writeback,journal_async_commit",
            Mkfs::blocks(2048).feature("orphan_file"),
            Shutdown::LogFlush,
        ),
    ];
    for (options, mkfs, how) in journals {
        let what = format!("kernel {options}, {mkfs:?}, {how:?}");
        let (image, work) = kernel_crash(options, &mkfs, how);
        let tree = compare(&image, &what);
        assert!(
            tree.entries.contains_key("synced-last"),
            "{what}: {:?}",
            tree.entries.keys()
        );
        // The synced changes are there, too, in the volume that StetFS recovered.
        let volume = Volume::open(image.path(), &VolumeOptions::default()).unwrap();
        volume.close().unwrap();
        drop(volume);
        let mounted = Mounter::ext4("ro").mount(image.path()).unwrap();
        let lost = work.verify_marked(&mounted.path().join("work")).unwrap();
        assert!(lost.is_empty(), "{what}: {}", lost.join("\n"));
        mounted.umount().unwrap();
    }
}
