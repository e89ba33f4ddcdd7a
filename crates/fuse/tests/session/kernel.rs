//! The kernel's side of a session: requests by name, and their answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use stetfs::low::{FsOptions, Volume, VolumeOptions};
use stetfs_fuse::{Answers, FileSystem, Offline, Opens, VolumeFs, VolumeFsOptions};
use stetfs_testkit::{Image, Mkfs};

use crate::bytes::{Attr, Bytes, Entry, Who, body, long, op, parts, request, word};

/// The root's node.
pub(crate) const ROOT: u64 = 1;
/// Time to wait for an answer; long, because other processes may keep the machine busy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The errno of a failed request.
pub(crate) type Answer<T> = Result<T, i32>;

/// The answers and notifications so far.
#[derive(Default)]
struct Mail {
    answers: Mutex<HashMap<u64, Answer<Vec<u8>>>>,
    /// Notifications: node, offset, length.
    notes: Mutex<Vec<(u64, i64, i64)>>,
    came: Condvar,
}

impl Mail {
    fn put(&self, answer: &[u8]) {
        assert_eq!(word(answer, 0) as usize, answer.len(), "its length");
        let (code, unique) = (word(answer, 4) as i32, long(answer, 8));
        let mut answers = self.answers.lock().unwrap();
        if unique == 0 {
            assert_eq!(code, 2, "FUSE_NOTIFY_INVAL_INODE");
            let note = (
                long(answer, 16),
                long(answer, 24) as i64,
                long(answer, 32) as i64,
            );
            self.notes.lock().unwrap().push(note);
        } else {
            let result = match code {
                0 => Ok(answer[16..].to_vec()),
                code => Err(-code),
            };
            let before = answers.insert(unique, result);
            assert_eq!(before, None, "two answers to one request");
        }
        self.came.notify_all();
    }
}

/// The kernel's side of a session.
pub(crate) struct Kernel<F = VolumeFs> {
    offline: Offline<F>,
    mail: Arc<Mail>,
    next: AtomicU64,
    /// The answer to INIT.
    pub(crate) agreed: Vec<u8>,
    /// The caller of the requests.
    pub(crate) who: Who,
    /// Whether another thread would take the next request.
    pub(crate) others: bool,
}

/// The flags of a kernel's INIT.
pub(crate) const ALL_FLAGS: u64 = u64::MAX;

/// The body of INIT.
pub(crate) fn init(major: u32, minor: u32, flags: u64) -> Bytes {
    let body = body().u32(major).u32(minor).u32(1 << 17);
    body.u32(flags as u32)
        .u32((flags >> 32) as u32)
        .bytes(&[0; 44])
}

/// The caller of most requests: root, of no process that is visible.
pub(crate) const ROOT_USER: Who = Who {
    uid: 0,
    gid: 0,
    pid: 0,
};

/// A user other than root.
pub(crate) const USER: Who = Who {
    uid: 1000,
    gid: 1000,
    pid: 0,
};

/// A new volume in memory.
pub(crate) fn image() -> Image {
    let mkfs = Mkfs::blocks(4096).journal_mib(4).inode_size(256);
    let image = Image::in_memory(24 << 20).unwrap();
    image.mkfs(&mkfs.feature("project")).unwrap();
    image
}

/// The volume of `image`.
pub(crate) fn open(image: &Image, fs: FsOptions) -> Arc<Volume> {
    let options = VolumeOptions {
        fs: FsOptions {
            cache_bytes: 4 << 20,
            ..fs
        },
        ..VolumeOptions::default()
    };
    Volume::open(image.path(), &options).unwrap()
}

/// Options with a handle for each open file.
pub(crate) fn handles() -> VolumeFsOptions {
    VolumeFsOptions {
        opens: Opens::Handles,
        ..VolumeFsOptions::default()
    }
}

/// Begins a session with `first` and `start`, which makes it.
fn begin<F>(
    first: &[u8],
    start: impl FnOnce(&[u8], Answers) -> std::io::Result<Offline<F>>,
) -> std::io::Result<Kernel<F>> {
    let mail = Arc::new(Mail::default());
    let answers: Answers = {
        let mail = Arc::clone(&mail);
        Arc::new(move |answer: &[u8]| mail.put(answer))
    };
    let offline = start(first, answers)?;
    let agreed = mail.answers.lock().unwrap().remove(&1).unwrap().unwrap();
    Ok(Kernel {
        offline,
        mail,
        next: AtomicU64::new(2),
        agreed,
        who: ROOT_USER,
        others: false,
    })
}

impl Kernel {
    /// Begins a session on the volume of `image`, with a kernel that offers everything.
    pub(crate) fn on(image: &Image, options: VolumeFsOptions) -> Kernel {
        let volume = open(image, FsOptions::default());
        Kernel::with(volume, options, &init(7, 45, ALL_FLAGS)).unwrap()
    }

    /// Begins a session on `volume` with the body of INIT.
    pub(crate) fn with(
        volume: Arc<Volume>,
        options: VolumeFsOptions,
        body: &Bytes,
    ) -> std::io::Result<Kernel> {
        let first = request(op::INIT, 1, 0, ROOT_USER, body);
        begin(&first, |first, answers| {
            Offline::start(volume, options, first, answers)
        })
    }

    /// The file system.
    pub(crate) fn volume(&self) -> &Arc<VolumeFs> {
        self.offline.file_system()
    }

    /// Ends the session; the volume must be sound then.
    pub(crate) fn end(self, image: &Image) {
        self.offline.end().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

impl<F: FileSystem> Kernel<F> {
    /// Begins a session on any file system.
    pub(crate) fn of(fs: Arc<F>) -> Kernel<F> {
        let body = init(7, 45, ALL_FLAGS);
        let first = request(op::INIT, 1, 0, ROOT_USER, &body);
        begin(&first, |first, answers| Offline::of(fs, first, answers)).unwrap()
    }

    /// Sends a request, by `/dev/fuse` or a ring in turn; returns its number.
    pub(crate) fn send(&self, opcode: u32, node: u64, body: &Bytes) -> u64 {
        let unique = self.next.fetch_add(1, Ordering::Relaxed);
        let request = request(opcode, unique, node, self.who, body);
        let by_device =
            [op::FORGET, op::BATCH_FORGET].contains(&opcode) || unique.is_multiple_of(2);
        if by_device {
            self.offline.serve(&request, !self.others);
        } else {
            let (head, operation, payload) = parts(&request);
            self.offline
                .serve_parts(head, &operation, payload, !self.others);
        }
        unique
    }

    /// Sends bytes that need not be a request.
    pub(crate) fn send_raw(&self, bytes: &[u8]) {
        self.offline.serve(bytes, true);
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&self, unique: u64) -> Answer<Vec<u8>> {
        let begun = Instant::now();
        let mut answers = self.mail.answers.lock().unwrap();
        loop {
            if let Some(answer) = answers.remove(&unique) {
                return answer;
            }
            assert!(begun.elapsed() < TIMEOUT, "no answer to request {unique}");
            let wait = self.mail.came.wait_timeout(answers, TIMEOUT).unwrap();
            answers = wait.0;
        }
    }

    /// Whether the answer to a request has come.
    pub(crate) fn has_answer(&self, unique: u64) -> bool {
        self.mail.answers.lock().unwrap().contains_key(&unique)
    }

    /// Waits until `is_there` holds for the notifications, and takes them.
    pub(crate) fn notes(
        &self,
        is_there: impl Fn(&[(u64, i64, i64)]) -> bool,
    ) -> Vec<(u64, i64, i64)> {
        let begun = Instant::now();
        let mut answers = self.mail.answers.lock().unwrap();
        loop {
            let mut notes = self.mail.notes.lock().unwrap();
            if is_there(&notes) {
                return std::mem::take(&mut *notes);
            }
            assert!(begun.elapsed() < TIMEOUT, "only these notes: {notes:?}");
            drop(notes);
            let wait = self.mail.came.wait_timeout(answers, TIMEOUT).unwrap();
            answers = wait.0;
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&self, opcode: u32, node: u64, body: Bytes) -> Answer<Vec<u8>> {
        self.answer(self.send(opcode, node, &body))
    }

    /// A request whose answer has no content.
    pub(crate) fn ask_empty(&self, opcode: u32, node: u64, body: Bytes) -> Answer<()> {
        let answer = self.ask(opcode, node, body)?;
        assert_eq!(answer, [], "the content of an answer to {opcode}");
        Ok(())
    }

    fn entry(&self, opcode: u32, node: u64, body: Bytes) -> Answer<Entry> {
        let answer = self.ask(opcode, node, body)?;
        assert_eq!(answer.len(), Entry::LEN);
        Ok(Entry::read(&answer))
    }

    pub(crate) fn lookup(&self, dir: u64, name: &str) -> Answer<Entry> {
        self.entry(op::LOOKUP, dir, body().name(name))
    }

    pub(crate) fn forget(&self, node: u64, count: u64) {
        self.send(op::FORGET, node, &body().u64(count));
    }

    pub(crate) fn mkdir(&self, dir: u64, name: &str, mode: u32, umask: u32) -> Answer<Entry> {
        self.entry(op::MKDIR, dir, body().u32(mode).u32(umask).name(name))
    }

    pub(crate) fn mknod(&self, dir: u64, name: &str, mode: u32, rdev: u32) -> Answer<Entry> {
        let body = body().u32(mode).u32(rdev).u32(0o022).u32(0);
        self.entry(op::MKNOD, dir, body.name(name))
    }

    /// Makes a regular file, without opening it.
    pub(crate) fn file(&self, dir: u64, name: &str) -> u64 {
        let made = self.mknod(dir, name, libc::S_IFREG | 0o644, 0).unwrap();
        made.node
    }

    pub(crate) fn symlink(&self, dir: u64, name: &str, target: &str) -> Answer<Entry> {
        self.entry(op::SYMLINK, dir, body().name(name).name(target))
    }

    pub(crate) fn link(&self, node: u64, dir: u64, name: &str) -> Answer<Entry> {
        self.entry(op::LINK, dir, body().u64(node).name(name))
    }

    pub(crate) fn unlink(&self, dir: u64, name: &str) -> Answer<()> {
        self.ask_empty(op::UNLINK, dir, body().name(name))
    }

    pub(crate) fn rmdir(&self, dir: u64, name: &str) -> Answer<()> {
        self.ask_empty(op::RMDIR, dir, body().name(name))
    }

    pub(crate) fn rename(&self, from: (u64, &str), to: (u64, &str), flags: u32) -> Answer<()> {
        let names = |body: Bytes| body.name(from.1).name(to.1);
        match flags {
            0 => self.ask_empty(op::RENAME, from.0, names(body().u64(to.0))),
            _ => {
                let body = body().u64(to.0).u32(flags).u32(0);
                self.ask_empty(op::RENAME2, from.0, names(body))
            }
        }
    }

    pub(crate) fn getattr(&self, node: u64) -> Answer<Attr> {
        let answer = self.ask(op::GETATTR, node, body().u64(0).u64(0))?;
        assert_eq!(answer.len(), 104);
        Ok(Attr::read(&answer[16..]))
    }

    /// Opens a file; returns the handle, and the flags of the answer.
    pub(crate) fn open(&self, node: u64, flags: i32) -> Answer<(u64, u32)> {
        let answer = self.ask(op::OPEN, node, body().u32(flags as u32).u32(0))?;
        assert_eq!(answer.len(), 16);
        Ok((long(&answer, 0), word(&answer, 8)))
    }

    /// Makes and opens a file; returns its entry, and the handle.
    pub(crate) fn create(&self, dir: u64, name: &str, flags: i32) -> Answer<(Entry, u64)> {
        let body = body().u32(flags as u32).u32(libc::S_IFREG | 0o666);
        let answer = self.ask(op::CREATE, dir, body.u32(0o022).u32(0).name(name))?;
        assert_eq!(answer.len(), Entry::LEN + 16);
        Ok((Entry::read(&answer), long(&answer, Entry::LEN)))
    }

    pub(crate) fn release(&self, node: u64, fh: u64) {
        let body = body().u64(fh).u32(0).u32(0).u64(0);
        self.ask_empty(op::RELEASE, node, body).unwrap();
    }

    pub(crate) fn read(&self, node: u64, fh: u64, offset: u64, size: u32) -> Answer<Vec<u8>> {
        let body = body().u64(fh).u64(offset).u32(size).u32(0);
        self.ask(op::READ, node, body.u64(0).u32(0).u32(0))
    }

    /// Writes; `flags` are those of the write and the `O_*` flags of the file.
    pub(crate) fn write_as(
        &self,
        (node, fh): (u64, u64),
        offset: u64,
        data: &[u8],
        (write_flags, flags): (u32, i32),
    ) -> Answer<u32> {
        let body = body().u64(fh).u64(offset).u32(data.len() as u32);
        let body = body.u32(write_flags).u64(0).u32(flags as u32).u32(0);
        let answer = self.ask(op::WRITE, node, body.bytes(data))?;
        assert_eq!(answer.len(), 8);
        Ok(word(&answer, 0))
    }

    pub(crate) fn write(&self, node: u64, fh: u64, offset: u64, data: &[u8]) -> Answer<u32> {
        self.write_as((node, fh), offset, data, (0, libc::O_RDWR))
    }

    pub(crate) fn fsync(&self, node: u64, fh: u64, data_only: bool) -> Answer<()> {
        let body = body().u64(fh).u32(data_only.into()).u32(0);
        self.ask_empty(op::FSYNC, node, body)
    }

    pub(crate) fn fallocate(
        &self,
        file: (u64, u64),
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Answer<()> {
        let body = body().u64(file.1).u64(offset).u64(len);
        self.ask_empty(op::FALLOCATE, file.0, body.u32(mode as u32).u32(0))
    }

    pub(crate) fn lseek(&self, file: (u64, u64), offset: u64, whence: i32) -> Answer<u64> {
        let body = body().u64(file.1).u64(offset).u32(whence as u32).u32(0);
        Ok(long(&self.ask(op::LSEEK, file.0, body)?, 0))
    }

    /// Copies between files, each a node, a handle and an offset.
    pub(crate) fn copy(&self, from: (u64, u64, u64), to: (u64, u64, u64), len: u64) -> Answer<u32> {
        let body = body().u64(from.1).u64(from.2).u64(to.0);
        let body = body.u64(to.1).u64(to.2).u64(len).u64(0);
        Ok(word(&self.ask(op::COPY_FILE_RANGE, from.0, body)?, 0))
    }

    pub(crate) fn setxattr(&self, node: u64, name: &str, value: &[u8], flags: i32) -> Answer<()> {
        let body = body().u32(value.len() as u32).u32(flags as u32).u64(0);
        self.ask_empty(op::SETXATTR, node, body.name(name).bytes(value))
    }

    pub(crate) fn getxattr(&self, node: u64, name: &str, size: u32) -> Answer<Vec<u8>> {
        let body = body().u32(size).u32(0).name(name);
        self.ask(op::GETXATTR, node, body)
    }

    pub(crate) fn listxattr(&self, node: u64, size: u32) -> Answer<Vec<u8>> {
        self.ask(op::LISTXATTR, node, body().u32(size).u32(0))
    }

    /// An ioctl with its input; returns its output.
    pub(crate) fn ioctl(
        &self,
        file: (u64, u64),
        cmd: u32,
        input: &[u8],
        out_size: u32,
    ) -> Answer<Vec<u8>> {
        self.ioctl_at(file, (cmd, 0), input, out_size)
    }

    /// The same with the caller's argument.
    pub(crate) fn ioctl_at(
        &self,
        (node, fh): (u64, u64),
        (cmd, arg): (u32, u64),
        input: &[u8],
        out_size: u32,
    ) -> Answer<Vec<u8>> {
        let body = body().u64(fh).u32(0).u32(cmd).u64(arg);
        let body = body.u32(input.len() as u32).u32(out_size).bytes(input);
        let answer = self.ask(op::IOCTL, node, body)?;
        assert_eq!((word(&answer, 0), word(&answer, 4)), (0, 0));
        assert!(answer.len() <= 16 + out_size as usize);
        Ok(answer[16..].to_vec())
    }

    /// Free inodes, and free blocks.
    pub(crate) fn free(&self) -> (u64, u64) {
        let answer = self.ask(op::STATFS, ROOT, body()).unwrap();
        assert_eq!(answer.len(), 80);
        (long(&answer, 32), long(&answer, 8))
    }
}

/// A change of attributes; `None` leaves a field.
#[derive(Clone, Copy, Default)]
pub(crate) struct Set {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<(u64, u32)>,
    pub(crate) mtime: Option<(u64, u32)>,
    pub(crate) ctime: Option<(u64, u32)>,
    /// Further bits of `valid`.
    pub(crate) more: u32,
    pub(crate) fh: u64,
}

/// `FATTR_*`.
pub(crate) const FATTR_FH: u32 = 1 << 6;
pub(crate) const FATTR_ATIME_NOW: u32 = 1 << 7;
pub(crate) const FATTR_MTIME_NOW: u32 = 1 << 8;
pub(crate) const FATTR_KILL_SUIDGID: u32 = 1 << 11;

impl<F: FileSystem> Kernel<F> {
    pub(crate) fn setattr(&self, node: u64, set: Set) -> Answer<Attr> {
        let bits = [
            (set.mode.is_some(), 1 << 0),
            (set.uid.is_some(), 1 << 1),
            (set.gid.is_some(), 1 << 2),
            (set.size.is_some(), 1 << 3),
            (set.atime.is_some(), 1 << 4),
            (set.mtime.is_some(), 1 << 5),
            (set.ctime.is_some(), 1 << 10),
        ];
        let valid: u32 = bits.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum();
        let [atime, mtime, ctime] =
            [set.atime, set.mtime, set.ctime].map(|time| time.unwrap_or_default());
        let body = body().u32(valid | set.more).u32(0).u64(set.fh);
        let body = body.u64(set.size.unwrap_or(0)).u64(0);
        let body = body.u64(atime.0).u64(mtime.0).u64(ctime.0);
        let body = body.u32(atime.1).u32(mtime.1).u32(ctime.1);
        let body = body.u32(set.mode.unwrap_or(0)).u32(0);
        let body = body.u32(set.uid.unwrap_or(0)).u32(set.gid.unwrap_or(0));
        let answer = self.ask(op::SETATTR, node, body.u32(0))?;
        assert_eq!(answer.len(), 104);
        Ok(Attr::read(&answer[16..]))
    }
}
