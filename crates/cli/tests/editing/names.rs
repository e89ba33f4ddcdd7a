//! `mkdir`, `rmdir`, `rm`, `mv` and `ln`.

use super::Pair;
use crate::common::daemon::{fails, json, ok};
use crate::files::{at, image};

const FILES: &str = "mkdir -p d/sub/deep e p q r; echo one > d/a; echo two > d/sub/b
    echo f > f; ln f hard; ln -s d link-d; ln -s f link-f; ln -s nowhere dangling
    echo p > p/s; echo q > q/s; echo old > old; touch -d @5 old; mkfifo pipe";

#[test]
fn directories_are_made_and_removed_as_by_coreutils() {
    let pair = Pair::new(FILES);
    pair.all(&[
        "mkdir @/n",
        "mkdir @/n",
        "mkdir -p @/n @/n/x/y",
        "mkdir -m 1777 @/t",
        "mkdir -m u=rwx,g=rx,o= @/u",
        "mkdir @/a1 @/nope/x @/a2",
        "mkdir -p @/f/x",
        "mkdir @/dangling",
        "rmdir @/a1",
        "rmdir @/d",
        "rmdir @/f @/a2",
        "rmdir --ignore-fail-on-non-empty @/d",
        "rmdir @/link-d",
        "rm @/d",
        "rm @/nope",
        "rm -f @/nope @/f/x",
        "rm @/link-f @/nope @/pipe",
        "rm -r @/link-d",
        "rm -rf @/d @/nope @/e",
        "rm @/hard",
    ]);
}

#[test]
fn every_directory_made_gets_the_owner_and_mode() {
    let image = image();
    let place = |path: &str| at(&image, path);
    ok(&[
        "mkdir",
        "-p",
        "-m",
        "750",
        "--owner",
        "7:8",
        &place("/a/b/c"),
    ]);
    for path in ["/a", "/a/b", "/a/b/c"] {
        let seen = ok(&["stat", "-c", "%a %u %g", &place(path)]);
        assert_eq!(seen, "750 7 8\n", "{path}");
    }
    // Directories that were there stay.
    ok(&[
        "mkdir",
        "-p",
        "-m",
        "700",
        "--owner",
        "1:1",
        &place("/a/b/d"),
    ]);
    assert_eq!(
        ok(&["stat", "-c", "%a %u", &place("/a/b"), &place("/a/b/d")]),
        "750 7\n700 1\n"
    );
    ok(&[
        "rmdir",
        "-p",
        "--ignore-fail-on-non-empty",
        &place("/a/b/c"),
    ]);
    ok(&["rmdir", "-p", &place("/a/b/d")]);
    fails(&["stat", &place("/a")], 3, &["/a"]);
    image.e2fsck_fn().unwrap();
}

#[test]
fn files_move_as_by_mv() {
    let pair = Pair::new(FILES);
    pair.all(&[
        "mv @/f @/g",
        "mv @/g @/d",
        "mv @/d/g @/d/a",
        "mv @/hard @/d/a",
        "mv @/d @/d/sub",
        "mv @/d @/d",
        "mv @/nope @/x",
        "mv @/old @/new/",
        "mv @/e @/made/",
        "mv -n @/old @/d/a",
        "mv -u @/old @/d/a",
        "mv -T @/made @/d",
        "mv -T @/d @/made",
        "mv @/made/sub/b @/link-d",
        "mv @/p/s @/q/s @/r",
        "mv -t @/r @/old @/nope @/pipe",
        "mv @/old @/pipe @/made/a",
        "mv @/r @/dangling",
        "mv @/link-f @/r",
        "mv @/r/link-f @/q",
        "mv @/q/link-f/ @/x",
        "mv @/made @/q",
        "mv @/r/s @/q/made",
        "mv @/q/made @/r/s",
    ]);
}

#[test]
fn names_of_one_file_and_other_volumes_are_told_apart() {
    let pair = Pair::new("echo x > a; ln a b; mkdir d");
    pair.all(&["mv @/a @/b", "mv @/b @/b"]);
    let other = image();
    let here = at(&pair.ours, "/b");
    fails(
        &["mv", &here, &at(&other, "/b")],
        1,
        &["not in the volume", "stetfs cp -a"],
    );
    fails(&["mv", "/etc/hostname", &here], 1, &["not in the volume"]);
    fails(&["mv", &here], 1, &["the target is missing"]);
    fails(
        &["ln", &at(&other, "/x"), &here],
        1,
        &["not in the volume of the link"],
    );
    fails(&["ln", "/etc/hostname", &here], 1, &["ln -s"]);
    let said = json(&["mv", &here, &at(&pair.ours, "/d")]);
    assert_eq!(said["moved"], 1);
}

#[test]
fn links_are_those_of_ln() {
    let pair = Pair::new(FILES);
    pair.all(&[
        "ln @/f @/h2",
        "ln @/f @/h2",
        "ln -f @/f @/h2",
        "ln -f @/f @/f",
        "ln -f @/old @/h2",
        "ln @/d @/hd",
        "ln -f @/d @/old",
        "ln @/link-f @/h3",
        "ln @/nope @/h4",
        "ln -s ../f @/d/s",
        "ln -s ../f @/d/s",
        "ln -sf other @/d/s",
        "ln -s text @/e",
        "ln -sfn new @/link-d",
        "ln -s a/b c/b2 @/e",
        "ln -s nowhere -t @/e",
        "ln -sT x @/e",
        "ln -sfT x @/e",
        "ln -t @/q @/f @/nope @/old",
        "ln -s x @/nope/y",
        "ln -s x @/new/",
        "ln -s p/s q/s @/r",
    ]);
    // A target in the same volume is a path in it.
    ok(&[
        "ln",
        "-s",
        &at(&pair.ours, "/d/a"),
        &at(&pair.ours, "/absolute"),
    ]);
    assert_eq!(ok(&["cat", &at(&pair.ours, "/absolute")]), "one\n");
}
