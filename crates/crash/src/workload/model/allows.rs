//! Which operations are possible in a state.

use super::{Kind, State, split};
use crate::workload::op::{Op, held_number};

impl State {
    /// Whether an operation can succeed here. The error says why not.
    ///
    /// # Errors
    /// What is in the way.
    pub fn allows(&self, op: &Op) -> Result<(), String> {
        match op {
            Op::Thaw if !self.frozen => return Err("the volume is not frozen".into()),
            Op::Thaw | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncAll => {}
            _ if self.frozen => return Err("the volume is frozen: thaw it first".into()),
            _ => {}
        }
        let node = |path: &str| {
            self.node(path)
                .ok_or_else(|| format!("{path:?} does not exist here"))
        };
        let new = |path: &str| {
            let (dir, name) = split(path);
            if name.is_empty()
                || name.len() > 255
                || name == "."
                || name == ".."
                || name.starts_with('@')
            {
                return Err(format!("{path:?} is no name for a new file"));
            }
            if !node(dir)?.is_dir() {
                return Err(format!("{dir:?} is no directory"));
            }
            match self.find(path) {
                None => Ok(()),
                Some(_) => Err(format!("{path:?} exists already")),
            }
        };
        let named = |path: &str| match path {
            "" => Err("the script's own directory stays".to_owned()),
            _ => node(path),
        };
        let file = |path: &str| match named(path)?.kind {
            Kind::File(_) => Ok(()),
            _ => Err(format!("{path:?} is no regular file")),
        };
        let free = |held: &u32| match self.held.contains_key(held) {
            true => Err(format!("@{held} is held already")),
            false => Ok(()),
        };
        // What takes names away, or gives others.
        let name_only = |path: &str| match held_number(path) {
            Some(_) => Err(format!("{path} is an open file, not a name")),
            None => Ok(()),
        };
        match op {
            Op::Unlink { path } | Op::HoldUnlink { path, .. } | Op::Rmdir { path } => {
                name_only(path)?;
            }
            Op::Rename { from, to } => {
                name_only(from)?;
                name_only(to)?;
            }
            Op::Exchange { a, b } => {
                name_only(a)?;
                name_only(b)?;
            }
            _ => {}
        }
        let grouped = |path: &str| {
            let id = self.find(path);
            id.is_some_and(|id| self.group.as_ref().is_some_and(|g| g.contains_key(&id)))
        };
        if let Op::Zero { path, .. } | Op::Allocate { path, .. } | Op::MapWrite { path, .. } = op
            && grouped(path)
        {
            return Err(format!("{path:?} is in a group, which cannot do that"));
        }
        let not_in = |a: &str, b: &str| match b.strip_prefix(a) {
            Some(rest) if rest.starts_with('/') => Err(format!("{b:?} lies in {a:?}")),
            _ => Ok(()),
        };
        match op {
            Op::Create { path, .. } | Op::Mkdir { path, .. } => new(path),
            Op::Symlink { path, target } => {
                if target.is_empty() || target.len() > 1000 {
                    return Err("a target has 1 to 1000 bytes".into());
                }
                new(path)
            }
            Op::Write { path, len, .. } => match len {
                0 => Err("a write has at least one byte".into()),
                _ => file(path),
            },
            Op::Punch { path, len, .. }
            | Op::Zero { path, len, .. }
            | Op::Allocate { path, len, .. } => match len {
                0 => Err("the length is at least 1".into()),
                _ => file(path),
            },
            Op::Truncate { path, .. } => file(path),
            Op::MapWrite {
                path, offset, len, ..
            } => {
                file(path)?;
                let size = node(path)?.content().map_or(0, |c| c.data.len() as u64);
                let end = offset.saturating_add(*len as u64);
                match *len > 0 && end <= size && offset / 4096 == (end - 1) / 4096 {
                    true => Ok(()),
                    false => {
                        Err("a mapped write lies within the file and within 4096 bytes".into())
                    }
                }
            }
            Op::Hold { path, held } | Op::HoldUnlink { path, held } => {
                free(held)?;
                file(path)
            }
            Op::Tmpfile { held, .. } => free(held),
            Op::Close { held } => match self.held.contains_key(held) {
                true => Ok(()),
                false => Err(format!("@{held} is not held")),
            },
            Op::Unlink { path } => match named(path)?.is_dir() {
                true => Err(format!("{path:?} is a directory: use rmdir")),
                false => Ok(()),
            },
            Op::Rmdir { path } => match &named(path)?.kind {
                Kind::Dir(entries) if entries.is_empty() => Ok(()),
                Kind::Dir(_) => Err(format!("{path:?} is not empty")),
                _ => Err(format!("{path:?} is no directory")),
            },
            Op::Link { from, to } => match named(from)? {
                node if node.is_dir() => Err(format!("{from:?} is a directory: it has one name")),
                node if node.links == 0 && !node.nameless => {
                    Err(format!("{from} has lost its last name: it gets no other"))
                }
                _ => new(to),
            },
            Op::Rename { from, to } => {
                let a = named(from)?;
                not_in(from, to)?;
                not_in(to, from)?;
                let Some(b) = self.node(to) else {
                    return new(to);
                };
                if self.find(from) == self.find(to) {
                    return Err("both names are of one file: rename(2) would do nothing".into());
                }
                match &b.kind {
                    Kind::Dir(_) if !a.is_dir() => Err(format!("{to:?} is a directory")),
                    Kind::Dir(entries) if !entries.is_empty() => {
                        Err(format!("{to:?} is not empty"))
                    }
                    Kind::Dir(_) => Ok(()),
                    _ if a.is_dir() => Err(format!("{to:?} is no directory")),
                    _ => Ok(()),
                }
            }
            Op::Exchange { a, b } => {
                named(a)?;
                named(b)?;
                not_in(a, b)?;
                not_in(b, a)?;
                match self.find(a) == self.find(b) {
                    true => Err("both names are of one file".into()),
                    false => Ok(()),
                }
            }
            Op::Chmod { path, .. } => match named(path)?.kind {
                Kind::Symlink(_) => Err("a symbolic link has no mode to change".into()),
                _ => Ok(()),
            },
            Op::Chown { path, .. } => named(path).map(drop),
            Op::SetXattr {
                path, name, len, ..
            } => {
                if !name.starts_with("user.") {
                    return Err("the name begins with `user.`".into());
                }
                if *len > 3000 {
                    return Err("a value has at most 3000 bytes here".into());
                }
                match named(path)?.kind {
                    Kind::Symlink(_) => Err("a symbolic link has no `user.` attributes".into()),
                    _ => Ok(()),
                }
            }
            Op::RemoveXattr { path, name } => match named(path)?.xattrs.contains_key(name) {
                true => Ok(()),
                false => Err(format!("{path:?} has no attribute {name:?}")),
            },
            Op::Atomic { paths } => {
                if self.group.is_some() {
                    return Err("a group is open".into());
                }
                paths.iter().try_for_each(|path| file(path))
            }
            Op::Early | Op::Commit | Op::Abort => match self.group {
                Some(_) => Ok(()),
                None => Err("no group is open".into()),
            },
            Op::Fsync { path } | Op::Fdatasync { path } => match node(path)?.kind {
                Kind::Symlink(_) => Err("a symbolic link cannot be opened to be synced".into()),
                _ => Ok(()),
            },
            Op::SyncAll | Op::Freeze | Op::Thaw => Ok(()),
        }
    }
}
