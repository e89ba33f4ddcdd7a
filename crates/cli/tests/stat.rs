//! `stetfs stat`: histograms, Prometheus' format, and what is watched.
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::daemon::{BINARY, Daemon, fails, json, ok, stetfs};
use crate::common::served::Served;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, Scratch, cmd, mount, wait_until};

/// Writes, syncs and reads, so that the server is asked.
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
    // An answer is counted at the latest when the next question comes.
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

/// A line with a number.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

fn is_name(name: &str, colons: bool) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    name.chars().all(fine) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// `name="value",…`, up to the closing brace; what follows it.
fn labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut all = BTreeMap::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(name, false), "{name:?} is no name of a label");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("a label's value does not end") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} is no escape"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(all.insert(name.to_owned(), value).is_none(), "{name} twice");
        rest = &after[end + 1..];
        match rest.split_at(1) {
            (",", more) => rest = more,
            ("}", more) => return (all, more),
            other => panic!("{other:?} behind a label"),
        }
    }
}

/// Reads the text exposition format, by its rules (version 0.0.4): HELP and TYPE once a metric and
/// before its samples, those together, none twice; histograms with buckets that add up to `+Inf`,
/// which is the count.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'), "the last line has an end");
    let mut helped = BTreeSet::new();
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut current = String::new();
    let mut samples: Vec<Sample> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()) && !help.is_empty(), "{line}");
            assert!(!types.contains_key(name), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(is_name(name, true) && name.starts_with("stetfs_"), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(helped.contains(name), "{line}");
            assert!(types.insert(name.into(), kind.into()).is_none(), "{line}");
            name.clone_into(&mut current);
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, rest) = labels(rest);
        let value: f64 = rest.strip_prefix(' ').unwrap().parse().unwrap();
        assert!(
            labels.contains_key("volume") && labels.contains_key("mountpoint"),
            "{line}"
        );
        let kind = &types[&current];
        let part = name
            .strip_prefix(current.as_str())
            .expect("of the metric above");
        match kind.as_str() {
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&part), "{line}"),
            "counter" => assert!(part.is_empty() && name.ends_with("_total"), "{line}"),
            _ => assert!(part.is_empty() && !name.ends_with("_total"), "{line}"),
        }
        assert!(value >= 0.0, "{line}");
        let same = |s: &Sample| s.name == name && s.labels == labels;
        assert!(!samples.iter().any(same), "{line} twice");
        let name = name.to_owned();
        samples.push(Sample {
            name,
            labels,
            value,
        });
    }
    for (name, kind) in &types {
        match kind.as_str() {
            "histogram" => check_histogram(name, &samples),
            _ => assert!(samples.iter().any(|s| s.name == *name), "{name} is empty"),
        }
    }
    samples
}

fn check_histogram(name: &str, samples: &[Sample]) {
    let counts: Vec<&Sample> = of(samples, &format!("{name}_count"));
    assert!(!counts.is_empty(), "{name} is empty");
    for count in counts {
        let buckets = of(samples, &format!("{name}_bucket"));
        let mut last = (f64::NEG_INFINITY, 0.0);
        for bucket in buckets {
            let mut labels = bucket.labels.clone();
            let up_to: f64 = labels.remove("le").unwrap().parse().unwrap();
            if labels != count.labels {
                continue;
            }
            assert!(up_to > last.0 && bucket.value >= last.1, "{bucket:?}");
            last = (up_to, bucket.value);
        }
        assert_eq!(last, (f64::INFINITY, count.value), "{name}");
        let sums = of(samples, &format!("{name}_sum"));
        assert!(sums.iter().any(|s| s.labels == count.labels), "{name}");
    }
}

fn of<'a>(samples: &'a [Sample], name: &str) -> Vec<&'a Sample> {
    samples.iter().filter(|s| s.name == name).collect()
}

/// The one of this mount with this label, if it has one.
fn at(samples: &[Sample], name: &str, dir: &str, label: Option<(&str, &str)>) -> f64 {
    let is = |s: &&&Sample| {
        s.labels["mountpoint"] == dir
            && label.is_none_or(|(name, value)| s.labels.get(name).is_some_and(|l| l == value))
    };
    let all = of(samples, name);
    let found: Vec<&&Sample> = all.iter().filter(is).collect();
    assert_eq!(found.len(), 1, "{name} {label:?}: {found:?}");
    found[0].value
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

    // Without a name all mounts; one whose server was killed is down, and does not hide the others.
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

    // In JSON a line is all that stat says.
    let mut watched = watch(&["--json", "stat", d.dir(), "--watch=0.05"]);
    let mut line = String::new();
    let mut out = BufReader::new(watched.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    assert!(said["latency"]["sync"]["count"].is_u64(), "{said}");
    // Whoever reads may go away.
    drop(out);
    assert_eq!(watched.wait().unwrap().code(), Some(0));
    ok(&["umount", d.dir()]);
}

#[test]
fn watching_ends_with_the_mount() {
    let d = Daemon::new("");
    let mut watched = watch(&["stat", "--watch=60", d.dir()]);
    // It is connected as soon as it has asked.
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

    // A server that was killed is no end of a mount.
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
    // The rest of what it says, so that it can.
    let mut rest = String::new();
    let _ = out.read_to_string(&mut rest);
    assert_eq!(script.wait().unwrap().code(), Some(0));
}

/// A device that fails on command; what it failed is told with kind, time, place and error.
#[test]
fn errors_of_the_device_are_counted() {
    let served = Served::new(&["--model", "nvme-ssd", "--size", "64M"]);
    let mut mke2fs = Command::new("mke2fs");
    cmd::run(
        mke2fs
            .args(["-q", "-F", "-t", "ext4", "-b", "4096"])
            .arg(served.disk()),
    )
    .unwrap();
    let scratch = Scratch::new("stat").unwrap();
    let dir = scratch.path().to_str().unwrap();
    ok(&["mount", served.disk().to_str().unwrap(), dir]);
    let _mounted = Unmounting(dir);
    let errors = || json(&["stat", dir])["device"]["errors"].clone();
    let kinds = ["read", "write", "flush", "discard", "share"];
    let counts = |all: &Value| kinds.map(|kind| all[kind]["count"].as_u64().unwrap());
    let before = errors();
    assert_eq!(counts(&before), [0; 5], "{before}");
    assert!(before["write"].get("first").is_none(), "{before}");
    let samples = parse(&ok(&["stat", "--prometheus", dir]));
    assert_eq!(of(&samples, "stetfs_device_errors_total").len(), 5);
    assert!(of(&samples, "stetfs_device_last_error_timestamp_seconds").is_empty());
    assert!(ok(&["stat", dir]).contains("flush    none\n"));

    let mut file = File::create_new(scratch.path().join("file")).unwrap();
    file.write_all(&[1; 8192]).unwrap();
    file.sync_all().unwrap();
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    served.fault(&["error-writes"]);
    file.write_all(&[2; 8192]).unwrap();
    assert!(file.sync_all().is_err());

    let after = errors();
    let failed = after["write"]["count"].as_u64().unwrap();
    assert!(failed > 0, "{after}");
    assert_eq!(after["read"]["count"], 0, "{after}");
    for which in ["first", "last"] {
        let one = &after["write"][which];
        assert!(number(&one["time"]) >= begin.as_secs_f64(), "{one}");
        assert_eq!(
            (&one["device"], &one["errno"]),
            (&"volume".into(), &libc::EIO.into())
        );
        let (block, offset) = (number(&one["block"]), number(&one["offset"]));
        assert_eq!((offset / 4096.0).floor(), block, "{one}");
        assert!(
            offset < f64::from(64 << 20) && number(&one["bytes"]) > 0.0,
            "{one}"
        );
    }
    let human = ok(&["stat", dir]);
    let mut lines = human.lines().skip_while(|line| line.trim() != "errors:");
    let line = lines
        .find(|line| line.trim().starts_with("write "))
        .unwrap();
    for word in [" UTC, block ", ": Input/output error (os error 5)"] {
        assert!(line.contains(word), "{word:?} is not in {line}");
    }
    let samples = parse(&ok(&["stat", "--prometheus", dir]));
    let real = scratch.path().canonicalize().unwrap();
    let write = |name| {
        at(
            &samples,
            name,
            real.to_str().unwrap(),
            Some(("kind", "write")),
        )
    };
    assert!(write("stetfs_device_errors_total") >= failed as f64);
    let first = write("stetfs_device_first_error_timestamp_seconds");
    assert!(first >= begin.as_secs_f64());
    assert!(write("stetfs_device_last_error_timestamp_seconds") >= first);
    drop(file);
    served.fault(&["pass"]);
    drop(_mounted);
    served.end();
}

/// Takes a mount down, which its device may not have left clean.
struct Unmounting<'a>(&'a str);

impl Drop for Unmounting<'_> {
    fn drop(&mut self) {
        let _ = stetfs(&["umount", self.0]);
        mount::detach(Path::new(self.0));
    }
}

/// The largest write that no crash leaves in half, by what the journal takes and who cuts calls.
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
