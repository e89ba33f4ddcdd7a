"""libstetfs by ctypes: what include/stetfs.h declares."""

import ctypes
import os
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

__all__ = ["Dirent", "SpaceC", "StatC", "byref", "c_void_p", "call", "char_array", "library", "path_bytes"]


class Time(ctypes.Structure):
    _fields_ = [("sec", c_int64), ("nsec", c_uint32), ("reserved", c_uint32)]


class StatC(ctypes.Structure):
    _fields_ = [
        ("ino", c_uint64), ("size", c_uint64), ("blocks", c_uint64), ("nlink", c_uint64),
        ("mode", c_uint32), ("uid", c_uint32), ("gid", c_uint32),
        ("major", c_uint32), ("minor", c_uint32), ("reserved", c_uint32),
        ("atime", Time), ("mtime", Time), ("ctime", Time), ("btime", Time),
    ]


class SpaceC(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in ("total", "free", "available", "files", "files_free")]


class Dirent(ctypes.Structure):
    _fields_ = [("kind", c_uint32), ("len", c_uint32), ("name", c_char * 256)]


_H = c_void_p
_SIGNATURES = {
    "stetfs_version": (c_char_p, []),
    "stetfs_last_error": (c_char_p, []),
    "stetfs_format": (c_int, [c_char_p, c_char_p]),
    "stetfs_open": (c_int, [c_char_p, c_char_p, POINTER(_H)]),
    "stetfs_close": (c_int, [_H]),
    "stetfs_sync": (c_int, [_H]),
    "stetfs_space": (c_int, [_H, POINTER(SpaceC)]),
    "stetfs_stat": (c_int, [_H, c_char_p, POINTER(StatC)]),
    "stetfs_lstat": (c_int, [_H, c_char_p, POINTER(StatC)]),
    "stetfs_mkdir": (c_int, [_H, c_char_p, c_int]),
    "stetfs_unlink": (c_int, [_H, c_char_p]),
    "stetfs_rmdir": (c_int, [_H, c_char_p]),
    "stetfs_rename": (c_int, [_H, c_char_p, c_char_p]),
    "stetfs_link": (c_int, [_H, c_char_p, c_char_p]),
    "stetfs_symlink": (c_int, [_H, c_char_p, c_char_p]),
    "stetfs_readlink": (c_int64, [_H, c_char_p, c_void_p, c_size_t]),
    "stetfs_chmod": (c_int, [_H, c_char_p, c_uint32]),
    "stetfs_lchown": (c_int, [_H, c_char_p, c_uint32, c_uint32]),
    "stetfs_file_open": (c_int, [_H, c_char_p, c_int, c_uint32, POINTER(_H)]),
    "stetfs_file_close": (c_int, [_H]),
    "stetfs_file_read": (c_int64, [_H, c_void_p, c_size_t]),
    "stetfs_file_write": (c_int64, [_H, c_void_p, c_size_t]),
    "stetfs_file_pread": (c_int64, [_H, c_void_p, c_size_t, c_uint64]),
    "stetfs_file_pwrite": (c_int64, [_H, c_void_p, c_size_t, c_uint64]),
    "stetfs_file_seek": (c_int64, [_H, c_int64, c_int]),
    "stetfs_file_truncate": (c_int, [_H, c_uint64]),
    "stetfs_file_sync": (c_int, [_H, c_int]),
    "stetfs_file_stat": (c_int, [_H, POINTER(StatC)]),
    "stetfs_group_break": (c_int, [_H, c_char_p]),
    "stetfs_group_open": (c_int, [_H, POINTER(c_char_p), c_size_t, POINTER(_H)]),
    "stetfs_group_pread": (c_int64, [_H, c_char_p, c_void_p, c_size_t, c_uint64]),
    "stetfs_group_pwrite": (c_int64, [_H, c_char_p, c_void_p, c_size_t, c_uint64]),
    "stetfs_group_truncate": (c_int, [_H, c_char_p, c_uint64]),
    "stetfs_group_zero": (c_int, [_H, c_char_p, c_uint64, c_uint64]),
    "stetfs_group_size": (c_int64, [_H, c_char_p]),
    "stetfs_group_limit": (c_int64, [_H]),
    "stetfs_group_commit": (c_int, [_H]),
    "stetfs_group_abort": (c_int, [_H]),
    "stetfs_group_close": (c_int, [_H]),
    "stetfs_dir_open": (c_int, [_H, c_char_p, POINTER(_H)]),
    "stetfs_dir_next": (c_int, [_H, POINTER(Dirent)]),
    "stetfs_dir_close": (c_int, [_H]),
}


# What ctypes would cut off without a word.
_FITS = {
    c_int: range(-(1 << 31), 1 << 31),
    c_uint32: range(1 << 32),
    c_int64: range(-(1 << 63), 1 << 63),
    c_uint64: range(1 << 64),
    c_size_t: range(1 << 8 * ctypes.sizeof(c_size_t)),
}


def _load():
    # Another than the wheel's, for whoever works on it.
    named = os.environ.get("STETFS_LIBRARY")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libstetfs.so")
    found = ctypes.CDLL(named or (beside if os.path.exists(beside) else "libstetfs.so.0"))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(found, name)
        function.restype = result
        function.argtypes = arguments
    return found


library = _load()


def call(name, *arguments):
    """Calls a function, and gives what it counts.

    Raises OSError, of the subclass that its number has; OverflowError for a number that C cannot have."""
    for argument, kind in zip(arguments, _SIGNATURES[name][1]):
        if isinstance(argument, int) and kind in _FITS and argument not in _FITS[kind]:
            raise OverflowError(f"{argument} does not fit")
    answer = getattr(library, name)(*arguments)
    if answer < 0:
        raise OSError(-answer, library.stetfs_last_error().decode(errors="surrogateescape"))
    return answer


def char_array(size):
    return c_char * size


def path_bytes(path):
    path = os.fsencode(path)
    if b"\0" in path:
        raise ValueError("a NUL in a path")
    return path
