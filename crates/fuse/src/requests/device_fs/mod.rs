//! A block device as the one file `disk` of a mount, for a loop device or a `stetfs mount` on it.
//! The file `stats` shows the device's counters. With a [`Control`] the file `control` switches the
//! device while it is served. With a [`Report`] there are more counters, and the file `blocks.svg`,
//! a picture of its state. If the device has the SHARE capability, ioctls share content
//! (`include/stetfs-share.h`).
//!
//! Nothing of the device is kept in the kernel's page cache: lost content and read errors are
//! visible at once.

pub(crate) mod gate;
mod share_ioctl;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use stetfs::low::{
    Attr, BlockDevice, BlockWrite, Ctx, DirEntry, Done, FallocateMode, FileType, FsError, Ino,
    ROOT_INO, RenameFlags, SeekWhat, SetAttr, StatFs, Timestamp, XattrSet,
};

use self::gate::Gate;
use crate::api::ops::{
    CopyArgs, Fh, FileSystem, IoctlArgs, IoctlReply, Listing, NewNode, OpenFile, Opened, ReadArgs,
    ReadDone, Why, WriteArgs,
};

/// Inode and name of the device.
const DISK: (Ino, &[u8]) = (12, b"disk");
/// Inode and name of the counters.
const STATS: (Ino, &[u8]) = (13, b"stats");

/// Inode and name of the switch.
const CONTROL: (Ino, &[u8]) = (14, b"control");

/// Inode and name of the picture.
const PICTURE: (Ino, &[u8]) = (15, b"blocks.svg");

/// The switch of a device: it obeys the text written to the file `control`.
pub trait Control: Send + Sync {
    /// The current setting, as a text.
    fn show(&self) -> String;
    /// Does what `text` orders.
    ///
    /// # Errors
    /// The text is not understood, or the order cannot be carried out.
    fn order(&self, text: &str) -> Result<(), FsError>;
    /// The gate that requests to the device pass.
    fn gate(&self) -> &Gate;
}

/// Additional statistics of a device.
pub trait Report: Send + Sync {
    /// Further counters: name and value.
    fn counters(&self) -> Vec<(&'static str, String)>;
    /// The current state, as an SVG document.
    fn picture(&self) -> String;
}

/// A device as a file system of one file.
pub struct DeviceFs<D> {
    device: Arc<D>,
    control: Option<Arc<dyn Control>>,
    report: Option<Arc<dyn Report>>,
    /// By inode: the text at the last read from its start, for the reads that continue it.
    texts: Mutex<HashMap<Ino, Arc<str>>>,
}

fn io_error<E>(_: E) -> FsError {
    FsError::Errno(libc::EIO)
}

/// Answers a read with the part of `text` behind `offset`.
fn read_text(text: &str, offset: u64, done: ReadDone) {
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = text.as_bytes().get(from..).unwrap_or_default();
    done(&mut |buf| {
        buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(rest.len().min(buf.len()))
    });
}

fn refused<T>(done: Done<T>) {
    done(Err(FsError::Errno(libc::EPERM)));
}

impl<D: BlockDevice + 'static> DeviceFs<D> {
    /// A file system that shows `device`.
    pub fn new(device: Arc<D>) -> DeviceFs<D> {
        DeviceFs {
            device,
            control: None,
            report: None,
            texts: Mutex::default(),
        }
    }

    /// Adds a switch.
    pub fn with_control(self, control: Arc<dyn Control>) -> DeviceFs<D> {
        DeviceFs {
            control: Some(control),
            ..self
        }
    }

    /// Adds statistics.
    pub fn with_report(self, report: Arc<dyn Report>) -> DeviceFs<D> {
        DeviceFs {
            report: Some(report),
            ..self
        }
    }

    /// Runs a request to the device. If the gate is closed it waits in a thread of its own: the
    /// serving threads are needed for the order that opens the gate.
    fn run(&self, request: impl FnOnce(&D) + Send + 'static) {
        let Some(control) = &self.control else {
            return request(&self.device);
        };
        if let Some(_inside) = control.gate().try_enter() {
            return request(&self.device);
        }
        let (control, device) = (Arc::clone(control), Arc::clone(&self.device));
        let waiting = std::thread::Builder::new().name("held-request".into());
        // If no thread can be started the request is dropped, which answers EIO.
        if let Err(e) = waiting.spawn(move || {
            let _inside = control.gate().enter();
            request(&device);
        }) {
            tracing::error!("cannot queue a request to the suspended device: {e}");
        }
    }

    /// The entries of the directory.
    fn entries(&self) -> impl Iterator<Item = (Ino, &'static [u8])> {
        let control = self.control.is_some().then_some(CONTROL);
        let picture = self.report.is_some().then_some(PICTURE);
        [DISK, STATS].into_iter().chain(control).chain(picture)
    }

    /// The text of a file other than the device.
    fn text(&self, ino: Ino) -> String {
        match (&self.control, &self.report) {
            (Some(control), _) if ino == CONTROL.0 => control.show(),
            (_, Some(report)) if ino == PICTURE.0 => report.picture(),
            _ => self.stats(),
        }
    }

    /// The text for a reader at `offset`: behind the start it is the text with which the reader
    /// began.
    fn text_from(&self, ino: Ino, offset: u64) -> Arc<str> {
        let mut texts = self.texts.lock();
        match texts.get(&ino) {
            Some(text) if offset > 0 => Arc::clone(text),
            _ => {
                let text: Arc<str> = self.text(ino).into();
                texts.insert(ino, Arc::clone(&text));
                text
            }
        }
    }

    /// The counters, one per line.
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
            ("shares", s.shares),
            ("bytes_shared", s.bytes_shared),
        ] {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name} {value}");
        }
        let more = self.report.iter().flat_map(|report| report.counters());
        for (name, value) in more {
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
                ino if ino == STATS.0 || ino == PICTURE.0 => libc::S_IFREG | 0o400,
                _ => libc::S_IFREG | 0o600,
            },
            uid: 0,
            gid: 0,
            nlink: if dir { 2 } else { 1 },
            size: match ino {
                ROOT_INO => 0,
                ino if ino == DISK.0 => self.device.size(),
                ino => self.text(ino).len() as u64,
            },
            blocks: 0,
            rdev: 0,
            blksize: 4096,
            atime: zero,
            mtime: zero,
            ctime: zero,
            crtime: zero,
            flags: 0,
            guarded: false,
        }
    }

    fn opened(&self, ino: Ino) -> Opened {
        Opened {
            fh: OpenFile::new(ino, ino.into()).fh,
            direct_io: true,
            tells_close: false,
        }
    }
}

impl<D: BlockDevice + 'static> FileSystem for DeviceFs<D> {
    fn lookup(&self, _: &Ctx, parent: Ino, name: &[u8], done: Done<Attr>) {
        let found = self.entries().find(|(_, n)| *n == name);
        done(match found {
            Some((ino, _)) if parent == ROOT_INO => Ok(self.attr(ino)),
            _ => Err(FsError::Errno(libc::ENOENT)),
        });
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn getattr(&self, _: &Ctx, ino: Ino, _: Why, done: Done<Attr>) {
        done(Ok(self.attr(ino)));
    }

    fn setattr(&self, _: &Ctx, file: OpenFile, set: &SetAttr, done: Done<Attr>) {
        let ino = file.ino;
        match set.size {
            // A write replaces the whole setting.
            Some(0) if ino == CONTROL.0 => done(Ok(self.attr(ino))),
            Some(size) if ino != DISK.0 || size != self.device.size() => refused(done),
            _ => done(Ok(self.attr(ino))),
        }
    }

    fn readlink(&self, _: Ino, done: Done<Vec<u8>>) {
        refused(done);
    }

    fn mknod(&self, _: &Ctx, _: Ino, _: &[u8], _: NewNode, _: u64, done: Done<Attr>) {
        refused(done);
    }

    fn mkdir(&self, _: &Ctx, _: Ino, _: &[u8], _: NewNode, done: Done<Attr>) {
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

    fn create(&self, _: &Ctx, _: Ino, _: &[u8], _: NewNode, _: i32, done: Done<(Attr, Opened)>) {
        refused(done);
    }

    fn tmpfile(&self, _: &Ctx, _: Ino, _: NewNode, _: i32, done: Done<(Attr, Opened)>) {
        refused(done);
    }

    fn copy_range(&self, _: &Ctx, _: CopyArgs, done: Done<usize>) {
        done(Err(FsError::Errno(libc::EOPNOTSUPP)));
    }

    fn flush(&self, _: &Ctx, _: OpenFile, done: Done) {
        done(Err(FsError::Errno(libc::ENOSYS)));
    }

    fn release(&self, _: Fh) {}

    fn read(&self, _: &Ctx, file: OpenFile, args: ReadArgs, done: ReadDone) {
        let offset = args.offset;
        if file.ino != DISK.0 {
            return read_text(&self.text_from(file.ino, offset), offset, done);
        }
        self.run(move |device| {
            let left = device.size().saturating_sub(offset);
            done(&mut |buf| {
                let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let part = buf.get_mut(..len).unwrap_or_default();
                device.read(offset, part).map_err(io_error)?;
                Ok(len)
            });
        });
    }

    fn write(&self, _: &Ctx, file: OpenFile, args: WriteArgs<'_>, done: Done<usize>) {
        let ino = file.ino;
        let len = args.data.len();
        if let Some(control) = self.control.as_ref().filter(|_| ino == CONTROL.0) {
            let text = String::from_utf8_lossy(args.data);
            return done(control.order(&text).map(|()| len));
        }
        if ino != DISK.0 {
            return refused(done);
        }
        let (offset, fua) = (args.offset, args.flags & libc::O_DSYNC != 0);
        let write = move |device: &D, data: &[u8]| {
            let mut write = BlockWrite::new(offset, data);
            write.fua = fua;
            done(device.write_batch(&[write]).map_err(io_error).map(|()| len));
        };
        let Some(control) = &self.control else {
            return write(&self.device, args.data);
        };
        if let Some(_inside) = control.gate().try_enter() {
            return write(&self.device, args.data);
        }
        let data = args.data.to_vec();
        self.run(move |device| write(device, &data));
    }

    fn fsync(&self, _: &Ctx, file: OpenFile, _: bool, done: Done) {
        if file.ino != DISK.0 {
            return done(Ok(()));
        }
        self.run(|device| done(device.flush().map_err(io_error)));
    }

    fn fallocate(
        &self,
        _: &Ctx,
        file: OpenFile,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        done: Done,
    ) {
        if file.ino != DISK.0 {
            return refused(done);
        }
        match mode {
            // A loop device uses the first to discard, and either to zero.
            FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => self.run(move |device| {
                let range = offset..offset.saturating_add(len);
                done(device.zero(range).map_err(io_error));
            }),
            FallocateMode::Allocate { .. } => done(Ok(())),
        }
    }

    /// Holes are not known: everything is data, to the end.
    fn seek(&self, _: &Ctx, file: OpenFile, offset: u64, what: SeekWhat, done: Done<u64>) {
        let end = self.attr(file.ino).size;
        done(match what {
            _ if offset >= end => Err(FsError::Errno(libc::ENXIO)),
            SeekWhat::Data => Ok(offset),
            SeekWhat::Hole => Ok(end),
        });
    }

    fn bmap(&self, _: Ino, _: u64, _: u32, done: Done<u64>) {
        refused(done);
    }

    fn opendir(&self, _: &Ctx, ino: Ino, _: i32, done: Done<Opened>) {
        done(Ok(self.opened(ino)));
    }

    fn readdir(&self, _: &Ctx, _: OpenFile, cookie: u64, attrs: bool, mut list: Box<dyn Listing>) {
        for ((ino, name), next) in self.entries().zip(1..) {
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
            files: 1 + self.entries().count() as u64,
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

    fn ioctl(&self, _: &Ctx, file: OpenFile, args: IoctlArgs<'_>, done: Done<IoctlReply>) {
        let call = match file.ino {
            ino if ino == DISK.0 => share_ioctl::parse(&args),
            _ => Err(FsError::Errno(libc::ENOTTY)),
        };
        match call {
            Ok(call) => self.run(move |device| done(share_ioctl::run(device, &call))),
            Err(e) => done(Err(e)),
        }
    }
}
