"""What the module does with an image: STETFS_IMAGE names one that is empty. Run by crates/capi/tests."""

import errno
import io
import os
import stat
import threading
import unittest

import stetfs

IMAGE = os.environ["STETFS_IMAGE"]


class Volumes(unittest.TestCase):
    def setUp(self):
        self.volume = stetfs.Volume(IMAGE, cache="16M")
        self.addCleanup(self.volume.close)

    def test_files_have_the_habits_of_the_built_in_open(self):
        volume = self.volume
        volume.makedirs("/from/deep/er", exist_ok=True)
        volume.makedirs("/from/deep", exist_ok=True)
        with self.assertRaises(FileExistsError):
            volume.makedirs("/from/deep")
        with volume.open("/from/python", "w") as file:
            file.write("line 1\n")
        with volume.open("/from/python", "a") as file:
            file.write("line 2\n")
        with volume.open("/from/python") as file:
            self.assertEqual(list(file), ["line 1\n", "line 2\n"])
        with self.assertRaises(FileExistsError):
            volume.open("/from/python", "x")
        with self.assertRaises(ValueError):
            volume.open("/from/python", "rw")
        with volume.open("/from/bytes", "w+b") as file:
            file.write(bytes(range(256)) * 1000)
            file.seek(-256, os.SEEK_END)
            self.assertEqual(file.read(), bytes(range(256)))
        with volume.open("/from/bytes", "r+b", buffering=0) as raw:
            self.assertIsInstance(raw, io.RawIOBase)
            self.assertEqual(raw.pwrite(b"abc", 1), 3)
            self.assertEqual(raw.pread(5, 0), b"\0abc\4")
            for act in (lambda n: raw.pwrite(b"x", n), lambda n: raw.pread(1, n), raw.truncate):
                for place in (-1, 1 << 64):
                    with self.assertRaises(OverflowError):
                        act(place)
            with self.assertRaises(OverflowError):
                raw.seek(1 << 64)
            self.assertEqual(raw.pread(5, 0), b"\0abc\4")
            raw.sync()
            self.assertEqual(raw.truncate(4), 4)
            self.assertEqual(raw.readall(), b"\0abc")
            self.assertEqual(raw.stat().st_size, 4)
        with self.assertRaises(ValueError):
            raw.read(1)
        self.assertEqual(volume.read_bytes(b"/from/bytes"), b"\0abc")

    def test_names(self):
        volume = self.volume
        volume.makedirs("/names/sub", exist_ok=True)
        volume.write_bytes("/names/a", b"a")
        volume.symlink("a", "/names/link")
        volume.link("/names/a", "/names/b")
        volume.rename("/names/b", b"/names/sub/\xff")
        self.assertEqual(volume.readlink("/names/link"), "a")
        self.assertEqual(volume.listdir("/names/sub"), [os.fsdecode(b"\xff")])
        self.assertEqual(list(volume.walk("/names")), [
            ("/names", ["sub"], ["a", "link"]),
            ("/names/sub", [], [os.fsdecode(b"\xff")]),
        ])
        kinds = {entry.name: (entry.is_dir(), entry.is_file(), entry.is_symlink())
                 for entry in volume.scandir("/names")}
        self.assertEqual(kinds["link"], (False, True, True))
        self.assertEqual(kinds["sub"], (True, False, False))
        volume.chmod("/names/a", 0o600)
        volume.chown("/names/a", uid=7)
        found = volume.stat("/names/link")
        self.assertEqual((found.st_uid, found.st_gid, found.st_nlink, found.st_size), (7, 0, 2, 1))
        self.assertEqual(stat.S_IMODE(found.st_mode), 0o600)
        self.assertGreater(found.st_mtime, 1_700_000_000)
        self.assertTrue(stat.S_ISLNK(volume.lstat("/names/link").st_mode))
        volume.remove("/names/link")
        self.assertFalse(volume.exists("/names/link"))
        with self.assertRaises(OSError) as failed:
            volume.rmdir("/names")
        self.assertEqual(failed.exception.errno, errno.ENOTEMPTY)
        with self.assertRaisesRegex(FileNotFoundError, "cannot open /no: "):
            volume.open("/no")
        self.assertGreater(volume.space().available, 1 << 20)

    def group_volume(self):
        self.volume.close()
        self.volume = stetfs.Volume(IMAGE, journal="stet", cache="16M")
        self.addCleanup(self.volume.close)
        self.volume.makedirs("/group", exist_ok=True)
        self.volume.write_bytes("/group/a", b"first")
        self.volume.write_bytes("/group/b", b"second")
        return self.volume

    def held(self):
        return [self.volume.read_bytes(f"/group/{name}") for name in "ab"]

    def test_groups_change_files_at_once(self):
        volume = self.group_volume()
        with volume.atomic_group("/group/a", b"/group/b") as group:
            a, b = group.file("/group/a"), group.file("/group/b")
            self.assertEqual(a.pwrite(b"FIRST one", 0), 9)
            a.zero(5, 1)
            b.truncate(3)
            self.assertEqual((a.pread(100, 1), a.size(), b.size()), (b"IRST\0one", 9, 3))
            self.assertEqual(self.held(), [b"first", b"second"])
            with volume.open("/group/b", "r+b", buffering=0) as raw, self.assertRaises(OSError) as failed:
                raw.pwrite(b"x", 0)
            self.assertEqual(failed.exception.errno, errno.EBUSY)
            with self.assertRaises(OSError) as failed:
                volume.atomic_group("/group/b")
            self.assertEqual(failed.exception.errno, errno.EBUSY)
            with self.assertRaisesRegex(OSError, "/group/c: it is not in the atomic group") as failed:
                group.file("/group/c")
            self.assertEqual(failed.exception.errno, errno.EINVAL)
            self.assertGreater(group.limit(), 0)
            for place in (-1, 1 << 64):
                with self.assertRaises(OverflowError):
                    a.pwrite(b"x", place)
        self.assertTrue(group.has_ended)
        # More than the volume has room for.
        with self.assertRaises(OSError) as failed, volume.atomic_group("/group/a") as much:
            much.file("/group/a").pwrite(bytes(100 << 20), 0)
        self.assertEqual(failed.exception.errno, errno.ENOSPC)
        self.assertEqual(self.held(), [b"FIRST\0one", b"sec"])
        for act in (group.commit, group.abort, group.limit, a.size, lambda: a.pread(1, 0), lambda: b.truncate(0)):
            with self.assertRaisesRegex(ValueError, "has ended"):
                act()

    def test_groups_that_are_not_committed_leave_nothing(self):
        volume = self.group_volume()
        with self.assertRaises(KeyError), volume.atomic_group("/group/a") as group:
            group.file("/group/a").pwrite(b"nothing", 0)
            raise KeyError
        with volume.atomic_group("/group/a", "/group/b") as group:
            group.file("/group/b").truncate(0)
            group.abort()
        group = volume.atomic_group("/group/a")
        group.file("/group/a").pwrite(b"nothing", 0)
        del group
        self.assertEqual(self.held(), [b"first", b"second"])
        with volume.atomic_group("/group/a") as group:
            group.file("/group/a").pwrite(b"F", 0)
            group.commit()
        self.assertEqual(self.held(), [b"First", b"second"])
        for paths in ((), ("/group",), ("/group/none",)):
            with self.assertRaises(OSError):
                volume.atomic_group(*paths)
        group = volume.atomic_group("/group/a", "/group/b")
        group.file("/group/a").pwrite(b"nothing", 0)
        volume.abort_atomic_group("/group/b")
        with self.assertRaises(OSError):
            group.commit()
        self.assertEqual(self.held(), [b"First", b"second"])
        with self.assertRaises(OSError):
            volume.abort_atomic_group("/group/a")
        group = volume.atomic_group("/group/a")
        with self.assertRaises(OSError) as failed:
            volume.close()
        self.assertEqual(failed.exception.errno, errno.EBUSY)
        group.abort()
        with stetfs.Volume(IMAGE) as volume, self.assertRaises(OSError) as failed:
            volume.atomic_group("/group/a")
        self.assertEqual(failed.exception.errno, errno.EOPNOTSUPP)

    def test_options_and_closing(self):
        with self.assertRaisesRegex(OSError, "journal") as failed:
            stetfs.Volume(IMAGE, jounal="ldj")
        self.assertEqual(failed.exception.errno, errno.EINVAL)
        with self.assertRaises(OSError) as failed:
            stetfs.Volume(IMAGE)
        self.assertEqual(failed.exception.errno, errno.EBUSY)
        self.volume.sync()
        self.volume.close()
        self.volume.close()
        with self.assertRaises(ValueError):
            self.volume.listdir()
        with stetfs.Volume(IMAGE, read_only=True) as volume:
            with self.assertRaises(OSError) as failed:
                volume.mkdir("/x")
            self.assertEqual(failed.exception.errno, errno.EROFS)
        volume = stetfs.Volume(IMAGE, "ro")
        listing = volume.scandir("/")
        next(listing)
        with self.assertRaises(OSError) as failed:
            volume.close()
        self.assertEqual(failed.exception.errno, errno.EBUSY)
        listing.close()
        stetfs.Volume(IMAGE, "ro").close()

    def test_threads_write_at_once(self):
        self.volume.makedirs("/threads", exist_ok=True)

        def write(n):
            self.volume.write_bytes(f"/threads/{n}", bytes([n]) * 100_000)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for n in range(8):
            self.assertEqual(self.volume.read_bytes(f"/threads/{n}"), bytes([n]) * 100_000)


class NewVolumes(unittest.TestCase):
    def test_a_volume_is_made_and_used(self):
        image = IMAGE + ".made"
        with self.assertRaisesRegex(OSError, "give a size"):
            stetfs.format(image)
        stetfs.format(image, size="32M", label="made", features=["bigalloc", "^resize_inode"])
        with self.assertRaises(FileExistsError):
            stetfs.format(image)
        with stetfs.Volume(image) as volume:
            volume.makedirs("/made")
            with self.assertRaises(OSError) as refused:
                stetfs.format(image, force=True)
            self.assertEqual(refused.exception.errno, errno.EBUSY)
        stetfs.format(image, "size=16M", force=True)
        with stetfs.Volume(image) as volume:
            self.assertLess(volume.space().total, 16 << 20)


unittest.main()
