//! The room that sources need in a new volume, from a look through them.
//!
//! It is an upper bound but for rare cases: whiteouts are not considered, and files that a later
//! layer replaces count once. The builder measures what was really used, and fits the image to it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::source::{Layer, Source};
use crate::failure::Result;
use crate::files::failed::host;
use crate::files::meter::Meter;
use crate::files::tar::{Archived, look_through};
use crate::files::tree::{Content, Host, Item, Kind, Tree, Xattr, runs};

/// Bytes of the fixed part of a large inode, the fields behind it, and the mark of attributes.
const INODE_FIXED: u64 = 128 + 32 + 4;
/// Bytes of a directory entry without its name, and of the tail of a directory block.
const ENTRY: u64 = 8;
const TAIL: u64 = 12;
/// Bytes of an attribute without name and value.
const XATTR: u64 = 16;
/// Longest target of a symbolic link that its inode holds, bytes.
const LINK_MOST: u64 = 59;
/// Runs of blocks that an inode holds.
const EXTENTS: u64 = 4;

/// Files of the host whose attributes are all read, and the part that is read of more.
const SAMPLE_AFTER: u64 = 256;
const SAMPLE_EVERY: u64 = 16;

/// Room in a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// Blocks.
    pub(super) blocks: u64,
    /// Inodes.
    pub(super) inodes: u64,
}

/// Sizes of the volume for which the room is counted, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) block: u64,
    pub(super) cluster: u64,
    pub(super) inode: u64,
}

/// The look through the sources.
struct Survey {
    sizes: Sizes,
    /// Files by the hash of their path: blocks, and inodes.
    files: HashMap<u64, Need>,
    /// Bytes of the entries in a directory, by the hash of its path.
    dirs: HashMap<u64, u64>,
    hasher: RandomState,
    /// Number of files of the host so far.
    looked_at: u64,
}

/// The room that all layers need together.
///
/// # Errors
/// A source cannot be read; Ctrl-C.
pub(super) fn look(sources: &[Source], sizes: Sizes, meter: &mut Meter) -> Result<Need> {
    let mut survey = Survey {
        sizes,
        files: HashMap::new(),
        dirs: HashMap::new(),
        hasher: RandomState::new(),
        looked_at: 0,
    };
    for layer in sources.iter().flat_map(|source| &source.layers) {
        match layer {
            Layer::Dir(path) => survey.tree(&Host::below(path)?, meter)?,
            Layer::Archive(path) => {
                let file = File::open(path).map_err(|e| host("open", path, e))?;
                look_through(file, meter, &mut |archived| survey.archived(&archived))?;
            }
        }
    }
    Ok(survey.sum())
}

impl Survey {
    /// Counts a tree of the host. Errors are left to the copy, which tells them.
    fn tree(&mut self, tree: &Host, meter: &mut Meter) -> Result {
        let mut linked = HashSet::new();
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            for name in tree.names(&dir).unwrap_or_default() {
                meter.go_on()?;
                let path = dir.join(name);
                let Ok(Some(item)) = tree.item(&path) else {
                    continue;
                };
                if item.kind == Kind::Dir {
                    dirs.push(path.clone());
                }
                let is_new = item.links < 2 || item.kind == Kind::Dir || linked.insert(item.id);
                let room = match is_new {
                    true => self.of_host(tree, &path, &item),
                    false => Need::default(),
                };
                self.add(&path, room);
                meter.entry();
            }
        }
        Ok(())
    }

    /// The room of a file of the host. Attributes are slow to read: of many files those of some
    /// stand for all.
    fn of_host(&mut self, tree: &Host, path: &Path, item: &Item) -> Need {
        self.looked_at += 1;
        let mut room = self.room(item.kind, &data(tree, path, item), &[]);
        let stands_for = match self.looked_at {
            ..SAMPLE_AFTER => 1,
            n if n.is_multiple_of(SAMPLE_EVERY) => SAMPLE_EVERY,
            _ => return room,
        };
        let of_xattrs = self.attributes(&tree.xattrs(path).unwrap_or_default());
        room.blocks += of_xattrs.blocks * self.sizes.cluster / self.sizes.block * stands_for;
        room.inodes += of_xattrs.inodes * stands_for;
        room
    }

    /// Counts a file of an archive.
    fn archived(&mut self, archived: &Archived) {
        let room = match archived.kind {
            Some(kind) => self.room(kind, &archived.runs, &archived.xattrs),
            None => Need::default(),
        };
        let path: PathBuf = plain(&archived.name);
        self.add(&path, room);
    }

    /// The room of a file, without that of its name.
    fn room(&self, kind: Kind, runs: &[Range<u64>], xattrs: &[Xattr]) -> Need {
        let Sizes { block, cluster, .. } = self.sizes;
        let clusters = |run: &Range<u64>| run.end.div_ceil(cluster) - run.start / cluster;
        let per_cluster = cluster / block;
        let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let of_data = match kind {
            Kind::File => runs.iter().map(clusters).sum(),
            Kind::Symlink => u64::from(bytes > LINK_MOST),
            Kind::Dir => 1,
            Kind::Node(_) => 0,
        };
        // An extent covers 32768 blocks, 128 MiB with blocks of 4 KiB.
        let extents = runs.len() as u64 + of_data * per_cluster / 32768;
        let of_map = match extents > EXTENTS {
            true => extents.div_ceil(block / TAIL / 2),
            false => 0,
        };
        let Need {
            blocks: of_xattrs,
            inodes,
        } = self.attributes(xattrs);
        Need {
            blocks: (of_data + of_map + of_xattrs) * per_cluster,
            inodes: 1 + inodes,
        }
    }

    /// The clusters and inodes that attributes take beside the inode.
    fn attributes(&self, xattrs: &[Xattr]) -> Need {
        let padded = |len: usize| (len as u64).next_multiple_of(4);
        let mut need = Need::default();
        let mut bytes = 0;
        for (name, value) in xattrs {
            bytes += XATTR + padded(name.len());
            match (value.len() as u64) < self.sizes.block / 2 {
                true => bytes += padded(value.len()),
                false => {
                    need.blocks += (value.len() as u64).div_ceil(self.sizes.cluster);
                    need.inodes += 1;
                }
            }
        }
        need.blocks += u64::from(bytes > self.sizes.inode.saturating_sub(INODE_FIXED));
        need
    }

    /// Notes a name with the room of its file.
    fn add(&mut self, path: &Path, room: Need) {
        let is_new = self
            .files
            .insert(self.hasher.hash_one(path), room)
            .is_none();
        if let (true, Some(dir), Some(name)) = (is_new, path.parent(), path.file_name()) {
            let entry = ENTRY + (name.len() as u64).next_multiple_of(4);
            *self.dirs.entry(self.hasher.hash_one(dir)).or_default() += entry;
        }
    }

    fn sum(&self) -> Need {
        let Sizes { block, cluster, .. } = self.sizes;
        let most = block - TAIL - 2 * (ENTRY + 4);
        let more = |bytes: &u64| match *bytes > most {
            // Names come in the order of their bytes, and so all over the hashes: a block of an
            // index is split when it is full, and is two thirds full in the mean.
            true => (bytes * 3 / 2).div_ceil(block - TAIL) + bytes / (block * 300) + 1,
            false => 0,
        };
        let of_dirs: u64 = self.dirs.values().map(more).sum::<u64>() * (cluster / block);
        let files = self.files.values();
        let all = files.fold(Need::default(), |all, one| Need {
            blocks: all.blocks + one.blocks,
            inodes: all.inodes + one.inodes,
        });
        let blocks = all.blocks + of_dirs;
        Need {
            blocks: blocks + blocks / 256 + 4 * (cluster / block),
            inodes: all.inodes,
        }
    }
}

/// The runs of data of a file; of a symbolic link, its target.
fn data(tree: &dyn Tree, path: &Path, item: &Item) -> Vec<Range<u64>> {
    let whole = std::iter::once(0..item.size).collect();
    let found = match item.kind {
        Kind::File if item.is_sparse => {
            let content = tree.open(path, item);
            content.and_then(|content: Box<dyn Content>| runs(&*content, item.size))
        }
        _ => return whole,
    };
    found.unwrap_or(whole)
}

/// A name of an archive as a path: without empty parts and `.`.
fn plain(name: &[u8]) -> PathBuf {
    let parts = Path::new(OsStr::from_bytes(name)).components();
    let names = parts.filter(|part| matches!(part, Component::Normal(_)));
    names.collect()
}
