//! The seam between the FUSE transport and the file system.
//!
//! Whatever speaks to the kernel (`wire`) calls [`FileSystem`]; whatever is mounted implements
//! it. Each operation gets a [`Done`]: owned, `Send`, called exactly once, from any thread. So an
//! fsync is answered by the thread that made it durable while the one that read the request goes
//! on. A `Done` that is dropped instead answers EIO.

use std::num::NonZeroU64;

use stetfs::low::{
    Attr, Ctx, Done, FallocateMode, FileType, FsError, Ino, RenameFlags, SeekWhat, SetAttr, StatFs,
    XattrSet,
};

use crate::fakeroot::Ids;

/// A file or directory held open: what `open` answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fh(pub NonZeroU64);

/// The open file that an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// Its inode.
    pub ino: Ino,
    /// Its handle, if [`FileSystem::open`] gave one: where files are opened without asking, there
    /// is none.
    pub fh: Option<Fh>,
}

impl OpenFile {
    /// As the kernel names it: 0 is no handle.
    pub(crate) fn new(ino: Ino, fh: u64) -> OpenFile {
        OpenFile {
            ino,
            fh: NonZeroU64::new(fh).map(Fh),
        }
    }
}

/// Answer of a read: calls what it is given with the memory that the answer is sent from, as long
/// as was asked for, and sends as many bytes as that says.
pub type ReadDone = Box<dyn FnOnce(&mut dyn FnMut(&mut [u8]) -> Result<usize, FsError>) + Send>;

/// A request that is served later: it is given the file system then.
pub type Request<F> = Box<dyn FnOnce(&F) + Send>;

/// What the kernel wants to know attributes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// They are shown to somebody, or one who has the file open needs its size.
    Looks,
    /// It does not say: it may judge by them whether somebody may open the file.
    Unsaid,
}

/// How a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The handle; none where operations go by the inode.
    pub fh: Option<Fh>,
    /// Pass the kernel's page cache by (FOPEN_DIRECT_IO).
    pub direct_io: bool,
    /// The kernel sends [`FileSystem::flush`] when a descriptor is closed.
    pub tells_close: bool,
}

/// Where a directory listing goes: the reply's buffer. Answers once, by [`Listing::finish`].
pub trait Listing: Send {
    /// Adds an entry, with its type if that is known, and its attributes if they were asked for;
    /// without, the kernel learns the name alone. False if it does not fit: then the listing is
    /// full and the entry's lookup, if it counted one, is not the kernel's.
    fn add(
        &mut self,
        entry: &stetfs::low::DirEntry,
        kind: Option<FileType>,
        attr: Option<&Attr>,
    ) -> bool;
    /// Sends the answer.
    fn finish(self: Box<Self>, result: Result<(), FsError>);
}

/// Answer of an ioctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoctlReply {
    /// What ioctl(2) returns.
    pub result: i32,
    /// What is copied out, no longer than was asked for.
    pub data: Vec<u8>,
}

/// A read request.
#[derive(Clone, Copy, Debug)]
pub struct ReadArgs {
    /// First byte.
    pub offset: u64,
    /// `O_*` flags the file has now.
    pub flags: i32,
}

/// A write request.
#[derive(Clone, Copy, Debug)]
pub struct WriteArgs<'a> {
    /// First byte.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// `O_*` flags the file has now.
    pub flags: i32,
    /// The writer may not keep set-user-id and set-group-id bits (FUSE_WRITE_KILL_SUIDGID).
    pub kill_suidgid: bool,
    /// The kernel writes its cache back, and the caller is nobody who wrote it (FUSE_WRITE_CACHE).
    pub from_cache: bool,
}

/// Arguments of [`FileSystem::copy_range`].
#[derive(Clone, Copy, Debug)]
pub struct CopyArgs {
    /// File to read.
    pub from: OpenFile,
    /// First byte there.
    pub from_offset: u64,
    /// File to write.
    pub to: OpenFile,
    /// First byte there.
    pub to_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Arguments of [`FileSystem::ioctl`].
#[derive(Clone, Copy, Debug)]
pub struct IoctlArgs<'a> {
    /// The command.
    pub cmd: u32,
    /// What was copied in.
    pub input: &'a [u8],
    /// Bytes that can be copied out.
    pub out_size: u32,
    /// The caller's argument, an address in its memory if the command has one.
    pub arg: u64,
}

/// What a file or directory that is made is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Its type and permissions, as in `st_mode`; of a directory the permissions.
    pub mode: u32,
    /// Permissions that it does not get, unless its directory has a default ACL.
    pub umask: u32,
}

/// A mounted file system. Inode numbers are the file system's own (the root is
/// [`stetfs::low::ROOT_INO`]); names are bytes without `/` and NUL.
#[allow(clippy::too_many_arguments)]
pub trait FileSystem: Send + Sync + 'static {
    /// Whom files belong to, as it is shown. The same for all of a mount.
    fn ids(&self) -> Ids {
        Ids::default()
    }
    /// Whether requests that change something are to be given to
    /// [`hold_back`](Self::hold_back).
    fn holds_back(&self) -> bool {
        false
    }
    /// Whether [`holds_back`](Self::holds_back) may say so soon.
    fn may_hold_back(&self) -> bool {
        self.holds_back()
    }
    /// Serves a request that changes something: later, while such are held back.
    fn hold_back(&self, request: Request<Self>)
    where
        Self: Sized,
    {
        request(self);
    }
    /// Finds `name`; counts one lookup of the inode on success. ENOENT is remembered by the kernel.
    fn lookup(&self, ctx: &Ctx, parent: Ino, name: &[u8], done: Done<Attr>);
    /// Takes back `nlookup` lookups.
    fn forget(&self, ino: Ino, nlookup: u64);
    /// stat(2), and what the kernel judges an access by.
    fn getattr(&self, ctx: &Ctx, ino: Ino, why: Why, done: Done<Attr>);
    /// Changes attributes, the size among them; with a handle if a descriptor's size is set
    /// (ftruncate(2)).
    fn setattr(&self, ctx: &Ctx, file: OpenFile, set: &SetAttr, done: Done<Attr>);
    /// Target of a symbolic link.
    fn readlink(&self, ino: Ino, done: Done<Vec<u8>>);
    /// Makes a node of any type but directory and symlink.
    fn mknod(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        rdev: u64,
        done: Done<Attr>,
    );
    /// Makes a directory.
    fn mkdir(&self, ctx: &Ctx, parent: Ino, name: &[u8], node: NewNode, done: Done<Attr>);
    /// Makes a symbolic link.
    fn symlink(&self, ctx: &Ctx, parent: Ino, name: &[u8], target: &[u8], done: Done<Attr>);
    /// Makes a hard link.
    fn link(&self, ctx: &Ctx, ino: Ino, parent: Ino, name: &[u8], done: Done<Attr>);
    /// Removes a name of a file.
    fn unlink(&self, ctx: &Ctx, parent: Ino, name: &[u8], done: Done);
    /// Removes an empty directory.
    fn rmdir(&self, ctx: &Ctx, parent: Ino, name: &[u8], done: Done);
    /// renameat2(2).
    fn rename(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
        done: Done,
    );
    /// Opens a file; O_TRUNC among `flags` truncates it. ENOSYS where the kernel need not ask, also
    /// for the next.
    fn open(&self, ctx: &Ctx, ino: Ino, flags: i32, done: Done<Opened>);
    /// Makes and opens a file.
    fn create(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: i32,
        done: Done<(Attr, Opened)>,
    );
    /// Makes and opens a file without a name (O_TMPFILE).
    fn tmpfile(
        &self,
        ctx: &Ctx,
        parent: Ino,
        node: NewNode,
        flags: i32,
        done: Done<(Attr, Opened)>,
    );
    /// Copies bytes between files (copy_file_range(2)); answers how many, fewer if that suits.
    fn copy_range(&self, ctx: &Ctx, args: CopyArgs, done: Done<usize>);
    /// Closes; the last reference to the handle is gone.
    fn release(&self, fh: Fh);

    /// A descriptor is closed, and whoever closes it waits for the answer with what it has locked.
    /// ENOSYS: no close is of interest, and the kernel tells of no other.
    fn flush(&self, ctx: &Ctx, file: OpenFile, done: Done);
    /// Reads from `offset` on; fewer bytes than were asked for only at the end of the file.
    fn read(&self, ctx: &Ctx, file: OpenFile, args: ReadArgs, done: ReadDone);
    /// Writes; answers the bytes written.
    fn write(&self, ctx: &Ctx, file: OpenFile, args: WriteArgs<'_>, done: Done<usize>);
    /// fsync(2) and fdatasync(2), of files and directories.
    fn fsync(&self, ctx: &Ctx, file: OpenFile, datasync: bool, done: Done);
    /// fallocate(2).
    fn fallocate(
        &self,
        ctx: &Ctx,
        file: OpenFile,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        done: Done,
    );
    /// lseek(2) to data or a hole.
    fn seek(&self, ctx: &Ctx, file: OpenFile, offset: u64, what: SeekWhat, done: Done<u64>);
    /// Where unit `index` of a file lies on the block device below, in units of `unit` bytes; 0
    /// where it lies nowhere (FIBMAP, swapon). Asked for on mounts of block devices only.
    fn bmap(&self, ino: Ino, index: u64, unit: u32, done: Done<u64>);
    /// Opens a directory. ENOSYS where the kernel need not ask.
    fn opendir(&self, ctx: &Ctx, ino: Ino, flags: i32, done: Done<Opened>);
    /// Lists the entries from `cookie` on until the listing is full. With `attrs`, each entry that
    /// was added with attributes counts one lookup: all but `.`, `..` and what cannot be looked
    /// up.
    fn readdir(&self, ctx: &Ctx, dir: OpenFile, cookie: u64, attrs: bool, list: Box<dyn Listing>);
    /// Counts of blocks and inodes.
    fn statfs(&self, done: Done<StatFs>);
    /// Makes everything durable that was done before (sync(2), syncfs(2)).
    fn sync_fs(&self, done: Done);
    /// The kernel needs nothing any more: brings everything home. More than one call is one.
    fn shutdown(&self);
    /// Sets an extended attribute. With `kill_sgid`, an access ACL takes set-group-id away.
    fn setxattr(
        &self,
        ctx: &Ctx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
        kill_sgid: bool,
        done: Done,
    );
    /// Reads an extended attribute.
    fn getxattr(&self, ino: Ino, name: &[u8], done: Done<Vec<u8>>);
    /// Names of the extended attributes that `ctx` may see, each ended by NUL.
    fn listxattr(&self, ctx: &Ctx, ino: Ino, done: Done<Vec<u8>>);
    /// Removes an extended attribute.
    fn removexattr(&self, ctx: &Ctx, ino: Ino, name: &[u8], done: Done);
    /// ioctl(2).
    fn ioctl(&self, ctx: &Ctx, file: OpenFile, args: IoctlArgs<'_>, done: Done<IoctlReply>);
}

/// Tells the kernel that it must ask again for what it remembers of an inode.
pub trait Invalidate: Send + Sync {
    /// Attributes of `ino` changed other than by a request that says so.
    fn attributes(&self, ino: Ino);
    /// Content of `ino` is not what the kernel has in its pages. It writes home what is changed
    /// there, and drops them; waits for requests of its own meanwhile. `len` 0: to the end.
    fn content(&self, ino: Ino, offset: u64, len: u64);
}

/// Whether `name` is `.` or `..`.
pub(crate) fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
