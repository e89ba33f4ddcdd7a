//! The interface between the FUSE transport and the file system.
//!
//! A session (`dispatch`) calls [`FileSystem`]; a mounted file system implements it. Each operation
//! gets a [`Done`]: owned, `Send`, called exactly once, from any thread. So the thread that made an
//! fsync durable answers it, while the thread that read the request goes on. A `Done` that is
//! dropped uncalled answers EIO.

use std::num::NonZeroU64;

use stetfs::low::{
    Attr, Ctx, Done, FallocateMode, FileType, FsError, Ino, RenameFlags, SeekWhat, SetAttr, StatFs,
    XattrSet,
};

use crate::api::fakeroot::Ids;

/// The handle of an open file or directory, as `open` returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fh(pub NonZeroU64);

/// The open file of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// Its inode.
    pub ino: Ino,
    /// Its handle, if [`FileSystem::open`] returned one: files that are opened without a request
    /// have none.
    pub fh: Option<Fh>,
}

impl OpenFile {
    /// Converts the kernel's form: handle 0 is none.
    pub(crate) fn new(ino: Ino, fh: u64) -> OpenFile {
        OpenFile {
            ino,
            fh: NonZeroU64::new(fh).map(Fh),
        }
    }
}

/// The answer of a read. It calls its argument with the memory that the answer is sent from, of the
/// requested length, and sends as many bytes as the argument returns.
pub type ReadDone = Box<dyn FnOnce(&mut dyn FnMut(&mut [u8]) -> Result<usize, FsError>) + Send>;

/// A request that is served later, by a call with the file system.
pub type Request<F> = Box<dyn FnOnce(&F) + Send>;

/// The kernel's reason for requesting attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// For display, or for the size of a file that the caller has open.
    Looks,
    /// Unknown: the kernel may judge by them whether a program may open the file.
    Unsaid,
}

/// The answer of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The handle; none where operations use the inode.
    pub fh: Option<Fh>,
    /// Whether to bypass the kernel's page cache (FOPEN_DIRECT_IO).
    pub direct_io: bool,
    /// Whether the kernel sends [`FileSystem::flush`] when a descriptor is closed.
    pub tells_close: bool,
}

/// The buffer for the answer of a directory listing. It answers once, by [`Listing::finish`].
pub trait Listing: Send {
    /// Adds an entry, with its type if known, and its attributes if requested; without these the
    /// kernel learns only the name. Returns false if it does not fit: then the listing is full, and
    /// the caller takes back the lookup that it counted.
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
    /// The return value of ioctl(2).
    pub result: i32,
    /// The data to copy out, no longer than requested.
    pub data: Vec<u8>,
}

/// A read request.
#[derive(Clone, Copy, Debug)]
pub struct ReadArgs {
    /// First byte.
    pub offset: u64,
    /// The file's current `O_*` flags.
    pub flags: i32,
}

/// A write request.
#[derive(Clone, Copy, Debug)]
pub struct WriteArgs<'a> {
    /// First byte.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// The file's current `O_*` flags.
    pub flags: i32,
    /// Whether to clear set-user-id and set-group-id (FUSE_WRITE_KILL_SUIDGID).
    pub kill_suidgid: bool,
    /// Whether the kernel writes its cache back; the caller is then not the writer
    /// (FUSE_WRITE_CACHE).
    pub from_cache: bool,
}

/// Arguments of [`FileSystem::copy_range`].
#[derive(Clone, Copy, Debug)]
pub struct CopyArgs {
    /// The source file.
    pub from: OpenFile,
    /// First byte there.
    pub from_offset: u64,
    /// The target file.
    pub to: OpenFile,
    /// First byte there.
    pub to_offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Arguments of [`FileSystem::ioctl`].
#[derive(Clone, Copy, Debug)]
pub struct IoctlArgs<'a> {
    /// The command.
    pub cmd: u32,
    /// The data copied in.
    pub input: &'a [u8],
    /// Maximum number of bytes to copy out.
    pub out_size: u32,
    /// The caller's argument: an address in its memory, if the command has one.
    pub arg: u64,
}

/// The mode of a new file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permissions, as in `st_mode`; of a directory the permissions.
    pub mode: u32,
    /// Permissions to remove, unless the parent directory has a default ACL.
    pub umask: u32,
}

/// A mounted file system. Inode numbers are the file system's own (the root is
/// [`stetfs::low::ROOT_INO`]); names are bytes without `/` and NUL.
#[allow(clippy::too_many_arguments)]
pub trait FileSystem: Send + Sync + 'static {
    /// The translation of owners, the same for the whole mount.
    fn ids(&self) -> Ids {
        Ids::default()
    }
    /// Whether requests that change something must go to [`hold_back`](Self::hold_back).
    fn holds_back(&self) -> bool {
        false
    }
    /// Whether [`holds_back`](Self::holds_back) may return true soon.
    fn may_hold_back(&self) -> bool {
        self.holds_back()
    }
    /// Serves a request that changes something: later, while such requests are held back.
    fn hold_back(&self, request: Request<Self>)
    where
        Self: Sized,
    {
        request(self);
    }
    /// Finds `name`; counts one lookup of the inode on success. The kernel remembers ENOENT.
    fn lookup(&self, ctx: &Ctx, parent: Ino, name: &[u8], done: Done<Attr>);
    /// Takes back `nlookup` lookups.
    fn forget(&self, ino: Ino, nlookup: u64);
    /// stat(2), and access checks of the kernel.
    fn getattr(&self, ctx: &Ctx, ino: Ino, why: Why, done: Done<Attr>);
    /// Changes attributes, including the size; with a handle if a descriptor's size is set
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
    /// Opens a file; O_TRUNC among `flags` truncates it. ENOSYS means that the kernel need not send
    /// this request any more.
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
    /// Copies bytes between files (copy_file_range(2)); answers the number, which may be smaller
    /// than requested.
    fn copy_range(&self, ctx: &Ctx, args: CopyArgs, done: Done<usize>);
    /// Closes a handle whose last reference is gone.
    fn release(&self, fh: Fh);

    /// A descriptor is being closed; the closing process waits for the answer with its locks held.
    /// ENOSYS means that the kernel need not send this request any more.
    fn flush(&self, ctx: &Ctx, file: OpenFile, done: Done);
    /// Reads from `offset` on; fewer bytes than requested only at the end of the file.
    fn read(&self, ctx: &Ctx, file: OpenFile, args: ReadArgs, done: ReadDone);
    /// Writes; answers the number of bytes written.
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
    /// The position of unit `index` of a file on the block device below, in units of `unit` bytes;
    /// 0 if it has none (FIBMAP, swapon). Only mounts of block devices send it.
    fn bmap(&self, ino: Ino, index: u64, unit: u32, done: Done<u64>);
    /// Opens a directory. ENOSYS means that the kernel need not send this request any more.
    fn opendir(&self, ctx: &Ctx, ino: Ino, flags: i32, done: Done<Opened>);
    /// Lists the entries from `cookie` on until the listing is full. With `attrs`, each entry added
    /// with attributes counts one lookup: all except `.`, `..` and entries that cannot be looked
    /// up.
    fn readdir(&self, ctx: &Ctx, dir: OpenFile, cookie: u64, attrs: bool, list: Box<dyn Listing>);
    /// Counts of blocks and inodes.
    fn statfs(&self, done: Done<StatFs>);
    /// Makes everything durable that was done before (sync(2), syncfs(2)).
    fn sync_fs(&self, done: Done);
    /// Ends the session: writes everything back and closes. Further calls have no effect.
    fn shutdown(&self);
    /// Sets an extended attribute. With `kill_sgid`, an access ACL clears set-group-id.
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
    /// The names of the extended attributes that `ctx` may see, each terminated by NUL.
    fn listxattr(&self, ctx: &Ctx, ino: Ino, done: Done<Vec<u8>>);
    /// Removes an extended attribute.
    fn removexattr(&self, ctx: &Ctx, ino: Ino, name: &[u8], done: Done);
    /// ioctl(2).
    fn ioctl(&self, ctx: &Ctx, file: OpenFile, args: IoctlArgs<'_>, done: Done<IoctlReply>);
}

/// Tells the kernel to drop what it caches of an inode.
pub trait Invalidate: Send + Sync {
    /// The attributes of `ino` have changed without a request that changes them.
    fn attributes(&self, ino: Ino);
    /// The content of `ino` differs from the kernel's pages. The kernel writes back its dirty pages
    /// there, and drops all; it waits for its own requests meanwhile. `len` 0 means to the end.
    fn content(&self, ino: Ino, offset: u64, len: u64);
}

/// Whether `name` is `.` or `..`.
pub(crate) fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
