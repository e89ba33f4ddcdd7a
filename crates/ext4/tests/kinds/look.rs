//! The tree of a volume as StetFS shows it, in the harness's form.

use std::collections::BTreeMap;

use stetfs_ext4::{Attr, Ctx, FileType, Fs, FsError, Ino, ROOT_INO, SeekWhat};
use stetfs_testkit::Tree;
use stetfs_testkit::tree::{Entry, Kind, Time, content_hash, escape, xattr_value};

/// The content of larger files, which are mostly holes, is not compared here.
const MOST: u64 = 8 << 20;

/// Removes what is not compared: the content of huge files, and values that a name list does not
/// contain.
pub(crate) fn comparable(mut tree: Tree) -> Tree {
    for entry in tree.entries.values_mut() {
        if entry.size.is_some_and(|s| s > MOST) {
            entry.content = None;
        }
        if !matches!(entry.kind, Kind::File | Kind::Directory) {
            entry.flags = None;
        }
    }
    tree
}

/// Removes the runs of data, which on a live volume may differ from those on the device.
pub(crate) fn without_runs(mut tree: Tree) -> Tree {
    for entry in tree.entries.values_mut() {
        entry.data = None;
    }
    tree
}

/// The whole volume except `lost+found`.
pub(crate) fn tree(fs: &Fs) -> Tree {
    let mut look = Look::new(fs);
    look.visit("", ROOT_INO);
    look.done()
}

/// A directory of the root with its content.
pub(crate) fn below(fs: &Fs, dir: &str) -> Tree {
    let mut look = Look::new(fs);
    match fs.lookup(ROOT_INO, dir.as_bytes()) {
        Ok(attr) => {
            look.visit(dir, attr.ino);
            fs.forget(attr.ino, 1);
        }
        Err(e) => assert_eq!(e.errno(), libc::ENOENT),
    }
    look.done()
}

struct Look<'f> {
    fs: &'f Fs,
    entries: BTreeMap<String, Entry>,
    links: BTreeMap<Ino, Vec<String>>,
}

fn kind(attr: &Attr) -> Kind {
    match attr.kind {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    }
}

impl<'f> Look<'f> {
    fn new(fs: &'f Fs) -> Self {
        Look {
            fs,
            entries: BTreeMap::new(),
            links: BTreeMap::new(),
        }
    }

    fn done(mut self) -> Tree {
        for paths in self.links.into_values() {
            let Some(first) = paths.iter().min().cloned().filter(|_| paths.len() > 1) else {
                continue;
            };
            for path in paths {
                if let Some(entry) = self.entries.get_mut(&path) {
                    entry.link_of = Some(first.clone());
                }
            }
        }
        comparable(Tree {
            entries: self.entries,
        })
    }

    fn visit(&mut self, path: &str, ino: Ino) {
        let attr = self
            .fs
            .getattr(ino)
            .unwrap_or_else(|e| panic!("{path}: {e}"));
        let entry = self.entry(&attr).unwrap_or_else(|e| panic!("{path}: {e}"));
        self.entries.insert(path.to_owned(), entry);
        if attr.kind != FileType::Directory {
            if attr.nlink > 1 {
                self.links.entry(ino).or_default().push(path.to_owned());
            }
            return;
        }
        let dir = self.fs.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
        let mut children = Vec::new();
        self.fs
            .readdir(&dir, 0, &mut |e| {
                children.push((e.name, e.ino));
                true
            })
            .unwrap_or_else(|e| panic!("{path}: {e}"));
        drop(dir);
        for (name, ino) in children {
            if name == b"." || name == b".." || (path.is_empty() && name == b"lost+found") {
                continue;
            }
            // The name leads to the inode that the listing names.
            let found = self
                .fs
                .lookup(self.entries[path].inode.unwrap() as Ino, &name);
            let found = found.unwrap_or_else(|e| panic!("{path}/{name:?}: {e}")).ino;
            assert_eq!(found, ino, "{path}/{name:?}");
            let child = match path {
                "" => escape(&name),
                _ => format!("{path}/{}", escape(&name)),
            };
            self.visit(&child, ino);
            self.fs.forget(ino, 1);
        }
    }

    fn entry(&self, attr: &Attr) -> Result<Entry, FsError> {
        let kind = kind(attr);
        let time = |t: stetfs_ondisk::ext4::time::Timestamp| Some(Time(t.sec, i64::from(t.nsec)));
        let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let mut entry = Entry {
            kind,
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            nlink: u64::from(attr.nlink),
            size: Some(attr.size),
            rdev: device.then(|| (libc::major(attr.rdev), libc::minor(attr.rdev))),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            atime: None,
            target: None,
            content: None,
            xattrs: self.xattrs(attr.ino)?,
            link_of: None,
            data: None,
            blocks: Some(attr.blocks),
            inode: Some(u64::from(attr.ino)),
            flags: None,
        };
        if matches!(kind, Kind::File | Kind::Directory) {
            entry.flags = Some(self.fs.get_flags(attr.ino)?);
        }
        if kind == Kind::Symlink {
            entry.target = Some(escape(&self.fs.readlink(attr.ino)?));
        }
        if kind == Kind::File {
            let file =
                self.fs
                    .open_inode(&Ctx::ROOT, attr.ino, libc::O_RDONLY | libc::O_NOATIME)?;
            if attr.size <= MOST {
                let mut content = vec![0xEE; attr.size as usize];
                let n = self.fs.read(&file, 0, &mut content)?;
                assert_eq!(n as u64, attr.size);
                entry.content = Some(content_hash(&content));
            }
            let mut runs = Vec::new();
            let mut at = 0;
            while at < attr.size {
                let Ok(start) = self.fs.seek(&file, at, SeekWhat::Data) else {
                    break;
                };
                let end = self.fs.seek(&file, start, SeekWhat::Hole)?;
                runs.push((start, end - start));
                at = end;
            }
            entry.data = Some(runs);
        }
        Ok(entry)
    }

    fn xattrs(&self, ino: Ino) -> Result<BTreeMap<String, String>, FsError> {
        let list = self.fs.listxattr(ino)?;
        let names = list.split(|b| *b == 0).filter(|n| !n.is_empty());
        names
            .map(|n| Ok((escape(n), xattr_value(&self.fs.getxattr(ino, n)?))))
            .collect()
    }
}
