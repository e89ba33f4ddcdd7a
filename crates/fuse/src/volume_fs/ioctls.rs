//! Ioctls of a volume's files: which of them does what, and what the kernel forgets for it.

use std::sync::mpsc;

use stetfs::low::{Ctx, Done, Fs, FsError};

use super::{CLOSED, VolumeFs};
use crate::atomic::{self, Verb};
use crate::ioctl;
use crate::ops::{IoctlArgs, IoctlReply, OpenFile};
use crate::stale::Stale;

/// A page of the kernel's, at least, bytes.
const PAGE: usize = 4096;

impl VolumeFs {
    /// An ioctl that guards a file, or aborts a group. What was stored through mappings until now
    /// is written home before, as the kernel's ext4 does it, and nobody sees what is stored later.
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

    /// The largest write to what a file has that is whole or absent after any crash, as a rule,
    /// bytes; 0 where one of a sector may be lost in part of a block. FusionIO's ioctl tells it of
    /// one file.
    pub fn whole_write(&self) -> usize {
        let Ok(fs) = self.fs() else { return 0 };
        let is_whole = |bytes| fs.usually_writes_whole(bytes).unwrap_or(false);
        let most = match self.options.direct_io {
            true => atomic::WHOLE_BYTES,
            // The kernel may cut a call at its pages.
            false => PAGE,
        };
        if is_whole(most) { most } else { 0 }
    }

    /// FusionIO's question. A call is one request only where the kernel has no pages to cut it at.
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
        let done = match args.cmd == ioctl::SHUTDOWN && self.open.are_stateless() {
            true => self.asks_again(&fs, done),
            false => done,
        };
        let mut ctx = *ctx;
        if self.options.idmap && ctx.uid != 0 {
            // A kernel that maps ids has asked whether he owns the inode, where that matters.
            ctx.uid = Ctx::OWNER;
        }
        let changed = || self.attributes_changed(ino);
        ioctl::run(&fs, &ctx, ino, args, changed, || self.renamed(), done);
    }
}
