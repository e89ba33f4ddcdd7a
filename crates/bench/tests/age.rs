//! Tests of ageing with real runs: the judge against e2fsprogs, and the kernel beside StetFS (needs
//! root and loop devices).

use std::fs::File;
use std::io::Write;
use std::process::Command;

use stetfs_bench::age::judge::judge;
use stetfs_bench::age::{AgeConfig, Kind, PeerSpec, Phase, run};
use stetfs_testkit::{Image, Mkfs, Mounter};

fn said(program: &str, args: &[&std::path::Path]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    assert!(out.status.success(), "{program}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// The number after these words.
fn number(text: &str, words: &str) -> u64 {
    let tail = text.split(words).nth(1).unwrap();
    let digits: String = tail
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap()
}

#[test]
fn the_judge_agrees_with_filefrag_and_e2freefrag() {
    let image = Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap();
    let mounted = Mounter::ext4("").mount(image.path()).unwrap();
    let dir = mounted.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    let piece = [1u8; 12_288];
    let mut files: Vec<File> = (0..40)
        .map(|i| File::create(dir.join(i.to_string())).unwrap())
        .collect();
    for round in 0..12 {
        for file in files.iter_mut().skip(round) {
            file.write_all(&piece).unwrap();
            file.sync_data().unwrap();
        }
    }
    drop(files);
    for i in (0..40).step_by(3) {
        std::fs::remove_file(dir.join(i.to_string())).unwrap();
    }
    let mut extents = 0;
    let mut several = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let n = number(&said("filefrag", &[&entry.unwrap().path()]), ": ");
        extents += n;
        several += u64::from(n > 1);
    }
    mounted.umount().unwrap();
    let aged = judge(image.path()).unwrap();
    assert_eq!(
        (aged.files, aged.extents, aged.broken),
        (26, extents, several)
    );
    assert!(aged.extents > aged.files, "syncs break some up");
    assert_eq!(aged.by_extents.iter().sum::<u64>(), 26);
    let free = said("e2freefrag", &[image.path()]);
    let (blocks, runs) = (
        number(&free, "Free blocks:"),
        number(&free, "Num. free extent:"),
    );
    assert_eq!((aged.free_mib * 256.0).round() as u64, blocks);
    assert_eq!(aged.free_runs, runs);
    assert!(aged.with_directory > 0.0 && aged.distance_mib < 64.0);
}

#[test]
fn a_short_life_of_both() {
    let peer = |name: &str, kind, journal: &str| PeerSpec {
        name: name.into(),
        kind,
        journal: journal.parse().unwrap(),
    };
    let config = AgeConfig {
        peers: vec![
            peer("ext4", Kind::Kernel, "ordered"),
            peer("library", Kind::Library, "ordered"),
            peer("lanes", Kind::Library, "zjournal,lanes=4,groups=core"),
        ],
        image_bytes: 160 << 20,
        seed: 7,
        phases: [0.8, 0.95].map(|full| Phase { full, days: 3 }).into(),
        churn: 0.05,
        progress: false,
    };
    let report = run(&config).unwrap();
    for life in 1..3 {
        let both = report.lives[0]
            .stages
            .iter()
            .zip(&report.lives[life].stages);
        for (phase, (kernel, ours)) in both.enumerate() {
            assert_eq!(kernel.aged.files, ours.aged.files, "the same script");
            assert!((kernel.aged.mib - ours.aged.mib).abs() < 0.01);
            assert!(ours.aged.mib > kernel.full * 100.0, "as full as asked");
            assert_eq!(ours.day_seconds.len(), 3);
            // The promise, on a volume so small and young that it is hardest to keep.
            let ratio = report.extents_ratio(life, phase).unwrap();
            assert!((0.1..2.0).contains(&ratio), "{ratio} times the extents");
        }
    }
    let out = tempfile::tempdir().unwrap();
    report.write(out.path()).unwrap();
    let svg = std::fs::read_to_string(out.path().join("age.svg")).unwrap();
    assert!(svg.contains("95 % full") && svg.contains("library"));
    let json = std::fs::read_to_string(out.path().join("age.json")).unwrap();
    assert!(json.contains("\"by_extents\""));
    assert!(report.text().contains("extents a MiB"));
}
