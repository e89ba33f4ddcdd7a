//! Tests of `stetfs ls`, `cat`, `mkdir`, `rm`, `cp` and `tar`, beside the kernel and GNU tar.
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::daemon::{BINARY, Daemon, fails, json, ok};
use stetfs_testkit::workload::{Plan, Section};
use stetfs_testkit::{CaptureOptions, Image, Mkfs, Mounted, Mounter, Scratch, Tree, cmd, tree};

pub(crate) fn image() -> Image {
    Image::make(256 << 20, &Mkfs::blocks(4096).journal_mib(8)).unwrap()
}

pub(crate) fn kernel(image: &Image) -> Mounted {
    Mounter::ext4("noatime").mount(image.path()).unwrap()
}

/// IMAGE:/PATH.
pub(crate) fn at(image: &Image, path: &str) -> String {
    format!("{}:{path}", image.path().display())
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn capture(root: &Path) -> Tree {
    let options = CaptureOptions {
        sparse: true,
        ..CaptureOptions::default()
    };
    Tree::capture(root, &options).unwrap()
}

fn captured(image: &Image) -> Tree {
    image.e2fsck_fn().unwrap();
    let mounted = kernel(image);
    let tree = capture(mounted.path());
    mounted.umount().unwrap();
    tree
}

#[track_caller]
fn same(a: &Tree, b: &Tree) {
    let differences = tree::diff(a, b);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// An image with a file of each kind.
fn everything(plan: &Plan) -> (Image, Tree) {
    let image = image();
    let mounted = kernel(&image);
    plan.populate(mounted.path()).unwrap();
    mounted.umount().unwrap();
    // Mounted anew: preallocated space in the kernel's cache counts as data.
    let tree = captured(&image);
    (image, tree)
}

#[test]
fn a_tree_that_is_copied_in_out_and_across_stays_the_same() {
    let (source, tree) = everything(&Plan::small(1));
    assert!(tree.entries.len() > 700);
    let (inside, across, outside) = (image(), image(), image());

    let mounted = kernel(&source);
    let all = format!("{}/.", mounted.path().display());
    ok(&["cp", "-a", &all, &at(&inside, "/")]);
    mounted.umount().unwrap();
    same(&tree, &captured(&inside));

    ok(&[
        "cp",
        "-a",
        "-o",
        "journal=ldj",
        &at(&inside, "/."),
        &at(&across, "/"),
    ]);
    same(&tree, &captured(&across));

    let mounted = kernel(&outside);
    let said = json(&["cp", "-aR", &at(&across, "/"), text(mounted.path())]);
    assert_eq!(
        said["entries"].as_u64().unwrap() as usize,
        tree.entries.len() + 1
    );
    same(&tree, &capture(mounted.path()));
    mounted.umount().unwrap();
}

/// `stetfs cp disk.img:/file /dev/null` does not replace /dev/null by a file.
#[test]
fn devices_pipes_and_named_links_are_not_replaced_by_files() {
    let image = image();
    let scratch = Scratch::new("cp").unwrap();
    let place = |name: &str| scratch.path().join(name);
    std::fs::write(place("plain"), "plain").unwrap();
    ok(&["cp", text(&place("plain")), &at(&image, "/plain")]);
    let mut mknod = Command::new("mknod");
    cmd::run(mknod.arg(place("null")).args(["c", "1", "3"])).unwrap();
    let mut mkfifo = Command::new("mkfifo");
    cmd::run(mkfifo.arg(place("pipe"))).unwrap();
    std::os::unix::fs::symlink("plain", place("link")).unwrap();
    std::fs::create_dir(place("dir")).unwrap();
    std::os::unix::fs::symlink("../plain", place("dir/plain")).unwrap();
    for (name, word) in [
        ("null", "device"),
        ("pipe", "pipe"),
        ("link", "symbolic link"),
        ("dir", "symbolic link"),
    ] {
        let to = place(name);
        let before = std::fs::symlink_metadata(&to).unwrap().file_type();
        fails(
            &["cp", &at(&image, "/plain"), text(&to)],
            1,
            &[word, "remove it first"],
        );
        assert_eq!(std::fs::symlink_metadata(&to).unwrap().file_type(), before);
    }
    // A tree is copied over its earlier copy.
    ok(&["cp", "-a", text(&place("link")), &at(&image, "/link")]);
    ok(&["cp", "-a", text(&place("link")), &at(&image, "/link")]);
    ok(&["cp", &at(&image, "/."), text(&place("dir"))]);
    assert_eq!(std::fs::read(place("dir/plain")).unwrap(), b"plain");
}

#[test]
fn who_reads_no_more_ends_no_command_with_a_panic() {
    let image = image();
    for args in [
        &["info"][..],
        &["--json", "info"],
        &["advise"],
        &["dump", "journal"],
    ] {
        let mut command = Command::new(BINARY);
        command.args(args).arg(image.path());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", cmd::said(&done));
        assert_eq!(done.stderr, b"", "{args:?}");
    }
    // Output that cannot be written is an error.
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut info = Command::new(BINARY);
    let done = info.arg("info").arg(image.path()).stdout(full).output();
    assert_eq!(done.unwrap().status.code(), Some(6));
}

/// Runs a pipe of two programs.
fn pipe(from: &mut Command, to: &mut Command) {
    let mut source = from.stdout(Stdio::piped()).spawn().unwrap();
    let status = to.stdin(source.stdout.take().unwrap()).status().unwrap();
    // Closed, lest the writer wait forever for a reader that did not read to the end.
    to.stdin(Stdio::null());
    let written = source.wait().unwrap();
    assert!(status.success() && written.success());
}

#[test]
fn archives_are_those_of_gnu_tar_both_ways() {
    // The whole tree is tested in copying/round.rs; the old formats are tested here.
    let plan = Plan::small(2)
        .without(Section::Acls)
        .without(Section::Flags)
        .without(Section::Xattrs);
    let (source, _) = everything(&plan);
    let mounted = kernel(&source);
    let name = "user.note";
    let flags = rustix::fs::XattrFlags::empty();
    for file in ["sizes", "special"] {
        rustix::fs::setxattr(mounted.path().join(file), name, b"a=b", flags).unwrap();
    }
    mounted.umount().unwrap();
    let mut tree = captured(&source);
    // No archive format packs sockets.
    tree.entries.retain(|_, e| e.kind != tree::Kind::Socket);
    let scratch = Scratch::new("tar").unwrap();
    let archive = scratch.path().join("archive");
    let (unpacked, again) = (image(), image());

    ok(&["tar", "-c", &at(&source, "/"), "-f", text(&archive)]);
    let mounted = kernel(&unpacked);
    let tar = [
        "--xattrs",
        "--xattrs-include=*",
        "--numeric-owner",
        "-x",
        "-p",
        "-C",
    ];
    let theirs = Command::new("tar")
        .args(tar)
        .arg(mounted.path())
        .arg("-f")
        .arg(&archive)
        .output()
        .unwrap();
    assert!(theirs.status.success(), "{}", cmd::said(&theirs));
    same(&tree, &capture(mounted.path()));

    let pack = |format: &str| {
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "--sparse", format, "-c", "-C"]);
        tar.arg(mounted.path()).arg(".");
        tar
    };
    pipe(
        &mut pack("--format=gnu"),
        Command::new(BINARY).args(["tar", "-x", &at(&again, "/")]),
    );
    mounted.umount().unwrap();
    let plain = |tree: &Tree| {
        let mut tree = tree.clone();
        for entry in tree.entries.values_mut() {
            // This format has neither attributes nor fractions of seconds, and GNU tar packs a pipe
            // once for each name.
            entry.xattrs.clear();
            entry.mtime = entry.mtime.map(|t| tree::Time(t.0, 0));
            if entry.kind == tree::Kind::Fifo {
                (entry.nlink, entry.link_of) = (1, None);
            }
            // Zeroes between data become holes.
            entry.data = None;
        }
        tree
    };
    same(&plain(&tree), &plain(&captured(&again)));

    // StetFS's own archive, with holes.
    let own = image();
    pipe(
        Command::new(BINARY).args(["tar", "-c", &at(&source, "/")]),
        Command::new(BINARY).args(["tar", "-x", &at(&own, "/")]),
    );
    same(&tree, &captured(&own));
}

#[test]
fn layers_hide_what_was_there_before_them() {
    let scratch = Scratch::new("layer").unwrap();
    let lower = scratch.path().join("lower");
    for dir in ["dir/sub", "opaque/old", "gone"] {
        fs::create_dir_all(lower.join(dir)).unwrap();
    }
    for file in [
        "dir/a",
        "dir/b",
        "dir/sub/c",
        "opaque/old/x",
        "opaque/y",
        "gone/z",
        "becomes-dir",
    ] {
        fs::write(lower.join(file), "lower").unwrap();
    }
    fs::create_dir(lower.join("becomes-file")).unwrap();
    fs::write(lower.join("becomes-file/x"), "lower").unwrap();
    let upper = scratch.path().join("upper");
    for dir in ["dir", "opaque/new", "becomes-dir"] {
        fs::create_dir_all(upper.join(dir)).unwrap();
    }
    for file in [
        "dir/.wh.a",
        "dir/.wh.sub",
        "opaque/new/n",
        "opaque/.wh..wh..opq",
        ".wh.gone",
        "becomes-file",
        "becomes-dir/x",
    ] {
        fs::write(upper.join(file), "upper").unwrap();
    }
    let image = image();
    ok(&["mkdir", &at(&image, "/root")]);
    for (layer, args) in [
        (&lower, &[][..]),
        (&upper, &["--whiteouts", "--owner", "7:8"][..]),
    ] {
        let root = at(&image, "/root");
        // The new files of a directory come before its whiteout.
        pipe(
            Command::new("tar")
                .arg("--sort=name")
                .arg("-c")
                .arg("-C")
                .arg(layer)
                .arg("."),
            Command::new(BINARY)
                .args(["tar", "-x"])
                .args(args)
                .arg(&root),
        );
    }
    image.e2fsck_fn().unwrap();
    let listed = json(&["ls", "-R", &at(&image, "/root")]);
    let files: Vec<&str> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        files,
        [
            "/root/becomes-dir",
            "/root/becomes-file",
            "/root/dir",
            "/root/opaque",
            "/root/becomes-dir/x",
            "/root/dir/b",
            "/root/opaque/new",
            "/root/opaque/new/n",
        ]
    );
    let owner = |path: &str| {
        let entry = listed["entries"]
            .as_array()
            .unwrap()
            .iter()
            .find(|e| e["path"] == path)
            .unwrap();
        (
            entry["uid"].as_u64().unwrap(),
            entry["gid"].as_u64().unwrap(),
        )
    };
    assert_eq!(owner("/root/opaque/new/n"), (7, 8));
    assert_eq!(owner("/root/dir/b"), (0, 0));
    let leads_out = scratch.path().join("out.tar");
    cmd::run(
        Command::new("tar")
            .args(["-P", "-c", "-C"])
            .arg(&upper)
            .arg("-f")
            .arg(&leads_out)
            .arg("../lower"),
    )
    .unwrap();
    fails(
        &["tar", "-x", &at(&image, "/root"), "-f", text(&leads_out)],
        1,
        &["leads out of it"],
    );
    let broken = scratch.path().join("broken");
    fs::write(&broken, [b'x'; 2048]).unwrap();
    fails(
        &["tar", "-x", &at(&image, "/root"), "-f", text(&broken)],
        1,
        &["cannot read the archive"],
    );
    image.e2fsck_fn().unwrap();
}

#[test]
fn files_are_listed_printed_made_and_removed() {
    let image = image();
    let place = |path: &str| at(&image, path);
    ok(&["mkdir", "-p", "--owner", "1000:100", &place("/a/b")]);
    fails(
        &["mkdir", &place("/a/b")],
        1,
        &["cannot make the directory /a/b", "File exists"],
    );
    fails(&["mkdir", &place("/no/b")], 3, &["/no/b", "No such file"]);
    assert_eq!(json(&["mkdir", &place("/c"), &place("/d")])["made"], 2);
    assert_eq!(
        json(&["rm", "-r", &place("/c"), &place("/d")])["removed"],
        2
    );
    let scratch = Scratch::new("files").unwrap();
    let file = scratch.path().join("name: x");
    fs::write(&file, "content\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).unwrap();
    symlink("b/link target", scratch.path().join("link")).unwrap();
    ok(&[
        "cp",
        "-r",
        text(&file),
        text(&scratch.path().join("link")),
        &place("/a"),
    ]);
    assert_eq!(
        ok(&["cat", &place("/a/name: x"), &place("/a/name: x")]),
        "content\ncontent\n"
    );
    assert_eq!(ok(&["ls", &place("/a")]), "b\nlink\nname: x\n");
    let long = ok(&["ls", "-l", &place("/a")]);
    let lines: Vec<&str> = long.lines().collect();
    assert!(
        lines[0].starts_with("drwxr-xr-x 2 1000 100 4096 20"),
        "{long}"
    );
    assert!(lines[1].starts_with("lrwxrwxrwx 1    0   0 "), "{long}");
    assert!(lines[1].ends_with(" link -> b/link target"), "{long}");
    assert!(
        lines[2].starts_with("-rwsr-x--- 1    0   0    8 "),
        "{long}"
    );
    let all = ok(&["ls", "-R", &place("/")]);
    assert!(all.starts_with("/:\na\nlost+found\n\n/a:\n"), "{all}");
    let entry = json(&["ls", &place("/a/link")]);
    assert_eq!(entry["entries"][0]["target"], "b/link target");
    assert_eq!(entry["entries"][0]["type"], "symlink");

    fails(
        &["rm", &place("/a")],
        1,
        &["cannot remove /a", "Is a directory"],
    );
    fails(&["rm", &place("/no")], 3, &["cannot remove /no"]);
    ok(&["rm", "-f", &place("/no")]);
    ok(&["rm", &place("/a/link")]);
    ok(&["rm", "-r", &place("/a")]);
    assert_eq!(ok(&["ls", &place("/")]), "lost+found\n");
    fails(&["cat", &place("/no")], 3, &["cannot open /no"]);
    fails(
        &["cat", "plain"],
        1,
        &["does not name a place in a volume", "IMAGE:/PATH"],
    );
    fails(&["ls", "/no/such/image:/"], 3, &["/no/such/image"]);
    image.e2fsck_fn().unwrap();
}

#[test]
fn copies_go_where_those_of_cp_go_and_replace_what_is_there() {
    let image = image();
    let place = |path: &str| at(&image, path);
    let scratch = Scratch::new("copies").unwrap();
    let dir = scratch.path().join("dir");
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(dir.join("file"), "one").unwrap();
    fs::hard_link(dir.join("file"), dir.join("sub/same")).unwrap();
    fs::write(scratch.path().join("a:b"), "colon").unwrap();
    let dir = text(&dir);

    ok(&["cp", dir, &place("/new")]);
    ok(&["cp", dir, &place("/new")]);
    fails(
        &["cp", dir, dir, &place("/none")],
        1,
        &["/none is no directory"],
    );
    fails(
        &["cp", dir, &place("/none/")],
        1,
        &["/none/ is no directory"],
    );
    fails(&["cp", dir, &place("/none/deep")], 3, &["/none: No such"]);
    fails(
        &["cp", dir, dir],
        1,
        &["neither a source nor the destination"],
    );
    fails(
        &["cp", text(&scratch.path().join("no")), &place("/")],
        3,
        &["no such file"],
    );
    ok(&["cp", &place("/new/file"), &place("/new/dir/file")]);
    fails(
        &["cp", &place("/new/file"), &place("/new/file")],
        1,
        &["are one file"],
    );
    fails(
        &["cp", &place("/new"), &place("/new/sub")],
        1,
        &["into itself"],
    );
    fails(
        &["cp", &place("/new/file"), &place("/new/sub/same/x")],
        1,
        &["/new/sub/same: Not a directory"],
    );
    ok(&["rm", "-r", &place("/new/sub/new")]);

    // The first of two names is replaced, the other stays.
    fs::write(scratch.path().join("other"), "two").unwrap();
    ok(&[
        "cp",
        text(&scratch.path().join("other")),
        &place("/new/file"),
    ]);
    let colon = Command::new(BINARY)
        .args(["cp", "--owner", "5:6", "./a:b", &place("/")])
        .current_dir(scratch.path())
        .status()
        .unwrap();
    assert!(colon.success());
    image.e2fsck_fn().unwrap();
    let mounted = kernel(&image);
    let read = |path: &str| fs::read_to_string(mounted.path().join(path)).unwrap();
    assert_eq!(
        (read("new/file"), read("new/sub/same")),
        ("two".into(), "one".into())
    );
    assert_eq!(
        (read("new/dir/sub/same"), read("a:b")),
        ("one".into(), "colon".into())
    );
    let links = mounted.path().join("new/dir/sub/same").metadata().unwrap();
    assert_eq!(links.nlink(), 1, "its other name was replaced");
    assert_eq!((links.uid(), links.gid()), (0, 0));
    let owned = mounted.path().join("a:b").metadata().unwrap();
    assert_eq!((owned.uid(), owned.gid()), (5, 6));
    mounted.umount().unwrap();
}

#[test]
fn a_volume_in_use_is_refused_and_one_that_crashed_is_recovered_first() {
    let d = Daemon::new("journal=data");
    fs::write(d.file("synced"), "kept").unwrap();
    fs::File::open(d.file("synced"))
        .unwrap()
        .sync_all()
        .unwrap();
    let place = format!("{}:/", d.image());
    let holder = format!("process {}", d.pid());
    for args in [
        &["ls", &place][..],
        &["mkdir", &place],
        &["cp", "Cargo.toml", &place],
    ] {
        fails(args, 4, &["in use", &holder]);
    }
    d.crash();
    assert!(ok(&["ls", &place]).contains("synced\n"));
    assert_eq!(ok(&["cat", &format!("{place}synced")]), "kept");
    d.image.e2fsck_fn().unwrap();
    fails(
        &["cp", "-o", "journal=orderd", "Cargo.toml", &place],
        1,
        &["ordered"],
    );
    fails(&["cp", "-o", "ro", "Cargo.toml", &place], 1, &["Read-only"]);
    d.image.e2fsck_fn().unwrap();
}
