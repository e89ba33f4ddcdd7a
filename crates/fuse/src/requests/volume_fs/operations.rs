//! The requests of a mount, answered by the volume.

use stetfs::low::{
    Attr, Ctx, Done, FallocateMode, FsError, Ino, RenameFlags, SeekWhat, SetAttr, StatFs, XattrSet,
};

use super::bits::{Bits, take_sgid};
use super::{NO_CREATE, NO_FLUSH, NO_XATTR, VolumeFs, fill, sync, visible};
use crate::api::fakeroot::Ids;
use crate::api::ops::{
    CopyArgs, Fh, FileSystem, IoctlArgs, IoctlReply, Listing, NewNode, OpenFile, Opened, ReadArgs,
    ReadDone, Request, Why, WriteArgs,
};
use crate::helper::caller;
use crate::requests::opens::Target;
use crate::requests::{atomic, ioctl};
use crate::wire::times::{Timed, Timer};

impl FileSystem for VolumeFs {
    fn ids(&self) -> Ids {
        self.ids
    }

    fn lookup(&self, ctx: &Ctx, parent: Ino, name: &[u8], done: Done<Attr>) {
        let fs = open!(self, done);
        self.readdirplus_hint.looked(ctx.pid, parent);
        done(fs.lookup(parent, name).map(|attr| self.atomic.shown(attr)));
    }

    fn holds_back(&self) -> bool {
        self.held_back.holds()
    }

    fn may_hold_back(&self) -> bool {
        self.held_back.may_hold()
    }

    fn hold_back(&self, request: Request<VolumeFs>) {
        if let Some(now) = self.held_back.request(request) {
            now(self);
        }
    }

    fn forget(&self, ino: Ino, nlookup: u64) {
        if self.held_back.forgets(ino, nlookup) {
            return;
        }
        if let Ok(fs) = self.fs() {
            fs.forget(ino, nlookup);
        }
    }

    fn getattr(&self, ctx: &Ctx, ino: Ino, why: Why, done: Done<Attr>) {
        let fs = open!(self, done);
        let attr = fs.getattr(ino).map(|attr| self.atomic.shown(attr));
        done(match why {
            Why::Looks => attr,
            Why::Unsaid => attr.and_then(|attr| self.means().judged(&fs, ctx, attr)),
        });
    }

    fn setattr(&self, ctx: &Ctx, file: OpenFile, set: &SetAttr, done: Done<Attr>) {
        let fs = open!(self, done);
        let ino = file.ino;
        // For a truncation the kernel says whether to clear the bits; for a new owner only that
        // there is one. Looking up a caller's capabilities takes longer than everything else, so it
        // comes last.
        let owned = set.uid.is_some() || set.gid.is_some();
        let kill = set.kill_suidgid && set.mode.is_none();
        let mut bits = self.bits(&fs, ctx, ino, kill);
        if bits.any && owned && caller::may_keep_sgid(ctx) {
            bits = Bits::default();
        }
        let mut set = set.clone();
        if let Some(size) = set.size
            && let Some(sized) = self.size_atomically(&fs, ctx, file, size)
        {
            if let Err(e) = sized {
                return done(Err(e));
            }
            set.size = None;
        }
        let changed = self.when_full.retry(&fs, || fs.setattr(ctx, ino, &set));
        let changed = changed.map(|attr| self.atomic.shown(attr));
        done(changed.and_then(|attr| match bits.outside {
            true => {
                bits.lose(&fs, ctx, ino)?;
                fs.getattr(ino).map(|attr| self.atomic.shown(attr))
            }
            false => Ok(attr),
        }));
    }

    fn readlink(&self, ino: Ino, done: Done<Vec<u8>>) {
        let fs = open!(self, done);
        done(fs.readlink(ino));
    }

    fn mknod(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        rdev: u64,
        done: Done<Attr>,
    ) {
        let fs = open!(self, done);
        let NewNode { mode, umask } = node;
        let made = self
            .when_full
            .retry(&fs, || fs.mknod(ctx, parent, name, mode, umask, rdev));
        done(made);
    }

    fn mkdir(&self, ctx: &Ctx, parent: Ino, name: &[u8], node: NewNode, done: Done<Attr>) {
        let fs = open!(self, done);
        let NewNode { mode, umask } = node;
        let made = self
            .when_full
            .retry(&fs, || fs.mkdir(ctx, parent, name, mode, umask));
        done(made);
    }

    fn symlink(&self, ctx: &Ctx, parent: Ino, name: &[u8], target: &[u8], done: Done<Attr>) {
        let fs = open!(self, done);
        let make = || fs.symlink(ctx, parent, name, target);
        done(self.when_full.retry(&fs, make));
    }

    fn link(&self, ctx: &Ctx, ino: Ino, parent: Ino, name: &[u8], done: Done<Attr>) {
        let fs = open!(self, done);
        let link = || fs.link(ctx, ino, parent, name);
        let linked = self.when_full.retry(&fs, link);
        done(linked.map(|attr| self.atomic.shown(attr)));
    }

    fn unlink(&self, ctx: &Ctx, parent: Ino, name: &[u8], done: Done) {
        let fs = open!(self, done);
        done(fs.unlink(ctx, parent, name));
    }

    fn rmdir(&self, ctx: &Ctx, parent: Ino, name: &[u8], done: Done) {
        let fs = open!(self, done);
        done(fs.rmdir(ctx, parent, name));
    }

    fn rename(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
        done: Done,
    ) {
        let fs = open!(self, done);
        let rename = || fs.rename(ctx, parent, name, new_parent, new_name, flags);
        done(self.when_full.retry(&fs, rename));
    }

    fn open(&self, ctx: &Ctx, ino: Ino, flags: i32, done: Done<Opened>) {
        let fs = open!(self, done);
        if self.open.are_stateless() {
            return done(Err(FsError::Errno(libc::ENOSYS)));
        }
        let file = self.means().may_open(&fs, ino, flags);
        let file = file.and_then(|()| fs.open_inode(ctx, ino, flags));
        done(file.map(|file| self.opened(&fs, file)));
    }

    fn create(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: i32,
        done: Done<(Attr, Opened)>,
    ) {
        // A file created by this request would be closed by another one. A file from MKNOD is
        // opened like any other.
        if self.open.are_stateless() {
            return done(Err(NO_CREATE));
        }
        let fs = open!(self, done);
        let NewNode { mode, umask } = node;
        let created = self
            .when_full
            .retry(&fs, || fs.create(ctx, parent, name, mode, umask, flags));
        let opened = created.map(|(attr, file)| (attr, self.opened(&fs, file)));
        done(opened);
    }

    fn tmpfile(
        &self,
        ctx: &Ctx,
        parent: Ino,
        node: NewNode,
        flags: i32,
        done: Done<(Attr, Opened)>,
    ) {
        let fs = open!(self, done);
        let NewNode { mode, umask } = node;
        let made = self
            .when_full
            .retry(&fs, || fs.tmpfile(ctx, parent, mode, umask, flags));
        done(made.map(|(attr, file)| (attr, self.opened(&fs, file))));
    }

    fn copy_range(&self, ctx: &Ctx, args: CopyArgs, done: Done<usize>) {
        let fs = open!(self, done);
        let files = self
            .open
            .find(&fs, ctx, args.from, 0)
            .and_then(|f| Ok((f, self.open.find_target(&fs, ctx, args.to)?)));
        let (from, to) = match files {
            Ok((from, Target::Known(to))) => (from, to),
            // The kernel then copies by reading and writing, and writes say whether they must be
            // durable at once.
            Ok((_, Target::Unknown)) => return done(Err(FsError::Errno(libc::EOPNOTSUPP))),
            Err(e) => return done(Err(e)),
        };
        // A part copied before an error is reported first.
        match self.copy(&fs, ctx, &args, (&from, &to)) {
            // After writes the kernel sends an fsync by itself, after this it does not.
            Ok(copied) if to.flags & libc::O_DSYNC != 0 => {
                let synced: Done = Box::new(move |synced| done(synced.map(|()| copied)));
                sync(&fs, &to, false, synced);
            }
            copied => done(copied),
        }
    }

    fn flush(&self, ctx: &Ctx, file: OpenFile, done: Done) {
        if !self.options.atomic {
            return done(Err(NO_FLUSH));
        }
        // A program that waits for the locks must not see an unfinished atomic write.
        let ended = file
            .fh
            .filter(|fh| self.atomic.ends_with(ctx, *fh, file.ino));
        match ended.zip(self.stale.get()) {
            Some((fh, stale)) => self.break_off(stale, fh, file.ino, done),
            None => done(Ok(())),
        }
    }

    fn release(&self, fh: Fh) {
        if self.held_back.closes(fh) {
            return;
        }
        // Not while the files are being reopened.
        let _open = self.volume.read();
        if let Some(held) = self.open.handles().get(fh) {
            let files = self.atomic.release(fh, held.file.ino());
            self.forget_files(&files);
            // Last: its number can be reused then.
            drop(self.open.handles().remove(fh));
        }
    }

    fn read(&self, ctx: &Ctx, file: OpenFile, args: ReadArgs, done: ReadDone) {
        let open = self.fs().and_then(|fs| {
            let file = self.open.find(&fs, ctx, file, args.flags)?;
            Ok((fs, file))
        });
        done(&mut |buf| match &open {
            Ok((fs, file)) => self.read_shown(fs, file, args.offset, buf),
            Err(e) => Err(e.clone()),
        });
    }

    fn write(&self, ctx: &Ctx, file: OpenFile, args: WriteArgs<'_>, done: Done<usize>) {
        let fs = open!(self, done);
        let (ino, open) = (file.ino, file);
        let file = match self.open.find(&fs, ctx, file, args.flags) {
            Ok(file) => file,
            Err(e) => return done(Err(e)),
        };
        if let Some(written) = self.write_atomically(&fs, ctx, open, &args) {
            return done(written);
        }
        // The kernel would still trust its cached mode bits when a program is executed.
        let bits = self.bits(&fs, ctx, ino, args.kill_suidgid);
        let owner;
        let ctx = match args.from_cache && fs.has_quota() {
            true => match fs.getattr(ino) {
                Ok(Attr { uid, gid, .. }) => {
                    owner = Ctx { uid, gid, ..*ctx };
                    &owner
                }
                Err(e) => return done(Err(e)),
            },
            false => ctx,
        };
        let written = self.write_all(&fs, ctx, &file, args.offset, args.data, args.kill_suidgid);
        let written = match written {
            Ok(n) if n > 0 => bits.lose(&fs, ctx, ino).map(|()| n),
            other => other,
        };
        // The kernel's pages of refused content must not be visible, nor those that it read beside
        // a write that bypassed them.
        if written.as_ref().is_err_and(|e| e.errno() == libc::EPERM) || self.is_past_pages(open) {
            self.forget_content(ino, args.offset, args.data.len());
        }
        if bits.any {
            self.attributes_changed(ino);
        }
        if args.from_cache {
            fs.write_back_early(&file);
        }
        let written = match args.from_cache {
            true => written.and_then(|n| fs.settle_blocks(ino).map(|()| n)),
            false => written,
        };
        let written = match !args.from_cache && args.flags & libc::O_DIRECT != 0 {
            true => written.and_then(|n| fs.write_through(&file).map(|()| n)),
            false => written,
        };
        // After writes to FOPEN_DIRECT_IO files the kernel sends no fsync by itself.
        let past_cache = self.options.maps_past_cache() || self.is_past_pages(open);
        let must_sync = past_cache && args.flags & libc::O_DSYNC != 0;
        match written {
            Ok(n) if must_sync => {
                let datasync = args.flags & libc::O_SYNC != libc::O_SYNC;
                let timer = Timer::start(Timed::Sync);
                let synced: Done = Box::new(move |synced| {
                    drop(timer);
                    done(synced.map(|()| n));
                });
                sync(&fs, &file, datasync, synced);
            }
            other => done(other),
        }
    }

    fn fsync(&self, ctx: &Ctx, file: OpenFile, datasync: bool, done: Done) {
        let fs = open!(self, done);
        match self.open.find(&fs, ctx, file, 0) {
            Ok(file) => sync(&fs, &file, datasync, done),
            Err(e) => done(Err(e)),
        }
    }

    fn fallocate(
        &self,
        ctx: &Ctx,
        file: OpenFile,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        done: Done,
    ) {
        let fs = open!(self, done);
        let target = self.open.find_target(&fs, ctx, file);
        let target = target.and_then(|target| match target {
            Target::Known(file) => Ok(file),
            Target::Unknown => self.open.find(&fs, ctx, file, libc::O_DSYNC),
        });
        let changed = target.and_then(|target| {
            let what = (mode, offset, len);
            if let Some(changed) = self.fallocate_atomically(&fs, ctx, file, what) {
                return changed;
            }
            // The kernel does not say whether to clear the bits, as it does for writes.
            self.strip(&fs, ctx, target.ino(), ctx.uid != 0)?;
            self.when_full
                .retry(&fs, || fs.fallocate(ctx, &target, mode, offset, len))
        });
        done(changed);
    }

    fn seek(&self, ctx: &Ctx, file: OpenFile, offset: u64, what: SeekWhat, done: Done<u64>) {
        let fs = open!(self, done);
        let file = self.open.find(&fs, ctx, file, 0);
        done(file.and_then(|file| self.seek_shown(&fs, &file, offset, what)));
    }

    fn bmap(&self, ino: Ino, index: u64, unit: u32, done: Done<u64>) {
        let fs = open!(self, done);
        done(fs.bmap(ino, index, unit));
    }

    fn opendir(&self, ctx: &Ctx, ino: Ino, flags: i32, done: Done<Opened>) {
        self.open(ctx, ino, flags, done);
    }

    fn readdir(
        &self,
        ctx: &Ctx,
        dir: OpenFile,
        cookie: u64,
        attrs: bool,
        mut list: Box<dyn Listing>,
    ) {
        let filled = self.fs().and_then(|fs| {
            let looks = self.readdirplus_hint.look(ctx.pid, dir.ino, cookie);
            let dir = self.open.find(&fs, ctx, dir, 0)?;
            let attrs = attrs && looks && self.atomic.is_empty();
            let names = fill(&fs, &dir, cookie, attrs, list.as_mut())?;
            if cookie != 0 || !attrs {
                self.readdirplus_hint.listed(ctx.pid, names, attrs);
            }
            Ok(())
        });
        list.finish(filled);
    }

    fn statfs(&self, done: Done<StatFs>) {
        let fs = open!(self, done);
        done(Ok(self.when_full.statfs(&fs)));
    }

    fn sync_fs(&self, done: Done) {
        let fs = open!(self, done);
        fs.sync_all(done);
    }

    fn shutdown(&self) {
        // After the close a thaw is impossible, and no other thread freezes in this turn.
        let turn = self.held_back.turn();
        if self.frozen().is_some()
            && let Err(e) = self.thaw_in(&turn)
        {
            tracing::error!("cannot thaw: {e}");
        }
        let mut open = self.volume.write();
        let Some(volume) = open.take() else { return };
        // The kernel sends no release for them when a connection is aborted.
        drop(self.open.handles().drain());
        self.atomic.end_all();
        if let Err(e) = volume.close() {
            *self.failed.lock() = Some(e);
        }
    }

    fn setxattr(
        &self,
        ctx: &Ctx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
        kill_sgid: bool,
        done: Done,
    ) {
        if self.options.noxattr {
            return done(Err(NO_XATTR));
        }
        let fs = open!(self, done);
        let mut set = self
            .when_full
            .retry(&fs, || fs.setxattr(ctx, ino, name, value, how));
        if set.is_ok() && name == b"system.posix_acl_access" {
            if kill_sgid {
                set = take_sgid(&fs, ctx, ino);
            }
            // An access ACL includes mode bits.
            self.attributes_changed(ino);
        }
        done(set);
    }

    fn getxattr(&self, ino: Ino, name: &[u8], done: Done<Vec<u8>>) {
        if self.options.noxattr {
            return done(Err(NO_XATTR));
        }
        let fs = open!(self, done);
        done(fs.getxattr(ino, name));
    }

    fn listxattr(&self, ctx: &Ctx, ino: Ino, done: Done<Vec<u8>>) {
        if self.options.noxattr {
            return done(Err(NO_XATTR));
        }
        let fs = open!(self, done);
        done(fs.listxattr(ino).map(|all| visible(ctx, all)));
    }

    fn removexattr(&self, ctx: &Ctx, ino: Ino, name: &[u8], done: Done) {
        if self.options.noxattr {
            return done(Err(NO_XATTR));
        }
        let fs = open!(self, done);
        done(fs.removexattr(ctx, ino, name));
    }

    fn ioctl(&self, ctx: &Ctx, file: OpenFile, args: IoctlArgs<'_>, done: Done<IoctlReply>) {
        // Aborted content must not be visible any more.
        let drops_pages = ioctl::guards(&args) || matches!(args.cmd, atomic::ABORT | atomic::BREAK);
        match self.stale.get().filter(|_| drops_pages) {
            Some(stale) => self.guard(stale, *ctx, file, args, done),
            None => self.ioctl_now(ctx, file, args, done),
        }
    }
}
