//! The workloads by name or from a file, as cases.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use stetfs::low::DataMode;

use super::op::Op;
use super::script::Script;
use super::{ace, text};
use crate::volume::DIRS;

/// Scripts that run at the same time, one for each thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The name, for messages.
    pub name: String,
    /// The scripts.
    pub scripts: Vec<Vec<Op>>,
    /// Number of operations of the first script before which no crash is tried.
    pub setup: usize,
    /// The flush of the device that fails, counted from 0 at the opening of the volume.
    pub fail_flush: Option<u64>,
}

/// The names of the workloads, with descriptions.
pub const NAMES: [(&str, &str); 16] = [
    ("smoke", "every kind of operation, before and after syncs"),
    ("ace1", "all sequences of one operation and a sync"),
    (
        "ace2",
        "all sequences of two operations, each with every sync or none",
    ),
    (
        "ace3",
        "20000 sequences of three operations, drawn with the seed",
    ),
    ("random", "1500 random operations"),
    (
        "files",
        "1000 random operations of those that Linux' fast commits can hold, and many syncs of files",
    ),
    ("threads", "300 random operations in each of three threads"),
    (
        "reuse",
        "directories that are freed, their blocks used again for data",
    ),
    (
        "orphans",
        "files that are unlinked, replaced, cut or written while open, and files without a name",
    ),
    (
        "mapped",
        "writes through shared mappings (on a mount; else plain writes), and their syncs",
    ),
    (
        "appends",
        "a log file and a database page file: small appends, overwrites, fdatasync",
    ),
    (
        "overwrites",
        "two threads that overwrite files in place and sync them, and one that makes, renames, syncs",
    ),
    (
        "groups",
        "atomic groups of several files, committed, aborted and left open, and syncs beside them (data journals only)",
    ),
    (
        "pages",
        "two threads that overwrite pages of 8, 16 and 64 KiB, aligned to their size, and sync them",
    ),
    (
        "frozen",
        "250 random operations with freezes and thaws between them, and a thread that waits meanwhile",
    ),
    (
        "rounds",
        "two files that are overwritten and synced until the log was gone round, with checkpoints, and small changes in between",
    ),
];

/// Number of sequences of `ace3`.
const ACE3: usize = 20_000;

/// Most bytes of a write that must be whole after a crash, for all block sizes (docs/atomic.md).
const WHOLE: u32 = 64 << 10;

/// The cases of the workload with this name, or from this file.
///
/// # Errors
/// There is no such name and no such file, or the file is wrong.
pub fn cases(name: &str, seed: u64) -> Result<Vec<Case>> {
    let one = |scripts: Vec<Vec<Op>>| {
        vec![Case {
            name: name.into(),
            scripts,
            setup: 0,
            fail_flush: None,
        }]
    };
    let family = |scripts: Vec<Vec<Op>>| {
        let setup = ace::setup().len();
        scripts
            .into_iter()
            .enumerate()
            .map(|(i, script)| Case {
                name: format!("{name}/{i}"),
                scripts: vec![script],
                setup,
                fail_flush: None,
            })
            .collect()
    };
    let random = |seed, len| Script::random(seed, len, 4096, DataMode::Ordered).ops;
    Ok(match name {
        "smoke" => one(vec![smoke()]),
        "ace1" => family(ace::sequences(1)),
        "ace2" => {
            let mut all = family(ace::sequences(2));
            // The order is random, so that a run which is cut short has tried some of everything.
            fastrand::Rng::with_seed(seed).shuffle(&mut all);
            all
        }
        "ace3" => family(ace::sample(3, ACE3, seed)),
        "random" => one(vec![random(seed, 1500)]),
        "files" => one(vec![
            Script::random_files(seed, 1000, 4096, DataMode::Ordered).ops,
        ]),
        "threads" => one((0..3).map(|t| random(seed * 16 + t, 300)).collect()),
        "reuse" => one(vec![reuse()]),
        "orphans" => one(vec![orphans(seed)]),
        "mapped" => one(vec![mapped(seed)]),
        "appends" => one(vec![appends(seed)]),
        "overwrites" => one(vec![
            overwrites(seed * 4),
            overwrites(seed * 4 + 1),
            Script::changing(seed * 4 + 2, 300, 4096, DataMode::Ordered).ops,
        ]),
        "groups" => one(vec![groups(seed), groups(seed + 1)]),
        "pages" => one(vec![pages(2 * seed), pages(2 * seed + 1)]),
        "frozen" => one(vec![
            Script::freezing(2 * seed, 250, 4096, DataMode::Ordered).ops,
            Script::changing(2 * seed + 1, 100, 4096, DataMode::Ordered).ops,
        ]),
        "rounds" => one(vec![rounds(seed)]),
        _ => {
            let path = Path::new(name);
            if !path.exists() {
                let names = NAMES
                    .map(|(n, what)| format!("  {n:10}  {what}"))
                    .join("\n");
                bail!(
                    "there is no workload and no file {name:?}; give a file with a script, or one of\n{names}"
                );
            }
            let script = std::fs::read_to_string(path)
                .with_context(|| format!("reading the script {name}"))?;
            let scripts = text::parse(&script).map_err(|e| anyhow!("the script {name}, {e}"))?;
            if scripts.len() > DIRS.len() {
                bail!("the script {name} has more than {} threads", DIRS.len());
            }
            one(scripts)
        }
    })
}

/// Parses a script that is part of the program.
fn script(text: &str) -> Vec<Op> {
    text::parse(text)
        .map(|mut scripts| scripts.swap_remove(0))
        .unwrap_or_else(|e| panic!("a script of the program: {e}"))
}

/// Existing files that are overwritten in place and synced, as databases do with pages.
fn overwrites(seed: u64) -> Vec<Op> {
    const FILES: u64 = 12;
    const PAGE: usize = 4096;
    let mut rng = fastrand::Rng::with_seed(seed);
    let path = |file: u64| format!("f{file}");
    let write = |file, offset, len, key: u64| Op::Write {
        path: path(file),
        offset,
        len,
        key: seed << 32 | key,
    };
    let mut ops = Vec::new();
    for file in 0..FILES {
        ops.push(Op::Create {
            path: path(file),
            mode: 0o644,
        });
        ops.push(write(file, 0, 2 * PAGE, file));
    }
    ops.push(Op::SyncAll);
    for key in 0..250 {
        let file = rng.u64(0..FILES);
        let path = path(file);
        ops.push(write(file, rng.u64(0..2) * PAGE as u64, PAGE, FILES + key));
        match rng.u8(0..5) {
            0 => {}
            1 => ops.push(Op::Fdatasync { path }),
            _ => ops.push(Op::Fsync { path }),
        }
    }
    ops
}

/// More writes than a log of 4 MiB holds, so that the log wraps over checkpointed transactions: the
/// same blocks in many transactions, with small changes of names and sizes in between.
fn rounds(seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = String::from("create a\ncreate b\n");
    for n in 0..18 {
        let (file, start) = (["a", "b"][n % 2], rng.u32(0..4) * 4096);
        for at in (start..start + 300_000).step_by(60_000) {
            text.push_str(&format!("write {file} {at} 60000\n"));
        }
        text.push_str(&format!("fsync {file}\n"));
        if n % 3 == 2 {
            text.push_str(&format!(
                "create c{n}\nwrite c{n} 0 5000\nrename c{n} c\nfsync c\n"
            ));
        }
    }
    script(&text)
}

/// Atomic groups of some of four files, with other changes beside them. Each group ends in one of
/// the possible ways.
fn groups(seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let names = ["a", "b", "c", "d"];
    let mut text = String::new();
    for (key, name) in names.iter().enumerate() {
        let len = rng.u32(1..30_000);
        text.push_str(&format!("create {name}\nwrite {name} 0 {len} {key}\n"));
    }
    text.push_str("create other\nsync\n");
    for round in 0..12 {
        let members: Vec<&str> = names.into_iter().filter(|_| rng.u8(0..3) > 0).collect();
        if members.is_empty() {
            continue;
        }
        text.push_str(&format!("atomic {}\n", members.join(" ")));
        for step in 0..rng.usize(1..8) {
            let file = members[rng.usize(0..members.len())];
            let (at, len, key) = (rng.u32(0..40_000), rng.u32(1..9000), round * 8 + step + 10);
            text.push_str(&match rng.u8(0..9) {
                8 => String::from("early\n"),
                0 => format!("truncate {file} {at}\n"),
                1 => format!("punch {file} {at} {len}\n"),
                2 => format!("fsync {file}\n"),
                3 => format!("append other {} {key}\nfsync other\n", len / 9 + 1),
                4 => format!("chmod {file} {}\n", ["600", "640"][step % 2]),
                // One transaction does not hold many of these, so they are written early.
                5 => format!("write {file} {at} {} {key}\n", len * 10),
                _ => format!("write {file} {at} {len} {key}\n"),
            });
        }
        text.push_str(if rng.u8(0..4) > 0 {
            "commit\n"
        } else {
            "abort\n"
        });
        if rng.bool() {
            let file = names[rng.usize(0..4)];
            text.push_str(&format!(
                "append {file} 500 {}\nfdatasync {file}\n",
                round + 200
            ));
        }
    }
    text.push_str("atomic a d\nwrite a 0 5000 250\nwrite d 3000 9000 251\nearly\nwrite a 2000 900 252\nfsync a\nsync\n");
    script(&text)
}

/// Pages that are overwritten as by databases. If the journal logs data, each is whole or absent
/// after any crash, even if the device tears writes (docs/atomic.md).
fn pages(seed: u64) -> Vec<Op> {
    const FILE: u32 = 192 << 10;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = String::from("create table\n");
    for at in (0..FILE).step_by(WHOLE as usize) {
        text.push_str(&format!("write table {at} {WHOLE} 1\n"));
    }
    text.push_str("sync\n");
    for key in 2..40 {
        let page = [8 << 10, 16 << 10, 64 << 10][rng.usize(0..3)];
        let at = rng.u32(0..FILE / page) * page;
        text.push_str(&format!("write table {at} {page} {key}\n"));
        text.push_str(["", "fdatasync table\n", "fsync table\n"][rng.usize(0..3)]);
    }
    script(&text)
}

/// Every kind of operation, before and after syncs.
pub fn smoke() -> Vec<Op> {
    let long = "long".repeat(60);
    let target = "x/".repeat(100);
    script(&format!(
        "create a
         write a 0 9000 1
         fsync a
         write a 9000 700 2
         write a 2000 3000 3
         fdatasync a
         mkdir d
         create d/b
         write d/b 5000 100 4
         create d/{long}
         fsync d
         truncate a 3333
         link a d/a2
         symlink s d/b
         symlink slow {target}
         setxattr a user.small 20 5
         setxattr d/b user.large 700 6
         fsync d/b
         create tmp
         write tmp 0 6000 7
         fsync tmp
         rename tmp a
         fsync .
         exchange a d/b
         chmod a 600
         chown a 1000 70000
         fsync a
         allocate d/b 8000 20000
         write d/b 12000 5000 8
         punch d/b 1000 4000
         fdatasync d/b
         zero d/b 11000 7000
         removexattr a user.large
         rename d e
         unlink e/{long}
         sync
         hold-unlink e/b @1
         unlink e/a2
         truncate @1 3000
         write @1 9000 5000 11
         tmpfile 600 @2
         write @2 0 7000 12
         link @2 e/t
         fsync @2
         create r
         write r 0 4000 13
         hold a @3
         rename r a
         truncate @3 500
         fsync e
         close @3
         unlink e/t
         rmdir e
         write a 0 700 9
         fsync a
         truncate a 0
         write a 0 500 10
         unlink slow
         fsync ."
    ))
}

/// Directory blocks are journaled, freed, and reused for data. A replay that ignores the revokes
/// writes them over the data.
pub fn reuse() -> Vec<Op> {
    let name = |d: u64, i: u64| format!("d{d}/{i:03}{}", "x".repeat(150));
    let mut text = String::new();
    for d in 0..4 {
        text.push_str(&format!("mkdir d{d}\n"));
        (0..30).for_each(|i| text.push_str(&format!("create {}\n", name(d, i))));
    }
    text.push_str("sync\n");
    for d in 0..4 {
        (0..30).for_each(|i| text.push_str(&format!("unlink {}\n", name(d, i))));
        text.push_str(&format!("rmdir d{d}\n"));
    }
    text.push_str("sync\n");
    for f in 0..60 {
        text.push_str(&format!("create f{f}\nwrite f{f} 0 100000 {f}\n"));
        if f % 4 == 3 {
            text.push_str("sync\n");
        }
    }
    script(&text)
}

/// Random operations, and then files that are unlinked while open and used afterwards, so that
/// recovery has orphans to delete.
fn orphans(seed: u64) -> Vec<Op> {
    let mut ops = Script::random(seed, 60, 4096, DataMode::Ordered).ops;
    ops.extend(script(
        "create o1
         write o1 0 30000 77
         hold-unlink o1 @101
         sync
         create o2
         write o2 0 50000 78
         hold-unlink o2 @102
         sync
         truncate @101 1000
         sync
         truncate @101 20000
         write @101 5000 9000 80
         allocate @102 50000 20000 keep
         fsync @102
         punch @102 3000 30000
         tmpfile 600 @103
         write @103 0 40000 81
         sync
         tmpfile 600 @104
         write @104 0 12000 82
         truncate @103 0
         link @104 o4
         fsync @104
         create o5
         write o5 0 20000 83
         hold o5 @105
         create o6
         write o6 0 15000 84
         fsync o6
         rename o6 o5
         fsync .
         truncate @105 4000
         close @102
         sync
         create o3
         write o3 0 60000 79
         sync
         truncate o3 100
         fsync o3",
    ));
    ops
}

/// Pages of files that are changed through mappings, some of them synced.
fn mapped(seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = String::new();
    for f in 0..3 {
        text.push_str(&format!("create m{f}\nwrite m{f} 0 40960\nfsync m{f}\n"));
    }
    for _ in 0..60 {
        let (f, page) = (rng.u8(0..3), rng.u32(0..10) * 4096);
        let start = rng.u32(0..3000);
        let len = rng.u32(1..=4096 - start);
        text.push_str(&format!("mapwrite m{f} {} {len}\n", page + start));
        match rng.u8(0..5) {
            0 => text.push_str(&format!("fsync m{f}\n")),
            1 => text.push_str(&format!("fdatasync m{f}\n")),
            2 => text.push_str(&format!("write m{f} {page} 700\n")),
            _ => {}
        }
    }
    text.push_str("sync\n");
    script(&text)
}

/// The writes of a database: a log that grows by small records, and a file of pages that are
/// overwritten.
fn appends(seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = String::from("create db\nwrite db 0 40960\ncreate log\nfsync .\nfsync db\n");
    for _ in 0..60 {
        text.push_str(&format!(
            "append log {}\nfdatasync log\n",
            rng.u32(20..3000)
        ));
        if rng.u8(0..4) == 0 {
            for _ in 0..3 {
                text.push_str(&format!("write db {} 4096\n", rng.u32(0..10) * 4096));
            }
            text.push_str("fdatasync db\ntruncate log 0\n");
        }
    }
    script(&text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_names_lead_to_cases() {
        for (name, _) in NAMES {
            let cases = cases(name, 3).unwrap();
            assert!(!cases.is_empty(), "{name}");
        }
        let why = cases("no such thing", 1).unwrap_err().to_string();
        assert!(
            why.contains("ace2") && why.contains("no such thing"),
            "{why}"
        );
    }
}
