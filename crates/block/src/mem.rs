//! A sparse device in memory with cheap copies.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::SeekFrom;

use crate::range::{check_discard, check_range};
use crate::{
    BlockDevice, Counters, Op, Read, Result, SECTOR, Share, ShareLimits, SharePair, Stats, Write,
    check_share,
};

pub(crate) const PAGE: usize = 4096;
/// Pages of a node. Forks share nodes; the first write after a fork copies a node's pointers.
const FANOUT: usize = 128;
const SHARDS: usize = 16;

type Page = [u8; PAGE];

#[derive(Clone)]
struct Node([Option<Arc<Page>>; FANOUT]);

/// Nodes by number; absent ones are zeros.
type Nodes = BTreeMap<u64, Arc<Node>>;

/// A device in memory. Pages never written read as zeros and take no space. Every write is durable
/// at once; [`Recorder`](crate::Recorder) models loss in a crash.
pub struct MemDevice {
    size: u64,
    sector: u32,
    /// Node `n` lies in shard `n % SHARDS`.
    shards: [RwLock<Nodes>; SHARDS],
    share: Option<ShareLimits>,
    fua: bool,
    counters: Counters,
}

/// The part of one page that a request touches.
pub(crate) struct Piece {
    pub(crate) page: u64,
    pub(crate) in_page: Range<usize>,
}

/// Splits `len` bytes at `offset` into pages.
pub(crate) fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let start = (at % PAGE as u64) as usize;
        let n = ((PAGE - start) as u64).min(end - at);
        let piece = Piece {
            page: at / PAGE as u64,
            in_page: start..start + n as usize,
        };
        at += n;
        Some(piece)
    })
}

impl MemDevice {
    /// A device of `size` zero bytes with 512-byte sectors.
    pub fn new(size: u64) -> Self {
        MemDevice {
            size,
            sector: SECTOR,
            shards: std::array::from_fn(|_| RwLock::new(Nodes::new())),
            share: None,
            fua: false,
            counters: Counters::default(),
        }
    }

    /// The same device, with sectors of `sector` bytes.
    pub fn with_sector_size(mut self, sector: u32) -> Self {
        self.sector = sector;
        self
    }

    /// The same device with the SHARE capability: pages of 4 KiB, at most `pairs` in a batch. It
    /// does not count references. `atomic` is the promise that it reports, for recorders.
    pub fn with_share(mut self, pairs: u64, atomic: bool) -> Self {
        self.share = Some(ShareLimits {
            unit: PAGE as u32,
            pairs,
            references: u64::MAX,
            atomic,
        });
        self
    }

    /// The same device, which reports FUA, for recorders.
    pub fn with_fua(mut self) -> Self {
        self.fua = true;
        self
    }

    /// A device that holds a copy of `image`.
    pub fn from_image(image: &[u8]) -> Self {
        let dev = Self::new(image.len() as u64);
        for (i, chunk) in image.chunks(PAGE).enumerate() {
            if chunk.iter().any(|&b| b != 0) {
                dev.store((i * PAGE) as u64, chunk);
            }
        }
        dev
    }

    /// A device that holds a copy of the image file at `path`; its holes stay holes.
    pub fn load(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        let dev = Self::new(file.metadata()?.len());
        let mut at = 0;
        let mut page = vec![0; PAGE];
        while at < dev.size {
            at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(data) => data - data % PAGE as u64,
                Err(rustix::io::Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            };
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(at))
                .unwrap_or(dev.size)
                .min(dev.size);
            // A hole may begin inside the page in which data began.
            let hole = hole.max(at + 1);
            while at < hole {
                let n = (dev.size - at).min(PAGE as u64) as usize;
                let Some(chunk) = page.get_mut(..n) else {
                    break;
                };
                file.read_exact_at(chunk, at)?;
                dev.store(at, chunk);
                at += n as u64;
            }
        }
        Ok(dev)
    }

    /// Writes the content to an image file at `path`, replacing it; zero pages become holes.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        self.each_page(|offset, page| {
            let n = (self.size - offset).min(PAGE as u64) as usize;
            match page.get(..n) {
                Some(bytes) if !is_zero(bytes) => file.write_all_at(bytes, offset),
                _ => Ok(()),
            }
        })
    }

    /// A copy of the current content, in time proportional to the nodes in use. The copies share
    /// all pages until either side writes them. A concurrent request is in it wholly, partly or not
    /// at all. Its counters begin at zero.
    pub fn fork(&self) -> Self {
        // All locks are taken first: the copy is of one moment.
        let locked: Vec<_> = self.shards.iter().map(|s| s.read()).collect();
        let mut copies = locked.iter().map(|s| Nodes::clone(s));
        MemDevice {
            size: self.size,
            sector: self.sector,
            shards: std::array::from_fn(|_| RwLock::new(copies.next().unwrap_or_default())),
            share: self.share,
            fua: self.fua,
            counters: Counters::default(),
        }
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.size as usize];
        self.fetch(0, &mut all);
        all
    }

    /// The ranges, in whole 4 KiB pages cut to the size, in which the two devices differ. Pages
    /// that two forks still share are not compared. Devices of different size are compared up to
    /// the smaller.
    pub fn differences(&self, other: &MemDevice) -> Vec<Range<u64>> {
        let (a, b) = (self.fork(), other.fork());
        let size = a.size.min(b.size);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut pages: Vec<u64> = Vec::new();
        for (x, y) in a.shards.iter().zip(&b.shards) {
            let (x, y) = (x.read(), y.read());
            for (&n, node) in x.iter().chain(y.iter().filter(|(n, _)| !x.contains_key(n))) {
                if let (Some(p), Some(q)) = (x.get(&n), y.get(&n))
                    && Arc::ptr_eq(p, q)
                {
                    continue;
                }
                let _ = node;
                for i in 0..FANOUT {
                    let p = x.get(&n).and_then(|node| node.0.get(i)?.as_ref());
                    let q = y.get(&n).and_then(|node| node.0.get(i)?.as_ref());
                    let same = match (p, q) {
                        (Some(p), Some(q)) => Arc::ptr_eq(p, q) || p == q,
                        (Some(p), None) | (None, Some(p)) => is_zero(&**p),
                        (None, None) => true,
                    };
                    if !same {
                        pages.push(n * FANOUT as u64 + i as u64);
                    }
                }
            }
        }
        pages.sort_unstable();
        for page in pages {
            let start = page * PAGE as u64;
            let end = (start + PAGE as u64).min(size);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ if start < end => ranges.push(start..end),
                _ => {}
            }
        }
        ranges
    }

    /// Calls `f` with offset and content of every page in memory, in no order.
    fn each_page(&self, mut f: impl FnMut(u64, &Page) -> io::Result<()>) -> io::Result<()> {
        for shard in &self.shards {
            for (n, node) in shard.read().iter() {
                for (i, page) in node.0.iter().enumerate() {
                    if let Some(page) = page {
                        f((n * FANOUT as u64 + i as u64) * PAGE as u64, page)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn shard(&self, node: u64) -> &RwLock<Nodes> {
        &self.shards[(node % SHARDS as u64) as usize]
    }

    /// A page by number; `None` is zeros.
    fn page(&self, number: u64) -> Option<Arc<Page>> {
        let node = number / FANOUT as u64;
        let nodes = self.shard(node).read();
        nodes.get(&node)?.0[(number % FANOUT as u64) as usize].clone()
    }

    /// Reads inside the device; the range is checked.
    fn fetch(&self, offset: u64, mut buf: &mut [u8]) {
        for piece in pieces(offset, buf.len() as u64) {
            let (mine, rest) = buf.split_at_mut(piece.in_page.len());
            buf = rest;
            let node = piece.page / FANOUT as u64;
            let nodes = self.shard(node).read();
            match nodes
                .get(&node)
                .and_then(|n| n.0[(piece.page % FANOUT as u64) as usize].as_ref())
            {
                Some(page) => mine.copy_from_slice(&page[piece.in_page]),
                None => mine.fill(0),
            }
        }
    }

    /// Writes inside the device; the range is checked. Whole pages of zeros take no memory.
    pub(crate) fn store(&self, offset: u64, mut data: &[u8]) {
        for piece in pieces(offset, data.len() as u64) {
            let (mine, rest) = data.split_at(piece.in_page.len());
            data = rest;
            let number = piece.page / FANOUT as u64;
            let mut nodes = self.shard(number).write();
            let node = nodes
                .entry(number)
                .or_insert_with(|| Arc::new(Node([const { None }; FANOUT])));
            let slot = &mut Arc::make_mut(node).0[(piece.page % FANOUT as u64) as usize];
            if slot.is_none() && is_zero(mine) {
                continue;
            }
            let page = slot.get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[piece.in_page].copy_from_slice(mine);
        }
    }

    /// Zeros a range inside the device; the range is checked.
    pub(crate) fn erase(&self, range: Range<u64>) {
        for piece in pieces(range.start, range.end.saturating_sub(range.start)) {
            let number = piece.page / FANOUT as u64;
            let mut nodes = self.shard(number).write();
            let Some(node) = nodes.get_mut(&number) else {
                continue;
            };
            let i = (piece.page % FANOUT as u64) as usize;
            if node.0[i].is_none() {
                continue;
            }
            let slot = &mut Arc::make_mut(node).0[i];
            if piece.in_page.len() == PAGE {
                *slot = None;
            } else if let Some(page) = slot {
                Arc::make_mut(page)[piece.in_page].fill(0);
            }
        }
    }
}

/// Whether all of `bytes`, at most a page, are zero.
fn is_zero(bytes: &[u8]) -> bool {
    const ZERO: Page = [0; PAGE];
    ZERO.get(..bytes.len()) == Some(bytes)
}

impl fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemDevice")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl BlockDevice for MemDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for read in reads.iter() {
            check_range(Op::Read, read.offset, read.len(), self.size)?;
        }
        for read in reads {
            self.counters.read(1, read.len());
            let mut at = read.offset;
            for slice in read.data.slices_mut() {
                self.fetch(at, slice);
                at += slice.len() as u64;
            }
        }
        Ok(())
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        for write in writes {
            check_range(Op::Write, write.offset, write.len(), self.size)?;
        }
        for write in writes {
            self.counters.write(1, write.len());
            let mut at = write.offset;
            for slice in write.data.slices() {
                self.store(at, slice);
                at += slice.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.counters.flush();
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_discard(&range, self.size)?;
        self.counters.discard(range.end.saturating_sub(range.start));
        self.erase(range);
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        self.discard(range)
    }

    fn has_fua(&self) -> bool {
        self.fua
    }

    fn share(&self) -> Option<&dyn Share> {
        self.share.is_some().then_some(self as &dyn Share)
    }

    fn snapshot(&self) -> Option<Arc<dyn BlockDevice>> {
        Some(Arc::new(self.fork()))
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

impl Share for MemDevice {
    fn limits(&self) -> ShareLimits {
        self.share.unwrap_or(ShareLimits {
            unit: PAGE as u32,
            pairs: 0,
            references: 0,
            atomic: false,
        })
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        check_share(pairs, &self.limits(), self.size)?;
        self.counters.share(pairs);
        for (dst, src) in pairs.iter().flat_map(|pair| pair.units(PAGE as u32)) {
            let (dst, page) = (dst / PAGE as u64, self.page(src / PAGE as u64));
            let number = dst / FANOUT as u64;
            let mut nodes = self.shard(number).write();
            let node = nodes
                .entry(number)
                .or_insert_with(|| Arc::new(Node([const { None }; FANOUT])));
            Arc::make_mut(node).0[(dst % FANOUT as u64) as usize] = page;
        }
        Ok(())
    }
}
