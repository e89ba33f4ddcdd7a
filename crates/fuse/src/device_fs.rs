//! A block device as the one file `disk` of a mount: what a loop device, or a `stetfs mount`, can be put on. The file
//! `stats` tells what the device has done.

use std::fmt::Write as _;
use std::sync::Arc;

use stetfs::{
    Attr, BlockDevice, BlockWrite, Ctx, DirEntry, Done, FallocateMode, FileType, FsError, Ino,
    ROOT_INO, RenameFlags, SeekWhat, SetAttr, StatFs, Timestamp, XattrSet,
};

use crate::ops::{
    CopyArgs, Fh, FileSystem, IoctlArgs, IoctlReply, Listing, Opened, ReadDone, WriteArgs,
};

/// The device's inode, and its name.
const DISK: (Ino, &[u8]) = (12, b"disk");
/// The counters' inode, and their name.
const STATS: (Ino, &[u8]) = (13, b"stats");

/// A device as a file system of one file.
pub struct DeviceFs<D> {
    device: Arc<D>,
}

fn refused<T>(done: Done<T>) {
    done(Err(FsError::Errno(libc::EPERM)));
}

impl<D: BlockDevice> DeviceFs<D> {
    /// Shows this device.
    pub fn new(device: Arc<D>) -> DeviceFs<D> {
        DeviceFs { device }
    }

    /// The counters, a line each.
    fn stats(&self) -> String {
        let s = self.device.stats();
        let mut text = String::new();
        for (name, value) in [
            ("reads", s.reads),
            ("bytes_read", s.bytes_read),
            ("writes", s.writes),
            ("bytes_written", s.bytes_written),
            ("flushes", s.flushes),
            ("discards", s.discards),
            ("bytes_discarded", s.bytes_discarded),
        ] {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name} {value}");
        }
        text
    }

    fn attr(&self, ino: Ino) -> Attr {
        let zero = Timestamp::default();
        let dir = ino == ROOT_INO;
        Attr {
            ino,
            generation: 0,
            kind: if dir {
                FileType::Directory
            } else {
                FileType::Regular
            },
            mode: match ino {
                ROOT_INO => libc::S_IFDIR | 0o700,
                ino if ino == STATS.0 => libc::S_IFREG | 0o400,
                _ => libc::S_IFREG | 0o600,
            },
            uid: 0,
            gid: 0,
            nlink: if dir { 2 } else { 1 },
            size: match ino {
                ROOT_INO => 0,
                ino if ino == STATS.0 => self.stats().len() as u64,
                _ => self.device.size(),
            },
            blocks: 0,
            rdev: 0,
            blksize: 4096,
            atime: zero,
            mtime: zero,
            ctime: zero,
            crtime: zero,
            flags: 0,
        }
    }

    fn opened(&self, ino: Ino) -> Opened {
        Opened {
            fh: Fh(u64::from(ino)),
            // Nobody may remember what the counters were.
            direct_io: ino == STATS.0,
        }
    }
}

impl<D: BlockDevice + 'static> FileSystem for DeviceFs<D> {
    fn lookup(&self, _: &Ctx, parent: Ino, name: &[u8], done: Done<Attr>) {
        let found = [DISK, STATS].into_iter().find(|(_, n)| *n == name);
        done(match found {
            Some((ino, _)) if parent == ROOT_INO => Ok(self.attr(ino)),
            _ => Err(FsError::Errno(libc::ENOENT)),
        });
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn getattr(&self, ino: Ino, done: Done<Attr>) {
        done(Ok(self.attr(ino)));
    }

    fn setattr(&self, _: &Ctx, ino: Ino, set: &SetAttr, done: Done<Attr>) {
        match set.size {
            Some(size) if ino != DISK.0 || size != self.device.size() => refused(done),
            _ => done(Ok(self.attr(ino))),
        }
    }

    fn readlink(&self, _: Ino, done: Done<Vec<u8>>) {
        refused(done);
    }

    fn mknod(&self, _: &Ctx, _: Ino, _: &[u8], _: u32, _: u32, _: u64, done: Done<Attr>) {
        refused(done);
    }

    fn mkdir(&self, _: &Ctx, _: Ino, _: &[u8], _: u32, _: u32, done: Done<Attr>) {
        refused(done);
    }

    fn symlink(&self, _: &Ctx, _: Ino, _: &[u8], _: &[u8], done: Done<Attr>) {
        refused(done);
    }

    fn link(&self, _: &Ctx, _: Ino, _: Ino, _: &[u8], done: Done<Attr>) {
        refused(done);
    }

    fn unlink(&self, _: &Ctx, _: Ino, _: &[u8], done: Done) {
        refused(done);
    }

    fn rmdir(&self, _: &Ctx, _: Ino, _: &[u8], done: Done) {
        refused(done);
    }

    fn rename(&self, _: &Ctx, _: Ino, _: &[u8], _: Ino, _: &[u8], _: RenameFlags, done: Done) {
        refused(done);
    }

    fn open(&self, _: &Ctx, ino: Ino, _: i32, done: Done<Opened>) {
        done(Ok(self.opened(ino)));
    }

    fn create(
        &self,
        _: &Ctx,
        _: Ino,
        _: &[u8],
        _: u32,
        _: u32,
        _: i32,
        done: Done<(Attr, Opened)>,
    ) {
        refused(done);
    }

    fn tmpfile(&self, _: &Ctx, _: Ino, _: u32, _: u32, _: i32, done: Done<(Attr, Opened)>) {
        refused(done);
    }

    fn copy_range(&self, _: &Ctx, _: CopyArgs, done: Done<usize>) {
        done(Err(FsError::Errno(libc::EOPNOTSUPP)));
    }

    fn release(&self, _: Fh) {}

    fn read(&self, fh: Fh, offset: u64, done: ReadDone) {
        if fh.0 == u64::from(STATS.0) {
            let text = self.stats();
            let rest = text.as_bytes().get(offset as usize..).unwrap_or_default();
            return done(&mut |buf| {
                buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                Ok(rest.len().min(buf.len()))
            });
        }
        let left = self.device.size().saturating_sub(offset);
        done(&mut |buf| {
            let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let part = buf.get_mut(..len).unwrap_or_default();
            match self.device.read(offset, part) {
                Ok(()) => Ok(len),
                Err(_) => Err(FsError::Errno(libc::EIO)),
            }
        });
    }

    fn write(&self, _: &Ctx, ino: Ino, _: Fh, args: WriteArgs<'_>, done: Done<usize>) {
        if ino != DISK.0 {
            return refused(done);
        }
        let mut write = BlockWrite::new(args.offset, args.data);
        write.fua = args.flags & libc::O_DSYNC != 0;
        done(match self.device.write_batch(&[write]) {
            Ok(()) => Ok(args.data.len()),
            Err(_) => Err(FsError::Errno(libc::EIO)),
        });
    }

    fn fsync(&self, _: Fh, _: bool, done: Done) {
        done(self.device.flush().map_err(|_| FsError::Errno(libc::EIO)));
    }

    fn fallocate(&self, _: &Ctx, _: Fh, mode: FallocateMode, offset: u64, len: u64, done: Done) {
        done(match mode {
            FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => self
                .device
                .discard(offset..offset.saturating_add(len))
                .map_err(|_| FsError::Errno(libc::EIO)),
            FallocateMode::Allocate { .. } => Ok(()),
        });
    }

    fn seek(&self, _: Fh, _: u64, _: SeekWhat, done: Done<u64>) {
        refused(done);
    }

    fn opendir(&self, _: &Ctx, ino: Ino, _: i32, done: Done<Opened>) {
        done(Ok(self.opened(ino)));
    }

    fn readdir(&self, _: Fh, cookie: u64, attrs: bool, mut list: Box<dyn Listing>) {
        for ((ino, name), next) in [DISK, STATS].into_iter().zip(1..) {
            let entry = DirEntry {
                ino,
                kind: Some(FileType::Regular),
                name: name.to_vec(),
                next,
            };
            let attr = self.attr(ino);
            if next > cookie && !list.add(&entry, entry.kind, attrs.then_some(&attr)) {
                break;
            }
        }
        list.finish(Ok(()));
    }

    fn statfs(&self, done: Done<StatFs>) {
        done(Ok(StatFs {
            block_size: 4096,
            blocks: self.device.size() / 4096,
            bfree: 0,
            bavail: 0,
            files: 3,
            ffree: 0,
            namelen: 255,
            fsid: 0,
        }));
    }

    fn sync_fs(&self, done: Done) {
        done(Ok(()));
    }

    fn shutdown(&self) {}

    fn setxattr(&self, _: &Ctx, _: Ino, _: &[u8], _: &[u8], _: XattrSet, _: bool, done: Done) {
        refused(done);
    }

    fn getxattr(&self, _: Ino, _: &[u8], done: Done<Vec<u8>>) {
        done(Err(FsError::Errno(libc::ENODATA)));
    }

    fn listxattr(&self, _: &Ctx, _: Ino, done: Done<Vec<u8>>) {
        done(Ok(Vec::new()));
    }

    fn removexattr(&self, _: &Ctx, _: Ino, _: &[u8], done: Done) {
        refused(done);
    }

    fn ioctl(&self, _: &Ctx, _: Ino, _: Fh, _: IoctlArgs<'_>, done: Done<IoctlReply>) {
        done(Err(FsError::Errno(libc::ENOTTY)));
    }
}
