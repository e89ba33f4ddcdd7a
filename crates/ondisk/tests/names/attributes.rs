//! Extended attributes and ACLs, compared with e2fsprogs and the kernel.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use stetfs_ondisk::ext4::acl::{Acl, AclEntry, Tag};
use stetfs_ondisk::ext4::dirent;
use stetfs_ondisk::ext4::xattr::{self, Attr, Attrs, BlockHeader, Value, index};

use crate::names::volume::Volume;
use crate::names::{each_flip_shows, image_of, kinds};

type Set = BTreeMap<Vec<u8>, Vec<u8>>;

fn set(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap_or_else(|e| {
        panic!(
            "{name} on {}: the tests need a TMPDIR with attributes and ACLs: {e}",
            path.display()
        )
    });
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 65536];
    match getxattr(path, name, &mut value) {
        Ok(len) => Some(value[..len].to_vec()),
        Err(Errno::NODATA) => None,
        Err(e) => panic!("{name} on {}: {e}", path.display()),
    }
}

/// The host's attributes of a file. (Security modules add `security.` ones of their own.)
fn host_attrs(path: &Path) -> Set {
    let mut list = vec![0; 65536];
    let len = rustix::fs::listxattr(path, &mut list).unwrap();
    list[..len]
        .split(|b| *b == 0)
        .filter(|n| !n.is_empty())
        .map(|n| {
            (
                n.to_vec(),
                get(path, std::str::from_utf8(n).unwrap()).unwrap(),
            )
        })
        .collect()
}

fn sample_acl() -> Acl {
    use Tag::*;
    let entries = [
        (UserObj, 7),
        (User(1000), 7),
        (User(70000), 4),
        (GroupObj, 5),
        (Group(50), 6),
        (Mask, 7),
        (Other, 4),
    ];
    Acl::new(
        entries
            .into_iter()
            .map(|(tag, perm)| AclEntry { tag, perm })
            .collect(),
    )
    .unwrap()
}

/// Files with attributes in the inode, in a block, and in both, and files with ACLs. Everything
/// fits a 1 KiB block.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, b"").unwrap();
        path
    };
    file("none");
    set(&file("one"), "user.mime_type", b"text/plain");
    set(&file("empty"), "user.nothing", b"");
    let large = file("large");
    set(&large, "user.small", b"v");
    set(&large, "user.large", &[b'L'; 500]);
    let many = file("many");
    for i in 0..12 {
        set(
            &many,
            &format!("user.attribute-{i}"),
            format!("value {}", "x".repeat(i)).as_bytes(),
        );
    }
    set(&many, "trusted.überall", "größe".as_bytes());
    set(&many, "user.\u{1F600}", b"smile");
    set(
        &file("acl"),
        "system.posix_acl_access",
        &sample_acl().to_xattr(),
    );
    let below = dir.path().join("dir");
    std::fs::create_dir(&below).unwrap();
    set(&below, "system.posix_acl_default", &sample_acl().to_xattr());
    set(&below, "user.of-a-directory", b"yes");
    dir
}

fn find(v: &Volume, name: &str) -> u32 {
    v.dir_blocks(2)
        .into_iter()
        .find_map(|nr| dirent::find(v.block(nr), &v.dir_layout(), name.as_bytes()).unwrap())
        .unwrap()
        .inode
}

/// The attributes of an inode as programs see them; the block's checksum is verified.
fn read(v: &Volume, ino: u32) -> Set {
    let inode = v.inode(ino);
    let mut all = Set::new();
    let mut add = |attrs: Attrs<'_>| {
        for a in attrs.iter() {
            let Value::Bytes(value) = a.value else {
                panic!("value in an inode")
            };
            let value = match a.index {
                index::POSIX_ACL_ACCESS | index::POSIX_ACL_DEFAULT => {
                    Acl::from_disk(value).unwrap().unwrap().to_xattr()
                }
                _ => value.to_vec(),
            };
            assert!(
                all.insert(xattr::full_name(a.index, a.name).unwrap(), value)
                    .is_none()
            );
        }
    };
    add(Attrs::in_inode(inode.xattr_area().unwrap_or_default()).unwrap());
    if inode.file_acl() != 0 {
        let block = v.block(inode.file_acl());
        if let Some(seed) = v.csum.metadata_seed() {
            xattr::verify_block_checksum(block, seed, inode.file_acl()).unwrap();
        }
        let attrs = Attrs::in_block(block).unwrap();
        add(attrs);
        // libext2fs stores h_hash 0; its entry hashes equal those of this crate, except for bytes
        // above 127.
        for (at, a) in entry_offsets(attrs).zip(attrs.iter()) {
            let stored = u32::from_le_bytes(block[at + 12..at + 16].try_into().unwrap());
            let Value::Bytes(value) = a.value else {
                panic!("value in an inode")
            };
            assert!(stored == xattr::entry_hash(a.name, value) || !a.name.is_ascii());
        }
    }
    all
}

/// Offsets of the entries of a block.
fn entry_offsets(attrs: Attrs<'_>) -> impl Iterator<Item = usize> {
    attrs.iter().scan(32, |at, a| {
        let this = *at;
        *at += (16 + a.name.len()).next_multiple_of(4);
        Some(this)
    })
}

#[test]
fn attributes_of_mke2fs_are_read() {
    let tree = tree();
    for (kind, mkfs) in kinds() {
        let image = image_of(tree.path(), kind, mkfs, false);
        let v = Volume::read(image.path());
        let (mut in_inode, mut in_block) = (0, 0);
        for entry in std::fs::read_dir(tree.path()).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let ino = find(&v, &name);
            assert_eq!(read(&v, ino), host_attrs(&entry.path()), "{kind}: {name}");
            let inode = v.inode(ino);
            let body = Attrs::in_inode(inode.xattr_area().unwrap_or_default()).unwrap();
            in_inode += usize::from(body.iter().next().is_some());
            in_block += usize::from(inode.file_acl() != 0);
            if let (true, Some(seed)) = (inode.file_acl() != 0, v.csum.metadata_seed()) {
                let block = v.block(inode.file_acl());
                let fails =
                    |b: &[u8]| xattr::verify_block_checksum(b, seed, inode.file_acl()).is_err();
                each_flip_shows(block, 0..block.len(), fails);
            }
        }
        assert_eq!(in_inode == 0, kind == "small inodes", "{kind}");
        assert!(in_block >= 2, "{kind}: {in_block} with a block");
    }
}

#[test]
fn e2fsprogs_reads_attributes_we_wrote() {
    let tree = tree();
    let acl = sample_acl().to_disk();
    let body = [
        Attr {
            index: index::USER,
            name: b"in-inode",
            value: Value::Bytes(b"inode value"),
        },
        Attr {
            index: index::USER,
            name: b"nothing",
            value: Value::Bytes(b""),
        },
    ];
    let long = [b'z'; 301];
    let block = [
        Attr {
            index: index::USER,
            name: b"zz",
            value: Value::Bytes(b"short name, late letter"),
        },
        Attr {
            index: index::USER,
            name: b"aaa",
            value: Value::Bytes(&long),
        },
        Attr {
            index: index::POSIX_ACL_ACCESS,
            name: b"",
            value: Value::Bytes(&acl),
        },
        Attr {
            index: index::TRUSTED,
            name: "höhe".as_bytes(),
            value: Value::Bytes(b"unsigned"),
        },
        Attr {
            index: index::USER,
            name: b"nought",
            value: Value::Bytes(b""),
        },
    ];
    for (kind, mkfs) in kinds() {
        let image = image_of(tree.path(), kind, mkfs, false);
        let mut v = Volume::read(image.path());
        let ino = find(&v, "large");
        let nr = v.inode(ino).file_acl();
        let has_body = v.inode(ino).xattr_area().is_some();
        if has_body {
            v.change_inode(ino, |i| {
                assert!(xattr::write_in_inode(i.xattr_area_mut().unwrap(), &body).unwrap())
            });
        }
        let seed = v.csum.metadata_seed();
        let target = v.block_mut(nr);
        assert!(xattr::write_block(target, &block, 1).unwrap());
        assert_ne!(BlockHeader::read(target).unwrap().hash, 0);
        if let Some(seed) = seed {
            xattr::update_block_checksum(target, seed, nr).unwrap();
        }
        v.write(image.path());
        image.e2fsck_fn().unwrap_or_else(|e| panic!("{kind}: {e}"));

        let body = if has_body { &body[..] } else { &[] };
        let mut expected = Set::new();
        for a in body.iter().chain(&block) {
            let Value::Bytes(value) = a.value else {
                unreachable!()
            };
            expected.insert(xattr::full_name(a.index, a.name).unwrap(), value.to_vec());
        }
        let listed = image.debugfs("ea_list large").unwrap();
        let lines = listed.lines().filter(|l| l.starts_with("  ")).count();
        assert_eq!(lines, expected.len(), "{kind}: {listed}");
        for (name, value) in &expected {
            let out = image.dir().join("value");
            // debugfs translates ACLs unless it is told not to.
            let name = std::str::from_utf8(name).unwrap();
            image
                .debugfs(&format!("ea_get -r -f {} large {name}", out.display()))
                .unwrap();
            assert_eq!(&std::fs::read(out).unwrap(), value, "{kind}: {name}");
        }
    }
}

#[test]
fn the_kernel_agrees_about_acls() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let mode = |p: &Path| std::fs::metadata(p).unwrap().mode() & 0o7777;
    let stored =
        |p: &Path| get(p, "system.posix_acl_access").map(|v| Acl::from_xattr(&v).unwrap().unwrap());

    let acl = sample_acl();
    set(&file, "system.posix_acl_access", &acl.to_xattr());
    assert_eq!(stored(&file).unwrap(), acl);
    assert_eq!(mode(&file), acl.mode_bits());
    for bits in [0o640, 0o707, 0o000, 0o777, 0o150] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(bits)).unwrap();
        let mut ours = acl.clone();
        ours.chmod(bits);
        assert_eq!(stored(&file).unwrap(), ours, "{bits:o}");
        assert_eq!(mode(&file), ours.mode_bits());
    }

    use Tag::*;
    let defaults: [&[(Tag, u8)]; 4] = [
        &[
            (UserObj, 7),
            (User(5), 6),
            (GroupObj, 5),
            (Mask, 5),
            (Other, 1),
        ],
        &[(UserObj, 6), (GroupObj, 4), (Other, 0)],
        &[(UserObj, 7), (GroupObj, 7), (Mask, 4), (Other, 7)],
        &[
            (UserObj, 7),
            (GroupObj, 0),
            (Group(9), 7),
            (Mask, 7),
            (Other, 0),
        ],
    ];
    for (i, entries) in defaults.into_iter().enumerate() {
        let default = Acl::new(
            entries
                .iter()
                .map(|&(tag, perm)| AclEntry { tag, perm })
                .collect(),
        )
        .unwrap();
        let parent = dir.path().join(format!("parent{i}"));
        std::fs::create_dir(&parent).unwrap();
        set(&parent, "system.posix_acl_default", &default.to_xattr());
        for bits in [0o666, 0o777, 0o600, 0o421, 0o000] {
            use rustix::fs::{CWD, Mode, OFlags, openat};
            let child = parent.join(format!("{bits:o}"));
            openat(
                CWD,
                &child,
                OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY,
                Mode::from_raw_mode(bits),
            )
            .unwrap();
            let (access, new) = default.inherit(bits);
            assert_eq!(stored(&child), access, "{entries:?} {bits:o}");
            assert_eq!(mode(&child), new, "{entries:?} {bits:o}");
        }
    }

    // Lists that the kernel refuses are refused here, too.
    let good = acl.to_xattr();
    for (at, byte) in [
        (0, 3),
        (4, 2),
        (4, 0x40),
        (6, 8),
        (12, 1),
        (44, 0x20),
        (52, 0x10),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        let kernel = setxattr(&file, "system.posix_acl_access", &bad, XattrFlags::empty());
        assert_eq!(
            kernel.is_err(),
            Acl::from_xattr(&bad).is_err(),
            "byte {at} = {byte}: {kernel:?}"
        );
        assert!(kernel.is_err());
    }
}
