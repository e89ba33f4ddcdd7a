//! Hours of use: fsx, random trees on several threads with their contents checked, a compiler.
//! Meanwhile the memory of the server is sampled, and must stay flat.
//!
//! `STETFS_SOAK_HOURS` sets the time (fractions are allowed; the default is half a minute), as does
//! `./test --soak HOURS`; `STETFS_TEST_OPTIONS` sets the mount's options. Prints a summary of the
//! samples as JSON.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::assert_no_differences;
use crate::common::daemon::{Daemon, json, ok};
use crate::common::seed;
use stetfs_testkit::workload::mutate::Mutator;
use stetfs_testkit::{Image, Mkfs, cmd, tools};

const CACHE_MIB: u64 = 64;
/// Memory beside the cache: the journal's, inodes, buffers of the threads.
const REST_MIB: u64 = 224;
/// Shorter runs say nothing about growth.
const LONG: Duration = Duration::from_secs(600);

fn duration() -> Duration {
    let hours = std::env::var("STETFS_SOAK_HOURS").map(|h| h.parse::<f64>().expect("hours"));
    hours.map_or(Duration::from_secs(30), |h| {
        Duration::from_secs_f64(h * 3600.0)
    })
}

/// Resident memory of a process, KiB.
fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let line = line.unwrap().trim().trim_end_matches(" kB");
    line.parse().unwrap()
}

/// Changes trees in a directory of its own, and regularly compares them with the expected state.
fn trees(root: &Path, seed: u64, end: Instant, rounds: &AtomicU64) {
    for round in 0.. {
        let dir = root.join(format!("tree-{seed}-{round}"));
        std::fs::create_dir(&dir).unwrap();
        let mut work = Mutator::new(seed + round);
        for _ in 0..3 {
            work.run(&dir, 300).unwrap();
            assert_no_differences("soak", &work.verify(&dir).unwrap());
        }
        std::fs::remove_dir_all(&dir).unwrap();
        rounds.fetch_add(1, Ordering::Relaxed);
        if Instant::now() > end {
            return;
        }
    }
}

fn fsx(program: &Path, beside: &Path, root: &Path, seed: u64, end: Instant, rounds: &AtomicU64) {
    for round in 0.. {
        let mut command = Command::new(program);
        command.args(["-N", "3000", "-S", &(seed + round).to_string(), "-P"]);
        cmd::run(command.arg(beside).arg(root.join("fsx"))).unwrap();
        rounds.fetch_add(1, Ordering::Relaxed);
        if Instant::now() > end {
            return;
        }
    }
}

/// Compiles thirty C files, links them, and checks the program's output.
fn compile(root: &Path, end: Instant, rounds: &AtomicU64) {
    loop {
        let dir = root.join("compile");
        std::fs::create_dir(&dir).unwrap();
        let mut main = String::from("#include <stdio.h>\n");
        let mut sum = String::from("0");
        for i in 0..30 {
            std::fs::write(
                dir.join(format!("f{i}.c")),
                format!("int f{i}(void) {{ return {i}; }}\n"),
            )
            .unwrap();
            main += &format!("int f{i}(void);\n");
            sum += &format!(" + f{i}()");
        }
        main += &format!("int main(void) {{ printf(\"%d\\n\", {sum}); return 0; }}\n");
        std::fs::write(dir.join("main.c"), main).unwrap();
        let mut cc = Command::new("sh");
        cc.args([
            "-ec",
            "for f in *.c; do cc -c $f; done; cc -o program *.o; ./program",
        ]);
        let said = cmd::run(cc.current_dir(&dir)).unwrap();
        assert_eq!(said.trim(), (0..30).sum::<i32>().to_string());
        std::fs::remove_dir_all(&dir).unwrap();
        rounds.fetch_add(1, Ordering::Relaxed);
        if Instant::now() > end {
            return;
        }
    }
}

#[test]
fn memory_stays_flat_under_mixed_use() {
    let length = duration();
    let seed = seed("STETFS_STRESS_SEED");
    let program = tools::cargo_tool("fsx", "0.3.2").unwrap();
    let mount = Daemon::unmounted(Image::make(2 << 30, &Mkfs::new()).unwrap());
    let given = std::env::var("STETFS_TEST_OPTIONS").unwrap_or_default();
    mount.mount(&format!("cache={CACHE_MIB}M,{given}"));
    let pid = mount.pid();
    let (begin, end) = (Instant::now(), Instant::now() + length);
    let [tree_rounds, fsx_rounds, compilations] = [0; 3].map(AtomicU64::new);
    let samples: Vec<u64> = std::thread::scope(|scope| {
        let (root, beside) = (mount.dir.as_path(), mount.image.dir());
        let rounds = &tree_rounds;
        let mut work: Vec<_> = (0..2)
            .map(|i| scope.spawn(move || trees(root, seed + i * 1_000_000, end, rounds)))
            .collect();
        work.push(scope.spawn(|| fsx(&program, beside, root, seed, end, &fsx_rounds)));
        work.push(scope.spawn(|| compile(root, end, &compilations)));
        let mut samples = Vec::new();
        while work.iter().any(|thread| !thread.is_finished()) {
            samples.push(resident(pid));
            std::thread::sleep(Duration::from_secs(1));
        }
        samples
    });
    let operations = json(&["stat", mount.dir()])["journal"]["commits"].clone();
    ok(&["umount", mount.dir()]);
    mount.image.e2fsck_fn().unwrap();

    let quarter = (samples.len() / 4).max(1);
    let highest: Vec<u64> = samples
        .chunks(quarter)
        .take(4)
        .map(|part| part.iter().copied().max().unwrap_or(0))
        .collect();
    println!(
        "{}",
        serde_json::json!({
            "seconds": begin.elapsed().as_secs(), "seed": seed, "options": given,
            "trees": tree_rounds.into_inner(), "fsx": fsx_rounds.into_inner(),
            "compilations": compilations.into_inner(), "commits": operations,
            "resident_kib_by_quarter": highest,
        })
    );
    let most = highest.iter().max().unwrap();
    assert!(*most < (CACHE_MIB + REST_MIB) << 10, "{most} KiB resident");
    if let ([_, second, _, last], true) = (&highest[..], length >= LONG) {
        assert!(
            *last <= second + second / 10 + (8 << 10),
            "memory grew from {second} to {last} KiB"
        );
    }
}
