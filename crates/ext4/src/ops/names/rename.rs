//! rename(2): checks and locks.

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::names::checks::{
    check_distinct, check_name, errno, is_dots, may_add, may_remove, may_unname,
};
use crate::names::rename::{At, Child, Dirs, Locked, Move};
use crate::names::tree::Ancestry;
use crate::types::{Ctx, RenameFlags};
use std::sync::Arc;
use stetfs_journal::Ino;

/// Checks of a rename that need only the names.
fn check_names(name: &[u8], new_name: &[u8], flags: RenameFlags) -> Result<()> {
    check_name(name)?;
    check_name(new_name)?;
    if is_dots(name) || is_dots(new_name) {
        return errno(if flags.no_replace && is_dots(new_name) {
            libc::EEXIST
        } else {
            libc::EBUSY
        });
    }
    if flags.exchange && (flags.no_replace || flags.whiteout) {
        return errno(libc::EINVAL);
    }
    Ok(())
}

impl Fs {
    /// Renames `name` in `parent` to `new_name` in `new_parent`, replacing what has that name.
    ///
    /// # Errors
    /// ENOENT; EEXIST with `no_replace`; ENOTDIR, EISDIR, ENOTEMPTY when the target cannot be
    /// replaced; EINVAL when a directory would move below itself, or for flags that exclude each
    /// other; EBUSY for `.` and `..`; EMLINK, EPERM, ENOSPC, EROFS.
    pub fn rename(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        check_names(name, new_name, flags)?;
        self.throttle()?;
        let (old, new) = (
            At { dir: parent, name },
            At {
                dir: new_parent,
                name: new_name,
            },
        );
        let (old_dir, new_dir) = (self.inodes.iget(parent)?, self.inodes.iget(new_parent)?);
        self.names.dir_move_out(&old_dir)?;
        self.names.dir_move_out(&new_dir)?;
        // Inodes that lost their last name, and a whiteout, are released when no lock is held any
        // more.
        let mut released = Vec::new();
        let result = if parent == new_parent {
            let dirs = Dirs {
                old: &old_dir,
                new: &old_dir,
                old_body: old_dir.body.write(),
                new_body: None,
            };
            self.rename_locked(ctx, dirs, None, old, new, flags, &mut released)
        } else {
            let _moving = self.names.rename_lock.lock();
            let above = (
                self.names.ancestry(parent)?,
                self.names.ancestry(new_parent)?,
            );
            let new_first = match () {
                () if above.1.contains(parent) => false,
                () if above.0.contains(new_parent) => true,
                () => new_parent < parent,
            };
            let (old_body, new_body) = if new_first {
                let new_body = new_dir.body.write();
                (old_dir.body.write_nested(), new_body)
            } else {
                let old_body = old_dir.body.write();
                (old_body, new_dir.body.write_nested())
            };
            let dirs = Dirs {
                old: &old_dir,
                new: &new_dir,
                old_body,
                new_body: Some(new_body),
            };
            self.rename_locked(ctx, dirs, Some(&above), old, new, flags, &mut released)
        };
        let synchronous = released
            .iter()
            .any(|inode| self.is_synchronous(&inode.body.read()));
        for inode in released {
            self.iput(&inode);
        }
        result?;
        if synchronous {
            return self.commit_inode(&new_dir);
        }
        self.settle_names(&old_dir)?;
        self.settle_names(&new_dir)
    }

    /// The part of a rename under the locks of the directories: looks up, locks the children,
    /// checks.
    #[expect(
        clippy::too_many_arguments,
        reason = "the two names and the state that goes with them"
    )]
    fn rename_locked(
        &self,
        ctx: &Ctx,
        dirs: Dirs<'_>,
        above: Option<&(Ancestry, Ancestry)>,
        old: At<'_>,
        new: At<'_>,
        flags: RenameFlags,
        released: &mut Vec<Arc<Inode>>,
    ) -> Result<()> {
        may_remove(&dirs.old_body)?;
        may_add(dirs.new_body())?;
        let locked = [old.dir, new.dir];
        let (source_found, source) = self.names.find_child(dirs.old, &dirs.old_body, old.name)?;
        if above.is_some_and(|(_, new)| new.contains(source.ino)) {
            return errno(libc::EINVAL);
        }
        self.vol.noted(check_distinct(&locked, source.ino))?;
        let target = match self.names.dir_find(dirs.new, dirs.new_body(), new.name)? {
            Some(_) if flags.no_replace => return errno(libc::EEXIST),
            Some(found) => {
                if above.is_some_and(|(old, _)| old.contains(found.ino)) {
                    // The target is an ancestor of the source, so it is not empty.
                    return errno(if flags.exchange {
                        libc::EINVAL
                    } else {
                        libc::ENOTEMPTY
                    });
                }
                self.vol.noted(check_distinct(&locked, found.ino))?;
                let inode = self.names.entry_inode(dirs.new, found.ino)?;
                Some((found, inode))
            }
            None if flags.exchange => return errno(libc::ENOENT),
            None => None,
        };
        match &target {
            // Two names of one file, or one name: POSIX requires that nothing is done.
            Some((_, inode)) if inode.ino == source.ino => return Ok(()),
            Some(_) => may_remove(dirs.new_body())?,
            None => {}
        }
        let (source_body, target_body) =
            lock_children(&source, target.as_ref().map(|(_, inode)| &**inode));
        let source_child = Child {
            found: &source_found,
            inode: &source,
            body: source_body,
        };
        let target_child = match (&target, target_body) {
            (Some((found, inode)), Some(body)) => Some(Child { found, inode, body }),
            _ => None,
        };
        may_unname(&source_child.body)?;
        if let Some(target) = &target_child {
            may_unname(&target.body)?;
        }
        let exchange = flags.exchange;
        let mut moving = Move {
            dirs,
            source: source_child,
            target: target_child,
            old,
            new,
        };
        if exchange {
            return self.names.exchange(&mut moving);
        }
        let whiteout = self.replace(ctx, &mut moving, flags.whiteout)?;
        released.extend(whiteout);
        drop(moving);
        released.extend(target.map(|(_, inode)| inode));
        Ok(())
    }
}

/// Locks both children: directories before other files, equal kinds in inode order.
fn lock_children<'a>(
    source: &'a Inode,
    target: Option<&'a Inode>,
) -> (Locked<'a>, Option<Locked<'a>>) {
    let Some(target) = target else {
        return (source.body.write_nested(), None);
    };
    let rank = |inode: &Inode| (!inode.is_dir(), inode.ino);
    if rank(source) < rank(target) {
        let first = source.body.write_nested();
        (first, Some(target.body.write_nested()))
    } else {
        let first = target.body.write_nested();
        (source.body.write_nested(), Some(first))
    }
}
