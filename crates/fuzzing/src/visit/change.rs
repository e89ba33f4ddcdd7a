//! Random changes of a volume; each may fail.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use stetfs::low::{Ctx, FallocateMode, Fs, FsError, Ino, ROOT_INO, RenameFlags, SetAttr, XattrSet};

use super::look::Found;

/// Makes a few changes of each kind; most may fail.
pub fn change(fs: &Arc<Fs>, found: &Found, rng: &mut fastrand::Rng) {
    let mut visitor = Visitor {
        fs,
        ctx: Ctx::default(),
        found,
        rng,
    };
    for i in 0..30 {
        let at = visitor.draw(i);
        match visitor.rng.u8(0..13) {
            0 => visitor.create(&at),
            1 => visitor.mkdir(&at),
            2 => visitor.symlink(&at),
            3 => visitor.link(&at),
            4 => visitor.unlink(&at),
            5 => visitor.rmdir(&at),
            6 => visitor.rename(&at),
            7 => visitor.rename_onto(&at),
            8 => visitor.resize(&at),
            9 => visitor.set_xattr(&at),
            10 => visitor.remove_xattr(&at),
            11 => visitor.allocate(&at),
            _ => visitor.sync(),
        }
    }
}

/// The visitor, with its random choices.
struct Visitor<'a> {
    fs: &'a Arc<Fs>,
    ctx: Ctx,
    found: &'a Found,
    rng: &'a mut fastrand::Rng,
}

/// The objects of a change.
struct At {
    dir: Ino,
    file: Ino,
    /// A directory and a name in it.
    name: (Ino, Vec<u8>),
    /// A name that does not exist yet.
    new: Vec<u8>,
}

impl Visitor<'_> {
    /// Draws the objects of change number `i`.
    fn draw(&mut self, i: usize) -> At {
        let dir = self.rng.choice(&self.found.dirs);
        let dir = dir.copied().unwrap_or(ROOT_INO);
        let file = self.rng.choice(&self.found.files);
        let file = file.copied().unwrap_or(ROOT_INO);
        let name = self.rng.choice(&self.found.names).cloned();
        let name = name.unwrap_or((ROOT_INO, b"x".to_vec()));
        let new = format!("new{i}{}", "-".repeat(self.rng.usize(..200)));
        At {
            dir,
            file,
            name,
            new: new.into_bytes(),
        }
    }

    fn forget(&self, made: Result<stetfs::low::Attr, FsError>) {
        if let Ok(attr) = made {
            self.fs.forget(attr.ino, 1);
        }
    }
}

/// Changes of names.
impl Visitor<'_> {
    fn create(&mut self, at: &At) {
        let made = self
            .fs
            .create(&self.ctx, at.dir, &at.new, 0o644, 0, libc::O_RDWR);
        if let Ok((attr, open)) = made {
            let offset = self.rng.u64(..1 << 20);
            let data = vec![1; self.rng.usize(..50_000)];
            let _ = self.fs.write(&self.ctx, &open, offset, &data, false);
            drop(open);
            self.fs.forget(attr.ino, 1);
        }
    }

    fn mkdir(&mut self, at: &At) {
        self.forget(self.fs.mkdir(&self.ctx, at.dir, &at.new, 0o755, 0));
    }

    fn symlink(&mut self, at: &At) {
        let target = vec![b't'; self.rng.usize(1..900)];
        self.forget(self.fs.symlink(&self.ctx, at.dir, &at.new, &target));
    }

    fn link(&mut self, at: &At) {
        self.forget(self.fs.link(&self.ctx, at.file, at.dir, &at.new));
    }

    fn unlink(&mut self, at: &At) {
        let (parent, name) = &at.name;
        drop(self.fs.unlink(&self.ctx, *parent, name));
    }

    fn rmdir(&mut self, at: &At) {
        let (parent, name) = &at.name;
        drop(self.fs.rmdir(&self.ctx, *parent, name));
    }

    fn rename(&mut self, at: &At) {
        let (parent, name) = &at.name;
        let flags = RenameFlags::default();
        drop(
            self.fs
                .rename(&self.ctx, *parent, name, at.dir, &at.new, flags),
        );
    }

    /// Renames onto an existing name, if there is one, or exchanges the two.
    fn rename_onto(&mut self, at: &At) {
        let (parent, name) = &at.name;
        let other = self.rng.choice(&self.found.names).cloned();
        let (other, other_name) = other.unwrap_or((at.dir, at.new.clone()));
        let flags = RenameFlags {
            exchange: self.rng.bool(),
            ..RenameFlags::default()
        };
        drop(
            self.fs
                .rename(&self.ctx, *parent, name, other, &other_name, flags),
        );
    }
}

/// Changes of attributes.
impl Visitor<'_> {
    fn resize(&mut self, at: &At) {
        let sizes = [0, 1, 5000, 1 << 20, 1 << 40, u64::MAX];
        let set = SetAttr {
            size: Some(*self.rng.choice(&sizes).unwrap()),
            mode: Some(0o600),
            ..SetAttr::default()
        };
        drop(self.fs.setattr(&self.ctx, at.file, &set));
    }

    fn set_xattr(&mut self, at: &At) {
        let value = vec![b'v'; *self.rng.choice(&[0, 10, 300, 900]).unwrap()];
        let how = XattrSet::Any;
        drop(
            self.fs
                .setxattr(&self.ctx, at.file, b"user.new", &value, how),
        );
    }

    fn remove_xattr(&mut self, at: &At) {
        drop(self.fs.removexattr(&self.ctx, at.file, b"user.large"));
    }
}

/// Changes of content.
impl Visitor<'_> {
    fn allocate(&mut self, at: &At) {
        let Ok(open) = self.fs.open_inode(&self.ctx, at.file, libc::O_RDWR) else {
            return;
        };
        let modes = [
            FallocateMode::PunchHole,
            FallocateMode::ZeroRange { keep_size: true },
            FallocateMode::Allocate { keep_size: false },
        ];
        let mode = *self.rng.choice(&modes).unwrap();
        let (offset, len) = (self.rng.u64(..1 << 20), self.rng.u64(1..1 << 18));
        drop(self.fs.fallocate(&self.ctx, &open, mode, offset, len));
        let offset = self.rng.u64(..1 << 22);
        drop(self.fs.write(&self.ctx, &open, offset, &[2; 3000], false));
    }

    fn sync(&mut self) {
        let (answer, wait) = mpsc::channel();
        self.fs.sync_all(Box::new(move |r| drop(answer.send(r))));
        let _ = wait
            .recv_timeout(Duration::from_secs(50))
            .expect("a sync is answered");
    }
}
