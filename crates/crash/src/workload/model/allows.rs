//! The conditions under which an operation can succeed.

use super::{ACL, Kind, Node, State, split};
use crate::workload::op::{Flag, Op, held_number};

/// Success, or the obstacle in words.
type Allowed = Result<(), String>;

impl State {
    /// Checks that an operation can succeed in this state.
    ///
    /// # Errors
    /// The obstacle in words.
    pub fn allows(&self, op: &Op) -> Result<(), String> {
        self.frozen_allows(op)?;
        takes_names(op)?;
        self.group_allows(op)?;
        match op {
            Op::Create { path, .. } | Op::Mkdir { path, .. } => self.new_name(path),
            Op::Symlink { path, target } => self.can_symlink(path, target),
            Op::Write { path, len, .. } => self.can_write(path, *len),
            Op::Punch { path, len, .. } => self.can_fallocate(path, *len),
            Op::Zero { path, len, .. } => self.can_fallocate(path, *len),
            Op::Allocate { path, len, .. } => self.can_fallocate(path, *len),
            Op::Truncate { path, .. } => self.file(path),
            Op::MapWrite {
                path, offset, len, ..
            } => self.can_map_write(path, *offset, *len),
            Op::Hold { path, held } | Op::HoldUnlink { path, held } => {
                self.free(*held)?;
                self.file(path)
            }
            Op::Tmpfile { held, .. } => self.free(*held),
            Op::Close { held } => self.can_close(*held),
            Op::Unlink { path } => self.can_unlink(path),
            Op::Rmdir { path } => self.can_rmdir(path),
            Op::Link { from, to } => self.can_link(from, to),
            Op::Rename { from, to } => self.can_rename(from, to),
            Op::Exchange { a, b } => self.can_exchange(a, b),
            Op::Chmod { path, .. } => self.can_chmod(path),
            Op::Chown { path, .. } => self.named(path).map(drop),
            Op::SetXattr {
                path, name, len, ..
            } => self.can_set_xattr(path, name, *len),
            Op::RemoveXattr { path, name } => self.can_remove_xattr(path, name),
            Op::Chattr { path, flag, .. } => self.can_chattr(path, *flag),
            Op::Mkfifo { path, .. } => self.new_name(path),
            Op::RenameNew { from, to } => {
                self.new_name(to)?;
                self.can_rename(from, to)
            }
            Op::Whiteout { from, to } => self.can_rename(from, to),
            Op::Copy {
                from,
                offset,
                to,
                len,
                ..
            } => self.can_copy((from, *offset), to, *len),
            Op::SetAcl { path, user, .. } => self.can_set_acl(path, *user),
            Op::Project { path, .. } => self.can_chattr(path, Flag::Extents),
            // The volume decides whether to refuse these.
            Op::Limit { .. } | Op::Memory { .. } | Op::Trim | Op::Act { .. } => Ok(()),
            Op::Remount | Op::Refused { .. } => Ok(()),
            Op::Atomic { paths } => self.can_begin_group(paths),
            Op::Early | Op::Commit | Op::Abort => self.group_is_open(),
            Op::Fsync { path } | Op::Fdatasync { path } => self.can_sync(path),
            Op::SyncAll | Op::Freeze | Op::Thaw => Ok(()),
        }
    }

    /// A frozen volume takes only syncs and a thaw; a volume that is not frozen takes no thaw.
    fn frozen_allows(&self, op: &Op) -> Allowed {
        match op {
            Op::Thaw if !self.frozen => Err("the volume is not frozen".into()),
            Op::Thaw | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncAll => Ok(()),
            _ if self.frozen => Err("the volume is frozen: thaw it first".into()),
            _ => Ok(()),
        }
    }
}

/// Operations that remove or change names need a name, not an open file.
fn takes_names(op: &Op) -> Allowed {
    let name_only = |path: &str| match held_number(path) {
        Some(_) => Err(format!("{path} is an open file, not a name")),
        None => Ok(()),
    };
    match op {
        Op::Unlink { path } | Op::HoldUnlink { path, .. } | Op::Rmdir { path } => name_only(path),
        Op::Rename { from, to } | Op::RenameNew { from, to } | Op::Whiteout { from, to } => {
            name_only(from).and_then(|()| name_only(to))
        }
        Op::Exchange { a, b } => name_only(a).and_then(|()| name_only(b)),
        _ => Ok(()),
    }
}

/// Paths, and the types that they must lead to.
impl State {
    fn existing(&self, path: &str) -> Result<&Node, String> {
        self.node(path)
            .ok_or_else(|| format!("{path:?} does not exist here"))
    }

    /// A file other than the script's own directory.
    fn named(&self, path: &str) -> Result<&Node, String> {
        match path {
            "" => Err("the script's own directory cannot be changed or removed".to_owned()),
            _ => self.existing(path),
        }
    }

    fn file(&self, path: &str) -> Allowed {
        match self.named(path)?.kind {
            Kind::File(_) => Ok(()),
            _ => Err(format!("{path:?} is not a regular file")),
        }
    }

    /// A name that is free for a new file.
    fn new_name(&self, path: &str) -> Allowed {
        let (dir, name) = split(path);
        if name.is_empty()
            || name.len() > 255
            || name == "."
            || name == ".."
            || name.starts_with('@')
        {
            return Err(format!("{path:?} cannot be the name of a new file"));
        }
        if !self.existing(dir)?.is_dir() {
            return Err(format!("{dir:?} is not a directory"));
        }
        match self.find(path) {
            None => Ok(()),
            Some(_) => Err(format!("{path:?} exists already")),
        }
    }
}

/// Operations on content.
impl State {
    fn can_chattr(&self, path: &str, flag: Flag) -> Allowed {
        match self.named(path)?.kind {
            Kind::File(_) if flag == Flag::DirSynchronous => {
                Err(format!("{path:?} is not a directory"))
            }
            Kind::File(_) | Kind::Dir(_) => Ok(()),
            _ => Err(format!("{path:?} is neither a file nor a directory")),
        }
    }

    fn can_copy(&self, (from, offset): (&str, u64), to: &str, len: usize) -> Allowed {
        self.file(from)?;
        self.can_write(to, len)?;
        let size = self
            .existing(from)?
            .content()
            .map_or(0, |c| c.data.len() as u64);
        match offset.saturating_add(len as u64) <= size {
            true => Ok(()),
            false => Err(format!("{from:?} ends before the bytes to copy")),
        }
    }

    fn can_write(&self, path: &str, len: usize) -> Allowed {
        match len {
            0 => Err("a write has at least one byte".into()),
            _ => self.file(path),
        }
    }

    fn can_fallocate(&self, path: &str, len: u64) -> Allowed {
        match len {
            0 => Err("the length is at least 1".into()),
            _ => self.file(path),
        }
    }

    fn can_map_write(&self, path: &str, offset: u64, len: usize) -> Allowed {
        self.file(path)?;
        let content = self.existing(path)?.content();
        let size = content.map_or(0, |c| c.data.len() as u64);
        let end = offset.saturating_add(len as u64);
        match len > 0 && end <= size && offset / 4096 == (end - 1) / 4096 {
            true => Ok(()),
            false => Err("a mapped write lies within the file and within 4096 bytes".into()),
        }
    }

    fn can_sync(&self, path: &str) -> Allowed {
        match self.existing(path)?.kind {
            Kind::Symlink(_) | Kind::Special(_) => {
                Err("neither a symbolic link nor a special file can be opened to be synced".into())
            }
            _ => Ok(()),
        }
    }
}

/// Operations on names.
impl State {
    fn can_symlink(&self, path: &str, target: &str) -> Allowed {
        if target.is_empty() || target.len() > 1000 {
            return Err("a target has 1 to 1000 bytes".into());
        }
        self.new_name(path)
    }

    fn can_unlink(&self, path: &str) -> Allowed {
        match self.named(path)?.is_dir() {
            true => Err(format!("{path:?} is a directory: use rmdir")),
            false => Ok(()),
        }
    }

    fn can_rmdir(&self, path: &str) -> Allowed {
        match &self.named(path)?.kind {
            Kind::Dir(entries) if entries.is_empty() => Ok(()),
            Kind::Dir(_) => Err(format!("{path:?} is not empty")),
            _ => Err(format!("{path:?} is not a directory")),
        }
    }

    fn can_link(&self, from: &str, to: &str) -> Allowed {
        match self.named(from)? {
            node if node.is_dir() => Err(format!("{from:?} is a directory: it has one name")),
            node if node.links == 0 && !node.nameless => {
                Err(format!("{from} has lost its last name: it gets no other"))
            }
            _ => self.new_name(to),
        }
    }

    fn can_rename(&self, from: &str, to: &str) -> Allowed {
        let a = self.named(from)?;
        not_in(from, to)?;
        not_in(to, from)?;
        let Some(b) = self.node(to) else {
            return self.new_name(to);
        };
        if self.find(from) == self.find(to) {
            return Err("both names are of one file: rename(2) would do nothing".into());
        }
        match &b.kind {
            Kind::Dir(_) if !a.is_dir() => Err(format!("{to:?} is a directory")),
            Kind::Dir(entries) if !entries.is_empty() => Err(format!("{to:?} is not empty")),
            Kind::Dir(_) => Ok(()),
            _ if a.is_dir() => Err(format!("{to:?} is not a directory")),
            _ => Ok(()),
        }
    }

    fn can_exchange(&self, a: &str, b: &str) -> Allowed {
        self.named(a)?;
        self.named(b)?;
        not_in(a, b)?;
        not_in(b, a)?;
        match self.find(a) == self.find(b) {
            true => Err("both names are of one file".into()),
            false => Ok(()),
        }
    }
}

fn not_in(a: &str, b: &str) -> Allowed {
    match b.strip_prefix(a) {
        Some(rest) if rest.starts_with('/') => Err(format!("{b:?} lies in {a:?}")),
        _ => Ok(()),
    }
}

/// Operations on files that are held open.
impl State {
    fn free(&self, held: u32) -> Allowed {
        match self.held.contains_key(&held) {
            true => Err(format!("@{held} is held already")),
            false => Ok(()),
        }
    }

    fn can_close(&self, held: u32) -> Allowed {
        match self.held.contains_key(&held) {
            true => Ok(()),
            false => Err(format!("@{held} is not held")),
        }
    }
}

/// Operations on attributes.
impl State {
    fn can_chmod(&self, path: &str) -> Allowed {
        match self.named(path)?.kind {
            Kind::Symlink(_) => Err("a symbolic link has no mode to change".into()),
            _ if self.existing(path)?.xattrs.contains_key(ACL) => {
                Err(format!("{path:?} has an ACL, which the mode is a part of"))
            }
            _ => Ok(()),
        }
    }

    fn can_set_acl(&self, path: &str, user: u32) -> Allowed {
        match self.named(path)?.kind {
            Kind::File(_) | Kind::Dir(_) if user != u32::MAX => Ok(()),
            _ => Err(format!("{path:?} is neither a file nor a directory")),
        }
    }

    fn can_set_xattr(&self, path: &str, name: &str, len: usize) -> Allowed {
        let is_users = name.starts_with("user.");
        if !is_users && !name.starts_with("trusted.") {
            return Err("the name begins with `user.` or `trusted.`".into());
        }
        if len > 1 << 16 {
            return Err("a value has at most 65536 bytes".into());
        }
        match self.named(path)?.kind {
            Kind::Symlink(_) | Kind::Special(_) if is_users => {
                Err(format!("{path:?} has no `user.` attributes"))
            }
            _ => Ok(()),
        }
    }

    fn can_remove_xattr(&self, path: &str, name: &str) -> Allowed {
        match self.named(path)?.xattrs.contains_key(name) {
            true => Ok(()),
            false => Err(format!("{path:?} has no attribute {name:?}")),
        }
    }
}

/// Operations on atomic groups.
impl State {
    /// Checks the limits for files in the open group.
    fn group_allows(&self, op: &Op) -> Allowed {
        let grouped = |path: &str| {
            let id = self.find(path);
            id.is_some_and(|id| self.group.as_ref().is_some_and(|g| g.contains_key(&id)))
        };
        if let Op::Zero { path, .. }
        | Op::Allocate { path, .. }
        | Op::MapWrite { path, .. }
        | Op::Chattr { path, .. } = op
            && grouped(path)
        {
            return Err(format!("{path:?} is in a group, which cannot do that"));
        }
        if let Op::Copy { from, to, .. } = op
            && (grouped(from) || grouped(to))
        {
            return Err("one of them is in a group, which cannot copy".into());
        }
        Ok(())
    }

    fn can_begin_group(&self, paths: &[String]) -> Allowed {
        if self.group.is_some() {
            return Err("a group is open".into());
        }
        paths.iter().try_for_each(|path| self.file(path))
    }

    fn group_is_open(&self) -> Allowed {
        match self.group {
            Some(_) => Ok(()),
            None => Err("no group is open".into()),
        }
    }
}
