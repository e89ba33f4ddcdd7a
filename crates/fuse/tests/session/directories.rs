//! Directory listings, with and without attributes.

use std::collections::BTreeMap;

use stetfs_fuse::{FileSystem, VolumeFsOptions};

use crate::bytes::{Entry, body, long, op, word};
use crate::kernel::{Kernel, ROOT, handles, image};

/// A listed name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) ino: u64,
    /// The offset of the next name.
    pub(crate) next: u64,
    /// `DT_*`.
    pub(crate) kind: u32,
    /// With READDIRPLUS; node 0 has no attributes.
    pub(crate) entry: Option<Entry>,
}

/// One listing from `offset` on, in answers of `size` bytes.
pub(crate) fn part<F: FileSystem>(
    kernel: &Kernel<F>,
    (dir, fh): (u64, u64),
    (offset, size): (u64, u32),
    plus: bool,
) -> Vec<(String, Listed)> {
    let request = body().u64(fh).u64(offset).u32(size).u32(0).u64(0).u64(0);
    let opcode = if plus { op::READDIRPLUS } else { op::READDIR };
    let answer = kernel.ask(opcode, dir, request).unwrap();
    assert!(answer.len() <= size as usize);
    let (mut rest, mut all) = (&answer[..], Vec::new());
    while !rest.is_empty() {
        let entry = plus.then(|| Entry::read(rest));
        let head = &rest[if plus { Entry::LEN } else { 0 }..];
        let len = word(head, 16) as usize;
        let name = String::from_utf8(head[24..24 + len].to_vec()).unwrap();
        let listed = Listed {
            ino: long(head, 0),
            next: long(head, 8),
            kind: word(head, 20),
            entry,
        };
        all.push((name, listed));
        rest = &head[(24 + len).next_multiple_of(8)..];
    }
    all
}

/// The whole listing.
pub(crate) fn list<F: FileSystem>(
    kernel: &Kernel<F>,
    dir: (u64, u64),
    size: u32,
    plus: bool,
) -> BTreeMap<String, Listed> {
    let (mut all, mut offset) = (BTreeMap::new(), 0);
    loop {
        let part = part(kernel, dir, (offset, size), plus);
        let Some((_, last)) = part.last() else {
            return all;
        };
        offset = last.next;
        for (name, listed) in part {
            assert_eq!(all.insert(name.clone(), listed), None, "{name} twice");
        }
    }
}

#[test]
fn every_name_is_listed_once_whatever_the_size_of_answers() {
    let image = image();
    for options in [VolumeFsOptions::default(), handles()] {
        let kernel = Kernel::on(&image, options);
        let dir = kernel.mkdir(ROOT, "dir", 0o755, 0).unwrap().node;
        let names: Vec<String> = (0..300)
            .map(|i| format!("name {i:0w$}", w = i % 40))
            .collect();
        let nodes: BTreeMap<&String, u64> = names
            .iter()
            .map(|name| (name, kernel.file(dir, name)))
            .collect();
        kernel.mkdir(dir, "below", 0o755, 0).unwrap();
        kernel.symlink(dir, "link", "x").unwrap();
        kernel.mknod(dir, "fifo", libc::S_IFIFO | 0o600, 0).unwrap();
        let fh = match kernel.ask(op::OPENDIR, dir, body().u64(0)) {
            Ok(opened) => long(&opened, 0),
            Err(errno) => {
                assert_eq!(errno, libc::ENOSYS);
                0
            }
        };
        for (size, plus) in [(512, false), (4096, false), (1 << 20, false), (4096, true)] {
            let all = list(&kernel, (dir, fh), size, plus);
            assert_eq!(all.len(), nodes.len() + 5, "{size} {plus}");
            assert_eq!((all["."].ino, all[".."].ino), (dir, 2));
            for (name, kind) in [
                ("below", libc::DT_DIR),
                ("link", libc::DT_LNK),
                ("fifo", libc::DT_FIFO),
            ] {
                assert_eq!(all[name].kind, u32::from(kind), "{name}");
            }
            for (name, node) in &nodes {
                let listed = &all[*name];
                assert_eq!((listed.ino, listed.kind), (*node, libc::DT_REG.into()));
            }
        }
        // A size without room for a name.
        assert_eq!(part(&kernel, (dir, fh), (0, 8), false), []);
        let file = nodes[&names[0]];
        let request = body().u64(0).u64(0).u32(4096).u32(0).u64(0).u64(0);
        let listed = kernel.ask(op::READDIR, file, request);
        assert_eq!(listed, Err(libc::ENOTDIR));
        kernel
            .rename((ROOT, "dir"), (ROOT, &format!("done {fh}")), 0)
            .unwrap();
        kernel.end(&image);
    }
}

/// Each entry with attributes is a lookup, which the kernel takes back when it forgets it.
#[test]
fn attributes_with_names_count_as_lookups() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let dir = kernel.mkdir(ROOT, "dir", 0o755, 0).unwrap().node;
    for i in 0..20 {
        let node = kernel.file(dir, &format!("{i}"));
        kernel.forget(node, 1);
    }
    let (inodes, _) = kernel.free();
    let all = part(&kernel, (dir, 0), (0, 1 << 16), true);
    assert_eq!(all.len(), 22);
    for (name, listed) in &all {
        let entry = listed.entry.unwrap();
        match &name[..] {
            "." | ".." => assert_eq!(entry.node, 0),
            _ => {
                assert_eq!((entry.node, entry.attr.ino), (listed.ino, listed.ino));
                assert_eq!(entry.attr.mode, libc::S_IFREG | 0o644);
                assert!(entry.entry_valid > 3600 && entry.attr_valid > 3600);
                kernel.unlink(dir, name).unwrap();
            }
        }
    }
    assert_eq!(kernel.free().0, inodes, "the kernel knows them");
    for (_, listed) in all.iter().filter(|(name, _)| !name.starts_with('.')) {
        kernel.forget(listed.ino, 1);
    }
    assert_eq!(kernel.free().0, inodes + 20);
    kernel.end(&image);
}

/// A thread that does not look at what it lists gets names alone, and one that does gets
/// attributes.
#[test]
fn attributes_come_where_they_are_used() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    kernel.who.pid = 4711;
    let dirs: Vec<u64> = (0..6)
        .map(|d| kernel.mkdir(ROOT, &format!("{d}"), 0o755, 0).unwrap().node)
        .collect();
    for dir in &dirs {
        for i in 0..100 {
            kernel.file(*dir, &format!("{i}"));
        }
    }
    let with_attributes = |dir: u64| {
        let all = list(&kernel, (dir, 0), 4096, true);
        let nodes = all.values().map(|l| l.entry.unwrap().node);
        nodes.filter(|node| *node != 0).count()
    };
    let first = with_attributes(dirs[0]);
    assert!(first < 100, "the first answer, and then names: {first}");
    for i in 0..100 {
        kernel.lookup(dirs[0], &format!("{i}")).unwrap();
    }
    assert_eq!(with_attributes(dirs[1]), 100);
    kernel.end(&image);
}
