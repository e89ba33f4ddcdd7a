//! Tests of the reports of recovery: each count and sentence is true, and the prediction of `info`
//! comes true.
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use crate::common::Host;
use crate::common::daemon::{BINARY, Daemon, answer, fails, json, ok, stetfs};
use serde_json::{Value, json};
use stetfs_testkit::image::e2fsck_said;
use stetfs_testkit::sys::file_ioctl;
use stetfs_testkit::{
    Image, KernelMount, LoopDev, Mkfs, Scratch, cmd, loopdev::LoopOptions, mount, wait_until,
};

/// Recovers the volume after asking for a prediction; both must agree. Returns the exit code and
/// the report.
fn as_predicted(what: &str, args: &[&str]) -> (i32, Value) {
    let (code, info) = answer(&[&["info"], args].concat());
    assert_eq!(code, 0, "{what}: {info}");
    let mut predicted = info["recovery"].clone();
    let exit = predicted.as_object_mut().unwrap().remove("exit_code");
    let (code, done) = answer(&[&["recover"], args].concat());
    assert_eq!(exit, Some(json!(code)), "{what}: {predicted} {done}");
    match done.get("error") {
        None => assert_eq!(predicted, done["recovery"], "{what}"),
        Some(error) => assert_eq!(predicted["problem"], error["message"], "{what}"),
    }
    (code, done["recovery"].clone())
}

/// Fills a mount's log with everything that it may hold at its end; returns files that must stay
/// open meanwhile.
fn work(d: &Daemon) -> Vec<File> {
    std::fs::create_dir(d.file("dir")).unwrap();
    for i in 0..40u8 {
        let path = d.file(&format!("dir/f{i}"));
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![i; 3000 * usize::from(i)]).unwrap();
        if i % 4 == 0 {
            file.sync_all().unwrap();
        }
        if i % 10 == 0 {
            std::fs::remove_file(&path).unwrap();
        }
    }
    let open = ["a", "b", "c"].map(|name| {
        let file = File::create(d.file(name)).unwrap();
        file.write_all_at(&[9; 50_000], 0).unwrap();
        std::fs::remove_file(d.file(name)).unwrap();
        file
    });
    rustix::fs::syncfs(File::open(&d.dir).unwrap()).unwrap();
    // A file that replaces another, synced by itself.
    std::fs::write(d.file("old"), "old").unwrap();
    let mut new = File::create(d.file("new")).unwrap();
    new.write_all(b"new").unwrap();
    std::fs::rename(d.file("new"), d.file("old")).unwrap();
    new.sync_all().unwrap();
    for i in 0..3 {
        let mut file = File::create(d.file(&format!("single{i}"))).unwrap();
        file.write_all(&[i; 10_000]).unwrap();
        file.sync_all().unwrap();
    }
    open.into()
}

/// An image with these features, as a killed server leaves it in the middle of work.
fn crashed(mkfs: &Mkfs, options: &str) -> Image {
    let d = Daemon::unmounted(Image::make(64 << 20, mkfs).unwrap());
    d.mount(options);
    let open = work(&d);
    d.kill9();
    drop(open);
    mount::detach(&d.dir);
    wait_until("the end of the server", || {
        answer(&["info", d.image()]).0 != 4
    });
    d.image.copy().unwrap()
}

#[test]
fn info_predicts_what_recover_does() {
    let plain = Image::make(32 << 20, &Mkfs::new()).unwrap();
    let path = |image: &Image| image.path().to_str().unwrap().to_owned();
    let (code, done) = as_predicted("clean", &[&path(&plain)]);
    assert_eq!((code, &done["needed"]), (0, &json!(false)));

    for preset in ["ordered", "data", "writeback", "ldj", "ijournal", "stet"] {
        for features in ["^orphan_file", "orphan_file"] {
            let what = format!("{preset}, {features}");
            let mkfs = Mkfs::new().feature(features);
            let image = crashed(&mkfs, &format!("commit=900,journal={preset}"));
            let (code, done) = as_predicted(&what, &[&path(&image)]);
            assert_eq!(code, 0, "{what}: {done}");
            let count = |name: &str| done[name].as_u64().unwrap();
            assert!(count("transactions") > 0 && count("blocks") > 0, "{done}");
            let has_records = ["ijournal", "stet"].contains(&preset);
            assert_eq!(count("records") > 0, has_records, "{what}: {done}");
            // Also the replaced file, if the kernel had not forgotten it yet.
            assert!(matches!(count("deleted"), 3 | 4), "{what}: {done}");
            assert_eq!(count("orphans_left"), 0, "{what}: {done}");
            image.e2fsck_fn().unwrap();
            assert_eq!(image.debugfs("cat /old").unwrap(), "new");
            let (_, again) = as_predicted(&what, &[&path(&image)]);
            assert_eq!(again["needed"], false, "{again}");
        }
    }
}

/// The byte offset of a log block, in an image with blocks of 4 KiB.
fn log_at(image: &Image, block: u64) -> u64 {
    let block = image.debugfs(&format!("bmap <8> {block}")).unwrap();
    block.trim().parse::<u64>().unwrap() * 4096
}

fn patch(image: &Image, at: u64, change: impl FnOnce(&mut [u8; 4])) {
    let file = File::options()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).unwrap();
    change(&mut bytes);
    file.write_all_at(&bytes, at).unwrap();
}

#[test]
fn info_predicts_what_recover_refuses() {
    let mkfs = Mkfs::blocks(4096);
    let sound = crashed(&mkfs, "commit=900,journal=data");
    let path = |image: &Image| image.path().to_str().unwrap().to_owned();

    // A committed image that the device changed.
    let image = sound.copy().unwrap();
    let dump = ok(&["--json", "dump", "journal", &path(&image)]);
    let mut descriptors = dump
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|record| record["record"] == "descriptor");
    // The last image of its block in the log.
    let last = descriptors.next_back().unwrap()["log_block"]
        .as_u64()
        .unwrap();
    patch(&image, log_at(&image, last + 1) + 100, |b| b[0] ^= 0xff);
    let before = std::fs::read(image.path()).unwrap();
    let (code, _) = as_predicted("a damaged image", &[&path(&image)]);
    assert_eq!(code, 5);
    assert!(
        std::fs::read(image.path()).unwrap() == before,
        "a refusal changed the volume"
    );
    let out = stetfs(&["recover", "--salvage", &path(&image)]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(8), "{said}");
    for word in ["left out: ", "damaged", "e2fsck -f"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let state = json(&["info", &path(&image)]);
    assert_eq!(state["state"], "has errors", "{state}");
    // The second time there is nothing to replay; the remaining problems are reported again.
    let (code, again) = as_predicted("salvaged", &[&path(&image)]);
    assert_eq!((code, &again["orphans_left"]), (8, &json!(3)), "{again}");
    assert!(again["has_errors"] == true && again["transactions"] == 0);
    image.e2fsck_fy().unwrap();

    // An unknown feature of the journal.
    let image = sound.copy().unwrap();
    patch(&image, log_at(&image, 0) + 0x28, |b| b[0] |= 0x40);
    let (code, _) = as_predicted("an unknown journal feature", &[&path(&image)]);
    assert_eq!(code, 5);

    // An unknown feature of the volume.
    let image = sound.copy().unwrap();
    image.debugfs_write("feature FEATURE_I29").unwrap();
    let (code, _) = as_predicted("an unknown feature", &[&path(&image)]);
    assert_eq!(code, 5);

    // A broken orphan list on a volume whose journal is empty.
    let image = Image::make(32 << 20, &mkfs).unwrap();
    image
        .debugfs_write("set_super_value last_orphan 500")
        .unwrap();
    let (code, done) = as_predicted("a broken orphan list", &[&path(&image)]);
    assert_eq!((code, &done["orphans_left"]), (8, &json!(1)), "{done}");
    assert_eq!(done["has_errors"], true);

    // A volume on a write-protected device.
    let image = sound.copy().unwrap();
    let read_only = LoopOptions {
        read_only: true,
        ..Default::default()
    };
    let device = LoopDev::attach(image.path(), read_only).unwrap();
    let dev = device.path().to_str().unwrap();
    let (code, _) = as_predicted("write-protected", &[dev]);
    assert_eq!(code, 1);
    drop(device);
    let device = LoopDev::attach(Image::make(16 << 20, &mkfs).unwrap().path(), read_only).unwrap();
    let dev = device.path().to_str().unwrap();
    let (code, _) = as_predicted("write-protected, clean", &[dev]);
    assert_eq!(code, 0);
}

#[test]
fn a_journal_elsewhere_is_named_to_recover_and_info() {
    let journal_of = || Image::make(16 << 20, &Mkfs::blocks(4096).feature("journal_dev")).unwrap();
    let journal = journal_of();
    let device = LoopDev::attach(journal.path(), LoopOptions::default()).unwrap();
    let mkfs = Mkfs::blocks(4096).journal_device(device.path());
    let d = Daemon::unmounted(Image::make(64 << 20, &mkfs).unwrap());
    drop(device);
    let here = format!("journal_path={}", journal.path().display());
    d.mount(&format!("commit=900,{here}"));
    let open = work(&d);
    d.kill9();
    drop(open);
    // It looks for the journal where udev would link it: even without the journal it reports that
    // recovery is needed.
    fails(&["umount", d.dir()], 6, &["was gone", "stetfs recover"]);

    let refused = |option: &[&str], word: &str| {
        let args = [option, &[d.image()]].concat();
        assert_eq!(as_predicted(word, &args).0, 5);
        fails(
            &[&["recover"], &args[..]].concat(),
            5,
            &[word, "journal_path="],
        );
    };
    refused(&[], "was not found");
    let foreign = journal_of();
    let other = format!("journal_path={}", foreign.path().display());
    refused(&["-o", &other], "belongs to another volume");
    fails(
        &["recover", "-o", "journal_path=/nonexistent", d.image()],
        5,
        &["there is no /nonexistent"],
    );
    fails(
        &["recover", "-o", "ro", d.image()],
        1,
        &["journal_path=PATH"],
    );
    assert!(ok(&["dump", "journal", "-o", &here, d.image()]).contains("commit"));
    let (code, done) = as_predicted("with its journal", &["-o", &here, d.image()]);
    assert_eq!(code, 0, "{done}");
    let check = ["-fn", "-j", journal.path().to_str().unwrap()];
    e2fsck_said(d.image.path(), &check, 0).unwrap();
}

/// A file of zeroes for records of synced files.
fn region(dir: &Path) -> String {
    let path = dir.join("region");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Appends and syncs, each sync with a record and without a flush; returns the content.
///
/// Any sync(2) on the machine reaches this volume too, and flushes. A round with one proves
/// nothing, so it is repeated.
fn append_and_sync(d: &Daemon) -> Vec<u8> {
    let path = d.file("log");
    let mut file = File::create(&path).unwrap();
    file.sync_all().unwrap();
    let counts = || {
        let stat = json(&["stat", d.dir()]);
        let count = |at: &str| stat.pointer(at).and_then(Value::as_u64);
        (
            count("/journal/file_records").unwrap(),
            count("/device/flushes").unwrap(),
            count("/requests/syncfs").unwrap_or(0),
        )
    };
    let mut quiet = false;
    for _ in 0..10 {
        let before = counts();
        for i in 0..20u8 {
            file.write_all(&[i; 4096]).unwrap();
            file.sync_all().unwrap();
        }
        let after = counts();
        quiet = after.2 == before.2;
        if quiet {
            assert_eq!((after.0, after.1), (before.0 + 20, before.1));
            break;
        }
    }
    assert!(quiet, "somebody calls sync(2) all the time");
    std::fs::read(path).unwrap()
}

#[test]
fn records_in_a_region_are_recovered_or_told() {
    let scratch = Scratch::new("nvm").unwrap();
    let here = region(scratch.path());
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let nvm = format!("nvm={here}");
    let mount = |options: &str| ["mount".into(), "-o".into(), options.to_owned()];
    let refused = |options: &str, word: &str| {
        let args = mount(options);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        fails(&[&args[..], &[d.image(), d.dir()]].concat(), 1, &[word]);
    };
    refused(&nvm, "sync=file");
    refused("journal=ijournal,nvm=/nonexistent", "truncate -s");
    d.mount(&format!("commit=900,journal=ijournal,{nvm}"));
    let stat = json(&["stat", d.dir()]);
    let said = &stat["journal"]["region"];
    assert_eq!(said["path"], json!(here));
    assert_eq!(said["is_safe"], json!(said["way"] != "stores"), "{said}");
    std::fs::write(d.file("old"), "old").unwrap();
    rustix::fs::syncfs(File::open(&d.dir).unwrap()).unwrap();
    let expected = append_and_sync(&d);
    d.crash();

    let before = std::fs::read(d.image.path()).unwrap();
    let problem = |args: &[&str], word: &str| {
        let args = [args, &[d.image()]].concat();
        assert_eq!(as_predicted(word, &args).0, 5);
        let recover = [&["recover"], &args[..]].concat();
        fails(&recover, 5, &[word, "--without-nvm"]);
    };
    problem(&[], "name it with nvm=PATH");
    let other = Scratch::new("nvm").unwrap();
    let zeroes = format!("nvm={}", region(other.path()));
    problem(&["-o", &zeroes], "it holds only zeroes");
    assert!(std::fs::read(d.image.path()).unwrap() == before);
    assert!(ok(&["dump", "journal", d.image()]).contains("in a region"));
    let (code, done) = as_predicted("with its region", &["-o", &nvm, d.image()]);
    assert_eq!((code, &done["records"]), (0, &json!(21)), "{done}");
    e2fsck_said(d.image.path(), &["-fn"], 0).unwrap();
    d.mount("");
    assert!(std::fs::read(d.file("log")).unwrap() == expected);
    ok(&["umount", d.dir()]);

    // The same, as if the region had been lost.
    std::fs::write(d.image.path(), before).unwrap();
    ok(&["recover", "--without-nvm", d.image()]);
    e2fsck_said(d.image.path(), &["-fn"], 0).unwrap();
    d.mount("");
    assert!(!d.file("log").exists());
    assert_eq!(std::fs::read(d.file("old")).unwrap(), b"old");
    ok(&["umount", d.dir()]);
}

/// Memory without a disk behind it: the mount warns. The next mount recovers by itself, and a
/// closed volume needs no region.
#[test]
fn a_region_on_tmpfs_survives_the_server() {
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let nvm = format!("nvm={}", region(scratch.path()));
    let options = format!("commit=900,journal=ijournal,{nvm}");
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let out = stetfs(&["mount", "-o", &options, d.image(), d.dir()]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    assert!(said.contains("the process, not the machine"), "{said}");
    let expected = append_and_sync(&d);
    d.crash();
    d.mount(&options);
    assert!(std::fs::read(d.file("log")).unwrap() == expected);
    fails(
        &["mount", "-o", "remount,nvm=/dev/shm/other", "none", d.dir()],
        1,
        &["cannot change the place of file records"],
    );
    append_and_sync(&d);
    ok(&["umount", d.dir()]);
    drop(scratch);
    e2fsck_said(d.image.path(), &["-fn"], 0).unwrap();
    d.mount("");
    assert!(std::fs::read(d.file("log")).unwrap() == expected);
    ok(&["umount", d.dir()]);
}

/// Two volumes have their records in parts of one file: neither gets a byte of the other's, while
/// both are mounted, after a kill, and during recovery.
#[test]
fn volumes_share_a_file_for_records() {
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = region(scratch.path());
    let half = File::options().write(true).open(&file).unwrap();
    half.set_len(8 << 20).unwrap();
    let make = || Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let all = [make(), make()];
    let part = |n: usize| format!("nvm={file},nvm_offset={}M,nvm_size=4M", 4 * n);
    let how = |place: &str| format!("commit=900,journal=ijournal,{place}");
    let mut synced = Vec::new();
    for (n, d) in all.iter().enumerate() {
        d.mount(&how(&part(n)));
        let stat = json(&["stat", d.dir()]);
        assert_eq!(stat["journal"]["region"]["offset"], json!((n * 4) << 20));
        synced.push(append_and_sync(d));
    }
    let third = make();
    for over in [
        "nvm_offset=4032K,nvm_size=128K",
        "nvm_offset=2M",
        "nvm_size=64K",
    ] {
        let options = how(&format!("nvm={file},{over}"));
        let args = ["mount", "-o", &options, third.image(), third.dir()];
        fails(&args, 4, &["is in use", &file]);
    }
    let nothing = ["mount", "-o", "nvm_offset=4M", third.image(), third.dir()];
    fails(&nothing, 1, &["name it with nvm=PATH"]);
    let beyond = how(&format!("nvm={file},nvm_offset=8M"));
    fails(
        &["mount", "-o", &beyond, third.image(), third.dir()],
        1,
        &["begins at byte"],
    );
    all[0].crash();
    // Recovered while the other stays mounted.
    let other = part(1);
    fails(
        &["recover", "-o", &other, all[0].image()],
        4,
        &["is in use"],
    );
    synced[1] = append_and_sync(&all[1]);
    all[1].crash();
    fails(
        &["recover", "-o", &other, all[0].image()],
        5,
        &["belongs to volume"],
    );
    for (n, d) in all.iter().enumerate() {
        ok(&["recover", "-o", &part(n), d.image()]);
        e2fsck_said(d.image.path(), &["-fn"], 0).unwrap();
        d.mount("");
        assert!(
            std::fs::read(d.file("log")).unwrap() == synced[n],
            "volume {n}"
        );
        ok(&["umount", d.dir()]);
    }
}

/// The image is sparse, and its host has no room, or not enough, for the blocks that it has not
/// written yet.
#[test]
fn a_full_host_is_no_damage() {
    for (preset, pages) in [("data", 0), ("data", 12), ("ijournal", 12)] {
        let what = format!("{preset}, room for {pages} pages");
        let image = crashed(&Mkfs::blocks(4096), &format!("commit=900,journal={preset}"));
        let host = Host::new(200 << 20);
        let full = host.dir.join("image");
        let mut copy = Command::new("cp");
        cmd::run(copy.arg("--sparse=always").arg(image.path()).arg(&full)).unwrap();
        let used = full.metadata().unwrap().blocks() * 512;
        host.resize(used + pages * 4096);

        let name = full.to_str().unwrap();
        let info = json(&["info", name]);
        let recovery = &info["recovery"];
        let problem = recovery["problem"].as_str().unwrap_or_default();
        assert_eq!(recovery["exit_code"], 6, "{what}: {info}");
        assert!(problem.contains("no space on the host"), "{problem}");
        let out = stetfs(&["recover", name]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(6), "{what}: {said}");
        for word in ["no space on the host", "make room"] {
            assert!(said.contains(word), "{what}: {word}: {said}");
        }
        for word in ["damaged", "e2fsck"] {
            assert!(!said.contains(word), "{what}: {word}: {said}");
        }
        let dir = Scratch::new("cmd").unwrap();
        let words = ["no space on the host", "make room"];
        fails(&["mount", name, dir.path().to_str().unwrap()], 6, &words);

        host.resize(200 << 20);
        let (code, done) = as_predicted("with room again", &[name]);
        assert_eq!(code, 0, "{what}: {done}");
        e2fsck_said(&full, &["-fn"], 0).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// Features and state words of the superblock that indicate an unfinished mount.
fn marks(image: &Image) -> Vec<&'static str> {
    let said = image.debugfs("stats -h").unwrap();
    let marks = [
        "needs_recovery",
        "orphan_present",
        "not clean",
        "First orphan",
    ];
    let mut found: Vec<_> = marks.into_iter().filter(|m| said.contains(m)).collect();
    if !said.contains("Filesystem state:         clean") {
        found.push("state");
    }
    found
}

/// A read-only mount replays the journal, as the kernel does, if the device can be written.
#[test]
fn a_read_only_mount_finishes_what_a_crash_left() {
    for features in ["^orphan_file", "orphan_file"] {
        for preset in ["ordered", "ijournal"] {
            let what = format!("{preset}, {features}");
            let image = crashed(
                &Mkfs::new().feature(features),
                &format!("commit=900,journal={preset}"),
            );
            assert!(marks(&image).contains(&"needs_recovery"));
            let theirs = (preset == "ordered").then(|| {
                let theirs = image.copy().unwrap();
                let device = LoopDev::attach(theirs.path(), LoopOptions::default()).unwrap();
                let mounted = KernelMount::new(device, "ext4", "ro").unwrap();
                mounted.umount().unwrap();
                theirs.e2fsck_fn().unwrap();
                theirs
            });
            let d = Daemon::unmounted(image);
            d.mount("ro");
            assert_eq!(std::fs::read_to_string(d.file("old")).unwrap(), "new");
            ok(&["umount", d.dir()]);
            d.image
                .e2fsck_fn()
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(marks(&d.image), [""; 0], "{what}");
            assert_eq!(json(&["info", d.image()])["state"], "clean");
            assert_eq!(json(&["info", d.image()])["recovery"]["needed"], false);
            if let Some(theirs) = theirs {
                assert_eq!(marks(&theirs), marks(&d.image), "{what}");
            }
        }
    }
}

/// Orphans beside an empty journal, as a read-only mount of an earlier version left them.
#[test]
fn a_read_only_mount_finishes_orphans_without_a_journal_to_replay() {
    let image = Image::make(32 << 20, &Mkfs::new()).unwrap();
    image.debugfs_write("mknod orphan p").unwrap();
    for request in [
        "set_inode_field orphan links_count 0",
        "set_inode_field orphan dtime 0",
        "set_super_value last_orphan 12",
        "unlink orphan",
    ] {
        image.debugfs_write(request).unwrap();
    }
    let info = json(&["info", image.path().to_str().unwrap()]);
    assert_eq!(info["recovery"]["deleted"], 1, "{info}");
    let d = Daemon::unmounted(image);
    d.mount("ro");
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
    assert_eq!(marks(&d.image), [""; 0]);
}

#[test]
fn an_unmount_of_a_killed_server_tells_what_may_be_lost() {
    let d = Daemon::new("");
    std::fs::write(d.file("a"), "not synced").unwrap();
    d.kill9();
    let (code, said) = answer(&["umount", d.dir()]);
    assert_eq!((code, &said["error"]["code"]), (6, &json!(6)), "{said}");
    let message = said["error"]["message"].as_str().unwrap();
    assert!(message.contains("not synced may be lost"), "{message}");
    let hint = said["error"]["hint"].as_str().unwrap();
    assert!(
        hint.contains("replays the journal") && hint.contains(d.image()),
        "{hint}"
    );
    assert!(!mount::is_mounted(&d.dir));

    // A volume that was only read has nothing to lose.
    ok(&["recover", d.image()]);
    d.mount("ro");
    d.kill9();
    ok(&["umount", d.dir()]);

    // Lazily, too.
    d.mount("");
    d.kill9();
    fails(&["umount", "-l", d.dir()], 6, &["was gone", "may be lost"]);

    // Without a journal nothing is replayed.
    let mkfs = Mkfs::new().feature("^has_journal");
    let d = Daemon::unmounted(Image::make(16 << 20, &mkfs).unwrap());
    d.mount("");
    d.kill9();
    fails(&["umount", d.dir()], 6, &["was gone", "e2fsck -f"]);
}

const PROTECTED: &str = "WARNING: source write-protected, mounted read-only.";

/// Mounts a source that cannot be written: read-only, with mount(8)'s words; takes it down again.
fn protected(program: &Path, args: &[&str], dir: &Path) {
    let out = cmd::output(Command::new(program).args(args)).unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{args:?}: {said}");
    assert!(said.contains(PROTECTED) && out.stdout.is_empty(), "{said}");
    let refused = std::fs::write(dir.join("x"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert!(dir.join("lost+found").is_dir());
    let dir = dir.to_str().unwrap();
    fails(
        &["mount", "-o", "remount,rw", "none", dir],
        1,
        &["read-only"],
    );
    ok(&["umount", dir]);
}

/// `blockdev --setro`, undone at the end: the next user of the loop device would inherit it.
struct SetReadOnly<'a>(&'a Path);

impl SetReadOnly<'_> {
    fn new(device: &Path) -> SetReadOnly<'_> {
        let set = SetReadOnly(device);
        set.to("--setro");
        set
    }

    fn to(&self, how: &str) {
        cmd::run(Command::new("blockdev").arg(how).arg(self.0)).unwrap();
    }
}

impl Drop for SetReadOnly<'_> {
    fn drop(&mut self) {
        self.to("--setrw");
    }
}

#[test]
fn a_write_protected_source_is_mounted_read_only() {
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    let scratch = Scratch::new("cmd").unwrap();
    let dir = scratch.path().join("fs");
    std::fs::create_dir(&dir).unwrap();
    let fs = dir.to_str().unwrap();
    let helper = scratch.path().join("mount.fuse.stetfs");
    std::os::unix::fs::symlink(BINARY, &helper).unwrap();
    let program = Path::new(BINARY);

    let options = LoopOptions {
        read_only: true,
        ..Default::default()
    };
    let device = LoopDev::attach(image.path(), options).unwrap();
    let dev = device.path().to_str().unwrap();
    protected(program, &["mount", dev, fs], &dir);
    protected(program, &["mount", "-o", "rw", dev, fs], &dir);
    protected(&helper, &[dev, fs, "-o", "rw,noatime"], &dir);
    // No warning if read-only was requested.
    let said = stetfs(&["mount", "-o", "ro", dev, fs]);
    assert!(said.status.success() && said.stderr.is_empty());
    ok(&["umount", fs]);
    drop(device);

    let device = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
    let dev = device.path().to_str().unwrap();
    let set = SetReadOnly::new(device.path());
    protected(program, &["mount", dev, fs], &dir);
    drop(set);
    drop(device);

    // An image on a host that cannot be written.
    let host = scratch.path().join("host");
    std::fs::create_dir(&host).unwrap();
    let bind = |args: &[&str]| {
        let mut mount = Command::new("mount");
        cmd::run(mount.args(args).arg(image.dir()).arg(&host)).unwrap();
    };
    bind(&["--bind", "-o", "ro"]);
    let there = host.join(image.path().file_name().unwrap());
    protected(program, &["mount", there.to_str().unwrap(), fs], &dir);
    cmd::run(Command::new("umount").arg(&host)).unwrap();

    // A dirty journal that cannot be replayed is an error without `norecovery`: the volume may be
    // inconsistent.
    let image = crashed(&Mkfs::new(), "commit=900");
    let device = LoopDev::attach(image.path(), options).unwrap();
    let dev = device.path().to_str().unwrap();
    let words = ["write access unavailable, cannot proceed", "noload"];
    fails(&["mount", dev, fs], 1, &words);
    fails(&["mount", "-o", "ro", dev, fs], 1, &words);
    let out = cmd::output(Command::new(&helper).args([dev, fs])).unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", cmd::said(&out));
    assert!(!mount::is_mounted(&dir));
}

/// `FS_IOC_SETFSLABEL`.
const SETFSLABEL: u32 = 0x4100_9432;

/// A program that reads the device of a mounted volume sees a new label after a sync, and so the
/// rest of the superblock.
#[test]
fn a_label_set_online_is_on_the_device_after_a_sync() {
    let d = Daemon::new("commit=900");
    std::fs::write(d.file("a"), "a").unwrap();
    let blkid = |device: &str| {
        let mut blkid = Command::new("blkid");
        let out = blkid.args(["-p", "-o", "value", "-s", "LABEL", device]);
        let said = String::from_utf8(cmd::output(out).unwrap().stdout).unwrap();
        said.trim().to_owned()
    };
    // The loop device; from now on the kernel caches the blocks that are read.
    let source = cmd::run(Command::new("findmnt").args(["-no", "SOURCE", d.dir()])).unwrap();
    let shown = source.trim().to_owned();
    assert_eq!(blkid(&shown), "");
    for label in ["first", "another"] {
        let mut argument = [0u8; 256];
        argument[..label.len()].copy_from_slice(label.as_bytes());
        let root = File::open(&d.dir).unwrap();
        file_ioctl(root.as_fd(), SETFSLABEL, &mut argument).unwrap();
        rustix::fs::syncfs(&root).unwrap();
        drop(root);
        assert_eq!(blkid(d.image()), label);
        assert_eq!(blkid(&shown), label);
        std::fs::write(d.file(label), label).unwrap();
    }
    // And not only in the kernel's cache.
    d.kill9();
    fails(&["umount", d.dir()], 6, &["was gone"]);
    ok(&["recover", d.image()]);
    d.image.e2fsck_fn().unwrap();
    assert_eq!(json(&["info", d.image()])["label"], "another");
}
