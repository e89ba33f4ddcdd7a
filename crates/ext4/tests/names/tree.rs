//! Model test of the whole tree: every operation on names, with the errors that it must give.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stetfs_ext4::{Attr, Ctx, FileType, Ino, OpenRef, ROOT_INO, RenameFlags};

use crate::names::support::{Vol, small};

type Id = usize;

#[derive(Clone, Debug)]
enum Node {
    Dir {
        parent: Id,
        entries: BTreeMap<Vec<u8>, Id>,
    },
    File {
        links: u32,
    },
}

/// The expected tree.
struct Model {
    nodes: Vec<Node>,
    inos: Vec<Ino>,
}

type Outcome<T = ()> = Result<T, i32>;

impl Model {
    fn new() -> Model {
        let root = Node::Dir {
            parent: 0,
            entries: BTreeMap::new(),
        };
        Model {
            nodes: vec![root],
            inos: vec![ROOT_INO],
        }
    }

    fn entries(&self, dir: Id) -> &BTreeMap<Vec<u8>, Id> {
        match &self.nodes[dir] {
            Node::Dir { entries, .. } => entries,
            Node::File { .. } => panic!("not a directory"),
        }
    }

    fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.nodes[dir] {
            Node::Dir { entries, .. } => entries,
            Node::File { .. } => panic!("not a directory"),
        }
    }

    fn is_dir(&self, id: Id) -> bool {
        matches!(self.nodes[id], Node::Dir { .. })
    }

    fn set_parent(&mut self, dir: Id, to: Id) {
        if let Node::Dir { parent, .. } = &mut self.nodes[dir] {
            *parent = to;
        }
    }

    /// Whether `above` is `dir` or an ancestor of it.
    fn is_above(&self, above: Id, mut dir: Id) -> bool {
        loop {
            if dir == above {
                return true;
            }
            match &self.nodes[dir] {
                Node::Dir { parent, .. } if dir != 0 => dir = *parent,
                _ => return false,
            }
        }
    }

    /// Directories in the tree.
    fn dirs(&self) -> Vec<Id> {
        let (mut dirs, mut at) = (vec![0], 0);
        while let Some(dir) = dirs.get(at).copied() {
            dirs.extend(self.entries(dir).values().filter(|c| self.is_dir(**c)));
            at += 1;
        }
        dirs
    }

    fn drop_link(&mut self, id: Id) {
        if let Node::File { links } = &mut self.nodes[id] {
            *links -= 1;
        }
    }

    fn may_remove(&self, dir: Id, name: &[u8], want_dir: bool) -> Outcome<Id> {
        let id = *self.entries(dir).get(name).ok_or(libc::ENOENT)?;
        match (want_dir, self.is_dir(id)) {
            (true, false) => Err(libc::ENOTDIR),
            (false, true) => Err(libc::EISDIR),
            (true, true) if !self.entries(id).is_empty() => Err(libc::ENOTEMPTY),
            _ => Ok(id),
        }
    }

    fn rename(&mut self, from: (Id, &[u8]), to: (Id, &[u8]), flags: RenameFlags) -> Outcome {
        let source = *self.entries(from.0).get(from.1).ok_or(libc::ENOENT)?;
        let crosses = from.0 != to.0;
        if crosses && self.is_above(source, to.0) {
            return Err(libc::EINVAL);
        }
        let target = self.entries(to.0).get(to.1).copied();
        match target {
            Some(_) if flags.no_replace => return Err(libc::EEXIST),
            Some(t) if crosses && self.is_above(t, from.0) => {
                return Err(if flags.exchange {
                    libc::EINVAL
                } else {
                    libc::ENOTEMPTY
                });
            }
            None if flags.exchange => return Err(libc::ENOENT),
            Some(t) if t == source => return Ok(()),
            _ => {}
        }
        if flags.exchange {
            let target = target.unwrap();
            self.entries_mut(from.0).insert(from.1.to_vec(), target);
            self.entries_mut(to.0).insert(to.1.to_vec(), source);
            self.set_parent(target, from.0);
            self.set_parent(source, to.0);
            return Ok(());
        }
        if let Some(t) = target {
            match (self.is_dir(source), self.is_dir(t)) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => return Err(libc::EISDIR),
                (true, true) if !self.entries(t).is_empty() => return Err(libc::ENOTEMPTY),
                _ => {}
            }
            self.drop_link(t);
        }
        self.entries_mut(to.0).insert(to.1.to_vec(), source);
        self.entries_mut(from.0).remove(from.1);
        self.set_parent(source, to.0);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    File,
    Dir,
    Link,
    Unlink,
    Rmdir,
    Rename(RenameFlags),
}

#[derive(Clone, Debug)]
struct Op {
    kind: Kind,
    dirs: (prop::sample::Index, prop::sample::Index),
    names: (u8, u8),
    which: prop::sample::Index,
}

fn op() -> impl Strategy<Value = Op> {
    let plain = RenameFlags::default();
    let kind = prop_oneof![
        3 => Just(Kind::File),
        4 => Just(Kind::Dir),
        1 => Just(Kind::Link),
        1 => Just(Kind::Unlink),
        1 => Just(Kind::Rmdir),
        5 => Just(Kind::Rename(plain)),
        1 => Just(Kind::Rename(RenameFlags { no_replace: true, ..plain })),
        3 => Just(Kind::Rename(RenameFlags { exchange: true, ..plain })),
    ];
    let index = || any::<prop::sample::Index>();
    (kind, (index(), index()), (0u8..7, 0u8..7), index()).prop_map(|(kind, dirs, names, which)| {
        Op {
            kind,
            dirs,
            names,
            which,
        }
    })
}

fn name(n: u8) -> Vec<u8> {
    // One long name, so that directories of 1 KiB blocks outgrow their block.
    if n == 0 {
        vec![b'l'; 250]
    } else {
        vec![b'a' + n]
    }
}

fn walk(vol: &Vol, model: &Model, dir: Id) {
    let names = vol.names(model.inos[dir]);
    let wanted: BTreeMap<Vec<u8>, Ino> = model
        .entries(dir)
        .iter()
        .map(|(name, id)| (name.clone(), model.inos[*id]))
        .collect();
    assert_eq!(names, wanted, "directory {dir}");
    let mut subdirs = 0;
    for (name, id) in model.entries(dir) {
        let attr = vol.lookup(model.inos[dir], name).unwrap();
        match &model.nodes[*id] {
            Node::Dir { parent, .. } => {
                subdirs += 1;
                assert_eq!(attr.kind, FileType::Directory);
                assert_eq!(
                    vol.lookup(attr.ino, b"..").unwrap().ino,
                    model.inos[*parent]
                );
                walk(vol, model, *id);
            }
            Node::File { links } => {
                assert_eq!((attr.kind, attr.nlink), (FileType::Regular, *links))
            }
        }
    }
    assert_eq!(
        vol.fs.getattr(model.inos[dir]).unwrap().nlink,
        2 + subdirs,
        "links of directory {dir}"
    );
}

fn step(vol: &Vol, model: &mut Model, op: &Op) -> Result<(), TestCaseError> {
    let dirs = model.dirs();
    let (d1, d2) = (
        dirs[op.dirs.0.index(dirs.len())],
        dirs[op.dirs.1.index(dirs.len())],
    );
    let (i1, i2) = (model.inos[d1], model.inos[d2]);
    let (n1, n2) = (name(op.names.0), name(op.names.1));
    match op.kind {
        Kind::File | Kind::Dir => {
            let is_dir = matches!(op.kind, Kind::Dir);
            let made = if is_dir {
                vol.mkdir(i1, &n1)
            } else {
                vol.file(i1, &n1)
            };
            if model.entries(d1).contains_key(&n1) {
                prop_assert_eq!(made, Err(libc::EEXIST));
                return Ok(());
            }
            let id = model.nodes.len();
            model.inos.push(made.unwrap());
            model.nodes.push(if is_dir {
                Node::Dir {
                    parent: d1,
                    entries: BTreeMap::new(),
                }
            } else {
                Node::File { links: 1 }
            });
            model.entries_mut(d1).insert(n1, id);
        }
        Kind::Link => {
            let all: Vec<Id> = model
                .dirs()
                .iter()
                .flat_map(|d| model.entries(*d).values().copied())
                .collect();
            let Some(id) = (!all.is_empty()).then(|| all[op.which.index(all.len())]) else {
                return Ok(());
            };
            let linked = vol
                .fs
                .link(&Ctx::ROOT, model.inos[id], i1, &n1)
                .map_err(|e| e.errno());
            match &mut model.nodes[id] {
                Node::Dir { .. } => prop_assert_eq!(linked.unwrap_err(), libc::EPERM),
                Node::File { links } => match linked {
                    Ok(Attr { ino, nlink, .. }) => {
                        *links += 1;
                        prop_assert_eq!(nlink, *links);
                        vol.fs.forget(ino, 1);
                        prop_assert_eq!(model.entries_mut(d1).insert(n1, id), None);
                    }
                    Err(e) => {
                        prop_assert_eq!(e, libc::EEXIST);
                        prop_assert!(model.entries(d1).contains_key(&n1));
                    }
                },
            }
        }
        Kind::Unlink | Kind::Rmdir => {
            let want_dir = matches!(op.kind, Kind::Rmdir);
            let removed = if want_dir {
                vol.rmdir(i1, &n1)
            } else {
                vol.unlink(i1, &n1)
            };
            let wanted = model.may_remove(d1, &n1, want_dir);
            prop_assert_eq!(removed, wanted.map(drop));
            if let Ok(id) = wanted {
                model.entries_mut(d1).remove(&n1);
                model.drop_link(id);
            }
        }
        Kind::Rename(flags) => {
            let done = vol.rename((i1, &n1), (i2, &n2), flags);
            prop_assert_eq!(done, model.rename((d1, &n1), (d2, &n2), flags));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_behaves_like_its_model(ops in prop::collection::vec(op(), 1..300)) {
        let vol = Vol::new(16, &small());
        vol.rmdir(ROOT_INO, b"lost+found").unwrap();
        let mut model = Model::new();
        for op in &ops {
            step(&vol, &mut model, op)?;
        }
        walk(&vol, &model, 0);
        vol.mkdir(ROOT_INO, b"lost+found").unwrap();
        let vol = vol.reopen();
        vol.rmdir(ROOT_INO, b"lost+found").unwrap();
        walk(&vol, &model, 0);
        vol.mkdir(ROOT_INO, b"lost+found").unwrap();
        vol.close();
    }
}

#[test]
fn a_whiteout_stays_behind() {
    let vol = Vol::new(16, &small());
    let file = vol.file(ROOT_INO, b"a").unwrap();
    let dir = vol.mkdir(ROOT_INO, b"d").unwrap();
    let flags = RenameFlags {
        whiteout: true,
        ..RenameFlags::default()
    };
    vol.rename((ROOT_INO, b"a"), (dir, b"b"), flags).unwrap();
    let white = vol.attr("a");
    assert_eq!(
        (white.kind, white.rdev, white.nlink),
        (FileType::CharDevice, 0, 1)
    );
    assert_eq!(vol.ino("d/b"), file);
    // Over an existing name, in one directory, with a split of the old name's block on the way.
    for i in 0..200 {
        vol.file(dir, format!("name-{i}").as_bytes()).unwrap();
        vol.rename(
            (dir, format!("name-{i}").as_bytes()),
            (dir, format!("moved-{i}").as_bytes()),
            flags,
        )
        .unwrap();
    }
    assert_eq!(vol.names(dir).len(), 401);
    vol.close();
}

#[test]
fn flags_that_exclude_each_other_are_refused() {
    let vol = Vol::new(8, &small());
    vol.file(ROOT_INO, b"a").unwrap();
    vol.file(ROOT_INO, b"b").unwrap();
    for flags in [
        RenameFlags {
            exchange: true,
            no_replace: true,
            whiteout: false,
        },
        RenameFlags {
            exchange: true,
            no_replace: false,
            whiteout: true,
        },
    ] {
        assert_eq!(
            vol.rename((ROOT_INO, b"a"), (ROOT_INO, b"b"), flags),
            Err(libc::EINVAL)
        );
    }
    assert_eq!(
        vol.rename((ROOT_INO, b"a"), (ROOT_INO, b".."), RenameFlags::default()),
        Err(libc::EBUSY)
    );
    vol.close();
}

fn free(vol: &Vol) -> (u64, u64) {
    vol.sync();
    (vol.fs.statfs().bfree, vol.fs.statfs().ffree)
}

#[test]
fn an_open_file_lives_on_without_a_name() {
    let vol = Vol::new(16, &small());
    let before = free(&vol);
    let (attr, open): (Attr, OpenRef) = vol
        .fs
        .create(&Ctx::ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
        .unwrap();
    vol.fs
        .write(&Ctx::ROOT, &open, 0, &[7; 5000], false)
        .unwrap();
    vol.unlink(ROOT_INO, b"file").unwrap();
    assert_eq!(vol.lookup(ROOT_INO, b"file").unwrap_err(), libc::ENOENT);
    let now = vol.fs.getattr(attr.ino).unwrap();
    assert_eq!((now.nlink, now.size), (0, 5000));
    let mut buf = [0; 10];
    assert_eq!(vol.fs.read(&open, 4990, &mut buf).unwrap(), 10);
    assert_eq!(buf, [7; 10]);
    let refused = vol
        .fs
        .link(&Ctx::ROOT, attr.ino, ROOT_INO, b"again")
        .unwrap_err();
    assert_eq!(refused.errno(), libc::ENOENT);
    drop(open);
    assert_ne!(free(&vol).1, before.1, "the kernel still knows the inode");
    vol.fs.forget(attr.ino, 1);
    assert_eq!(free(&vol), before);
    // The same by a rename over it, and for a directory.
    let (old, open) = vol
        .fs
        .create(&Ctx::ROOT, ROOT_INO, b"old", 0o600, 0, libc::O_RDWR)
        .unwrap();
    vol.fs.forget(old.ino, 1);
    vol.file(ROOT_INO, b"new").unwrap();
    vol.rename(
        (ROOT_INO, b"new"),
        (ROOT_INO, b"old"),
        RenameFlags::default(),
    )
    .unwrap();
    assert_eq!(vol.fs.getattr(old.ino).unwrap().nlink, 0);
    drop(open);
    vol.unlink(ROOT_INO, b"old").unwrap();
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let open = vol.open_dir(dir);
    vol.rmdir(ROOT_INO, b"dir").unwrap();
    assert_eq!(vol.file(dir, b"x"), Err(libc::ENOENT));
    drop(open);
    assert_eq!(free(&vol), before);
    vol.close();
}

#[test]
fn times_follow_the_names() {
    let vol = Vol::new(16, &small());
    let a = vol.mkdir(ROOT_INO, b"a").unwrap();
    let b = vol.mkdir(ROOT_INO, b"b").unwrap();
    let file = vol.file(a, b"file").unwrap();
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    let get = |ino| vol.fs.getattr(ino).unwrap();
    let before = [a, b, file].map(get);
    pause();
    vol.rename((a, b"file"), (b, b"file"), RenameFlags::default())
        .unwrap();
    let after = [a, b, file].map(get);
    for dir in 0..2 {
        assert!(after[dir].mtime > before[dir].mtime && after[dir].ctime > before[dir].ctime);
    }
    assert!(after[2].ctime > before[2].ctime);
    assert_eq!(after[2].mtime, before[2].mtime);
    pause();
    let linked = vol.fs.link(&Ctx::ROOT, file, a, b"second").unwrap();
    vol.fs.forget(file, 1);
    assert!(linked.ctime > after[2].ctime && get(a).mtime > after[0].mtime);
    assert_eq!(get(b).mtime, after[1].mtime);
    vol.close();
}

#[test]
fn immutable_and_append_only_are_kept() {
    const IMMUTABLE: u32 = 0x10;
    const APPEND: u32 = 0x20;
    let vol = Vol::new(16, &small());
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let file = vol.file(dir, b"file").unwrap();
    let flag = |ino, f| {
        vol.fs
            .set_flags(
                &Ctx::ROOT,
                ino,
                (vol.fs.get_flags(ino).unwrap() & !0x30) | f,
            )
            .unwrap()
    };
    flag(file, IMMUTABLE);
    let plain = RenameFlags::default();
    assert_eq!(vol.unlink(dir, b"file"), Err(libc::EPERM));
    assert_eq!(
        vol.rename((dir, b"file"), (dir, b"other"), plain),
        Err(libc::EPERM)
    );
    assert_eq!(
        vol.fs
            .link(&Ctx::ROOT, file, dir, b"other")
            .unwrap_err()
            .errno(),
        libc::EPERM
    );
    flag(file, 0);
    flag(dir, APPEND);
    assert_eq!(vol.unlink(dir, b"file"), Err(libc::EPERM));
    vol.file(dir, b"added").unwrap();
    assert_eq!(
        vol.rename((dir, b"file"), (ROOT_INO, b"file"), plain),
        Err(libc::EPERM)
    );
    flag(dir, IMMUTABLE);
    assert_eq!(vol.file(dir, b"more"), Err(libc::EPERM));
    let user = stetfs_ext4::Ctx {
        uid: 1000,
        gid: 1000,
        pid: 1,
    };
    assert_eq!(
        vol.fs.set_flags(&user, dir, 0).unwrap_err().errno(),
        libc::EPERM
    );
    flag(dir, 0);
    // A user's own file: the user may change harmless flags, but not these two.
    let own = vol
        .fs
        .mknod(&user, dir, b"own", libc::S_IFREG | 0o600, 0, 0)
        .unwrap()
        .ino;
    vol.fs.forget(own, 1);
    let flags = vol.fs.get_flags(own).unwrap();
    vol.fs.set_flags(&user, own, flags | 0x40).unwrap();
    assert_eq!(vol.fs.get_flags(own).unwrap(), flags | 0x40);
    assert_eq!(
        vol.fs
            .set_flags(&user, own, flags | IMMUTABLE)
            .unwrap_err()
            .errno(),
        libc::EPERM
    );
    // A flag for directories, and a flag that no user may set.
    for other in [0x4000_0000, 0x4_0000] {
        let refused = vol.fs.set_flags(&Ctx::ROOT, own, flags | other);
        assert_eq!(refused.unwrap_err().errno(), libc::EOPNOTSUPP);
    }
    let image = vol.close();
    assert!(
        image
            .debugfs("stat dir/own")
            .unwrap()
            .contains("Flags: 0x80040")
    );
}

/// On a full volume every operation is complete or refused; none is half done.
#[test]
fn a_full_volume_refuses_whole_operations() {
    let vol = Vol::new(8, &small());
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let (_, open) = vol
        .fs
        .create(&Ctx::ROOT, ROOT_INO, b"filler", 0o600, 0, libc::O_RDWR)
        .unwrap();
    let mut offset = 0;
    for chunk in [65536, 4096, 1024] {
        while vol
            .fs
            .write(&Ctx::ROOT, &open, offset, &vec![1; chunk], false)
            .is_ok()
        {
            offset += chunk as u64;
        }
    }
    drop(open);
    let mut made = BTreeMap::new();
    let mut refused = 0;
    for i in 0..400 {
        let name = format!("{i:0200}").into_bytes();
        match if i % 7 == 0 {
            vol.mkdir(dir, &name)
        } else {
            vol.file(dir, &name)
        } {
            Ok(ino) => drop(made.insert(name, ino)),
            Err(e) => {
                assert_eq!(e, libc::ENOSPC);
                refused += 1;
            }
        }
    }
    assert!(
        refused > 100,
        "{refused} of 400 refused, {} made",
        made.len()
    );
    assert_eq!(vol.names(dir), made);
    let vol = vol.reopen();
    assert_eq!(vol.names(vol.ino("dir")), made);
    vol.close();
}

/// Changes of names in a directory with `chattr +D` are durable at once; others only after the next
/// commit.
#[test]
fn a_synchronous_directory_needs_no_sync() {
    const DIRSYNC: u32 = 0x10000;
    let vol = Vol::new(16, &small());
    let dirs = [
        vol.mkdir(ROOT_INO, b"lazy").unwrap(),
        vol.mkdir(ROOT_INO, b"sync").unwrap(),
    ];
    let flags = vol.fs.get_flags(dirs[1]).unwrap();
    vol.fs
        .set_flags(&Ctx::ROOT, dirs[1], flags | DIRSYNC)
        .unwrap();
    for name in ["a", "b", "c"] {
        vol.file(dirs[1], name.as_bytes()).unwrap();
    }
    vol.unlink(dirs[1], b"a").unwrap();
    vol.rename(
        (dirs[1], b"b"),
        (dirs[1], b"renamed"),
        RenameFlags::default(),
    )
    .unwrap();
    vol.file(dirs[0], b"late").unwrap();
    // The state after a power cut.
    let cut = Vol::on(vol.image.copy().unwrap());
    let names = |dir| cut.names(dir).into_keys().collect::<Vec<_>>();
    assert_eq!(names(dirs[1]), [b"c".to_vec(), b"renamed".to_vec()]);
    assert_eq!(names(dirs[0]), Vec::<Vec<u8>>::new());
    cut.close();
    vol.close();
}
