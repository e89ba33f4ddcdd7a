//! A check that all options and changes of a volume are dimensions of the swarm, or have a stated
//! reason why not.

use std::collections::BTreeSet;
use std::path::Path;

use stetfs::low::FsOptions;
use stetfs_crash::swarm::dimension::{OP, dimensions};

/// The dimension that draws an option, or the reason why none does.
enum Drawn {
    By(&'static str),
    Not(&'static str),
}
use Drawn::{By, Not};

#[track_caller]
fn check(what: &str, drawn: &Drawn) {
    match drawn {
        By(name) => assert!(
            dimensions().iter().any(|d| d.name == *name && d.is_drawn()),
            "{what}: there is no dimension {name} that is drawn"
        ),
        Not(why) => assert!(!why.is_empty(), "{what}"),
    }
}

/// A new field does not compile until it is listed here.
#[test]
fn each_option_of_a_file_system_is_drawn() {
    let FsOptions {
        read_only: _,
        no_recovery: _,
        leave_orphans: _,
        journal: _,
        region: _,
        commit_secs: _,
        dirty_expire: _,
        cache_bytes: _,
        cache_policy: _,
        erase_block: _,
        data_err: _,
        on_error: _,
        sync: _,
        dirsync: _,
        bsd_groups: _,
        atime: _,
        nodiratime: _,
        lazytime: _,
        discard: _,
        async_commit: _,
        barrier: _,
        salvage: _,
        epoch: _,
        mmp_second: _,
        proves_records: _,
        canary: _,
    } = FsOptions::default();
    let nothing = "nothing can be lost by it: the volume does not change";
    let table = [
        ("read_only", Not(nothing)),
        ("no_recovery", Not(nothing)),
        ("leave_orphans", Not(nothing)),
        ("journal", By("preset")),
        ("region", By("region")),
        (
            "commit_secs",
            Not("a run is shorter than a second; threads sync beside each other"),
        ),
        ("dirty_expire", By("expire")),
        ("cache_bytes", By("cache")),
        ("cache_policy", By("policy")),
        (
            "erase_block",
            Not("of the flash lab; only the order of writes differs"),
        ),
        ("data_err", By("data_err")),
        ("on_error", By("errors")),
        ("sync", By("sync")),
        ("dirsync", By("dirsync")),
        (
            "bsd_groups",
            Not("the model knows no groups of directories"),
        ),
        ("atime", By("strictatime")),
        ("nodiratime", Not("less of strictatime")),
        ("lazytime", By("lazytime")),
        ("discard", By("discard")),
        ("async_commit", By("async_commit")),
        ("barrier", Not("off it promises nothing")),
        ("salvage", Not("recovery succeeds without")),
        ("epoch", Not("times that stand still; cli:repeat")),
        ("mmp_second", Not("of tests")),
        ("proves_records", Not("it is on in each run")),
        ("canary", By("canary")),
    ];
    for (option, drawn) in &table {
        // Canaries have a dimension though they are never drawn.
        if *option != "canary" {
            check(option, drawn);
        }
    }
}

/// The requests that a mount serves, as the crate `fuse` declares them.
fn requests() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuse/src/api/ops.rs");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, file_system) = text.split_once("pub trait FileSystem").unwrap();
    let (file_system, _) = file_system.split_once("\n}\n").unwrap();
    let functions = file_system.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("    fn ")?.split_once('(')?;
        Some(name.to_owned())
    });
    functions.collect()
}

#[test]
fn each_request_that_changes_something_is_drawn() {
    let reads = "it changes nothing";
    let own = "of the server: what it says of itself, or does for a request";
    let table: &[(&str, &[Drawn])] = &[
        ("ids", &[Not(own)]),
        ("holds_back", &[Not(own)]),
        ("may_hold_back", &[Not(own)]),
        ("hold_back", &[Not(own)]),
        ("lookup", &[Not(reads)]),
        ("forget", &[Not(reads)]),
        ("getattr", &[Not(reads)]),
        (
            "setattr",
            &[By("op-chmod"), By("op-chown"), By("op-truncate")],
        ),
        ("readlink", &[Not(reads)]),
        ("mknod", &[By("op-mkfifo")]),
        ("mkdir", &[By("op-mkdir")]),
        ("symlink", &[By("op-symlink")]),
        ("link", &[By("op-link"), By("op-link-held")]),
        ("unlink", &[By("op-unlink"), By("op-hold-unlink")]),
        ("rmdir", &[By("op-rmdir")]),
        (
            "rename",
            &[
                By("op-rename"),
                By("op-rename-new"),
                By("op-exchange"),
                By("op-whiteout"),
            ],
        ),
        ("open", &[By("op-hold")]),
        ("create", &[By("op-create")]),
        ("tmpfile", &[By("op-tmpfile")]),
        ("copy_range", &[By("op-copy")]),
        ("release", &[By("op-close")]),
        ("flush", &[Not("it is open and close; it writes nothing")]),
        ("read", &[By("strictatime")]),
        (
            "write",
            &[By("op-write"), By("op-append"), By("op-map-write")],
        ),
        (
            "fsync",
            &[By("op-fsync"), By("op-fdatasync"), By("op-fsync-dir")],
        ),
        ("fallocate", &[By("op-fallocate")]),
        ("seek", &[Not(reads)]),
        ("bmap", &[Not(reads)]),
        ("opendir", &[Not(reads)]),
        ("readdir", &[By("strictatime")]),
        ("statfs", &[Not(reads)]),
        ("sync_fs", &[By("op-sync-all")]),
        (
            "shutdown",
            &[Not("the end of a mount is a crash, or its close")],
        ),
        (
            "setxattr",
            &[By("op-set-xattr"), By("op-large-xattr"), By("op-acl")],
        ),
        ("getxattr", &[Not(reads)]),
        ("listxattr", &[Not(reads)]),
        ("removexattr", &[By("op-remove-xattr")]),
        (
            "ioctl",
            &[
                By("op-flags"),
                By("op-map-form"),
                By("op-project"),
                By("op-trim"),
                By("op-atomic"),
                By("op-commit"),
                By("op-abort"),
                By("op-freeze"),
            ],
        ),
    ];
    for (request, drawn) in table {
        for drawn in *drawn {
            check(request, drawn);
        }
    }
    let told = table.iter().map(|(name, _)| (*name).to_owned()).collect();
    let there = requests();
    assert!(there.len() > 30, "{there:?}");
    assert_eq!(there, told, "each request is in the table of this test");
    assert!(dimensions().iter().any(|d| d.name.starts_with(OP)));
}
