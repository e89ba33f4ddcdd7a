//! What the server of a mount gives away (decisions/0028): it plays one that was taken over, and
//! everything it tries is refused, as root and as a user; while the mount does all that it should.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use stetfs_testkit::{Image, Mkfs, Scratch, cmd, mount, wait_until};

use crate::common::daemon::{BINARY, Daemon, fails, json as said, ok};

/// A process that may be bothered.
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

/// Where a server taken over tries its things: all of it belongs to `uid`.
fn playground(dir: &Path, uid: u32) {
    fs::create_dir_all(dir.join("there")).unwrap();
    for file in ["secret", "gone"] {
        fs::write(dir.join(file), "x").unwrap();
    }
    for name in ["", "there", "secret", "gone"] {
        std::os::unix::fs::chown(dir.join(name), Some(uid), Some(uid)).unwrap();
    }
}

/// Has the server at `socket` try everything: the errno of each.
fn try_all(socket: &Path, dir: &Path, uid: u32) -> BTreeMap<String, i32> {
    let victim = Victim::new(uid);
    // Until it is the user's.
    wait_until("the user", || {
        let status = fs::read_to_string(format!("/proc/{}/status", victim.0.id())).unwrap();
        status.contains(&format!("\nUid:\t{uid}\t{uid}\t"))
    });
    let mut stream = UnixStream::connect(socket).unwrap();
    let request = json!({ "op": "taken over", "pid": victim.0.id(), "dir": dir });
    writeln!(stream, "{request}").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    let tried = answer["tried"].as_object();
    let tried = tried.unwrap_or_else(|| panic!("{answer}"));
    let each = tried.iter();
    each.map(|(name, errno)| {
        (
            name.clone(),
            i32::try_from(errno.as_i64().unwrap()).unwrap(),
        )
    })
    .collect()
}

/// The socket of the mount on `dir`.
fn socket(run: &Path, dir: &Path) -> std::path::PathBuf {
    let dev = fs::metadata(dir)
        .map(|m| std::os::unix::fs::MetadataExt::dev(&m))
        .unwrap();
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    run.join(format!("{major}-{minor}.sock"))
}

#[track_caller]
fn assert_refused(tried: &BTreeMap<String, i32>) {
    assert!(tried.len() >= 18, "{tried:?}");
    let let_through: Vec<_> = tried
        .iter()
        .filter(|(_, errno)| ![libc::EPERM, libc::EACCES].contains(errno))
        .collect();
    assert!(let_through.is_empty(), "{let_through:?} of {tried:?}");
}

fn status(pid: i64, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    // A worker of the kernel's may have ended.
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
        playground(scratch.path(), 0);
        let d = Daemon::new(options);
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
        // Of each thread, IPC_LOCK alone.
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
        assert_refused(&try_all(
            &socket(Path::new("/run/stetfs"), &d.dir),
            scratch.path(),
            0,
        ));
        let flags = || {
            let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let line = table.lines().find(|l| l.contains(d.dir())).unwrap();
            line.split(' ').nth(5).unwrap().to_owned()
        };
        // It had them changed, but for what protects others.
        assert_eq!(flags(), "rw,nosuid,nodev");
        // It works as before.
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

/// To ask who calls takes longer than most requests: `tar -x`, which gives each file its owner,
/// took nearly a quarter of its time for it.
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
    // It is asked where something depends on it.
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o2755)).unwrap();
    std::os::unix::fs::chown(&file, Some(1000), Some(1000)).unwrap();
    assert!(questions() > before);
}

/// What is tried above can be done where nothing is given away.
#[test]
fn without_a_sandbox_it_could_do_everything() {
    let scratch = Scratch::new("sandbox").unwrap();
    playground(scratch.path(), 0);
    let d = Daemon::new("sandbox=off");
    assert_eq!(
        said(&["stat", d.dir()])["sandbox"],
        json!({ "option": "off", "no_new_privileges": false })
    );
    let tried = try_all(&socket(Path::new("/run/stetfs"), &d.dir), scratch.path(), 0);
    for (name, errno) in &tried {
        // Nobody is there.
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

/// The helper is gone: the server says so, and goes on; whoever else may takes the mount down.
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

/// A user's mount: where he may not open `/dev/fuse` he is told, for fusermount3 opens it with his
/// rights.
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
    playground(&path("play"), USER);
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
    let sockets: Vec<_> = sockets.map(|entry| entry.path()).collect();
    let [socket] = &sockets[..] else {
        panic!("{sockets:?}");
    };
    assert_refused(&try_all(socket, &path("play"), USER));
    // By fusermount3, which this server could not start.
    let mut input = shell.stdin.take().unwrap();
    writeln!(input, "{}", shown["pid"]).unwrap();
    assert!(shell.wait().unwrap().success());
    let mut fsck = Command::new("e2fsck");
    cmd::run(fsck.arg("-fn").arg(path("image"))).unwrap();
}
