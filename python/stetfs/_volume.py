"""Volumes, files and listings."""

import dataclasses
import io
import os
import stat as _stat
import threading

from ._group import AtomicGroup
from ._library import Dirent, SpaceC, StatC, byref, c_void_p, call, library
from ._library import char_array as _char_array
from ._library import path_bytes as _path

# DT_* of dirent.h.
_KINDS = {1: _stat.S_IFIFO, 2: _stat.S_IFCHR, 4: _stat.S_IFDIR, 6: _stat.S_IFBLK,
          8: _stat.S_IFREG, 10: _stat.S_IFLNK, 12: _stat.S_IFSOCK}
_UNCHANGED = 0xFFFF_FFFF


def version():
    """The library's version."""
    return library.stetfs_version().decode()


@dataclasses.dataclass(frozen=True)
class StatResult:
    """What is known of a file, as os.stat_result names it. Times are ns since 1970."""

    st_mode: int
    st_ino: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_blocks: int
    st_rdev: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_birthtime_ns: int

    @property
    def st_mtime(self):
        """When the content changed last, seconds."""
        return self.st_mtime_ns / 1e9

    @classmethod
    def _of(cls, s):
        def ns(t):
            return t.sec * 1_000_000_000 + t.nsec
        return cls(s.mode, s.ino, s.nlink, s.uid, s.gid, s.size, s.blocks, os.makedev(s.major, s.minor),
                   ns(s.atime), ns(s.mtime), ns(s.ctime), ns(s.btime))


@dataclasses.dataclass(frozen=True)
class Space:
    """How much room there is: bytes, and files."""

    total: int
    free: int
    available: int
    files: int
    files_free: int


class DirEntry:
    """A name of a directory, as os.DirEntry."""

    def __init__(self, volume, directory, name, kind):
        self._volume = volume
        self._kind = kind
        self.name = name
        self.path = os.path.join(directory, name)

    def __repr__(self):
        return f"<DirEntry {self.path!r}>"

    def is_symlink(self):
        return self._kind == _stat.S_IFLNK

    def _is(self, kind, follow_symlinks):
        if not (follow_symlinks and self.is_symlink()):
            return self._kind == kind
        try:
            return _stat.S_IFMT(self.stat().st_mode) == kind
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks=True):
        return self._is(_stat.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks=True):
        return self._is(_stat.S_IFREG, follow_symlinks)

    def stat(self, *, follow_symlinks=True):
        return self._volume.stat(self.path, follow_symlinks=follow_symlinks)


class File(io.RawIOBase):
    """An open file, without a buffer. `Volume.open` makes them, and puts buffers around."""

    def __init__(self, volume, path, flags, mode=0o666):
        super().__init__()
        self._handle = None
        self.name = os.fsdecode(path)
        self._readable = flags & os.O_ACCMODE != os.O_WRONLY
        self._writable = flags & os.O_ACCMODE != os.O_RDONLY
        handle = c_void_p()
        call("stetfs_file_open", volume._open(), _path(path), flags, mode, byref(handle))
        self._handle = handle
        # Close waits for what other threads do with it.
        self._volume = volume

    def _open(self):
        if self._handle is None:
            raise ValueError("the file is closed")
        return self._handle

    def readable(self):
        return self._readable

    def writable(self):
        return self._writable

    def seekable(self):
        return True

    def readinto(self, buffer):
        room = memoryview(buffer).cast("B")
        if not len(room):
            return 0
        address = (_char_array(len(room))).from_buffer(room)
        return call("stetfs_file_read", self._open(), address, len(room))

    def write(self, data):
        data = bytes(memoryview(data))
        return call("stetfs_file_write", self._open(), data, len(data))

    def pread(self, size, offset):
        """Up to `size` bytes at `offset`."""
        room = bytearray(size)
        n = call("stetfs_file_pread", self._open(), _char_array(size).from_buffer(room), size, offset)
        return bytes(room[:n])

    def pwrite(self, data, offset):
        """Writes at `offset`; gives how many bytes."""
        data = bytes(memoryview(data))
        return call("stetfs_file_pwrite", self._open(), data, len(data), offset)

    def seek(self, offset, whence=os.SEEK_SET):
        return call("stetfs_file_seek", self._open(), offset, whence)

    def tell(self):
        return self.seek(0, os.SEEK_CUR)

    def truncate(self, size=None):
        size = self.tell() if size is None else size
        call("stetfs_file_truncate", self._open(), size)
        return size

    def sync(self, data_only=False):
        """Makes durable what was done with the file. Of a buffered file flush first."""
        call("stetfs_file_sync", self._open(), int(data_only))

    def stat(self):
        found = StatC()
        call("stetfs_file_stat", self._open(), byref(found))
        return StatResult._of(found)

    def close(self):
        if self._handle is not None:
            super().close()
            handle, self._handle = self._handle, None
            call("stetfs_file_close", handle)


def _flags(mode):
    """open(2)'s flags, and whether the file is one of text."""
    kinds = set(mode)
    if len(kinds) != len(mode) or kinds - set("rwaxb+t") or len(kinds & set("rwax")) != 1 or {"b", "t"} <= kinds:
        raise ValueError(f"invalid mode: {mode!r}")
    flags = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND,
             "x": os.O_CREAT | os.O_EXCL}[(kinds & set("rwax")).pop()]
    if "+" in kinds:
        return flags | os.O_RDWR, "b" not in kinds
    return flags | (os.O_RDONLY if "r" in kinds else os.O_WRONLY), "b" not in kinds


def _said(options, more):
    """Options as a list of texts: those of one text, and those by name."""
    said = [options] if options else []
    for name, value in more.items():
        if value is True:
            said.append(name)
        elif value is not None and value is not False:
            said.append(f"{name}={value}")
    return said


def format(image, options="", *, features=(), **more):
    """Makes a new ext4 volume in an image, which need not exist, or on a block device.

    Options are those of `stetfs mkfs` with _ for -, by name or as one text:
    `format("disk.img", size="1G", label="data", features=["bigalloc", "^resize_inode"])`.
    FileExistsError if something is there that would be lost, unless `force=True`."""
    said = _said(options, more) + [f"feature={name}" for name in features]
    call("stetfs_format", _path(image), ",".join(said).encode())


class Volume:
    """An open volume. Close it, or use it by `with`: what is left open then closes with the last file.

    Options are those of `stetfs mount -o`, by name or as one text:
    `Volume("disk.img", read_only=True, journal="ldj")`, `Volume("disk.img", "ro,partition=2")`."""

    def __init__(self, image, options="", *, read_only=False, **more):
        self._handle = None
        said = _said(options, more)
        said += ["ro"] if read_only else []
        self.image = os.fsdecode(image)
        self._lock = threading.Lock()
        handle = c_void_p()
        call("stetfs_open", _path(image), ",".join(said).encode(), byref(handle))
        self._handle = handle

    def __repr__(self):
        return f"<stetfs.Volume {self.image!r}{'' if self._handle else ', closed'}>"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        try:
            if getattr(self, "_handle", None) is not None:
                self.close()
        except OSError:
            # Nobody is left to be told.
            pass

    def _open(self):
        if self._handle is None:
            raise ValueError("the volume is closed")
        return self._handle

    def close(self):
        """Brings all home and marks the volume clean. Further calls do nothing.

        Raises OSError: EBUSY while there are files or groups, and the volume is closed with the last of them."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            call("stetfs_close", handle)

    def sync(self):
        """Makes durable all that was done before."""
        call("stetfs_sync", self._open())

    def space(self):
        found = SpaceC()
        call("stetfs_space", self._open(), byref(found))
        return Space(*(getattr(found, field.name) for field in dataclasses.fields(Space)))

    def open(self, path, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *, permissions=0o666):
        """As the built-in open(). With buffering=0 a File, which has pread, pwrite and sync."""
        flags, is_text = _flags(mode)
        if is_text and buffering == 0:
            raise ValueError("a file of text has a buffer")
        if not is_text and (encoding or errors or newline):
            raise ValueError("encoding, errors and newline are for files of text")
        raw = File(self, path, flags, permissions)
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else 128 << 10
        if raw.readable() and raw.writable():
            buffered = io.BufferedRandom(raw, size)
        else:
            buffered = (io.BufferedWriter if raw.writable() else io.BufferedReader)(raw, size)
        if not is_text:
            return buffered
        return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline, line_buffering=buffering == 1)

    def atomic_group(self, *paths):
        """Begins a group of these files, which are there: they change all at once, or not at all."""
        return AtomicGroup(self, paths)

    def abort_atomic_group(self, path):
        """Aborts the group that has the file, whoever holds it. What is done with it then raises OSError."""
        call("stetfs_group_break", self._open(), _path(path))

    def read_bytes(self, path):
        with self.open(path, "rb") as file:
            return file.read()

    def write_bytes(self, path, data):
        with self.open(path, "wb") as file:
            return file.write(data)

    def stat(self, path, *, follow_symlinks=True):
        found = StatC()
        name = "stetfs_stat" if follow_symlinks else "stetfs_lstat"
        call(name, self._open(), _path(path), byref(found))
        return StatResult._of(found)

    def lstat(self, path):
        return self.stat(path, follow_symlinks=False)

    def exists(self, path):
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path):
        return self.exists(path) and _stat.S_ISDIR(self.stat(path).st_mode)

    def scandir(self, path="/"):
        """The names in a directory, as DirEntry, without `.` and `..`."""
        directory = os.fsdecode(path)
        handle = c_void_p()
        call("stetfs_dir_open", self._open(), _path(path), byref(handle))
        try:
            entry = Dirent()
            while call("stetfs_dir_next", handle, byref(entry)):
                yield DirEntry(self, directory, os.fsdecode(entry.name), _KINDS.get(entry.kind, 0))
        finally:
            call("stetfs_dir_close", handle)

    def listdir(self, path="/"):
        return [entry.name for entry in self.scandir(path)]

    def walk(self, top="/", topdown=True):
        """As os.walk(): (directory, names of directories, other names). Links are not followed."""
        entries = sorted(self.scandir(top), key=lambda entry: entry.name)
        dirs = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        files = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        top = os.fsdecode(top)
        if topdown:
            yield top, dirs, files
        for name in dirs:
            yield from self.walk(os.path.join(top, name), topdown)
        if not topdown:
            yield top, dirs, files

    def mkdir(self, path):
        call("stetfs_mkdir", self._open(), _path(path), 0)

    def makedirs(self, path, exist_ok=False):
        if not exist_ok and self.exists(path):
            raise FileExistsError(17, "File exists", os.fsdecode(path))
        call("stetfs_mkdir", self._open(), _path(path), 1)

    def unlink(self, path):
        call("stetfs_unlink", self._open(), _path(path))

    remove = unlink

    def rmdir(self, path):
        call("stetfs_rmdir", self._open(), _path(path))

    def rename(self, source, target):
        call("stetfs_rename", self._open(), _path(source), _path(target))

    def link(self, path, name):
        call("stetfs_link", self._open(), _path(path), _path(name))

    def symlink(self, target, path):
        call("stetfs_symlink", self._open(), _path(target), _path(path))

    def readlink(self, path):
        import ctypes
        room = ctypes.create_string_buffer(4096)
        n = call("stetfs_readlink", self._open(), _path(path), room, len(room))
        return os.fsdecode(room.raw[:n])

    def chmod(self, path, mode):
        call("stetfs_chmod", self._open(), _path(path), mode)

    def chown(self, path, uid=-1, gid=-1):
        """Of a symbolic link itself; -1 leaves a number as it is."""
        uid, gid = (_UNCHANGED if n == -1 else n for n in (uid, gid))
        call("stetfs_lchown", self._open(), _path(path), uid, gid)
