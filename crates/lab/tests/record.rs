//! Tests of `stetfs flash trace record`.
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::daemon::{BINARY, Daemon, answer, fails, json, ok};
use rustix::process::{Pid, Signal, kill_process};
use stetfs_flashlab::trace::{Op, Trace};
use stetfs_testkit::{Image, Mkfs, Scratch, sys, wait_until};

/// A mount whose block size is the page size of traces.
fn mounted() -> Daemon {
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap());
    d.mount("");
    d
}

/// The blocks of a file on the volume.
fn blocks(path: &Path) -> BTreeSet<u64> {
    let file = File::open(path).unwrap();
    let count = file.metadata().unwrap().len().div_ceil(4096) as u32;
    let place = |i| u64::from(sys::fibmap(file.as_fd(), i).unwrap());
    (0..count).map(place).collect()
}

/// The blocks that a trace reads or writes.
fn asked(trace: &str, op: Op) -> BTreeSet<u64> {
    let trace = Trace::load(Path::new(trace), None).unwrap();
    let of = trace.requests.iter().filter(|r| r.op == op);
    of.flat_map(|r| r.page..r.page + u64::from(r.pages))
        .collect()
}

fn path(scratch: &Scratch, name: &str) -> String {
    scratch.path().join(name).to_str().unwrap().to_owned()
}

/// A command that writes `count` times 64 KiB, and syncs.
fn dd(to: &Path, count: u32) -> Vec<String> {
    let of = format!("of={}", to.display());
    let count = format!("count={count}");
    let words = ["dd", "if=/dev/zero", "bs=64K", "conv=fsync", "status=none"];
    let words = words.iter().map(|w| (*w).to_owned());
    words.chain([of, count]).collect()
}

#[test]
fn a_command_is_recorded_above_the_cache_and_below() {
    let scratch = Scratch::new("record").unwrap();
    let d = mounted();
    let (above, below) = (path(&scratch, "above"), path(&scratch, "below"));
    let file = d.file("file");
    std::fs::write(d.file("before"), [1; 8192]).unwrap();
    let dd = dd(&file, 16);
    let mut args = vec!["flash", "trace", "record", d.dir(), "-o", &above];
    args.extend(["--below", &below, "--"]);
    args.extend(dd.iter().map(String::as_str));
    let told = json(&args);
    std::fs::write(d.file("after"), [1; 8192]).unwrap();

    // Each write of 64 KiB arrived once, and only blocks of the file were written.
    let info = json(&["flash", "trace", "info", &above]);
    assert_eq!(told["above"], info);
    assert_eq!(info["written_mib"], 1.0, "{info}");
    assert!((16..32).contains(&info["requests"].as_u64().unwrap()));
    let written = asked(&above, Op::Write);
    assert_eq!(written, blocks(&file));
    assert_eq!(written.len(), 256);
    // Below, the log and metadata were written, too.
    let home = asked(&below, Op::Write);
    assert!(home.is_superset(&written) && home.len() > written.len());
    assert_eq!(told["below"], json(&["flash", "trace", "info", &below]));

    // Again, to other files; reads that the kernel's cache does not serve are recorded.
    let again = path(&scratch, "again");
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(File::open(&file).unwrap(), 0, None, advice).unwrap();
    let cat = ["--", "cat", file.to_str().unwrap()];
    let args = ["flash", "trace", "record", d.dir(), "-o", &again];
    ok(&[&args[..], &cat].concat());
    assert_eq!(asked(&again, Op::Read), written);
    assert!(asked(&again, Op::Write).is_empty());
    let run = ["flash", "run", &above, "--cache", "256K", "--policy", "lru"];
    let run = json(&[&run[..], &["--capacity", "64M", "--erase-block", "256K"]].concat());
    assert_eq!(run["outcomes"][0]["cache"]["writes"], 256);
    ok(&["umount", d.dir()]);
}

#[test]
fn a_commands_code_is_passed_on_and_its_output_its_own() {
    let scratch = Scratch::new("record").unwrap();
    let d = mounted();
    let out = path(&scratch, "out");
    let ended = |script: &str| {
        let _ = std::fs::remove_file(&out);
        let args = ["flash", "trace", "record", d.dir(), "-o", &out];
        let all = [&args[..], &["--", "sh", "-c", script]].concat();
        let ended = Command::new(BINARY).args(all).output().unwrap();
        assert!(Path::new(&out).exists());
        (
            ended.status.code().unwrap(),
            String::from_utf8(ended.stdout).unwrap(),
        )
    };
    assert_eq!(ended("echo said; exit 7"), (7, "said\n".into()));
    assert_eq!(ended("kill -TERM $$"), (128 + 15, String::new()));
    assert_eq!(ended("exit 0").0, 0);
    ok(&["umount", d.dir()]);
}

/// Starts recording to `out`; the recording has begun when this returns.
fn start(d: &Daemon, out: &str) -> Child {
    let mut command = Command::new(BINARY);
    command.args(["flash", "trace", "record", d.dir(), "-o", out]);
    let recorder = command.stdout(Stdio::null()).spawn().unwrap();
    wait_until("a recording", || Path::new(out).exists());
    recorder
}

#[test]
fn what_was_recorded_until_ctrl_c_is_whole() {
    let scratch = Scratch::new("record").unwrap();
    let d = mounted();
    let out = path(&scratch, "out");
    let mut recorder = start(&d, &out);
    let other = path(&scratch, "other");
    let args = ["flash", "trace", "record", d.dir(), "-o", &other];
    fails(&args, 4, &["already"]);
    assert!(!Path::new(&other).exists());
    std::fs::write(d.file("file"), vec![1; 1 << 20]).unwrap();
    kill_process(Pid::from_child(&recorder), Signal::INT).unwrap();
    assert!(recorder.wait().unwrap().success());
    assert_eq!(asked(&out, Op::Write), blocks(&d.file("file")));

    // Existing files are not overwritten.
    let args = ["flash", "trace", "record", d.dir(), "--seconds", "1", "-o"];
    fails(&[&args[..], &[&out]].concat(), 1, &["exists"]);
    let timed = path(&scratch, "timed");
    ok(&[&args[..], &[&timed]].concat());
    assert!(asked(&timed, Op::Write).is_empty());

    // The end of the mount ends the recording.
    let cut = path(&scratch, "cut");
    let mut recorder = start(&d, &cut);
    ok(&["umount", d.dir()]);
    assert!(recorder.wait().unwrap().success());
    assert!(Trace::load(Path::new(&cut), None).is_ok());
    let none = path(&scratch, "none");
    let args = ["flash", "trace", "record", d.dir(), "-o", &none];
    fails(&args, 3, &["no StetFS", "findmnt"]);
    assert!(!Path::new(&none).exists());
}

/// A recorder that was killed does not block other recorders for long.
#[test]
fn a_recorder_that_was_killed_is_forgotten() {
    let scratch = Scratch::new("record").unwrap();
    let d = mounted();
    let mut recorder = start(&d, &path(&scratch, "killed"));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let out = path(&scratch, "out");
    let args = ["flash", "trace", "record", d.dir(), "-o", &out];
    wait_until("the end of the recording", || {
        answer(&[&args[..], &["--", "true"]].concat()).0 == 0
    });
    ok(&["umount", d.dir()]);
}
