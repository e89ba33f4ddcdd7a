//! Changes of a file that no crash may leave half made: each is in one transaction, if one can hold
//! it.
//!
//! A handle that runs out of credits continues in the next transaction if its own has no room,
//! which may happen after any step. So a change asks for the credits of all steps before the first
//! step that a reader could see. Only a change that no transaction of this journal can hold is made
//! in parts; after a crash, the finished parts stand.

use std::collections::BTreeSet;
use std::ops::Range;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::extent::MAX_UNWRITTEN_LEN;
use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::data::maps::blockmap;
use crate::data::maps::extents::edit_credits;
use crate::data::store::DataStore;
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use stetfs_ondisk::num::count32;

/// Changed places between two splits of a leaf, at least. A leaf of the smallest block has 84
/// entries; a split moves half of them, and a changed place adds two at most.
const PLACES_A_SPLIT: Credits = 16;

/// Credits for each group of a run that is freed or allocated.
const EACH_GROUP: Credits = if credits::FREE_BLOCKS > credits::ALLOC_BLOCKS {
    credits::FREE_BLOCKS
} else {
    credits::ALLOC_BLOCKS
};

/// The way in which the steps of a change share handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steps {
    /// The handle has the credits for all steps.
    Whole,
    /// Each step gets its own credits, and may be in another transaction.
    Parts,
}

/// The pieces of a file's map in a range.
pub(crate) struct Pieces {
    pub(in crate::data) count: Credits,
    /// Blocks mapped.
    pub(crate) blocks: u64,
    /// The groups of these blocks.
    pub(crate) groups: BTreeSet<u32>,
}

/// A part of a run that one step of a long change frees or allocates.
pub(in crate::data) struct LongRun {
    pub(in crate::data) len: u32,
    /// Credits for the step.
    pub(in crate::data) credits: Credits,
}

impl DataStore {
    /// The part of a run of `len` blocks of a file that one step frees or allocates. Half a
    /// transaction holds the changes of its groups and the map, wherever the run lies.
    pub(in crate::data) fn long_run(&self, body: &InodeBody, len: u32) -> LongRun {
        let map = self.map_credits(body);
        let of_group = self.vol.geo.blocks_per_group.max(1);
        let groups = len / of_group + 2;
        let half = self.vol.journal.max_credits() / 2;
        // At least two groups: a run may cross a group border, however short it is.
        let most = (half.saturating_sub(map) / EACH_GROUP).max(2);
        if groups <= most || self.vol.opts.canary.endless_runs {
            let credits = map + groups * EACH_GROUP;
            return LongRun { len, credits };
        }
        LongRun {
            len: len.min((most - 1).saturating_mul(of_group)),
            credits: map + most * EACH_GROUP,
        }
    }

    /// Gets the credits for a whole change, in another transaction if the handle's own has no room.
    /// Until now, nothing has changed that must not stand alone.
    ///
    /// # Errors
    /// Errors of the journal.
    pub(in crate::data) fn whole_change(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        need: Credits,
    ) -> Result<Steps> {
        if need > self.vol.journal.max_credits() {
            return Ok(Steps::Parts);
        }
        self.more_credits(h, inode, body, need)?;
        Ok(Steps::Whole)
    }

    /// Credits to remove a range of blocks, including zeroing at its ends and the inode.
    ///
    /// # Errors
    /// `Corrupt` when the map is damaged.
    pub(crate) fn punch_credits(
        &self,
        inode: &Inode,
        body: &InodeBody,
        blocks: Range<u64>,
    ) -> Result<Credits> {
        let pieces = self.pieces(inode, body, blocks, self.vol.journal.max_credits())?;
        // Only a piece that is cut in its middle adds an entry.
        let map = self.edits(body, pieces.count, 1);
        let frees = count32(pieces.groups.len()) * credits::FREE_BLOCKS;
        Ok(2 + credits::WRITE_INODE + map.saturating_add(frees))
    }

    /// Credits to make a range of blocks unwritten, including zeroing at its ends and behind the
    /// old end of the file, and the inode.
    ///
    /// # Errors
    /// `Corrupt` when the map is damaged.
    pub(in crate::data) fn zero_credits(
        &self,
        inode: &Inode,
        body: &InodeBody,
        blocks: Range<u64>,
    ) -> Result<Credits> {
        let long = (blocks.end.saturating_sub(blocks.start)) / u64::from(MAX_UNWRITTEN_LEN);
        let pieces = self.pieces(inode, body, blocks, self.vol.journal.max_credits())?;
        let places = Credits::try_from(long).unwrap_or(Credits::MAX);
        // Pieces are cut at the ends of the range, and where they are longer than an unwritten
        // extent may be.
        let cuts = places.saturating_add(2);
        let map = self.edits(body, pieces.count.saturating_add(places), cuts);
        Ok((3 + credits::WRITE_INODE).saturating_add(map))
    }

    /// Credits to map `runs` new runs in one range of blocks, or to make them written.
    pub(crate) fn runs_credits(&self, body: &InodeBody, runs: Credits) -> Credits {
        let allocated = runs.saturating_mul(credits::ALLOC_BLOCKS);
        self.edits(body, runs, runs).saturating_add(allocated)
    }

    /// Credits to change the map in `places` of one range, including the inode; `grow` of the
    /// places may add entries.
    pub(crate) fn edits(&self, body: &InodeBody, places: Credits, grow: Credits) -> Credits {
        if !body.flags().contains(InodeFlags::EXTENTS) {
            return places.max(1).saturating_mul(blockmap::EDIT_CREDITS);
        }
        let depth = self.tree_depth(body);
        // In a run of full leaves, only those at the ends of the range split early; a leaf between
        // them splits only after many places.
        let splits = grow.min(2 + grow / PLACES_A_SPLIT);
        let first = edit_credits(depth);
        let more = splits.saturating_sub(1) * edit_credits(depth.saturating_add(1));
        // The nodes above each place: changed, or freed.
        let nodes = places.saturating_mul(Credits::from(depth) * (1 + credits::FREE_BLOCKS));
        (first + more).saturating_add(nodes)
    }

    /// The mapped pieces in a range. Counts at most one more than `most`.
    pub(crate) fn pieces(
        &self,
        inode: &Inode,
        body: &InodeBody,
        blocks: Range<u64>,
        most: Credits,
    ) -> Result<Pieces> {
        let mut pieces = Pieces {
            count: 0,
            blocks: 0,
            groups: BTreeSet::new(),
        };
        let mut at = blocks.start;
        while at < blocks.end && pieces.count <= most {
            let Some(e) = self
                .next_extent(inode, body, at)?
                .filter(|e| u64::from(e.block) < blocks.end)
            else {
                break;
            };
            let from = u64::from(e.block).max(blocks.start);
            let upto = e.logical_end().min(blocks.end);
            let place = |at: u64| {
                let nr = e.start.saturating_add(at - u64::from(e.block));
                self.vol.geo.layout.group_of_block(nr)
            };
            if let (Some(first), Some(last)) = (place(from), place(upto - 1)) {
                pieces.groups.extend(first..=last);
            }
            pieces.count += 1;
            pieces.blocks += upto - from;
            at = e.logical_end();
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use stetfs_block::MemDevice;
    use stetfs_testkit::Mkfs;

    use crate::data::maps::map::Mapping;
    use crate::fs::Fs;
    use crate::ops::inodes::OpenRef;
    use crate::testing::{fsck, mkfs};
    use crate::types::{Ctx, FallocateMode, FsOptions, ROOT_INO, SetAttr};

    type Operation = fn(&Fs, &OpenRef);

    /// The operations, for a file of 23 blocks of 1024 bytes, in pieces of two with a hole behind
    /// each.
    const OPERATIONS: &[(&str, Operation)] = &[
        ("punch", |fs, file| {
            allocate(fs, file, FallocateMode::PunchHole, 1500..21_500);
        }),
        ("zero", |fs, file| {
            let mode = FallocateMode::ZeroRange { keep_size: true };
            allocate(fs, file, mode, 1500..21_500);
        }),
        ("zero, and grow", |fs, file| {
            let mode = FallocateMode::ZeroRange { keep_size: false };
            allocate(fs, file, mode, 3500..33_500);
        }),
        ("allocate, and grow", |fs, file| {
            let mode = FallocateMode::Allocate { keep_size: false };
            allocate(fs, file, mode, 1500..41_500);
        }),
        ("write", |fs, file| {
            let n = fs
                .write(&Ctx::ROOT, file, 700, &[7; 20_000], false)
                .unwrap();
            assert_eq!(n, 20_000);
        }),
        ("cut", |fs, file| set_size(fs, file, 1500)),
        ("grow", |fs, file| set_size(fs, file, 60_000)),
    ];

    fn allocate(fs: &Fs, file: &OpenRef, mode: FallocateMode, range: std::ops::Range<u64>) {
        let len = range.end - range.start;
        fs.fallocate(&Ctx::ROOT, file, mode, range.start, len)
            .unwrap();
    }

    fn set_size(fs: &Fs, file: &OpenRef, size: u64) {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        fs.setattr(&Ctx::ROOT, file.ino(), &set).unwrap();
    }

    fn open(device: &Arc<MemDevice>) -> Arc<Fs> {
        let opts = FsOptions {
            journal: "data".parse().unwrap(),
            commit_secs: 600,
            ..FsOptions::default()
        };
        Fs::open(device.clone(), opts).unwrap()
    }

    fn find(fs: &Fs, name: &[u8]) -> OpenRef {
        let attr = fs.lookup(ROOT_INO, name).unwrap();
        fs.open_inode(&Ctx::ROOT, attr.ino, libc::O_RDWR).unwrap()
    }

    fn content(fs: &Fs) -> Vec<u8> {
        let file = find(fs, b"file");
        let mut data = vec![0; 100_000];
        let n = fs.read(&file, 0, &mut data).unwrap();
        data.truncate(n);
        data
    }

    /// A volume with the file, and another file of many blocks to fill transactions with.
    fn volume() -> Arc<MemDevice> {
        let device = mkfs(16, &Mkfs::blocks(1024).journal_mib(1));
        let fs = open(&device);
        let create = |name: &[u8]| {
            let made = fs.create(&Ctx::ROOT, ROOT_INO, name, 0o644, 0, libc::O_RDWR);
            made.unwrap().1
        };
        let (file, filler) = (create(b"file"), create(b"filler"));
        for piece in 0..8 {
            let at = piece * 3072;
            fs.write(&Ctx::ROOT, &file, at, &[1; 2048], false).unwrap();
        }
        let many = vec![2; 400 << 10];
        fs.write(&Ctx::ROOT, &filler, 0, &many, false).unwrap();
        drop((file, filler));
        fs.unmount().unwrap();
        device
    }

    /// Fills the running transaction with `count` blocks.
    fn fill(fs: &Fs, count: u32) {
        let filler = find(fs, b"filler");
        let body = filler.inode.body.read();
        let h = fs.vol.journal.begin(count).unwrap();
        for lblk in 0..count {
            let Ok(Mapping::Mapped { start, .. }) = fs.data.map(&filler.inode, &body, lblk, 1)
            else {
                panic!("the filler has a hole");
            };
            drop(h.modify(&fs.vol.cache.read(start).unwrap()).unwrap());
        }
    }

    /// Runs the operation when the running transaction has `room` for this many blocks more.
    /// Returns the content of the file after a crash with that transaction as the last durable one.
    fn cut_after_the_first(base: &MemDevice, op: Operation, room: u32) -> Vec<u8> {
        let device = Arc::new(base.fork());
        let fs = open(&device);
        let file = find(&fs, b"file");
        let (is_held, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        let first = std::thread::scope(|scope| {
            // No commit happens while this handle is open; it stops when the operation waits for
            // room.
            scope.spawn(|| {
                let h = fs.vol.journal.begin(1).unwrap();
                is_held.store(true, Ordering::Release);
                while !is_done.load(Ordering::Acquire) && !fs.vol.journal.is_awaited() {
                    std::thread::sleep(Duration::from_micros(100));
                }
                drop(h);
            });
            while !is_held.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            fill(&fs, fs.vol.journal.max_credits() - 1 - room);
            let first = fs.vol.journal.begin(0).unwrap().point();
            op(&fs, &file);
            is_done.store(true, Ordering::Release);
            first
        });
        fs.vol.journal.commit(&first).unwrap();
        let crashed = Arc::new(device.fork());
        drop(file);
        let again = open(&crashed);
        let left = content(&again);
        again.unmount().unwrap();
        if room.is_multiple_of(16) {
            fsck(&crashed);
        }
        left
    }

    #[test]
    fn no_crash_leaves_half_of_a_change() {
        let base = volume();
        for (name, op) in OPERATIONS {
            let fs = open(&Arc::new(base.fork()));
            let old = content(&fs);
            op(&fs, &find(&fs, b"file"));
            let new = content(&fs);
            drop(fs);
            assert!(old != new, "{name} does something");
            let half: Vec<u32> = (0..150)
                .step_by(3)
                .filter(|room| {
                    let left = cut_after_the_first(&base, *op, *room);
                    left != old && left != new
                })
                .collect();
            assert_eq!(half, [0; 0], "{name} was cut with room for so many blocks");
        }
    }

    /// The longest run of a file, blocks.
    fn longest_run(fs: &Fs, file: &OpenRef) -> u32 {
        let body = file.inode.body.read();
        let (mut at, mut longest) = (0, 0);
        while let Some(e) = fs.data.next_extent(&file.inode, &body, at).unwrap() {
            (at, longest) = (e.logical_end(), longest.max(e.len));
        }
        longest
    }

    /// With the canary `endless-runs` the file can never be truncated, nor its volume be opened
    /// while it is an orphan.
    #[test]
    fn a_run_over_many_groups_is_freed_in_parts() {
        let few_backups = "sparse_super2,^resize_inode";
        let mut options = Mkfs::blocks(1024).feature(few_backups).journal_mib(1);
        let small_groups = ["-g", "256", "-G", "512", "-N", "1024"];
        options.args.extend(small_groups.map(String::from));
        let base = mkfs(96, &options);
        for endless_runs in [false, true] {
            let device = Arc::new(base.fork());
            let mut opts = FsOptions::default();
            opts.canary.endless_runs = endless_runs;
            let fs = Fs::open(device.clone(), opts).unwrap();
            let (_, file) = fs
                .create(&Ctx::ROOT, ROOT_INO, b"file", 0o644, 0, libc::O_RDWR)
                .unwrap();
            let mode = FallocateMode::Allocate { keep_size: false };
            allocate(&fs, &file, mode, 0..60 << 20);
            let longest = longest_run(&fs, &file);
            let step = fs.data.long_run(&file.inode.body.read(), longest).len;
            assert_eq!(step < longest, !endless_runs, "{step} of {longest}");
            let set = SetAttr {
                size: Some(1500),
                ..SetAttr::default()
            };
            let cut = fs.setattr(&Ctx::ROOT, file.ino(), &set);
            assert_eq!(cut.is_err(), endless_runs, "{cut:?}");
            drop(file);
            if cut.is_ok() {
                assert_eq!(fs.lookup(ROOT_INO, b"file").unwrap().blocks, 4);
                fs.unmount().unwrap();
                fsck(&device);
            }
        }
    }
}
