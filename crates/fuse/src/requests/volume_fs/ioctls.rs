//! Ioctls of a volume's files, and the kernel pages that they make stale.

use std::sync::mpsc;

use stetfs::low::{Ctx, Done, Fs, FsError};

use super::{CLOSED, VolumeFs};
use crate::api::ops::{IoctlArgs, IoctlReply, OpenFile};
use crate::requests::atomic::{self, Verb};
use crate::requests::ioctl;
use crate::requests::stale::Stale;
use crate::wire::ioctl::SHUTDOWN;

/// Minimum size of a kernel page in bytes.
const PAGE: usize = 4096;

impl VolumeFs {
    /// Runs an ioctl that guards a file, or aborts a group. Content stored through mappings so far
    /// is written back before, as in the kernel's ext4, and later stores are not visible.
    pub(super) fn guard(
        &self,
        stale: &Stale,
        ctx: Ctx,
        file: OpenFile,
        args: IoctlArgs<'_>,
        done: Done<IoctlReply>,
    ) {
        let (this, input) = (self.this.clone(), args.input.to_owned());
        let (cmd, out_size, arg) = (args.cmd, args.out_size, args.arg);
        stale.run(Box::new(move |kernel| {
            let Some(this) = this.upgrade() else {
                return done(Err(CLOSED));
            };
            let files = this.atomic.together(file.ino);
            // No lock is held: the kernel may wait for writes.
            files.iter().for_each(|ino| kernel.content(*ino, 0, 0));
            let (answer, answered) = mpsc::sync_channel(1);
            let args = IoctlArgs {
                cmd,
                input: &input,
                out_size,
                arg,
            };
            this.ioctl_now(
                &ctx,
                file,
                args,
                Box::new(move |result| drop(answer.send(result))),
            );
            let result = answered.recv().unwrap_or(Err(CLOSED));
            files.iter().for_each(|ino| kernel.content(*ino, 0, 0));
            done(result);
        }));
    }

    /// The largest write in bytes over existing content that is normally whole or absent after any
    /// crash; 0 if there is none. FusionIO's ioctl tells it for one file.
    pub fn whole_write(&self) -> usize {
        let Ok(fs) = self.fs() else { return 0 };
        let is_whole = |bytes| fs.usually_writes_whole(bytes).unwrap_or(false);
        let most = match self.options.direct_io {
            true => atomic::WHOLE_BYTES,
            // The kernel may split a call at its pages.
            false => PAGE,
        };
        if is_whole(most) { most } else { 0 }
    }

    /// Answers FusionIO's query. A call is one request only if there are no kernel pages to split
    /// it at.
    fn say_writes_whole(&self, fs: &Fs, file: OpenFile) -> Result<IoctlReply, FsError> {
        let open = file.fh.filter(|_| self.options.direct_io);
        let held = open.and_then(|fh| self.open.handles().get(fh));
        match held.is_some_and(|held| fs.writes_whole(&held.file, atomic::WHOLE_BYTES)) {
            true => Ok(ioctl::nothing()),
            false => Err(FsError::Errno(libc::ENOTTY)),
        }
    }

    pub(super) fn ioctl_now(
        &self,
        ctx: &Ctx,
        file: OpenFile,
        args: IoctlArgs<'_>,
        done: Done<IoctlReply>,
    ) {
        let fs = open!(self, done);
        let ino = file.ino;
        if let Some(verb) = Verb::of(&args) {
            return done(self.atomic_ioctl(&fs, ctx, file, verb, args.out_size));
        }
        if args.cmd == atomic::WRITES_WHOLE {
            return done(self.say_writes_whole(&fs, file));
        }
        let done = match args.cmd == SHUTDOWN && self.open.are_stateless() {
            true => self.asks_again(&fs, done),
            false => done,
        };
        let mut ctx = *ctx;
        if self.options.idmap && ctx.uid != 0 {
            // A kernel that maps ids has checked that the caller owns the inode, if that matters.
            ctx.uid = Ctx::OWNER;
        }
        let changed = || self.attributes_changed(ino);
        ioctl::run(&fs, &ctx, ino, args, changed, || self.renamed(), done);
    }
}
