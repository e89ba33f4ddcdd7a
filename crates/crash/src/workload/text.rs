//! Scripts as text: one operation a line.
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

use std::fmt;
use std::str::FromStr;

use super::model::State;
use super::op::{Op, held_number};

/// The operations with their arguments, for messages.
pub const SYNTAX: &str = "\
create PATH [MODE] | mkdir PATH [MODE] | symlink PATH TARGET | write PATH OFFSET LENGTH [KEY]
append PATH LENGTH [KEY] | mapwrite PATH OFFSET LENGTH [KEY] | truncate PATH SIZE | punch PATH OFFSET LENGTH
zero PATH OFFSET LENGTH [keep] | allocate PATH OFFSET LENGTH [keep]
unlink PATH | hold PATH [@N] | hold-unlink PATH [@N] | tmpfile [MODE] [@N] | close @N | rmdir PATH | link OLD NEW | rename OLD NEW | exchange A B
chmod PATH MODE | chown PATH UID GID | setxattr PATH NAME LENGTH [KEY] | removexattr PATH NAME
atomic PATH… | early | commit | abort | fsync PATH | fdatasync PATH | sync | freeze | thaw | thread
A path @N is the open file that was held under this number.";

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
            Op::Atomic { paths } => write!(f, "atomic {}", paths.join(" ")),
            Op::Early => f.write_str("early"),
            Op::Commit => f.write_str("commit"),
            Op::Abort => f.write_str("abort"),
            Op::Fsync { path } => write!(f, "fsync {}", shown(path)),
            Op::Fdatasync { path } => write!(f, "fdatasync {}", shown(path)),
            Op::SyncAll => f.write_str("sync"),
            Op::Freeze => f.write_str("freeze"),
            Op::Thaw => f.write_str("thaw"),
        }
    }
}

/// The words of a line, taken one by one.
struct Words<'a> {
    left: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.left.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn path(&mut self, what: &str) -> Result<String, String> {
        let word = self.word(what)?;
        let path = word.trim_matches('/');
        Ok(if path == "." { "" } else { path }.into())
    }

    fn number<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse()
            .map_err(|_| format!("{what} must be a number, not {word:?}"))
    }

    fn key(&mut self, line: usize) -> Result<u64, String> {
        match self.left.clone().next() {
            Some(_) => self.number("the key"),
            None => Ok(line as u64),
        }
    }

    fn mode(&mut self, default: Option<u32>) -> Result<u32, String> {
        match (self.left.next(), default) {
            (Some(word), _) => u32::from_str_radix(word, 8)
                .map_err(|_| format!("the mode is octal, e.g. 644, not {word:?}")),
            (None, Some(mode)) => Ok(mode),
            (None, None) => Err("the mode is missing".into()),
        }
    }

    /// A number to hold a file under; `free` if none is given.
    fn held(&mut self, free: Option<u32>) -> Result<u32, String> {
        match (self.left.next(), free) {
            (Some(word), _) => {
                held_number(word).ok_or_else(|| format!("{word:?} is not written @N"))
            }
            (None, Some(free)) => Ok(free),
            (None, None) => Err("the number is missing: @N".into()),
        }
    }

    fn keep(&mut self) -> Result<bool, String> {
        match self.left.next() {
            None => Ok(false),
            Some("keep") => Ok(true),
            Some(other) => Err(format!("{other:?} is not `keep`")),
        }
    }
}

/// Longer calls are refused, bytes: what a write call of the library takes at once.
const LENGTH_MAX: u64 = 1 << 30;

/// One operation; `state` is the tree it meets, `line` gives keys that are not named.
fn op(text: &str, line: usize, state: &State) -> Result<Op, String> {
    let mut w = Words {
        left: text.split_whitespace(),
    };
    let verb = w.word("the operation")?;
    let op = match verb {
        "create" => Op::Create {
            path: w.path("the path")?,
            mode: w.mode(Some(0o644))?,
        },
        "mkdir" => Op::Mkdir {
            path: w.path("the path")?,
            mode: w.mode(Some(0o755))?,
        },
        "symlink" => Op::Symlink {
            path: w.path("the path")?,
            target: w.word("the target")?.into(),
        },
        "write" => Op::Write {
            path: w.path("the path")?,
            offset: w.number("the offset")?,
            len: w.number("the length")?,
            key: w.key(line)?,
        },
        "mapwrite" => Op::MapWrite {
            path: w.path("the path")?,
            offset: w.number("the offset")?,
            len: w.number("the length")?,
            key: w.key(line)?,
        },
        "append" => {
            let path = w.path("the path")?;
            let file = state.node(&path).and_then(|n| n.content());
            let size = file
                .ok_or_else(|| format!("{path:?} is no file here"))?
                .data
                .len();
            Op::Write {
                path,
                offset: size as u64,
                len: w.number("the length")?,
                key: w.key(line)?,
            }
        }
        "truncate" => Op::Truncate {
            path: w.path("the path")?,
            size: w.number("the size")?,
        },
        "punch" => Op::Punch {
            path: w.path("the path")?,
            offset: w.number("the offset")?,
            len: w.number("the length")?,
        },
        "zero" => Op::Zero {
            path: w.path("the path")?,
            offset: w.number("the offset")?,
            len: w.number("the length")?,
            keep: w.keep()?,
        },
        "allocate" => Op::Allocate {
            path: w.path("the path")?,
            offset: w.number("the offset")?,
            len: w.number("the length")?,
            keep: w.keep()?,
        },
        "unlink" => Op::Unlink {
            path: w.path("the path")?,
        },
        "hold" => Op::Hold {
            path: w.path("the path")?,
            held: w.held(Some(state.free_number()))?,
        },
        "hold-unlink" => Op::HoldUnlink {
            path: w.path("the path")?,
            held: w.held(Some(state.free_number()))?,
        },
        "tmpfile" => {
            let next = w.left.clone().next();
            Op::Tmpfile {
                mode: match next.is_some_and(|word| word.starts_with('@')) {
                    true => 0o600,
                    false => w.mode(Some(0o600))?,
                },
                held: w.held(Some(state.free_number()))?,
            }
        }
        "close" => Op::Close {
            held: w.held(None)?,
        },
        "rmdir" => Op::Rmdir {
            path: w.path("the path")?,
        },
        "link" => Op::Link {
            from: w.path("the old path")?,
            to: w.path("the new path")?,
        },
        "rename" => Op::Rename {
            from: w.path("the old path")?,
            to: w.path("the new path")?,
        },
        "exchange" => Op::Exchange {
            a: w.path("the first path")?,
            b: w.path("the second path")?,
        },
        "chmod" => Op::Chmod {
            path: w.path("the path")?,
            mode: w.mode(None)?,
        },
        "chown" => Op::Chown {
            path: w.path("the path")?,
            uid: w.number("the owner")?,
            gid: w.number("the group")?,
        },
        "setxattr" => Op::SetXattr {
            path: w.path("the path")?,
            name: w.word("the name")?.into(),
            len: w.number("the length")?,
            key: w.key(line)?,
        },
        "removexattr" => Op::RemoveXattr {
            path: w.path("the path")?,
            name: w.word("the name")?.into(),
        },
        "atomic" => {
            let mut paths = vec![w.path("the path")?];
            while w.left.clone().next().is_some() {
                paths.push(w.path("the path")?);
            }
            Op::Atomic { paths }
        }
        "early" => Op::Early,
        "commit" => Op::Commit,
        "abort" => Op::Abort,
        "fsync" => Op::Fsync {
            path: w.path("the path")?,
        },
        "fdatasync" => Op::Fdatasync {
            path: w.path("the path")?,
        },
        "sync" => Op::SyncAll,
        "freeze" => Op::Freeze,
        "thaw" => Op::Thaw,
        other => {
            return Err(format!(
                "there is no operation {other:?}; there are:\n{SYNTAX}"
            ));
        }
    };
    if let Some(more) = w.left.next() {
        return Err(format!("{more:?} is too much"));
    }
    let bounded = match &op {
        Op::Write { offset, len, .. } => offset.saturating_add(*len as u64),
        Op::SetXattr { len, .. } => *len as u64,
        Op::Truncate { size, .. } => *size,
        Op::Punch { offset, len, .. }
        | Op::Zero { offset, len, .. }
        | Op::Allocate { offset, len, .. } => offset.saturating_add(*len),
        _ => 0,
    };
    if bounded > LENGTH_MAX {
        return Err(format!("files end at {LENGTH_MAX} bytes here"));
    }
    state.allows(&op)?;
    Ok(op)
}

/// Reads scripts, one for each thread.
///
/// # Errors
/// The line and what is wrong with it; also of operations that cannot succeed where they stand.
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
        return Err("there is no operation in it".into());
    }
    Ok(scripts)
}

/// Writes scripts so that [`parse`] reads them.
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
        assert!(wrong("create @1").contains("no name"));
        assert!(wrong("close 1").contains("@N"));
        assert!(wrong("create a\nappend a 100\nmapwrite a 50 60").contains("within the file"));
        assert!(wrong("create a\natomic a\natomic a").contains("a group is open"));
        assert!(wrong("create a\ncommit").contains("no group is open"));
        assert!(wrong("create a\natomic a\nzero a 0 10").contains("in a group"));
        assert!(wrong("freeze\ncreate a").contains("line 2: the volume is frozen"));
        assert!(wrong("freeze\nsync\nthaw\nthaw").contains("line 4: the volume is not frozen"));
        assert!(wrong("# nothing").contains("no operation"));
        assert!(wrong("create a\nwrite a 99999999999 1").contains("files end"));
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
