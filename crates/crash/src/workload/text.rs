//! Scripts as text, one operation a line.
//!
//! ```text
//! # everything behind a hash is a remark
//! mkdir d
//! create d/f 600          mode: octal, 644 unless given (755 of directories)
//! write d/f 0 9000 7      offset, length, and the key that its bytes are made from
//! rename d/f g
//! fsync g
//! fsync .                 the directory that the script works in
//! hold-unlink g @1        unlinked, but open: below @1 is the file
//! truncate @1 100
//! atomic g h              an atomic group: writes to these files are part of it …
//! write g 0 5000 9
//! commit                  … and stand, all of them, from here on; `abort` leaves nothing of them
//! thread                  what follows is done by a second thread, in its own directory
//! ```

mod ops;
mod words;

use std::fmt;

pub use self::ops::SYNTAX;
use self::ops::op;
use super::model::State;
use super::op::Op;

fn shown(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keep = |keep: &bool| if *keep { " keep" } else { "" };
        match self {
            Op::Create { path, mode } => write!(f, "create {path} {mode:o}"),
            Op::Mkdir { path, mode } => write!(f, "mkdir {path} {mode:o}"),
            Op::Symlink { path, target } => write!(f, "symlink {path} {target}"),
            Op::Write {
                path,
                offset,
                len,
                key,
            } => write!(f, "write {path} {offset} {len} {key}"),
            Op::MapWrite {
                path,
                offset,
                len,
                key,
            } => write!(f, "mapwrite {path} {offset} {len} {key}"),
            Op::Truncate { path, size } => write!(f, "truncate {path} {size}"),
            Op::Punch { path, offset, len } => write!(f, "punch {path} {offset} {len}"),
            Op::Zero {
                path,
                offset,
                len,
                keep: k,
            } => write!(f, "zero {path} {offset} {len}{}", keep(k)),
            Op::Allocate {
                path,
                offset,
                len,
                keep: k,
            } => write!(f, "allocate {path} {offset} {len}{}", keep(k)),
            Op::Unlink { path } => write!(f, "unlink {path}"),
            Op::Hold { path, held } => write!(f, "hold {path} @{held}"),
            Op::HoldUnlink { path, held } => write!(f, "hold-unlink {path} @{held}"),
            Op::Tmpfile { held, mode } => write!(f, "tmpfile {mode:o} @{held}"),
            Op::Close { held } => write!(f, "close @{held}"),
            Op::Rmdir { path } => write!(f, "rmdir {path}"),
            Op::Link { from, to } => write!(f, "link {from} {to}"),
            Op::Rename { from, to } => write!(f, "rename {from} {to}"),
            Op::Exchange { a, b } => write!(f, "exchange {a} {b}"),
            Op::Chmod { path, mode } => write!(f, "chmod {path} {mode:o}"),
            Op::Chown { path, uid, gid } => write!(f, "chown {path} {uid} {gid}"),
            Op::SetXattr {
                path,
                name,
                key,
                len,
            } => write!(f, "setxattr {path} {name} {len} {key}"),
            Op::RemoveXattr { path, name } => write!(f, "removexattr {path} {name}"),
            Op::Chattr { path, flag, on } => {
                let sign = if *on { '+' } else { '-' };
                write!(f, "chattr {path} {sign}{}", flag.letter())
            }
            Op::Mkfifo { path, mode } => write!(f, "mkfifo {path} {mode:o}"),
            Op::RenameNew { from, to } => write!(f, "rename-new {from} {to}"),
            Op::Whiteout { from, to } => write!(f, "whiteout {from} {to}"),
            Op::Copy {
                from,
                offset,
                to,
                at,
                len,
            } => write!(f, "copy {from} {offset} {to} {at} {len}"),
            Op::SetAcl { path, user, perms } => write!(f, "setacl {path} {user} {perms:o}"),
            Op::Project { path, id } => write!(f, "project {path} {id}"),
            Op::Atomic { paths } => write!(f, "atomic {}", paths.join(" ")),
            Op::Fsync { path } => write!(f, "fsync {}", shown(path)),
            Op::Fdatasync { path } => write!(f, "fdatasync {}", shown(path)),
            Op::Limit { .. } | Op::Memory { .. } | Op::Act { .. } => self.fmt_on_volume(f),
            Op::Refused { .. } | Op::Trim | Op::Remount => self.fmt_on_volume(f),
            Op::Early | Op::Commit | Op::Abort | Op::SyncAll => self.fmt_on_volume(f),
            Op::Freeze | Op::Thaw => self.fmt_on_volume(f),
        }
    }
}

impl Op {
    /// Formats an operation that is not on a file.
    fn fmt_on_volume(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Op::Limit { uid, kib, inodes } => return write!(f, "limit {uid} {kib} {inodes}"),
            Op::Memory { mib } => return write!(f, "memory {mib}"),
            Op::Act { uid, gid } => return write!(f, "act {uid} {gid}"),
            Op::Refused { op } => return write!(f, "refused {op}"),
            Op::Trim => "trim",
            Op::Remount => "remount",
            Op::Early => "early",
            Op::Commit => "commit",
            Op::Abort => "abort",
            Op::SyncAll => "sync",
            Op::Freeze => "freeze",
            Op::Thaw => "thaw",
            // The caller formats the others.
            _ => return Err(fmt::Error),
        };
        f.write_str(word)
    }
}

/// Parses scripts, one for each thread.
///
/// # Errors
/// The line and its mistake; also for an operation that cannot succeed at its place.
pub fn parse(text: &str) -> Result<Vec<Vec<Op>>, String> {
    let empty = || State::new(4096, false);
    let mut scripts = vec![Vec::new()];
    let mut state = empty();
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(script) = scripts.last_mut() else {
            break;
        };
        match line {
            "" => {}
            "thread" if script.is_empty() => {}
            "thread" => {
                scripts.push(Vec::new());
                state = empty();
            }
            _ => {
                let op = op(line, i + 1, &state).map_err(|e| format!("line {}: {e}", i + 1))?;
                state.apply(&op, script.len() + 1);
                script.push(op);
            }
        }
    }
    if scripts.iter().all(Vec::is_empty) {
        return Err("the script has no operations".into());
    }
    Ok(scripts)
}

/// Formats scripts so that [`parse`] can read them.
pub fn write(scripts: &[Vec<Op>]) -> String {
    let mut text = String::new();
    for (i, script) in scripts.iter().enumerate() {
        if i > 0 {
            text.push_str("thread\n");
        }
        for op in script {
            text.push_str(&format!("{op}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workload::script::Script;

    #[test]
    fn random_scripts_survive_being_written() {
        for seed in 0..20 {
            let script = Script::random(seed, 200, 4096, stetfs::low::DataMode::Ordered);
            let scripts = vec![script.ops.clone(), script.ops];
            assert_eq!(parse(&write(&scripts)).unwrap(), scripts);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |text: &str| parse(text).unwrap_err();
        assert!(wrong("create a\nfrob a").contains("line 2: there is no operation \"frob\""));
        assert!(wrong("unlink a").contains("line 1"));
        assert!(wrong("create a\nwrite a x 1").contains("the offset must be a number"));
        assert!(wrong("create a 9").contains("octal"));
        assert!(wrong("create a\ncreate a").contains("exists"));
        assert!(wrong("mkdir d\nrename d d/e").contains("line 2"));
        assert!(wrong("create a\nhold a @1\nhold a @1").contains("held already"));
        assert!(wrong("create a\nhold-unlink a\nlink @1 b").contains("lost its last name"));
        assert!(wrong("create @1").contains("cannot be the name"));
        assert!(wrong("close 1").contains("@N"));
        assert!(wrong("create a\nappend a 100\nmapwrite a 50 60").contains("within the file"));
        assert!(wrong("create a\natomic a\natomic a").contains("a group is open"));
        assert!(wrong("create a\ncommit").contains("no group is open"));
        assert!(wrong("create a\natomic a\nzero a 0 10").contains("in a group"));
        assert!(wrong("freeze\ncreate a").contains("line 2: the volume is frozen"));
        assert!(wrong("freeze\nsync\nthaw\nthaw").contains("line 4: the volume is not frozen"));
        assert!(wrong("# nothing").contains("no operation"));
        assert!(wrong("create a\nwrite a 99999999999 1").contains("may not end beyond"));
    }

    #[test]
    fn remarks_and_defaults() {
        let scripts = parse("create a # new\nappend a 10\nappend a 5 3\nthread\nsync\n").unwrap();
        assert_eq!(
            write(&scripts),
            "create a 644\nwrite a 0 10 2\nwrite a 10 5 3\nthread\nsync\n"
        );
        let scripts =
            parse("create a\nhold a\ntmpfile\ntmpfile 644 @9\nlink @9 b\nclose @1").unwrap();
        assert_eq!(
            write(&scripts),
            "create a 644\nhold a @1\ntmpfile 600 @2\ntmpfile 644 @9\nlink @9 b\nclose @1\n"
        );
    }
}
