//! Tests of the kernel's fast commits, replayed by StetFS: synced changes are there, also where the
//! kernel's replay and e2fsck's leave something out.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::common::{assert_no_differences, capture_image, kernel, kernel_read_only, stetfs};
use rustix::fs::{AtFlags, CWD, FallocateFlags};
use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, tree};

/// A volume with fast commits, used by the kernel: first `before`, synced as a whole, then `work`.
/// Returns its image at that moment, while the values that both returned are alive.
fn crashed<T, U>(
    mkfs: &Mkfs,
    before: impl FnOnce(&Path) -> T,
    work: impl FnOnce(&Path, &T) -> U,
) -> Image {
    let image = Image::make(64 << 20, &mkfs.clone().feature("fast_commit")).unwrap();
    let mounted = kernel().mount(image.path()).unwrap();
    let held = before(mounted.path());
    rustix::fs::syncfs(File::open(mounted.path()).unwrap()).unwrap();
    let also = work(mounted.path(), &held);
    let copy = image.copy().unwrap();
    drop((held, also));
    mounted.umount().unwrap();
    copy
}

fn synced(path: &Path, content: &[u8]) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
    file
}

/// The report of `stetfs recover --json`.
fn recover(image: &Image) -> Value {
    let said = Command::new(crate::BINARY)
        .args(["--json", "recover"])
        .arg(image.path())
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    said["recovery"].clone()
}

/// Recovers a copy, and passes it to `look` through the kernel, which has nothing left to replay.
fn after_recovery(image: &Image, look: impl FnOnce(&Path)) {
    let copy = image.copy().unwrap();
    let done = recover(&copy);
    assert!(done["fast_commits"].as_u64().unwrap() > 0, "{done}");
    copy.e2fsck_fn().unwrap();
    let mounted = kernel_read_only().mount(copy.path()).unwrap();
    look(mounted.path());
    mounted.umount().unwrap();
}

/// The case of the original issue: five files, each synced, are there, as after the kernel's own
/// replay; a mount does the same.
#[test]
fn synced_files_come_back() {
    for block in [1024, 4096] {
        let image = crashed(
            &Mkfs::blocks(block),
            |root| fs::write(root.join("before"), "before").unwrap(),
            |root, ()| {
                for i in 0..5u8 {
                    synced(&root.join(format!("file{i}")), &vec![i; 10_000]);
                }
            },
        );
        after_recovery(&image, |root| {
            for i in 0..5u8 {
                let content = fs::read(root.join(format!("file{i}"))).unwrap();
                assert!(content == vec![i; 10_000], "file{i}");
            }
        });
        let (ours, theirs) = (image.copy().unwrap(), image.copy().unwrap());
        recover(&ours);
        kernel().recover(theirs.path()).unwrap();
        let of = |image: &Image| capture_image(&kernel_read_only(), image.path());
        // The creation times of names are not logged.
        let mut differences = tree::diff(&of(&ours), &of(&theirs));
        differences.retain(|line| !line.starts_with("(root): "));
        assert_no_differences("recovered by the kernel", &differences);
        let mounted = stetfs().mount(image.path()).unwrap();
        assert_eq!(fs::read(mounted.path().join("file4")).unwrap(), [4; 10_000]);
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
        let again = recover(&image);
        assert_eq!(again["needed"], false, "{again}");
    }
}

/// Names that are created, removed, moved and replaced in one transaction (fast.F1, fast.F4).
#[test]
fn names_are_as_they_were() {
    let before = |root: &Path| {
        for name in ["gone", "moved", "replaced", "kept", "open"] {
            fs::write(root.join(name), name).unwrap();
        }
        fs::create_dir(root.join("empty")).unwrap();
    };
    let image = crashed(&Mkfs::blocks(4096), before, |root, ()| {
        let at = |name: &str| root.join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::create_dir(at("dir/sub")).unwrap();
        for i in 0..60 {
            fs::write(
                at(&format!("dir/sub/{i}-{}", "n".repeat(60))),
                [i as u8; 10],
            )
            .unwrap();
        }
        fs::remove_file(at("gone")).unwrap();
        fs::rename(at("moved"), at("dir/moved")).unwrap();
        fs::write(at("new"), "new").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        fs::hard_link(at("kept"), at("dir/other")).unwrap();
        fs::remove_dir(at("empty")).unwrap();
        fs::write(at("short-lived"), "x").unwrap();
        fs::hard_link(at("short-lived"), at("lives")).unwrap();
        fs::remove_file(at("short-lived")).unwrap();
        let open = File::open(at("open")).unwrap();
        fs::remove_file(at("open")).unwrap();
        synced(&at("last"), b"last");
        open
    });
    after_recovery(&image, |root| {
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        let mut names: Vec<_> = fs::read_dir(root)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        let expected = ["dir", "kept", "last", "lives", "lost+found", "replaced"];
        assert_eq!(names, expected);
        assert_eq!(fs::read_dir(root.join("dir/sub")).unwrap().count(), 60);
        assert_eq!(read("dir/moved"), "moved");
        assert_eq!(read("replaced"), "new");
        assert_eq!(read("dir/other"), "kept");
        assert_eq!(fs::metadata(root.join("kept")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(root.join("lives")).unwrap().nlink(), 1);
        assert_eq!(fs::metadata(root.join("dir")).unwrap().nlink(), 3);
    });
}

/// Files that were created without a name, which the kernel's own replay (Linux 6.18) leaves out
/// (fast.F3).
#[test]
fn files_that_began_without_a_name_are_there() {
    let tmpfile = |root: &Path| {
        let mut file = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .open(root)
            .unwrap();
        file.write_all(b"without a name").unwrap();
        file
    };
    let link = |root: &Path, file: &File, name: &str| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, path, CWD, root.join(name), AtFlags::SYMLINK_FOLLOW).unwrap();
        file.sync_all().unwrap();
    };
    let image = crashed(
        &Mkfs::blocks(4096),
        |root| (tmpfile(root), tmpfile(root)),
        |root, (older, _)| {
            link(root, older, "older");
            let newer = tmpfile(root);
            link(root, &newer, "newer");
            let nameless = tmpfile(root);
            nameless.sync_all().unwrap();
            (newer, nameless)
        },
    );
    after_recovery(&image, |root| {
        for name in ["older", "newer"] {
            assert_eq!(fs::read(root.join(name)).unwrap(), b"without a name");
        }
        assert_eq!(fs::read_dir(root).unwrap().count(), 3);
    });
}

/// Ranges: written, truncated, punched, preallocated, by extents and by block maps; attributes;
/// inline data. (fast.F2)
#[test]
fn blocks_and_attributes_are_as_they_were() {
    let kinds = [
        (Mkfs::blocks(4096), true),
        (
            Mkfs::blocks(1024).feature("^extents").feature("^64bit"),
            false,
        ),
        (Mkfs::blocks(4096).feature("inline_data"), true),
        (Mkfs::blocks(4096).feature("bigalloc"), true),
    ];
    for (mkfs, extents) in kinds {
        let fill = |root: &Path| {
            for name in ["cut", "punched", "grown", "mode"] {
                fs::write(root.join(name), [7; 100_000]).unwrap();
            }
            fs::write(root.join("small"), [1; 40]).unwrap();
        };
        let image = crashed(&mkfs, fill, |root, ()| {
            let open = |name: &str| {
                OpenOptions::new()
                    .write(true)
                    .open(root.join(name))
                    .unwrap()
            };
            let cut = open("cut");
            cut.set_len(12_345).unwrap();
            cut.sync_all().unwrap();
            let punched = open("punched");
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&punched, how, 20_000, 40_000).unwrap();
            punched.write_all_at(&[9; 5000], 30_000).unwrap();
            punched.sync_all().unwrap();
            let grown = open("grown");
            if extents {
                rustix::fs::fallocate(&grown, FallocateFlags::empty(), 100_000, 50_000).unwrap();
            }
            grown.write_all_at(&[8; 30_000], 400_000).unwrap();
            grown.sync_all().unwrap();
            let mode = open("mode");
            mode.set_permissions(fs::Permissions::from_mode(0o640))
                .unwrap();
            mode.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
            mode.sync_all().unwrap();
            let small = open("small");
            small.write_all_at(&[2; 20], 30).unwrap();
            small.sync_all().unwrap();
            let large = synced(&root.join("large"), &vec![3; 3 << 20]);
            large.write_all_at(&[4; 4096], 1 << 20).unwrap();
            large.sync_data().unwrap();
        });
        after_recovery(&image, |root| {
            let read = |name: &str| fs::read(root.join(name)).unwrap();
            assert!(read("cut") == [7; 12_345], "{mkfs:?}");
            let mut punched = vec![7; 100_000];
            punched[20_000..60_000].fill(0);
            punched[30_000..35_000].fill(9);
            assert!(read("punched") == punched, "{mkfs:?}");
            let mut grown = vec![0; 430_000];
            grown[..100_000].fill(7);
            grown[400_000..].fill(8);
            assert!(read("grown") == grown, "{mkfs:?}");
            let mode = fs::metadata(root.join("mode")).unwrap();
            assert_eq!((mode.mode() & 0o777, mode.mtime()), (0o640, 0), "{mkfs:?}");
            let mut small = vec![1; 50];
            small[30..].fill(2);
            assert!(read("small") == small, "{mkfs:?}");
            let mut large = vec![3; 3 << 20];
            large[1 << 20..(1 << 20) + 4096].fill(4);
            assert!(read("large") == large, "{mkfs:?}");
        });
    }
}
