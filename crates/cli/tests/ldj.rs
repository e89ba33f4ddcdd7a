//! Tests of other programs on volumes with a StetFS log: they refuse a dirty volume, and a clean
//! one is plain ext4.
use std::fs;
use std::path::Path;

use crate::common::daemon::{Daemon, answer, fails, json, ok};
use crate::common::{capture, kernel};
use stetfs_testkit::image::e2fsck;
use stetfs_testkit::{Image, Tree};

/// A volume with partly synced changes, whose server was killed.
fn killed(options: &str) -> Daemon {
    let d = Daemon::new(options);
    fs::create_dir(d.file("dir")).unwrap();
    for i in 0..40u8 {
        let path = d.file(&format!("dir/file-{i}"));
        fs::write(&path, vec![i; 30_000]).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
    }
    d.crash();
    d
}

fn holds_what_was_synced(root: &Path) {
    for i in 0..40u8 {
        let data = fs::read(root.join(format!("dir/file-{i}"))).unwrap();
        assert_eq!(data, vec![i; 30_000]);
    }
}

fn kernel_tree(image: &Image) -> Tree {
    let mounted = kernel().mount(image.path()).unwrap();
    let tree = capture(mounted.path());
    mounted.umount().unwrap();
    tree
}

#[test]
fn other_programs_refuse_a_dirty_volume_and_take_a_clean_one() {
    for options in ["journal=ldj", "journal=ldj,compress=zstd,chunk=64K"] {
        let d = killed(options);
        let before = fs::read(d.image.path()).unwrap();

        let said = format!("{:#}", kernel().mount(d.image.path()).unwrap_err());
        println!("the kernel: {said}");
        let said = format!(
            "{:#}",
            e2fsck(d.image.path(), &["-fn"], 0).expect_err("e2fsck takes it")
        );
        println!("e2fsck -fn: {said}");
        assert!(said.contains("unknown incompatible feature"), "{said}");
        e2fsck(d.image.path(), &["-fy"], 1).expect_err("e2fsck takes it");
        assert!(
            fs::read(d.image.path()).unwrap() == before,
            "a program that refused it changed it"
        );
        // In preen mode e2fsck notes in the superblock that it should be run by hand, and does
        // nothing else.
        let preened = d.image.copy().unwrap();
        e2fsck(preened.path(), &["-p"], 1).expect_err("e2fsck takes it");
        ok(&["recover", preened.path().to_str().unwrap()]);
        let mounted = kernel().mount(preened.path()).unwrap();
        holds_what_was_synced(mounted.path());
        mounted.umount().unwrap();

        let info = json(&["info", d.image()]);
        assert_eq!(info["state"], "needs recovery");
        assert_eq!(info["journal"]["format"], "stetfs");
        let dump = ok(&["dump", "journal", d.image()]);
        assert!(dump.contains("lane 0"), "{dump}");

        ok(&["recover", d.image()]);
        assert_eq!(json(&["info", d.image()])["journal"]["format"], "jbd2");
        d.image.e2fsck_fn().unwrap();
        let mounted = kernel().mount(d.image.path()).unwrap();
        holds_what_was_synced(mounted.path());
        mounted.umount().unwrap();
        d.image.e2fsck_fn().unwrap();
    }
}

/// Flips a bit in the last frame but one.
fn rot_in_the_log(image: &Image) {
    let mut bytes = fs::read(image.path()).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut frames: Vec<(u64, usize)> = (0..bytes.len())
        .step_by(1024)
        .filter(|at| bytes[*at..].starts_with(b"stetfrm1"))
        .map(|at| (number(at + 32), at))
        .collect();
    frames.sort_unstable();
    let (_, at) = frames[frames.len() - 2];
    bytes[at + 40] ^= 1;
    fs::write(image.path(), bytes).unwrap();
}

#[test]
fn a_damaged_log_is_told_and_salvaged() {
    for options in ["journal=ldj", "journal=ijournal,records=1"] {
        let d = killed(options);
        rot_in_the_log(&d.image);
        let before = fs::read(d.image.path()).unwrap();
        fails(&["recover", d.image()], 5, &["stetfs recover --salvage"]);
        assert!(
            fs::read(d.image.path()).unwrap() == before,
            "{options}: it is changed"
        );
        let found = json(&["info", d.image()]);
        assert!(found["recovery"]["problem"].is_string(), "{found}");

        let (code, done) = answer(&["recover", "--salvage", d.image()]);
        assert_eq!(code, 8, "{done}");
        let damage = done["recovery"]["damage"].as_array().unwrap();
        assert!(!damage.is_empty(), "{done}");
        let info = json(&["info", d.image()]);
        assert_eq!(info["state"], "has errors");
        assert_eq!(info["journal"]["format"], "jbd2");
        e2fsck(d.image.path(), &["-fy"], 1).unwrap();
        // The changes before the damage are there.
        let mounted = kernel().mount(d.image.path()).unwrap();
        let first = fs::read(mounted.path().join("dir/file-0")).unwrap();
        assert_eq!(first, vec![0; 30_000]);
        mounted.umount().unwrap();
    }
}

#[test]
fn an_unmounted_volume_is_plain_ext4() {
    let d = Daemon::new("journal=ldj");
    fs::create_dir(d.file("dir")).unwrap();
    for i in 0..300u32 {
        fs::write(d.file(&format!("dir/{i}")), i.to_string().repeat(2000)).unwrap();
    }
    let seen = capture(&d.dir);
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
    let info = json(&["info", d.image()]);
    assert_eq!(info["journal"]["format"], "jbd2");
    assert_eq!(info["journal"]["empty"], true);
    crate::common::assert_same("the kernel's view", &seen, &kernel_tree(&d.image));
    // And back again, over the remains of the kernel's journal.
    d.mount("journal=ldj");
    fs::write(d.file("again"), "x").unwrap();
    d.crash();
    d.mount("journal=ordered");
    assert_eq!(fs::read_dir(d.file("dir")).unwrap().count(), 300);
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let d = Daemon::new("journal=ldj,compress=none");
    ok(&["umount", d.dir()]);
    fails(
        &[
            "mount",
            "-o",
            "journal=ldj,compress=best",
            d.image(),
            d.dir(),
        ],
        1,
        &["compress", "lz4"],
    );
    fails(
        &[
            "mount",
            "-o",
            "journal=ordered,codec=jbd2,compress=lz4",
            d.image(),
            d.dir(),
        ],
        1,
        &["compress needs codec=frames, not codec=jbd2"],
    );
    // Ordered data, and a compressed log.
    d.mount("journal=ordered,compress=lz4");
    std::fs::write(d.file("f"), [7; 50_000]).unwrap();
    std::fs::File::open(d.file("f"))
        .unwrap()
        .sync_all()
        .unwrap();
    assert_eq!(
        json(&["stat", d.dir()])["journal"]["preset"],
        "ordered,compress=lz4"
    );
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}
