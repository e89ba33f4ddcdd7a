//! Tests of copies onto existing files, and onto files that the same command copied.

use std::fs;
use std::os::unix::fs::symlink;

use super::deep::chain;
use super::{at, image, kernel, text};
use crate::common::daemon::{fails, ok};
use stetfs_testkit::{Image, Scratch};

/// `/a/x` is a link, `/b/x` a file, `/c/x` a directory with a file.
fn image_of_two(link: &str) -> Image {
    let image = image();
    let mounted = kernel(&image);
    let place = |name: &str| mounted.path().join(name);
    for dir in ["a", "b", "c/x"] {
        fs::create_dir_all(place(dir)).unwrap();
    }
    symlink(link, place("a/x")).unwrap();
    fs::write(place("b/x"), "b").unwrap();
    fs::write(place("c/x/file"), "c").unwrap();
    mounted.umount().unwrap();
    image
}

#[test]
fn two_sources_of_one_name_do_not_meet() {
    let scratch = Scratch::new("twice").unwrap();
    let outside = scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let image = image_of_two(text(&outside));
    for (n, second) in ["/b/x", "/c/x"].into_iter().enumerate() {
        let target = scratch.path().join(format!("target{n}"));
        fs::create_dir(&target).unwrap();
        let sources = [at(&image, "/a/x"), at(&image, second)];
        let args = ["cp", "-r", &sources[0], &sources[1], text(&target)];
        let word = ["was copied just now", "is no directory"][n];
        fails(&args, 1, &[word]);
        assert_eq!(fs::read_link(target.join("x")).unwrap(), outside);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
    // Trees with the same directories are merged.
    let target = scratch.path().join("both");
    fs::create_dir(&target).unwrap();
    let whole = at(&image, "/c");
    ok(&["cp", &whole, &at(&image, "/c/x/file"), text(&target)]);
    assert_eq!(fs::read(target.join("c/x/file")).unwrap(), b"c");
    assert_eq!(fs::read(target.join("file")).unwrap(), b"c");
}

#[test]
fn a_directory_with_a_link_keeps_copies_in() {
    let scratch = Scratch::new("linked").unwrap();
    let (outside, target) = (
        scratch.path().join("outside"),
        scratch.path().join("target"),
    );
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&target).unwrap();
    symlink(&outside, target.join("x")).unwrap();
    let image = image_of_two("/");
    let args = ["cp", &at(&image, "/c/x"), text(&target)];
    fails(&args, 1, &["is no directory"]);
    let args = ["cp", &at(&image, "/c/."), text(&target)];
    fails(&args, 1, &["is no directory"]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // The link itself is named, so its target is meant.
    let link = target.join("x");
    ok(&["cp", &at(&image, "/c/x/file"), text(&link)]);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"c");
}

/// A copy takes memory for each nested directory.
#[test]
fn trees_that_are_too_deep_are_refused() {
    let (deep, image) = (chain(8100), image());
    let args = ["cp", &at(&deep, "/d"), &at(&image, "/copy")];
    fails(&args, 1, &["d/d/d/", "more than 8000"]);
    image.e2fsck_fn().unwrap();
}

/// Links in an image, or copied into one.
#[test]
fn links_in_an_image_keep_copies_in() {
    let scratch = Scratch::new("inside").unwrap();
    let place = |name: &str| scratch.path().join(name);
    for dir in ["a", "c/x"] {
        fs::create_dir_all(place(dir)).unwrap();
    }
    symlink("/outside", place("a/x")).unwrap();
    fs::write(place("c/x/file"), "c").unwrap();
    let image = image();
    ok(&["mkdir", &at(&image, "/outside"), &at(&image, "/target")]);
    let (a, c) = (place("a/x"), place("c/x"));
    let args = ["cp", "-r", text(&a), text(&c), &at(&image, "/target")];
    fails(&args, 1, &["is no directory"]);
    let args = ["cp", text(&c), &at(&image, "/target")];
    fails(&args, 1, &["is no directory"]);
    assert_eq!(ok(&["ls", &at(&image, "/outside")]), "");
    // The directory itself is replaced by a link meanwhile: `up` is where all files go.
    let up = place("up");
    fs::create_dir(&up).unwrap();
    symlink("/outside", up.join("here")).unwrap();
    fs::create_dir(up.join("sub")).unwrap();
    fs::write(up.join("sub/file"), "x").unwrap();
    symlink(".", place("self")).unwrap();
    ok(&[
        "cp",
        "-r",
        text(&place("self")),
        &at(&image, "/target/here"),
    ]);
    let all = format!("{}/.", text(&up));
    ok(&["cp", &all, &at(&image, "/target/here")]);
    assert_eq!(ok(&["ls", &at(&image, "/outside")]), "");
    assert_eq!(ok(&["cat", &at(&image, "/target/sub/file")]), "x");
    image.e2fsck_fn().unwrap();
}
