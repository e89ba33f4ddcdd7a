//! The reports of programs about a directory, and whether they are right.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use stetfs_testkit::tree::Kind;
use stetfs_testkit::{CaptureOptions, Tree, cmd};

/// Shell commands whose output is the same for the same tree.
const COMMANDS: [(&str, &str); 5] = [
    ("ls", "ls -lRn --time-style=full-iso"),
    ("find", r"find . -printf '%p %y %s %l\n' | sort"),
    ("cat", "find . -type f -print0 | sort -z | xargs -0 -r cat"),
    ("tar", "tar --sort=name -cf - ."),
    (
        "getfattr",
        "find . -print0 | sort -z | xargs -0 getfattr -hdm- -e hex",
    ),
];

/// The columns of the table.
pub(crate) fn columns() -> [&'static str; 7] {
    let [a, b, c, d, e] = COMMANDS.map(|(name, _)| name);
    [a, b, c, d, e, "cp", "rsync"]
}

/// Names with type, size, content or target.
pub(crate) type Plain = BTreeMap<String, (Kind, Option<u64>, Option<String>)>;

/// The compared attributes of a tree on the host.
pub(crate) fn plain(root: &Path) -> anyhow::Result<Plain> {
    let options = CaptureOptions {
        xattrs: false,
        ..CaptureOptions::default()
    };
    let tree = Tree::capture(root, &options)?;
    let entries = tree.entries.into_iter();
    let all = entries
        .map(|(path, e)| {
            (
                path,
                (
                    e.kind,
                    e.size.filter(|_| e.kind != Kind::Directory),
                    e.content.or(e.target),
                ),
            )
        })
        .collect();
    Ok(all)
}

/// The verdict on a program that looked at a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It succeeded, and its output is right.
    Right,
    /// It reported an error.
    Failed,
    /// It succeeded, and its output is incomplete or wrong.
    Silent,
}

impl Verdict {
    fn of(ok: bool, right: bool) -> Verdict {
        match (ok, right) {
            (true, true) => Verdict::Right,
            (false, _) => Verdict::Failed,
            (true, false) => Verdict::Silent,
        }
    }

    pub(crate) fn letter(self) -> char {
        match self {
            Verdict::Right => '=',
            Verdict::Failed => 'x',
            Verdict::Silent => '!',
        }
    }
}

/// The results of the programs for one directory.
pub(crate) struct Look {
    pub(crate) verdicts: Vec<Verdict>,
    /// Names that `rsync --delete` removed from a good copy.
    pub(crate) deleted: Vec<String>,
}

/// Standard output of each command, run in an undamaged directory.
pub(crate) fn outputs(dir: &Path) -> Vec<Vec<u8>> {
    let outputs = COMMANDS.iter().map(|(name, script)| {
        let (ok, output) = run(dir, script);
        assert!(ok, "{name} of the whole {}", dir.display());
        output
    });
    outputs.collect()
}

fn run(dir: &Path, script: &str) -> (bool, Vec<u8>) {
    let mut command = Command::new("bash");
    command
        .args(["-o", "pipefail", "-c", script])
        .current_dir(dir);
    command.env("LC_ALL", "C").env("TZ", "UTC");
    let out = cmd::output(&mut command).unwrap();
    (is_well(&out), out.stdout)
}

/// Whether a program succeeded and printed no complaint: getfattr, and ls for access lists,
/// complain and go on.
fn is_well(out: &Output) -> bool {
    out.status.success() && out.stderr.is_empty()
}

/// Runs all programs on `dir`; `good` is an undamaged copy of it, with the outputs `right`.
/// `scratch` is for copies.
pub(crate) fn look(dir: &Path, good: &Path, right: &[Vec<u8>], scratch: &Path) -> Look {
    let commands = COMMANDS.iter().zip(right);
    let mut verdicts: Vec<_> = commands
        .map(|((_, script), right)| {
            let (ok, output) = run(dir, script);
            Verdict::of(ok, output == *right)
        })
        .collect();
    let whole = plain(good).unwrap();
    let copy = scratch.join("copy");
    let mut cp = Command::new("cp");
    cp.args(["-a", "--no-preserve=xattr"]).arg(dir).arg(&copy);
    let ok = is_well(&cmd::output(&mut cp).unwrap());
    verdicts.push(Verdict::of(ok, ok && plain(&copy).unwrap() == whole));
    let _ = fs::remove_dir_all(&copy);

    let mut cp = Command::new("cp");
    cmd::run(cp.arg("-a").arg(good).arg(&copy)).unwrap();
    let mut rsync = Command::new("rsync");
    rsync.args(["-a", "--delete"]).arg(dir.join(".")).arg(&copy);
    let ok = is_well(&cmd::output(&mut rsync).unwrap());
    let left = plain(&copy).unwrap();
    verdicts.push(Verdict::of(ok, left == whole));
    let deleted = whole.keys().filter(|name| !left.contains_key(*name));
    let deleted = deleted.cloned().collect();
    fs::remove_dir_all(&copy).unwrap();
    Look { verdicts, deleted }
}
