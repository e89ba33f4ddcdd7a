//! Tests of the comparison with real runs on kernel mounts (needs root and loop devices).

use std::os::unix::fs::PermissionsExt;

use stetfs_bench::compare::{
    Beside, Better, CompareConfig, KernelFs, Oltp, PeerSpec, Peers, PeersConfig, Postmark, Sizes,
    Target, Workload,
};

fn tiny() -> Sizes {
    Sizes {
        mail_files: 200,
        made_files: None,
        syncs: 30,
        overwrite_bytes: 1 << 20,
        names: 60,
        stats: 2_000,
        stream_bytes: 8 << 20,
        git_files: 60,
        profile_seconds: 1,
        threads: &[2],
        server_files: 200,
        transactions: 20,
        postmark: Postmark {
            files: 50,
            directories: 5,
            transactions: 200,
            least: 500,
            most: 10_000,
        },
        oltp: Oltp {
            clients: 2,
            scale: 1,
            seconds: 1,
        },
        copy_bytes: 4 << 20,
    }
}

#[test]
fn kernel_peers_are_measured_and_taken_down() {
    let config = PeersConfig {
        image_bytes: 256 << 20,
        journal_mib: 16,
        ..PeersConfig::new(None, vec![])
    };
    let report = Peers::compare(&config, |c| CompareConfig {
        rounds: 1,
        sizes: tiny(),
        progress: false,
        ..c
    })
    .unwrap();
    println!("{}", report.text());

    assert_eq!(report.targets, ["ext4 ordered", "ext4 journal"]);
    assert_eq!(report.skipped, Vec::<String>::new());
    for workload in Workload::ALL {
        assert!(
            report.metrics.iter().any(|m| m.workload == workload.name()),
            "{} is missing",
            workload.name()
        );
    }
    for metric in &report.metrics {
        assert_eq!(metric.values.len(), 2, "{}", metric.title);
        for value in &metric.values {
            assert_eq!(value.rounds.len(), 1, "{}", metric.title);
            assert!(value.median > 0.0, "{}", metric.title);
        }
        assert!((metric.values[0].ratio - 1.0).abs() < 1e-9);
    }
    // Every fsync of an append makes ext4 flush the device, with its journal and with the data.
    let append = report
        .metrics
        .iter()
        .find(|m| m.title == "append 4 KiB + fsync, p50")
        .unwrap();
    assert_eq!(append.better, Better::Lower);
    for value in &append.values {
        let device = value.device.unwrap();
        assert!((1.0..5.0).contains(&device.flushes), "{device:?}");
        assert!((8.0..100.0).contains(&device.written_kib), "{device:?}");
    }
    // With journalled data each byte is written at least twice: to the log, and to its home
    // location.
    let svg = report.svg().unwrap();
    for text in report
        .targets
        .iter()
        .chain(report.metrics.iter().map(|m| &m.title))
    {
        assert!(svg.contains(text.as_str()), "{text} is not in the figure");
    }
    assert!(svg.matches("<rect").count() >= 2 * report.metrics.len());
    let back: stetfs_bench::compare::Report =
        serde_json::from_str(&report.json().unwrap()).unwrap();
    assert_eq!(back.text(), report.text());
}

#[test]
fn peers_of_several_kinds_work_beside_a_writer() {
    let config = PeersConfig {
        image_bytes: 320 << 20,
        journal_mib: 64,
        kernel: [KernelFs::FastCommit, KernelFs::Xfs]
            .map(PeerSpec::from)
            .into(),
        ..PeersConfig::new(None, vec![])
    };
    let report = Peers::compare(&config, |c| CompareConfig {
        rounds: 2,
        sizes: tiny(),
        progress: false,
        workloads: vec![Workload::PausedFsync, Workload::Stream],
        beside: vec![Beside::ALONE, Beside::appending(20)],
        ..c
    })
    .unwrap();
    assert_eq!(report.targets, ["ext4 fast_commit", "XFS"]);
    assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
    assert!(report.skipped[0].contains("unmounts"));
    let of = |title: &str| report.metrics.iter().find(|m| m.title == title);
    let alone = of("fsync of 80 KB after 0.1 s, p99").unwrap();
    let beside = of("fsync of 80 KB after 0.1 s, p99, beside 20 MB/s").unwrap();
    for value in alone.values.iter().chain(&beside.values) {
        assert_eq!(value.rounds.len(), 2);
        assert!(value.median > 0.0);
    }
    assert!(of("sequential read, cold").is_some());
}

#[test]
fn any_directory_can_be_a_target_and_is_left_as_it_was() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(a.path().join("mine"), "stays").unwrap();
    std::fs::set_permissions(b.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let targets = vec![Target::new("a", a.path()), Target::new("b", b.path())];
    let mut config = CompareConfig {
        rounds: 1,
        sizes: tiny(),
        progress: false,
        ..CompareConfig::new(targets)
    };
    config.workloads = vec![
        Workload::Names1,
        Workload::AppendFsync,
        Workload::Postmark,
        Workload::Copy,
        Workload::Oltp,
        Workload::Sysbench,
    ];
    let report = stetfs_bench::compare::run(&mut config).unwrap();
    // One directory is closed to the users that database servers of root run as.
    let root = rustix::process::geteuid().is_root();
    assert_eq!(report.skipped.len(), if root { 2 } else { 0 });
    assert!(
        report.skipped.iter().all(|s| s.contains("chmod o+x")),
        "{:?}",
        report.skipped
    );
    assert_eq!(report.metrics.len(), if root { 9 } else { 11 });
    drop(config);
    let left: Vec<_> = std::fs::read_dir(a.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["mine"]);
    assert_eq!(std::fs::read_dir(b.path()).unwrap().count(), 0);
}

#[test]
fn databases_run_in_any_directory_and_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut config = CompareConfig {
        rounds: 1,
        sizes: tiny(),
        progress: false,
        ..CompareConfig::new(vec![Target::new("dir", dir.path())])
    };
    config.workloads = vec![Workload::Oltp, Workload::Sysbench];
    let report = stetfs_bench::compare::run(&mut config).unwrap();
    assert_eq!(report.skipped, Vec::<String>::new());
    assert_eq!(report.metrics.len(), 2);
    assert!(report.metrics.iter().all(|m| m.values[0].median > 0.0));
    // It is unknown how the directory writes pages.
    let text = report.text();
    assert!(text.contains("full_page_writes is on everywhere"), "{text}");
    assert!(
        text.contains("innodb_doublewrite is on everywhere"),
        "{text}"
    );
    drop(config);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let here = dir.path().to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let left = processes.filter_map(|p| std::fs::read_to_string(p.path().join("cmdline")).ok());
    assert_eq!(left.filter(|c| c.contains(here)).count(), 0);
}
