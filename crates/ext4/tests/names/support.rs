//! Test volumes on images, made by mke2fs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use stetfs_block::{BlockError, FileDevice, OpenOptions};
use stetfs_ext4::{Attr, Ctx, DirEntry, Fs, FsOptions, Ino, OpenRef, ROOT_INO, RenameFlags};
use stetfs_testkit::loopdev::LoopOptions;
use stetfs_testkit::{Image, KernelMount, LoopDev, Mkfs};

pub struct Vol {
    pub image: Image,
    pub fs: Arc<Fs>,
}

/// 1 KiB blocks, so that directories split early.
pub fn small() -> Mkfs {
    Mkfs::blocks(1024).journal_mib(2)
}

/// The image, locked. A child process that another test just started may still hold the lock of a
/// volume closed before, until it executes its program.
pub fn device(path: &Path) -> FileDevice {
    let mut tries = 200;
    loop {
        match FileDevice::open(path, OpenOptions::default()) {
            Err(BlockError::Locked { .. }) if tries > 0 => {
                tries -= 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            opened => return opened.unwrap(),
        }
    }
}

pub fn open(path: &Path) -> Arc<Fs> {
    Fs::open(Arc::new(device(path)), FsOptions::default()).unwrap()
}

impl Vol {
    pub fn new(mib: u64, mkfs: &Mkfs) -> Vol {
        Vol::on(Image::make(mib << 20, mkfs).unwrap())
    }

    pub fn on(image: Image) -> Vol {
        let fs = open(image.path());
        Vol { image, fs }
    }

    /// Unmounts; asserts that e2fsck finds nothing.
    pub fn close(self) -> Image {
        self.fs.unmount().unwrap();
        drop(self.fs);
        self.image.e2fsck_fn().unwrap();
        self.image
    }

    /// Unmounts, checks, and opens again with nothing cached.
    pub fn reopen(self) -> Vol {
        Vol::on(self.close())
    }

    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, i32> {
        let found = self.fs.lookup(parent, name).map_err(|e| e.errno())?;
        self.fs.forget(found.ino, 1);
        Ok(found)
    }

    pub fn ino(&self, path: &str) -> Ino {
        path.split('/')
            .filter(|p| !p.is_empty())
            .fold(ROOT_INO, |dir, name| {
                self.lookup(dir, name.as_bytes())
                    .unwrap_or_else(|e| panic!("{path}: errno {e}"))
                    .ino
            })
    }

    pub fn attr(&self, path: &str) -> Attr {
        self.fs.getattr(self.ino(path)).unwrap()
    }

    /// An empty regular file.
    pub fn file(&self, parent: Ino, name: &[u8]) -> Result<Ino, i32> {
        self.node(parent, name, libc::S_IFREG | 0o644)
    }

    pub fn node(&self, parent: Ino, name: &[u8], mode: u32) -> Result<Ino, i32> {
        let made = self
            .fs
            .mknod(&Ctx::ROOT, parent, name, mode, 0, 0)
            .map_err(|e| e.errno())?;
        self.fs.forget(made.ino, 1);
        Ok(made.ino)
    }

    pub fn mkdir(&self, parent: Ino, name: &[u8]) -> Result<Ino, i32> {
        let made = self
            .fs
            .mkdir(&Ctx::ROOT, parent, name, 0o755, 0)
            .map_err(|e| e.errno())?;
        self.fs.forget(made.ino, 1);
        Ok(made.ino)
    }

    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), i32> {
        self.fs
            .unlink(&Ctx::ROOT, parent, name)
            .map_err(|e| e.errno())
    }

    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<(), i32> {
        self.fs
            .rmdir(&Ctx::ROOT, parent, name)
            .map_err(|e| e.errno())
    }

    pub fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), i32> {
        self.fs
            .rename(&Ctx::ROOT, from.0, from.1, to.0, to.1, flags)
            .map_err(|e| e.errno())
    }

    /// Commits everything, so that freed space counts as free.
    pub fn sync(&self) {
        let (send, wait) = std::sync::mpsc::channel();
        self.fs
            .sync_all(Box::new(move |done| send.send(done).unwrap()));
        wait.recv().unwrap().unwrap();
    }

    pub fn open_dir(&self, ino: Ino) -> OpenRef {
        self.fs
            .open_inode(&Ctx::ROOT, ino, libc::O_RDONLY | libc::O_DIRECTORY)
            .unwrap()
    }

    /// All entries, `room` at a time: each call continues from the last entry's cookie.
    pub fn list_by(&self, dir: Ino, room: usize) -> Vec<DirEntry> {
        let open = self.open_dir(dir);
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            let batch = batch(&self.fs, &open, cookie, room);
            let Some(last) = batch.last() else { return all };
            cookie = last.next;
            all.extend(batch);
        }
    }

    /// Names and inodes without `.` and `..`; asserts that no name comes twice.
    pub fn names(&self, dir: Ino) -> BTreeMap<Vec<u8>, Ino> {
        let mut names = BTreeMap::new();
        for e in self.list_by(dir, usize::MAX) {
            if e.name != b"." && e.name != b".." {
                assert_eq!(
                    names.insert(e.name.clone(), e.ino),
                    None,
                    "{} twice",
                    e.name.escape_ascii()
                );
            }
        }
        names
    }
}

/// Up to `room` entries from `cookie` on.
pub fn batch(fs: &Fs, open: &OpenRef, cookie: u64, room: usize) -> Vec<DirEntry> {
    let mut batch: Vec<DirEntry> = Vec::new();
    fs.readdir(open, cookie, &mut |entry| {
        if batch.len() == room {
            return false;
        }
        batch.push(entry);
        true
    })
    .unwrap();
    batch
}

/// Mounts an image with the kernel's ext4.
pub fn kernel(image: &Image) -> KernelMount {
    let device = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
    KernelMount::new(device, "ext4", "acl").unwrap()
}

/// A random number generator without dependencies: xorshift.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
}
