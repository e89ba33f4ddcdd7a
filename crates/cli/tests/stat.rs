//! Tests of `stetfs stat`: histograms, Prometheus' format, and `--watch`.
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::common::daemon::{BINARY, Daemon, fails, json, ok};
use crate::common::prometheus::{at, of, parse};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, wait_until};

/// Writes, syncs and reads, to send requests to the server.
fn work(d: &Daemon, name: &str, rounds: usize) {
    let mut file = File::create_new(d.file(name)).unwrap();
    for i in 0..rounds {
        file.write_all(&[i as u8; 8192]).unwrap();
        match i % 2 {
            0 => file.sync_all().unwrap(),
            _ => file.sync_data().unwrap(),
        }
    }
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(&file, 0, None, advice).unwrap();
    assert_eq!(std::fs::read(d.file(name)).unwrap().len(), rounds * 8192);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn how_long_things_took_is_shown() {
    let d = Daemon::new("");
    let before = json(&["stat", d.dir()])["latency"].clone();
    work(&d, "file", 20);
    // An answer is counted at the latest when the next request arrives.
    let after = json(&["stat", d.dir()])["latency"].clone();
    let more = |kind: &str| number(&after[kind]["count"]) - number(&before[kind]["count"]);
    assert!(more("sync") >= 20.0, "{after}");
    assert!(more("write") >= 20.0, "{after}");
    assert!(more("read") >= 1.0, "{after}");
    assert!(more("commit") >= 1.0, "{after}");
    for kind in ["sync", "write", "read", "commit", "checkpoint"] {
        let one = &after[kind];
        let buckets = one["buckets"].as_array().unwrap();
        let counts: f64 = buckets.iter().map(|b| number(&b["count"])).sum();
        assert_eq!(counts, number(&one["count"]), "{kind}");
        let ends: Vec<f64> = buckets.iter().filter_map(|b| b["up_to"].as_f64()).collect();
        assert_eq!(ends.len() + 1, buckets.len(), "the last has no end");
        assert!(
            ends.is_sorted_by(|a, b| a < b && *b <= a * 1.2501),
            "{ends:?}"
        );
        assert!(
            ends[0] <= 1.1e-6 && *ends.last().unwrap() >= 100.0,
            "{ends:?}"
        );
        let shares = ["p50", "p90", "p99", "p99_9", "max"].map(|share| number(&one[share]));
        assert!(shares.is_sorted(), "{kind}: {shares:?}");
        let longest = shares[4];
        assert!(
            number(&one["sum"]) <= longest * counts * 1.000_001,
            "{kind}"
        );
        assert!(longest < 100.0, "{kind}: in seconds");
    }
    let human = ok(&["stat", d.dir()]);
    let line = human
        .lines()
        .skip_while(|l| *l != "latency:")
        .find(|l| l.trim().starts_with("sync "))
        .unwrap();
    for word in ["times, ", "in the mean; p50 ", "p90 ", "p99.9 ", "max "] {
        assert!(line.contains(word), "{word:?} is not in {line}");
    }
    assert!(line.contains(" µs") || line.contains(" ms"), "{line}");
    assert!(human.contains("iB"), "sizes have units:\n{human}");
    ok(&["umount", d.dir()]);
}

#[test]
fn prometheus_reads_it() {
    let plain = Daemon::new("journal=data");
    let mut odd = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let dir = odd.dir.with_file_name("a \"b\"\\c\nd");
    std::fs::rename(&odd.dir, &dir).unwrap();
    odd.dir = dir;
    odd.mount("");
    work(&plain, "file", 10);
    work(&odd, "file", 3);
    let [real, real_odd] = [&plain, &odd].map(|d| d.dir.canonicalize().unwrap());
    let [real, real_odd] = [&real, &real_odd].map(|d| d.to_str().unwrap());

    let samples = parse(&ok(&["stat", "--prometheus", plain.dir(), odd.dir()]));
    for dir in [real, real_odd] {
        assert_eq!(at(&samples, "stetfs_up", dir, None), 1.0);
        assert_eq!(at(&samples, "stetfs_read_only", dir, None), 0.0);
    }
    let syncs = |dir| {
        let name = "stetfs_request_duration_seconds_count";
        at(&samples, name, dir, Some(("kind", "sync")))
    };
    assert!(syncs(real) >= 10.0 && syncs(real_odd) >= 3.0);
    let fsyncs = at(
        &samples,
        "stetfs_requests_total",
        real,
        Some(("kind", "fsync")),
    );
    assert!(fsyncs >= 10.0);
    let preset = Some(("journal", "data"));
    assert_eq!(at(&samples, "stetfs_volume_info", real, preset), 1.0);
    assert!(at(&samples, "stetfs_journal_logged_bytes_total", real, None) > 80_000.0);
    let labels = of(&samples, "stetfs_up")[0].labels.clone();
    assert_eq!(Some(labels["volume"].as_str()), plain.image.path().to_str());

    // Without a name all mounts are shown; one whose server was killed is down, and does not hide
    // the others.
    plain.kill9();
    let samples = parse(&ok(&["stat", "--prometheus"]));
    assert_eq!(at(&samples, "stetfs_up", real, None), 0.0);
    let ups = of(&samples, "stetfs_up");
    assert!(
        ups.iter().any(|s| s.labels == labels),
        "{labels:?} are its labels still"
    );
    assert_eq!(at(&samples, "stetfs_up", real_odd, None), 1.0);
    fails(
        &["stat", "--prometheus", plain.dir()],
        3,
        &["does not answer"],
    );
    fails(&["--json", "stat", "--prometheus"], 1, &[]);
    fails(&["stat"], 1, &["stetfs stat DIR"]);
    fails(&["stat", plain.dir(), odd.dir()], 1, &["--prometheus"]);
    fails(&["umount", plain.dir()], 6, &["was gone"]);
    ok(&["umount", odd.dir()]);
}

fn watch(args: &[&str]) -> Child {
    Command::new(BINARY)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_step_is_a_line_and_ctrl_c_ends_it() {
    let d = Daemon::new("");
    let mut watched = watch(&["stat", "--watch", "0.1", d.dir()]);
    let mut lines = BufReader::new(watched.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    work(&d, "file", 10);
    let seen = lines.by_ref().take(20).map(Result::unwrap);
    let syncs = seen.into_iter().find(|line| !line.contains("sync 0/s"));
    let line = syncs.expect("the syncs are not seen");
    for word in [
        "Z  read ", "write ", "sync ", "commit ", "/s p99 ", "flushes ",
    ] {
        assert!(line.contains(word), "{word:?} is not in {line}");
    }
    kill_process(Pid::from_child(&watched), Signal::INT).unwrap();
    assert_eq!(watched.wait().unwrap().code(), Some(130));

    // In JSON a line is the whole answer of stat.
    let mut watched = watch(&["--json", "stat", d.dir(), "--watch=0.05"]);
    let mut line = String::new();
    let mut out = BufReader::new(watched.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    assert!(said["latency"]["sync"]["count"].is_u64(), "{said}");
    // The reader may close the pipe.
    drop(out);
    assert_eq!(watched.wait().unwrap().code(), Some(0));
    ok(&["umount", d.dir()]);
}

#[test]
fn watching_ends_with_the_mount() {
    let d = Daemon::new("");
    let mut watched = watch(&["stat", "--watch=60", d.dir()]);
    // The command connects right after its first request.
    wait_until("the watching", || {
        let status = format!("/proc/{}/status", watched.id());
        std::fs::read_to_string(status).is_ok_and(|s| s.contains("State:\tS"))
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    ok(&["umount", d.dir()]);
    assert_eq!(watched.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    watched.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("was unmounted"), "{said}");

    // A killed server does not end a mount.
    let d = Daemon::new("");
    let mut watched = watch(&["stat", "--watch=0.05", d.dir()]);
    let mut line = String::new();
    let mut out = BufReader::new(watched.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    d.kill9();
    assert_eq!(watched.wait().unwrap().code(), Some(3));
    fails(&["umount", d.dir()], 6, &["was gone"]);
}

#[test]
fn on_a_terminal_the_lines_are_drawn_in_place() {
    let d = Daemon::new("");
    let command = format!("{BINARY} stat --watch=0.1 {}", d.dir());
    // script(1) gives it a terminal.
    let mut script = Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = script.stdout.take().unwrap();
    let mut seen = Vec::new();
    let text = |seen: &[u8]| String::from_utf8_lossy(seen).into_owned();
    while !text(&seen).contains("\x1b[J") {
        let mut buf = [0; 4096];
        let n = out.read(&mut buf).unwrap();
        assert!(n > 0, "it ended: {}", text(&seen));
        seen.extend_from_slice(&buf[..n]);
    }
    let seen = text(&seen);
    let (first, _) = seen.split_once("\x1b[J").unwrap();
    let (lines, up) = first.rsplit_once("\x1b[").unwrap();
    assert_eq!(up, format!("{}A", lines.matches('\n').count()), "{seen:?}");
    for word in [
        "journal ordered",
        "p99.9",
        "checkpoint",
        "device ",
        "cache ",
    ] {
        assert!(lines.contains(word), "{word:?} is not in {lines}");
    }
    ok(&["umount", d.dir()]);
    // Reads the rest of its output, so that it can end.
    let mut rest = String::new();
    let _ = out.read_to_string(&mut rest);
    assert_eq!(script.wait().unwrap().code(), Some(0));
}

/// The largest write that no crash leaves torn depends on the journal, and on whether the kernel
/// splits calls.
#[test]
fn it_says_which_writes_are_whole() {
    for (options, bytes) in [
        ("journal=ldj,direct_io", 64 << 10),
        ("journal=data", 4096),
        ("journal=ordered,direct_io", 0),
        ("journal=ijournal", 0),
    ] {
        let image = Image::make(64 << 20, &Mkfs::new().journal_mib(4)).unwrap();
        let daemon = Daemon::unmounted(image);
        daemon.mount(options);
        let stat = json(&["stat", daemon.dir()]);
        assert_eq!(stat["whole_write_bytes"], bytes, "{options}");
        ok(&["umount", daemon.dir()]);
    }
}
