//! Tests of errors of single files: they are reported, everything else is done, and the command
//! fails.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{XattrFlags, setxattr};

use super::{at, image, kernel, text};
use crate::common::daemon::{answer, ok, stetfs};
use stetfs_testkit::{Image, Mkfs, Scratch, cmd};

/// An image with unreadable files among readable ones: `bad` has a damaged inode, `torn` a damaged
/// map, and `locked` is encrypted without a key.
fn troubled() -> Image {
    let image = Image::make(64 << 20, &Mkfs::blocks(4096).feature("encrypt")).unwrap();
    let mounted = kernel(&image);
    let tree = mounted.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for dir in ["a", "locked", "z"] {
        fs::create_dir(tree.join(dir)).unwrap();
        fs::write(tree.join(dir).join("file"), dir).unwrap();
    }
    for name in ["bad", "good", "torn", "zzz"] {
        fs::write(tree.join(name), name).unwrap();
    }
    mounted.umount().unwrap();
    let said = image.debugfs("imap /tree/bad").unwrap();
    // "Inode 18 is part of block group 0\n\tlocated at block 70, offset 0x0100"
    let at = said.split("located at block ").nth(1).unwrap();
    let (block, offset) = at.split_once(", offset 0x").unwrap();
    let offset = u64::from_str_radix(offset.trim(), 16).unwrap();
    let place = block.parse::<u64>().unwrap() * 4096 + offset;
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    file.write_all_at(&[0x55; 100], place + 4).unwrap();
    image
        .debugfs_write("sif /tree/torn block[0] 0x12345678")
        .unwrap();
    let flags = "sif /tree/locked flags 0x80800";
    image.debugfs_write(flags).unwrap();
    image
}

/// Checks that a command failed because of damage, and reported each file.
#[track_caller]
fn told(done: &Output) {
    let said = cmd::said(done);
    assert_eq!(done.status.code(), Some(5), "{said}");
    for name in ["/tree/bad", "/tree/torn", "/tree/locked"] {
        assert!(said.contains(name), "{name} is not in:\n{said}");
    }
    assert!(said.contains("3 errors, reported above"), "{said}");
}

const WHOLE: [&str; 4] = ["a/file", "good", "z/file", "zzz"];

#[track_caller]
fn whole(dir: &Path) {
    for name in WHOLE {
        let expected = name.split('/').next().unwrap();
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), expected);
    }
    assert!(!dir.join("bad").exists() && !dir.join("locked/file").exists());
}

#[test]
fn one_damaged_file_ends_no_copy_archive_or_listing() {
    let from = troubled();
    let scratch = Scratch::new("troubles").unwrap();
    let tree = at(&from, "/tree");
    for how in ["-r", "-a"] {
        let out = scratch.path().join(how);
        told(&stetfs(&["cp", how, &tree, text(&out)]));
        whole(&out);
    }
    let to = image();
    told(&stetfs(&["cp", "-a", &tree, &at(&to, "/copy")]));
    to.e2fsck_fn().unwrap();
    let mounted = kernel(&to);
    whole(&mounted.path().join("copy"));
    mounted.umount().unwrap();

    let archive = scratch.path().join("archive.tar");
    told(&stetfs(&["tar", "-c", "-f", text(&archive), &tree]));
    let unpacked = scratch.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    cmd::run(tar.arg("-xf").arg(&archive).arg("-C").arg(&unpacked)).unwrap();
    whole(&unpacked);

    // A listing needs no content.
    let listed = stetfs(&["ls", "-R", &tree]);
    let said = cmd::said(&listed);
    assert_eq!(listed.status.code(), Some(5), "{said}");
    assert!(said.contains("2 errors, reported above"), "{said}");
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in ["good\n", "torn\n", "zzz\n", "/z:\nfile\n"] {
        assert!(names.contains(name), "{name} is not in:\n{names}");
    }
    let (code, said) = answer(&["ls", "-R", &tree]);
    assert_eq!(
        (code, said["errors"]["count"].as_u64()),
        (5, Some(2)),
        "{said}"
    );
    let out = scratch.path().join("json");
    let (code, said) = answer(&["cp", "-a", &tree, text(&out)]);
    assert_eq!(
        (code, said["errors"]["count"].as_u64()),
        (5, Some(3)),
        "{said}"
    );
    // A missing source is skipped, too.
    let (code, said) = answer(&[
        "cp",
        &at(&from, "/no"),
        &at(&from, "/tree/good"),
        text(&out),
    ]);
    assert_eq!(
        (code, said["errors"]["count"].as_u64()),
        (3, Some(1)),
        "{said}"
    );
    let first = &said["errors"]["first"][0];
    assert!(first["message"].as_str().unwrap().contains("/no"), "{said}");
    assert_eq!(first["code"].as_u64(), Some(3));
    assert_eq!(fs::read(out.join("good")).unwrap(), b"good");
}

/// Attributes that do not fit into a volume are reported and skipped.
#[test]
fn attributes_that_are_too_large_are_told_and_passed() {
    let large = Image::make(64 << 20, &Mkfs::blocks(4096).feature("ea_inode")).unwrap();
    let mounted = kernel(&large);
    let tree = mounted.path().join("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    let value = vec![b'v'; 40_000];
    for name in ["dir", "file", "zzz"] {
        if name != "dir" {
            fs::write(tree.join(name), name).unwrap();
        }
        for (name_of, value) in [
            ("user.a", &b"small"[..]),
            ("user.large", &value),
            ("user.z", b"z"),
        ] {
            setxattr(tree.join(name), name_of, value, XattrFlags::empty()).unwrap();
        }
    }
    mounted.umount().unwrap();
    let scratch = Scratch::new("large").unwrap();
    let archive = scratch.path().join("archive.tar");
    ok(&["tar", "-c", "-f", text(&archive), &at(&large, "/tree")]);
    let to = image();
    let across = stetfs(&["cp", "-a", &at(&large, "/tree"), &at(&to, "/across")]);
    let unpacked = stetfs(&["tar", "-x", "-f", text(&archive), &at(&to, "/unpacked")]);
    let mounted = kernel(&large);
    let inside = stetfs(&[
        "cp",
        "-a",
        text(&mounted.path().join("tree")),
        &at(&to, "/in"),
    ]);
    mounted.umount().unwrap();
    let mounted = kernel(&to);
    let onto = mounted.path().join("out");
    let out = stetfs(&["cp", "-a", &at(&large, "/tree"), text(&onto)]);
    for done in [&across, &unpacked, &inside, &out] {
        let said = cmd::said(done);
        assert_eq!(done.status.code(), Some(6), "{said}");
        assert_eq!(said.matches("user.large").count(), 3, "{said}");
        assert!(said.contains("3 errors, reported above"), "{said}");
    }
    for dir in ["across", "unpacked", "in", "out"] {
        for name in ["dir", "file", "zzz"] {
            let path = mounted.path().join(dir).join(name);
            let mut names = [0; 256];
            let n = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
            assert_eq!(&names[..n], b"user.a\0user.z\0", "{path:?}");
        }
    }
    mounted.umount().unwrap();
    to.e2fsck_fn().unwrap();
    assert_eq!(ok(&["cat", &at(&to, "/across/zzz")]), "zzz");
}
