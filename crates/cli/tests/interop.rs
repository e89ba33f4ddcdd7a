//! Tests of interoperability: StetFS and the kernel read each other's volumes, to the last
//! attribute.

use crate::common::{
    assert_no_differences, assert_same, capture, capture_image, kernel, kernel_read_only, seed,
    stetfs, stetfs_with,
};
use stetfs_testkit::workload::mutate::Mutator;
use stetfs_testkit::workload::{Plan, Section};
use stetfs_testkit::{CaptureOptions, Image, LoopDev, LoopOptions, Mkfs, Mounter, Tree};

/// Room for every section, and (with `-T largefile`) inodes.
const SIZE: u64 = 1 << 30;

/// `writer` builds the rich tree; `reader` must see the same, and e2fsck must find nothing.
fn written_by_one_read_by_the_other(writer: &Mounter, reader: &Mounter, mkfs: &Mkfs, plan: &Plan) {
    let what = format!("{} → {}, {mkfs:?}", writer.name(), reader.name());
    let image = Image::make(SIZE, mkfs).unwrap();
    let mounted = writer.mount(image.path()).unwrap();
    plan.populate(mounted.path())
        .unwrap_or_else(|e| panic!("{what}: {e:#}"));
    let live = capture(mounted.path());
    mounted.umount().unwrap();
    image
        .e2fsck_fn()
        .unwrap_or_else(|e| panic!("{what}: {e:#}"));

    let again = capture_image(writer, image.path());
    assert_same(
        &format!("{what}: the writer after remount"),
        &without_data_runs(live),
        &without_data_runs(again.clone()),
    );
    let other = capture_image(reader, image.path());
    assert_same(&what, &again, &other);
    image
        .e2fsck_fn()
        .unwrap_or_else(|e| panic!("{what}, after the reader: {e:#}"));
}

/// The tree without data runs: SEEK_DATA on a live file also finds cached pages of unwritten
/// extents, which are holes after a remount.
fn without_data_runs(mut tree: Tree) -> Tree {
    for entry in tree.entries.values_mut() {
        entry.data = None;
    }
    tree
}

/// Both directions for one kind of volume.
fn both_ways(a: &Mounter, b: &Mounter, mkfs: &Mkfs, plan: &Plan) {
    written_by_one_read_by_the_other(a, b, mkfs, plan);
    written_by_one_read_by_the_other(b, a, mkfs, plan);
}

macro_rules! volumes {
    ($($name:ident: $mkfs:expr, $plan:expr;)*) => { $(
        #[test]
        fn $name() {
            both_ways(&kernel(), &stetfs(), &$mkfs, &$plan);
        }
    )* };
}

volumes! {
    blocks_1k: Mkfs::blocks(1024), Plan::full(1);
    blocks_2k: Mkfs::blocks(2048), Plan::full(2);
    blocks_4k: Mkfs::blocks(4096), Plan::full(3);
    small_1k: Mkfs::blocks(1024).usage("small"), Plan::small(4);
    small_2k: Mkfs::blocks(2048).usage("small"), Plan::small(5);
    small_4k: Mkfs::blocks(4096).usage("small"), Plan::small(6);
    largefile_1k: Mkfs::blocks(1024).usage("largefile"), Plan::small(7);
    largefile_2k: Mkfs::blocks(2048).usage("largefile"), Plan::small(8);
    largefile_4k: Mkfs::blocks(4096).usage("largefile"), Plan::small(9);
    // Older or rarer volumes.
    no_checksums: Mkfs::blocks(4096).feature("^metadata_csum"), Plan::small(11);
    no_index: Mkfs::blocks(1024).feature("^dir_index"), Plan::small(12);
    inodes_of_128_bytes: Mkfs::blocks(1024).inode_size(128), Plan::small(13);
    no_flex_groups: Mkfs::blocks(1024).feature("^flex_bg"), Plan::small(14);
    block_maps_1k: Mkfs::blocks(1024).feature("^extents").feature("^64bit"), without_preallocation(15);
    block_maps_4k: block_mapped(), without_preallocation(16);
    ext3_1k: typed("ext3", 1024), without_preallocation(17);
    ext3_4k_128: typed("ext3", 4096).inode_size(128), without_preallocation(18);
    ext2_1k: typed("ext2", 1024), without_preallocation(24);
    ext2_4k_128: typed("ext2", 4096).inode_size(128), without_preallocation(25);
    no_journal: Mkfs::blocks(4096).feature("^has_journal"), Plan::small(26);
    group_checksums: Mkfs::blocks(1024).feature("^metadata_csum,uninit_bg"), Plan::small(19);
    descriptors_of_32_bytes: Mkfs::blocks(1024).feature("^64bit"), Plan::small(20);
    meta_groups: Mkfs::blocks(1024).feature("meta_bg,^resize_inode"), Plan::small(21);
    two_backups: Mkfs::blocks(4096).feature("sparse_super2,^resize_inode"), Plan::small(22);
    no_file_types: Mkfs::blocks(1024).feature("^filetype,^dir_index,^large_file"), Plan::small(23);
}

/// Block-mapped files have no unwritten extents, and end at 4 TiB or less.
fn without_preallocation(seed: u64) -> Plan {
    Plan::small(seed).without(Section::Fallocate)
}

fn typed(fs_type: &str, block_size: u32) -> Mkfs {
    Mkfs {
        fs_type: Some(fs_type.into()),
        ..Mkfs::blocks(block_size)
    }
}

fn block_mapped() -> Mkfs {
    Mkfs::blocks(4096).feature("^extents").feature("^64bit")
}

/// A volume that got extents later (`tune2fs -O extents`): its older files, directories and journal
/// stay block-mapped. StetFS and the kernel in turns read and change both kinds side by side.
#[test]
fn extents_that_came_later() {
    let image = Image::make(256 << 20, &block_mapped()).unwrap();
    let (old, new) = ("old", "new");
    let mut works = Vec::new();
    for (turn, mounter) in [kernel(), stetfs(), kernel(), stetfs()].iter().enumerate() {
        let what = format!("turn {turn}, {}", mounter.name());
        let mounted = mounter.mount(image.path()).unwrap();
        if turn % 2 == 0 {
            let name = if turn == 0 { old } else { new };
            std::fs::create_dir(mounted.path().join(name)).unwrap();
            works.push((name, Mutator::new(turn as u64 + 50).without_preallocation()));
        }
        for (name, work) in &mut works {
            let root = mounted.path().join(name);
            assert_no_differences(&what, &work.verify(&root).unwrap());
            work.run(&root, 400)
                .unwrap_or_else(|e| panic!("{what}: {e:#}"));
            assert_no_differences(&what, &work.verify(&root).unwrap());
        }
        mounted.umount().unwrap();
        image
            .e2fsck_fn()
            .unwrap_or_else(|e| panic!("{what}: {e:#}"));
        if turn == 1 {
            let mut tune = std::process::Command::new("tune2fs");
            stetfs_testkit::cmd::run(tune.args(["-O", "extents"]).arg(image.path())).unwrap();
        }
    }
    let flags = |path: &str| image.debugfs(&format!("stat {path}")).unwrap();
    assert!(
        !flags("<8>").contains("EXTENTS"),
        "the journal is block-mapped"
    );
    assert!(!flags("/old").contains("EXTENTS"));
    assert!(flags("/new").contains("EXTENTS"));
}

/// A journal on another device: found by `journal_path=`, missing without it by name, and usable by
/// the kernel afterwards.
#[test]
fn a_journal_on_another_device() {
    let journal = Image::make(16 << 20, &Mkfs::blocks(4096).feature("journal_dev")).unwrap();
    let device = LoopDev::attach(journal.path(), LoopOptions::default()).unwrap();
    let mkfs = Mkfs::blocks(4096).journal_device(device.path());
    let image = Image::make(256 << 20, &mkfs).unwrap();
    drop(device);
    let error = format!("{:#}", stetfs().mount(image.path()).unwrap_err());
    assert!(error.contains("journal_path="), "{error}");

    let option = format!("journal_path={}", journal.path().display());
    let mounted = stetfs_with(&option).mount(image.path()).unwrap();
    Plan::small(60).populate(mounted.path()).unwrap();
    let live = capture(mounted.path());
    mounted.umount().unwrap();

    let device = LoopDev::attach(journal.path(), LoopOptions::default()).unwrap();
    let option = format!("journal_path={}", device.path().display());
    let mounted = Mounter::ext4(&option).mount(image.path()).unwrap();
    let theirs = capture(mounted.path());
    mounted.umount().unwrap();
    assert_same(
        "with a journal elsewhere",
        &without_data_runs(live),
        &without_data_runs(theirs),
    );
}

/// The same calls have the same effect as in the kernel; it is not enough that both read the same
/// bytes on disk.
#[test]
fn posix_calls_do_what_they_do_in_the_kernel() {
    let options = CaptureOptions {
        mtime: false,
        flags: true,
        ..CaptureOptions::default()
    };
    let build = |mounter: &Mounter| {
        let image = Image::make(SIZE, &Mkfs::new()).unwrap();
        let mounted = mounter.mount(image.path()).unwrap();
        Plan::full(20)
            .populate(mounted.path())
            .unwrap_or_else(|e| panic!("{}: {e:#}", mounter.name()));
        let tree = Tree::capture(mounted.path(), &options).unwrap();
        let times =
            Tree::capture(&mounted.path().join("times"), &CaptureOptions::default()).unwrap();
        mounted.umount().unwrap();
        (tree, times)
    };
    let (kernel_tree, mut kernel_times) = build(&kernel());
    let (stetfs_tree, mut stetfs_times) = build(&stetfs());
    // The directory itself, and files without an explicit time, have the current time.
    for times in [&mut kernel_times, &mut stetfs_times] {
        times
            .entries
            .retain(|path, _| !path.is_empty() && !path.starts_with("owner") && path != "sticky");
    }
    assert_same("after the same calls", &kernel_tree, &stetfs_tree);
    assert_same("chosen times", &kernel_times, &stetfs_times);
}

/// Random changes in turns: each side finds the state that the other left, and continues from it.
fn taking_turns(mounters: &[Mounter], seed: u64, mkfs: &Mkfs) {
    let image = Image::make(256 << 20, mkfs).unwrap();
    let mut work = Mutator::new(seed);
    for turn in 0..6 {
        let mounter = &mounters[turn % mounters.len()];
        let what = format!("seed {seed}, turn {turn}, {}, {mkfs:?}", mounter.name());
        let mounted = mounter.mount(image.path()).unwrap();
        let root = mounted.path().join("work");
        if turn == 0 {
            std::fs::create_dir(&root).unwrap();
        }
        assert_no_differences(&format!("{what}, before"), &work.verify(&root).unwrap());
        work.run(&root, 400)
            .unwrap_or_else(|e| panic!("{what}: {e:#}"));
        assert_no_differences(&what, &work.verify(&root).unwrap());
        mounted.umount().unwrap();
        image
            .e2fsck_fn()
            .unwrap_or_else(|e| panic!("{what}: {e:#}"));
    }
}

#[test]
fn random_changes_in_turns() {
    let seed = seed("STETFS_MUTATE_SEED");
    for (i, block) in [1024, 2048, 4096].into_iter().enumerate() {
        taking_turns(&[stetfs(), kernel()], seed + i as u64, &Mkfs::blocks(block));
    }
}

/// Proves the test itself, with the kernel on both sides.
#[test]
fn harness_kernel_to_kernel() {
    written_by_one_read_by_the_other(
        &kernel(),
        &kernel_read_only(),
        &Mkfs::blocks(1024),
        &Plan::full(30),
    );
    written_by_one_read_by_the_other(
        &kernel(),
        &kernel_read_only(),
        &Mkfs::blocks(4096).usage("largefile"),
        &Plan::small(31),
    );
    let old = block_mapped();
    written_by_one_read_by_the_other(
        &kernel(),
        &kernel_read_only(),
        &old,
        &without_preallocation(32),
    );
    let tiny_inodes = Mkfs::blocks(1024).inode_size(128);
    written_by_one_read_by_the_other(
        &kernel(),
        &kernel_read_only(),
        &tiny_inodes,
        &Plan::small(33),
    );
    taking_turns(&[kernel()], 40, &Mkfs::blocks(1024));
}
