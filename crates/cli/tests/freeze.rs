//! Tests of `stetfs freeze` and `stetfs thaw`: changes wait, reads do not, and the device holds a
//! volume as after an unmount.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::daemon::{Daemon, answer, fails, json, ok};
use crate::common::kernel_read_only;
use rustix::process::Signal;
use stetfs_testkit::{Image, Mkfs, mount, wait_until};

/// Number of writers, more than the server has threads.
const WRITERS: u64 = 24;

/// Reads a byte directly, because the page cache would answer without a request.
fn read(path: &Path) -> u8 {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    byte[0]
}

/// Opens a file for each writer; when started, each writes to its own.
struct Writers(Vec<File>);

impl Writers {
    fn new(d: &Daemon) -> Writers {
        std::fs::write(d.file("read"), vec![7; 1 << 20]).unwrap();
        let open = |i| {
            std::fs::write(d.file(&format!("writer-{i}")), b"before").unwrap();
            File::options()
                .write(true)
                .open(d.file(&format!("writer-{i}")))
                .unwrap()
        };
        Writers((0..WRITERS).map(open).collect())
    }

    fn go(self) -> Vec<JoinHandle<std::io::Result<()>>> {
        let write = |file: File| std::thread::spawn(move || file.write_all_at(b"behind", 0));
        self.0.into_iter().map(write).collect()
    }
}

/// Thaws a volume that a failed test leaves frozen, so that its writers can end.
struct Frozen<'a>(&'a Daemon);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = crate::common::daemon::stetfs(&["thaw", self.0.dir()]);
    }
}

fn freeze(d: &Daemon) -> Frozen<'_> {
    ok(&["freeze", d.dir()]);
    Frozen(d)
}

/// Waits until all writers wait. Reads work meanwhile.
fn all_wait(d: &Daemon) {
    wait_until("that all writers wait", || {
        read(&d.file("read"));
        json(&["stat", d.dir()])["frozen"]["waiting"] == WRITERS
    });
}

/// Checks the image as it is now: e2fsck finds nothing to do, and the kernel mounts it without
/// writing to it. Returns its bytes.
fn judge(d: &Daemon) -> Vec<u8> {
    let copy = d.image.copy().unwrap();
    copy.e2fsck_fn().unwrap();
    let said = copy.debugfs("stats -h").unwrap();
    assert!(!said.contains("needs_recovery"), "{said}");
    let mounted = kernel_read_only().mount(copy.path()).unwrap();
    assert_eq!(
        std::fs::read(mounted.path().join("writer-0")).unwrap(),
        b"before"
    );
    mounted.umount().unwrap();
    std::fs::read(copy.path()).unwrap()
}

/// The time of the freeze is a number for programs, and a date for people.
fn assert_since(d: &Daemon) {
    let since = json(&["stat", d.dir()])["frozen"]["since"]
        .as_u64()
        .unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(since.abs_diff(now.as_secs()) < 60, "{since}, not {now:?}");
    let date = Command::new("date")
        .args(["-u", "-d", &format!("@{since}"), "+%F %T UTC"])
        .output()
        .unwrap();
    let date = String::from_utf8(date.stdout).unwrap();
    let said = ok(&["stat", d.dir()]);
    let line = said.lines().find(|line| line.trim().starts_with("since"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.trim().ends_with(date.trim()), "{line}, not {date}");
}

fn freezes(options: &str) {
    let d = Daemon::new(options);
    std::fs::create_dir(d.file("dir")).unwrap();
    let writers = Writers::new(&d);
    let frozen = json(&["freeze", d.dir()]);
    let _thaws = Frozen(&d);
    assert_since(&d);
    assert_eq!(
        (&frozen["frozen"], &frozen["dir"]),
        (&true.into(), &d.dir().into())
    );
    let before = judge(&d);
    let writers = writers.go();
    all_wait(&d);
    // Reads work, and so do syncs of data that is written back.
    assert_eq!(read(&d.file("read")), 7);
    assert_eq!(std::fs::read_dir(d.file("dir")).unwrap().count(), 0);
    File::open(d.file("read")).unwrap().sync_all().unwrap();
    rustix::fs::syncfs(File::open(&d.dir).unwrap()).unwrap();
    fails(&["freeze", d.dir()], 4, &["frozen already", "thaw"]);
    fails(
        &["mount", "-o", "remount,commit=7", d.image(), d.dir()],
        4,
        &["frozen"],
    );
    assert!(before == judge(&d), "{options}: something was written");
    assert!(writers.iter().all(|w| !w.is_finished()));
    let (code, thawed) = answer(&["thaw", d.dir()]);
    assert_eq!((code, &thawed["thawed"]), (0, &true.into()));
    for writer in writers {
        writer.join().unwrap().unwrap();
    }
    assert!(json(&["stat", d.dir()])["frozen"].is_null());
    fails(&["thaw", d.dir()], 1, &["not frozen"]);
    // The journal works: data synced now survives a crash.
    for i in 0..WRITERS {
        File::open(d.file(&format!("writer-{i}")))
            .unwrap()
            .sync_all()
            .unwrap();
    }
    std::fs::write(d.file("new"), b"new").unwrap();
    rustix::fs::syncfs(File::open(&d.dir).unwrap()).unwrap();
    d.crash();
    let journal = options
        .split(',')
        .find(|o| o.starts_with("nvm="))
        .unwrap_or("nobarrier");
    match journal {
        "nobarrier" => ok(&["recover", d.image()]),
        nvm => ok(&["recover", "-o", nvm, d.image()]),
    };
    d.image.e2fsck_fn().unwrap();
    d.mount("ro");
    for i in 0..WRITERS {
        assert_eq!(
            std::fs::read(d.file(&format!("writer-{i}"))).unwrap(),
            b"behind"
        );
    }
    assert_eq!(std::fs::read(d.file("new")).unwrap(), b"new");
    ok(&["umount", d.dir()]);
}

#[test]
fn changes_wait_and_the_image_is_whole() {
    freezes("io_uring=off");
}

#[test]
fn changes_wait_where_requests_come_by_io_uring() {
    freezes("io_uring=auto");
}

#[test]
fn every_journal_goes_on() {
    for journal in ["data", "ldj", "ijournal", "stet", "zjournal,lanes=2", "afs"] {
        freezes(&format!("journal={journal}"));
    }
}

#[test]
fn a_journal_in_persistent_memory_goes_on() {
    let scratch = stetfs_testkit::Scratch::new("freeze").unwrap();
    for journal in ["nvm", "ijournal"] {
        let region = scratch.path().join(journal);
        File::create(&region).unwrap().set_len(32 << 20).unwrap();
        freezes(&format!("journal={journal},nvm={}", region.display()));
    }
}

#[test]
fn a_volume_without_a_journal_is_marked_clean() {
    let image = Image::make(64 << 20, &Mkfs::new().feature("^has_journal")).unwrap();
    let d = Daemon::unmounted(image);
    let mount = stetfs_testkit::cmd::output(
        std::process::Command::new(crate::common::daemon::BINARY).args([
            "mount",
            d.image(),
            d.dir(),
        ]),
    );
    assert!(mount.unwrap().status.success());
    drop(Writers::new(&d));
    ok(&["freeze", d.dir()]);
    judge(&d);
    ok(&["thaw", d.dir()]);
    let state = d.image.debugfs_of_damaged("stats -h").unwrap();
    assert!(state.contains("not clean"), "{state}");
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn a_server_that_is_killed_leaves_a_clean_volume() {
    let d = Daemon::new("");
    let writers = Writers::new(&d);
    let _frozen = freeze(&d);
    let writers = writers.go();
    all_wait(&d);
    d.kill9();
    for writer in writers {
        writer.join().unwrap().unwrap_err();
    }
    // Nothing can be lost.
    ok(&["umount", d.dir()]);
    judge(&d);
    d.mount("");
    assert_eq!(std::fs::read(d.file("writer-1")).unwrap(), b"before");
    assert!(json(&["stat", d.dir()])["frozen"].is_null());
    ok(&["umount", d.dir()]);
}

#[test]
fn an_unmount_thaws() {
    let d = Daemon::new("");
    std::fs::write(d.file("file"), b"x").unwrap();
    ok(&["freeze", d.dir()]);
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
    // A lazy unmount and a signal thaw the volume, because nobody could thaw it afterwards.
    for lazy in [true, false] {
        d.mount("");
        let writers = Writers::new(&d);
        let _frozen = freeze(&d);
        let writers = writers.go();
        all_wait(&d);
        match lazy {
            true => drop(ok(&["umount", "-l", d.dir()])),
            false => d.signal(Signal::TERM),
        }
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
        if !lazy && mount::is_mounted(&d.dir) {
            // The signal came while writers used the mount.
            wait_until("the unmount", || {
                !mount::is_mounted(&d.dir)
                    || crate::common::daemon::stetfs(&["umount", d.dir()])
                        .status
                        .success()
            });
        }
        wait_until("that the volume is closed", || {
            crate::common::daemon::stetfs(&["info", d.image()])
                .status
                .success()
                && !String::from_utf8_lossy(
                    &crate::common::daemon::stetfs(&["info", d.image()]).stdout,
                )
                .contains("in use")
        });
    }
    wait_until("a clean volume", || d.image.e2fsck_fn().is_ok());
}

#[test]
fn files_without_a_name_stay() {
    let d = Daemon::new("opens=handles");
    for when in ["after the thaw", "while frozen"] {
        let file = File::create_new(d.file("nameless")).unwrap();
        file.write_all_at(&vec![5; 8 << 20], 0).unwrap();
        std::fs::remove_file(d.file("nameless")).unwrap();
        let free = || rustix::fs::statfs(&d.dir).unwrap().f_bfree;
        let used = free();
        ok(&["freeze", d.dir()]);
        let before = std::fs::read(d.image.path()).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, 4 << 20).unwrap();
        assert_eq!(byte, [5]);
        if when == "while frozen" {
            drop(file);
            assert_eq!(free(), used);
            assert!(before == std::fs::read(d.image.path()).unwrap());
            ok(&["thaw", d.dir()]);
        } else {
            // The state of a copy: the file is deleted when the copy is opened.
            ok(&["thaw", d.dir()]);
            drop(file);
        }
        wait_until(format!("that it is deleted {when}"), || free() > used);
    }
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn access_times_stay() {
    let d = Daemon::new("strictatime");
    std::fs::write(d.file("file"), b"x").unwrap();
    ok(&["freeze", d.dir()]);
    let before = std::fs::read(d.image.path()).unwrap();
    read(&d.file("file"));
    rustix::fs::syncfs(File::open(&d.dir).unwrap()).unwrap();
    // Longer than the commit interval.
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert!(before == std::fs::read(d.image.path()).unwrap());
    ok(&["umount", d.dir()]);
}
