//! The round trip: one tree is copied in, out, from image to image and round, by `cp -a`, `tar` and
//! `rsync -aHAXS` on the kernel's ext4 and by `stetfs cp -a` and `stetfs tar` without a mount.
//! Everything must arrive.
//!
//! The usual tools run beside StetFS's commands to prove the comparison itself.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{IFlags, XattrFlags, ioctl_setflags, lsetxattr};

use super::{at, image, kernel, text};
use crate::common::daemon::{BINARY, ok};
use stetfs_testkit::workload::Plan;
use stetfs_testkit::{CaptureOptions, Image, Tree, cmd, tree};

/// `security.capability` of revision 2: `cap_net_raw=ep`, as ping has it.
pub(super) const NET_RAW: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Flags that chattr sets, with the same meaning on every volume. The section `Flags` of the tree
/// covers them.
const FLAGS: u32 = IFlags::IMMUTABLE.bits()
    | IFlags::APPEND.bits()
    | IFlags::NODUMP.bits()
    | IFlags::NOATIME.bits()
    | IFlags::SYNC.bits()
    | IFlags::DIRSYNC.bits()
    | IFlags::TOPDIR.bits();

/// The largest file that rsync copies, bytes.
const HUGE: u64 = 1 << 30;

fn set(path: &Path, name: impl AsRef<OsStr>, value: &[u8]) {
    lsetxattr(path, name.as_ref(), value, XattrFlags::empty()).unwrap();
}

/// The tree of `Plan::small`, plus files with attributes that archives and copies tend to lose.
fn source() -> Image {
    let image = image();
    let mounted = kernel(&image);
    Plan::small(66).populate(mounted.path()).unwrap();
    let dir = mounted.path().join("lost");
    fs::create_dir(&dir).unwrap();
    let file = |name: &[u8]| {
        let path = dir.join(OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        path
    };
    // Capabilities, of a user's file and of one with set-user-id.
    for (name, owner, mode) in [
        ("ping", 0, 0o755),
        ("his", 1000, 0o755),
        ("suid", 1000, 0o4755),
    ] {
        let path = file(name.as_bytes());
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set(&path, "security.capability", &NET_RAW);
        set(&path, "user.after", b"the capability");
    }
    // Values that are not text, and names that PAX headers must encode.
    let path = file(b"values");
    set(&path, "user.newline", b"a\nb\n");
    set(&path, "user.only-newline", b"\n");
    set(&path, "user.zeroes", b"\0\0\n\xff=");
    set(&path, "user.like-a-record", b"\n15 user.x=none\n");
    set(&path, "user.empty", b"");
    set(&path, "user.a=b%c", b"1");
    set(&path, "user.caf\u{e9}", b"2");
    set(&path, "trusted.newline", b"\n\n");
    set(&path, "security.selinux", b"system_u:object_r:bin_t:s0\0");
    let link = dir.join("link");
    symlink("no\nwhere", &link).unwrap();
    set(&link, "security.selinux", b"system_u:object_r:lib_t:s0\0");
    // Names.
    for name in [
        &b"\xff\xfe\n"[..],
        b"a\\b",
        b" ",
        b"-rf",
        b"caf\xc3\xa9",
        b"x:y",
    ] {
        file(name);
    }
    let long = [b'\xe9'; 255];
    file(&long);
    // Deep, with a file of two names at the end.
    let deep = dir.join("deep/".repeat(150));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    fs::hard_link(deep.join("file"), dir.join("also-deep")).unwrap();
    // Two names of a file that cannot get a third.
    let both = file(b"immutable");
    fs::hard_link(&both, dir.join("immutable too")).unwrap();
    let flags = IFlags::IMMUTABLE | IFlags::NODUMP | IFlags::from_bits_retain(0x8_0000);
    ioctl_setflags(fs::File::open(&both).unwrap(), flags).unwrap();
    // Holes at both ends.
    let holes = fs::File::create(dir.join("holes")).unwrap();
    for at in (1..60u64).map(|n| n << 20) {
        std::os::unix::fs::FileExt::write_all_at(&holes, b"data", at).unwrap();
    }
    holes.set_len(70 << 20).unwrap();
    drop(holes);
    // A root directory that differs from mke2fs's.
    fs::set_permissions(mounted.path(), fs::Permissions::from_mode(0o1711)).unwrap();
    chown(mounted.path(), Some(7), Some(8)).unwrap();
    set(mounted.path(), "user.root", b"\n");
    mounted.umount().unwrap();
    image
}

/// The attributes that a transport loses.
#[derive(Clone, Copy, Default)]
struct Lacks {
    sockets: bool,
    flags: bool,
    /// The positions of data and holes: zeroes become holes.
    holes: bool,
    /// Files beyond [`HUGE`] bytes: rsync reads all of their holes.
    huge: bool,
    /// Further names of a pipe: GNU tar packs a pipe once for each name.
    pipes: bool,
}

fn capture(root: &Path) -> Tree {
    let options = CaptureOptions {
        sparse: true,
        flags: true,
        ..CaptureOptions::default()
    };
    let mut tree = Tree::capture(root, &options).unwrap();
    for entry in tree.entries.values_mut() {
        entry.flags = entry.flags.map(|flags| flags & FLAGS);
    }
    tree
}

fn captured(image: &Image) -> Tree {
    image.e2fsck_fn().unwrap();
    let mounted = kernel(image);
    let tree = capture(mounted.path());
    mounted.umount().unwrap();
    tree
}

fn without(tree: &Tree, lacks: Lacks) -> Tree {
    let mut tree = tree.clone();
    if lacks.sockets {
        tree.entries.retain(|_, e| e.kind != tree::Kind::Socket);
    }
    if lacks.huge {
        tree.entries
            .retain(|_, e| e.size.is_none_or(|size| size <= HUGE));
    }
    for entry in tree.entries.values_mut() {
        if lacks.flags {
            entry.flags = None;
        }
        if lacks.holes {
            entry.data = None;
        }
        if lacks.pipes && entry.kind == tree::Kind::Fifo {
            (entry.nlink, entry.link_of) = (1, None);
        }
    }
    tree
}

/// Adds all differences between the tree and its copy, except those expected of the transport.
fn lost(how: &str, tree: &Tree, arrived: &Tree, lacks: Lacks, all: &mut Vec<String>) {
    let differences = tree::diff(&without(tree, lacks), &without(arrived, lacks));
    all.extend(differences.into_iter().map(|line| format!("{how}: {line}")));
}

/// Runs `from | to`.
fn pipe(from: &mut Command, to: &mut Command) {
    let mut source = from.stdout(Stdio::piped()).spawn().unwrap();
    let status = to.stdin(source.stdout.take().unwrap()).status().unwrap();
    to.stdin(Stdio::null());
    let written = source.wait().unwrap();
    assert!(status.success() && written.success(), "{from:?} | {to:?}");
}

fn stetfs(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args);
    command
}

/// GNU tar, keeping everything it can.
fn gnu_tar(dir: &Path, how: &[&str]) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "--acls", "--selinux", "--xattrs"]);
    tar.arg("--xattrs-include=*").args(how);
    tar.arg("-C").arg(dir);
    tar
}

/// GNU tar, packing everything but mke2fs's own files.
fn gnu_pack(dir: &Path, how: &[&str]) -> Command {
    let mut tar = gnu_tar(dir, how);
    tar.args(["-c", "--exclude=./lost+found", "."]);
    tar
}

fn gnu_unpack(dir: &Path) -> Command {
    gnu_tar(dir, &["-x", "-p"])
}

/// Fills a mounted image; returns the resulting tree.
fn into_mounted(fill: impl FnOnce(&Path)) -> Tree {
    let image = image();
    let mounted = kernel(&image);
    fill(mounted.path());
    mounted.umount().unwrap();
    captured(&image)
}

/// Fills an image that is not mounted.
fn into_image(fill: impl FnOnce(&str)) -> (Image, Tree) {
    let image = image();
    fill(&at(&image, "/"));
    let tree = captured(&image);
    (image, tree)
}

#[test]
fn a_tree_is_whole_by_every_way_in_out_across_and_round() {
    let source = source();
    let tree = captured(&source);
    assert!(tree.entries.len() > 800);
    let all = &mut Vec::new();
    let no_flags = Lacks {
        flags: true,
        ..Lacks::default()
    };
    let archived = Lacks {
        sockets: true,
        flags: true,
        ..Lacks::default()
    };
    let packed = Lacks {
        holes: true,
        pipes: true,
        ..archived
    };

    let mounted = kernel(&source);
    let from = mounted.path();
    let here = format!("{}/.", from.display());
    // Into the image, first: once read, preallocated space is data to the kernel.
    let (inside, arrived) = into_image(|to| drop(ok(&["cp", "-a", &here, to])));
    lost("in", &tree, &arrived, Lacks::default(), all);

    // The usual tools.
    let arrived = into_mounted(|to| {
        let mut cp = Command::new("cp");
        cmd::run(cp.args(["-a", "--sparse=auto", &here]).arg(to)).unwrap();
    });
    lost(
        "cp -a",
        &tree,
        &arrived,
        Lacks {
            holes: true,
            ..no_flags
        },
        all,
    );
    let arrived = into_mounted(|to| {
        let mut rsync = Command::new("rsync");
        rsync.args(["-aHAXS", "--numeric-ids", "--exclude=/lost+found"]);
        rsync.arg(format!("--max-size={HUGE}"));
        cmd::run(rsync.arg(format!("{}/", from.display())).arg(to)).unwrap();
    });
    lost(
        "rsync",
        &tree,
        &arrived,
        Lacks {
            holes: true,
            huge: true,
            ..no_flags
        },
        all,
    );
    let arrived = into_mounted(|to| {
        pipe(
            &mut gnu_pack(from, &["--format=posix", "--sparse"]),
            &mut gnu_unpack(to),
        );
    });
    lost("tar", &tree, &arrived, packed, all);

    for sparse in ["0.0", "0.1", "1.0"] {
        let version = format!("--sparse-version={sparse}");
        let (_, arrived) = into_image(|to| {
            let mut pack = gnu_pack(from, &["--format=posix", "--sparse", &version]);
            pipe(&mut pack, &mut stetfs(&["tar", "-x", to]));
        });
        lost(&format!("tar {sparse}"), &tree, &arrived, packed, all);
    }
    mounted.umount().unwrap();

    // From image to image.
    let (across, arrived) = into_image(|to| drop(ok(&["cp", "-a", &at(&inside, "/."), to])));
    lost("across", &tree, &arrived, Lacks::default(), all);
    let (_, arrived) = into_image(|to| {
        pipe(
            &mut stetfs(&["tar", "-c", &at(&source, "/")]),
            &mut stetfs(&["tar", "-x", to]),
        );
    });
    lost("stetfs tar both ways", &tree, &arrived, archived, all);

    // Out of the image.
    let arrived = into_mounted(|to| drop(ok(&["cp", "-a", &at(&across, "/."), text(to)])));
    lost("round", &tree, &arrived, Lacks::default(), all);
    let arrived = into_mounted(|to| {
        pipe(
            &mut stetfs(&["tar", "-c", &at(&source, "/")]),
            &mut gnu_unpack(to),
        );
    });
    lost("stetfs tar | tar", &tree, &arrived, archived, all);
    assert!(all.is_empty(), "{} losses\n{}", all.len(), all.join("\n"));
}
