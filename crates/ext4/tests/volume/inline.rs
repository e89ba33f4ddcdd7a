//! Inline data: content that the kernel stored in inodes is read, written in place, and moved out
//! when it grows.

use std::collections::BTreeMap;
use std::sync::Arc;

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_ext4::{
    Ctx, FallocateMode, Fs, FsError, FsOptions, Ino, OnError, OpenRef, ROOT_INO, RenameFlags,
    SeekWhat, SetAttr, XattrSet,
};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::{Image, KernelMount, Mkfs};

const INLINE: u32 = 0x1000_0000;

fn kernel(image: &Image) -> KernelMount {
    let device = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
    KernelMount::new(device, "ext4", "").unwrap()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8 | 1).collect()
}

/// An image with files of many sizes and small directories, made by the kernel.
fn image(mkfs: &Mkfs) -> Image {
    let image = Image::make(32 << 20, mkfs).unwrap();
    let mount = kernel(&image);
    for len in (0..=200).step_by(20) {
        std::fs::write(mount.path().join(format!("f{len}")), content(len)).unwrap();
    }
    for dir in ["a", "b"] {
        let dir = mount.path().join(dir);
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        for name in ["one", "two"] {
            std::fs::write(dir.join(name), name).unwrap();
        }
    }
    mount.umount().unwrap();
    image
}

struct Vol {
    mem: Arc<MemDevice>,
    fs: Arc<Fs>,
}

impl Vol {
    fn open(image: &Image) -> Vol {
        Vol::on(MemDevice::load(image.path()).unwrap())
    }

    fn on(mem: MemDevice) -> Vol {
        let mem = Arc::new(mem);
        let fs = Fs::open(mem.clone(), FsOptions::default()).unwrap();
        Vol { mem, fs }
    }

    fn ino(&self, path: &str) -> Ino {
        path.split('/').fold(ROOT_INO, |dir, name| {
            let ino = self.fs.lookup(dir, name.as_bytes()).unwrap().ino;
            self.fs.forget(ino, 1);
            ino
        })
    }

    fn file(&self, path: &str) -> OpenRef {
        self.fs
            .open_inode(&Ctx::ROOT, self.ino(path), libc::O_RDWR)
            .unwrap()
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let file = self.file(path);
        let mut all = vec![0xEE; 100_000];
        let n = self.fs.read(&file, 0, &mut all).unwrap();
        all.truncate(n);
        all
    }

    fn is_inline(&self, path: &str) -> bool {
        self.fs.get_flags(self.ino(path)).unwrap() & INLINE != 0
    }

    /// The volume after a crash now, with everything synced, and the volume unmounted. Both are
    /// clean.
    fn both(self) -> [Image; 2] {
        let (tx, rx) = std::sync::mpsc::channel();
        self.fs.sync_all(Box::new(move |r| tx.send(r).unwrap()));
        rx.recv().unwrap().unwrap();
        let crashed = Vol::on(self.mem.fork());
        [crashed, self].map(|v| {
            v.fs.unmount().unwrap();
            let image = Image::sparse(0).unwrap();
            v.mem.save(image.path()).unwrap();
            image.e2fsck_fn().unwrap();
            image
        })
    }
}

fn kinds() -> [Mkfs; 2] {
    [
        Mkfs::blocks(4096).feature("inline_data"),
        Mkfs::blocks(1024)
            .feature("inline_data,^metadata_csum,^extents,^64bit")
            .inode_size(512),
    ]
}

#[test]
fn files_are_written_in_place_and_moved_out() {
    for mkfs in kinds() {
        let image = image(&mkfs);
        let vol = Vol::open(&image);
        let mut expected: BTreeMap<String, Vec<u8>> = (0..=200)
            .step_by(20)
            .map(|len| (format!("f{len}"), content(len)))
            .collect();
        let room = if mkfs.inode_size.is_some() { 200 } else { 128 };
        for (name, content) in &expected {
            assert_eq!(&vol.read(name), content, "{name}");
            // The kernel decides at the first write.
            let inline = !content.is_empty() && content.len() <= room;
            assert_eq!(vol.is_inline(name), inline, "{name}");
            if inline {
                let file = vol.file(name);
                assert_eq!(vol.fs.seek(&file, 0, SeekWhat::Data).unwrap(), 0);
                let hole = vol.fs.seek(&file, 0, SeekWhat::Hole).unwrap();
                assert_eq!(hole, content.len() as u64);
            }
        }
        let put = |all: &mut BTreeMap<String, Vec<u8>>, name: &str, at: usize, data: &[u8]| {
            let file = vol.file(name);
            let n = vol
                .fs
                .write(&Ctx::ROOT, &file, at as u64, data, false)
                .unwrap();
            assert_eq!(n, data.len());
            let content = all.get_mut(name).unwrap();
            content.resize(content.len().max(at + n), 0);
            content[at..at + n].copy_from_slice(data);
            assert_eq!(&vol.read(name), content, "{name}");
        };
        // In place: inside, up to the end, behind a gap, and in the attribute.
        put(&mut expected, "f20", 5, b"inside");
        put(&mut expected, "f20", 40, b"behind a gap");
        put(&mut expected, "f40", 40, b"appended");
        put(&mut expected, "f100", 55, b"over the border");
        for name in ["f20", "f40", "f100"] {
            assert!(vol.is_inline(name), "{name}");
        }
        // Moved out: longer, far away, truncated, punched, with a large attribute in the same
        // inode.
        put(&mut expected, "f60", 50, &[3; 5000]);
        put(&mut expected, "f80", 20_000, b"far");
        for (name, size) in [("f20", 7u64), ("f40", 3000)] {
            let set = SetAttr {
                size: Some(size),
                ..SetAttr::default()
            };
            vol.fs.setattr(&Ctx::ROOT, vol.ino(name), &set).unwrap();
            expected.get_mut(name).unwrap().resize(size as usize, 0);
        }
        let file = vol.file("f100");
        vol.fs
            .fallocate(&Ctx::ROOT, &file, FallocateMode::PunchHole, 10, 20)
            .unwrap();
        drop(file);
        expected.get_mut("f100").unwrap()[10..30].fill(0);
        let value = [9; 300];
        let ino = vol.ino("f0");
        vol.fs
            .setxattr(&Ctx::ROOT, ino, b"user.big", &value, XattrSet::Any)
            .unwrap();
        assert_eq!(vol.fs.listxattr(ino).unwrap(), b"user.big\0");
        vol.fs.unlink(&Ctx::ROOT, ROOT_INO, b"f160").unwrap();
        expected.remove("f160");
        for (name, content) in &expected {
            assert_eq!(&vol.read(name), content, "{name}");
        }
        for name in ["f60", "f80", "f40", "f100"] {
            assert!(!vol.is_inline(name), "{name}");
        }
        for image in vol.both() {
            let mount = kernel(&image);
            for (name, content) in &expected {
                let seen = std::fs::read(mount.path().join(name)).unwrap();
                assert_eq!(&seen, content, "{name}");
            }
            mount.umount().unwrap();
        }
    }
}

#[test]
fn directories_are_read_and_moved_out() {
    for mkfs in kinds() {
        let image = image(&mkfs);
        let vol = Vol::open(&image);
        for dir in ["a", "b", "a/sub"] {
            assert!(vol.is_inline(dir), "{dir}");
        }
        let e = vol.fs.rmdir(&Ctx::ROOT, ROOT_INO, b"a").unwrap_err();
        assert_eq!(e.errno(), libc::ENOTEMPTY);
        // An inline directory is moved to another parent, and stays inline.
        let (a, b) = (vol.ino("a"), vol.ino("b"));
        vol.fs
            .rename(&Ctx::ROOT, a, b"sub", b, b"moved", RenameFlags::default())
            .unwrap();
        assert!(vol.is_inline("b/moved") && !vol.is_inline("a") && !vol.is_inline("b"));
        vol.fs.unlink(&Ctx::ROOT, a, b"one").unwrap();
        for i in 0..100 {
            let name = format!("a longer name {i}");
            let made = vol
                .fs
                .mknod(&Ctx::ROOT, a, name.as_bytes(), libc::S_IFREG | 0o600, 0, 0);
            vol.fs.forget(made.unwrap().ino, 1);
        }
        // An empty inline directory can be removed.
        vol.fs.rmdir(&Ctx::ROOT, b, b"sub").unwrap();
        let names = |dir: &std::path::Path| -> std::collections::BTreeSet<String> {
            let all = std::fs::read_dir(dir).unwrap();
            all.map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect()
        };
        for image in vol.both() {
            let mount = kernel(&image);
            let a = names(&mount.path().join("a"));
            assert_eq!(a.len(), 101);
            assert!(a.contains("two") && !a.contains("one"));
            let b: Vec<String> = names(&mount.path().join("b")).into_iter().collect();
            assert_eq!(b, ["moved", "one", "two"]);
            std::fs::write(mount.path().join("b/moved/../back"), b"x").unwrap();
            assert!(mount.path().join("b/back").exists());
            mount.umount().unwrap();
        }
    }
}

#[test]
fn damage_is_told() {
    let mkfs = Mkfs::blocks(4096).feature("inline_data,^metadata_csum");
    let image = image(&mkfs);
    let damaged = |request: &str| {
        let copy = image.copy().unwrap();
        copy.debugfs_write(request).unwrap();
        let opts = FsOptions {
            on_error: Some(OnError::Continue),
            ..FsOptions::default()
        };
        Fs::open(Arc::new(MemDevice::load(copy.path()).unwrap()), opts).unwrap()
    };
    let corrupt = |result: Result<(), FsError>| {
        let e = result.expect_err("damage was not seen");
        assert_eq!(e.errno(), libc::EUCLEAN, "{e}");
    };
    for size in ["70000", "0x7fffffffffff"] {
        let fs = damaged(&format!("set_inode_field f40 size {size}"));
        let ino = fs.lookup(ROOT_INO, b"f40").unwrap().ino;
        let file = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
        corrupt(fs.read(&file, 0, &mut [0; 100]).map(drop));
        corrupt(fs.write(&Ctx::ROOT, &file, 0, b"x", false).map(drop));
    }
    // The parent, and the first entry's length and inode.
    for (word, value) in [(0, 0u32), (0, u32::MAX), (2, 0x0003_0001), (1, u32::MAX)] {
        let fs = damaged(&format!("set_inode_field a block[{word}] {value}"));
        let dir = fs.lookup(ROOT_INO, b"a").unwrap().ino;
        corrupt(fs.lookup(dir, b"two").map(drop));
        let open = fs.open_inode(&Ctx::ROOT, dir, libc::O_RDONLY).unwrap();
        let mut cookie = 0;
        let listed = (0..8).try_for_each(|_| {
            fs.readdir(&open, cookie, &mut |e| {
                cookie = e.next;
                true
            })
        });
        corrupt(listed);
        corrupt(fs.unlink(&Ctx::ROOT, dir, b"two"));
    }
    // Every byte of a directory's inode is inverted: the result is an answer or an error.
    let device = MemDevice::load(image.path()).unwrap();
    let at = image.debugfs("imap a").unwrap();
    let number = |after: &str| -> u64 {
        let tail = at.split(after).nth(1).unwrap();
        let end = tail
            .find(|c: char| !c.is_ascii_hexdigit() && c != 'x')
            .unwrap_or(tail.len());
        let text = tail[..end].trim();
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        }
    };
    let base = number("located at block ") * 4096 + number("offset ");
    for byte in 0x28..0x100 {
        let device = device.fork();
        let mut old = [0];
        device.read(base + byte, &mut old).unwrap();
        device.write(base + byte, &[!old[0]]).unwrap();
        let opts = FsOptions {
            on_error: Some(OnError::Continue),
            ..FsOptions::default()
        };
        let fs = Fs::open(Arc::new(device), opts).unwrap();
        let Ok(dir) = fs.lookup(ROOT_INO, b"a") else {
            continue;
        };
        let _ = fs.lookup(dir.ino, b"two");
        let _ = fs.mkdir(&Ctx::ROOT, dir.ino, b"new", 0o755, 0);
        let _ = fs.unlink(&Ctx::ROOT, dir.ino, b"one");
    }
}
