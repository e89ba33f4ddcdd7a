"""Files that change all at once."""

import ctypes
import os
import threading

from ._library import byref, c_void_p, call, char_array, path_bytes


class AtomicFile:
    """A file as its group has it. `AtomicGroup.file` makes them."""

    def __init__(self, group, path):
        self._group = group
        self._path = path_bytes(path)
        self.name = os.fsdecode(path)
        # Whether the group has it.
        self.size()

    def __repr__(self):
        return f"<stetfs.AtomicFile {self.name!r}>"

    def size(self):
        """How many bytes it has."""
        return self._group._call("size", self._path)

    def pread(self, size, offset):
        """Up to `size` bytes at `offset`."""
        room = bytearray(size)
        n = self._group._call("pread", self._path, char_array(size).from_buffer(room), size, offset)
        return bytes(room[:n])

    def pwrite(self, data, offset):
        """Writes all of it at `offset`; after OSError the group may hold the first part of it."""
        data = bytes(memoryview(data))
        return self._group._call("pwrite", self._path, data, len(data), offset)

    def truncate(self, size):
        """Cuts it off, or extends it with a hole."""
        self._group._call("truncate", self._path, size)
        return size

    def zero(self, offset, length):
        """Makes a range zeroes, as far as the file reaches."""
        self._group._call("zero", self._path, offset, length)


class AtomicGroup:
    """Files that change all at once, or not at all, whatever happens. `Volume.atomic_group` makes them.

    What is written through the group is seen through it alone until it commits. At the end of `with` it
    commits, or aborts if there was an exception. A group that nobody holds any more is aborted. One that
    has ended raises ValueError."""

    def __init__(self, volume, paths):
        self._handle = None
        self._lock = threading.Lock()
        paths = [path_bytes(path) for path in paths]
        handle = c_void_p()
        array = (ctypes.c_char_p * len(paths))(*paths)
        call("stetfs_group_open", volume._open(), array, len(paths), byref(handle))
        self._handle = handle
        # The group goes before it does.
        self._volume = volume

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.has_ended:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.abort()

    def _call(self, name, *arguments):
        # Nobody frees it meanwhile.
        with self._lock:
            if self._handle is None:
                raise ValueError("the atomic group has ended")
            return call(f"stetfs_group_{name}", self._handle, *arguments)

    def _end(self, name):
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is None:
                raise ValueError("the atomic group has ended")
            try:
                call(f"stetfs_group_{name}", handle)
            finally:
                call("stetfs_group_close", handle)

    @property
    def has_ended(self):
        return self._handle is None

    def file(self, path):
        """A file of the group, by the path that it was begun with. Raises OSError (EINVAL) for another."""
        return AtomicFile(self, path)

    def limit(self):
        """Bytes of blocks that it can hold, where all are allocated already. New ones count more."""
        return self._call("limit")

    def commit(self):
        """Makes all that was written what the files hold, at once, and durable. The group has ended.

        Raises OSError if the device or the journal failed: when the volume is opened again all of it is
        there, or nothing."""
        self._end("commit")

    def abort(self):
        """Leaves the files as they are. The group has ended."""
        self._end("abort")
