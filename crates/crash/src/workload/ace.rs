//! All short sequences of operations over a few files, in the manner of CrashMonkey's ACE
//! (Mohan et al., OSDI 2018, section 5.2).
//!
//! A fixed tree is made and synced first. Then come one, two or three operations of [`fn@core`],
//! each followed by one of the ways to make it durable, or by none. The last operation is always
//! synced, because nothing is promised of an unsynced one.
//!
//! ACE's writes through mappings are left out, because they are plain writes in the library; the
//! workload `mapped` has them, for mounts.

use super::model::State;
use super::op::{Op, held_path};

fn create(path: &str) -> Op {
    Op::Create {
        path: path.into(),
        mode: 0o644,
    }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir {
        path: path.into(),
        mode: 0o755,
    }
}

fn write(path: &str, offset: u64, len: usize, key: u64) -> Op {
    Op::Write {
        path: path.into(),
        offset,
        len,
        key,
    }
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename {
        from: from.into(),
        to: to.into(),
    }
}

fn link(from: &str, to: &str) -> Op {
    Op::Link {
        from: from.into(),
        to: to.into(),
    }
}

fn unlink(path: &str) -> Op {
    Op::Unlink { path: path.into() }
}

/// Bytes of the files that exist from the start.
const SIZE: u64 = 16_384;

/// The number of the one file that is held open.
const HELD: u32 = 1;

/// The operations that make the tree before each sequence, and sync it.
pub fn setup() -> Vec<Op> {
    vec![
        mkdir("A"),
        mkdir("B"),
        mkdir("A/C"),
        create("foo"),
        write("foo", 0, SIZE as usize, 1),
        create("A/foo"),
        write("A/foo", 0, SIZE as usize, 2),
        create("A/bar"),
        Op::SyncAll,
    ]
}

/// The operations, in the order that [`sample`] draws them by.
pub fn core() -> Vec<Op> {
    [
        new_names(),
        content(),
        other_names(),
        in_use(),
        removed_directories(),
        attributes(),
    ]
    .concat()
}

fn new_names() -> Vec<Op> {
    vec![create("baz"), create("A/baz"), mkdir("A/D"), mkdir("D")]
}

fn content() -> Vec<Op> {
    let path = || String::from("foo");
    let allocate = |offset, len, keep| Op::Allocate {
        path: path(),
        offset,
        len,
        keep,
    };
    let zero = |offset, len, keep| Op::Zero {
        path: path(),
        offset,
        len,
        keep,
    };
    vec![
        // Overwrites of the whole, of a part, of the middle and over the end; an append; a write
        // far behind the end.
        write("foo", 0, 4096, 10),
        write("foo", 3000, 3000, 11),
        write("foo", SIZE - 1000, 3000, 12),
        write("foo", SIZE, 4096, 13),
        write("foo", 40_000, 5000, 14),
        write("A/bar", 0, 5000, 15),
        write("A/foo", 0, SIZE as usize, 16),
        allocate(SIZE, 8192, false),
        allocate(SIZE, 8192, true),
        allocate(2000, 20_000, false),
        zero(4096, 4096, false),
        zero(SIZE - 2000, 6000, true),
        zero(SIZE - 2000, 6000, false),
        Op::Punch {
            path: path(),
            offset: 4096,
            len: 8192,
        },
        Op::Punch {
            path: path(),
            offset: 1000,
            len: 6000,
        },
        Op::Truncate {
            path: path(),
            size: 0,
        },
        Op::Truncate {
            path: path(),
            size: 5000,
        },
        Op::Truncate {
            path: path(),
            size: 30_000,
        },
    ]
}

/// Operations that give files further names, rename them or remove names.
fn other_names() -> Vec<Op> {
    vec![
        link("foo", "bar"),
        link("A/foo", "B/foo"),
        link("foo", "A/hard"),
        Op::Symlink {
            path: "A/soft".into(),
            target: "../foo".into(),
        },
        Op::Symlink {
            path: "slow".into(),
            target: "x".repeat(100),
        },
        rename("foo", "bar"),
        rename("foo", "A/foo"),
        rename("A/foo", "foo"),
        rename("A/bar", "B/bar"),
        rename("A", "E"),
        rename("A/C", "B/C"),
        rename("A/C", "B"),
        Op::Exchange {
            a: "foo".into(),
            b: "A/foo".into(),
        },
        Op::Exchange {
            a: "A/C".into(),
            b: "B".into(),
        },
        unlink("foo"),
        unlink("A/foo"),
        unlink("bar"),
        Op::HoldUnlink {
            path: "A/foo".into(),
            held: HELD,
        },
    ]
}

/// Operations on open files that lose their name or have none.
fn in_use() -> Vec<Op> {
    let held = held_path(HELD);
    vec![
        Op::Hold {
            path: "foo".into(),
            held: HELD,
        },
        Op::Tmpfile {
            held: HELD,
            mode: 0o600,
        },
        Op::Close { held: HELD },
        write(&held, 3000, 6000, 17),
        Op::Truncate {
            path: held.clone(),
            size: 0,
        },
        Op::Truncate {
            path: held.clone(),
            size: 5000,
        },
        Op::Truncate {
            path: held.clone(),
            size: 30_000,
        },
        Op::Allocate {
            path: held.clone(),
            offset: SIZE,
            len: 8192,
            keep: true,
        },
        Op::Punch {
            path: held.clone(),
            offset: 1000,
            len: 6000,
        },
        link(&held, "B/held"),
    ]
}

fn removed_directories() -> Vec<Op> {
    vec![
        Op::Rmdir { path: "B".into() },
        Op::Rmdir { path: "A/C".into() },
    ]
}

fn attributes() -> Vec<Op> {
    let path = || String::from("foo");
    vec![
        Op::SetXattr {
            path: path(),
            name: "user.u1".into(),
            key: 20,
            len: 30,
        },
        Op::SetXattr {
            path: "A/foo".into(),
            name: "user.u2".into(),
            key: 21,
            len: 700,
        },
        Op::RemoveXattr {
            path: path(),
            name: "user.u1".into(),
        },
        Op::Chmod {
            path: path(),
            mode: 0o600,
        },
        Op::Chown {
            path: "A/foo".into(),
            uid: 1000,
            gid: 100,
        },
    ]
}

/// The paths that an operation names, as they are after it.
pub(crate) fn touched(op: &Op) -> Vec<&str> {
    match op {
        Op::Create { path, .. }
        | Op::Mkdir { path, .. }
        | Op::Symlink { path, .. }
        | Op::Write { path, .. }
        | Op::Truncate { path, .. }
        | Op::Punch { path, .. }
        | Op::Zero { path, .. }
        | Op::Allocate { path, .. }
        | Op::Unlink { path }
        | Op::Hold { path, .. }
        | Op::HoldUnlink { path, .. }
        | Op::MapWrite { path, .. }
        | Op::Rmdir { path }
        | Op::Chmod { path, .. }
        | Op::Chown { path, .. }
        | Op::SetXattr { path, .. }
        | Op::RemoveXattr { path, .. }
        | Op::Chattr { path, .. }
        | Op::Mkfifo { path, .. }
        | Op::SetAcl { path, .. }
        | Op::Project { path, .. }
        | Op::Fsync { path }
        | Op::Fdatasync { path } => vec![path],
        Op::Link { from, to }
        | Op::Rename { from, to }
        | Op::RenameNew { from, to }
        | Op::Whiteout { from, to } => vec![from, to],
        Op::Copy { to, .. } => vec![to],
        Op::Refused { op } => touched(op),
        Op::Exchange { a, b } => vec![a, b],
        Op::Tmpfile { .. } => vec!["@1"],
        Op::Atomic { paths } => paths.iter().map(String::as_str).collect(),
        Op::Close { .. } | Op::Early | Op::Commit | Op::Abort => vec![],
        Op::SyncAll | Op::Freeze | Op::Thaw | Op::Remount => vec![],
        Op::Limit { .. } | Op::Memory { .. } | Op::Trim | Op::Act { .. } => vec![],
    }
}

/// The syncs that can follow an operation: of its file, of the directories with its names, of
/// everything.
fn syncs(op: &Op, after: &State) -> Vec<Op> {
    let mut out = Vec::new();
    let mut add = |op: Op| {
        if after.allows(&op).is_ok() && !out.contains(&op) {
            out.push(op);
        }
    };
    for path in touched(op) {
        add(Op::Fsync { path: path.into() });
        if after.node(path).is_some_and(|n| n.content().is_some()) {
            add(Op::Fdatasync { path: path.into() });
        }
        let parent = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        add(Op::Fsync {
            path: parent.into(),
        });
    }
    add(Op::SyncAll);
    out
}

/// All sequences of `length` operations, each as a whole script that begins with the
/// [`setup`]`().len()` operations of the setup.
pub fn sequences(length: usize) -> Vec<Vec<Op>> {
    let setup = setup();
    let mut state = State::new(4096, false);
    for (i, op) in setup.iter().enumerate() {
        state.apply(op, i + 1);
    }
    let mut out = Vec::new();
    grow(&mut setup.clone(), &state, length, &mut out);
    out
}

fn grow(script: &mut Vec<Op>, state: &State, left: usize, out: &mut Vec<Vec<Op>>) {
    for op in core() {
        if state.allows(&op).is_err() {
            continue;
        }
        let mut after = state.clone();
        after.apply(&op, script.len() + 1);
        let syncs = syncs(&op, &after);
        script.push(op);
        if left > 1 {
            grow(script, &after, left - 1, out);
        }
        for sync in syncs {
            script.push(sync);
            if left > 1 {
                grow(script, &after, left - 1, out);
            } else {
                out.push(script.clone());
            }
            script.pop();
        }
        script.pop();
    }
}

/// Draws `count` sequences of `length` operations with a seed, for lengths with too many sequences.
pub fn sample(length: usize, count: usize, seed: u64) -> Vec<Vec<Op>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let core = core();
    let mut start = State::new(4096, false);
    for (i, op) in setup().iter().enumerate() {
        start.apply(op, i + 1);
    }
    let mut out = Vec::with_capacity(count);
    while out.len() < count {
        let (mut script, mut state) = (setup(), start.clone());
        let mut done = 0;
        while done < length {
            let Some(op) = rng.choice(&core) else { break };
            if state.allows(op).is_err() {
                continue;
            }
            done += 1;
            state.apply(op, script.len() + 1);
            let syncs = syncs(op, &state);
            script.push(op.clone());
            let pick = rng.usize(0..=syncs.len());
            match syncs.into_iter().nth(pick) {
                Some(sync) => script.push(sync),
                None if done == length => script.push(Op::SyncAll),
                None => {}
            }
        }
        out.push(script);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_in_a_sequence() {
        let one = sequences(1);
        assert!(one.len() > 120, "{} sequences of one operation", one.len());
        let start = setup().len();
        // Some operations need another one before them.
        let alone = |op: &Op| one.iter().any(|s| s.get(start) == Some(op));
        let lacking = core().into_iter().filter(|op| !alone(op)).count();
        assert_eq!(
            lacking, 10,
            "`bar` is not there to unlink, nor an attribute to remove; nothing is held"
        );
        let two = sequences(2);
        for op in core() {
            assert!(two.iter().any(|s| s.contains(&op)), "{op}");
        }
        assert!(two.len() > 20_000, "{} sequences of two", two.len());
    }

    #[test]
    fn samples_repeat() {
        assert_eq!(sample(3, 50, 1), sample(3, 50, 1));
        assert_ne!(sample(3, 50, 1), sample(3, 50, 2));
    }
}
