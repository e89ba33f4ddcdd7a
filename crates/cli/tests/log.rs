//! Tests of a server's log: each line names the volume and the process, the life of the volume is
//! in it, and it is somewhere whatever the machine lacks. Those on devices that fail are in
//! `crates/lab/tests/log_file.rs`.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use stetfs_testkit::{Image, Mkfs, cmd, wait_until};

use crate::common::daemon::{BINARY, Daemon, fails, ok};

/// An image that is not mounted.
fn unmounted(label: &str) -> Daemon {
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    cmd::run(
        Command::new("tune2fs")
            .args(["-L", label])
            .arg(image.path()),
    )
    .unwrap();
    Daemon::unmounted(image)
}

fn beside(d: &Daemon, name: &str) -> String {
    let path = d.dir.with_file_name(name);
    path.to_str().unwrap().to_owned()
}

/// The level and the message of each line, of which all must name this process and this volume.
#[track_caller]
fn lines_of<'a>(said: &'a str, pid: i32, volume: &str) -> Vec<(&'a str, &'a str)> {
    let head = format!("stetfs[{pid}]: {volume}: ");
    let parts = said.lines().map(|line| {
        let Some((stamp, text)) = line.split_once(&head) else {
            panic!("{head:?} is not in {line:?}");
        };
        (stamp.split_whitespace().nth(1).unwrap(), text)
    });
    parts.collect()
}

#[track_caller]
fn assert_lines(found: &[(&str, &str)], wanted: &[(&str, &str)]) {
    let is = |found: &(&str, &str), wanted: &(&str, &str)| {
        found.0 == wanted.0 && found.1.contains(wanted.1)
    };
    let mut rest = found.iter();
    for line in wanted {
        assert!(rest.any(|found| is(found, line)), "{line:?} in {found:#?}");
    }
}

fn take(log: &str) -> String {
    let said = fs::read_to_string(log).unwrap();
    fs::write(log, "").unwrap();
    said
}

#[test]
fn mounts_recoveries_remounts_and_unmounts_are_in_it() {
    for (label, name) in [("", ""), ("of two words", "of two words (")] {
        let d = unmounted(label);
        let log = beside(&d, "log");
        let volume = match name {
            "" => d.image().to_owned(),
            name => format!("{name}{})", d.image()),
        };
        let option = format!("commit=7,log_file={log}");
        d.mount(&option);
        let first = d.pid();
        fs::write(d.file("a"), "b").unwrap();
        File::open(d.file("a")).unwrap().sync_all().unwrap();
        d.crash();
        let mounted = format!("mounted on {}: commit=7", d.dir());
        // The way there is told, too, but the label is not known before the volume is read.
        let said = take(&log);
        let lines = lines_of(&said, first, &volume);
        assert_lines(&lines, &[("INFO", &mounted)]);

        d.mount(&option);
        let second = d.pid();
        ok(&["mount", "-o", "remount,commit=9", d.image(), d.dir()]);
        let nvm = ["mount", "-o", "remount,nvm=/no", d.image(), d.dir()];
        fails(&nvm, 1, &["cannot change"]);
        ok(&["umount", d.dir()]);
        let said = take(&log);
        let lines = lines_of(&said, second, &volume);
        let wanted = [
            ("INFO", "recovered the journal in 0."),
            ("INFO", &mounted),
            ("INFO", "remounted: remount,commit=9"),
            (
                "WARN",
                "not remounted (remount,nvm=/no): a remount cannot change",
            ),
            ("INFO", &*format!("unmounted from {}", d.dir())),
        ];
        assert_lines(&lines, &wanted);
        let recovered = lines.iter().find(|(_, text)| text.contains("recovered"));
        let counted = recovered.unwrap().1.split_once(" s: ").unwrap().1;
        let words: Vec<&str> = counted
            .split([' ', ','])
            .filter(|w| !w.is_empty())
            .collect();
        let [n, "transactions", blocks, "blocks", "0", "records", ..] = words[..] else {
            panic!("{counted}");
        };
        assert!(
            n.parse::<u64>().unwrap() > 0 && blocks.parse::<u64>().unwrap() > 0,
            "{counted}"
        );
    }
}

/// Records of files, which a recovery applies, are counted.
#[test]
fn a_recovery_counts_records() {
    let d = unmounted("");
    let log = beside(&d, "log");
    let option = format!("journal=ijournal,log_file={log}");
    d.mount(&option);
    fs::write(d.file("a"), "b").unwrap();
    File::open(d.file("a")).unwrap().sync_all().unwrap();
    d.crash();
    take(&log);
    d.mount(&option);
    let pid = d.pid();
    ok(&["umount", d.dir()]);
    let said = take(&log);
    assert_lines(
        &lines_of(&said, pid, d.image()),
        &[("INFO", " 1 records, ")],
    );
}

#[test]
fn a_mount_that_fails_is_in_it() {
    let d = unmounted("");
    let log = beside(&d, "log");
    fs::write(d.image.path(), vec![0; 1 << 20]).unwrap();
    let option = format!("log_file={log}");
    fails(&["mount", "-o", &option, d.image(), d.dir()], 5, &["not"]);
    let said = take(&log);
    assert!(said.contains(" ERROR stetfs["), "{said}");
    assert!(said.contains(d.image()), "{said}");
}

/// Mounts with one file are told apart, also where a label tries to look like another line.
#[test]
fn mounts_that_share_a_file_are_told_apart() {
    let (a, b) = (unmounted(""), unmounted("x\nstetfs[1]: y"));
    let log = beside(&a, "log");
    let option = format!("log_file={log}");
    let mut wanted = Vec::new();
    for (d, volume) in [
        (&a, a.image().to_owned()),
        (&b, format!("x\\nstetfs[1]: y ({})", b.image())),
    ] {
        d.mount(&option);
        wanted.push(format!("stetfs[{}]: {volume}: ", d.pid()));
    }
    for d in [&a, &b] {
        ok(&["umount", d.dir()]);
    }
    let said = take(&log);
    for head in &wanted {
        let lines = said.lines().filter(|line| line.contains(head));
        assert_eq!(lines.count(), 2, "{head} in {said}");
    }
    assert!(said.lines().all(|line| line.starts_with("20")), "{said}");
}

/// Without a log file, in the foreground: standard error.
#[test]
fn in_the_foreground_it_is_on_standard_error() {
    let d = unmounted("");
    let said = File::create(beside(&d, "said")).unwrap();
    let mut server = Command::new(BINARY)
        .args(["mount", "-f", d.image(), d.dir()])
        .stderr(said)
        .spawn()
        .unwrap();
    let log = beside(&d, "said");
    wait_until("the mount", || {
        fs::read_to_string(&log).is_ok_and(|said| said.contains("mounted on"))
    });
    let pid = d.pid();
    let stay = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(stay, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    let said = fs::read_to_string(beside(&d, "said")).unwrap();
    let wanted = [
        ("INFO", "mounted on"),
        ("INFO", "SIGTERM"),
        ("INFO", "unmounted from"),
    ];
    assert_lines(&lines_of(&said, pid, d.image()), &wanted);
}

/// Makes a `/dev` of its own, without a syslog, then runs `script`. `$S` is the program, `$1` the
/// image, `$2` the directory, `$3` a directory to work in.
fn apart(d: &Daemon, script: &str) -> String {
    let dev = "mkdir $3/dev; mount -t tmpfs dev $3/dev; cd /dev; \
        cp -a null zero full random urandom fuse kmsg loop* $3/dev; cd /; mount --bind $3/dev /dev";
    let script = format!("{dev}; {script}");
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-ec", &script, "sh", d.image(), d.dir()]);
    shell.arg(d.dir.parent().unwrap()).env("S", BINARY);
    cmd::run(&mut shell).unwrap()
}

/// The kernel's log from now on.
struct KernelLog(File);

impl KernelLog {
    fn from_now() -> KernelLog {
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut file = file.open("/dev/kmsg").unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        KernelLog(file)
    }

    /// The records about a volume: their priorities, and their texts.
    fn about(&mut self, volume: &str) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(n) => {
                    let record = String::from_utf8_lossy(&record[..n]);
                    let (head, text) = record.split_once(';').unwrap();
                    let text = text.lines().next().unwrap_or_default();
                    if text.contains(volume) {
                        let (rank, _) = head.split_once(',').unwrap();
                        found.push((rank.parse().unwrap(), text.to_owned()));
                    }
                }
                // Records that were overwritten meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return found,
            }
        }
    }
}

const MOUNT: &str = "$S mount $1 $2";
const UMOUNT: &str = "$S umount $2";

#[test]
fn a_daemon_tells_syslog() {
    let d = unmounted("");
    let path = beside(&d, "syslog");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut kernel = KernelLog::from_now();
    apart(&d, &format!("ln -s {path} /dev/log; {MOUNT}; {UMOUNT}"));
    for word in ["mounted on", "unmounted from"] {
        let mut line = [0; 4096];
        let n = socket.recv(&mut line).unwrap();
        let line = String::from_utf8_lossy(&line[..n]);
        assert!(line.starts_with("<30>stetfs["), "{line}");
        assert!(
            line.contains(&format!("]: {}: ", d.image())) && line.contains(word),
            "{line}"
        );
    }
    assert_eq!(kernel.about(d.image()), [], "it is not told twice");
}

/// A syslog that reads nothing any more stops no request.
#[test]
fn a_syslog_that_is_stuck_is_passed_by() {
    let d = unmounted("");
    let path = beside(&d, "syslog");
    let _socket = UnixDatagram::bind(&path).unwrap();
    // The queue of a socket takes a bounded number of messages.
    let full = UnixDatagram::unbound().unwrap();
    full.connect(&path).unwrap();
    full.set_nonblocking(true).unwrap();
    while full.send(b"<30>other").is_ok() {}
    let mut kernel = KernelLog::from_now();
    apart(&d, &format!("ln -s {path} /dev/log; {MOUNT}; {UMOUNT}"));
    let found = kernel.about(d.image());
    assert_eq!(found.len(), 2, "{found:?}");
}

/// A syslog that ends takes no line with it.
#[test]
fn a_syslog_that_ends_is_passed_by() {
    let d = unmounted("");
    let (path, mounted) = (beside(&d, "syslog"), beside(&d, "mounted"));
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut kernel = KernelLog::from_now();
    let wait = format!("touch {mounted}; while [ -e {mounted} ]; do sleep 0.1; done");
    let script = format!("ln -s {path} /dev/log; {MOUNT}; {wait}; {UMOUNT}");
    std::thread::scope(|scope| {
        let script = scope.spawn(|| apart(&d, &script));
        wait_until("the mount", || Path::new(&mounted).exists());
        drop(socket);
        fs::remove_file(&mounted).unwrap();
        script.join().unwrap();
    });
    let found = kernel.about(d.image());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.contains("unmounted from"), "{found:?}");
}

/// Standard error that is a file stays the daemon's.
#[test]
fn without_syslog_it_is_in_the_file_that_is_standard_error() {
    let d = unmounted("");
    let said = apart(
        &d,
        &format!("{MOUNT} 2>$3/said; $S --json stat $2; {UMOUNT}"),
    );
    let stat: serde_json::Value = serde_json::from_str(&said).unwrap();
    let pid = i32::try_from(stat["pid"].as_i64().unwrap()).unwrap();
    let said = fs::read_to_string(beside(&d, "said")).unwrap();
    let wanted = [("INFO", "mounted on"), ("INFO", "unmounted from")];
    assert_lines(&lines_of(&said, pid, d.image()), &wanted);
}

/// Standard error that is a pipe or a terminal is let go: the kernel's log has the lines.
#[test]
fn without_syslog_it_is_in_the_kernels_log() {
    let d = unmounted("");
    let mut kernel = KernelLog::from_now();
    apart(&d, &format!("{MOUNT}; {UMOUNT}"));
    let found = kernel.about(d.image());
    let words = ["mounted on", "unmounted from"];
    for ((rank, text), word) in found.iter().zip(words) {
        // Facility daemon, severity info.
        assert_eq!(*rank, 30, "{text}");
        assert!(text.starts_with("stetfs[") && text.contains(word), "{text}");
    }
    assert_eq!(found.len(), words.len(), "{found:?}");
}

/// A file beside the control sockets has the lines if the kernel's log cannot be written, as in
/// many containers.
#[test]
fn without_all_that_it_is_beside_the_control_sockets() {
    for kmsg in [
        "rm /dev/kmsg",
        "rm /dev/kmsg; ln -s null /dev/kmsg",
        "cp -a /dev/null /dev/kmsg",
    ] {
        let d = unmounted("");
        apart(&d, &format!("{kmsg}; {MOUNT}; {UMOUNT}"));
        let said = fs::read_to_string("/run/stetfs/log").unwrap();
        let lines = said.lines().filter(|line| line.contains(d.image()));
        assert_eq!(lines.count(), 2, "{kmsg}: {said}");
    }
}

/// A mount whose messages have no place says so.
#[test]
fn without_any_place_the_user_is_told() {
    let d = unmounted("");
    let run = "rm /dev/kmsg; mkdir $3/run; mount -t tmpfs -o ro run /run";
    let mount = format!("{run}; {MOUNT} 2>&1; {UMOUNT} 2>&1");
    let said = apart(&d, &mount);
    assert!(said.contains("log_file="), "{said}");
}
