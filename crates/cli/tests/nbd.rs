//! Tests of volumes on real servers of network block devices (nbdkit, qemu-nbd): their limits,
//! servers that fail and come back, and two machines at one volume.

pub(crate) mod server;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::daemon::{answer, fails, json, ok};
use server::{Place, Restarted, Server, address, certificates};
use stetfs_testkit::{Image, Mkfs, cmd, wait_until};

fn image(mkfs: &Mkfs) -> Image {
    Image::make(64 << 20, mkfs).unwrap()
}

/// Writes files, each synced, with known content.
fn work(place: &Place, files: u8) {
    for n in 0..files {
        let mut file = File::create(place.file(&format!("file-{n}"))).unwrap();
        file.write_all(&vec![n; 10_000 + usize::from(n)]).unwrap();
        file.sync_all().unwrap();
    }
}

/// Checks the files on the image, which is not in use.
fn check(image: &Image, files: u8) {
    image.e2fsck_fn().unwrap();
    let at = |n| format!("{}:/file-{n}", image.path().display());
    for n in 0..files {
        let found = crate::common::daemon::stetfs(&["cat", &at(n)]).stdout;
        assert!(found == vec![n; 10_000 + usize::from(n)], "file-{n}");
    }
}

#[test]
fn volumes_on_servers_as_they_are() {
    // Servers with limits: large blocks only, small requests only, one connection, no FUA, no trim;
    // and for each a volume whose blocks do not fit.
    let blocks = ["--filter=blocksize-policy"];
    let large = [
        "blocksize-minimum=4096",
        "blocksize-maximum=64K",
        "blocksize-error-policy=error",
    ];
    for (filters, how, journal, block) in [
        (&[][..], &[][..], "ordered", 4096),
        (&blocks[..], &large[..], "stet", 1024),
        (
            &["--filter=multi-conn"],
            &["multi-conn-mode=disable"],
            "ijournal",
            1024,
        ),
        (&["--filter=fua"], &["fuamode=emulate"], "data", 4096),
        (
            &["--filter=delay"],
            &["wdelay=2ms", "rdelay=1ms"],
            "ldj",
            4096,
        ),
    ] {
        let image = image(&Mkfs::blocks(block));
        let place = Place::new();
        let server = Server::of(&place.beside("s"), &image, filters, how);
        let name = format!("{filters:?} {journal}");
        place.mount(&server.address, &format!("journal={journal}"));
        work(&place, 20);
        let network = place.network();
        let connections = if how.contains(&"multi-conn-mode=disable") {
            1
        } else {
            4
        };
        assert_eq!(network["connections"], connections, "{name}");
        assert_eq!(network["losses"], 0, "{name}");
        place.umount();
        drop(server);
        check(&image, 20);
    }
}

#[test]
fn images_of_qemu_and_partitions() {
    let image = image(&Mkfs::new());
    let place = Place::new();
    let qcow = place.beside("disk.qcow2");
    let args = ["convert", "-f", "raw", "-O", "qcow2"];
    let mut convert = Command::new("qemu-img");
    cmd::run(convert.args(args).arg(image.path()).arg(&qcow)).unwrap();
    let server = Server::qemu(&place.beside("s"), &["-f", "qcow2", qcow.to_str().unwrap()]);
    place.mount(&server.address, "journal=stet");
    work(&place, 10);
    place.umount();
    // Without a mount; the path in the volume follows the address.
    let listed = ok(&["ls", &format!("{}:/", server.address)]);
    assert!(listed.contains("file-9"), "{listed}");
    assert_eq!(json(&["info", &server.address])["state"], "clean");
    drop(server);
    // A part of an export, by bytes.
    let path = image.path().to_str().unwrap();
    let server = Server::nbdkit(&place.beside("s"), &["partitioning", path]);
    place.mount(&server.address, "partition=1");
    work(&place, 3);
    place.umount();
    drop(server);
    check(&image, 3);
}

/// Stops threads when dropped: a scope waits for its threads also when a test failed.
struct Stopping<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_server_that_is_killed_is_found_again() {
    for (tcp, journal) in [(false, "ijournal"), (true, "ordered")] {
        let image = image(&Mkfs::new());
        let place = Place::new();
        let server = Restarted::new(&place, &image, tcp);
        let options = format!("journal={journal},nbd_reconnect=30");
        place.mount(&server.address, &options);
        let stop = std::sync::atomic::AtomicBool::new(false);
        // A server that was not found again before its next death is lost only once.
        let is_found_after = |kills: u64| {
            let network = place.network();
            let number = |name: &str| network[name].as_u64().unwrap();
            number("losses") >= kills && number("connections") > 0
        };
        std::thread::scope(|scope| {
            let stopping = Stopping(&stop);
            let writers: Vec<_> = (0..4u8)
                .map(|n| {
                    let (place, stop) = (&place, &stop);
                    scope.spawn(move || {
                        let file = File::create(place.file(&format!("log-{n}"))).unwrap();
                        let mut synced = 0u64;
                        while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                            file.write_all_at(&synced.to_le_bytes(), synced * 8)
                                .unwrap();
                            file.sync_data().unwrap();
                            synced += 1;
                        }
                        synced
                    })
                })
                .collect();
            for kill in 1..=5 {
                std::thread::sleep(Duration::from_millis(150));
                server.kill();
                // However long the machine takes.
                wait_until("the server is found again", || is_found_after(kill));
            }
            std::thread::sleep(Duration::from_millis(150));
            drop(stopping);
            for (n, writer) in writers.into_iter().enumerate() {
                let synced = writer.join().unwrap();
                assert!(synced > 10, "{synced}");
                let file = std::fs::read(place.file(&format!("log-{n}"))).unwrap();
                let found = file
                    .chunks(8)
                    .map(|c| u64::from_le_bytes(c.try_into().unwrap()));
                assert!(found.eq(0..synced));
            }
        });
        // The server of the mount needs no privileges that it gave up.
        let sandbox = json(&["stat", place.dir()])["sandbox"].clone();
        assert!(sandbox["seccomp"].is_string(), "{sandbox}");
        place.umount();
        drop(server);
        image.e2fsck_fn().unwrap();
    }
}

/// A container's files that resolve host names may each be a mount of their own, and may change
/// while the volume is mounted.
#[test]
fn a_server_that_moves_to_another_address_is_found_again() {
    let image = image(&Mkfs::new());
    let place = Place::new();
    let hosts = place.beside("hosts");
    let is_at = |address: &str| std::fs::write(&hosts, format!("{address} there.test\n")).unwrap();
    is_at("127.0.0.1");
    let server = Server::tcp(&image, None, &[]);
    let port = server.port.unwrap();
    // Copies of the mounts of other tests would keep them in use.
    let script = "for dir in $(awk '/ fuse/ { print $5 }' /proc/self/mountinfo); do \
            umount -l \"$dir\"; \
        done; \
        mount --bind \"$1\" /etc/hosts && \"$2\" mount -o nbd_reconnect=60 \"$3\" \"$4\" && \
        cd \"$4\" && echo before >before && sync before && echo ready && cat && \
        echo after >after && sync after && \
        cd / && \"$2\" --json stat \"$4\" && \"$2\" umount \"$4\"";
    let mut shell = cmd::tied("unshare", libc::SIGKILL)
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .args([&hosts, Path::new(crate::common::daemon::BINARY)])
        .args([&format!("nbd://there.test:{port}/"), place.dir()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(shell.stdout.take().unwrap());
    let mut said = String::new();
    out.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    drop(server);
    let moved = Server::tcp_at("127.0.0.2", &image, Some(port), &[]);
    is_at("127.0.0.2");
    drop(shell.stdin.take());
    said.clear();
    out.read_to_string(&mut said).unwrap();
    assert!(shell.wait().unwrap().success(), "{said}");
    let stat: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(stat["device"]["network"]["losses"], 1, "{stat}");
    drop(moved);
    image.e2fsck_fn().unwrap();
    assert_eq!(image.debugfs("cat /after").unwrap(), "after\n");
}

#[test]
fn one_that_stays_away_is_an_error_and_the_journal_brings_back_what_was_synced() {
    let image = image(&Mkfs::new());
    let place = Place::new();
    let server = Server::of(&place.beside("s"), &image, &[], &[]);
    place.mount(&server.address, "journal=ldj,nbd_reconnect=1");
    work(&place, 5);
    drop(server);
    let file = File::create(place.file("late")).and_then(|file| file.sync_all());
    assert!(file.is_err());
    // Data in memory can be read.
    assert_eq!(std::fs::read(place.file("file-4")).unwrap().len(), 10_004);
    let (code, said) = answer(&["umount", place.dir()]);
    assert_eq!(code, 6, "{said}");
    ok(&["recover", image.path().to_str().unwrap()]);
    check(&image, 5);
}

#[test]
fn requests_that_fail_are_errors_and_nothing_synced_is_lost() {
    let image = image(&Mkfs::new());
    let place = Place::new();
    let trigger = place.beside("fail");
    let trigger_is = format!("error-file={}", trigger.display());
    let how = ["error=EIO", "error-pwrite-rate=1", &trigger_is];
    let server = Server::of(&place.beside("s"), &image, &["--filter=error"], &how);
    place.mount(&server.address, "journal=stet");
    work(&place, 5);
    std::fs::write(&trigger, "").unwrap();
    let mut late = File::create(place.file("late")).unwrap();
    let _ = late.write_all(&[7; 4096]);
    assert!(late.sync_all().is_err());
    std::fs::remove_file(&trigger).unwrap();
    let stat = json(&["stat", place.dir()]);
    assert!(
        stat["device"]["errors"]["write"]["count"].as_u64() > Some(0),
        "{stat}"
    );
    let _ = crate::common::daemon::stetfs(&["umount", place.dir()]);
    drop(server);
    ok(&["recover", image.path().to_str().unwrap()]);
    check(&image, 5);
}

/// The kernel does not pass syncfs(2) on to such a mount, and answers it with success: a warning
/// says so, and `stetfs sync` makes everything durable. The server's machine and the mount's lose
/// power, with everything that was not flushed.
#[test]
fn a_sync_of_the_whole_volume_is_a_command() {
    for by_command in [false, true] {
        let image = image(&Mkfs::new());
        let place = Place::new();
        let how = ["cache=writeback"];
        let server = Server::of(&place.beside("s"), &image, &["--filter=cache"], &how);
        let options = "commit=3600,dirty_expire=3600";
        let mounted = json(&["mount", "-o", options, &server.address, place.dir()]);
        let said = mounted["warnings"].to_string();
        assert!(said.contains("stetfs sync DIR"), "{said}");
        let stat = || json(&["stat", place.dir()]);
        assert_eq!(stat()["connection"]["passes_sync"], false);
        std::fs::write(place.file("kept"), "all of it").unwrap();
        rustix::fs::syncfs(File::open(place.dir()).unwrap()).unwrap();
        assert_eq!(stat()["requests"]["syncfs"].as_u64().unwrap_or(0), 0);
        if by_command {
            assert_eq!(json(&["sync", place.dir()])["synced"], true);
            assert_eq!(stat()["device"]["network"]["bytes_unflushed"], 0);
        }
        let pid = stat()["pid"].as_i64().unwrap() as i32;
        drop(server);
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait_until("the end of the connection", || {
            rustix::fs::statfs(place.dir()).is_err()
        });
        let _ = crate::common::daemon::stetfs(&["umount", place.dir()]);
        ok(&["recover", image.path().to_str().unwrap()]);
        let kept = image
            .debugfs("cat /kept")
            .is_ok_and(|found| found == "all of it");
        assert_eq!(kept, by_command);
    }
}

/// `stetfs sync` reports data that could not be made durable.
#[test]
fn a_sync_that_fails_says_so() {
    let image = image(&Mkfs::new());
    let place = Place::new();
    let trigger = place.beside("fail");
    let trigger_is = format!("error-file={}", trigger.display());
    let how = ["error=EIO", "error-rate=1", &trigger_is];
    let server = Server::of(&place.beside("s"), &image, &["--filter=error"], &how);
    place.mount(&server.address, "commit=3600,dirty_expire=3600");
    ok(&["sync", place.dir()]);
    std::fs::write(place.file("late"), "lost").unwrap();
    std::fs::write(&trigger, "").unwrap();
    fails(&["sync", place.dir()], 6, &["failed"]);
    let (code, said) = answer(&["sync", place.dir()]);
    assert!(code != 0 && said["error"]["code"] == code, "{said}");
    std::fs::remove_file(&trigger).unwrap();
    let _ = crate::common::daemon::stetfs(&["umount", place.dir()]);
    fails(&["sync", place.dir()], 3, &[]);
}

#[test]
fn what_was_synced_was_flushed_there() {
    let image = image(&Mkfs::new());
    let place = Place::new();
    let log = place.beside("log");
    let to = format!("logfile={}", log.display());
    let server = Server::of(&place.beside("s"), &image, &["--filter=log"], &[&to]);
    let flushes = || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines()
            .filter(|l| l.contains(" Flush ") || l.contains("fua=1"))
            .count()
    };
    place.mount(&server.address, "journal=ordered");
    let before = flushes();
    work(&place, 10);
    assert!(flushes() >= before + 10, "{} {before}", flushes());
    place.umount();
}

#[test]
fn encrypted_or_not_at_all() {
    let image = image(&Mkfs::new());
    let place = Place::new();
    let pki = place.beside("pki");
    certificates(&pki, "localhost");
    let of = format!("--tls-certificates={}", pki.display());
    let args = ["--tls=require", "--tls-verify-peer", &of];
    let server = Server::tcp(&image, None, &args);
    let port = server.port.unwrap();
    place.refuses(
        &format!("nbd://localhost:{port}"),
        "ro",
        1,
        &["the server requires TLS"],
    );
    let address = format!(
        "nbds://localhost:{port}/?tls-certificates={}",
        pki.display()
    );
    place.mount(&address, "journal=ijournal");
    work(&place, 10);
    assert_eq!(place.network()["encrypted"], true);
    // The server comes back while no more files can be opened.
    drop(server);
    let server = Server::tcp(&image, Some(port), &args);
    work(&place, 12);
    assert_eq!(place.network()["losses"], 1);
    place.umount();
    // A server with another name, and a certificate of another authority.
    let named = format!("{address}&tls-hostname=other");
    place.refuses(&named, "ro", 1, &["TLS failed", "certificate"]);
    let strange = place.beside("strange");
    certificates(&strange, "localhost");
    let strangers = format!(
        "nbds://localhost:{port}/?tls-certificates={}",
        strange.display()
    );
    place.refuses(&strangers, "ro", 1, &["TLS failed"]);
    drop(server);
    check(&image, 12);
    let server = Server::tcp(&image, None, &["--tls=off"]);
    let port = server.port.unwrap();
    let plain = format!(
        "nbds://localhost:{port}/?tls-certificates={}",
        pki.display()
    );
    place.refuses(&plain, "ro", 1, &["it does not support TLS"]);
}

#[test]
fn two_machines_at_one_volume_are_kept_apart() {
    let image = image(&Mkfs::new().feature("mmp").extended("mmp_update_interval=1"));
    let (ours, theirs) = (Place::new(), Place::new());
    let socket = ours.beside("s");
    let first = Server::of(&socket, &image, &[], &[]);
    let second = Server::of(&theirs.beside("s"), &image, &[], &[]);
    ours.mount(&first.address, "journal=ordered,nbd_reconnect=60");
    work(&ours, 3);
    // By the same address this machine's own claim is in the way, by another address the volume's
    // mark.
    theirs.refuses(&first.address, "rw", 4, &["is in use"]);
    theirs.refuses(&second.address, "rw", 4, &["the volume is in use on"]);
    // Our server is lost: others cannot know that our machine still lives.
    drop(first);
    let late = ours.file("late");
    let mut late = cmd::tied("dd", libc::SIGKILL)
        .args(["if=/dev/null", "conv=fsync", "status=none"])
        .arg(format!("of={}", late.display()))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    theirs.mount(&second.address, "journal=ordered");
    std::fs::write(theirs.file("theirs"), "theirs").unwrap();
    // The server is back, with our data that was not flushed, which is no longer ours to write.
    let first = Server::of(&socket, &image, &[], &[]);
    assert!(!late.wait().unwrap().success());
    wait_until("that we keep off", || {
        File::create(ours.file("later"))
            .and_then(|f| f.sync_all())
            .is_err()
    });
    let (code, said) = answer(&["umount", ours.dir()]);
    assert_eq!(code, 6, "{said}");
    assert_eq!(std::fs::read(theirs.file("theirs")).unwrap(), b"theirs");
    theirs.umount();
    drop((first, second));
    check(&image, 3);
    let found = ok(&["ls", &format!("{}:/", image.path().display())]);
    assert!(
        found.contains("theirs") && !found.contains("late"),
        "{found}"
    );
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let image = image(&Mkfs::new());
    let place = Place::new();
    let socket = place.beside("s");
    place.refuses("nbd://h:x/", "ro", 1, &["x is not a port number"]);
    place.refuses("nbd+unix:///", "ro", 1, &["socket=PATH is missing"]);
    place.refuses(&address(&socket), "ro", 3, &["No such file", "nbdkit"]);
    place.refuses("nbd://127.0.0.1:1/", "ro", 6, &["refused"]);
    let server = Server::of(&socket, &image, &["-r"], &[]);
    place.refuses(&server.address, "nbd_connections=0", 1, &["from 1 to 16"]);
    place.refuses(
        &server.address,
        "nbd_reconnect=long",
        1,
        &["number of seconds"],
    );
    // A write-protected export is mounted read-only, as mount(8) does.
    place.mount(&server.address, "rw");
    let written = File::create(place.file("x")).unwrap_err();
    assert_eq!(written.raw_os_error(), Some(libc::EROFS));
    place.umount();
    drop(server);
    let name = format!("nbd+unix:///there?socket={}", socket.display());
    let server = Server::qemu(
        &socket,
        &["-f", "raw", "-x", "here", image.path().to_str().unwrap()],
    );
    place.refuses(&name, "rw", 1, &["no export named there"]);
    drop(server);
    // Another program listens there.
    let other = std::os::unix::net::UnixListener::bind(place.beside("other")).unwrap();
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream
            .write_all(b"220 ready for mail, and more\r\n")
            .unwrap();
    });
    fails(
        &["info", &address(&place.beside("other"))],
        1,
        &["not an NBD server"],
    );
    answers.join().unwrap();
}
