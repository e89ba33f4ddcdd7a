//! A volume costs no more than it holds: what `info`, `dump` and `recover` take of memory and time for images of up to
//! 16 MiB that claim far more.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::daemon::BINARY;
use stetfs_fuzzing::costly::{ALL, taken};
use stetfs_testkit::Scratch;

/// Bytes of the largest image on its disk.
const IMAGE: u64 = 16 << 20;
/// Bytes that a command may take of memory.
const MEMORY: u64 = 256 << 20;
/// Processor time that it may take: others may keep the machine busy.
const TIME: Duration = Duration::from_secs(10);
/// It is stopped after so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a command took.
struct Cost {
    code: Option<i32>,
    memory: u64,
    time: Duration,
    said: String,
}

/// Runs `stetfs`.
fn run(args: &[&str], volume: &Path, scratch: &Path) -> Cost {
    let said = scratch.join("said");
    let begun = Instant::now();
    let mut child = Command::new(BINARY)
        .args(args)
        .arg(volume)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let (mut memory, mut time) = (0, Duration::ZERO);
    let status = loop {
        memory = memory.max(peak(child.id()).unwrap_or(0));
        time = time.max(processor_time(child.id()).unwrap_or_default());
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Cost {
        code: status.code(),
        memory,
        time,
        said: std::fs::read_to_string(said).unwrap(),
    }
}

/// The most memory that a process had so far, bytes; none when it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// What a process used so far, of all its threads.
fn processor_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which is in parentheses: utime and stime are the 12th and 13th field, in hundredths of a second.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    let ticks = fields.filter_map(|f| f.parse::<u64>().ok()).sum::<u64>();
    Some(Duration::from_millis(10 * ticks))
}

#[test]
fn no_image_costs_more_than_it_holds() {
    let only = std::env::var("STETFS_IMAGE").ok();
    let (mut over, mut most) = (Vec::new(), 0);
    for (name, make) in ALL {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let scratch = Scratch::new("cost").unwrap();
        let volume = scratch.path().join("image");
        make(&volume);
        assert!(taken(&volume) <= IMAGE, "{name}: {} bytes", taken(&volume));
        for args in [
            &["info"][..],
            &["dump", "journal"],
            &["--json", "dump", "journal"],
            &["recover"],
        ] {
            let cost = run(args, &volume, scratch.path());
            let line = format!(
                "{name}: {}: exit code {:?}, {} MiB, {:?}",
                args.join(" "),
                cost.code,
                cost.memory >> 20,
                cost.time
            );
            most = most.max(cost.memory);
            println!("{line}\n    {}", cost.said.trim());
            if cost.code.is_none() || cost.memory > MEMORY || cost.time > TIME {
                over.push(line);
            }
        }
    }
    // Whoever looks at nothing finds nothing.
    assert!(most > 20 << 20, "{most} bytes at most");
    assert!(over.is_empty(), "{}", over.join("\n"));
}
