//! Atomic writes of a volume's files: their requests, and dropping the kernel's pages at the end.

use std::sync::Weak;

use stetfs::low::{Ctx, Done, FallocateMode, Fs, FsError, Ino, OpenRef, SeekWhat, SetAttr};

use super::{CAPABILITY, VolumeFs};
use crate::api::ops::{Fh, IoctlReply, OpenFile, WriteArgs};
use crate::helper::caller;
use crate::requests::atomic::{self, AtomicHolder, By, Verb, Watcher};
use crate::requests::ioctl;
use crate::requests::stale::Stale;

impl VolumeFs {
    /// Reads a file with the content that programs see on this mount.
    pub(super) fn read_shown(
        &self,
        fs: &Fs,
        file: &OpenRef,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, FsError> {
        let ino = file.ino();
        let read = self.atomic.look(ino, |group| group.read(ino, offset, buf));
        read.unwrap_or_else(|| fs.read(file, offset, buf))
    }

    /// Finds data or a hole in the file as programs see it on this mount.
    pub(super) fn seek_shown(
        &self,
        fs: &Fs,
        file: &OpenRef,
        offset: u64,
        what: SeekWhat,
    ) -> Result<u64, FsError> {
        let ino = file.ino();
        let found = self.atomic.look(ino, |group| group.seek(ino, offset, what));
        found.unwrap_or_else(|| fs.seek(file, offset, what))
    }

    /// Writes to a file that is written atomically; `None` for another file.
    pub(super) fn write_atomically(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        file: OpenFile,
        args: &WriteArgs<'_>,
    ) -> Option<Result<usize, FsError>> {
        let ino = file.ino;
        let by = match args.from_cache {
            true => By::Mapping,
            false => By::holder(file),
        };
        let what = (args.offset, args.data);
        let written = self.add_atomically(fs, ctx, (ino, by), what, args.kill_suidgid);
        if let Some(Err(_)) = written {
            self.forget_content(ino, args.offset, args.data.len());
        }
        written
    }

    /// Writes bytes at an offset of a file that is written atomically; `None` for another file.
    pub(super) fn add_atomically(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        (ino, by): (Ino, By),
        (offset, data): (u64, &[u8]),
        kill: bool,
    ) -> Option<Result<usize, FsError>> {
        self.atomic.change(fs, ino, by, |group| {
            self.strip(fs, ctx, ino, kill)?;
            group.write(ctx, ino, offset, data)
        })
    }

    /// Runs fallocate(2) on a file that is written atomically; `None` for another file.
    pub(super) fn fallocate_atomically(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        file: OpenFile,
        (mode, offset, len): (FallocateMode, u64, u64),
    ) -> Option<Result<(), FsError>> {
        let ino = file.ino;
        self.atomic.change(fs, ino, By::holder(file), |group| {
            self.strip(fs, ctx, ino, ctx.uid != 0)?;
            group.fallocate(ctx, ino, mode, offset, len)
        })
    }

    /// Sets the size of a file that is written atomically; `None` for another file.
    pub(super) fn size_atomically(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        file: OpenFile,
        size: u64,
    ) -> Option<Result<(), FsError>> {
        let sized = |group: &mut stetfs::low::AtomicGroup| group.set_size(ctx, file.ino, size);
        self.atomic.change(fs, file.ino, By::holder(file), sized)
    }

    /// Removes set-user-id, set-group-id and the capabilities of a program whose content is about
    /// to change, if `kill`. It takes effect at once: attributes are not part of the group.
    pub(super) fn strip(&self, fs: &Fs, ctx: &Ctx, ino: Ino, kill: bool) -> Result<(), FsError> {
        let bits = self.bits(fs, ctx, ino, kill);
        if bits.any || kill && fs.getxattr(ino, CAPABILITY).is_ok() {
            let set = SetAttr {
                kill_suidgid: true,
                ..Default::default()
            };
            fs.setattr(ctx, ino, &set)?;
            bits.lose(fs, ctx, ino)?;
            self.attributes_changed(ino);
        }
        self.lose_capabilities(fs, ino)
    }

    /// Runs an ioctl for atomic writes.
    pub(super) fn atomic_ioctl(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        file: OpenFile,
        verb: Verb,
        out_size: u32,
    ) -> Result<IoctlReply, FsError> {
        let held = file.fh.filter(|_| self.options.atomic);
        let held = held.and_then(|fh| Some((fh, self.open.handles().get(fh)?.file)));
        let ino = file.ino;
        let nothing = || FsError::Errno(libc::EINVAL);
        match (verb, held) {
            (Verb::Features, held) => {
                let can = held.is_some_and(|(_, file)| fs.can_be_atomic(&file));
                Ok(ioctl::number(
                    u32::from(can) * atomic::ATOMIC_WRITE,
                    out_size,
                ))
            }
            // Allowed by any descriptor.
            (Verb::Break, _) if self.options.atomic => {
                self.may_break(fs, ctx, ino)?;
                let files = self.atomic.break_group(ino).ok_or_else(nothing)?;
                self.forget_files(&files);
                Ok(ioctl::nothing())
            }
            (Verb::Break, _) | (_, None) => Err(FsError::Errno(libc::EOPNOTSUPP)),
            (Verb::Start, Some((fh, file))) => {
                let started = self.atomic.start(fs, ctx, fh, &file);
                started.map(|()| ioctl::nothing())
            }
            (Verb::Join(token), Some((fh, file))) => {
                let joined = self.atomic.join(fs, ctx, fh, &file, token);
                joined.map(|()| ioctl::nothing())
            }
            (Verb::Group, Some((fh, _))) => {
                let token = self.atomic.token(fh, ino).ok_or_else(nothing)?;
                Ok(ioctl::out(token.to_ne_bytes().to_vec()))
            }
            (Verb::Commit, Some((fh, _))) => {
                let (files, done) = self.atomic.commit(fs, fh, ino).ok_or_else(nothing)?;
                match done.is_err() {
                    true => self.forget_files(&files),
                    false => files.iter().for_each(|ino| self.attributes_changed(*ino)),
                }
                done.map(|()| ioctl::nothing())
            }
            (Verb::Abort, Some((fh, _))) => {
                let files = self.atomic.abort(fh, ino).ok_or_else(nothing)?;
                self.forget_files(&files);
                Ok(ioctl::nothing())
            }
        }
    }

    /// Checks that the caller may end another program's atomic write: it is the file's owner, root,
    /// or may act as the owner.
    ///
    /// # Errors
    /// EPERM. Those of [`Fs::getattr`].
    fn may_break(&self, fs: &Fs, ctx: &Ctx, ino: Ino) -> Result<(), FsError> {
        // On a mount that maps ids a caller's ids are unrelated to the volume's.
        let is_owner = !self.options.idmap && ctx.uid == fs.getattr(ino)?.uid;
        match is_owner || ctx.uid == 0 || caller::acts_as_owner(ctx) {
            true => Ok(()),
            false => Err(FsError::Errno(libc::EPERM)),
        }
    }

    /// The holders of groups.
    pub fn atomic_holders(&self) -> Vec<AtomicHolder> {
        self.atomic.holders()
    }

    /// Drops the kernel's pages of these files.
    pub(super) fn forget_files(&self, files: &[Ino]) {
        for ino in files {
            self.forget_content(*ino, 0, i64::MAX as usize);
            self.attributes_changed(*ino);
        }
    }

    /// Aborts an atomic write whose descriptor is closed by the process that began it. `done` is
    /// called when the kernel has dropped its pages.
    pub(super) fn break_off(&self, stale: &Stale, fh: Fh, ino: Ino, done: Done) {
        let this = self.this.clone();
        stale.run(Box::new(move |kernel| {
            let files = match this.upgrade() {
                Some(this) => this.atomic.break_off(fh, ino),
                None => Vec::new(),
            };
            // No lock is held: the kernel may wait for reads.
            for ino in files {
                kernel.content(ino, 0, 0);
            }
            done(Ok(()));
        }));
    }
}

/// A mount whose groups have a time limit.
impl Watcher for Weak<VolumeFs> {
    fn is_due(&self) -> bool {
        // A program that waits for the thaw cannot change anything.
        self.upgrade().is_none_or(|this| this.frozen().is_none())
    }

    fn ended(&self, files: &[Ino]) {
        if let Some(this) = self.upgrade() {
            this.forget_files(files);
        }
    }
}
