//! A block device as the one file `disk` of a FUSE mount: what a loop device, or a `stetfs mount`, can
//! be put on, with every write and flush passing through a recorder.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use stetfs::{
    Attr, BlockDevice, Ctx, DirEntry, Done, FallocateMode, FileType, FsError, Ino, MemDevice,
    ROOT_INO, RenameFlags, SeekWhat, SetAttr, StatFs, Timestamp, XattrSet,
};
use stetfs_block::{Recorder, Write};
use stetfs_fuse::{
    CopyArgs, Fh, FileSystem, IoctlArgs, IoctlReply, Listing, MountOptions, Opened, ReadDone,
    Service, WriteArgs,
};
use stetfs_testkit::Scratch;

/// The file's inode.
const DISK: Ino = 12;
/// Its name.
const NAME: &[u8] = b"disk";

/// A recording device in memory, served.
#[derive(Debug)]
pub struct Served {
    device: Arc<Recorder<MemDevice>>,
    service: Service,
    _scratch: Scratch,
}

impl Served {
    /// Serves a copy of `image`.
    ///
    /// # Errors
    /// Not root, or no FUSE.
    pub fn start(image: &MemDevice) -> Result<Served> {
        let scratch = Scratch::new("served")?;
        let dir = scratch.path().join("dev");
        std::fs::create_dir(&dir)?;
        let device = Arc::new(Recorder::new(image.fork()));
        let fs = Arc::new(DeviceFs {
            device: Arc::clone(&device),
        });
        let service = Service::start(fs, &dir, &MountOptions::new("crash-lab"), 4)
            .context("serving the recorded device; this needs root and /dev/fuse")?;
        Ok(Served {
            device,
            service,
            _scratch: scratch,
        })
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.service.dir().join("disk")
    }

    /// The recorder.
    pub fn device(&self) -> &Arc<Recorder<MemDevice>> {
        &self.device
    }

    /// Takes it down; nobody may have the file open.
    ///
    /// # Errors
    /// Somebody has.
    pub fn stop(self) -> Result<()> {
        let dir = self.service.dir().to_owned();
        // A loop device lets go of its file a moment after it was detached.
        stetfs_testkit::mount::umount(&dir, std::time::Duration::from_secs(10))
    }
}

struct DeviceFs {
    device: Arc<Recorder<MemDevice>>,
}

fn refused<T>(done: Done<T>) {
    done(Err(FsError::Errno(libc::EPERM)));
}

impl DeviceFs {
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
            mode: if dir {
                libc::S_IFDIR | 0o700
            } else {
                libc::S_IFREG | 0o600
            },
            uid: 0,
            gid: 0,
            nlink: if dir { 2 } else { 1 },
            size: if dir { 0 } else { self.device.size() },
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
            // A request of the user's is a request to the device, at once.
            direct_io: false,
        }
    }
}

impl FileSystem for DeviceFs {
    fn lookup(&self, _: &Ctx, parent: Ino, name: &[u8], done: Done<Attr>) {
        done(match (parent, name) {
            (ROOT_INO, NAME) => Ok(self.attr(DISK)),
            _ => Err(FsError::Errno(libc::ENOENT)),
        });
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn getattr(&self, ino: Ino, done: Done<Attr>) {
        done(Ok(self.attr(ino)));
    }

    fn setattr(&self, _: &Ctx, ino: Ino, set: &SetAttr, done: Done<Attr>) {
        match set.size {
            Some(size) if size != self.device.size() => refused(done),
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

    fn read(&self, _: Fh, offset: u64, size: u32, done: ReadDone) {
        let left = self.device.size().saturating_sub(offset);
        let mut bytes = vec![0; left.min(u64::from(size)) as usize];
        match self.device.read(offset, &mut bytes) {
            Ok(()) => done(Ok(&bytes)),
            Err(_) => done(Err(FsError::Errno(libc::EIO))),
        }
    }

    fn write(&self, _: &Ctx, _: Ino, _: Fh, args: WriteArgs<'_>, done: Done<usize>) {
        let mut write = Write::new(args.offset, args.data);
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

    fn readdir(&self, _: Fh, cookie: u64, _: bool, mut list: Box<dyn Listing>) {
        if cookie == 0 {
            let entry = DirEntry {
                ino: DISK,
                kind: Some(FileType::Regular),
                name: NAME.to_vec(),
                next: 1,
            };
            let attr = self.attr(DISK);
            list.add(&entry, FileType::Regular, Some(&attr));
        }
        list.finish(Ok(()));
    }

    fn statfs(&self, done: Done<StatFs>) {
        done(Ok(StatFs {
            block_size: 4096,
            blocks: self.device.size() / 4096,
            bfree: 0,
            bavail: 0,
            files: 2,
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
