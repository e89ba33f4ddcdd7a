//! Interoperation: directories made by other implementations, and directories of StetFS read by
//! them.

use std::collections::BTreeSet;
use std::process::Command;

use stetfs_ext4::{ROOT_INO, RenameFlags};
use stetfs_testkit::{Image, Scratch};

use crate::names::support::{Vol, kernel, small};

fn name(i: usize) -> String {
    format!("file-{i:05}-{}", "x".repeat(i % 40))
}

/// Adds, removes and renames files in a directory with `name(0..count)`; returns the resulting
/// names.
fn change(vol: &Vol, dir: &str, count: usize) -> BTreeSet<String> {
    let ino = vol.ino(dir);
    let mut names: BTreeSet<String> = (0..count).map(name).collect();
    let listed: BTreeSet<String> = vol
        .names(ino)
        .into_keys()
        .map(|n| String::from_utf8(n).unwrap())
        .collect();
    assert_eq!(listed, names);
    for i in 0..count {
        let old = name(i);
        assert!(vol.lookup(ino, old.as_bytes()).is_ok(), "{old}");
        match i % 3 {
            0 => {
                vol.unlink(ino, old.as_bytes()).unwrap();
                names.remove(&old);
            }
            1 => {
                let new = format!("renamed-{i}");
                vol.rename(
                    (ino, old.as_bytes()),
                    (ino, new.as_bytes()),
                    RenameFlags::default(),
                )
                .unwrap();
                names.remove(&old);
                names.insert(new);
            }
            _ => {
                let new = format!("added-{i}");
                vol.file(ino, new.as_bytes()).unwrap();
                names.insert(new);
            }
        }
    }
    names
}

fn kernel_list(image: &Image, dir: &str) -> BTreeSet<String> {
    let mount = kernel(image);
    let entries = std::fs::read_dir(mount.path().join(dir)).unwrap();
    let names = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    mount.umount().unwrap();
    names
}

fn debugfs_list(image: &Image, dir: &str) -> BTreeSet<String> {
    let out = image.debugfs(&format!("ls -p {dir}")).unwrap();
    // /inode/mode/uid/gid/name/size/
    let names = out.lines().filter_map(|l| l.split('/').nth(5));
    names
        .filter(|n| *n != "." && *n != ".." && !n.is_empty())
        .map(str::to_owned)
        .collect()
}

/// `mke2fs -d` makes directories of many blocks without an index.
#[test]
fn directories_of_mke2fs() {
    for features in ["dir_index", "^dir_index"] {
        let scratch = Scratch::new("names").unwrap();
        let source = scratch.path().join("source");
        std::fs::create_dir_all(source.join("dir")).unwrap();
        for i in 0..500 {
            std::fs::write(source.join("dir").join(name(i)), b"").unwrap();
        }
        let mut mkfs = small().feature(features);
        mkfs.args
            .extend(["-d".into(), source.to_str().unwrap().into()]);
        let vol = Vol::new(32, &mkfs);
        let names = change(&vol, "dir", 500);
        let listed = vol.list_by(vol.ino("dir"), 3);
        assert_eq!(listed.len(), names.len() + 2);
        let image = vol.close();
        assert_eq!(debugfs_list(&image, "dir"), names);
        assert_eq!(kernel_list(&image, "dir"), names);
    }
}

#[test]
fn directories_of_the_kernel_and_back() {
    let image = Image::make(32 << 20, &small()).unwrap();
    let mount = kernel(&image);
    std::fs::create_dir(mount.path().join("dir")).unwrap();
    for i in 0..3000 {
        std::fs::write(mount.path().join("dir").join(name(i)), b"").unwrap();
    }
    mount.umount().unwrap();
    let vol = Vol::on(image);
    let mut names = change(&vol, "dir", 3000);
    let image = vol.close();
    assert_eq!(debugfs_list(&image, "dir"), names);
    // The kernel continues in the index that StetFS changed.
    let mount = kernel(&image);
    for i in 0..1500 {
        let (old, new) = (format!("added-{}", 3 * i + 2), format!("kernel-{i}"));
        if names.remove(&old) {
            std::fs::remove_file(mount.path().join("dir").join(&old)).unwrap();
        }
        std::fs::write(mount.path().join("dir").join(&new), b"").unwrap();
        names.insert(new);
    }
    mount.umount().unwrap();
    image.e2fsck_fn().unwrap();
    let vol = Vol::on(image);
    let listed: BTreeSet<String> = vol
        .names(vol.ino("dir"))
        .into_keys()
        .map(|n| String::from_utf8(n).unwrap())
        .collect();
    assert_eq!(listed, names);
    vol.close();
}

/// `e2fsck -D` packs directories in its own way.
#[test]
fn directories_packed_by_e2fsck() {
    let vol = Vol::new(32, &small());
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    for i in 0..2000 {
        vol.file(dir, name(i).as_bytes()).unwrap();
    }
    for i in (0..2000).filter(|i| i % 5 != 0) {
        vol.unlink(dir, name(i).as_bytes()).unwrap();
    }
    for i in (0..2000).filter(|i| i % 5 != 0) {
        vol.file(dir, name(i).as_bytes()).unwrap();
    }
    let image = vol.close();
    let packed = Command::new("e2fsck")
        .args(["-fyD"])
        .arg(image.path())
        .output()
        .unwrap();
    assert!(packed.status.code().unwrap() <= 1, "{packed:?}");
    let vol = Vol::on(image);
    let names = change(&vol, "dir", 2000);
    let image = vol.close();
    assert_eq!(kernel_list(&image, "dir"), names);
}
