"""ext4 volumes in image files and on block devices, without a mount.

    import stetfs

    with stetfs.Volume("disk.img") as volume:
        volume.makedirs("/var/log")
        with volume.open("/var/log/messages", "a") as log:
            log.write("hello\\n")
        for top, dirs, files in volume.walk("/"):
            print(top, dirs, files)

`format` makes a volume. `Volume.atomic_group` has several files change all at once, or not at all.

Errors are OSError with errno and the library's text. Paths are str, bytes or os.PathLike; names come
as str, with what is no UTF-8 as os.fsdecode() gives it. What is written stands after a crash when
`sync` has returned, of a file or of the volume, and when the volume was closed.
"""

from ._group import AtomicFile, AtomicGroup
from ._volume import DirEntry, File, Space, StatResult, Volume, format, version

__all__ = ["AtomicFile", "AtomicGroup", "DirEntry", "File", "Space", "StatResult", "Volume", "format",
           "version"]
__version__ = version()
