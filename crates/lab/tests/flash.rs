//! Tests of `stetfs device serve --ftl`: a device with a translation layer.
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::daemon::fails;
use crate::common::{kernel, stetfs};
use crate::served::Served;
use stetfs_block::{BlockDevice, FileDevice, OpenOptions, suite};
use stetfs_testkit::{Scratch, cmd};

/// A counter with a fraction.
fn fraction(served: &Served, name: &str) -> f64 {
    let text = std::fs::read_to_string(served.dir.join("stats")).unwrap();
    let value = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    value.trim().parse().unwrap()
}

#[test]
fn file_systems_work_on_every_layer() {
    for ftl in ["page", "fast", "bast,logs=2"] {
        let serve = [
            "--ftl",
            ftl,
            "--size",
            "48M",
            "--erase-block",
            "256K",
            "--spare",
            "7",
        ];
        let served = Served::new(&[&serve[..], &["--aged", "--volatile"]].concat());
        let aged = served.counter("erases");
        assert!(aged > 0 && served.counter("pages_moved") > 0);
        assert!(fraction(&served, "waf") > 1.0);
        let mut mke2fs = Command::new("mke2fs");
        cmd::run(mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(served.disk())).unwrap();
        for (mounter, value) in [(kernel(), 1), (stetfs(), 2)] {
            let mounted = mounter.mount(&served.disk()).unwrap();
            let path = mounted.path().join("file");
            let bytes = vec![value; 8 << 20];
            // Several times, so that garbage is collected.
            for _ in 0..4 {
                let file = std::fs::File::create(&path).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
                file.sync_all().unwrap();
            }
            assert!(std::fs::read(&path).unwrap() == bytes);
            mounted.umount().unwrap();
            let mounted = mounter.mount(&served.disk()).unwrap();
            assert!(std::fs::read(mounted.path().join("file")).unwrap() == bytes);
            mounted.umount().unwrap();
        }
        cmd::run(Command::new("e2fsck").arg("-fn").arg(served.disk())).unwrap();
        assert!(served.counter("erases") > aged);
        // The picture is complete, and shows the current state.
        let picture = std::fs::read_to_string(served.dir.join("blocks.svg")).unwrap();
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.matches("<g>").count() >= 192);
        // cp asks for the positions of data.
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("blocks.svg");
        cmd::run(
            Command::new("cp")
                .arg(served.dir.join("blocks.svg"))
                .arg(&copy),
        )
        .unwrap();
        assert!(
            std::fs::read_to_string(&copy)
                .unwrap()
                .ends_with("</svg>\n")
        );
        let said = served.end();
        let flash = &said["flash"];
        assert!(
            flash["counters"]["erases"].as_u64().unwrap() > aged,
            "{said}"
        );
        assert!(flash["waf"].as_f64().unwrap() > 0.0);
        let merges = flash["counters"]["merges"]["full"].as_u64().unwrap();
        assert_eq!(merges > 0, ftl != "page");
    }
}

#[test]
fn file_systems_work_on_a_log_of_segments() {
    for cleaner in ["copy", "share"] {
        let serve = [
            "--ftl",
            "page",
            "--size",
            "96M",
            "--erase-block",
            "256K",
            "--volatile",
        ];
        let layer = ["--layer", "log", "--cleaner", cleaner];
        let served = Served::new(&[&serve[..], &layer[..]].concat());
        let mut mke2fs = Command::new("mke2fs");
        cmd::run(mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(served.disk())).unwrap();
        let bytes = |value| vec![value; 24 << 20];
        for (mounter, value) in [(kernel(), 1), (stetfs(), 2)] {
            let mounted = mounter.mount(&served.disk()).unwrap();
            let path = mounted.path().join("file");
            std::fs::write(&path, bytes(value)).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            // At random places, so that the cleaner has pages to move.
            let mut rng = fastrand::Rng::with_seed(1);
            for _ in 0..8 {
                for _ in 0..3000 {
                    let at = rng.u64(..24 << 8) * 4096;
                    file.write_all_at(&[value; 4096], at).unwrap();
                }
                file.sync_all().unwrap();
            }
            drop(file);
            mounted.umount().unwrap();
            // Everything is flushed, so nothing is lost.
            served.fault(&["power-cut=lose"]);
            served.fault(&["pass"]);
            let mounted = mounter.mount(&served.disk()).unwrap();
            assert!(std::fs::read(mounted.path().join("file")).unwrap() == bytes(value));
            mounted.umount().unwrap();
        }
        cmd::run(Command::new("e2fsck").arg("-fn").arg(served.disk())).unwrap();
        let moved = served.counter("log_moved");
        assert!(moved > 0 && served.counter("log_cleaned") > 0);
        assert_eq!(
            served.counter("log_shared"),
            if cleaner == "share" { moved } else { 0 }
        );
        served.end();
    }
}

/// The C program, compiled with the public header.
fn compiled(scratch: &Scratch) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = scratch.path().join("share");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("../../include"));
    cmd::run(cc.arg("-o").arg(&program).arg(here.join("tests/share.c"))).unwrap();
    program
}

#[test]
fn a_c_program_shares_pages_and_they_outlast_a_power_cut() {
    let scratch = Scratch::new("share").unwrap();
    let program = compiled(&scratch);
    let limits = [
        "--share-pairs",
        "4",
        "--share-references",
        "3",
        "--volatile",
    ];
    let served = Served::new(
        &[
            &["--ftl", "page", "--size", "16M", "--erase-block", "64K"],
            &limits[..],
        ]
        .concat(),
    );
    let said = cmd::run(Command::new(&program).arg(served.disk())).unwrap();
    assert!(said.contains("done"), "{said}");
    assert_eq!(served.counter("shares"), 3);
    assert_eq!(served.counter("pages_shared"), 5);
    // Page 10 has two more references, page 2 one more; 0 has a page of its own again, 1 shares
    // with 11.
    assert_eq!(served.counter("references"), 4);
    served.fault(&["power-cut=lose"]);
    served.fault(&["pass"]);
    let disk = std::fs::File::open(served.disk()).unwrap();
    let first = |page: u64| {
        let mut byte = [0];
        disk.read_exact_at(&mut byte, page * 4096).unwrap();
        byte[0]
    };
    // Shared pages are durable with their source; unflushed writes are gone.
    assert_eq!([10, 11, 20, 21, 40, 2, 3].map(first), [1, 2, 1, 1, 9, 9, 0]);
    drop(disk);
    served.end();
    // Log blocks cannot share.
    let served = Served::new(&["--ftl", "fast", "--size", "16M", "--erase-block", "64K"]);
    let refused = Command::new(&program).arg(served.disk()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("Inappropriate ioctl"),
        "{said}"
    );
    served.end();
}

#[test]
fn whoever_opens_the_served_device_can_share_on_it() {
    let served = Served::new(&["--ftl", "page", "--size", "4M", "--erase-block", "64K"]);
    let device = FileDevice::open(served.disk(), OpenOptions::default()).unwrap();
    suite::shares(&device, 3);
    let limits = device.share().unwrap().limits();
    assert_eq!(
        (limits.unit, limits.pairs, limits.references, limits.atomic),
        (4096, 256, 8, true)
    );
    drop(device);
    assert!(served.counter("shares") > 20);
    served.end();
    // A file that is not served cannot share.
    let scratch = Scratch::new("share").unwrap();
    let path = scratch.path().join("image");
    std::fs::write(&path, [0; 8192]).unwrap();
    assert!(
        FileDevice::open(&path, OpenOptions::default())
            .unwrap()
            .share()
            .is_none()
    );
}

#[test]
fn a_share_can_be_made_to_fail() {
    let scratch = Scratch::new("share").unwrap();
    let program = compiled(&scratch);
    let serve = [
        "--ftl",
        "page",
        "--size",
        "16M",
        "--share-pairs",
        "4",
        "--share-references",
        "3",
    ];
    let served = Served::new(&[&serve[..], &["--erase-block", "64K"]].concat());
    served.fault(&["error-writes=80+16"]);
    let refused = Command::new(&program).arg(served.disk()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("share: Input/output error"), "{said}");
    served.end();
}

#[test]
fn what_does_not_go_together_is_refused() {
    let scratch = Scratch::new("flash").unwrap();
    let dir = scratch.path().to_str().unwrap();
    let refused = |args: &[&str], word: &str| {
        fails(&[&["device", "serve"], args, &[dir]].concat(), 1, &[word]);
    };
    refused(
        &["--ftl", "block", "--size", "4M"],
        "there are page, fast and bast",
    );
    refused(
        &["--ftl", "page", "--size", "4M", "--model", "disk"],
        "no flash",
    );
    refused(
        &["--ftl", "page", "--image", "/dev/null"],
        "cannot be used with",
    );
    refused(
        &["--ftl", "page", "--size", "4M", "--erase-block", "5000"],
        "page size",
    );
    refused(&["--size", "4M", "--spare", "20"], "--ftl");
}
