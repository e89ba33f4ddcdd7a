//! Tests of `stetfs certify` on an image, which stays unchanged, and on a mount.
use std::fs;

use crate::common::daemon::{Daemon, answer, fails};
use serde_json::Value;
use stetfs_testkit::{Image, Mkfs};

/// The finding about `what` in the section of this name.
fn found<'a>(page: &'a Value, section: &str, what: &str) -> &'a str {
    let sections = page["sections"].as_array().unwrap();
    let section = sections.iter().find(|s| s["name"] == section);
    let rows = section.unwrap_or_else(|| panic!("{section:?} in {page:#}"))["rows"].as_array();
    let row = rows.unwrap().iter().find(|r| {
        let name = r["what"].as_str().unwrap();
        name.starts_with(what)
    });
    row.unwrap_or_else(|| panic!("{what} in {page:#}"))["found"]
        .as_str()
        .unwrap()
}

fn says(page: &Value, section: &str) -> String {
    let sections = page["sections"].as_array().unwrap();
    let section = sections.iter().find(|s| s["name"] == section).unwrap();
    section["how"].as_str().unwrap().to_owned()
}

#[test]
fn an_image_is_tried_by_a_copy_and_stays_as_it_is() {
    let image = Image::make(24 << 20, &Mkfs::blocks(4096).journal_mib(4)).unwrap();
    let path = image.path().to_str().unwrap();
    let html = image.dir().join("page.html");
    let before = fs::read(image.path()).unwrap();
    let (code, page) = answer(&[
        "certify",
        "--seconds",
        "6",
        "--html",
        html.to_str().unwrap(),
        "-o",
        "journal=ldj,direct_io",
        path,
    ]);
    // The image may lie in memory here; then that is the only objection.
    let objections = page["objections"].as_array().unwrap();
    let other = objections
        .iter()
        .filter(|o| !o.as_str().unwrap().contains("in memory"));
    assert_eq!(other.count(), 0, "{objections:?}");
    assert_eq!(code, if objections.is_empty() { 0 } else { 7 });
    assert!(
        says(&page, "When the power is cut").contains("a copy of the volume"),
        "{page:#}"
    );
    for workload in ["smoke", "appends", "overwrites", "threads"] {
        let cuts = found(&page, "When the power is cut", workload);
        assert!(
            !cuts.starts_with("0 states") && cuts.contains("nothing that was promised"),
            "{cuts}"
        );
    }
    assert!(found(&page, "When the device fails", "every flush").contains("Input/output error"));
    assert!(found(&page, "The largest write that is whole", "after").starts_with("1 MiB"));
    assert!(found(&page, "What a sync costs", "4 KiB").contains("p99.9"));
    let html = fs::read_to_string(html).unwrap();
    assert!(html.contains("<h2>When the power is cut</h2>") && html.contains("ldj"));
    assert!(
        before == fs::read(image.path()).unwrap(),
        "the image was changed"
    );
    let left = fs::read_dir(image.dir()).unwrap().count();
    assert_eq!(left, 2, "the image and the page");
}

#[test]
fn what_loses_synced_data_is_found() {
    let image = Image::make(24 << 20, &Mkfs::blocks(4096).journal_mib(4)).unwrap();
    let args = [
        "certify",
        "--seconds",
        "6",
        "-o",
        "nobarrier",
        image.path().to_str().unwrap(),
    ];
    let (code, page) = answer(&args);
    assert_eq!(code, 7);
    let objections = page["objections"].to_string();
    assert!(
        objections.contains("broke a promise") && objections.contains("nobarrier"),
        "{objections}"
    );
}

#[test]
fn a_mount_is_tried_where_it_is_used() {
    let daemon = Daemon::new("journal=ijournal");
    fails(
        &["certify", "-o", "ro", daemon.dir()],
        1,
        &["-o is for a volume"],
    );
    let (_, page) = answer(&["certify", "--seconds", "5", daemon.dir()]);
    assert!(
        says(&page, "When the power is cut").contains("it is mounted"),
        "{page:#}"
    );
    assert_eq!(found(&page, "The volume", "preset"), "ijournal");
    assert!(found(&page, "What a sync costs", "the same beside").contains("p50"));
    assert_ne!(found(&page, "What a sync costs", "flushes"), "0");
    let together = found(&page, "SQLite, WAL with shared memory", "processes");
    assert!(together.contains("every row is there"), "{together}");
    let left: Vec<_> = fs::read_dir(&daemon.dir).unwrap().collect();
    assert_eq!(left.len(), 1, "lost+found alone: {left:?}");
}
