//! Whole images: what a directory becomes, their sizes, and that they are the same again.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use super::{Bench, capture};
use crate::common::assert_same;
use crate::common::daemon::ok;
use crate::files::text;
use stetfs_testkit::{Image, LoopDev, LoopOptions};

const M: u64 = 1 << 20;

/// A tree with all kinds of files, in `tree`.
const TREE: &str = "
    mkdir -p tree/many tree/deep/er/and/deeper; echo 1 > tree/deep/er/and/deeper/file
    for n in $(seq 600); do echo $n > tree/many/a-name-that-takes-some-room-$n; done
    head -c 5000000 /dev/urandom > tree/large; ln tree/large tree/deep/large-too
    ln -s large tree/link; ln -s $(printf 'x%.0s' $(seq 200)) tree/long-link
    mkfifo tree/pipe; mknod tree/null c 1 3; mknod tree/disk b 7 200; chmod 660 tree/disk
    truncate -s 20M tree/sparse; echo end >> tree/sparse; truncate -s 1M tree/hole
    echo cap > tree/ping; setcap cap_net_raw+ep tree/ping; chmod 6711 tree/large
    setfacl -m u:1234:rw,g:99:r tree/link tree/deep/er; setfacl -d -m u:5:rx tree/deep
    setfattr -n user.big -v $(printf 'v%.0s' $(seq 600)) tree/hole
    setfattr -n trusted.t -v 1 tree/many; chown -h 1000:1001 tree/link tree/pipe tree/deep
    chmod 1777 tree/many; chmod 751 tree; chown 12:13 tree
    find tree -depth -exec touch -h -d @1234567890.123456789 {} +";

#[test]
fn an_image_of_a_directory_has_all_that_is_in_it() {
    let bench = Bench::new("whole");
    bench.shell(TREE);
    let answer = bench.build(&["--from", "@tree", "-L", "whole"]);
    assert_eq!(answer["label"], "whole");
    let files = answer["content"]["entries"].as_u64().unwrap();
    let seen = bench.seen();
    assert_eq!(files, seen.entries.len() as u64);
    assert_same("directory", &capture(&bench.path("tree")), &seen);
    // Holes take no room.
    assert!(answer["bytes"].as_u64().unwrap() < 24 * M, "{answer}");
    // The file is sparse where the volume is empty.
    let metadata = fs::metadata(bench.path("disk.img")).unwrap();
    assert_eq!(metadata.len(), answer["bytes"].as_u64().unwrap());
    assert!(metadata.blocks() * 512 < metadata.len());
    assert_eq!(bench.names(), ["disk.img", "tree"]);
}

#[test]
fn the_same_sources_make_the_same_image() {
    let bench = Bench::new("same");
    bench.shell(TREE);
    bench.shell(
        "tar --xattrs --xattrs-include='*' -cf a.tar -C tree .; mkdir lower; cp -a tree/many lower
        mkdir -p wh/many; touch wh/.wh.large wh/many/.wh..wh..opq; tar -cf wh.tar -C wh .",
    );
    let made = |seed: &str, epoch: &str, sources: &[&str]| {
        let args = ["--epoch", epoch, "--seed", seed, "--from"];
        bench.build(&[&args, sources].concat());
        // Access times of the sources change.
        bench.shell("cat tree/many/* tree/large > /dev/null; touch -a tree/large");
        fs::read(bench.path("disk.img")).unwrap()
    };
    for sources in [
        &["@tree"][..],
        &["@lower", "@a.tar"],
        // Here room is left over, and the content is copied again.
        &["@tree", "@wh.tar"],
    ] {
        let first = made("7", "1600000000", sources);
        assert!(first == made("7", "1600000000", sources), "{sources:?}");
        assert!(first != made("8", "1600000000", sources), "{sources:?}");
        bench.seen();
    }
}

/// Checks that the image is at most so much larger than its content.
#[track_caller]
fn is_tight(answer: &Value) {
    let number = |key: &str| answer[key].as_u64().unwrap();
    // The journal, tables and the like of a small volume.
    let floor = 6 * M;
    assert!(
        number("bytes") <= number("used") * 5 / 4 + floor,
        "{answer}"
    );
    // A tenth is free.
    assert!(number("available") * 10 >= number("used"), "{answer}");
}

#[test]
fn the_size_follows_from_the_content() {
    let bench = Bench::new("sizes");
    bench.shell(
        "mkdir none small large; for n in $(seq 3000); do head -c 5000 /dev/zero | tr '\\0' x \
            > small/$n; done
        head -c 90000000 /dev/urandom > large/one",
    );
    for source in ["@none", "@small", "@large"] {
        is_tight(&bench.build(&["--from", source]));
        bench.seen();
    }
    // The journal of 128 MiB and more is 16 MiB.
    let with_room = bench.build(&["--from", "@small", "--free", "100M", "-J", "4M"]);
    assert!(
        with_room["available"].as_u64().unwrap() >= 100 * M,
        "{with_room}"
    );
    assert!(
        with_room["bytes"].as_u64().unwrap() <= 136 * M,
        "{with_room}"
    );
    // 100 MiB have room for files of usual sizes.
    assert!(
        with_room["inodes_free"].as_u64().unwrap() >= 6000,
        "{with_room}"
    );
    let given = bench.build(&["--from", "@small", "--size", "64M", "-N", "4000"]);
    assert_eq!(given["bytes"], 64 * M);
    bench.seen();
}

#[test]
fn what_whiteouts_remove_takes_no_room() {
    let bench = Bench::new("shrunk");
    bench.shell(
        "mkdir one two; head -c 90000000 /dev/urandom > one/large; echo x > one/small
        ln one/small one/same; touch two/.wh.large; tar -cf 1.tar -C one .; tar -cf 2.tar -C two .",
    );
    let answer = bench.build(&["--from", "@1.tar", "@2.tar"]);
    assert!(answer["bytes"].as_u64().unwrap() < 8 * M, "{answer}");
    let seen = bench.seen();
    assert_eq!(seen.entries["small"].nlink, 2);
    assert!(!seen.entries.contains_key("large"));
    assert_eq!(bench.names(), ["1.tar", "2.tar", "disk.img", "one", "two"]);
}

#[test]
fn an_image_that_was_estimated_too_small_is_made_again() {
    let bench = Bench::new("again");
    // The second layer replaces one name of the large file, which keeps its other.
    bench.shell(
        "mkdir one two; head -c 30000000 /dev/urandom > one/a; ln one/a one/b
        echo small > two/a; tar -cf 1.tar -C one ./a ./b; tar -cf 2.tar -C two .",
    );
    bench.build(&["--from", "@1.tar", "@2.tar"]);
    let seen = bench.seen();
    assert_eq!(seen.entries["b"].size, Some(30_000_000));
    assert_eq!(seen.entries["a"].size, Some(6));
}

#[test]
fn blocks_of_other_sizes_and_clusters_hold_it_too() {
    let bench = Bench::new("blocks");
    bench.shell(TREE);
    let expected = capture(&bench.path("tree"));
    for options in [
        &["-b", "1K"][..],
        &["--like", "small"],
        &["--like", "android"],
        &["-O", "bigalloc"],
        &["-O", "^has_journal,ea_inode,inline_data"],
    ] {
        let answer = bench.build(&[options, &["--from", "@tree"]].concat());
        assert!(answer["bytes"].as_u64().unwrap() < 64 * M, "{answer}");
        let mut seen = bench.seen();
        let mut expected = expected.clone();
        // Holes begin and end at blocks.
        for entry in seen
            .entries
            .values_mut()
            .chain(expected.entries.values_mut())
        {
            entry.data = None;
        }
        assert_same(&options.join(" "), &expected, &seen);
    }
}

#[test]
fn a_device_is_written_in_place() {
    let bench = Bench::new("device");
    bench.shell("mkdir tree; echo text > tree/file");
    let disk = Image::sparse(32 * M).unwrap();
    let device = LoopDev::attach(disk.path(), LoopOptions::default()).unwrap();
    let tree = bench.path("tree");
    ok(&["image", "build", text(device.path()), "--from", text(&tree)]);
    drop(device);
    disk.e2fsck_fn().unwrap();
    let file = format!("{}:/file", text(disk.path()));
    assert_eq!(ok(&["cat", &file]), "text\n");
}
