//! Tests of the commands as a user runs them: their output, their exit codes, and the volume
//! afterwards.
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::daemon::{BINARY, Daemon, fails, json, ok, stetfs};
use serde_json::Value;
use stetfs_testkit::{Image, LoopDev, Mkfs, Scratch, cmd, loopdev::LoopOptions, mount, wait_until};

#[test]
fn mount_write_umount_leaves_a_clean_plain_volume() {
    let d = Daemon::new("");
    std::fs::write(d.file("hello"), "stet").unwrap();
    assert_eq!(
        d.dir.metadata().unwrap().ino(),
        2,
        "the root shows ext4's number"
    );
    ok(&["umount", d.dir()]);
    assert!(!mount::is_mounted(&d.dir));
    d.image.e2fsck_fn().unwrap();
    let info = json(&["info", d.image()]);
    assert_eq!(info["state"], "clean");
    assert_eq!(info["journal"]["empty"], true);
    assert_eq!(
        info["last_mounted_on"].as_str(),
        d.dir.canonicalize().unwrap().to_str()
    );
    assert_eq!(d.image.debugfs("cat /hello").unwrap(), "stet");
}

#[test]
fn a_killed_server_is_reported_taken_down_and_recovered_from() {
    let d = Daemon::new("journal=data");
    let path = d.file("synced");
    std::fs::write(&path, "kept").unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    d.kill9();
    fails(&["stat", d.dir()], 3, &["does not answer", "stetfs umount"]);
    fails(
        &["mount", d.image(), d.dir()],
        4,
        &["server died", "stetfs umount"],
    );
    fails(&["umount", d.dir()], 6, &["was gone", "stetfs recover"]);

    let info = json(&["info", d.image()]);
    assert_eq!(info["state"], "needs recovery");
    let transactions = info["recovery"]["transactions"].as_u64().unwrap();
    assert!(transactions > 0);
    let dump = ok(&["--json", "dump", "journal", d.image()]);
    let records: Vec<Value> = dump
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let commits = records
        .iter()
        .filter(|r| r["record"] == "commit" && r["valid"] == true)
        .count();
    assert_eq!(
        commits as u64, transactions,
        "dump and info see the same journal"
    );
    assert_eq!(records.last().unwrap()["record"], "end");

    let done = json(&["recover", d.image()]);
    assert_eq!(
        done["recovery"]["transactions"].as_u64(),
        Some(transactions)
    );
    d.image.e2fsck_fn().unwrap();
    assert_eq!(json(&["info", d.image()])["state"], "clean");
    assert!(ok(&["recover", d.image()]).contains("nothing to do"));
    assert_eq!(d.image.debugfs("cat /synced").unwrap(), "kept");
}

#[test]
fn a_volume_in_use_is_refused_and_its_holder_named() {
    let d = Daemon::new("");
    let pid = d.pid().to_string();
    let other = Scratch::new("other").unwrap();
    let dir = other.path().to_str().unwrap();
    fails(
        &["mount", d.image(), dir],
        4,
        &["in use", &pid, "stetfs umount"],
    );
    fails(&["recover", d.image()], 4, &["in use"]);
    fails(&["info", d.image()], 4, &["in use", "stetfs stat"]);
    fails(&["mount", d.image(), d.dir()], 4, &["mounted already"]);
    let busy = std::fs::File::open(d.dir()).unwrap();
    fails(&["umount", d.dir()], 4, &["busy", "umount -l"]);
    assert!(
        d.file("lost+found").exists(),
        "a refused umount changes nothing"
    );
    drop(busy);
    ok(&["umount", d.dir()]);
}

#[test]
fn mistakes_have_their_exit_codes() {
    let scratch = Scratch::new("cmd").unwrap();
    let dir = scratch.path().to_str().unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, vec![0u8; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    let volume = image.path().to_str().unwrap();

    fails(&["frobnicate"], 1, &["frobnicate"]);
    fails(
        &["mount", "-o", "frobnicate", volume, dir],
        1,
        &["frobnicate", "docs/mounting.md"],
    );
    fails(
        &["mount", "-o", "journal=fast", volume, dir],
        1,
        &["ordered, data, writeback, ldj, ijournal"],
    );
    fails(
        &["mount", "-o", "norecovery", volume, dir],
        1,
        &["needs ro"],
    );
    fails(&["mount", volume, file], 1, &["not a directory"]);
    fails(
        &["mount", "/nonexistent", dir],
        3,
        &["/nonexistent", "stetfs mkfs"],
    );
    fails(&["mount", volume, "/nonexistent"], 3, &["mkdir"]);
    fails(&["umount", dir], 3, &["no StetFS volume"]);
    fails(&["mount", file, dir], 5, &["stetfs mkfs"]);
    fails(
        &["info", dir],
        1,
        &["neither an image file nor a block device"],
    );
    assert!(!mount::is_mounted(scratch.path()));

    // As JSON on standard output.
    let out = stetfs(&["--json", "info", "/nonexistent"]);
    assert_eq!(out.status.code(), Some(3));
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(said["error"]["code"], 3);
    assert!(
        said["error"]["message"]
            .as_str()
            .unwrap()
            .contains("/nonexistent")
    );
    assert!(stetfs(&["--help"]).status.success());
}

#[test]
fn an_unknown_feature_is_named() {
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    image.debugfs_write("feature FEATURE_I29").unwrap();
    let scratch = Scratch::new("cmd").unwrap();
    let volume = image.path().to_str().unwrap();
    fails(
        &["mount", volume, scratch.path().to_str().unwrap()],
        5,
        &["FEATURE_I29"],
    );
    assert!(
        json(&["info", volume])["refused"]
            .as_str()
            .unwrap()
            .contains("FEATURE_I29")
    );
}

#[test]
fn signals_unmount_cleanly_and_hangups_are_ignored() {
    let d = Daemon::new("");
    std::fs::write(d.file("a"), "a").unwrap();
    d.signal(rustix::process::Signal::HUP);
    std::fs::write(d.file("b"), "b").unwrap();
    let pid = d.pid();
    d.signal(rustix::process::Signal::TERM);
    wait_until("the end of the server", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    assert!(!mount::is_mounted(&d.dir));
    d.image.e2fsck_fn().unwrap();
    assert_eq!(d.image.debugfs("cat /b").unwrap(), "b");
}

#[test]
fn after_a_signal_open_files_work_until_they_are_closed() {
    use std::io::Write;
    let d = Daemon::new("");
    let mut file = std::fs::File::create(d.file("open")).unwrap();
    let pid = d.pid();
    d.signal(rustix::process::Signal::TERM);
    wait_until("the unmount", || !mount::is_mounted(&d.dir));
    // The message names the holder and a remedy.
    let server = format!("process {pid}");
    let words = [
        &server,
        "no mount that is visible",
        &format!("kill -TERM {pid}"),
    ];
    fails(&["mount", d.image(), d.dir()], 4, &words);
    fails(&["recover", d.image()], 4, &words);
    fails(
        &["umount", d.image()],
        3,
        &[&["is not mounted"], &words[..]].concat(),
    );
    file.write_all(b"late").unwrap();
    file.sync_all().unwrap();
    drop(file);
    wait_until("the end of the server", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    d.image.e2fsck_fn().unwrap();
    assert_eq!(d.image.debugfs("cat /open").unwrap(), "late");
}

#[test]
fn a_mount_is_found_by_its_volume() {
    let d = Daemon::new("");
    assert_eq!(
        json(&["stat", d.image()])["pid"],
        json(&["stat", d.dir()])["pid"]
    );
    // By another path of the image.
    let link = d.dir.parent().unwrap().join("link.img");
    std::fs::hard_link(d.image.path(), &link)
        .or_else(|_| std::os::unix::fs::symlink(d.image.path(), &link))
        .unwrap();
    ok(&["umount", link.to_str().unwrap()]);
    assert!(!mount::is_mounted(&d.dir));
    d.image.e2fsck_fn().unwrap();
    fails(&["umount", d.image()], 3, &["is not mounted"]);
    // By the loop device, as named or of the same image.
    let attached = LoopDev::attach(d.image.path(), LoopOptions::default()).unwrap();
    let device = attached.path().to_str().unwrap();
    for name in [device, d.image()] {
        ok(&["mount", device, d.dir()]);
        ok(&["stat", device]);
        ok(&["umount", name]);
        assert!(!mount::is_mounted(&d.dir));
    }
    drop(attached);
    // Two partitions of a disk are two volumes.
    let twice = d.dir.parent().unwrap().join("twice");
    std::fs::create_dir(&twice).unwrap();
    let disk = Image::sparse(100 << 20).unwrap();
    let path = disk.path().to_str().unwrap();
    let part = |n: u64| (1 << 20) + n * (48 << 20);
    let half = |n| format!("offset={},size=40M", part(n));
    for n in 0..2 {
        let mut mkfs = Command::new("mke2fs");
        let offset = format!("offset={}", part(n));
        cmd::run(mkfs.args(["-q", "-t", "ext4", "-E", &offset, path, "40M"])).unwrap();
    }
    ok(&["mount", "-o", &half(0), path, d.dir()]);
    ok(&["mount", "-o", &half(1), path, twice.to_str().unwrap()]);
    fails(
        &["umount", path],
        1,
        &["is mounted on", "name the directory"],
    );
    ok(&["umount", d.dir()]);
    ok(&["umount", path]);
    assert!(!mount::is_mounted(&twice));
}

#[test]
fn plain_umount_loses_nothing() {
    let d = Daemon::new("");
    let pid = d.pid();
    std::fs::write(d.file("a"), vec![7u8; 3 << 20]).unwrap();
    // A child that another test just forked may hold its descriptors.
    stetfs_testkit::mount::umount(&d.dir, Duration::from_secs(2)).unwrap();
    wait_until("the end of the server", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    d.image.e2fsck_fn().unwrap();
    assert_eq!(json(&["info", d.image()])["state"], "clean");
}

#[test]
fn remounts_change_the_mount_in_place() {
    let d = Daemon::new("");
    std::fs::write(d.file("a"), "before").unwrap();
    let open = std::fs::File::open(d.file("a")).unwrap();
    let writer = std::fs::File::options()
        .write(true)
        .open(d.file("a"))
        .unwrap();
    fails(
        &["mount", "-o", "remount,ro", "none", d.dir()],
        4,
        &["busy"],
    );
    drop(writer);

    ok(&["mount", "-o", "remount,ro", "none", d.dir()]);
    let refused = std::fs::write(d.file("b"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    d.image.e2fsck_fn().unwrap();
    assert_eq!(std::io::read_to_string(open).unwrap(), "before");

    ok(&[
        "mount",
        "-o",
        "remount,rw,journal=data,commit=60",
        "none",
        d.dir(),
    ]);
    std::fs::write(d.file("b"), "after").unwrap();
    let stat = json(&["stat", d.dir()]);
    assert_eq!(stat["journal"]["preset"], "data");
    assert_eq!(stat["read_only"], false);
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
    assert_eq!(d.image.debugfs("cat /b").unwrap(), "after");
}

#[test]
fn a_remount_does_not_delete_files_that_are_only_held_open() {
    use std::io::{Read, Seek, Write};
    let d = Daemon::new("");
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(d.file("a"))
        .unwrap();
    file.write_all(b"still here").unwrap();
    std::fs::remove_file(d.file("a")).unwrap();
    fails(
        &["mount", "-o", "remount,commit=60", "none", d.dir()],
        4,
        &["deleted files", "lsof"],
    );
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    drop(file);
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn read_only_mounts_change_nothing() {
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let d = Daemon::unmounted(image);
    d.mount("ro");
    let refused = std::fs::create_dir(d.file("x")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert!(d.file("lost+found").is_dir());
    ok(&["umount", d.dir()]);
    assert!(
        std::fs::read(d.image.path()).unwrap() == before,
        "the image has changed"
    );
}

#[test]
fn block_devices_are_mounted_and_locked() {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let device = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
    let scratch = Scratch::new("cmd").unwrap();
    let dir = scratch.path().join("fs");
    std::fs::create_dir(&dir).unwrap();
    let (dev, fs) = (device.path().to_str().unwrap(), dir.to_str().unwrap());
    ok(&["mount", dev, fs]);
    std::fs::write(dir.join("a"), "a").unwrap();
    let kernel = Command::new("mount")
        .args(["-t", "ext4", dev, "/mnt"])
        .output()
        .unwrap();
    assert!(
        !kernel.status.success(),
        "the kernel mounted a volume that is in use"
    );
    fails(&["recover", image.path().to_str().unwrap()], 4, &["in use"]);
    ok(&["umount", fs]);
    image.e2fsck_fn().unwrap();
}

#[test]
fn stat_counts_what_is_done() {
    let d = Daemon::new("");
    let before = json(&["stat", d.dir()]);
    for i in 0..5 {
        let file = std::fs::File::create(d.file(&format!("f{i}"))).unwrap();
        file.sync_all().unwrap();
    }
    let after = json(&["stat", d.dir()]);
    let rose = |part: &str, name: &str| {
        after[part][name].as_u64().unwrap() - before[part][name].as_u64().unwrap()
    };
    assert_eq!(rose("journal", "syncs"), 5);
    assert!(rose("journal", "commits") >= 5);
    assert!(rose("journal", "bytes_logged") >= 5 * 1024);
    assert!(rose("device", "flushes") >= 5);
    ok(&["umount", d.dir()]);
}

#[test]
fn memory_is_there_before_it_is_needed_and_goes_when_nobody_needs_it() {
    use std::io::Write;
    const IDLE: u64 = 4 << 20;
    let d = Daemon::new("cache=32M");
    let memory = |name: &str| json(&["stat", d.dir()])["memory"][name].as_u64().unwrap();
    wait_until("some is prepared", || memory("bytes_prepared") == IDLE);
    let before = memory("regions_unprepared");
    let mut file = std::fs::File::create(d.file("log")).unwrap();
    for _ in 0..200 {
        file.write_all(&[7; 80 << 10]).unwrap();
        // The thread that prepares memory gets a turn, as when programs run that do not wait for
        // memory.
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(memory("regions_prepared") >= 7, "16 MB were written");
    assert_eq!(memory("regions_unprepared"), before);
    assert!(memory("bytes") + memory("bytes_prepared") <= 32 << 20);
    wait_until("what is not needed goes", || {
        memory("bytes_prepared") <= IDLE
    });
    drop(file);
    ok(&["umount", d.dir()]);
}

#[test]
fn mount_as_mount8_calls_its_helper() {
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let scratch = Scratch::new("bin").unwrap();
    let helper = scratch.path().join("mount.fuse.stetfs");
    std::os::unix::fs::symlink(BINARY, &helper).unwrap();
    let run = |args: &[&str]| {
        let out = Command::new(&helper).args(args).output().unwrap();
        assert!(
            out.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    };
    run(&[d.image(), d.dir(), "-f", "-o", "rw,nosuid"]);
    assert!(!mount::is_mounted(&d.dir), "-f only pretends");
    run(&[
        d.image(),
        d.dir(),
        "-s",
        "-o",
        "rw,noatime,x-systemd.automount,nonsense=1",
    ]);
    assert!(mount::is_mounted(&d.dir));
    // The arguments that mount(8) passes for `mount -o remount,ro DIR`.
    run(&[
        d.image(),
        d.dir(),
        "-o",
        "ro,noatime,remount,user_id=0,group_id=0,default_permissions,allow_other",
    ]);
    assert!(std::fs::create_dir(d.file("x")).is_err());
    ok(&["umount", d.dir()]);
    // With only mount.fuse installed, it runs the program itself.
    ok(&[d.image(), d.dir(), "-o", "rw,dev,suid"]);
    assert!(mount::is_mounted(&d.dir));
    ok(&["umount", d.dir()]);
}

#[test]
fn a_crash_deletes_files_that_never_got_a_name() {
    use std::os::unix::fs::OpenOptionsExt;
    let d = Daemon::new("");
    let free = |d: &Daemon| json(&["info", d.image()])["free_inodes"].as_u64();
    let make = || {
        let mut options = std::fs::File::options();
        options.read(true).write(true);
        options.custom_flags(libc::O_TMPFILE).open(&d.dir).unwrap()
    };
    let (nameless, named) = (make(), make());
    for (file, text) in [(&nameless, "gone"), (&named, "kept")] {
        use std::io::Write;
        let mut file = file;
        file.write_all(text.as_bytes()).unwrap();
    }
    let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&named));
    let cwd = rustix::fs::CWD;
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(cwd, from, cwd, d.file("named"), follow).unwrap();
    nameless.sync_all().unwrap();
    named.sync_all().unwrap();
    d.kill9();
    drop((nameless, named));
    fails(&["umount", d.dir()], 6, &["was gone"]);
    assert_eq!(json(&["recover", d.image()])["recovery"]["deleted"], 1);
    d.image.e2fsck_fn().unwrap();
    assert_eq!(d.image.debugfs("cat /named").unwrap(), "kept");
    let after = free(&d);
    d.mount("");
    std::fs::remove_file(d.file("named")).unwrap();
    ok(&["umount", d.dir()]);
    assert_eq!(free(&d), after.map(|n| n + 1));
}

#[test]
fn a_failed_mount_is_told_once() {
    let scratch = Scratch::new("cmd").unwrap();
    let dir = scratch.path().to_str().unwrap();
    for how in [&["mount"][..], &["mount", "-f"]] {
        let out = stetfs(&[how, &["/dev/null", dir]].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(said.matches("/dev/null").count(), 1, "{how:?}: {said}");
        assert!(out.stdout.is_empty());
    }
    let out = stetfs(&["--json", "mount", "/dev/null", dir]);
    assert!(
        out.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn the_kernel_and_e2fsck_leave_a_served_image_alone() {
    let d = Daemon::new("");
    let scratch = Scratch::new("other").unwrap();
    let refused = |program: &str, args: &[&str], word: &str| {
        let out = Command::new(program).args(args).output().unwrap();
        let said = cmd::said(&out);
        assert!(!out.status.success(), "{program} {args:?}: {said}");
        assert!(said.contains(word), "{program} {args:?}: {said}");
    };
    let other = scratch.path().to_str().unwrap();
    refused(
        "mount",
        &["-o", "loop", d.image(), other],
        "already mounted",
    );
    refused("e2fsck", &["-fy", d.image()], "is mounted");
    std::fs::write(d.file("a"), "a").unwrap();
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn a_foreground_mount_unmounted_at_once_ends_well() {
    let d = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
    for _ in 0..10 {
        let mut server = Command::new(BINARY)
            .args(["mount", "-f", d.image(), d.dir()])
            .spawn()
            .unwrap();
        wait_until("the mount", || mount::is_mounted(&d.dir));
        mount::umount(&d.dir, std::time::Duration::from_secs(10)).unwrap();
        let ended = server.wait().unwrap();
        assert!(ended.success(), "{ended}");
        d.image.e2fsck_fn().unwrap();
    }
}

#[test]
fn a_device_that_cannot_be_written_is_refused_but_read() {
    let d = Daemon::new("");
    let read_only = LoopOptions {
        read_only: true,
        ..Default::default()
    };
    let scratch = Scratch::new("cmd").unwrap();
    let dir = scratch.path().to_str().unwrap();
    std::fs::write(d.file("a"), "a").unwrap();
    std::fs::File::open(d.file("a"))
        .unwrap()
        .sync_all()
        .unwrap();
    d.crash();
    {
        let device = LoopDev::attach(d.image.path(), read_only).unwrap();
        let dev = device.path().to_str().unwrap();
        fails(&["recover", dev], 1, &["Read-only"]);
        // Without a replay the volume may be inconsistent: the user must ask for it.
        let words = ["journal to be replayed", "norecovery"];
        fails(&["mount", dev, dir], 1, &words);
        fails(&["mount", "-o", "ro", dev, dir], 1, &words);
        ok(&["mount", "-o", "ro,norecovery", dev, dir]);
        assert!(!scratch.path().join("a").exists());
        ok(&["umount", dir]);
    }
    ok(&["recover", d.image()]);
    let device = LoopDev::attach(d.image.path(), read_only).unwrap();
    ok(&["mount", "-o", "ro", device.path().to_str().unwrap(), dir]);
    let text = std::fs::read_to_string(scratch.path().join("a"));
    ok(&["umount", dir]);
    assert_eq!(text.unwrap(), "a");
}

/// A partition table as sfdisk writes it: two partitions, of Linux and of swap.
fn mbr() -> Vec<u8> {
    let mut disk = vec![0; 4 << 20];
    let mut entry = |n: usize, kind: u8, start: u32, sectors: u32| {
        let entry = &mut disk[446 + 16 * n..][..16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    };
    entry(0, 0x83, 2048, 4096);
    entry(1, 0x82, 6144, 2048);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

/// Every command that opens a volume says what a source is that is not ext4, leaves it unchanged,
/// and does not advise to format it.
#[test]
fn other_file_systems_and_files_are_named_and_left_alone() {
    let scratch = Scratch::new("foreign").unwrap();
    let dir = scratch.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let make = |name: &str, size: u64, program: &str, args: &[&str]| {
        let file = path(name);
        std::fs::File::create(&file).unwrap().set_len(size).unwrap();
        cmd::run(Command::new(program).args(args).arg(&file)).unwrap();
        file
    };
    let volume = Image::make(8 << 20, &Mkfs::new()).unwrap();
    let pack = |name: &str, program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        let out = command.args(args).arg(volume.path()).output().unwrap();
        assert!(out.status.success(), "{program}: {}", cmd::said(&out));
        std::fs::write(path(name), &out.stdout).unwrap();
        path(name)
    };
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(path(name), bytes).unwrap();
        path(name)
    };
    let destroyed = |name: &str| {
        let image = Image::make(64 << 20, &Mkfs::blocks(1024)).unwrap();
        let mut bytes = std::fs::read(image.path()).unwrap();
        bytes[..1 << 20].fill(0);
        write(name, &bytes)
    };
    let foreign = [
        (make("xfs", 512 << 20, "mkfs.xfs", &["-q"]), "an XFS"),
        (make("swap", 4 << 20, "mkswap", &[]), "swap space"),
        (make("minix", 4 << 20, "mkfs.minix", &[]), "a Minix"),
        (pack("gz", "gzip", &["-kc"]), "by gzip"),
        (pack("zst", "zstd", &["-qc"]), "by zstd"),
        (pack("xz", "xz", &["-kc"]), "by xz"),
        (
            write("disk", &mbr()),
            "(MBR): partition 1 (Linux) at byte 1048576, 2097152 bytes; partition 2 (Linux swap)",
        ),
        (write("qcow2", b"QFI\xfb\0\0\0\x03"), "a qcow2"),
        (
            write("sparse", b"\x3a\xff\x26\xed\x01\0"),
            "an Android sparse",
        ),
        (write("text", b"what somebody wrote"), "an unknown kind"),
        (destroyed("ext4"), "e2fsck -b 8193 -B 1024"),
    ];
    for (file, words) in foreign {
        let before = std::fs::read(&file).unwrap();
        for command in [
            &["mount", &file, dir][..],
            &["mount", "-o", "ro", &file, dir],
            &["info", &file],
            &["recover", &file],
            &["recover", "--salvage", &file],
            &["dump", "journal", &file],
            &["quota", &file],
        ] {
            fails(command, 5, &["not an ext4 volume", words]);
            let said = cmd::said(&stetfs(command));
            assert!(!said.contains("mke2fs") && !said.contains("mkfs"), "{said}");
        }
        assert!(std::fs::read(&file).unwrap() == before, "{file}");
    }
    let zeroes = write("zeroes", &[0; 1 << 20]);
    fails(
        &["info", &zeroes],
        5,
        &["begins with zeroes", "stetfs mkfs"],
    );
    assert!(!mount::is_mounted(Path::new(dir)));
}

#[test]
fn what_was_meant_is_suggested() {
    let mount = |option: &str| ["mount", "-o", option, "a", "b"].map(str::to_owned);
    for (option, meant) in [
        ("jounal=ldj", "did you mean journal?"),
        ("journal=ordred", "did you mean ordered?"),
        ("cache_polcy=lru", "did you mean cache_policy?"),
        ("home=remap", "home must be copy or share"),
        ("noacl", "noxattr turns attributes and ACLs off"),
        ("cache=900T", "of memory"),
        ("commit=abc", "commit must be a number of seconds"),
        ("cache=4K", "cache must be at least 1M"),
        ("cache=900000G", "of memory"),
        ("erase_block=5000", "must be a multiple of 4K"),
    ] {
        let args = mount(option);
        fails(&args.each_ref().map(String::as_str), 1, &[meant]);
    }
    let said = ["journal is an option of mount", "-o journal"];
    fails(&["mount", "--journal", "ldj", "a", "b"], 1, &said);
    fails(&["unmount", "a"], 1, &["'umount'"]);
}

#[test]
fn every_answer_is_an_object_of_json_if_asked_for() {
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mounted = json(&["mount", "-o", "journal=ldj,codec=jbd2", d.image(), d.dir()]);
    assert_eq!(mounted["mounted"], true);
    assert_eq!(text(&mounted["dir"]), d.dir());
    assert!(text(&mounted["warnings"][0]).contains("takes the place of codec=frames"));
    let remounted = json(&["mount", "-o", "remount,noatime", "none", d.dir()]);
    assert_eq!(remounted["remounted"], true);
    let down = json(&["umount", d.dir()]);
    assert_eq!(down["unmounted"], true);
    assert_eq!(text(&down["dir"]), d.dir());
    assert_eq!(text(&down["volume"]), d.image());
    d.image.e2fsck_fn().unwrap();

    // Mistakes in the arguments are reported as JSON, too.
    for wrong in [&["unmount"][..], &["mount"], &["mount", "--journal", "a"]] {
        let (code, said) = crate::common::daemon::answer(wrong);
        assert_eq!(code, 1, "{wrong:?}");
        assert_eq!(said["error"]["code"], 1, "{wrong:?}");
        assert!(!text(&said["error"]["hint"]).is_empty(), "{wrong:?}");
    }

    // In the foreground the answer is one object as well, at the end.
    let mut server = Command::new(BINARY);
    server.args(["--json", "mount", "-f", d.image(), d.dir()]);
    let server = server.stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("the mount", || mount::is_mounted(&d.dir));
    ok(&["umount", d.dir()]);
    let out = server.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(said["unmounted"], true);
}

#[test]
fn options_that_contradict_each_other_are_warned_of() {
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    for (options, warning) in [
        (
            "nobarrier,barrier=1",
            "barrier=1 takes the place of nobarrier",
        ),
        (
            "journal=ijournal,data=journal",
            "takes the place of data=ordered",
        ),
        ("erase_block=24M", "does nothing with cache_policy=clock"),
        ("commit=30,noatime", ""),
    ] {
        let out = stetfs(&["mount", "-o", options, d.image(), d.dir()]);
        ok(&["umount", d.dir()]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{options}: {said}");
        assert!(said.contains(warning), "{options}: {said}");
        assert_eq!(said.is_empty(), warning.is_empty(), "{options}: {said}");
    }
}

/// The hints of `advise`: each text with its command.
fn hints(args: &[&str]) -> Vec<(String, Option<String>)> {
    let advice = json(&[&["advise"], args].concat());
    let hints = advice["hints"].as_array().unwrap().iter();
    let text = |hint: &Value, name: &str| hint[name].as_str().map(str::to_owned);
    hints
        .map(|hint| (text(hint, "what").unwrap(), text(hint, "command")))
        .collect()
}

/// The commands that `advise` gives work, and afterwards it has fewer hints.
#[test]
fn what_advise_says_helps() {
    let mkfs = Mkfs::new()
        .feature("^has_journal,^metadata_csum,^dir_index")
        .inode_size(128);
    let image = Image::make(64 << 20, &mkfs).unwrap();
    let path = image.path().to_str().unwrap();
    let of_volume = || {
        let all = hints(&[path]).into_iter();
        all.filter(|(_, command)| command.as_ref().is_some_and(|c| c.contains(path)))
    };
    let said: Vec<String> = of_volume().map(|(what, _)| what).collect();
    for word in ["no journal", "no checksums", "no index"] {
        assert!(said.iter().any(|what| what.contains(word)), "{said:?}");
    }
    assert!(hints(&[path]).iter().any(|(what, _)| what.contains("2038")));
    for (_, command) in of_volume() {
        cmd::run(Command::new("sh").args(["-c", &command.unwrap()])).unwrap();
    }
    assert_eq!(of_volume().count(), 0);
    image.e2fsck_fn().unwrap();
}

/// Atomic writes are offered if data can go through the journal and SQLite does not have them yet.
#[test]
fn advise_offers_atomic_writes_to_sqlite() {
    let or = |at: &str| json(&["advise", "--for", "sqlite", at])["or"].clone();
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::blocks(4096).journal_mib(16)).unwrap());
    let said = or(d.image());
    let costs = said["costs"].as_array().unwrap();
    let info = json(&["info", d.image()]);
    let most = info["journal"]["largest_transaction"].as_u64().unwrap();
    let most = format!("more than {} KiB", most >> 10);
    assert!(
        costs.iter().any(|c| c.as_str().unwrap().contains(&most)),
        "{costs:?} without {most}"
    );
    let other = json(&["advise", "--for", "files", d.image()]);
    assert!(other["or"].is_null());
    let text = ok(&["advise", "--for", "sqlite", d.image()]);
    assert!(text.contains("or with        -o journal=ldj,atomic") && text.contains(&most));

    // A mount with the recommended options gets no further hint.
    d.mount(said["options"].as_str().unwrap());
    assert!(or(d.dir()).is_null());
    let shown = json(&["stat", d.dir()])["connection"]["mount_options"].clone();
    assert!(shown.as_array().unwrap().contains(&"atomic".into()));
    ok(&["umount", d.dir()]);
    for (options, expected) in [
        ("journal=ordered", "journal=ldj,atomic"),
        ("journal=stet", "journal=stet,atomic"),
    ] {
        d.mount(options);
        assert_eq!(or(d.dir())["options"], expected);
        ok(&["umount", d.dir()]);
    }
    d.mount("journal=stet,ro");
    assert!(or(d.dir()).is_null());
    ok(&["umount", d.dir()]);
    let without = Image::make(16 << 20, &Mkfs::new().feature("^has_journal")).unwrap();
    assert!(or(without.path().to_str().unwrap()).is_null());
}

#[test]
fn advise_follows_the_program_and_looks_at_mounts() {
    let d = Daemon::new("journal=ijournal");
    let advice = json(&["advise", "--for", "log", d.dir()]);
    assert_eq!(advice["options"], "journal=stet");
    assert_eq!(advice["mounted_with"], "ijournal");
    let text = ok(&["advise", "--for", "mariadb", d.dir()]);
    assert!(text.contains("journal=ldj,direct_io") && text.contains("innodb_doublewrite=OFF"));
    std::fs::write(d.file("f"), "x").unwrap();
    std::fs::File::open(d.file("f"))
        .unwrap()
        .sync_all()
        .unwrap();
    d.crash();
    let dirty = hints(&[d.image()]);
    let recover = format!("stetfs recover {}", d.image());
    assert!(
        dirty.iter().any(|(_, c)| c.as_ref() == Some(&recover)),
        "{dirty:?}"
    );
    fails(
        &["advise", "--for", "nothing", d.image()],
        1,
        &["possible values"],
    );
    let elsewhere = Scratch::new("advise").unwrap();
    fails(
        &["advise", elsewhere.path().to_str().unwrap()],
        3,
        &["findmnt"],
    );
}
