//! Atomic writes by the ioctls of F2FS, which SQLite uses. A file on which a handle began an atomic
//! write is in a group (decisions/0032). Writes by that handle are part of the group until the
//! handle commits, aborts or is closed. Further files of the same program join the group, with a
//! token that one of its handles obtains; ending the group by one handle ends it for all.
//!
//! The kernel's pages of a file are shared: every reader of the file on the mount sees the handle's
//! writes. So all requests are answered from the group's state of the file, and after an abort the
//! kernel is told to drop its pages.
//!
//! When a program dies, others can take its locks as soon as the kernel has closed its descriptors.
//! The kernel sends FLUSH before that and waits for the answer, so FLUSH aborts; RELEASE comes
//! later. Both are sent only on mounts with the option `atomic`. Further writes of a handle that is
//! still open must not stand alone: they are refused until the handle says COMMIT, ABORT or START.

mod expiry;
#[cfg(test)]
mod tests;
mod verb;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use stetfs::low::{AtomicGroup, Attr, Ctx, Fs, FsError, Ino, OpenRef};

pub(crate) use self::expiry::{Expiry, Watcher};
pub(crate) use self::verb::{ABORT, ATOMIC_WRITE, BREAK, Verb, WHOLE_BYTES, WRITES_WHOLE};

use crate::api::ops::{Fh, OpenFile};
use crate::helper::caller;

/// A group: files that change together, atomically.
struct Group {
    /// A random number that cannot be guessed.
    token: u64,
    /// A thread of the process that began it, and the user as the mount knows it.
    by: u32,
    uid: u32,
    since: SystemTime,
    /// Time of the last begin, join or change. No other lock is taken with it held.
    changed: Mutex<Instant>,
    /// `None` when the group has ended. The lock is held until a commit is done: until then no
    /// reader must learn the old state of a file, which the kernel would keep. It blocks readers of
    /// the files, so a thread that takes it for a change waits before (`Fs::throttle`), for room
    /// and for the thaw of a frozen volume. No freeze can follow that wait: a freeze waits for all
    /// requests (`VolumeFs::volume`).
    open: Mutex<Option<AtomicGroup>>,
}

impl Group {
    fn touch(&self) {
        *self.changed.lock() = Instant::now();
    }

    fn idle(&self) -> Duration {
        self.changed.lock().elapsed()
    }
}

/// The holder of a group, for display.
#[derive(Clone, Debug)]
pub struct AtomicHolder {
    /// The thread that began it.
    pub pid: u32,
    /// The thread's user, as the mount knows it.
    pub uid: u32,
    /// Time of the begin.
    pub since: SystemTime,
    /// Time since the last change.
    pub idle: Duration,
    /// The files' inode numbers, ascending.
    pub files: Vec<Ino>,
    /// Bytes written; `None` while the group is in use.
    pub bytes: Option<u64>,
}

/// A file that is written atomically.
struct Writing {
    /// The handle and the thread that began it.
    fh: Fh,
    by: u32,
    group: Arc<Group>,
}

/// The origin of a change to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A request with this handle; without a handle, any request that names the file.
    Handle(Option<Fh>),
    /// The kernel, which writes back pages stored through a mapping, and does not say whose.
    Mapping,
}

impl By {
    /// The origin of a request with `file`.
    pub(crate) fn holder(file: OpenFile) -> By {
        By::Handle(file.fh)
    }

    fn has_begun(self, writing: &Writing) -> bool {
        match self {
            By::Handle(fh) => fh == Some(writing.fh),
            By::Mapping => true,
        }
    }
}

/// Whether the handles know that their atomic write has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Yes,
    NotYet,
}

#[derive(Default)]
struct Table {
    files: HashMap<Ino, Arc<Writing>>,
    /// Handles whose atomic write was aborted by others, and that do not know it yet.
    broken: HashSet<Fh>,
    /// Whether the mount has ended.
    is_over: bool,
}

/// The files that are written atomically now, each by one handle.
///
/// Lock order: `table` may be taken with the lock of a group held, not the other way round.
#[derive(Default)]
pub(crate) struct AtomicFiles {
    table: Mutex<Table>,
    /// Number of entries in the table: 0 on most mounts, always.
    count: AtomicUsize,
    /// Signals that a group has begun, or that the mount has ended.
    news: Condvar,
}

impl AtomicFiles {
    fn table<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let result = change(&mut table);
        let count = table.files.len() + table.broken.len();
        self.count.store(count, Ordering::Release);
        result
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn find(&self, ino: Ino) -> Option<Arc<Writing>> {
        match self.is_empty() {
            true => None,
            false => self.table.lock().files.get(&ino).cloned(),
        }
    }

    fn of_handle(&self, fh: Fh, ino: Ino) -> Option<Arc<Writing>> {
        self.find(ino).filter(|writing| writing.fh == fh)
    }

    fn is_broken(&self, by: By) -> bool {
        match by {
            By::Handle(Some(fh)) if !self.is_empty() => self.table.lock().broken.contains(&fh),
            _ => false,
        }
    }

    /// The result of `look` on the group of a file; `None` if the file is in no group.
    pub(crate) fn look<T>(
        &self,
        ino: Ino,
        look: impl FnOnce(&AtomicGroup) -> Result<T, FsError>,
    ) -> Option<Result<T, FsError>> {
        let writing = self.find(ino)?;
        let group = writing.group.open.lock();
        group.as_ref().map(look)
    }

    /// Changes content or size of a file as a part of its group, if the handle of the group asks;
    /// `None` if the file is in no group.
    ///
    /// # Errors
    /// EBUSY: another handle has the group. EIO: the group of this handle was aborted, and the
    /// handle does not know it yet. Those of [`Fs::throttle`].
    pub(crate) fn change<T>(
        &self,
        fs: &Fs,
        ino: Ino,
        by: By,
        change: impl FnOnce(&mut AtomicGroup) -> Result<T, FsError>,
    ) -> Option<Result<T, FsError>> {
        if let Some(writing) = self.find(ino) {
            let is_its = by.has_begun(&writing);
            if is_its {
                writing.group.touch();
            }
            if let Err(e) = fs.throttle() {
                return Some(Err(e));
            }
            if let Some(group) = &mut *writing.group.open.lock() {
                if !is_its {
                    return Some(Err(FsError::Errno(libc::EBUSY)));
                }
                let changed = change(group);
                writing.group.touch();
                return Some(changed);
            }
        }
        // Checked last: a concurrent close may have aborted the group.
        self.is_broken(by).then_some(Err(FsError::Errno(libc::EIO)))
    }

    /// The attributes of a file with the size in its group.
    pub(crate) fn shown(&self, mut attr: Attr) -> Attr {
        if let Some(Ok(size)) = self.look(attr.ino, |group| group.size(attr.ino)) {
            attr.size = size;
        }
        attr
    }

    /// The group of a file, if this handle began it.
    ///
    /// # Errors
    /// EBUSY: another handle did.
    fn begun(&self, fh: Fh, ino: Ino) -> Result<Option<Arc<Group>>, FsError> {
        match self.find(ino) {
            Some(writing) if writing.group.open.lock().is_some() => match writing.fh == fh {
                true => Ok(Some(Arc::clone(&writing.group))),
                false => Err(FsError::Errno(libc::EBUSY)),
            },
            _ => Ok(None),
        }
    }

    /// Begins an atomic write; no effect if this handle has begun one already.
    ///
    /// # Errors
    /// EBUSY: another handle has begun one. EIO: the handle's earlier one was aborted, and the
    /// handle did not know it: it may believe that it still runs. Those of [`Fs::atomic_group`].
    pub(crate) fn start(&self, fs: &Fs, ctx: &Ctx, fh: Fh, file: &OpenRef) -> Result<(), FsError> {
        if self.is_told(fh) {
            return Err(FsError::Errno(libc::EIO));
        }
        if self.begun(fh, file.ino())?.is_some() {
            return Ok(());
        }
        let group = Group {
            token: RandomState::new().hash_one(fh),
            by: ctx.pid,
            uid: ctx.uid,
            since: SystemTime::now(),
            changed: Mutex::new(Instant::now()),
            open: Mutex::new(Some(fs.atomic_group(std::slice::from_ref(file))?)),
        };
        self.add(ctx, fh, file.ino(), Arc::new(group));
        Ok(())
    }

    /// Begins an atomic write in the group with this token; no effect if this handle is in it
    /// already.
    ///
    /// # Errors
    /// EINVAL: there is no such group, or the handle has begun one outside of it. EPERM: the group
    /// belongs to another program. Those of [`AtomicGroup::join`].
    pub(crate) fn join(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        fh: Fh,
        file: &OpenRef,
        token: u64,
    ) -> Result<(), FsError> {
        let none = FsError::Errno(libc::EINVAL);
        if let Some(group) = self.begun(fh, file.ino())? {
            return match group.token == token {
                true => Ok(()),
                false => Err(none),
            };
        }
        let group = self.of_token(token).ok_or(none.clone())?;
        // A program that ends must end only its own group.
        if !caller::of_one_process(ctx.pid, group.by) {
            return Err(FsError::Errno(libc::EPERM));
        }
        fs.throttle()?;
        let mut open = group.open.lock();
        open.as_mut().ok_or(none)?.join(ctx, file)?;
        group.touch();
        // The group's lock is held until the file is in the table.
        self.add(ctx, fh, file.ino(), Arc::clone(&group));
        Ok(())
    }

    fn add(&self, ctx: &Ctx, fh: Fh, ino: Ino, group: Arc<Group>) {
        let writing = Writing {
            fh,
            by: ctx.pid,
            group,
        };
        self.table(|table| {
            table.broken.remove(&fh);
            // It can replace only an ended group's entry: a file is in one group at most.
            table.files.insert(ino, Arc::new(writing));
        });
        self.news.notify_all();
    }

    fn of_token(&self, token: u64) -> Option<Arc<Group>> {
        let table = self.table.lock();
        let mut groups = table.files.values().map(|writing| &writing.group);
        groups.find(|group| group.token == token).cloned()
    }

    /// The token of the group that a handle began with this file.
    pub(crate) fn token(&self, fh: Fh, ino: Ino) -> Option<u64> {
        let group = self.begun(fh, ino).ok()??;
        Some(group.token)
    }

    /// The files that change together with this one, itself included.
    pub(crate) fn together(&self, ino: Ino) -> Vec<Ino> {
        let group = self.look(ino, |group| Ok(group.files().collect()));
        group.and_then(Result::ok).unwrap_or_else(|| vec![ino])
    }

    /// Commits the group of a handle: returns its files and the result. `None`: the handle has no
    /// group, or the group has ended.
    pub(crate) fn commit(
        &self,
        fs: &Fs,
        fh: Fh,
        ino: Ino,
    ) -> Option<(Vec<Ino>, Result<(), FsError>)> {
        if self.is_told(fh) {
            return None;
        }
        self.of_handle(fh, ino)?.group.touch();
        let room = fs.throttle();
        let commit = |group: AtomicGroup| room.and_then(|()| group.commit());
        self.end(fh, ino, Told::Yes, commit)
    }

    /// Aborts the group of a handle, without a further error: returns its files, which have their
    /// old content. `None`: there is no group.
    pub(crate) fn abort(&self, fh: Fh, ino: Ino) -> Option<Vec<Ino>> {
        match self.is_told(fh) {
            true => Some(vec![ino]),
            false => Some(self.end(fh, ino, Told::Yes, AtomicGroup::abort)?.0),
        }
    }

    /// Aborts the group of a handle; the handle gets EIO until it acknowledges, as other
    /// descriptors may still use it.
    pub(crate) fn break_off(&self, fh: Fh, ino: Ino) -> Vec<Ino> {
        let ended = self.end(fh, ino, Told::NotYet, AtomicGroup::abort);
        ended.map(|(files, ())| files).unwrap_or_default()
    }

    /// Aborts the group of a handle that is released.
    pub(crate) fn release(&self, fh: Fh, ino: Ino) -> Vec<Ino> {
        let files = self.break_off(fh, ino);
        self.is_told(fh);
        files
    }

    /// Aborts the group of a file, whichever handle began it; its handles get EIO until they
    /// acknowledge. Returns its files. `None`: the file is in no group.
    pub(crate) fn break_group(&self, ino: Ino) -> Option<Vec<Ino>> {
        let writing = self.find(ino)?;
        self.break_if(&writing.group, |_| true)
    }

    /// The same for `group`, if `is_to_end` holds.
    fn break_if(&self, group: &Arc<Group>, is_to_end: impl Fn(&Group) -> bool) -> Option<Vec<Ino>> {
        let mut open = group.open.lock();
        if !is_to_end(group) {
            return None;
        }
        open.take()?.abort();
        let (pid, idle) = (group.by, group.idle());
        tracing::warn!(
            pid,
            ?idle,
            "an atomic write was aborted by another process or by its time limit"
        );
        Some(self.forget(group, Told::NotYet))
    }

    /// Takes note that the handle learns of the abort now; returns whether there was one that it
    /// did not know of.
    fn is_told(&self, fh: Fh) -> bool {
        !self.is_empty() && self.table(|table| table.broken.remove(&fh))
    }

    /// The open groups.
    fn groups(table: &Table) -> Vec<Arc<Group>> {
        let mut groups: Vec<Arc<Group>> = Vec::new();
        for writing in table.files.values() {
            if !groups
                .iter()
                .any(|known| Arc::ptr_eq(known, &writing.group))
            {
                groups.push(Arc::clone(&writing.group));
            }
        }
        groups
    }

    /// The holders of groups. Does not wait.
    pub(crate) fn holders(&self) -> Vec<AtomicHolder> {
        let table = self.table.lock();
        let groups = AtomicFiles::groups(&table);
        let holder = |group: Arc<Group>| {
            let its = |(ino, writing): (&Ino, &Arc<Writing>)| {
                Arc::ptr_eq(&writing.group, &group).then_some(*ino)
            };
            let mut files: Vec<Ino> = table.files.iter().filter_map(its).collect();
            files.sort_unstable();
            AtomicHolder {
                pid: group.by,
                uid: group.uid,
                since: group.since,
                idle: group.idle(),
                files,
                bytes: group
                    .open
                    .try_lock()
                    .and_then(|open| Some(open.as_ref()?.bytes())),
            }
        };
        groups.into_iter().map(holder).collect()
    }

    fn end<T>(
        &self,
        fh: Fh,
        ino: Ino,
        told: Told,
        end: impl FnOnce(AtomicGroup) -> T,
    ) -> Option<(Vec<Ino>, T)> {
        let writing = self.of_handle(fh, ino)?;
        let mut group = writing.group.open.lock();
        let ended = end(group.take()?);
        Some((self.forget(&writing.group, told), ended))
    }

    /// Removes the files of an ended group from the table.
    fn forget(&self, group: &Arc<Group>, told: Told) -> Vec<Ino> {
        self.table(|table| {
            let is_its = |_: &Ino, writing: &mut Arc<Writing>| Arc::ptr_eq(&writing.group, group);
            let gone: Vec<_> = table.files.extract_if(is_its).collect();
            if told == Told::NotYet {
                let handles = gone.iter().map(|(_, writing)| writing.fh);
                table.broken.extend(handles);
            }
            gone.into_iter().map(|(ino, _)| ino).collect()
        })
    }

    /// Whether an atomic write ends when `ctx` closes a descriptor of this handle: only for the
    /// process that began it. A forked child has the descriptor, too, and closes it when it
    /// executes a program.
    pub(crate) fn ends_with(&self, ctx: &Ctx, fh: Fh, ino: Ino) -> bool {
        let writing = self.of_handle(fh, ino);
        writing.is_some_and(|writing| caller::of_one_process(ctx.pid, writing.by))
    }

    /// Aborts all groups.
    pub(crate) fn end_all(&self) {
        let over = Table {
            is_over: true,
            ..Table::default()
        };
        let all = self.table(|table| std::mem::replace(table, over));
        self.news.notify_all();
        for writing in all.files.into_values() {
            drop(writing.group.open.lock().take());
        }
    }
}
