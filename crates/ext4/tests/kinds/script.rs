//! Random calls of every kind, all of which must succeed: the writes of StetFS.

use stetfs_ext4::{Ctx, FallocateMode, Fs, Ino, OpenRef, ROOT_INO, RenameFlags, SetAttr, XattrSet};

use crate::kinds::volumes::Kind;

/// A directory and the names that were made in it.
pub(crate) struct Script {
    rng: fastrand::Rng,
    preallocates: bool,
    projects: bool,
    /// The most bytes of an attribute's value.
    value: usize,
    dir: Option<String>,
    files: Vec<String>,
    others: Vec<String>,
    serial: u32,
}

fn top(fs: &Fs, name: &str) -> Ino {
    let ino = match fs.lookup(ROOT_INO, name.as_bytes()) {
        Ok(attr) => attr.ino,
        Err(_) => {
            fs.mkdir(&Ctx::ROOT, ROOT_INO, name.as_bytes(), 0o755, 0)
                .unwrap()
                .ino
        }
    };
    fs.forget(ino, 1);
    ino
}

impl Script {
    pub(crate) fn new(seed: u64, kind: &Kind) -> Script {
        Script {
            rng: fastrand::Rng::with_seed(seed),
            preallocates: kind.preallocates,
            projects: kind.projects(),
            value: if kind.values { 20_000 } else { 180 },
            dir: None,
            files: Vec::new(),
            others: Vec::new(),
            serial: 0,
        }
    }

    /// Continues in a new directory of the root.
    pub(crate) fn enter(&mut self, fs: &Fs, dir: &str) {
        top(fs, dir);
        self.dir = Some(dir.to_owned());
        self.files.clear();
        self.others.clear();
    }

    fn name(&mut self) -> String {
        self.serial += 1;
        format!("{:04}-{}", self.serial, "n".repeat(self.rng.usize(0..60)))
    }

    fn open(&self, fs: &Fs, dir: Ino, name: &str) -> OpenRef {
        let ino = fs.lookup(dir, name.as_bytes()).unwrap().ino;
        let file = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
        fs.forget(ino, 1);
        file
    }

    fn pick(&mut self) -> Option<String> {
        let n = self.files.len();
        (n > 0).then(|| self.files[self.rng.usize(..n)].clone())
    }

    /// Makes `count` random calls.
    pub(crate) fn run(&mut self, fs: &Fs, count: usize) {
        let dir = self.dir.clone().unwrap_or_else(|| "tree".into());
        let dir = top(fs, &dir);
        for _ in 0..count {
            self.step(fs, dir);
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.rng.u8(..8) {
            0..4 => self.rng.usize(1..200),
            4..7 => self.rng.usize(1..9000),
            _ => self.rng.usize(1..400_000),
        };
        let salt = self.rng.u8(..);
        (0..len)
            .map(|i| (i as u8).wrapping_mul(31) ^ salt | 1)
            .collect()
    }

    fn step(&mut self, fs: &Fs, dir: Ino) {
        match self.rng.u8(..24) {
            0..5 => {
                let (name, bytes) = (self.name(), self.bytes());
                let (attr, file) = fs
                    .create(&Ctx::ROOT, dir, name.as_bytes(), 0o644, 0, libc::O_RDWR)
                    .unwrap();
                assert_eq!(
                    fs.write(&Ctx::ROOT, &file, 0, &bytes, false).unwrap(),
                    bytes.len()
                );
                drop(file);
                fs.forget(attr.ino, 1);
                self.files.push(name);
            }
            5..8 => {
                let Some(name) = self.pick() else { return };
                let file = self.open(fs, dir, &name);
                let bytes = self.bytes();
                // Sometimes so far out that a block map needs its higher branches.
                let reach = [1u64 << 13, 1 << 17, 1 << 21, 70 << 20][self.rng.usize(..4)];
                let at = self.rng.u64(..reach);
                assert_eq!(
                    fs.write(&Ctx::ROOT, &file, at, &bytes, false).unwrap(),
                    bytes.len()
                );
            }
            8..10 => {
                let Some(name) = self.pick() else { return };
                let file = self.open(fs, dir, &name);
                let bits = [8, 14, 18, 24][self.rng.usize(..4)];
                let size = self.rng.u64(..1 << bits);
                let set = SetAttr {
                    size: Some(size),
                    ..SetAttr::default()
                };
                fs.setattr(&Ctx::ROOT, file.ino(), &set).unwrap();
            }
            10 => {
                let Some(name) = self.pick() else { return };
                let file = self.open(fs, dir, &name);
                let (at, len) = (self.rng.u64(..200_000), self.rng.u64(1..100_000));
                fs.fallocate(&Ctx::ROOT, &file, FallocateMode::PunchHole, at, len)
                    .unwrap();
                if self.preallocates {
                    let mode = FallocateMode::Allocate {
                        keep_size: self.rng.bool(),
                    };
                    fs.fallocate(&Ctx::ROOT, &file, mode, at / 2, len).unwrap();
                }
            }
            11 => {
                let name = self.name();
                let sub = fs
                    .mkdir(&Ctx::ROOT, dir, name.as_bytes(), 0o750, 0)
                    .unwrap();
                for i in 0..self.rng.u32(0..40) {
                    let leaf = format!("leaf-{i}-{}", "x".repeat(self.rng.usize(0..100)));
                    let made = fs.mknod(
                        &Ctx::ROOT,
                        sub.ino,
                        leaf.as_bytes(),
                        libc::S_IFREG | 0o600,
                        0,
                        0,
                    );
                    fs.forget(made.unwrap().ino, 1);
                }
                fs.forget(sub.ino, 1);
                self.others.push(name);
            }
            12 => {
                let name = self.name();
                let target = "t".repeat(self.rng.usize(1..300));
                let made = fs
                    .symlink(&Ctx::ROOT, dir, name.as_bytes(), target.as_bytes())
                    .unwrap();
                fs.forget(made.ino, 1);
                self.others.push(name);
            }
            13 => {
                let name = self.name();
                let (mode, rdev) = match self.rng.u8(..3) {
                    0 => (libc::S_IFIFO, 0),
                    1 => (libc::S_IFCHR, libc::makedev(5, 1)),
                    _ => (libc::S_IFBLK, libc::makedev(259, 70_000)),
                };
                let made = fs
                    .mknod(&Ctx::ROOT, dir, name.as_bytes(), mode | 0o640, 0, rdev)
                    .unwrap();
                fs.forget(made.ino, 1);
                self.others.push(name);
            }
            14..17 => {
                let Some(name) = self.pick() else { return };
                let file = self.open(fs, dir, &name);
                let key = format!("user.key{}", self.rng.u8(..4));
                if self.rng.u8(..5) == 0 {
                    match fs.removexattr(&Ctx::ROOT, file.ino(), key.as_bytes()) {
                        Err(e) if e.errno() == libc::ENODATA => {}
                        removed => removed.unwrap(),
                    }
                    return;
                }
                let len = self.rng.usize(..self.value);
                let value = vec![self.rng.u8(..); len];
                fs.setxattr(
                    &Ctx::ROOT,
                    file.ino(),
                    key.as_bytes(),
                    &value,
                    XattrSet::Any,
                )
                .unwrap();
            }
            17 => {
                let Some(name) = self.pick() else { return };
                let file = self.open(fs, dir, &name);
                let new = self.name();
                fs.link(&Ctx::ROOT, file.ino(), dir, new.as_bytes())
                    .unwrap();
                fs.forget(file.ino(), 1);
                self.files.push(new);
            }
            18 => {
                let Some(name) = self.pick() else { return };
                let set = SetAttr {
                    mode: Some(self.rng.u32(..0o1000)),
                    uid: Some(self.rng.u32(..200_000)),
                    gid: self.rng.bool().then(|| self.rng.u32(..20)),
                    ..SetAttr::default()
                };
                let file = self.open(fs, dir, &name);
                fs.setattr(&Ctx::ROOT, file.ino(), &set).unwrap();
                if self.projects {
                    let project = self.rng.u32(..) >> self.rng.u32(..32);
                    fs.set_project(&Ctx::ROOT, file.ino(), project).unwrap();
                }
            }
            19..21 => {
                let Some(name) = self.pick() else { return };
                let new = self.name();
                let (old, to) = (name.as_bytes(), new.as_bytes());
                fs.rename(&Ctx::ROOT, dir, old, dir, to, RenameFlags::default())
                    .unwrap();
                self.files.retain(|f| *f != name);
                self.files.push(new);
            }
            21..23 => {
                let Some(name) = self.pick() else { return };
                fs.unlink(&Ctx::ROOT, dir, name.as_bytes()).unwrap();
                self.files.retain(|f| *f != name);
            }
            _ => {
                if let Some(name) = self.others.pop() {
                    remove(fs, dir, name.as_bytes());
                }
            }
        }
    }
}

/// Removes a name of the root with all below it.
pub(crate) fn remove_all(fs: &Fs, name: &str) {
    remove(fs, ROOT_INO, name.as_bytes());
}

fn remove(fs: &Fs, parent: Ino, name: &[u8]) {
    let attr = fs.lookup(parent, name).unwrap();
    fs.forget(attr.ino, 1);
    if attr.kind != stetfs_ext4::FileType::Directory {
        return fs.unlink(&Ctx::ROOT, parent, name).unwrap();
    }
    let dir = fs.open_inode(&Ctx::ROOT, attr.ino, libc::O_RDONLY).unwrap();
    let mut names = Vec::new();
    fs.readdir(&dir, 0, &mut |e| {
        names.push(e.name);
        true
    })
    .unwrap();
    drop(dir);
    for child in names.iter().filter(|n| *n != b"." && *n != b"..") {
        remove(fs, attr.ino, child);
    }
    fs.rmdir(&Ctx::ROOT, parent, name).unwrap();
}
