//! The map of a file: an extent tree or a block map over runs of blocks.

use std::iter::Peekable;
use std::ops::Range;

use stetfs_ondisk::ext4::blockmap::{self, DIRECT, MAX_LEVELS, Shape};
use stetfs_ondisk::ext4::extent::{self, Extent, Index, MAX_LEN, Node, NodeMut, max_entries};
use stetfs_ondisk::ext4::inode::I_BLOCK_LEN;
use stetfs_ondisk::num::{bounded32, low32, to_usize};

use crate::error::{Result, size};
use crate::room::Room;

/// A file's blocks and their map.
#[derive(Debug, Clone)]
pub(crate) struct FileMap {
    /// The root of the map.
    pub(crate) i_block: [u8; I_BLOCK_LEN],
    /// The data, in order.
    pub(crate) runs: Vec<Range<u64>>,
    /// The blocks of the map: number and content.
    pub(crate) nodes: Vec<(u64, Vec<u8>)>,
}

/// The kind of map that the files of a volume have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapKind {
    /// Bytes.
    pub(crate) block_size: u32,
    /// Blocks of a cluster.
    pub(crate) ratio: u32,
    pub(crate) extents: bool,
}

impl FileMap {
    /// Takes room for a file of `blocks` blocks, and for its map. `seed` is that of the inode's
    /// checksums, with `metadata_csum`.
    pub(crate) fn make(
        room: &mut Room<'_>,
        blocks: u64,
        kind: MapKind,
        seed: Option<u32>,
    ) -> Result<FileMap> {
        let runs = room.take(blocks)?;
        match kind.extents {
            true => extents(room, runs, kind, seed),
            false => block_map(room, runs, kind),
        }
    }

    /// Number of blocks of data.
    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|r| r.end - r.start).sum()
    }

    /// The numbers of the blocks of data, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().cloned().flatten()
    }

    /// `i_blocks`: space in units of 512 bytes, in whole clusters.
    pub(crate) fn sectors(&self, kind: MapKind) -> u64 {
        let data = self.len().next_multiple_of(u64::from(kind.ratio));
        let nodes = self.nodes.len() as u64 * u64::from(kind.ratio);
        (data + nodes) * u64::from(kind.block_size / 512)
    }
}

/// An extent tree of at most two levels.
fn extents(
    room: &mut Room<'_>,
    runs: Vec<Range<u64>>,
    kind: MapKind,
    seed: Option<u32>,
) -> Result<FileMap> {
    let mut all = Vec::new();
    let mut logical = 0;
    for run in &runs {
        let mut start = run.start;
        while start < run.end {
            let len = bounded32(run.end - start).min(MAX_LEN);
            all.push(Extent {
                block: logical,
                len,
                start,
                unwritten: false,
            });
            logical += len;
            start += u64::from(len);
        }
    }
    let mut i_block = [0; I_BLOCK_LEN];
    let mut nodes = Vec::new();
    if all.len() <= usize::from(extent::ROOT_ENTRIES) {
        put_extents(Node::init(&mut i_block[..], 0)?, &all)?;
    } else {
        let mut root = Node::init(&mut i_block[..], 1)?;
        let len = to_usize(u64::from(kind.block_size));
        for (at, part) in all.chunks(usize::from(max_entries(len))).enumerate() {
            if at >= root.capacity() {
                return size("the journal is too much in pieces: make it smaller (--journal-size)");
            }
            let mut leaf = vec![0; len];
            put_extents(Node::init(&mut leaf[..], 0)?, part)?;
            extent::update_block_checksum(seed, &mut leaf)?;
            let child = room.one()?;
            let block = part.first().map_or(0, |e| e.block);
            root.insert_index(at, &Index { block, child })?;
            nodes.push((child, leaf));
        }
    }
    Ok(FileMap {
        i_block,
        runs,
        nodes,
    })
}

fn put_extents(mut node: NodeMut<'_>, extents: &[Extent]) -> Result<()> {
    for (at, extent) in extents.iter().enumerate() {
        node.insert_extent(at, extent)?;
    }
    Ok(())
}

/// A block map: 12 direct blocks, then indirect ones of up to three levels.
fn block_map(room: &mut Room<'_>, runs: Vec<Range<u64>>, kind: MapKind) -> Result<FileMap> {
    let mut i_block = [0; I_BLOCK_LEN];
    let mut tree = Tree {
        per_block: Shape::new(kind.block_size).per_block(),
        len: to_usize(u64::from(kind.block_size)),
        data: runs.iter().cloned().flatten().peekable(),
        nodes: Vec::new(),
    };
    for index in 0..DIRECT {
        let nr = tree.data.next().unwrap_or(0);
        blockmap::set_pointer(&mut i_block, index, low32(nr));
    }
    for (index, levels) in (DIRECT..).zip(1..=MAX_LEVELS) {
        if let Some(nr) = tree.branch(levels, room)? {
            blockmap::set_pointer(&mut i_block, index, low32(nr));
        }
    }
    let nodes = tree.nodes;
    Ok(FileMap {
        i_block,
        runs,
        nodes,
    })
}

/// A block map while it is made.
struct Tree<D: Iterator<Item = u64>> {
    /// Block numbers in an indirect block.
    per_block: u64,
    /// Bytes of one.
    len: usize,
    /// Blocks that are not in the map yet.
    data: Peekable<D>,
    nodes: Vec<(u64, Vec<u8>)>,
}

impl<D: Iterator<Item = u64>> Tree<D> {
    /// The block below which the next data is, by `levels` levels of indirect blocks; `None` if
    /// there is no more data.
    fn branch(&mut self, levels: u32, room: &mut Room<'_>) -> Result<Option<u64>> {
        let Some(below) = levels.checked_sub(1) else {
            return Ok(self.data.next());
        };
        if self.data.peek().is_none() {
            return Ok(None);
        }
        let nr = room.one()?;
        let mut node = vec![0; self.len];
        for index in 0..to_usize(self.per_block) {
            match self.branch(below, room)? {
                Some(child) => blockmap::set_pointer(&mut node, index, low32(child)),
                None => break,
            };
        }
        self.nodes.push((nr, node));
        Ok(Some(nr))
    }
}
