//! The parser for single operations.

use super::words::Words;
use crate::workload::model::State;
use crate::workload::op::{Flag, Op};

/// The operations with their arguments, for messages.
pub const SYNTAX: &str = "\
create PATH [MODE] | mkdir PATH [MODE] | symlink PATH TARGET | write PATH OFFSET LENGTH [KEY]
append PATH LENGTH [KEY] | mapwrite PATH OFFSET LENGTH [KEY] | truncate PATH SIZE | punch PATH OFFSET LENGTH
zero PATH OFFSET LENGTH [keep] | allocate PATH OFFSET LENGTH [keep]
unlink PATH | hold PATH [@N] | hold-unlink PATH [@N] | tmpfile [MODE] [@N] | close @N | rmdir PATH | link OLD NEW | rename OLD NEW | exchange A B
chmod PATH MODE | chown PATH UID GID | setxattr PATH NAME LENGTH [KEY] | removexattr PATH NAME
chattr PATH +e|-e|+a|-a|+i|-i|+j|-j|+S|-S|+D|-D | setacl PATH UID PERMISSIONS
mkfifo PATH [MODE] | rename-new OLD NEW | whiteout OLD NEW | copy FROM OFFSET TO AT LENGTH
limit UID KIB INODES | project PATH ID | act UID GID | memory MIB | trim | remount
atomic PATH… | early | commit | abort | fsync PATH | fdatasync PATH | sync | freeze | thaw | thread
`refused` before an operation: the volume refuses it. A path @N is the open file that was held under this number.";

/// Greatest offset in bytes at which an operation may end; a write call of the library takes so
/// much.
const LENGTH_MAX: u64 = 1 << 30;

/// Parses an operation. `state` is the tree that it meets; `line` replaces a key that is not given.
pub(super) fn op(text: &str, line: usize, state: &State) -> Result<Op, String> {
    let mut words = Words::of(text);
    let verb = words.word("the operation")?;
    let op = operation(verb, &mut words, line, state)?;
    words.end()?;
    if end(&op) > LENGTH_MAX {
        return Err(format!(
            "an operation may not end beyond {LENGTH_MAX} bytes"
        ));
    }
    state.allows(&op)?;
    Ok(op)
}

/// The offset in a file or an attribute at which an operation ends, in bytes.
fn end(op: &Op) -> u64 {
    match op {
        Op::Write { offset, len, .. } => offset.saturating_add(*len as u64),
        Op::SetXattr { len, .. } => *len as u64,
        Op::Truncate { size, .. } => *size,
        Op::Copy { at, len, .. } => at.saturating_add(*len as u64),
        Op::Refused { op } => end(op),
        Op::Punch { offset, len, .. }
        | Op::Zero { offset, len, .. }
        | Op::Allocate { offset, len, .. } => offset.saturating_add(*len),
        _ => 0,
    }
}

/// The result of parsing.
type Read = Result<Op, String>;

fn operation(verb: &str, w: &mut Words<'_>, line: usize, state: &State) -> Read {
    match verb {
        "create" => create(w),
        "mkdir" => mkdir(w),
        "symlink" => symlink(w),
        "write" => write(w, line),
        "mapwrite" => map_write(w, line),
        "append" => append(w, line, state),
        "truncate" => truncate(w),
        "punch" => punch(w),
        "zero" => zero(w),
        "allocate" => allocate(w),
        "unlink" => w.path("the path").map(|path| Op::Unlink { path }),
        "hold" => hold(w, state),
        "hold-unlink" => hold_unlink(w, state),
        "tmpfile" => tmpfile(w, state),
        "close" => w.held(None).map(|held| Op::Close { held }),
        "rmdir" => w.path("the path").map(|path| Op::Rmdir { path }),
        "link" => link(w),
        "rename" => rename(w),
        "exchange" => exchange(w),
        "chmod" => chmod(w),
        "chown" => chown(w),
        "setxattr" => set_xattr(w, line),
        "removexattr" => remove_xattr(w),
        "chattr" => chattr(w),
        "mkfifo" => mkfifo(w),
        "rename-new" => rename_new(w),
        "whiteout" => whiteout(w),
        "copy" => copy(w),
        "setacl" => set_acl(w),
        "limit" => limit(w),
        "project" => project(w),
        "act" => act(w),
        "memory" => w.number("the memory").map(|mib| Op::Memory { mib }),
        "trim" => Ok(Op::Trim),
        "remount" => Ok(Op::Remount),
        "refused" => refused(w, line, state),
        "atomic" => atomic(w),
        "early" => Ok(Op::Early),
        "commit" => Ok(Op::Commit),
        "abort" => Ok(Op::Abort),
        "fsync" => w.path("the path").map(|path| Op::Fsync { path }),
        "fdatasync" => w.path("the path").map(|path| Op::Fdatasync { path }),
        "sync" => Ok(Op::SyncAll),
        "freeze" => Ok(Op::Freeze),
        "thaw" => Ok(Op::Thaw),
        other => Err(format!(
            "there is no operation {other:?}; there are:\n{SYNTAX}"
        )),
    }
}

fn create(w: &mut Words<'_>) -> Read {
    Ok(Op::Create {
        path: w.path("the path")?,
        mode: w.mode(Some(0o644))?,
    })
}

fn mkdir(w: &mut Words<'_>) -> Read {
    Ok(Op::Mkdir {
        path: w.path("the path")?,
        mode: w.mode(Some(0o755))?,
    })
}

fn symlink(w: &mut Words<'_>) -> Read {
    Ok(Op::Symlink {
        path: w.path("the path")?,
        target: w.word("the target")?.into(),
    })
}

fn link(w: &mut Words<'_>) -> Read {
    Ok(Op::Link {
        from: w.path("the old path")?,
        to: w.path("the new path")?,
    })
}

fn rename(w: &mut Words<'_>) -> Read {
    Ok(Op::Rename {
        from: w.path("the old path")?,
        to: w.path("the new path")?,
    })
}

fn exchange(w: &mut Words<'_>) -> Read {
    Ok(Op::Exchange {
        a: w.path("the first path")?,
        b: w.path("the second path")?,
    })
}

fn hold(w: &mut Words<'_>, state: &State) -> Read {
    Ok(Op::Hold {
        path: w.path("the path")?,
        held: w.held(Some(state.free_number()))?,
    })
}

fn hold_unlink(w: &mut Words<'_>, state: &State) -> Read {
    Ok(Op::HoldUnlink {
        path: w.path("the path")?,
        held: w.held(Some(state.free_number()))?,
    })
}

fn tmpfile(w: &mut Words<'_>, state: &State) -> Read {
    let next = w.ahead();
    Ok(Op::Tmpfile {
        mode: match next.is_some_and(|word| word.starts_with('@')) {
            true => 0o600,
            false => w.mode(Some(0o600))?,
        },
        held: w.held(Some(state.free_number()))?,
    })
}

fn write(w: &mut Words<'_>, line: usize) -> Read {
    Ok(Op::Write {
        path: w.path("the path")?,
        offset: w.number("the offset")?,
        len: w.number("the length")?,
        key: w.key(line)?,
    })
}

fn map_write(w: &mut Words<'_>, line: usize) -> Read {
    Ok(Op::MapWrite {
        path: w.path("the path")?,
        offset: w.number("the offset")?,
        len: w.number("the length")?,
        key: w.key(line)?,
    })
}

fn append(w: &mut Words<'_>, line: usize, state: &State) -> Read {
    let path = w.path("the path")?;
    let file = state.node(&path).and_then(|n| n.content());
    let size = file
        .ok_or_else(|| format!("{path:?} is not a file in this script"))?
        .data
        .len();
    Ok(Op::Write {
        path,
        offset: size as u64,
        len: w.number("the length")?,
        key: w.key(line)?,
    })
}

fn truncate(w: &mut Words<'_>) -> Read {
    Ok(Op::Truncate {
        path: w.path("the path")?,
        size: w.number("the size")?,
    })
}

fn punch(w: &mut Words<'_>) -> Read {
    Ok(Op::Punch {
        path: w.path("the path")?,
        offset: w.number("the offset")?,
        len: w.number("the length")?,
    })
}

fn zero(w: &mut Words<'_>) -> Read {
    Ok(Op::Zero {
        path: w.path("the path")?,
        offset: w.number("the offset")?,
        len: w.number("the length")?,
        keep: w.keep()?,
    })
}

fn allocate(w: &mut Words<'_>) -> Read {
    Ok(Op::Allocate {
        path: w.path("the path")?,
        offset: w.number("the offset")?,
        len: w.number("the length")?,
        keep: w.keep()?,
    })
}

fn chmod(w: &mut Words<'_>) -> Read {
    Ok(Op::Chmod {
        path: w.path("the path")?,
        mode: w.mode(None)?,
    })
}

fn chown(w: &mut Words<'_>) -> Read {
    Ok(Op::Chown {
        path: w.path("the path")?,
        uid: w.number("the owner")?,
        gid: w.number("the group")?,
    })
}

fn chattr(w: &mut Words<'_>) -> Read {
    Ok(Op::Chattr {
        path: w.path("the path")?,
        on: !w.ahead().is_some_and(|flag| flag.starts_with('-')),
        flag: {
            let word = w.word("the flag")?;
            let mut all = Flag::ALL.into_iter();
            let named =
                |flag: &Flag| word.strip_prefix(['+', '-']) == Some(&*flag.letter().to_string());
            all.find(named)
                .ok_or_else(|| format!("{word:?} is not a flag; write `+e` or `-i`, for example"))?
        },
    })
}

fn mkfifo(w: &mut Words<'_>) -> Read {
    Ok(Op::Mkfifo {
        path: w.path("the path")?,
        mode: w.mode(Some(0o644))?,
    })
}

fn rename_new(w: &mut Words<'_>) -> Read {
    Ok(Op::RenameNew {
        from: w.path("the old path")?,
        to: w.path("the new path")?,
    })
}

fn whiteout(w: &mut Words<'_>) -> Read {
    Ok(Op::Whiteout {
        from: w.path("the old path")?,
        to: w.path("the new path")?,
    })
}

fn copy(w: &mut Words<'_>) -> Read {
    Ok(Op::Copy {
        from: w.path("the path to read")?,
        offset: w.number("the offset there")?,
        to: w.path("the path to write")?,
        at: w.number("the offset there")?,
        len: w.number("the length")?,
    })
}

fn set_acl(w: &mut Words<'_>) -> Read {
    Ok(Op::SetAcl {
        path: w.path("the path")?,
        user: w.number("the user")?,
        perms: w.mode(None)? as u16 & 7,
    })
}

fn limit(w: &mut Words<'_>) -> Read {
    Ok(Op::Limit {
        uid: w.number("the user")?,
        kib: w.number("the space")?,
        inodes: w.number("the inodes")?,
    })
}

fn project(w: &mut Words<'_>) -> Read {
    Ok(Op::Project {
        path: w.path("the path")?,
        id: w.number("the project")?,
    })
}

fn act(w: &mut Words<'_>) -> Read {
    Ok(Op::Act {
        uid: w.number("the user")?,
        gid: w.number("the group")?,
    })
}

fn refused(w: &mut Words<'_>, line: usize, state: &State) -> Read {
    let verb = w.word("the operation")?;
    let op = Box::new(operation(verb, w, line, state)?);
    Ok(Op::Refused { op })
}

fn set_xattr(w: &mut Words<'_>, line: usize) -> Read {
    Ok(Op::SetXattr {
        path: w.path("the path")?,
        name: w.word("the name")?.into(),
        len: w.number("the length")?,
        key: w.key(line)?,
    })
}

fn remove_xattr(w: &mut Words<'_>) -> Read {
    Ok(Op::RemoveXattr {
        path: w.path("the path")?,
        name: w.word("the name")?.into(),
    })
}

fn atomic(w: &mut Words<'_>) -> Read {
    let mut paths = vec![w.path("the path")?];
    while w.ahead().is_some() {
        paths.push(w.path("the path")?);
    }
    Ok(Op::Atomic { paths })
}
