//! The judge: measures the fragmentation of a volume from the bytes of its image. It is the same
//! for all file systems, and uses none of them.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use stetfs_ondisk::ext4::bitmap;
use stetfs_ondisk::ext4::dirent::{DirLayout, entries};
use stetfs_ondisk::ext4::extent::{Extent, Index, MAX_DEPTH, NodeRef};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::group_desc::{GroupDesc, GroupFlags};
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView};
use stetfs_ondisk::ext4::superblock::{Geometry, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

/// The measurements of a volume. An extent is a run of blocks that are consecutive in the file and
/// on the volume, however the map describes it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Aged {
    /// Regular files with blocks.
    pub files: u64,
    /// Size of their blocks, MiB.
    pub mib: f64,
    /// Number of their extents.
    pub extents: u64,
    /// Files with more than one extent.
    pub broken: u64,
    /// Extents of the file at these ranks: median, 90th and 99th percentile, maximum.
    pub ranks: [u64; 4],
    /// Number of files by extents: 1, 2, 3 and 4, 5 to 8, and so on.
    pub by_extents: Vec<u64>,
    /// Free blocks, MiB.
    pub free_mib: f64,
    /// Runs of free blocks; groups do not end them.
    pub free_runs: u64,
    /// The longest run, MiB.
    pub longest_mib: f64,
    /// Free MiB by length of the run: 1 block, up to 2, up to 4, and so on.
    pub free_by_length: Vec<f64>,
    /// Fraction of the files that begin in the group of their directory's inode.
    pub with_directory: f64,
    /// Mean distance between a file's first block and its directory's first block, MiB.
    pub distance_mib: f64,
    /// Mean distance between the first blocks of neighbouring files in a directory (ordered by
    /// their first blocks), MiB: the distance skipped when a whole directory is read.
    pub spread_mib: f64,
}

impl Aged {
    /// Extents per MiB.
    pub fn per_mib(&self) -> f64 {
        self.extents as f64 / self.mib.max(1e-9)
    }

    /// Extents per file.
    pub fn per_file(&self) -> f64 {
        self.extents as f64 / self.files.max(1) as f64
    }

    /// Extents beyond the one that every file needs.
    pub fn breaks(&self) -> u64 {
        self.extents - self.files
    }

    /// Length of the mean free run, MiB.
    pub fn free_run_mib(&self) -> f64 {
        self.free_mib / self.free_runs.max(1) as f64
    }
}

struct Reader {
    file: File,
    geo: Geometry,
    layout: DirLayout,
}

impl Reader {
    fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn block(&self, nr: u64) -> Result<Vec<u8>> {
        let size = self.geo.block_size;
        self.bytes(nr * u64::from(size), size as usize)
    }

    fn mib(&self, blocks: u64) -> f64 {
        blocks as f64 * f64::from(self.geo.block_size) / f64::from(1 << 20)
    }

    fn desc(&self, group: u32) -> Result<GroupDesc> {
        let (block, offset) = self
            .geo
            .desc_position(group)
            .with_context(|| format!("no descriptor of group {group}"))?;
        let at = block * u64::from(self.geo.block_size) + offset as u64;
        Ok(GroupDesc::decode(
            &self.bytes(at, usize::from(self.geo.desc_size))?,
        )?)
    }

    /// Adds the extents of a tree, in order.
    fn extents(&self, node: &[u8], out: &mut Vec<Extent>) -> Result<()> {
        let node = NodeRef::new(node)?;
        if node.depth() > MAX_DEPTH {
            bail!("an extent node of depth {}", node.depth());
        }
        if node.is_leaf() {
            out.extend(node.extents());
            return Ok(());
        }
        let children: Vec<Index> = node.indexes().collect();
        for child in children {
            self.extents(&self.block(child.child)?, out)?;
        }
        Ok(())
    }

    /// The runs of a file: first block and length, in blocks.
    fn runs(&self, view: &InodeView<&[u8]>) -> Result<Vec<(u64, u64)>> {
        let flags = view.flags();
        if flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(Vec::new());
        }
        if !flags.contains(InodeFlags::EXTENTS) {
            bail!("a file with a block map: make the volume with extents");
        }
        let mut extents = Vec::new();
        self.extents(view.i_block(), &mut extents)?;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut logical = 0;
        for e in extents {
            let len = u64::from(e.len);
            match runs.last_mut() {
                Some((start, n)) if *start + *n == e.start && logical == u64::from(e.block) => {
                    *n += len;
                }
                _ => runs.push((e.start, len)),
            }
            logical = e.logical_end();
        }
        Ok(runs)
    }

    /// Adds the inodes that a directory names.
    fn children(&self, runs: &[(u64, u64)], out: &mut Vec<u32>) -> Result<()> {
        for nr in runs.iter().flat_map(|(start, len)| *start..*start + *len) {
            // Blocks of an index read as one free entry.
            for entry in entries(&self.block(nr)?, &self.layout)? {
                let entry = entry?;
                if entry.inode != 0 && !entry.is_dots() {
                    out.push(entry.inode);
                }
            }
        }
        Ok(())
    }
}

/// A regular file or directory.
struct Found {
    dir: bool,
    runs: Vec<(u64, u64)>,
}

fn rank(sorted: &[u64], part: f64) -> u64 {
    let at = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0)
}

/// The class of `n` by powers of two: 0 for 1, 1 for 2, 2 for 3 and 4, …
fn class(n: u64) -> usize {
    n.max(1).next_power_of_two().trailing_zeros() as usize
}

fn count<T: Copy + Default + std::ops::AddAssign>(classes: &mut Vec<T>, class: usize, more: T) {
    if classes.len() <= class {
        classes.resize(class + 1, T::default());
    }
    classes[class] += more;
}

fn open(image: &Path) -> Result<Reader> {
    let file = File::open(image).with_context(|| format!("opening {}", image.display()))?;
    let mut head = vec![0; SUPERBLOCK_SIZE];
    file.read_exact_at(&mut head, SUPERBLOCK_OFFSET)?;
    let sb = Superblock::decode(&head)?;
    if sb.incompat().contains(Incompat::RECOVER) {
        bail!("{} was not unmounted cleanly", image.display());
    }
    let geo = sb.geometry()?;
    let layout = DirLayout {
        tail: false,
        filetype: true,
        max_inode: geo.inodes_count,
    };
    Ok(Reader { file, geo, layout })
}

/// The number of free blocks of the volume, and the size of a block in bytes.
pub fn free_space(image: &Path) -> Result<(u64, u64)> {
    let r = open(image)?;
    let mut free = 0;
    for group in 0..r.geo.group_count {
        free += u64::from(r.desc(group)?.free_clusters());
    }
    let ratio = u64::from(r.geo.blocks_per_cluster);
    Ok((free * ratio, u64::from(r.geo.block_size)))
}

/// Measures an image that is not mounted.
pub fn judge(image: &Path) -> Result<Aged> {
    let r = open(image)?;
    let mut found: HashMap<u32, Found> = HashMap::new();
    let mut aged = Aged::default();
    let mut run = 0;
    for group in 0..r.geo.group_count {
        let desc = r.desc(group)?;
        r.inodes(group, &desc, &mut found)
            .with_context(|| format!("the inodes of group {group}"))?;
        r.free(group, &desc, &mut run, &mut aged)?;
    }
    r.free_run(&mut run, &mut aged);
    files(&r, &found, &mut aged);
    places(&r, &found, &mut aged)?;
    Ok(aged)
}

impl Reader {
    fn inodes(&self, group: u32, desc: &GroupDesc, out: &mut HashMap<u32, Found>) -> Result<()> {
        if desc.flags().contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let per = self.geo.inodes_per_group;
        let map = self.block(desc.inode_bitmap())?;
        let size = usize::from(self.geo.inode_size);
        let table = self.bytes(
            desc.inode_table() * u64::from(self.geo.block_size),
            per as usize * size,
        )?;
        for (index, bytes) in (0..per).zip(table.chunks_exact(size)) {
            let ino = group * per + index + 1;
            let own = ino < self.geo.first_inode && ino != stetfs::low::ROOT_INO;
            if own || !bitmap::is_set(&map, index as usize) {
                continue;
            }
            let view = InodeView::new(bytes)?;
            if view.links() > 0 && (view.is_dir() || view.is_regular()) {
                let runs = self.runs(&view).with_context(|| format!("inode {ino}"))?;
                let dir = view.is_dir();
                out.insert(ino, Found { dir, runs });
            }
        }
        Ok(())
    }

    fn free(&self, group: u32, desc: &GroupDesc, run: &mut u64, aged: &mut Aged) -> Result<()> {
        let ratio = u64::from(self.geo.blocks_per_cluster);
        let clusters = self.geo.group_clusters(group);
        aged.free_mib += self.mib(u64::from(desc.free_clusters()) * ratio);
        if desc.flags().contains(GroupFlags::BLOCK_UNINIT) {
            // The group was never used: it is free except for the blocks at its beginning.
            *run += u64::from(desc.free_clusters()) * ratio;
            return Ok(());
        }
        let map = self.block(desc.block_bitmap())?;
        for bit in 0..clusters as usize {
            if bitmap::is_set(&map, bit) {
                self.free_run(run, aged);
            } else {
                *run += ratio;
            }
        }
        Ok(())
    }

    fn free_run(&self, run: &mut u64, aged: &mut Aged) {
        let len = std::mem::take(run);
        if len > 0 {
            aged.free_runs += 1;
            aged.longest_mib = aged.longest_mib.max(self.mib(len));
            count(&mut aged.free_by_length, class(len), self.mib(len));
        }
    }
}

fn files(r: &Reader, found: &HashMap<u32, Found>, aged: &mut Aged) {
    let mut counts: Vec<u64> = Vec::new();
    for file in found.values().filter(|f| !f.dir && !f.runs.is_empty()) {
        let n = file.runs.len() as u64;
        counts.push(n);
        count(&mut aged.by_extents, class(n), 1);
        aged.mib += r.mib(file.runs.iter().map(|(_, len)| len).sum());
    }
    counts.sort_unstable();
    aged.files = counts.len() as u64;
    aged.extents = counts.iter().sum();
    aged.broken = counts.iter().filter(|n| **n > 1).count() as u64;
    aged.ranks = [0.5, 0.9, 0.99, 1.0].map(|part| rank(&counts, part));
}

fn places(r: &Reader, found: &HashMap<u32, Found>, aged: &mut Aged) -> Result<()> {
    let (mut files, mut near, mut distance, mut hops, mut spread) = (0u64, 0u64, 0u64, 0u64, 0u64);
    for (ino, dir) in found.iter().filter(|(_, f)| f.dir) {
        let mut names = Vec::new();
        r.children(&dir.runs, &mut names)
            .with_context(|| format!("directory {ino}"))?;
        let group = r.geo.locate_inode(*ino).map(|(group, _)| group);
        let mut firsts: Vec<u64> = names
            .iter()
            .filter_map(|ino| found.get(ino))
            .filter(|f| !f.dir)
            .filter_map(|f| f.runs.first())
            .map(|(first, _)| *first)
            .collect();
        firsts.sort_unstable();
        let home = dir.runs.first().map_or(0, |(first, _)| *first);
        for first in &firsts {
            files += 1;
            near += u64::from(r.geo.group_of_block(*first) == group);
            distance += first.abs_diff(home);
        }
        for pair in firsts.windows(2) {
            hops += 1;
            spread += pair[1] - pair[0];
        }
    }
    aged.with_directory = near as f64 / files.max(1) as f64;
    aged.distance_mib = r.mib(distance) / files.max(1) as f64;
    aged.spread_mib = r.mib(spread) / hops.max(1) as f64;
    Ok(())
}
