//! Tests of the connection to the kernel: the negotiated options and how they are shown, the switch
//! of io_uring, keeping processors awake, `noxattr`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::daemon::{BINARY, Daemon, json, ok};
use rustix::fs::FlockOperation;
use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, cmd, wait_until};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
const SWITCH_LOCK: &str = "/run/stetfs/enable_uring.lock";
const LATENCY: &str = "/dev/cpu_dma_latency";

fn connection(d: &Daemon) -> Value {
    json(&["stat", d.dir()])["connection"].take()
}

/// Held by tests that look at the switch or leave it on, because it belongs to the whole machine.
static OF_THE_MACHINE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    OF_THE_MACHINE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// The state of the switch, read under its lock: a mount that holds the lock has it on. `None` if
/// this kernel has no switch.
fn switch() -> Option<String> {
    let before = std::fs::read_to_string(SWITCH).ok()?;
    let Ok(lock) = File::open(SWITCH_LOCK) else {
        return Some(before);
    };
    rustix::fs::flock(&lock, FlockOperation::LockShared).unwrap();
    std::fs::read_to_string(SWITCH).ok()
}

/// The wake-up latency that the kernel keeps to, µs. It differs from the default only while the
/// file is open with a value.
fn allowed_latency() -> i32 {
    let mut bytes = [0; 4];
    File::open(LATENCY).unwrap().read_exact(&mut bytes).unwrap();
    i32::from_ne_bytes(bytes)
}

/// Sends requests one after the other until `end` is set.
fn busy(dir: &Path, end: &AtomicBool) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    File::create(&a).unwrap();
    while !end.load(Ordering::Relaxed) {
        std::fs::rename(&a, &b).unwrap();
        std::fs::rename(&b, &a).unwrap();
    }
}

#[test]
fn what_was_agreed_on_is_shown() {
    let d = Daemon::new("noatime,low_latency=off,io_uring=off,threads=3");
    let shown = connection(&d);
    assert_eq!(shown["transport"], "/dev/fuse");
    assert_eq!(shown["io_uring"], "off");
    assert_eq!(shown["threads"], 3);
    assert_eq!(shown["queues"], 1);
    assert_eq!(shown["max_write"], 1 << 20);
    assert_eq!(shown["low_latency"], serde_json::json!({ "option": "off" }));
    let options = shown["mount_options"].as_array().unwrap();
    assert!(options.contains(&"noatime".into()), "{options:?}");
    let capabilities = &shown["capabilities"];
    assert_eq!(capabilities["posix_acl"], "yes");
    assert_eq!(capabilities["atomic_o_trunc"], "not wanted");
    let human = ok(&["stat", d.dir()]);
    for line in [
        "capabilities:",
        "posix acl",
        "low latency:",
        "mount options",
    ] {
        assert!(human.contains(line), "{line:?} is not in\n{human}");
    }
    ok(&["umount", d.dir()]);
}

#[test]
fn io_uring_by_itself_and_the_switch_as_it_was() {
    let _alone = alone();
    let before = switch();
    let first = Daemon::new("");
    let second = Daemon::new("io_uring=auto");
    assert_eq!(switch(), before, "as it was when mount returns");
    for d in [&first, &second] {
        let shown = connection(d);
        if before.is_some() {
            assert_eq!(shown["transport"], "io_uring", "{shown}");
            assert_eq!(shown["capabilities"]["over_io_uring"], "yes");
            assert!(shown["why_not_io_uring"].is_null());
        } else {
            assert_eq!(shown["transport"], "/dev/fuse");
            assert!(shown["why_not_io_uring"].as_str().unwrap().contains(SWITCH));
        }
        std::fs::write(d.file("f"), "text").unwrap();
        File::open(d.file("f")).unwrap().sync_all().unwrap();
        assert_eq!(std::fs::read_to_string(d.file("f")).unwrap(), "text");
        ok(&["umount", d.dir()]);
        d.image.e2fsck_fn().unwrap();
    }
    assert_eq!(switch(), before);
}

#[test]
fn many_mounts_at_once_leave_the_switch_as_it_was() {
    let _alone = alone();
    let before = switch();
    let all: Vec<Daemon> = (0..6)
        .map(|_| Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap()))
        .collect();
    std::thread::scope(|scope| {
        for d in &all {
            scope.spawn(|| d.mount(""));
        }
    });
    assert_eq!(switch(), before);
    for d in &all {
        std::fs::write(d.file("f"), "text").unwrap();
        if before.is_some() {
            assert_eq!(connection(d)["transport"], "io_uring");
        }
        ok(&["umount", d.dir()]);
    }
}

/// The server is killed at any moment of the mount: if it did not put the switch back, the next
/// server does.
#[test]
fn a_server_killed_while_it_mounts_leaves_the_switch_to_the_next() {
    let _alone = alone();
    let before = switch();
    let next = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
    for step in 0..40 {
        let d = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
        let mut server = Command::new(BINARY)
            .args(["mount", "-f", d.image(), d.dir()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(step * 500));
        server.kill().unwrap();
        server.wait().unwrap();
        stetfs_testkit::mount::detach(&d.dir);
    }
    next.mount("");
    assert_eq!(switch(), before);
    assert_eq!(
        File::open(SWITCH_LOCK).map_or(0, |f| f.metadata().unwrap().len()),
        0
    );
    ok(&["umount", next.dir()]);
}

/// The state that a kill between the two steps leaves, made by hand.
#[test]
fn a_switch_that_was_left_on_is_put_back() {
    let _alone = alone();
    if switch().is_none_or(|now| now.trim() != "N") {
        // The switch cannot be left on.
        return;
    }
    let d = Daemon::new("");
    {
        let mut lock = File::options().write(true).open(SWITCH_LOCK).unwrap();
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
        lock.write_all(b"N\n").unwrap();
        std::fs::write(SWITCH, "Y").unwrap();
    }
    d.crash();
    assert_eq!(switch().unwrap().trim(), "N", "umount of the dead mount");
}

#[test]
fn processors_are_kept_awake_during_bursts_only() {
    let d = Daemon::new("low_latency=on");
    let state = |name: &str| connection(&d)["low_latency"][name].take();
    assert_eq!(state("by"), LATENCY);
    assert_eq!(state("option"), "on");
    let driver = std::fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver");
    let none = driver.is_ok_and(|driver| driver == "none\n");
    assert_eq!(state("no_effect").is_string(), none);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| busy(&d.dir, &end));
        wait_until("the processors are kept awake", || allowed_latency() == 0);
        wait_until("that is shown", || state("held_now") == true);
        let several = std::thread::available_parallelism().unwrap().get() > 1;
        if several && connection(&d)["transport"] == "io_uring" {
            // One client sends requests to one thread, again and again.
            wait_until("a thread looks for the next request", || {
                state("looked_ms").as_u64().unwrap() > 0
            });
        }
        end.store(true, Ordering::Relaxed);
    });
    let ended = Instant::now();
    while state("held_now") == true {
        assert!(ended.elapsed() < Duration::from_secs(1), "held for so long");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(state("times").as_u64().unwrap() >= 1);
    let held = state("held_ms").as_u64().unwrap();
    assert!(held > 0);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        state("held_ms").as_u64().unwrap(),
        held,
        "nothing is done, nothing is held"
    );
    // Other tests may hold it for a while.
    wait_until("the processors may sleep again", || allowed_latency() != 0);
    ok(&["umount", d.dir()]);
}

#[test]
fn a_killed_server_holds_nothing() {
    let _alone = alone();
    let d = Daemon::new("low_latency=on");
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, b) = (d.file("a"), d.file("b"));
            File::create(&a).unwrap();
            while std::fs::rename(&a, &b)
                .and_then(|()| std::fs::rename(&b, &a))
                .is_ok()
            {}
            end.store(true, Ordering::Relaxed);
        });
        wait_until("the processors are kept awake", || allowed_latency() == 0);
        d.kill9();
    });
    assert!(end.load(Ordering::Relaxed));
    wait_until("the processors may sleep again", || allowed_latency() != 0);
    let out = Command::new(BINARY)
        .args(["umount", d.dir()])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(6));
}

/// `cap_net_raw+ep`, as `setcap` writes it.
const CAPABILITY: &str = "0x0100000200200000000000000000000000000000";

#[test]
fn without_xattrs_nothing_of_them_is_seen_and_nothing_is_lost() {
    let d = Daemon::new("");
    let sh = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(&d.dir);
        cmd::run(&mut command).map_err(|e| e.to_string())
    };
    sh(&format!(
        "cp /bin/true program; cp program written; cp program longer
         setfattr -n security.capability -v {CAPABILITY} longer
         setfattr -n security.capability -v {CAPABILITY} program
         setfattr -n security.capability -v {CAPABILITY} written
         setfattr -n user.kept -v 7 program
         mkdir dir; setfacl -d -m u:4242:rwx,o::- dir; touch shared; chmod 600 shared; setfacl -m u:4242:rw shared"
    ))
    .unwrap();
    ok(&["umount", d.dir()]);

    d.mount("noxattr");
    let shown = connection(&d);
    assert_eq!(shown["capabilities"]["posix_acl"], "not wanted");
    for refused in [
        "getfattr -n user.kept program",
        "getfattr -n security.capability program",
        "setfattr -n user.new -v 1 program",
        "setfattr -x user.kept program",
        "setfattr -n system.posix_acl_access -v 0x02000000 shared",
    ] {
        // Twice: first the kernel asks the server, then it remembers the answer.
        for _ in 0..2 {
            let said = sh(refused).unwrap_err();
            assert!(said.contains("not supported"), "{refused}: {said}");
        }
    }
    let list = sh("getfattr -m - -d program 2>&1 || true").unwrap();
    assert!(!list.contains("kept"), "{list}");
    // New files inherit the default ACL of the directory, whatever the umask.
    sh("umask 077; echo x >dir/new; mkdir dir/sub; echo more >>written; fallocate -l 1M longer; chmod 640 shared").unwrap();
    let mode = |name: &str| d.file(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("dir/new"), 0o660);
    assert_eq!(mode("dir/sub"), 0o770);
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();

    d.mount("");
    let acl = |name: &str| sh(&format!("getfacl -ncE --omit-header {name}")).unwrap();
    assert!(
        acl("dir/new").contains("user:4242:rwx"),
        "{}",
        acl("dir/new")
    );
    assert!(
        acl("dir/sub").contains("default:user:4242:rwx"),
        "{}",
        acl("dir/sub")
    );
    let shared = acl("shared");
    assert!(
        shared.contains("user:4242:rw-") && shared.contains("mask::r--"),
        "{shared}"
    );
    assert!(
        sh("getfattr -n user.kept --only-values program")
            .unwrap()
            .contains('7')
    );
    sh("getfattr -n security.capability program").unwrap();
    for changed in ["written", "longer"] {
        let gone = sh(&format!("getfattr -n security.capability {changed}")).unwrap_err();
        assert!(
            gone.contains("No such attribute"),
            "{changed} keeps its capabilities: {gone}"
        );
    }
    ok(&["umount", d.dir()]);
}
