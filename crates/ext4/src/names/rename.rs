//! Rename: giving a name to what another name names.

use std::sync::Arc;

use stetfs_journal::{Credits, FileChange, Handle, Ino};
use stetfs_ondisk::ext4::dirent::FileType as EntryType;
use stetfs_sync::RwLockWriteGuard;

use super::checks::{check_distinct, check_name, errno, is_dots, may_add, may_remove, may_unname};
use super::dir::{Found, NewEntry, Plan};
use super::insert_credits;
use super::tree::Ancestry;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::credits::{NEW_INODE, ORPHAN, WRITE_INODE};
use crate::types::{Ctx, RenameFlags};

type Locked<'a> = RwLockWriteGuard<'a, InodeBody>;

/// Where a name is.
#[derive(Clone, Copy)]
struct At<'a> {
    dir: Ino,
    name: &'a [u8],
}

/// One or two directories, locked.
struct Dirs<'a> {
    old: &'a Inode,
    new: &'a Inode,
    old_body: Locked<'a>,
    /// `None` when both are the same.
    new_body: Option<Locked<'a>>,
}

impl Dirs<'_> {
    fn same(&self) -> bool {
        self.new_body.is_none()
    }

    fn new_body(&self) -> &InodeBody {
        self.new_body.as_ref().unwrap_or(&self.old_body)
    }

    fn new_body_mut(&mut self) -> &mut InodeBody {
        self.new_body.as_mut().unwrap_or(&mut self.old_body)
    }
}

/// Something that has a name: where the name is, and the inode, locked.
struct Child<'a> {
    found: &'a Found,
    inode: &'a Inode,
    body: Locked<'a>,
}

impl Child<'_> {
    fn entry_type(&self) -> EntryType {
        EntryType::from_mode(u32::from(self.body.mode()))
    }
}

impl Fs {
    /// Renames `name` in `parent` to `new_name` in `new_parent`, replacing what has that name.
    ///
    /// # Errors
    /// ENOENT; EEXIST with `no_replace`; ENOTDIR, EISDIR, ENOTEMPTY when the target cannot be
    /// replaced; EINVAL when a directory would move below itself, or flags that exclude each other;
    /// EBUSY for `.` and `..`; EMLINK, EPERM, ENOSPC, EROFS.
    pub fn rename(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
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
        self.throttle()?;
        let (old, new) = (
            At { dir: parent, name },
            At {
                dir: new_parent,
                name: new_name,
            },
        );
        let old_dir = self.iget(parent)?;
        // What lost its last name, and a whiteout, are let go when no lock is held any more.
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
            let new_dir = self.iget(new_parent)?;
            let _moving = self.rename_lock.lock();
            let above = (self.ancestry(parent)?, self.ancestry(new_parent)?);
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
        for inode in released {
            self.iput(&inode);
        }
        result
    }

    /// The part under the locks of the directories: looks up, locks the children, checks.
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
        let (source_found, source) = self.find_child(dirs.old, &dirs.old_body, old.name)?;
        if above.is_some_and(|(_, new)| new.contains(source.ino)) {
            return errno(libc::EINVAL);
        }
        check_distinct(&locked, source.ino)?;
        let target = match self.dir_find(dirs.new, dirs.new_body(), new.name)? {
            Some(_) if flags.no_replace => return errno(libc::EEXIST),
            Some(found) => {
                if above.is_some_and(|(old, _)| old.contains(found.ino)) {
                    // The target lies above the source: it is not empty.
                    return errno(if flags.exchange {
                        libc::EINVAL
                    } else {
                        libc::ENOTEMPTY
                    });
                }
                check_distinct(&locked, found.ino)?;
                let inode = self.entry_inode(dirs.new, found.ino)?;
                Some((found, inode))
            }
            None if flags.exchange => return errno(libc::ENOENT),
            None => None,
        };
        match &target {
            // Two names of one file, or one name: POSIX wants nothing done.
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
        match target_child {
            Some(target) if flags.exchange => self.exchange(dirs, source_child, target, old, new),
            target_child => {
                let whiteout = flags.whiteout.then_some(ctx);
                let gone =
                    self.replace(ctx, dirs, source_child, target_child, old, new, whiteout)?;
                released.extend(gone);
                released.extend(target.map(|(_, inode)| inode));
                Ok(())
            }
        }
    }

    /// Moves the source to the new name, over the target if there is one.
    #[expect(
        clippy::too_many_arguments,
        reason = "the two names and the state that goes with them"
    )]
    fn replace(
        &self,
        ctx: &Ctx,
        mut dirs: Dirs<'_>,
        mut source: Child<'_>,
        mut target: Option<Child<'_>>,
        old: At<'_>,
        new: At<'_>,
        whiteout: Option<&Ctx>,
    ) -> Result<Option<Arc<Inode>>> {
        let moves_dir = source.body.is_dir();
        let changes_parent = moves_dir && !dirs.same();
        if let Some(target) = &target {
            match (moves_dir, target.body.is_dir()) {
                (true, false) => return errno(libc::ENOTDIR),
                (false, true) => return errno(libc::EISDIR),
                (true, true) if !self.dir_is_empty(target.inode, &target.body)? => {
                    return errno(libc::ENOTEMPTY);
                }
                _ => {}
            }
        } else if changes_parent {
            self.may_add_subdir(dirs.new_body())?;
        }
        if changes_parent {
            self.check_parent(source.inode, &source.body, old.dir)?;
        }
        let plan = match &target {
            Some(_) => None,
            None => Some(self.dir_plan(dirs.new, dirs.new_body(), new.name)?),
        };
        let room = plan.as_ref().map_or(0, |p| u64::from(p.new_blocks));
        let _room = self.reserve(room, self.privileged(ctx))?;
        let h = self
            .journal
            .begin(replace_credits(plan.as_ref(), whiteout.is_some()))?;
        let white = match whiteout {
            Some(ctx) => {
                Some(self.new_inode(&h, dirs.old, &dirs.old_body, ctx, libc::S_IFCHR, 0)?)
            }
            None => None,
        };

        let kind = source.entry_type();
        let ino = source.inode.ino;
        match (&target, plan) {
            (Some(target), _) => {
                self.dir_retarget(&h, dirs.new, dirs.new_body(), target.found, (ino, kind))?
            }
            (None, Some(plan)) => {
                let new_dir = dirs.new;
                let entry = NewEntry {
                    ino,
                    kind,
                    name: new.name,
                };
                let inserted = self.dir_insert(&h, new_dir, dirs.new_body_mut(), plan, entry);
                if let (Err(e), Some(inode)) = (&inserted, &white) {
                    self.drop_new(&h, inode, &mut inode.lock_new());
                    tracing::warn!("rename: {e}");
                }
                inserted?;
            }
            (None, None) => {}
        }
        // Adding the new name may have split the block with the old one.
        let moved_within = dirs
            .same()
            .then(|| self.dir_find(dirs.old, &dirs.old_body, old.name))
            .transpose()?;
        let found = match moved_within {
            Some(Some(found)) => found,
            Some(None) => {
                return Err(FsError::corrupt(
                    "directory",
                    0,
                    "the old name vanished while it was renamed",
                ));
            }
            None => source.found.clone(),
        };
        match &white {
            Some(inode) => {
                let entry = (inode.ino, EntryType::CharDevice);
                self.dir_retarget(&h, dirs.old, &dirs.old_body, &found, entry)?;
            }
            None => self.dir_remove(&h, dirs.old, &dirs.old_body, &found)?,
        }

        if changes_parent {
            self.dir_set_parent(&h, source.inode, &source.body, new.dir)?;
            self.drop_subdir(&mut dirs.old_body);
            self.add_subdir(dirs.new_body_mut());
        }
        self.links_changed(&h, source.inode, &mut source.body)?;
        if let Some(target) = &mut target {
            if target.body.is_dir() {
                self.drop_subdir(dirs.new_body_mut());
            }
            self.drop_link(&h, target.inode, &mut target.body)?;
            h.note(FileChange::Unlink {
                parent: new.dir,
                name: new.name.to_vec(),
                ino: target.inode.ino,
            });
        }
        h.note(FileChange::Unlink {
            parent: old.dir,
            name: old.name.to_vec(),
            ino,
        });
        h.note(FileChange::Link {
            parent: new.dir,
            name: new.name.to_vec(),
            ino,
        });
        if let Some(inode) = &white {
            h.note(FileChange::Link {
                parent: old.dir,
                name: old.name.to_vec(),
                ino: inode.ino,
            });
        }
        self.both_changed(&h, &mut dirs)?;
        Ok(white)
    }

    /// Swaps what two names name.
    fn exchange(
        &self,
        mut dirs: Dirs<'_>,
        mut a: Child<'_>,
        mut b: Child<'_>,
        old: At<'_>,
        new: At<'_>,
    ) -> Result<()> {
        let (a_dir, b_dir) = (a.body.is_dir(), b.body.is_dir());
        let crosses = !dirs.same();
        if crosses {
            if b_dir && !a_dir {
                self.may_add_subdir(&dirs.old_body)?;
            }
            if a_dir && !b_dir {
                self.may_add_subdir(dirs.new_body())?;
            }
            for (child, is_dir, dir) in [(&a, a_dir, old.dir), (&b, b_dir, new.dir)] {
                if is_dir {
                    self.check_parent(child.inode, &child.body, dir)?;
                }
            }
        }
        // Two entries, two `..`, four inodes.
        let h = self.journal.begin(4 + 4 * WRITE_INODE)?;
        let (to_a, to_b) = ((a.inode.ino, a.entry_type()), (b.inode.ino, b.entry_type()));
        self.dir_retarget(&h, dirs.old, &dirs.old_body, a.found, to_b)?;
        self.dir_retarget(&h, dirs.new, dirs.new_body(), b.found, to_a)?;
        if crosses {
            if a_dir {
                self.dir_set_parent(&h, a.inode, &a.body, new.dir)?;
                self.drop_subdir(&mut dirs.old_body);
                self.add_subdir(dirs.new_body_mut());
            }
            if b_dir {
                self.dir_set_parent(&h, b.inode, &b.body, old.dir)?;
                self.drop_subdir(dirs.new_body_mut());
                self.add_subdir(&mut dirs.old_body);
            }
        }
        self.links_changed(&h, a.inode, &mut a.body)?;
        self.links_changed(&h, b.inode, &mut b.body)?;
        for (at, gone, come) in [(old, to_a.0, to_b.0), (new, to_b.0, to_a.0)] {
            h.note(FileChange::Unlink {
                parent: at.dir,
                name: at.name.to_vec(),
                ino: gone,
            });
            h.note(FileChange::Link {
                parent: at.dir,
                name: at.name.to_vec(),
                ino: come,
            });
        }
        self.both_changed(&h, &mut dirs)
    }

    fn both_changed(&self, h: &Handle<'_>, dirs: &mut Dirs<'_>) -> Result<()> {
        self.dir_changed(h, dirs.old, &mut dirs.old_body)?;
        match &mut dirs.new_body {
            Some(body) => self.dir_changed(h, dirs.new, body),
            None => Ok(()),
        }
    }

    /// `..` of a directory must name the directory its name is in, or moving it would hide damage.
    fn check_parent(&self, inode: &Inode, body: &InodeBody, dir: Ino) -> Result<()> {
        match self.dir_parent(inode, body)? {
            parent if parent == dir => Ok(()),
            parent => {
                let detail = format!(
                    "directory {} lies in {dir}, but its .. names {parent}",
                    inode.ino
                );
                Err(FsError::corrupt("directory", 0, detail))
            }
        }
    }
}

/// Locks both children: directories before other files, equals by number.
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

fn replace_credits(plan: Option<&Plan>, whiteout: bool) -> Credits {
    // The new entry; the old entry and `..`; two directories, source and target; the target's
    // place among the orphans; a whiteout.
    plan.map_or(1, insert_credits)
        + 2
        + 4 * WRITE_INODE
        + ORPHAN
        + if whiteout {
            NEW_INODE + WRITE_INODE + ORPHAN
        } else {
            0
        }
}
