//! Tests of `stetfs dump journal --graph`: the journals of volumes as pictures.
use std::fs;

use crate::common::daemon::{fails, json, ok};
use serde_json::Value;
use stetfs::{MountOptions, Volume};
use stetfs_testkit::{Image, Mkfs, Scratch};

/// The image as a crash leaves it, after two processors worked in a shared directory and synced
/// twice.
fn crashed(journal: &str, options: &[(&str, &str)]) -> Image {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let mut how = MountOptions::new();
    how.journal(journal);
    for (name, value) in options {
        how.journal_option(name, value);
    }
    let volume = Volume::open(image.path(), &how).unwrap();
    for round in 0..2 {
        for processor in 0..2 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    stetfs::low::serve_processor(processor);
                    let path = format!("/{round}-{processor}");
                    volume.write(path, [7; 3000]).unwrap();
                });
            });
        }
        volume.sync_all().unwrap();
    }
    if journal == "ijournal" {
        let file = volume.create_file("/alone").unwrap();
        file.write_all_at(&[7; 3000], 0).unwrap();
        file.sync_all().unwrap();
    }
    let left = image.copy().unwrap();
    volume.close().unwrap();
    left
}

fn path(image: &Image) -> &str {
    image.path().to_str().unwrap()
}

fn records(image: &Image) -> Vec<Value> {
    let dump = ok(&["--json", "dump", "journal", path(image)]);
    let lines = dump.lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// The summary of the graph, and the picture.
fn graph(image: &Image) -> (Value, String) {
    let scratch = Scratch::new("graph").unwrap();
    let file = scratch.path().join("journal.svg");
    let file = file.to_str().unwrap();
    let said = json(&["dump", "journal", "--graph", file, path(image)]);
    let svg = fs::read_to_string(file).unwrap();
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains(path(image)), "{svg}");
    (said, svg)
}

/// Removes the newest frame of a lane from the log.
fn lose_newest(image: &Image, lane: u16) {
    let mut bytes = fs::read(image.path()).unwrap();
    let block = 1024;
    let frames = (0..bytes.len()).step_by(block).filter(|at| {
        bytes[*at..].starts_with(b"stetfrm1") && bytes[at + 48..at + 50] == lane.to_le_bytes()
    });
    let number = |at: &usize| u64::from_le_bytes(bytes[at + 24..at + 32].try_into().unwrap());
    let newest = frames.max_by_key(number).unwrap();
    bytes[newest..newest + block].fill(0);
    fs::write(image.path(), bytes).unwrap();
}

/// Two lanes that share a directory commit together. If the crash loses one of the frames, recovery
/// drops the other; the records and the picture say so.
#[test]
fn what_recovery_drops_is_marked() {
    let image = crashed("zjournal", &[("lanes", "2")]);
    let (whole, svg) = graph(&image);
    assert_eq!(whole["format"], "stetfs");
    assert_eq!((&whole["lanes"], &whole["dropped"]), (&2.into(), &0.into()));
    assert!(svg.contains("<line class=\"needs\""), "{svg}");
    let frames = |image: &Image| {
        let all = records(image).into_iter();
        all.filter(|r| r["record"] == "frame").collect::<Vec<_>>()
    };
    let before = frames(&image);
    assert_eq!(whole["transactions"], before.len());
    assert!(before.iter().all(|f| f["dropped"].is_null()), "{before:?}");
    assert!(before.iter().any(|f| f["edges"] != serde_json::json!([])));

    lose_newest(&image, 1);
    let (cut, svg) = graph(&image);
    let after = frames(&image);
    let dropped: Vec<&Value> = after.iter().filter(|f| !f["dropped"].is_null()).collect();
    assert_eq!(dropped.len(), 1, "{after:?}");
    assert_eq!(
        (&dropped[0]["lane"], &dropped[0]["home"]),
        (&0.into(), &0.into())
    );
    assert_eq!(dropped[0]["dropped"][0], 1);
    assert_eq!(cut["dropped"], 1);
    for class in ["dropped", "missing", "counts"] {
        let group = format!("<g class=\"{class}\">");
        assert!(svg.contains(&group), "{class}: {svg}");
    }
    assert!(svg.contains("<line class=\"needs-dropped\""), "{svg}");
    let told = ok(&["dump", "journal", path(&image)]);
    assert!(told.contains("DROPPED: depends on 1:"), "{told}");
    let home: u64 = after.iter().map(|f| f["home"].as_u64().unwrap()).sum();
    assert_eq!(cut["home"], home);
    let recovered = json(&["recover", path(&image)]);
    let recovery = &recovered["recovery"];
    assert_eq!(recovery["dropped"].as_array().unwrap().len(), 1);
    assert_eq!(recovery["blocks"], home, "{recovered}");
}

#[test]
fn every_journal_has_a_picture() {
    let image = crashed("ordered", &[]);
    let (said, svg) = graph(&image);
    assert_eq!(
        (&said["format"], &said["lanes"]),
        (&"jbd2".into(), &1.into())
    );
    assert!(svg.contains(">transactions<"), "{svg}");
    let recovered = json(&["recover", path(&image)]);
    let recovery = &recovered["recovery"];
    assert_eq!(said["transactions"], recovery["transactions"]);
    assert_eq!(said["home"], recovery["blocks"]);
    // The log is empty now.
    let (said, svg) = graph(&image);
    assert_eq!(said["transactions"], 0);
    assert!(svg.contains(">empty<"), "{svg}");

    for journal in ["ldj", "ijournal"] {
        let image = crashed(journal, &[]);
        let (said, svg) = graph(&image);
        let files = journal == "ijournal";
        assert_eq!(said["records"].as_u64() > Some(0), files, "{said}");
        assert_eq!(svg.contains(">files, lane "), files, "{svg}");
        let recovered = json(&["recover", path(&image)]);
        let recovery = &recovered["recovery"];
        assert_eq!(said["transactions"], recovery["transactions"], "{journal}");
        assert_eq!(said["records"], recovery["records"], "{journal}");
        assert_eq!(said["home"], recovery["blocks"], "{journal}");
    }
}

#[test]
fn the_picture_is_not_written_over_the_volume() {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let before = fs::read(image.path()).unwrap();
    let volume = path(&image);
    let words = ["the picture cannot be written there", "--graph"];
    fails(&["dump", "journal", "--graph", volume, volume], 1, &words);
    let scratch = Scratch::new("graph").unwrap();
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink(image.path(), &link).unwrap();
    let link = link.to_str().unwrap();
    fails(&["dump", "journal", "--graph", link, volume], 1, &words);
    assert!(fs::read(image.path()).unwrap() == before);
}
