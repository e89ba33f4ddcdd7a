//! `cp`: what it replaces, which links it follows, and where it copies to.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::Pair;
use crate::common::daemon::{fails, ok, stetfs};
use crate::files::{at, image, kernel, text};
use stetfs_testkit::{CaptureOptions, Scratch, Tree, cmd, tree};

/// A tree of the host with links of all sorts.
fn host(scratch: &Scratch) -> String {
    let script = "umask 022; mkdir -p t/sub u; echo new > new; echo a > t/a; echo b > t/sub/b
        chmod 755 t/a; ln -s a t/link; ln -s sub t/dir-link; ln -s t named; ln -s new named-file
        echo n > u/a; setfattr -n user.s -v s t/a; chown 11:12 t/a; touch -d @7 u/a";
    let mut shell = Command::new("bash");
    cmd::run(shell.args(["-euc", script]).current_dir(scratch.path())).unwrap();
    text(scratch.path()).to_owned()
}

const FILES: &str = "mkdir -p etc dir/t old; echo root:x > etc/shadow; chown 0:42 etc/shadow
    chmod 640 etc/shadow; echo s > su; chown 5:6 su; chmod 6755 su; echo acl > acl
    setfacl -m u:7:rw acl; setfattr -n user.keep -v k acl; chattr +d acl; ln -s acl link
    echo 0 > old/a; touch -d @100 old/a; setcap cap_net_raw+ep su";

#[test]
fn a_replaced_file_keeps_owner_mode_and_attributes() {
    let scratch = Scratch::new("kept").unwrap();
    let s = host(&scratch);
    let pair = Pair::new(FILES);
    pair.all(&[
        &format!("cp {s}/new @/etc/shadow"),
        &format!("cp {s}/new @/acl"),
        &format!("cp {s}/t/a @/su"),
        &format!("cp -r {s}/u/. @/old"),
        "cp @/acl @/etc/shadow",
    ]);
    let shadow = at(&pair.ours, "/etc/shadow");
    assert_eq!(ok(&["stat", "-c", "%a %u %g", &shadow]), "640 0 42\n");
    assert_eq!(ok(&["cat", &shadow]), "new\n");
    // An owner that is asked for is given, and -a brings everything of the source.
    ok(&["cp", "--owner", "3:4", &format!("{s}/new"), &shadow]);
    assert_eq!(ok(&["stat", "-c", "%a %u %g", &shadow]), "640 3 4\n");
    ok(&["cp", "-a", &format!("{s}/t/a"), &at(&pair.ours, "/acl")]);
    assert_eq!(
        ok(&["stat", "-c", "%a %u %g", &at(&pair.ours, "/acl")]),
        "755 11 12\n"
    );
    let names = ok(&["getfattr", "-m", "-", &at(&pair.ours, "/acl")]);
    assert_eq!(names, "# file: /acl\nuser.s\n\n");
}

#[test]
fn existing_files_stay_where_it_is_asked_for() {
    let scratch = Scratch::new("stay").unwrap();
    let s = host(&scratch);
    let pair = Pair::new(FILES);
    pair.all(&[
        &format!("cp -n {s}/new @/su"),
        &format!("cp -n {s}/new @/made"),
        &format!("cp -rn {s}/t @/dir"),
        &format!("cp -u {s}/u/a @/old/a"),
        &format!("cp -u {s}/new @/old/a"),
        &format!("cp -ru {s}/u/. @/old"),
    ]);
}

#[test]
fn links_are_followed_as_by_cp() {
    let scratch = Scratch::new("follow").unwrap();
    let s = host(&scratch);
    let pair = Pair::new("mkdir a b c d e f g h");
    pair.all(&[
        &format!("cp -rL {s}/t {s}/named @/a"),
        &format!("cp -rP {s}/t {s}/named @/b"),
        &format!("cp -rH {s}/named {s}/named-file @/c"),
        &format!("cp -r {s}/named {s}/named-file @/d"),
        &format!("cp -P {s}/named-file @/e"),
        &format!("cp -L {s}/named-file @/f"),
        &format!("cp -rPL {s}/named @/g"),
        &format!("cp -rLP {s}/named @/h"),
    ]);
    // Out of a volume, and with the attributes of the targets.
    let copied = |program: &str, source: &str, to: &str| {
        let mut command = Command::new(program);
        command.args(["-aL", source, to]);
        let to = Path::new(to);
        cmd::run(&mut command).unwrap();
        Tree::capture(to, &CaptureOptions::default()).unwrap()
    };
    let ours = scratch.path().join("ours");
    ok(&["cp", "-aL", &at(&pair.ours, "/b"), text(&ours)]);
    let mounted = kernel(&pair.ours);
    let theirs = copied(
        "cp",
        text(&mounted.path().join("b")),
        text(&scratch.path().join("theirs")),
    );
    mounted.umount().unwrap();
    let ours = Tree::capture(&ours, &CaptureOptions::default()).unwrap();
    let differences = tree::diff(&theirs, &ours);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Links in a circle end a copy of theirs and of ours with an error, after all else is copied.
#[test]
fn circles_of_links_end() {
    let scratch = Scratch::new("circle").unwrap();
    let script = "mkdir -p t/a t/b; ln -s .. t/a/up; ln -s ../b t/a/b; ln -s ../a t/b/a
        ln -s nowhere t/dangling; echo x > t/z";
    let mut shell = Command::new("bash");
    cmd::run(shell.args(["-euc", script]).current_dir(scratch.path())).unwrap();
    let image = image();
    let out = stetfs(&[
        "cp",
        "-L",
        text(&scratch.path().join("t")),
        &at(&image, "/t"),
    ]);
    let said = cmd::said(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("leads back to a directory above it"),
        "{said}"
    );
    assert!(said.contains("dangling"), "{said}");
    assert_eq!(ok(&["cat", &at(&image, "/t/z")]), "x\n");
    let out = stetfs(&[
        "cp",
        "-L",
        &at(&image, "/t"),
        text(&scratch.path().join("back")),
    ]);
    assert!(out.status.success(), "{}", cmd::said(&out));
    // The same circles inside a volume.
    ok(&[
        "cp",
        "-r",
        text(&scratch.path().join("t")),
        &at(&image, "/links"),
    ]);
    let out = stetfs(&["cp", "-L", &at(&image, "/links"), &at(&image, "/copied")]);
    assert_eq!(out.status.code(), Some(1), "{}", cmd::said(&out));
    assert_eq!(ok(&["cat", &at(&image, "/copied/z")]), "x\n");
    image.e2fsck_fn().unwrap();
}

#[test]
fn the_target_is_a_directory_or_a_name_as_it_is_said() {
    let scratch = Scratch::new("target").unwrap();
    let s = host(&scratch);
    let pair = Pair::new(FILES);
    pair.all(&[
        &format!("cp -t @/dir {s}/new {s}/u/a"),
        &format!("cp -t @/su {s}/new"),
        &format!("cp -rT {s}/t @/dir"),
        &format!("cp -rT {s}/t @/made"),
        &format!("cp -T {s}/new @/dir"),
        &format!("cp -T {s}/new @/file"),
        &format!("cp -rT {s}/u @/"),
        &format!("cp {s}/new {s}/nope {s}/u/a @/etc"),
    ]);
    fails(&["cp", &format!("{s}/new")], 1, &["the target is missing"]);
}

#[test]
fn standard_input_is_a_source() {
    let pair = Pair::new(FILES);
    pair.two(
        "echo new > @/etc/shadow",
        "echo new | stetfs cp - @/etc/shadow",
    );
    pair.compare("an existing file");
    pair.two("echo new > @/made", "echo new | stetfs cp - @/made");
    pair.compare("a new file");
    pair.two(
        "head -c 3000000 /dev/zero > @/big",
        "head -c 3000000 /dev/zero | stetfs cp - @/big",
    );
    let size = ok(&["stat", "-c", "%s", &at(&pair.ours, "/big")]);
    assert_eq!(size, "3000000\n");
    let image = at(&pair.ours, "/dir");
    fails(&["cp", "-", &image], 1, &["standard input", "name"]);
    fs::metadata(pair.ours.path()).unwrap();
}
