//! Changes of a file that no crash may leave half made: they are in one transaction, if one can
//! hold them.
//!
//! A handle that runs out of credits goes on in the next transaction when its own has no room,
//! which may be after any step. So the credits for all steps are asked for before the first one
//! changes anything that a reader could see. Only what no transaction of this journal could hold is
//! done in parts, and after a crash the parts done stand.

use std::collections::BTreeSet;
use std::ops::Range;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::extent::MAX_UNWRITTEN_LEN;
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::blockmap;
use super::extents::edit_credits;
use super::store::DataStore;
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use stetfs_ondisk::num::count32;

/// Entries that a leaf surely takes after it was split: a leaf of the smallest block has 84, half
/// of them move, and a place that changes adds two at most.
const PLACES_A_SPLIT: Credits = 16;

/// Credits for each group of a run that is freed, or taken.
const EACH_GROUP: Credits = if credits::FREE_BLOCKS > credits::ALLOC_BLOCKS {
    credits::FREE_BLOCKS
} else {
    credits::ALLOC_BLOCKS
};

/// How the steps of a change follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steps {
    /// The handle has the credits for all of them.
    Whole,
    /// Each asks for its own, and may go on in another transaction.
    Parts,
}

/// The pieces of a file's map in a range.
pub(super) struct Pieces {
    pub(super) count: Credits,
    /// Blocks mapped.
    pub(super) blocks: u64,
    /// The groups that they lie in.
    pub(super) groups: BTreeSet<u32>,
}

/// A run of blocks that changes hands in one step of a long change.
pub(super) struct LongRun {
    pub(super) len: u32,
    /// Credits for the step.
    pub(super) credits: Credits,
}

impl DataStore {
    /// As much of a run of `len` blocks of a file as one step frees, or takes: wherever it lies,
    /// half a transaction holds what its groups change, but for the map.
    pub(super) fn long_run(&self, body: &InodeBody, len: u32) -> LongRun {
        let map = self.map_credits(body);
        let of_group = self.vol.geo.blocks_per_group.max(1);
        let groups = len / of_group + 2;
        let half = self.vol.journal.max_credits() / 2;
        // A run may lie across a border, however short it is.
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

    /// Sees to it that the handle has the credits for a whole change, in another transaction if its
    /// own has no room. Nothing that must not stand alone was changed yet.
    ///
    /// # Errors
    /// The journal's.
    pub(super) fn whole_change(
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

    /// Credits to take a range of blocks away, with what is zeroed at its ends, and the inode.
    ///
    /// # Errors
    /// A damaged map.
    pub(super) fn punch_credits(
        &self,
        inode: &Inode,
        body: &InodeBody,
        blocks: Range<u64>,
    ) -> Result<Credits> {
        let pieces = self.pieces(inode, body, blocks, self.vol.journal.max_credits())?;
        // Only a piece that is cut in its middle leaves one more than there was.
        let map = self.edits(body, pieces.count, 1);
        let frees = count32(pieces.groups.len()) * credits::FREE_BLOCKS;
        Ok(2 + credits::WRITE_INODE + map.saturating_add(frees))
    }

    /// Credits to make a range of blocks unwritten, with what is zeroed at its ends and behind the
    /// old end of the file, and the inode.
    ///
    /// # Errors
    /// A damaged map.
    pub(super) fn zero_credits(
        &self,
        inode: &Inode,
        body: &InodeBody,
        blocks: Range<u64>,
    ) -> Result<Credits> {
        let long = (blocks.end.saturating_sub(blocks.start)) / u64::from(MAX_UNWRITTEN_LEN);
        let pieces = self.pieces(inode, body, blocks, self.vol.journal.max_credits())?;
        let places = Credits::try_from(long).unwrap_or(Credits::MAX);
        // Pieces are cut at the ends of the range, and where they are longer than what may be
        // unwritten.
        let cuts = places.saturating_add(2);
        let map = self.edits(body, pieces.count.saturating_add(places), cuts);
        Ok((3 + credits::WRITE_INODE).saturating_add(map))
    }

    /// Credits to map `runs` new runs in one range of blocks, or to make them written.
    pub(super) fn runs_credits(&self, body: &InodeBody, runs: Credits) -> Credits {
        let allocated = runs.saturating_mul(credits::ALLOC_BLOCKS);
        self.edits(body, runs, runs).saturating_add(allocated)
    }

    /// Credits to change the map in `places` of one range, `grow` of which may leave more entries
    /// than there were; the inode is among them.
    pub(super) fn edits(&self, body: &InodeBody, places: Credits, grow: Credits) -> Credits {
        if !body.flags().contains(InodeFlags::EXTENTS) {
            return places.max(1).saturating_mul(blockmap::EDIT_CREDITS);
        }
        let depth = self.tree_depth(body);
        // Of a run of full leaves only those at the ends of the range hold less than they can:
        // leaves between them are split for many places each.
        let splits = grow.min(2 + grow / PLACES_A_SPLIT);
        let first = edit_credits(depth);
        let more = splits.saturating_sub(1) * edit_credits(depth.saturating_add(1));
        // The nodes above a place, each changed, or freed.
        let nodes = places.saturating_mul(Credits::from(depth) * (1 + credits::FREE_BLOCKS));
        (first + more).saturating_add(nodes)
    }

    /// What is mapped in a range, as far as the first `most` pieces and one more.
    pub(super) fn pieces(
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

    use super::super::map::Mapping;
    use crate::fs::Fs;
    use crate::inode::OpenRef;
    use crate::testing::{fsck, mkfs};
    use crate::types::{Ctx, FallocateMode, FsOptions, ROOT_INO, SetAttr};

    type Operation = fn(&Fs, &OpenRef);

    /// On a file of 23 blocks of 1024 bytes, in pieces of two with a hole behind each.
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

    /// A volume with the file, and another of many blocks to fill transactions with.
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

    /// Has the running transaction hold `count` blocks.
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

    /// Does it where the running transaction has `room` for so many blocks more, and gives what a
    /// crash leaves of the file when that transaction is the last one that is durable.
    fn cut_after_the_first(base: &MemDevice, op: Operation, room: u32) -> Vec<u8> {
        let device = Arc::new(base.fork());
        let fs = open(&device);
        let file = find(&fs, b"file");
        let (is_held, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        let first = std::thread::scope(|scope| {
            // While its handle is open nothing commits; it gives way when the operation waits for
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

    /// With the canary `endless-runs` the file can never be cut off, nor its volume be opened while
    /// it is an orphan.
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
