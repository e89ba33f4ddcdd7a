//! Linear and indexed directories, compared with e2fsprogs and the kernel.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use stetfs_ondisk::ext4::dirent::{self, FileType};
use stetfs_ondisk::ext4::hash::{HashVersion, NameHash};
use stetfs_ondisk::ext4::htree::{self, Index, IndexEntry, NodeKind};
use stetfs_ondisk::ext4::inode::InodeFlags;

use stetfs_testkit::cmd;

use crate::names::volume::Volume;
use crate::names::{each_flip_shows, hash_of, image_of, kinds};

type Names = BTreeMap<Vec<u8>, (u32, FileType)>;

/// A tree of various files, a directory of many short names and one of many long ones.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |p: &str| dir.path().join(p);
    for d in ["small", "small/below", "empty", "many", "long"] {
        std::fs::create_dir(at(d)).unwrap();
    }
    std::fs::write(at("small/file"), b"content").unwrap();
    std::os::unix::fs::symlink("file", at("small/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("small/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    std::fs::write(at("small/grüße, naïve ☃"), b"").unwrap();
    for i in 0..3000 {
        let name = if i % 7 == 0 {
            format!("many/ünicode-{i}")
        } else {
            format!("many/n{i}")
        };
        std::fs::write(at(&name), b"").unwrap();
    }
    for i in 0..900 {
        std::fs::write(at(&format!("long/{i}-{}", "x".repeat(150 + i % 100))), b"").unwrap();
    }
    dir
}

/// The leaves of an indexed directory in hash order, each with the hash from which on it is used.
/// Also the number of indirect levels, and the blocks that are nodes.
struct IndexShape {
    leaves: Vec<IndexEntry>,
    nodes: Vec<u32>,
    levels: u8,
    hash: HashVersion,
}

fn index_shape(v: &Volume, ino: u32, blocks: &[u64]) -> Option<IndexShape> {
    if !v.inode(ino).flags().contains(InodeFlags::INDEX) {
        return None;
    }
    let layout = v.index_layout();
    let root = v.block(blocks[0]);
    let info = htree::root_info(root, &layout).unwrap();
    let hash = HashVersion::of_root(info.hash_version, v.sb.flags().hashes_unsigned()).unwrap();
    let index = Index::new(root, NodeKind::Root, &layout).unwrap();
    index.check(blocks.len() as u32).unwrap();
    assert_eq!(htree::root_dots(root).unwrap().0, ino);
    let (mut leaves, mut nodes): (Vec<IndexEntry>, Vec<u32>) = (index.iter().collect(), vec![]);
    for _ in 0..info.indirect_levels {
        nodes.extend(leaves.iter().map(|e| e.block));
        leaves = leaves
            .iter()
            .flat_map(|up| {
                let index = Index::new(v.block(blocks[up.block as usize]), NodeKind::Node, &layout)
                    .unwrap();
                index.check(blocks.len() as u32).unwrap();
                // The hash of a node's first entry is its parent's.
                index.iter().enumerate().map(|(i, e)| {
                    if i == 0 {
                        IndexEntry { hash: up.hash, ..e }
                    } else {
                        e
                    }
                })
            })
            .collect();
    }
    Some(IndexShape {
        leaves,
        nodes,
        levels: info.indirect_levels,
        hash,
    })
}

fn kind_of(shape: Option<&IndexShape>, lblk: usize) -> Option<NodeKind> {
    match (shape, lblk) {
        (Some(_), 0) => Some(NodeKind::Root),
        (Some(s), n) if s.nodes.contains(&(n as u32)) => Some(NodeKind::Node),
        _ => None,
    }
}

/// All names of a directory, with every block's checksum verified.
fn read_dir(v: &Volume, ino: u32) -> (Names, Option<IndexShape>) {
    let blocks = v.dir_blocks(ino);
    let shape = index_shape(v, ino, &blocks);
    let (layout, index_layout, seed) = (v.dir_layout(), v.index_layout(), v.seed(ino));
    assert_eq!(seed.is_some(), v.has_checksums());
    let mut names = Names::new();
    for (lblk, nr) in blocks.iter().enumerate() {
        let block = v.block(*nr);
        if let Some(kind) = kind_of(shape.as_ref(), lblk) {
            if let Some(seed) = seed {
                htree::verify_checksum(block, kind, &index_layout, seed).unwrap();
            }
            if kind == NodeKind::Root {
                let (dot, dotdot) = htree::root_dots(block).unwrap();
                let kind = if layout.filetype {
                    FileType::Directory
                } else {
                    FileType::Unknown
                };
                names.insert(b".".to_vec(), (dot, kind));
                names.insert(b"..".to_vec(), (dotdot, kind));
            }
            continue;
        }
        if let Some(seed) = seed {
            dirent::verify_checksum(block, seed).unwrap();
        }
        for e in dirent::entries(block, &layout)
            .unwrap()
            .map(Result::unwrap)
            .filter(|e| e.inode != 0)
        {
            assert!(dirent::valid_name(e.name));
            assert!(
                names
                    .insert(e.name.to_vec(), (e.inode, e.file_type))
                    .is_none()
            );
        }
    }
    (names, shape)
}

/// Checks that the index has the hash of this kind of volume.
fn check_hash(v: &Volume, kind: &str, indexed: &[(u32, u8)]) {
    let (version, flags) = hash_of(kind);
    for (ino, _) in indexed {
        let shape = index_shape(v, *ino, &v.dir_blocks(*ino)).unwrap();
        assert_eq!(
            (shape.hash.root_byte(), shape.hash.unsigned),
            (version, flags == 2),
            "{kind}"
        );
    }
}

/// Checks that the host directory and the volume's hold the same; returns the highest indirect
/// level found.
fn compare(v: &Volume, ino: u32, parent: u32, host: &Path, indexed: &mut Vec<(u32, u8)>) {
    let (mut names, shape) = read_dir(v, ino);
    assert_eq!(names.remove(&b"."[..]).unwrap().0, ino);
    assert_eq!(names.remove(&b".."[..]).unwrap().0, parent);
    if ino == 2 {
        assert!(names.remove(&b"lost+found"[..]).is_some());
    }
    for entry in std::fs::read_dir(host).unwrap().map(Result::unwrap) {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::MetadataExt;
        let kind = FileType::from_mode(std::fs::symlink_metadata(entry.path()).unwrap().mode());
        let (child, stored) = names.remove(entry.file_name().as_bytes()).unwrap();
        assert_eq!(
            stored,
            if v.dir_layout().filetype {
                kind
            } else {
                FileType::Unknown
            }
        );
        assert_eq!(v.inode(child).file_type(), kind);
        if let Some(shape) = &shape {
            assert!(
                lookup(v, ino, shape, entry.file_name().as_bytes()),
                "{:?}",
                entry.file_name()
            );
        }
        if kind == FileType::Directory {
            compare(v, child, ino, &entry.path(), indexed);
        }
    }
    assert!(names.is_empty(), "not on the host: {names:?}");
    if let Some(shape) = shape {
        indexed.push((ino, shape.levels));
    }
}

/// Looks a name up through the index, as a file system does.
fn lookup(v: &Volume, ino: u32, shape: &IndexShape, name: &[u8]) -> bool {
    let (blocks, layout) = (v.dir_blocks(ino), v.index_layout());
    let NameHash { major, .. } = shape.hash.hash(name, v.sb.hash_seed());
    let (_, mut e) = Index::new(v.block(blocks[0]), NodeKind::Root, &layout)
        .unwrap()
        .search(major);
    for _ in 0..shape.levels {
        let node = v.block(blocks[e.block as usize]);
        e = Index::new(node, NodeKind::Node, &layout)
            .unwrap()
            .search(major)
            .1;
    }
    let from = shape
        .leaves
        .iter()
        .position(|l| l.block == e.block)
        .unwrap();
    let more = shape.leaves[from + 1..]
        .iter()
        .take_while(|l| l.continues(major));
    std::iter::once(&shape.leaves[from]).chain(more).any(|l| {
        dirent::find(v.block(blocks[l.block as usize]), &v.dir_layout(), name)
            .unwrap()
            .is_some()
    })
}

#[test]
fn directories_of_mke2fs_and_e2fsck_are_read() {
    let tree = tree();
    for (kind, mkfs) in kinds() {
        for index in [false, true] {
            let image = image_of(tree.path(), kind, mkfs.clone(), index);
            let v = Volume::read(image.path());
            let mut indexed = Vec::new();
            compare(&v, 2, 2, tree.path(), &mut indexed);
            check_hash(&v, kind, &indexed);
            if index && v.geo.block_size < 65536 {
                assert!(indexed.len() >= 2, "{kind}: {indexed:?}");
            }
            if index && v.geo.block_size == 1024 {
                assert!(
                    indexed.iter().any(|(_, levels)| *levels == 1),
                    "{kind}: {indexed:?}"
                );
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_any_directory_block_shows() {
    let tree = tree();
    for (kind, mkfs) in kinds()
        .into_iter()
        .filter(|(kind, _)| !kind.contains("without checksums"))
    {
        let image = image_of(tree.path(), kind, mkfs, true);
        let v = Volume::read(image.path());
        let layout = v.index_layout();
        let (root, _) = read_dir(&v, 2);
        for (ino, _) in root.values().filter(|(ino, _)| v.inode(*ino).is_dir()) {
            let blocks = v.dir_blocks(*ino);
            let shape = index_shape(&v, *ino, &blocks);
            let seed = v.seed(*ino).unwrap();
            for (lblk, nr) in blocks.iter().enumerate() {
                let block = v.block(*nr);
                match kind_of(shape.as_ref(), lblk) {
                    None => each_flip_shows(block, 0..block.len(), |b| {
                        dirent::verify_checksum(b, seed).is_err()
                    }),
                    Some(node) => {
                        let at = if node == NodeKind::Root { 32 } else { 8 };
                        let used = at + Index::new(block, node, &layout).unwrap().len() * 8;
                        let fails =
                            |b: &[u8]| htree::verify_checksum(b, node, &layout, seed).is_err();
                        each_flip_shows(block, 0..used, fails);
                        let tail = at + layout.limit(node, block.len()) * 8;
                        each_flip_shows(block, tail..tail + 8, fails);
                    }
                }
            }
        }
    }
}

/// Removes every other name from each linear block and adds it again.
fn churn(v: &mut Volume, ino: u32) {
    let (layout, seed) = (v.dir_layout(), v.seed(ino));
    for nr in v.dir_blocks(ino) {
        let block = v.block_mut(nr);
        let taken: Vec<(Vec<u8>, u32, FileType)> = dirent::entries(block, &layout)
            .unwrap()
            .map(Result::unwrap)
            .filter(|e| e.inode != 0 && !e.is_dots())
            .step_by(2)
            .map(|e| (e.name.to_vec(), e.inode, e.file_type))
            .collect();
        for (name, ..) in &taken {
            let at = dirent::find(block, &layout, name).unwrap().unwrap().offset;
            dirent::delete(block, &layout, at).unwrap();
        }
        for (name, inode, kind) in taken.iter().rev() {
            if dirent::insert(block, &layout, name, *inode, *kind)
                .unwrap()
                .is_none()
            {
                // The holes have the wrong sizes: the block is packed, as the file system does
                // before it splits a block.
                let old = block.to_vec();
                let rest = dirent::entries(&old, &layout)
                    .unwrap()
                    .map(Result::unwrap)
                    .filter(|e| e.inode != 0)
                    .map(|e| (e.inode, e.file_type, e.name));
                dirent::fill(block, &layout, rest).unwrap();
                dirent::insert(block, &layout, name, *inode, *kind)
                    .unwrap()
                    .unwrap();
            }
        }
        if let Some(seed) = seed {
            dirent::update_checksum(block, seed).unwrap();
        }
    }
}

#[test]
fn e2fsck_accepts_linear_blocks_we_changed() {
    let tree = tree();
    for (kind, mkfs) in kinds() {
        let image = image_of(tree.path(), kind, mkfs, false);
        let mut v = Volume::read(image.path());
        let (root, _) = read_dir(&v, 2);
        let dirs: Vec<u32> = root
            .values()
            .map(|(ino, _)| *ino)
            .filter(|i| v.inode(*i).is_dir())
            .collect();
        let before: Vec<Names> = dirs.iter().map(|d| read_dir(&v, *d).0).collect();
        dirs.iter().for_each(|d| churn(&mut v, *d));
        v.write(image.path());
        image.e2fsck_fn().unwrap_or_else(|e| panic!("{kind}: {e}"));
        compare(&v, 2, 2, tree.path(), &mut vec![]);
        let after: Vec<Names> = dirs.iter().map(|d| read_dir(&v, *d).0).collect();
        assert_eq!(before, after);
    }
}

/// The blocks of a directory that is rebuilt, and the ones not used yet.
struct Builder<'v> {
    v: &'v Volume,
    blocks: Vec<Vec<u8>>,
    used: usize,
    nodes: Vec<usize>,
}

impl Builder<'_> {
    fn take(&mut self) -> Option<usize> {
        self.used += 1;
        (self.used <= self.blocks.len()).then_some(self.used - 1)
    }

    /// Adds a leaf to the index, which grows if needed; `None` if the blocks do not suffice.
    fn enter(&mut self, entry: IndexEntry) -> Option<()> {
        let layout = self.v.index_layout();
        if self.nodes.is_empty() {
            let root = &mut self.blocks[0];
            let (at, _) = Index::new(root, NodeKind::Root, &layout)
                .unwrap()
                .search(entry.hash);
            if htree::insert(root, NodeKind::Root, &layout, at, entry).unwrap() {
                return Some(());
            }
            let child = self.take()?;
            let [root, node] = self.blocks.get_disjoint_mut([0, child]).unwrap();
            htree::deepen(root, node, &layout, child as u32).unwrap();
            self.nodes.push(child);
        }
        loop {
            let (up, e) = Index::new(&self.blocks[0], NodeKind::Root, &layout)
                .unwrap()
                .search(entry.hash);
            let at = e.block as usize;
            let (i, _) = Index::new(&self.blocks[at], NodeKind::Node, &layout)
                .unwrap()
                .search(entry.hash);
            if htree::insert(&mut self.blocks[at], NodeKind::Node, &layout, i, entry).unwrap() {
                return Some(());
            }
            let new = self.take()?;
            let [old, fresh] = self.blocks.get_disjoint_mut([at, new]).unwrap();
            let hash = htree::split_node(old, fresh, &layout).unwrap();
            self.nodes.push(new);
            let up_entry = IndexEntry {
                hash,
                block: new as u32,
            };
            assert!(
                htree::insert(&mut self.blocks[0], NodeKind::Root, &layout, up, up_entry).unwrap()
            );
        }
    }
}

/// Rebuilds the index and the leaves of a directory: `leaves` of them, entered into the index in
/// `stride`s so that nodes split anywhere. `None` unless the result has exactly as many blocks as
/// the directory.
fn rebuild(v: &Volume, ino: u32, leaves: usize, stride: usize) -> Option<Vec<Vec<u8>>> {
    let count = v.dir_blocks(ino).len();
    let (mut names, shape) = read_dir(v, ino);
    let shape = shape.unwrap();
    let parent = names.remove(&b".."[..]).unwrap().0;
    names.remove(&b"."[..]).unwrap();
    let mut sorted: Vec<(NameHash, &Vec<u8>, u32, FileType)> = names
        .iter()
        .map(|(n, (i, t))| (shape.hash.hash(n, v.sb.hash_seed()), n, *i, *t))
        .collect();
    sorted.sort_unstable_by_key(|(hash, name, ..)| (*hash, *name));
    let total: usize = sorted
        .iter()
        .map(|(_, n, ..)| dirent::min_rec_len(n.len()))
        .sum();

    let size = v.geo.block_size as usize;
    let mut b = Builder {
        v,
        blocks: vec![vec![0xEE; size]; count],
        used: 1,
        nodes: vec![],
    };
    let (mut entries, mut first, mut before) = (Vec::new(), 0, 0);
    for leaf in 0..leaves {
        // As many names as bring the leaves so far to their share of all bytes, or as fit.
        let room = v.dir_layout().space(size);
        let len = |i: usize| dirent::min_rec_len(sorted[i].1.len());
        let (mut end, mut bytes) = (first, 0);
        while end < sorted.len()
            && before + bytes < total * (leaf + 1) / leaves
            && bytes + len(end) <= room
        {
            bytes += len(end);
            end += 1;
        }
        let piece = &sorted[first..end];
        let at = b.take()?;
        let fitted = dirent::fill(
            &mut b.blocks[at],
            &v.dir_layout(),
            piece.iter().map(|(_, n, i, t)| (*i, *t, n.as_slice())),
        )
        .unwrap();
        assert_eq!(fitted, piece.len());
        // A hash that continues from the previous leaf has bit 0 set.
        let goes_on = first > 0 && sorted[first - 1].0.major == sorted[first].0.major;
        let hash = if leaf == 0 {
            0
        } else {
            sorted[first].0.major | u32::from(goes_on)
        };
        entries.push(IndexEntry {
            hash,
            block: at as u32,
        });
        first = end;
        before += bytes;
    }
    if first != sorted.len() {
        return None;
    }
    let (dots, filetype) = ((ino, parent), v.dir_layout().filetype);
    let version = shape.hash.root_byte();
    htree::init_root(
        &mut b.blocks[0],
        &v.index_layout(),
        dots,
        filetype,
        version,
        entries[0].block,
    )
    .unwrap();
    for start in 1..=stride {
        for entry in entries.iter().skip(start).step_by(stride) {
            b.enter(*entry)?;
        }
    }
    if b.used != count {
        return None;
    }
    if let Some(seed) = v.seed(ino) {
        for (at, block) in b.blocks.iter_mut().enumerate() {
            match at {
                0 => {
                    htree::update_checksum(block, NodeKind::Root, &v.index_layout(), seed).unwrap()
                }
                n if b.nodes.contains(&n) => {
                    htree::update_checksum(block, NodeKind::Node, &v.index_layout(), seed).unwrap();
                }
                _ => dirent::update_checksum(block, seed).unwrap(),
            }
        }
    }
    Some(b.blocks)
}

#[test]
fn e2fsck_accepts_indexes_we_built() {
    // Names that are removed again make room for an index that is less tightly packed than
    // e2fsck's.
    let (tree, fuller) = (tree(), tree());
    let mut script = tempfile::NamedTempFile::new().unwrap();
    for i in 0..600 {
        let name = if i % 4 == 0 {
            format!("long/gone{i}-{}", "x".repeat(200))
        } else {
            format!("many/gone{i}")
        };
        std::fs::write(fuller.path().join(&name), b"").unwrap();
        writeln!(script, "rm {name}").unwrap();
    }
    let mut deepest = 0;
    for (kind, mkfs) in kinds() {
        let image = image_of(fuller.path(), kind, mkfs, true);
        let mut debugfs = std::process::Command::new("debugfs");
        cmd::run(debugfs.arg("-wf").arg(script.path()).arg(image.path())).unwrap();
        let mut v = Volume::read(image.path());
        let mut indexed = Vec::new();
        compare(&v, 2, 2, tree.path(), &mut indexed);
        for (ino, _) in &indexed {
            let nrs = v.dir_blocks(*ino);
            let mut ways = (1..nrs.len())
                .rev()
                .take(8)
                .flat_map(|leaves| (1..=8).map(move |stride| (leaves, stride)));
            let blocks = ways
                .find_map(|(leaves, stride)| rebuild(&v, *ino, leaves, stride))
                .unwrap_or_else(|| panic!("{kind}: no index that takes {} blocks", nrs.len()));
            for (nr, block) in nrs.iter().zip(&blocks) {
                v.block_mut(*nr).copy_from_slice(block);
            }
        }
        v.write(image.path());
        image.e2fsck_fn().unwrap_or_else(|e| panic!("{kind}: {e}"));
        let mut again = Vec::new();
        compare(&v, 2, 2, tree.path(), &mut again);
        assert_eq!(again.len(), indexed.len());
        deepest = again
            .iter()
            .map(|(_, levels)| *levels)
            .fold(deepest, u8::max);
    }
    assert_eq!(deepest, 1);
}
