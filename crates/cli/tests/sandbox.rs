//! Tests of the sandbox of a mount's server (decisions/0028): the server acts as if taken over, and
//! everything it tries is refused, as root and as a user; while the mount works in full.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::{Image, Mkfs, Scratch, cmd, mount, wait_until};

use crate::common::daemon::{BINARY, Daemon, fails, json as said, ok};
use crate::nbd::server::{Place, Restarted};

/// A process that a test may signal or trace.
struct Victim(Child);

impl Victim {
    fn new(uid: u32) -> Victim {
        let mut command = Command::new("setpriv");
        let id = uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        Victim(command.args(["sleep", "600"]).spawn().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The targets of the attempts of a taken-over server; all of them belong to `uid`.
struct Playground {
    dir: PathBuf,
    victim: Victim,
    /// Listeners at the socket `control` in it, and at an abstract socket of its name.
    _listeners: [UnixListener; 2],
}

impl Playground {
    fn new(dir: &Path, uid: u32) -> Playground {
        fs::create_dir_all(dir.join("there")).unwrap();
        for file in ["secret", "gone"] {
            fs::write(dir.join(file), "x").unwrap();
        }
        let _ = fs::remove_file(dir.join("control"));
        let control = UnixListener::bind(dir.join("control")).unwrap();
        let name = SocketAddr::from_abstract_name(dir.as_os_str().as_bytes()).unwrap();
        for name in ["", "there", "secret", "gone", "control"] {
            std::os::unix::fs::chown(dir.join(name), Some(uid), Some(uid)).unwrap();
        }
        let victim = Victim::new(uid);
        // Until it belongs to the user.
        wait_until("the user", || {
            let status = fs::read_to_string(format!("/proc/{}/status", victim.0.id())).unwrap();
            status.contains(&format!("\nUid:\t{uid}\t{uid}\t"))
        });
        // A child of another test may still hold a copy of an earlier one.
        let mut other = None;
        wait_until("the name to be free", || {
            other = UnixListener::bind_addr(&name).ok();
            other.is_some()
        });
        Playground {
            dir: dir.to_owned(),
            victim,
            _listeners: [control, other.unwrap()],
        }
    }

    /// A control socket without a mount.
    fn control(&self) -> PathBuf {
        self.dir.join("control")
    }

    /// Makes the server at `socket` try everything, with `other` as the control socket of another
    /// mount; returns the errno of each attempt.
    fn try_all(&self, socket: &Path, other: &Path) -> BTreeMap<String, i32> {
        let mut stream = UnixStream::connect(socket).unwrap();
        let pid = self.victim.0.id();
        let request = json!({ "op": "taken over", "pid": pid, "dir": self.dir, "other": other });
        writeln!(stream, "{request}").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        let tried = answer["tried"].as_object();
        let tried = tried.unwrap_or_else(|| panic!("{answer}"));
        let errno = |errno: &Value| i32::try_from(errno.as_i64().unwrap()).unwrap();
        tried
            .iter()
            .map(|(name, e)| (name.clone(), errno(e)))
            .collect()
    }
}

/// The socket of the mount on `dir`.
fn socket(run: &Path, dir: &Path) -> std::path::PathBuf {
    let dev = fs::metadata(dir)
        .map(|m| std::os::unix::fs::MetadataExt::dev(&m))
        .unwrap();
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    run.join(format!("{major}-{minor}.sock"))
}

/// Without Landlock nothing keeps the server from these: files of its user, by their names.
const FILES: [&str; 4] = ["read", "write", "create", "list"];

#[track_caller]
fn assert_refused(tried: &BTreeMap<String, i32>, but: &[&str]) {
    assert!(tried.len() >= 23, "{tried:?}");
    let let_through: Vec<_> = tried
        .iter()
        .filter(|(name, errno)| {
            !but.contains(&name.as_str()) && ![libc::EPERM, libc::EACCES].contains(errno)
        })
        .collect();
    assert!(let_through.is_empty(), "{let_through:?} of {tried:?}");
}

fn status(pid: i64, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    // A kernel worker may have ended.
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let value = |text: String| {
        let line = text.lines().find_map(|l| l.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    };
    texts.map(value).collect()
}

#[test]
fn a_server_of_root_that_is_taken_over_has_nothing() {
    let scratch = Scratch::new("sandbox").unwrap();
    for options in [
        "sandbox=on,nosuid,nodev",
        "sandbox=on,nosuid,nodev,io_uring=off,low_latency=off",
    ] {
        let play = Playground::new(scratch.path(), 0);
        let d = Daemon::new(options);
        let other = Daemon::new("");
        let shown = said(&["stat", d.dir()]);
        let (pid, sandbox) = (shown["pid"].as_i64().unwrap(), &shown["sandbox"]);
        assert_eq!(sandbox["option"], "on");
        assert_eq!(sandbox["no_new_privileges"], true);
        assert_eq!(sandbox["lacking"], Value::Null, "{sandbox}");
        assert!(sandbox["landlock"].as_str().unwrap().starts_with('V'));
        assert!(
            sandbox["seccomp"]
                .as_str()
                .unwrap()
                .contains("system calls")
        );
        assert!(ok(&["stat", d.dir()]).contains("sandbox:\n"));
        // Each thread has IPC_LOCK only.
        for (field, wanted) in [
            ("CapEff", "0000000000004000"),
            ("CapPrm", "0000000000004000"),
            ("CapBnd", "0000000000000000"),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            let all = status(pid, field);
            assert!(
                all.len() > 4 && all.iter().all(|v| v == wanted),
                "{field}: {all:?}"
            );
        }
        let run = Path::new("/run/stetfs");
        let tried = play.try_all(&socket(run, &d.dir), &socket(run, &other.dir));
        assert_refused(&tried, &[]);
        // The other mount's socket is there.
        assert_eq!(said(&["stat", other.dir()])["frozen"], Value::Null);
        let flags = || {
            let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let line = table.lines().find(|l| l.contains(d.dir())).unwrap();
            line.split(' ').nth(5).unwrap().to_owned()
        };
        // The helper changed them, except those that protect others.
        assert_eq!(flags(), "rw,nosuid,nodev");
        // The mount works as before.
        fs::write(d.file("a"), "b").unwrap();
        fs::File::open(d.file("a")).unwrap().sync_all().unwrap();
        ok(&[
            "mount",
            "-o",
            "remount,noatime,commit=7",
            d.image(),
            d.dir(),
        ]);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|l| l.contains(d.dir())).unwrap();
        assert!(line.contains("noatime"), "{line}");
        let helper = sandbox["helper_pid"].as_i64().unwrap();
        d.signal(rustix::process::Signal::TERM);
        wait_until("the unmount", || !mount::is_mounted(&d.dir));
        for pid in [pid, helper] {
            wait_until("the end of both", || {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
                stat.map_or(true, |stat| stat.contains(") Z "))
            });
        }
        d.image.e2fsck_fn().unwrap();
    }
}

/// Most requests ask the helper nothing. Looking up the caller takes longer than most requests: it
/// took nearly a quarter of the time of `tar -x`, which sets the owner of each file.
#[test]
fn what_everybody_does_asks_the_helper_nothing() {
    let d = Daemon::new("sandbox=on");
    let questions = || {
        let shown = said(&["stat", d.dir()]);
        shown["connection"]["questions"].as_u64().unwrap()
    };
    let (file, moved) = (d.file("file"), d.file("moved"));
    let before = questions();
    for i in 0..20 {
        fs::write(&file, [i; 5000]).unwrap();
        std::os::unix::fs::chown(&file, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let handle = fs::File::options().write(true).open(&file).unwrap();
        handle
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        handle.set_len(100).unwrap();
        handle.sync_all().unwrap();
        assert_eq!(fs::read(&file).unwrap(), [i; 100]);
        fs::rename(&file, &moved).unwrap();
        fs::hard_link(&moved, &file).unwrap();
        fs::remove_file(&moved).unwrap();
        fs::remove_file(&file).unwrap();
    }
    assert_eq!(questions(), before);
    // It is asked where the answer matters.
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o2755)).unwrap();
    std::os::unix::fs::chown(&file, Some(1000), Some(1000)).unwrap();
    assert!(questions() > before);
}

/// The attempts of the other tests succeed without a sandbox.
#[test]
fn without_a_sandbox_it_could_do_everything() {
    let scratch = Scratch::new("sandbox").unwrap();
    let play = Playground::new(scratch.path(), 0);
    let d = Daemon::new("sandbox=off");
    assert_eq!(
        said(&["stat", d.dir()])["sandbox"],
        json!({ "option": "off", "no_new_privileges": false })
    );
    let tried = play.try_all(&socket(Path::new("/run/stetfs"), &d.dir), &play.control());
    for (name, errno) in &tried {
        // No program or listener is there.
        let wanted = match name.as_str() {
            "connect" | "execute" => libc::ENOENT,
            "TCP" => libc::ECONNREFUSED,
            _ => 0,
        };
        assert_eq!(*errno, wanted, "{name}: {tried:?}");
    }
    ok(&["umount", d.dir()]);
}

#[test]
fn what_is_asked_for_must_be_known() {
    let d = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
    let args = ["mount", "-o", "sandbox=maybe", d.image(), d.dir()];
    fails(&args, 1, &["sandbox", "auto, on or off"]);
}

/// After the helper ends the server reports that, and goes on; another user with the right can take
/// the mount down.
#[test]
fn a_server_without_its_helper_goes_on() {
    let d = Daemon::new("");
    let helper = said(&["stat", d.dir()])["sandbox"]["helper_pid"].as_i64();
    let helper = rustix::process::Pid::from_raw(i32::try_from(helper.unwrap()).unwrap());
    rustix::process::kill_process(helper.unwrap(), rustix::process::Signal::KILL).unwrap();
    fs::write(d.file("a"), "b").unwrap();
    fails(
        &["mount", "-o", "remount,ro", d.image(), d.dir()],
        32,
        &["cannot mount on"],
    );
    assert_eq!(fs::read(d.file("a")).unwrap(), b"b");
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}

/// A user's mount. A user without access to `/dev/fuse` gets an error, because fusermount3 opens it
/// with the user's rights.
const USERS: &str = r#"
set -eu
mkdir -m 755 "$T/dev"
mount -t tmpfs -o mode=755 tmpfs "$T/dev"
mknod -m 600 "$T/dev/fuse" c 10 229
mount --bind "$T/dev/fuse" /dev/fuse
export XDG_RUNTIME_DIR="$T/run" HOME="$T"
user="setpriv --reuid 65534 --regid 65534 --clear-groups"
if $user "$S" mount "$I" "$M" 2>"$T/said"; then exit 9; fi
grep -q "chmod a+rw /dev/fuse" "$T/said"
chmod 666 "$T/dev/fuse"
exec $user sh -euc '
    "$S" mount -o sandbox=on "$I" "$M"
    "$S" --json stat "$M"
    read -r go
    kill -TERM "$go"
    for _ in $(seq 200); do grep -q " $M fuse.stetfs" /proc/self/mounts || exit 0; sleep 0.05; done
    exit 1
'
"#;

#[test]
fn a_users_server_that_is_taken_over_has_nothing() {
    const USER: u32 = 65_534;
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    let scratch = Scratch::new("sandbox").unwrap();
    let path = |name: &str| scratch.path().join(name);
    let mode = |name: &str, mode| {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("", 0o755);
    fs::copy(BINARY, path("stetfs")).unwrap();
    mode("stetfs", 0o755);
    fs::copy(image.path(), path("image")).unwrap();
    for name in ["m", "run", "play"] {
        fs::create_dir(path(name)).unwrap();
    }
    for name in ["image", "m", "run"] {
        std::os::unix::fs::chown(path(name), Some(USER), Some(USER)).unwrap();
    }
    let play = Playground::new(&path("play"), USER);
    let mut shell = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", USERS])
        .env("T", scratch.path())
        .env("S", path("stetfs"))
        .env("I", path("image"))
        .env("M", path("m"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(shell.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let shown: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let sandbox = &shown["sandbox"];
    assert_eq!(sandbox["capabilities"], "none", "{sandbox}");
    assert_eq!(sandbox["lacking"], Value::Null, "{sandbox}");
    let sockets = fs::read_dir(path("run/stetfs")).unwrap().flatten();
    let sockets = sockets.map(|entry| entry.path());
    // The log is beside it.
    let sockets: Vec<_> = sockets.filter(|path| !path.ends_with("log")).collect();
    let [socket] = &sockets[..] else {
        panic!("{sockets:?}");
    };
    assert_refused(&play.try_all(socket, &play.control()), &[]);
    // Mounted by fusermount3, which a sandboxed server could not start.
    let mut input = shell.stdin.take().unwrap();
    writeln!(input, "{}", shown["pid"]).unwrap();
    assert!(shell.wait().unwrap().success());
    let mut fsck = Command::new("e2fsck");
    cmd::run(fsck.arg("-fn").arg(path("image"))).unwrap();
}

/// Mounts an image or an export by a separate command, with `env` in its environment.
fn mount_with(source: &str, dir: &Path, options: &str, env: &[(&str, &str)]) {
    let mut command = Command::new(BINARY);
    command.args(["mount", "-o", options, source]).arg(dir);
    cmd::run(command.envs(env.iter().copied())).unwrap();
}

/// Simulates a kernel without Landlock.
const WITHOUT_LANDLOCK: (&str, &str) = ("STETFS_TEST_WITHOUT", "landlock");

/// The control sockets of other mounts can be neither connected to nor removed, whatever the kernel
/// lacks: seccomp prevents it.
#[test]
fn without_landlock_files_alone_are_within_reach() {
    let scratch = Scratch::new("sandbox").unwrap();
    let play = Playground::new(scratch.path(), 0);
    let other = Daemon::new("");
    let d = Daemon::unmounted(Image::make(16 << 20, &Mkfs::new()).unwrap());
    mount_with(d.image(), &d.dir, "sandbox=auto", &[WITHOUT_LANDLOCK]);
    let lacking = said(&["stat", d.dir()])["sandbox"]["lacking"].to_string();
    assert!(lacking.contains("Landlock"), "{lacking}");
    let run = Path::new("/run/stetfs");
    let tried = play.try_all(&socket(run, &d.dir), &socket(run, &other.dir));
    assert_refused(&tried, &FILES);
    ok(&["stat", other.dir()]);
    ok(&["umount", d.dir()]);
    assert!(!socket(run, &other.dir).exists() || tried["remove control"] != 0);
}

/// A taken-over server of a volume on another machine connects to nothing either: the helper does,
/// only to that server, and only after it was lost.
#[test]
fn a_server_of_an_export_that_is_taken_over_connects_to_nothing() {
    let other = Daemon::new("");
    for (tcp, env) in [
        (false, &[][..]),
        (true, &[]),
        (false, &[WITHOUT_LANDLOCK]),
        (true, &[WITHOUT_LANDLOCK]),
    ] {
        let scratch = Scratch::new("sandbox").unwrap();
        let play = Playground::new(scratch.path(), 0);
        let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
        let place = Place::new();
        let server = Restarted::new(&place, &image, tcp);
        let dir = Path::new(place.dir());
        mount_with(&server.address, dir, "nbd_reconnect=30", env);
        let run = Path::new("/run/stetfs");
        let tried = play.try_all(&socket(run, dir), &socket(run, &other.dir));
        let but = if env.is_empty() { &[][..] } else { &FILES };
        assert_refused(&tried, but);
        ok(&["stat", other.dir()]);
        // A taken-over server finds its server again, too.
        for loss in 1..=2 {
            server.kill();
            fs::write(place.file("a"), "b").unwrap();
            fs::File::open(place.file("a")).unwrap().sync_all().unwrap();
            assert_eq!(place.network()["losses"], loss);
        }
        place.umount();
        drop(server);
        image.e2fsck_fn().unwrap();
    }
}

/// Before the mount stands, while the volume is examined, no thread has more privileges than later,
/// and the helper believes no claim about a mount. Debug builds assert that nothing is read before.
#[test]
fn a_server_that_is_taken_over_before_its_mount_stands_has_nothing() {
    let foreign = Scratch::new("foreign").unwrap();
    let other = Daemon::new("");
    let run = Path::new("/run/stetfs");
    let mut tmpfs = Command::new("mount");
    let args = ["-t", "tmpfs", "-o", "ro,nosuid,nodev", "tmpfs"];
    cmd::run(tmpfs.args(args).arg(foreign.path())).unwrap();
    let taken_down = mount::TakenDown(foreign.path());
    let flags_now = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table
            .lines()
            .find(|l| l.contains(foreign.path().to_str().unwrap()));
        line.unwrap().split(' ').nth(5).unwrap().to_owned()
    };
    let before = flags_now();
    let dev = {
        let dev = std::os::unix::fs::MetadataExt::dev(&fs::metadata(foreign.path()).unwrap());
        format!("{}-{}", libc::major(dev), libc::minor(dev))
    };
    let namespace = fs::read_link("/proc/self/ns/mnt").unwrap();
    let namespace: String = namespace
        .to_str()
        .unwrap()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    for (tcp, env) in [
        (None, &[][..]),
        (None, &[WITHOUT_LANDLOCK]),
        (Some(false), &[]),
        (Some(true), &[WITHOUT_LANDLOCK]),
    ] {
        let scratch = Scratch::new("sandbox").unwrap();
        let play = Playground::new(scratch.path(), 0);
        let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
        let place = Place::new();
        let server = tcp.map(|tcp| Restarted::new(&place, &image, tcp));
        let log = place.beside("log");
        let told = format!(
            "{}:{}:{}:{}:{dev}:{namespace}",
            play.victim.0.id(),
            play.dir.display(),
            socket(run, &other.dir).display(),
            foreign.path().display()
        );
        let path = image.path().to_str().unwrap();
        let source = server.as_ref().map_or(path, |server| &server.address);
        let told = [("STETFS_TEST_TAKEN_OVER", told.as_str())];
        let options = format!("log_file={}", log.display());
        mount_with(
            source,
            Path::new(place.dir()),
            &options,
            &[&told[..], env].concat(),
        );
        let said = fs::read_to_string(&log).unwrap();
        let tried: Vec<(String, i32)> = said
            .lines()
            .filter_map(|line| line.split_once("taken over: ")?.1.rsplit_once(": "))
            .map(|(name, errno)| (name.to_owned(), errno.trim().parse().unwrap()))
            .collect();
        let but = if env.is_empty() { &[][..] } else { &FILES };
        // The process of the first look, and then the server.
        let first = tried
            .iter()
            .position(|(name, _)| name == "threads")
            .unwrap();
        let (scout, server) = tried.split_at(first + 1);
        for tried in [scout, server] {
            let tried: BTreeMap<_, _> = tried.iter().cloned().collect();
            assert_refused(&tried, but);
            assert_eq!(tried["threads"], libc::EPERM);
        }
        let remount = ("remount".to_owned(), libc::EPERM);
        assert!(!scout.contains(&remount) && server.contains(&remount));
        assert_eq!(flags_now(), before);
        ok(&["stat", other.dir()]);
        // The mount stands nevertheless.
        fs::write(place.file("a"), "b").unwrap();
        ok(&["stat", place.dir()]);
        place.umount();
        image.e2fsck_fn().unwrap();
    }
    drop(taken_down);
}

/// A device linked by its UUID, as udev does.
struct Linked(PathBuf);

impl Linked {
    fn new(device: &LoopDev) -> Linked {
        let mut blkid = Command::new("blkid");
        blkid.args(["-p", "-s", "UUID", "-o", "value"]);
        let uuid = cmd::run(blkid.arg(device.path())).unwrap();
        let dir = Path::new("/dev/disk/by-uuid");
        fs::create_dir_all(dir).unwrap();
        let link = dir.join(uuid.trim());
        std::os::unix::fs::symlink(device.path(), &link).unwrap();
        Linked(link)
    }

    fn uuid(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A volume may name any device of the machine as its journal: one that is not a journal is not
/// opened for writing.
#[test]
fn what_a_volume_names_is_opened_if_it_is_a_journal() {
    let attach = |image: &Image| LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
    let journal = Image::make(16 << 20, &Mkfs::blocks(4096).feature("journal_dev")).unwrap();
    let journal = attach(&journal);
    let linked = Linked::new(&journal);
    let mkfs = Mkfs::blocks(4096).journal_device(journal.path());
    let d = Daemon::unmounted(Image::make(64 << 20, &mkfs).unwrap());
    d.mount("sandbox=on");
    fs::write(d.file("a"), "b").unwrap();
    ok(&["umount", d.dir()]);
    let other = Image::make(16 << 20, &Mkfs::new()).unwrap();
    let other = attach(&other);
    let named = Linked::new(&other);
    let request = format!("set_super_value journal_uuid {}", named.uuid());
    d.image.debugfs_write(&request).unwrap();
    for sandbox in ["on", "off"] {
        let option = format!("sandbox={sandbox}");
        let args = ["mount", "-o", &option, d.image(), d.dir()];
        fails(&args, 5, &["that is not a journal", "journal_path="]);
    }
    let request = format!("set_super_value journal_uuid {}", linked.uuid());
    d.image.debugfs_write(&request).unwrap();
    d.mount("sandbox=on");
    assert_eq!(fs::read_to_string(d.file("a")).unwrap(), "b");
    ok(&["umount", d.dir()]);
}

/// An unreachable server is reported as that, also in a network without any interface.
#[test]
fn without_a_network_an_export_is_not_there() {
    let place = Place::new();
    for (address, word) in [
        ("nbd://127.0.0.1:10809/", "unreachable"),
        ("nbd://nowhere.invalid/", "nowhere.invalid"),
    ] {
        let mut command = Command::new("unshare");
        command.args(["-n", BINARY, "mount", address, place.dir()]);
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(word), "{said}");
        assert!(said.lines().count() <= 3, "{said}");
    }
}

/// The helper removes the socket of a server that was killed.
#[test]
fn a_killed_server_leaves_no_socket() {
    let d = Daemon::new("");
    let socket = socket(Path::new("/run/stetfs"), &d.dir);
    assert!(socket.exists());
    d.signal(rustix::process::Signal::KILL);
    wait_until("the helper removes it", || !socket.exists());
    fails(&["umount", d.dir()], 6, &["was gone"]);
}
