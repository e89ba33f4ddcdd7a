//! Atomic writes by the ioctls of F2FS, which SQLite uses: a file that a handle began an atomic
//! write on is in a group (decisions/0032), and what is written to it by that handle is part of it,
//! until the handle commits, aborts or is closed. Further files of the same program join the group,
//! by a token that one of its handles is told; what ends it by one handle ends it for all.
//!
//! The kernel's pages of a file are everybody's: whoever reads the file on the mount sees what the
//! handle wrote. So all requests are answered as the group has the file, and after an abort the
//! kernel is told to drop its pages.
//!
//! A program that dies has its locks taken by others as soon as the kernel has closed its
//! descriptors. The request FLUSH comes before that and is waited for, so it is what aborts;
//! RELEASE comes later. Both are sent on mounts with the option `atomic` alone. What a handle that
//! is still open goes on to write is not to stand alone: it is refused until the handle says
//! COMMIT, ABORT or START.

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

use crate::caller;
use crate::ops::{Fh, OpenFile};

/// Files that change all at once, while they do.
struct Group {
    /// Nobody can guess it.
    token: u64,
    /// A thread of the process that began it, and its user as the mount knows it.
    by: u32,
    uid: u32,
    since: SystemTime,
    /// When it was begun, joined or changed last. No other lock is taken with it held.
    changed: Mutex<Instant>,
    /// `None` when it has ended. Held until a commit is done: until then nobody is told what a file
    /// was, which the kernel would keep. It holds off whoever reads the files, so who takes it to
    /// change something has waited before (`Fs::throttle`), for room and for the thaw of a frozen
    /// volume. No freeze comes behind that: it waits for all requests (`VolumeFs::volume`).
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

/// The holder of a group of files.
#[derive(Clone, Debug)]
pub struct AtomicHolder {
    /// The thread that began it.
    pub pid: u32,
    /// Its user, as the mount knows it.
    pub uid: u32,
    /// When it began.
    pub since: SystemTime,
    /// How long nothing was changed.
    pub idle: Duration,
    /// The files' inode numbers, ascending.
    pub files: Vec<Ino>,
    /// Bytes that were written; `None` while something is done with it.
    pub bytes: Option<u64>,
}

/// A file that is written atomically.
struct Writing {
    /// Who began it: handle and thread.
    fh: Fh,
    by: u32,
    group: Arc<Group>,
}

/// Who changes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Who has this handle; without one, whoever names the file.
    Handle(Option<Fh>),
    /// The kernel, which writes home what was stored through a mapping, and does not say whose.
    Mapping,
}

impl By {
    /// Who asks with `file`.
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

/// Whether handles know that what they wrote has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Yes,
    NotYet,
}

#[derive(Default)]
struct Table {
    files: HashMap<Ino, Arc<Writing>>,
    /// Handles whose atomic write was aborted without their asking, and that were not told.
    broken: HashSet<Fh>,
    /// There is no mount any more.
    is_over: bool,
}

/// The files that are written atomically now, each by one handle.
///
/// The lock of a group may be held while `table` is taken, not the other way round.
#[derive(Default)]
pub(crate) struct AtomicFiles {
    table: Mutex<Table>,
    /// How many it has: most mounts have none, ever.
    count: AtomicUsize,
    /// A group has begun, or it is over.
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

    /// Whether there is none.
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

    /// What the group of a file says of it; `None` when it is in none.
    pub(crate) fn look<T>(
        &self,
        ino: Ino,
        look: impl FnOnce(&AtomicGroup) -> Result<T, FsError>,
    ) -> Option<Result<T, FsError>> {
        let writing = self.find(ino)?;
        let group = writing.group.open.lock();
        group.as_ref().map(look)
    }

    /// Changes content or size of a file as a part of its group, if who began does; `None` when it
    /// is in none.
    ///
    /// # Errors
    /// EBUSY: another does. EIO: the group of this handle was aborted, and it was not told. As
    /// [`Fs::throttle`].
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
        // Looked up last: a close may have come between.
        self.is_broken(by).then_some(Err(FsError::Errno(libc::EIO)))
    }

    /// The attributes of a file as the kernel is to know them.
    pub(crate) fn shown(&self, mut attr: Attr) -> Attr {
        if let Some(Ok(size)) = self.look(attr.ino, |group| group.size(attr.ino)) {
            attr.size = size;
        }
        attr
    }

    /// The group of a file, if it is in one that this handle began.
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

    /// Begins: nothing, if this handle did before.
    ///
    /// # Errors
    /// EBUSY: another handle did. EIO: what it began before was aborted, and it was not told: it
    /// may believe that this is still the same. As [`Fs::atomic_group`].
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

    /// Begins as a part of the group that has this token; nothing, if this handle did before.
    ///
    /// # Errors
    /// EINVAL: there is no such group, or the handle has begun without it. EPERM: it is another
    /// program's. As [`AtomicGroup::join`].
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
        // A program that ends takes its group with it, and nobody else's.
        if !caller::of_one_process(ctx.pid, group.by) {
            return Err(FsError::Errno(libc::EPERM));
        }
        fs.throttle()?;
        let mut open = group.open.lock();
        open.as_mut().ok_or(none)?.join(ctx, file)?;
        group.touch();
        // The group is open until its file is known.
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
            // One that has ended is in its place at most: the file is in one group.
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

    /// The files that change with this one, itself among them.
    pub(crate) fn together(&self, ino: Ino) -> Vec<Ino> {
        let group = self.look(ino, |group| Ok(group.files().collect()));
        group.and_then(Result::ok).unwrap_or_else(|| vec![ino])
    }

    /// Commits what a handle wrote: gives the files that changed, and how it went. `None`: it began
    /// nothing, or that has ended.
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

    /// Ends the atomic write of a handle without a trace: gives the files that are as they were.
    /// `None`: there is nothing to end.
    pub(crate) fn abort(&self, fh: Fh, ino: Ino) -> Option<Vec<Ino>> {
        match self.is_told(fh) {
            true => Some(vec![ino]),
            false => Some(self.end(fh, ino, Told::Yes, AtomicGroup::abort)?.0),
        }
    }

    /// The same, until the handle says that it has understood: it may be open by other descriptors.
    pub(crate) fn break_off(&self, fh: Fh, ino: Ino) -> Vec<Ino> {
        let ended = self.end(fh, ino, Told::NotYet, AtomicGroup::abort);
        ended.map(|(files, ())| files).unwrap_or_default()
    }

    /// The same when nobody has the handle any more.
    pub(crate) fn release(&self, fh: Fh, ino: Ino) -> Vec<Ino> {
        let files = self.break_off(fh, ino);
        self.is_told(fh);
        files
    }

    /// Ends the group of a file, whoever began it, until its handles say that they have understood:
    /// gives the files that are as they were. `None`: the file is in none.
    pub(crate) fn break_group(&self, ino: Ino) -> Option<Vec<Ino>> {
        let writing = self.find(ino)?;
        self.break_if(&writing.group, |_| true)
    }

    /// The same, if it is as it is to be.
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
            "an atomic write is aborted by others, or by time"
        );
        Some(self.forget(group, Told::NotYet))
    }

    /// Tells a handle whose group was aborted without its asking, if that is so.
    fn is_told(&self, fh: Fh) -> bool {
        !self.is_empty() && self.table(|table| table.broken.remove(&fh))
    }

    /// The groups that are open.
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

    /// Who has which files. Nobody is waited for.
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

    /// Takes out the files of a group that has ended.
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

    /// Whether an atomic write ends when `ctx` closes a descriptor of this handle: who began does.
    /// A child that was forked has the descriptor, too, and closes it when it runs a program.
    pub(crate) fn ends_with(&self, ctx: &Ctx, fh: Fh, ino: Ino) -> bool {
        let writing = self.of_handle(fh, ino);
        writing.is_some_and(|writing| caller::of_one_process(ctx.pid, writing.by))
    }

    /// Aborts all of them.
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
