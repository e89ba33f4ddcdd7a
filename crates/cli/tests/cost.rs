//! Tests of the cost of commands: their memory and time for images of up to 16 MiB that claim far
//! more.
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::daemon::{BINARY, Daemon, stetfs};
use stetfs_fuzzing::costly::{ALL, taken};
use stetfs_testkit::{Image, Scratch, cmd};

/// Largest size of an image on disk, bytes.
const IMAGE: u64 = 16 << 20;
/// Most memory of a command, bytes.
const MEMORY: u64 = 256 << 20;
/// Most processor time of a command in a build with checks. It allows for machines that other
/// processes keep busy, or that are half as fast on some days. A real excess takes minutes.
const TIME: Duration = Duration::from_secs(30);
/// Time after which a command is stopped.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Exit code of a program that panicked.
const PANIC: i32 = 101;

/// The cost of a command.
struct Cost {
    code: Option<i32>,
    memory: u64,
    time: Duration,
    said: String,
}

/// Runs `stetfs`.
fn run(args: &[String], scratch: &Path) -> Cost {
    let said = scratch.join("said");
    let begun = Instant::now();
    let mut child = Command::new(BINARY)
        .args(args)
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
        if begun.elapsed() > TIMEOUT {
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

/// Peak memory of a process so far, bytes. `None` if it has ended, or does not run the binary yet:
/// until then its memory is that of the test process, which makes the volumes.
pub(crate) fn peak(pid: u32) -> Option<u64> {
    let runs = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    if runs != Path::new(BINARY) {
        return None;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// The processor time of all threads of a process so far.
fn processor_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which is in parentheses: utime and stime are fields 12 and 13, in hundredths
    // of a second.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    let ticks = fields.filter_map(|f| f.parse::<u64>().ok()).sum::<u64>();
    Some(Duration::from_millis(10 * ticks))
}

/// The commands that run on each volume. `IMAGE` is replaced by the path, and any text behind it
/// stays; `TO` is a place for copies.
const COMMANDS: [&[&str]; 9] = [
    &["info", "IMAGE"],
    &["dump", "journal", "IMAGE"],
    &["--json", "dump", "journal", "IMAGE"],
    &["ls", "-R", "IMAGE:/"],
    &["tar", "-c", "IMAGE:/"],
    &["cp", "IMAGE:/", "TO"],
    &["cat", "IMAGE:/file"],
    &["recover", "IMAGE"],
    &["recover", "--salvage", "IMAGE"],
];

/// Mounts a copy of the volume and walks over it: all names, attributes, and the beginning of each
/// file. Returns the cost of the server if it mounted.
fn mounted(volume: &Path) -> Option<Cost> {
    let image = Image::sparse(0).unwrap();
    copy(volume, image.path());
    let daemon = Daemon::unmounted(image);
    let out = stetfs(&["mount", daemon.image(), daemon.dir()]);
    if !out.status.success() {
        return None;
    }
    let pid = daemon.pid() as u32;
    let walks = [
        "find \"$1\" -xdev -printf '%s %p\\n' | head -c 16M",
        "getfattr -R -P -d -m - \"$1\" | head -c 16M",
        "head -c 16M \"$1/file\"",
        "rm -rf \"$1/dir\"",
    ];
    let begun = Instant::now();
    for walk in walks {
        let mut sh = Command::new("timeout");
        let limit = TIMEOUT.as_secs().to_string();
        sh.args([&limit, "sh", "-c", walk, "sh", daemon.dir()]);
        // Errors are expected.
        let _ = sh.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    let cost = Cost {
        code: (begun.elapsed() < TIMEOUT).then_some(0),
        memory: peak(pid).unwrap_or(u64::MAX),
        time: processor_time(pid).unwrap_or(Duration::MAX),
        said: String::new(),
    };
    let _ = stetfs(&["umount", daemon.dir()]);
    Some(cost)
}

fn copy(from: &Path, to: &Path) {
    let mut cp = Command::new("cp");
    cmd::run(cp.arg("--sparse=always").args([from, to])).unwrap();
}

/// Runs a command, and a second time if it took too long: on a shared core or host the same work
/// sometimes takes half as long again.
fn less_of_two(run: impl Fn() -> Option<Cost>) -> Option<Cost> {
    let first = run()?;
    match first.code.is_some() && first.time > TIME {
        true => run()
            .filter(|second| second.time < first.time)
            .or(Some(first)),
        false => Some(first),
    }
}

/// The commands of one volume of a kind. Fast commits and records cost `info` (in memory) and
/// `recover` (into the volume) the same: a volume gets one of the two, as its `place` says. `all`
/// has both.
fn commands(kind: &str, name: &str, place: usize, all: bool) -> Vec<&'static [&'static str]> {
    // Opening a volume does the same work for every command, and without damage there is nothing to
    // salvage.
    let same_cost = ["fast commits", "records"].contains(&kind);
    let damaged = ["logs", "records"].contains(&kind);
    let left_out = ["info", "recover"][place % 2];
    let wanted = |args: &&[&str]| match kind {
        "logs" | "fast commits" | "records" | "orphans" => {
            let salvages = args.contains(&"--salvage");
            let recovers = args.contains(&"recover") && (damaged || !salvages);
            let again = same_cost && !all && !salvages && args.contains(&left_out);
            !again && (recovers || args.contains(&"info") || args.contains(&"dump"))
        }
        // A user of `cat` asks for all the zeroes of a hole.
        _ => !args.contains(&"cat") || !name.contains("holes"),
    };
    COMMANDS.iter().copied().filter(wanted).collect()
}

/// Runs the commands on a volume; those that may change it run on a copy. Returns the excesses, and
/// the peak memory.
fn try_volume(kind: &str, name: &str, make: fn(&Path), commands: &[&[&str]]) -> (Vec<String>, u64) {
    let scratch = Scratch::new("cost").unwrap();
    let (volume, copy) = (scratch.path().join("image"), scratch.path().join("copy"));
    make(&volume);
    assert!(taken(&volume) <= IMAGE, "{name}: {} bytes", taken(&volume));
    let (mut over, mut most, mut costs) = (Vec::new(), 0, Vec::new());
    let to = scratch.path().join("to");
    for args in commands {
        let only_reads = args.contains(&"info") || args.contains(&"dump");
        let image = if only_reads { &volume } else { &copy };
        let image = image.to_str().unwrap();
        let fill = |arg: &&str| match *arg {
            "TO" => to.display().to_string(),
            arg => arg.replace("IMAGE", image),
        };
        let filled: Vec<String> = args.iter().map(fill).collect();
        let cost = less_of_two(|| {
            if !only_reads {
                self::copy(&volume, &copy);
            }
            Some(run(&filled, scratch.path()))
        });
        costs.extend(cost.map(|cost| (args.join(" "), cost)));
    }
    let by_recover = ["logs", "fast commits", "records"].contains(&kind);
    let mount = (!by_recover).then(|| less_of_two(|| mounted(&volume)));
    let mount = mount.flatten();
    costs.extend(mount.map(|cost| ("mounted".to_owned(), cost)));
    for (what, cost) in costs {
        let line = format!(
            "{name}: {what}: exit code {:?}, {} MiB, {:?}",
            cost.code,
            cost.memory >> 20,
            cost.time
        );
        most = most.max(cost.memory);
        let said: Vec<&str> = cost.said.lines().take(3).collect();
        println!("{line}\n    {}", said.join("\n    "));
        if [None, Some(PANIC)].contains(&cost.code) || cost.memory > MEMORY || cost.time > TIME {
            over.push(line);
        }
    }
    (over, most)
}

/// Tries all volumes of a kind; with `STETFS_IMAGE` those whose name contains it, by all commands.
fn try_all(kind: &str) {
    let only = std::env::var("STETFS_IMAGE").ok();
    let (mut over, mut most) = (Vec::new(), 0);
    let (_, volumes) = ALL.iter().find(|(name, _)| *name == kind).unwrap();
    for (place, (name, make)) in volumes.iter().enumerate() {
        if only.as_ref().is_none_or(|only| name.contains(only)) {
            let commands = commands(kind, name, place, only.is_some());
            let (more, memory) = try_volume(kind, name, *make, &commands);
            over.extend(more);
            most = most.max(memory);
        }
    }
    // The measurement itself works: some command took memory.
    assert!(most > 8 << 20 || only.is_some(), "{most} bytes at most");
    assert!(over.is_empty(), "{}", over.join("\n"));
}

#[test]
fn no_log_costs_more_than_it_holds() {
    try_all("logs");
}

#[test]
fn no_fast_commit_costs_more_than_it_holds() {
    try_all("fast commits");
}

#[test]
fn no_record_of_a_file_costs_more_than_it_holds() {
    try_all("records");
}

#[test]
fn no_orphan_costs_more_than_it_holds() {
    try_all("orphans");
}

/// A hundred damaged orphans are examined; the rest is left to e2fsck, because each may cost much.
#[test]
fn of_damaged_orphans_few_are_looked_at() {
    let all = ALL.iter().flat_map(|(_, volumes)| *volumes);
    let mut found = all.filter(|(name, _)| *name == "orphans of the same blocks");
    let (_, make) = found.next().unwrap();
    let scratch = Scratch::new("cost").unwrap();
    let volume = scratch.path().join("image");
    make(&volume);
    let volume = volume.to_str().unwrap();
    let recovered = stetfs(&["--json", "recover", volume]);
    let said: serde_json::Value = serde_json::from_slice(&recovered.stdout).unwrap();
    assert_eq!(recovered.status.code(), Some(8), "{said}");
    assert_eq!(said["recovery"]["orphans_left"], 60_000, "{said}");
    let info = stetfs(&["--json", "info", volume]);
    let said: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    let errors = said["error_count"].as_u64().unwrap();
    assert!((100..1000).contains(&errors), "{said}");
}

#[test]
fn no_map_costs_more_than_it_holds() {
    try_all("trees");
}

#[test]
fn no_directory_costs_more_than_it_holds() {
    try_all("directories");
}

#[test]
fn no_attribute_costs_more_than_it_holds() {
    try_all("attributes");
}

#[test]
fn no_layout_costs_more_than_it_holds() {
    try_all("layouts");
}
