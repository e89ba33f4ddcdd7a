//! Answers: exactly one for each request, from any thread.

use stetfs::low::{Attr, DirEntry, Done, FileType, FsError, Timestamp};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::api::fakeroot::Ids;
use crate::api::ops::{Listing, Opened, ReadDone};
use crate::transport::port::Port;
use crate::wire::abi::{
    self, AttrOut, Dirent, EntryOut, GetxattrOut, OpenOut, StatxOut, SxTime, fopen,
};
use crate::wire::limits::{MAX_READ, TTL_SECS};
use crate::wire::node::node_of;
use crate::wire::times::{Timed, Timer};

/// The right to answer a request. If dropped without an answer, it answers EIO.
pub(crate) struct Reply {
    port: Port,
    unique: u64,
    answered: bool,
    /// The translation of owners.
    ids: Ids,
    /// Times the request; it ends with the answer.
    timer: Option<Timer>,
}

impl Reply {
    pub(crate) fn new(port: Port, unique: u64) -> Reply {
        Reply {
            port,
            unique,
            answered: false,
            ids: Ids::default(),
            timer: None,
        }
    }

    /// Times the request, if its kind is timed.
    pub(crate) fn time(&mut self, what: Option<Timed>) {
        self.timer = what.map(Timer::start);
    }

    /// Sets the translation of owners.
    pub(crate) fn show(&mut self, ids: Ids) {
        self.ids = ids;
    }

    fn send(mut self, error: i32, parts: [&[u8]; 2]) {
        self.answered = true;
        // Stopped first: the caller must find the request in the statistics.
        self.timer = None;
        self.port.send(self.unique, error, parts);
    }

    pub(crate) fn error(self, errno: i32) {
        self.send(errno, [&[], &[]]);
    }

    pub(crate) fn empty(self) {
        self.send(0, [&[], &[]]);
    }

    pub(crate) fn bytes(self, data: &[u8]) {
        self.send(0, [data, &[]]);
    }

    pub(crate) fn value<T: IntoBytes + Immutable>(self, value: &T) {
        self.send(0, [value.as_bytes(), &[]]);
    }

    pub(crate) fn value_and<T: IntoBytes + Immutable>(self, value: &T, data: &[u8]) {
        self.send(0, [value.as_bytes(), data]);
    }

    /// Answers with an error of the file system. A failure of the device is also logged, as the
    /// caller gets only an errno.
    fn failed(self, e: &FsError) {
        if matches!(e, FsError::Device(_)) {
            tracing::error!("a request failed: {e}");
        }
        self.error(e.errno());
    }

    /// A `Done` that sends the error, or calls `with` with the value.
    pub(crate) fn done<T: 'static>(self, with: impl FnOnce(Reply, T) + Send + 'static) -> Done<T> {
        Box::new(move |result| match result {
            Ok(value) => with(self, value),
            Err(e) => self.failed(&e),
        })
    }

    pub(crate) fn done_empty(self) -> Done {
        self.done(|reply, ()| reply.empty())
    }

    pub(crate) fn done_bytes(self) -> Done<Vec<u8>> {
        self.done(|reply, data: Vec<u8>| reply.bytes(&data))
    }

    /// The answer for a read of up to `size` bytes.
    pub(crate) fn done_read(mut self, size: u32) -> ReadDone {
        Box::new(move |read| {
            let size = (size as usize).min(MAX_READ);
            let sent = self.port.send_read(self.unique, size, read);
            self.answered = sent.is_ok();
            if let Err(e) = sent {
                self.failed(&e);
            }
        })
    }

    pub(crate) fn done_entry(self) -> Done<Attr> {
        self.done(|reply, a: Attr| {
            let entry = entry(&reply.ids.shown(&a));
            reply.value(&entry);
        })
    }

    pub(crate) fn done_attr(self) -> Done<Attr> {
        self.done(|reply, a: Attr| {
            let a = reply.ids.shown(&a);
            reply.value(&AttrOut {
                attr_valid: valid_secs(&a),
                attr_valid_nsec: 0,
                dummy: 0,
                attr: attr(&a),
            });
        })
    }

    pub(crate) fn done_statx(self) -> Done<Attr> {
        self.done(|reply, a: Attr| {
            let found = statx(&reply.ids.shown(&a));
            reply.value(&found);
        })
    }

    pub(crate) fn done_opened(self) -> Done<Opened> {
        self.done(|reply, opened| reply.value(&open_out(opened)))
    }

    pub(crate) fn done_opened_dir(self) -> Done<Opened> {
        self.done(|reply, opened: Opened| {
            reply.value(&OpenOut {
                fh: wire_fh(opened),
                // All changes of a directory come through the kernel.
                open_flags: fopen::KEEP_CACHE | fopen::CACHE_DIR,
                backing_id: 0,
            });
        })
    }

    /// The answer for a write: the number of bytes written, no more than the request held.
    pub(crate) fn done_written(self) -> Done<usize> {
        self.done(|reply, n: usize| {
            reply.value(&abi::WriteOut {
                size: u32::try_from(n).unwrap_or(u32::MAX),
                padding: 0,
            });
        })
    }

    pub(crate) fn done_created(self) -> Done<(Attr, Opened)> {
        self.done(|reply, (attr, opened): (Attr, Opened)| {
            let entry = entry(&reply.ids.shown(&attr));
            reply.value_and(&entry, open_out(opened).as_bytes());
        })
    }

    /// The answer for an extended attribute or the list of them: the value, or its length when
    /// `size` is 0.
    pub(crate) fn done_xattr(self, size: u32) -> Done<Vec<u8>> {
        self.done(
            move |reply, value: Vec<u8>| match u32::try_from(value.len()) {
                Ok(len) if size == 0 => reply.value(&GetxattrOut {
                    size: len,
                    padding: 0,
                }),
                Ok(len) if len <= size => reply.bytes(&value),
                _ => reply.error(libc::ERANGE),
            },
        )
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered {
            tracing::error!("a request was not answered");
            self.port.send(self.unique, libc::EIO, [&[], &[]]);
        }
    }
}

/// The handle in the kernel's form: 0 is none.
fn wire_fh(opened: Opened) -> u64 {
    opened.fh.map_or(0, |fh| fh.0.get())
}

/// Time in seconds for which the kernel may cache attributes. Opens of a guarded file without a
/// request are detected when the kernel requests its mode, so these are not cached.
fn valid_secs(a: &Attr) -> u64 {
    if a.guarded { 0 } else { TTL_SECS }
}

fn open_out(opened: Opened) -> OpenOut {
    let mut open_flags = fopen::KEEP_CACHE;
    if !opened.tells_close {
        // A close has nothing to do: synchronous writes were synced at once.
        open_flags |= fopen::NOFLUSH;
    }
    if opened.direct_io {
        open_flags |= fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
    }
    OpenOut {
        fh: wire_fh(opened),
        open_flags,
        backing_id: 0,
    }
}

pub(crate) fn attr(a: &Attr) -> abi::Attr {
    abi::Attr {
        ino: u64::from(a.ino),
        size: a.size,
        blocks: a.blocks,
        atime: a.atime.sec,
        mtime: a.mtime.sec,
        ctime: a.ctime.sec,
        atimensec: a.atime.nsec,
        mtimensec: a.mtime.nsec,
        ctimensec: a.ctime.nsec,
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        // The kernel takes the low 32 bits of makedev's encoding.
        rdev: a.rdev as u32,
        blksize: a.blksize,
        flags: 0,
    }
}

fn entry(a: &Attr) -> EntryOut {
    EntryOut {
        nodeid: node_of(a.ino),
        generation: u64::from(a.generation),
        entry_valid: TTL_SECS,
        attr_valid: valid_secs(a),
        entry_valid_nsec: 0,
        attr_valid_nsec: 0,
        attr: attr(a),
    }
}

/// Node 0: the kernel caches that the name does not exist.
pub(crate) fn no_entry() -> EntryOut {
    EntryOut {
        entry_valid: TTL_SECS,
        ..EntryOut::new_zeroed()
    }
}

/// `STATX_BASIC_STATS | STATX_BTIME`.
const STATX_MASK: u32 = 0x0fff;

fn statx(a: &Attr) -> StatxOut {
    let time = |t: Timestamp| SxTime {
        sec: t.sec,
        nsec: t.nsec,
        reserved: 0,
    };
    StatxOut {
        attr_valid: valid_secs(a),
        attr_valid_nsec: 0,
        flags: 0,
        spare: [0; 2],
        stat: abi::Statx {
            mask: STATX_MASK,
            blksize: a.blksize,
            attributes: 0,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            mode: a.mode as u16,
            spare0: 0,
            ino: u64::from(a.ino),
            size: a.size,
            blocks: a.blocks,
            attributes_mask: 0,
            atime: time(a.atime),
            btime: time(a.crtime),
            ctime: time(a.ctime),
            mtime: time(a.mtime),
            rdev_major: libc::major(a.rdev),
            rdev_minor: libc::minor(a.rdev),
            dev_major: 0,
            dev_minor: 0,
            spare2: [0; 14],
        },
    }
}

/// `S_IFMT >> 12`, as readdir(3) shows it.
fn dirent_kind(kind: FileType) -> u32 {
    u32::from(match kind {
        FileType::Regular => libc::DT_REG,
        FileType::Directory => libc::DT_DIR,
        FileType::Symlink => libc::DT_LNK,
        FileType::CharDevice => libc::DT_CHR,
        FileType::BlockDevice => libc::DT_BLK,
        FileType::Fifo => libc::DT_FIFO,
        FileType::Socket => libc::DT_SOCK,
    })
}

/// A directory listing under construction.
pub(crate) struct List {
    reply: Reply,
    buf: Vec<u8>,
    room: usize,
    /// Whether each entry is preceded by attributes (READDIRPLUS).
    plus: bool,
}

impl List {
    /// An answer of up to `room` bytes, to READDIRPLUS or to READDIR.
    pub(crate) fn new(reply: Reply, room: usize, plus: bool) -> List {
        List {
            reply,
            plus,
            buf: Vec::with_capacity(room),
            room,
        }
    }
}

impl Listing for List {
    fn add(&mut self, entry_: &DirEntry, kind: Option<FileType>, attr: Option<&Attr>) -> bool {
        let plus = if self.plus { size_of::<EntryOut>() } else { 0 };
        let len = (plus + size_of::<Dirent>() + entry_.name.len()).next_multiple_of(8);
        if self.buf.len() + len > self.room {
            return false;
        }
        let end = self.buf.len() + len;
        if self.plus {
            // Node 0: the kernel learns only the name, and looks it up when needed.
            let shown = attr.map(|attr| self.reply.ids.shown(attr));
            let known = shown.as_ref().map_or_else(EntryOut::new_zeroed, entry);
            self.buf.extend_from_slice(known.as_bytes());
        }
        let dirent = Dirent {
            ino: u64::from(entry_.ino),
            off: entry_.next,
            namelen: entry_.name.len() as u32,
            kind: kind.map_or(u32::from(libc::DT_UNKNOWN), dirent_kind),
        };
        self.buf.extend_from_slice(dirent.as_bytes());
        self.buf.extend_from_slice(&entry_.name);
        self.buf.resize(end, 0);
        true
    }

    fn finish(self: Box<Self>, result: Result<(), FsError>) {
        match result {
            Ok(()) => self.reply.bytes(&self.buf),
            Err(e) => self.reply.failed(&e),
        }
    }
}
