//! Tests of remounts that are refused: the mount goes on as it was.

use std::fs::File;
use std::io::{Read, Seek, Write};

use crate::common::daemon::{Daemon, fails, json, ok, stetfs};
use stetfs_testkit::{Image, Mkfs};

/// A volume, its mount options, and remounts that it refuses.
struct Row {
    mkfs: fn() -> Mkfs,
    mounted: &'static str,
    refused: &'static [&'static str],
}

const ROWS: &[Row] = &[
    // The log is too small for so many lanes.
    Row {
        mkfs: || Mkfs::blocks(1024).journal_mib(1),
        mounted: "",
        refused: &[
            "journal=zjournal,lanes=3",
            "journal=zjournal,lanes=64",
            "journal=zjournal,data=journal,lanes=64",
            "journal=zjournal,sync=file",
        ],
    },
    Row {
        mkfs: || Mkfs::blocks(4096).journal_mib(4),
        mounted: "journal=zjournal,lanes=1,commit=60",
        refused: &["lanes=64", "data=journal,lanes=64,commit=7"],
    },
    // Options that every volume refuses.
    Row {
        mkfs: || Mkfs::blocks(4096),
        mounted: "journal=data",
        refused: &[
            "journal=fast",
            "journal=nvm",
            "journal=zjournal,codec=jbd2",
            "journal=ordered,sync=region",
            "journal=zjournal,sync=file",
            "lanes=0",
            "commit=soon",
            "cache=1",
            "cache=many",
            "cache_policy=best",
            "partition=2",
            "offset=1048576",
            "nvm=/nowhere",
            "log_file=/nowhere/log",
            "errors=ignore",
            "noload",
            "barrier=2",
            "frobnicate",
        ],
    },
    // A volume without a journal.
    Row {
        mkfs: || Mkfs::blocks(4096).feature("^has_journal"),
        mounted: "",
        refused: &[
            "journal=data",
            "journal=stet",
            "journal=zjournal",
            "data_err=abort",
        ],
    },
];

/// A file that stays open through all remounts, and grows.
struct Witness<'d> {
    d: &'d Daemon,
    file: File,
    text: String,
}

impl<'d> Witness<'d> {
    fn new(d: &'d Daemon) -> Witness<'d> {
        let mut how = File::options();
        how.read(true).append(true).create(true);
        let file = how.open(d.file("witness")).unwrap();
        let text = String::new();
        Witness { d, file, text }
    }

    /// Checks that the mount works, with a file opened before and with a new one.
    fn works(&mut self, after: &str) {
        let done = self.write_and_read(after);
        done.unwrap_or_else(|e| panic!("after {after}: {e}"));
    }

    fn write_and_read(&mut self, after: &str) -> std::io::Result<()> {
        let more = format!("{after}\n");
        self.file.write_all(more.as_bytes())?;
        self.file.sync_all()?;
        self.text += &more;
        self.file.rewind()?;
        let mut found = String::new();
        self.file.read_to_string(&mut found)?;
        assert_eq!(found, self.text, "after {after}");
        let name = self.d.file("new");
        std::fs::write(&name, after)?;
        assert_eq!(std::fs::read_to_string(&name)?, after);
        std::fs::remove_file(&name)
    }
}

/// The settings of a mount, from `stat`.
fn settings(d: &Daemon) -> String {
    let stat = json(&["stat", d.dir()]);
    let journal = &stat["journal"];
    format!(
        "{} {} {} {}",
        journal["preset"], journal["options"], stat["read_only"], stat["options"]
    )
}

#[test]
fn a_refused_remount_changes_nothing() {
    for row in ROWS {
        let image = Image::make(64 << 20, &(row.mkfs)()).unwrap();
        let d = Daemon::unmounted(image);
        d.mount(row.mounted);
        let mut witness = Witness::new(&d);
        let (mut before, mut taken) = (settings(&d), Vec::new());
        for options in row.refused {
            let dir = d.dir();
            // Some data is unsynced, as at any time.
            std::fs::write(d.file("unsynced"), options).unwrap();
            let refused = stetfs(&["mount", "-o", &format!("remount,{options}"), "none", dir]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            if refused.status.success() {
                taken.push(options);
                before = settings(&d);
            }
            assert!(!said.contains("has stopped"), "{options}: {said}");
            witness.works(options);
            assert_eq!(settings(&d), before, "{options}: {said}");
            assert_eq!(
                std::fs::read_to_string(d.file("unsynced")).unwrap(),
                *options
            );
        }
        assert!(taken.is_empty(), "taken: {taken:?}");
        // Other remounts are still accepted.
        ok(&["mount", "-o", "remount,commit=9", "none", d.dir()]);
        witness.works("commit=9");
        drop(witness);
        ok(&["umount", d.dir()]);
        d.image.e2fsck_fn().unwrap();
    }
}

/// Remounts are also refused because of open files, or the state of the volume.
#[test]
fn a_remount_at_the_wrong_time_changes_nothing() {
    let d = Daemon::new("");
    let mut witness = Witness::new(&d);
    let before = settings(&d);
    let refused = |witness: &mut Witness<'_>, options: &str, code: i32, hints: &[&str]| {
        let options = format!("remount,{options}");
        fails(&["mount", "-o", &options, "none", d.dir()], code, hints);
        witness.works(&options);
        assert_eq!(settings(&d), before);
    };
    // A file is open for writing.
    refused(&mut witness, "ro", 4, &["busy"]);
    refused(&mut witness, "ro,journal=data", 4, &["busy"]);
    // A file without a name.
    let nameless = File::create_new(d.file("nameless")).unwrap();
    std::fs::remove_file(d.file("nameless")).unwrap();
    refused(&mut witness, "journal=data", 4, &["deleted files"]);
    drop(nameless);
    // The volume is frozen.
    ok(&["freeze", d.dir()]);
    fails(
        &["mount", "-o", "remount,journal=data", "none", d.dir()],
        4,
        &["frozen"],
    );
    ok(&["thaw", d.dir()]);
    witness.works("a freeze");
    drop(witness);
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}
