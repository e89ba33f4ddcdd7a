//! Tests of mount namespaces (decisions/0025): the server has one of its own, so that it is never
//! the last process of the one in which its volume is mounted; and a process that holds a volume
//! from another namespace is named.
//!
//! A server that is killed as the last process of its mount's namespace hangs in the kernel for
//! good, and sync(2) on the whole machine with it. So no test kills a server before
//! [`assert_apart`] has passed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, Mounter, Scratch, cmd, mount, wait_until};

use crate::common::daemon::{BINARY, Daemon, answer, fails, ok};

/// Serializes the tests: a namespace that one test makes holds the mounts of the others.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn namespace(process: &Path) -> std::io::Result<u64> {
    Ok(fs::metadata(process.join("ns/mnt"))?.ino())
}

fn signal(pid: u32, signal: Signal) {
    // The process may have ended by itself.
    let _ = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal);
}

fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Checks that no thread of the server at `pid` is in the namespace of process `user`, and that its
/// own namespace has neither the volume on `dir` nor another StetFS volume mounted.
#[track_caller]
fn assert_apart(pid: u32, user: u32, dir: &Path) {
    let users = namespace(Path::new(&format!("/proc/{user}"))).unwrap();
    let table = fs::read_to_string(format!("/proc/{user}/mountinfo")).unwrap();
    assert!(table.contains(dir.to_str().unwrap()), "{table}");
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let task = task.unwrap().path();
        let looked =
            namespace(&task).and_then(|n| Ok((n, fs::read_to_string(task.join("mountinfo"))?)));
        let Ok((namespace, table)) = looked else {
            // A kernel worker that has ended.
            assert!(fs::metadata(task.join("ns/mnt")).is_err());
            continue;
        };
        assert_ne!(namespace, users, "{}", task.display());
        assert!(!table.contains("stetfs"), "{}: {table}", task.display());
        assert!(!table.contains("/dev/loop"), "{}: {table}", task.display());
        threads += 1;
    }
    assert!(threads > 4, "{threads} threads serve");
    // No descriptor keeps the namespace either.
    for fd in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let to = fs::read_link(fd.path()).unwrap_or_default();
        assert!(!to.to_string_lossy().starts_with("mnt:"), "{to:?}");
    }
}

const TRANSPORTS: [&str; 2] = ["io_uring=auto", "io_uring=off"];

#[test]
fn the_server_has_a_namespace_without_the_volume() {
    let _alone = alone();
    let own = std::process::id();
    for options in TRANSPORTS {
        let d = Daemon::new(options);
        let pid = u32::try_from(d.pid()).unwrap();
        assert_apart(pid, own, &d.dir);
        // The effect of remounts, which the server makes from there.
        for (option, shown) in [("ro", " ro,"), ("rw,noatime", " rw,noatime ")] {
            let options = format!("remount,{option}");
            ok(&["mount", "-o", &options, d.image(), d.dir()]);
            let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let line = table.lines().find(|l| l.contains(d.dir())).unwrap();
            assert!(line.contains(shown), "{option}: {line}");
        }
        let open = fs::File::create(d.file("open")).unwrap();
        let (code, said) = answer(&["mount", "-o", "remount,ro", d.image(), d.dir()]);
        assert_eq!(code, 4, "{said}");
        drop(open);
        ok(&["stat", d.dir()]);
        d.signal(Signal::TERM);
        wait_until("the unmount", || !mount::is_mounted(&d.dir));
        wait_until("the end of the server", || !is_running(pid));
        d.image.e2fsck_fn().unwrap();
    }
}

/// The file system that holds an image stays in use as long as the image is mounted.
#[test]
fn what_holds_the_image_cannot_be_unmounted() {
    let _alone = alone();
    let host = crate::common::Host::new(64 << 20);
    let image = host.dir.join("image");
    let file = fs::File::create(&image).unwrap();
    file.set_len(32 << 20).unwrap();
    cmd::run(
        Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4"])
            .arg(&image),
    )
    .unwrap();
    drop(file);
    let d = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
    ok(&["mount", image.to_str().unwrap(), d.dir()]);
    let refused = rustix::mount::unmount(&host.dir, rustix::mount::UnmountFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::BUSY));
    ok(&["umount", d.dir()]);
    rustix::mount::unmount(&host.dir, rustix::mount::UnmountFlags::empty()).unwrap();
}

/// Processes in a mount namespace of their own; ended when dropped.
struct Users {
    /// The first of them.
    first: Child,
    out: BufReader<ChildStdout>,
}

impl Users {
    /// Runs `script` with a shell; `$S` is the program.
    fn new(script: &str) -> Users {
        let mut first = Command::new("unshare")
            .args(["-m", "sh", "-ec", script])
            .env("S", BINARY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(first.stdout.take().unwrap());
        Users { first, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// The server's process id, as the script prints it.
    fn server(&mut self) -> u32 {
        let line = self.line();
        let stat: serde_json::Value = serde_json::from_str(&line).unwrap();
        u32::try_from(stat["pid"].as_u64().unwrap()).unwrap()
    }

    /// Ends them by a signal.
    fn kill(&mut self) {
        self.first.kill().unwrap();
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

/// Checks that the image is no longer in use, and is undamaged.
#[track_caller]
fn assert_let_go(d: &Daemon, server: u32) {
    wait_until("the end of the server", || !is_running(server));
    wait_until("the end of the loop device", || {
        !crate::common::loops_of(d.image.path())
    });
    ok(&["recover", d.image()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn a_server_killed_with_the_last_of_its_users_ends() {
    let _alone = alone();
    for options in TRANSPORTS {
        for server_first in [true, false] {
            let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
            let (image, dir) = (d.image(), d.dir());
            let mut users = Users::new(&format!(
                "$S mount -o {options} {image} {dir}; echo a >{dir}/a; $S --json stat {dir}; read end"
            ));
            let server = users.server();
            assert_apart(server, users.first.id(), &d.dir);
            assert!(!mount::is_mounted(&d.dir), "it is theirs alone");
            if server_first {
                signal(server, Signal::KILL);
                users.kill();
            } else {
                users.kill();
                signal(server, Signal::KILL);
            }
            assert_let_go(&d, server);
        }
    }
}

/// The end of the last user is an unmount.
#[test]
fn a_volume_without_users_is_closed() {
    let _alone = alone();
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let (image, dir) = (d.image(), d.dir());
    let mut users = Users::new(&format!(
        "$S mount {image} {dir}; echo kept >{dir}/a; $S --json stat {dir}; read end"
    ));
    let server = users.server();
    assert_apart(server, users.first.id(), &d.dir);
    users.first.stdin.take().unwrap().write_all(b"\n").unwrap();
    wait_until("the end of the server", || !is_running(server));
    d.image.e2fsck_fn().unwrap();
    assert_eq!(d.image.debugfs("cat /a").unwrap(), "kept\n");
}

/// The oldest process of the users' namespace sees the mount elsewhere: it is in a chroot. The
/// server makes its changes through one that sees the mount as it was made.
#[test]
fn changes_pass_by_a_process_in_a_chroot() {
    let _alone = alone();
    const SCRIPT: &str = r#"
import os, signal, subprocess, sys, time
stetfs, image, dir = sys.argv[1:]
subprocess.check_call([stetfs, "mount", image, dir])
chrooted, told = os.pipe()
child = os.fork()
if child == 0:
    os.read(chrooted, 1)
    import json
    pid = json.loads(subprocess.check_output([stetfs, "--json", "stat", dir]))["pid"]
    subprocess.check_call([stetfs, "mount", "-o", "remount,ro", image, dir])
    def shown():
        return [line for line in open("/proc/self/mountinfo") if f" {dir} " in line]
    print("read-only:", all(" ro," in line for line in shown()), flush=True)
    os.kill(pid, signal.SIGTERM)
    end = time.time() + 10
    while shown() and time.time() < end:
        time.sleep(0.01)
    print("mounts:", len(shown()), flush=True)
    os._exit(0)
os.chroot(os.path.dirname(dir))
os.write(told, b".")
sys.exit(os.waitpid(child, 0)[1])
"#;
    let d = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
    let mut command = Command::new("unshare");
    command.args(["-m", "python3", "-c", SCRIPT, BINARY, d.image(), d.dir()]);
    let said = cmd::run(&mut command).unwrap();
    assert_eq!(said, "read-only: True\nmounts: 0\n");
    wait_until("the end of the loop device", || {
        !crate::common::loops_of(d.image.path())
    });
    d.image.e2fsck_fn().unwrap();
}

/// In the foreground the command stays with the users, as a service or a container needs it, and
/// the server ends with it.
#[test]
fn a_foreground_mount_is_the_last_of_its_namespace() {
    let _alone = alone();
    for options in TRANSPORTS {
        for (namespaces, how) in [
            (&["-m"][..], Signal::TERM),
            (&["-m"], Signal::KILL),
            // The first process of a container.
            (&["-m", "-p", "-f", "--mount-proc"], Signal::KILL),
        ] {
            let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
            let mut outer = Command::new("unshare")
                .args(namespaces)
                .args([BINARY, "mount", "-f", "-o", options, d.image(), d.dir()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let command = || match namespaces.len() {
                1 => Some(outer.id()),
                _ => cmd::child_of(outer.id()),
            };
            wait_until("the mount", || {
                command().is_some_and(|pid| {
                    fs::read_to_string(format!("/proc/{pid}/mountinfo"))
                        .is_ok_and(|table| table.contains(d.dir()))
                })
            });
            let command = command().unwrap();
            // Answered once the server serves.
            fs::metadata(format!("/proc/{command}/root{}", d.dir())).unwrap();
            let server = cmd::child_of(command).unwrap();
            assert_apart(server, command, &d.dir);
            signal(command, how);
            let ended = outer.wait().unwrap();
            assert_eq!(ended.success(), how == Signal::TERM, "{how:?}: {ended}");
            assert_let_go(&d, server);
        }
    }
}

/// A process in a namespace with copies of the present mounts; ended when dropped.
struct Holder(Child);

impl Holder {
    fn new(d: &Daemon) -> Holder {
        let sleep = Command::new("unshare").args(["-m", "sleep", "600"]).spawn();
        let this = Holder(sleep.unwrap());
        wait_until("the copy", || {
            let process = format!("/proc/{}", this.0.id());
            let name = fs::read_to_string(format!("{process}/comm")).unwrap_or_default();
            name.trim() == "sleep"
        });
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", this.0.id())).unwrap();
        assert!(table.contains(d.dir()));
        this
    }

    /// The words of an error about it.
    fn named(&self) -> String {
        format!("process {} (sleep)", self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_holds_a_volume_from_another_namespace_is_named() {
    let _alone = alone();
    let d = Daemon::new("");
    let server = u32::try_from(d.pid()).unwrap();
    let holder = Holder::new(&d);
    let words = [&*holder.named(), "nsenter -t", d.dir()];
    fails(&["umount", d.dir()], 4, &words);
    assert!(!mount::is_mounted(&d.dir), "it is taken down here");
    assert!(is_running(server), "it is served there");
    fails(&["recover", d.image()], 4, &["in use"]);
    drop(holder);
    wait_until("the end of the server", || !is_running(server));
    d.image.e2fsck_fn().unwrap();
}

/// The server that mounts it has already left its user's namespace.
#[test]
fn a_mount_of_the_kernels_is_named_as_the_user_sees_it() {
    let _alone = alone();
    let d = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
    let kernels = Mounter::ext4("").mount(d.image.path()).unwrap();
    let place = kernels.path().to_str().unwrap();
    let words = ["the kernel, mounted on", place];
    fails(&["mount", d.image(), d.dir()], 4, &words);
    fails(&["recover", d.image()], 4, &words);
}

#[test]
fn who_holds_the_rest_of_a_killed_server_is_named() {
    let _alone = alone();
    let d = Daemon::new("");
    let server = u32::try_from(d.pid()).unwrap();
    let holder = Holder::new(&d);
    assert_apart(server, std::process::id(), &d.dir);
    assert_apart(server, holder.0.id(), &d.dir);
    d.kill9();
    let words = ["was gone", &*holder.named(), "nsenter -t"];
    fails(&["umount", d.dir()], 6, &words);
    let words = ["/dev/loop", &*holder.named(), "nsenter -t"];
    fails(&["recover", d.image()], 4, &words);
    drop(holder);
    assert_let_go(&d, server);
}

/// The kernel's file for requests of a wake-up latency.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// In a container the kernel's file may be missing.
#[test]
fn low_latency_on_says_where_it_cannot_be_and_auto_goes_on() {
    let _alone = alone();
    let d = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
    // A socket can be bound over the device, and cannot be opened.
    let run = |options: &str, then: &str| {
        let script = format!(
            r#"python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$2/../s"
               mount --bind "$2/../s" {LATENCY}
               "$0" mount -o {options} "$1" "$2"
               {then}"#
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-ec", &script, BINARY, d.image(), d.dir()]);
        let _ = fs::remove_file(d.dir.with_file_name("s"));
        cmd::run(&mut command).map_err(|e| e.to_string())
    };
    let refused = run("low_latency=on", "").unwrap_err();
    assert!(
        refused.contains(LATENCY) && refused.contains("low_latency=auto"),
        "{refused}"
    );
    let then = r#""$0" --json stat "$2"; echo; touch "$2/f"; "$0" umount "$2""#;
    let shown = run("low_latency=auto", then).unwrap();
    let shown: Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    let low = &shown["connection"]["low_latency"];
    assert!(low["why_not"].as_str().unwrap().contains(LATENCY), "{low}");
    assert_ne!(low["by"], LATENCY);
    d.image.e2fsck_fn().unwrap();
}

/// An overlay of its directories has mounts of it that no table shows, and that umount(2) leaves.
#[test]
fn umount_does_not_wait_for_an_overlay() {
    let _alone = alone();
    let d = Daemon::new("");
    let pid = u32::try_from(d.pid()).unwrap();
    for dir in ["low", "up", "work"] {
        fs::create_dir(d.file(dir)).unwrap();
    }
    fs::write(d.file("low/file"), b"below").unwrap();
    let scratch = Scratch::new("overlay").unwrap();
    let over = scratch.path().join("over");
    fs::create_dir(&over).unwrap();
    let part = |name: &str| d.file(name).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        part("low"),
        part("up"),
        part("work")
    );
    let mut overlay = Command::new("mount");
    overlay.args(["-t", "overlay", "overlay", "-o", &options]);
    cmd::run(overlay.arg(&over)).unwrap();
    let down = mount::TakenDown(&over);
    assert_eq!(fs::read(over.join("file")).unwrap(), b"below");
    fs::write(over.join("file"), b"above").unwrap();
    fails(&["umount", d.dir()], 4, &["still in use", "an overlay"]);
    fs::write(over.join("later"), b"goes on").unwrap();
    drop(down);
    wait_until("the end of the server", || !is_running(pid));
    d.image.e2fsck_fn().unwrap();
    for (file, content) in [
        ("low/file", "below"),
        ("up/file", "above"),
        ("up/later", "goes on"),
    ] {
        assert_eq!(ok(&["cat", &format!("{}:/{file}", d.image())]), content);
    }
}
