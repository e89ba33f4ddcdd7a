#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use stetfs_testkit::Mkfs;

use super::{AllocFor, BlockRun, Freed, credits};
use crate::durability::MetadataLedger;
use crate::error::FsError;
use crate::fs::Fs;
use crate::state::body::InodeBody;
use crate::state::inode::Inode;
use crate::testing::{flavours, fsck, mkfs, new_file, open};
use crate::types::{Ctx, Ino, ROOT_INO, RenameFlags, XattrSet};

/// An inode that exists only in memory: an owner for blocks.
fn owner(fs: &Fs, ino: Ino) -> Inode {
    let raw = vec![0; usize::from(fs.vol.geo.inode_size)].into_boxed_slice();
    let mut body = InodeBody::new(raw, &fs.vol.geo).unwrap();
    body.set_mode(libc::S_IFREG as u16);
    Inode::new(ino, body, MetadataLedger::default()).unwrap()
}

fn alloc(
    fs: &Fs,
    inode: &Inode,
    goal: Option<u64>,
    want: u32,
    purpose: AllocFor,
) -> Result<BlockRun, FsError> {
    let h = fs.vol.journal.begin(credits::ALLOC_BLOCKS + 1).unwrap();
    fs.space.alloc_blocks(&h, inode, goal, want, purpose)
}

fn free(fs: &Fs, run: BlockRun) {
    let h = fs.vol.journal.begin(credits::FREE_BLOCKS * 2).unwrap();
    fs.space.free_blocks(&h, run, Freed::Data).unwrap();
}

/// Runs in use, by start.
#[derive(Default)]
struct Model(BTreeMap<u64, BlockRun>);

impl Model {
    fn take(&mut self, run: BlockRun) {
        let before = self.0.range(..run.end()).next_back().map(|(_, r)| *r);
        assert!(
            before.is_none_or(|r| r.end() <= run.start),
            "{run:?} overlaps {before:?}"
        );
        self.0.insert(run.start, run);
    }

    fn blocks(&self) -> u64 {
        self.0.values().map(|r| u64::from(r.len)).sum()
    }
}

/// space.S1.
#[test]
fn allocation_agrees_with_a_model_and_e2fsck() {
    for (name, mib, options) in flavours() {
        let device = mkfs(mib, &options);
        let fs = open(&device);
        let mut rng = fastrand::Rng::with_seed(7);
        let start = fs.space.groups.free_blocks();
        let owners: Vec<Inode> = (0..6).map(|i| owner(&fs, 12 + i * 3)).collect();
        let mut model = Model::default();
        for step in 0..600 {
            if rng.u8(..) < 150 {
                let inode = &owners[rng.usize(..owners.len())];
                let goal = rng.bool().then(|| rng.u64(..fs.vol.geo.blocks_count + 10));
                let purpose = if rng.u8(..) < 200 {
                    AllocFor::Data
                } else {
                    AllocFor::Meta
                };
                let run = match alloc(&fs, inode, goal, 1 + rng.u32(..600), purpose) {
                    Ok(run) => run,
                    Err(e) => {
                        assert_eq!(e.errno(), libc::ENOSPC, "{name}: {e}");
                        continue;
                    }
                };
                assert!(
                    fs.space.check_run(run).is_ok(),
                    "{name}: {run:?} is not for files"
                );
                model.take(run);
            } else if let Some(run) = model
                .0
                .range(rng.u64(..fs.vol.geo.blocks_count)..)
                .next()
                .map(|(_, r)| *r)
            {
                model.0.remove(&run.start);
                // Often only a part is freed, from one end.
                let cut = rng.u32(..=run.len / 2);
                let cut = cut - cut % fs.vol.geo.ratio();
                let (gone, left) = if rng.bool() {
                    let len = run.len - cut;
                    (
                        BlockRun {
                            start: run.start,
                            len,
                        },
                        BlockRun {
                            start: run.start + u64::from(len),
                            len: cut,
                        },
                    )
                } else {
                    (
                        BlockRun {
                            start: run.start + u64::from(cut),
                            len: run.len - cut,
                        },
                        BlockRun {
                            start: run.start,
                            len: cut,
                        },
                    )
                };
                free(&fs, gone);
                if left.len > 0 {
                    model.take(left);
                }
            }
            let used = model.blocks() / u64::from(fs.vol.geo.ratio());
            assert_eq!(fs.space.groups.free_blocks() + used, start, "{name}");
            if step % 100 == 99 {
                fs.vol.journal.commit_all().unwrap();
            }
        }
        for run in std::mem::take(&mut model.0).into_values() {
            free(&fs, run);
        }
        fs.unmount().unwrap();
        assert_eq!(fs.space.groups.free_blocks(), start, "{name}");
        fsck(&device);
    }
}

/// space.S2.
#[test]
fn a_freed_block_comes_back_only_after_the_commit() {
    let device = mkfs(16, &Mkfs::blocks(1024));
    let fs = open(&device);
    let inode = owner(&fs, 12);
    let run = alloc(&fs, &inode, None, 16, AllocFor::Meta).unwrap();
    free(&fs, run);
    let other = alloc(&fs, &inode, Some(run.start), 16, AllocFor::Meta).unwrap();
    assert!(
        other.end() <= run.start || other.start >= run.end(),
        "{other:?} reuses {run:?}"
    );
    let mut waiting = 0;
    for group in 0..fs.space.groups.count() {
        let st = fs.space.groups.lock(group).unwrap();
        let pending = st.pending.as_ref().map_or(0, |p| p.count());
        let usable = st.desc.free_clusters() - pending;
        assert_eq!(fs.space.groups.available(group), usable, "space.S3");
        waiting += pending;
    }
    assert_eq!(waiting, run.len);
    fs.vol.journal.commit_all().unwrap();
    let again = alloc(&fs, &inode, Some(run.start), 16, AllocFor::Meta).unwrap();
    assert_eq!(again, run);
}

#[test]
fn the_volume_can_be_filled_to_the_last_block_and_emptied() {
    for blocks in [1024, 4096] {
        let device = mkfs(24, &Mkfs::blocks(blocks));
        let fs = open(&device);
        let free_before = fs.space.groups.free_blocks();
        let inodes: Vec<Inode> = (0..4).map(|i| owner(&fs, 12 + i)).collect();
        let mut runs = Vec::new();
        let mut i = 0;
        loop {
            match alloc(&fs, &inodes[i % 4], None, 37, AllocFor::Data) {
                Ok(run) => runs.push(run),
                Err(e) => {
                    assert_eq!(e.errno(), libc::ENOSPC);
                    break;
                }
            }
            i += 1;
        }
        assert_eq!(
            runs.iter().map(|r| u64::from(r.len)).sum::<u64>(),
            free_before
        );
        assert_eq!(fs.space.groups.free_blocks(), 0);
        assert!(fs.space.reserve(1, true).is_err());
        for run in runs {
            free(&fs, run);
        }
        // Nothing can be allocated before the commit; `reserve` makes it available.
        assert_eq!(
            alloc(&fs, &inodes[0], None, 1, AllocFor::Data)
                .unwrap_err()
                .errno(),
            libc::ENOSPC
        );
        drop(fs.space.reserve(100, true).unwrap());
        alloc(&fs, &inodes[0], None, 1, AllocFor::Data)
            .map(|run| free(&fs, run))
            .unwrap();
        fs.unmount().unwrap();
        fsck(&device);
    }
}

#[test]
fn writers_side_by_side_stay_contiguous() {
    let device = mkfs(256, &Mkfs::blocks(4096));
    let fs = open(&device);
    let inodes: Vec<Inode> = (0..4).map(|i| owner(&fs, 12 + i)).collect();
    let mut files: Vec<Vec<BlockRun>> = vec![Vec::new(); 4];
    for _ in 0..1024 {
        for (inode, runs) in inodes.iter().zip(&mut files) {
            let goal = runs.last().map(|r: &BlockRun| r.end());
            let run = alloc(&fs, inode, goal, 1, AllocFor::Data).unwrap();
            match runs.last_mut() {
                Some(last) if last.end() == run.start => last.len += run.len,
                _ => runs.push(run),
            }
        }
    }
    for runs in &files {
        assert!(
            runs.len() <= 10,
            "4 MiB written block by block lie in {} pieces",
            runs.len()
        );
    }
    for inode in &inodes {
        fs.space.release_window(inode);
    }
    // Without windows a small file lies right behind the previous one.
    let small = owner(&fs, 99);
    let a = alloc(&fs, &small, None, 1, AllocFor::Data).unwrap();
    fs.space.release_window(&small);
    let b = alloc(&fs, &owner(&fs, 100), None, 1, AllocFor::Data).unwrap();
    assert_eq!(b.start, a.end());
}

#[test]
fn threads_allocate_side_by_side() {
    let device = mkfs(64, &Mkfs::blocks(1024));
    let fs = open(&device);
    let start = fs.space.groups.free_blocks();
    std::thread::scope(|scope| {
        for t in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let inode = owner(fs, 12 + t * 100);
                let mut rng = fastrand::Rng::with_seed(u64::from(t));
                let mut mine = Vec::new();
                for _ in 0..300 {
                    if rng.bool() || mine.is_empty() {
                        mine.push(
                            alloc(fs, &inode, None, 1 + rng.u32(..40), AllocFor::Data).unwrap(),
                        );
                    } else {
                        free(fs, mine.swap_remove(rng.usize(..mine.len())));
                    }
                }
                for run in mine {
                    free(fs, run);
                }
            });
        }
    });
    assert_eq!(fs.space.groups.free_blocks(), start);
    fs.unmount().unwrap();
    fsck(&device);
}

#[test]
fn contradictions_are_damage_not_panics() {
    let device = mkfs(16, &Mkfs::blocks(1024));
    let fs = open(&device);
    let inode = owner(&fs, 12);
    let run = alloc(&fs, &inode, None, 4, AllocFor::Data).unwrap();
    free(&fs, run);
    let twice = |run: BlockRun| {
        let h = fs.vol.journal.begin(credits::FREE_BLOCKS * 2).unwrap();
        fs.space.free_blocks(&h, run, Freed::Data).unwrap_err()
    };
    assert!(matches!(
        twice(run),
        FsError::Corrupt {
            what: "block bitmap",
            ..
        }
    ));
    assert!(matches!(
        twice(BlockRun { start: 1, len: 1 }),
        FsError::Corrupt { .. }
    ));
    assert!(matches!(
        twice(BlockRun {
            start: fs.vol.geo.blocks_count - 1,
            len: 2
        }),
        FsError::Corrupt { .. }
    ));
    assert!(matches!(
        twice(BlockRun {
            start: u64::MAX,
            len: 9
        }),
        FsError::Corrupt { .. }
    ));
    fs.unmount().unwrap();
    fsck(&device);
}

#[test]
fn a_damaged_bitmap_is_left_alone_and_reported() {
    use stetfs_block::BlockDevice;
    let device = mkfs(32, &Mkfs::blocks(1024));
    let bitmap = {
        let fs = open(&device);
        let nr = fs.space.groups.lock(0).unwrap().desc.block_bitmap();
        fs.unmount().unwrap();
        nr
    };
    device.write(bitmap * 1024 + 700, &[0xa5]).unwrap();
    let fs = open(&device);
    let run = alloc(
        &fs,
        &owner(&fs, 12),
        Some(fs.vol.geo.first_data_block + 6000),
        8,
        AllocFor::Data,
    )
    .unwrap();
    assert!(fs.vol.geo.layout.group_of_block(run.start).unwrap() > 0);
    free(&fs, run);
    fs.unmount().unwrap();
    let sb = crate::volume::read_superblock(&*device).unwrap();
    assert_eq!(
        (sb.error_count.get(), sb.first_error_block.get()),
        (1, bitmap)
    );
}

#[test]
fn reservations_hold_space_back() {
    let device = mkfs(16, &Mkfs::blocks(1024));
    let fs = open(&device);
    let all = fs.space.groups.free_blocks() - fs.vol.sb.kept_clusters();
    let for_users = all - fs.vol.sb.reserved_blocks();
    assert!(fs.space.reserve(for_users + 1, false).is_err());
    let mut held = fs.space.reserve(for_users, false).unwrap();
    assert!(fs.space.reserve(1, false).is_err());
    drop(fs.space.reserve(fs.vol.sb.reserved_blocks(), true).unwrap());
    held.consumed(5);
    drop(fs.space.reserve(5, false).unwrap());
    drop(held);
    drop(fs.space.reserve(for_users, false).unwrap());
    assert!(fs.space.privileged(&Ctx::ROOT));
}

#[test]
fn inodes_agree_with_e2fsck() {
    for (name, mib, options) in flavours() {
        let device = mkfs(mib, &options);
        let fs = open(&device);
        let start = fs.space.groups.free_inodes();
        let root = fs.inodes.iget(ROOT_INO).unwrap();
        let mut made: Vec<Arc<Inode>> = Vec::new();
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let mode = *rng
                .choice([libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK, libc::S_IFIFO].iter())
                .unwrap();
            let body = root.body.write();
            let h = fs
                .vol
                .journal
                .begin(credits::NEW_INODE + credits::ORPHAN)
                .unwrap();
            match new_file(&fs, &h, (&root, &body), mode | 0o644) {
                Ok(inode) => {
                    assert!(made.iter().all(|i| i.ino != inode.ino), "{name}");
                    fs.abandon_inode(&h, &inode, &mut inode.lock_new()).unwrap();
                    made.push(inode);
                }
                Err(e) => {
                    assert_eq!(
                        (e.errno(), fs.space.groups.free_inodes()),
                        (libc::ENOSPC, 0),
                        "{name}"
                    );
                    break;
                }
            }
        }
        assert_eq!(
            fs.space.groups.free_inodes() + made.len() as u64,
            start,
            "{name}"
        );
        rng.shuffle(&mut made);
        for inode in made.drain(..) {
            fs.iput(&inode);
            assert_eq!(
                fs.inodes.iget(inode.ino).err().map(|e| e.errno()),
                Some(libc::ESTALE)
            );
        }
        fs.unmount().unwrap();
        assert_eq!(fs.space.groups.free_inodes(), start, "{name}");
        fsck(&device);
    }
}

/// Groups and bitmap words that searches examined.
fn cost(fs: &Fs) -> (u64, u64) {
    let stats = fs.stats();
    (stats.groups_searched, stats.words_searched)
}

/// Fills the volume, and then frees every second block of it.
fn comb(fs: &Fs) -> u64 {
    let filler = owner(fs, 12);
    let mut runs = Vec::new();
    while let Ok(run) = alloc(fs, &filler, None, 30_000, AllocFor::Data) {
        runs.push(run);
    }
    assert_eq!(fs.space.groups.free_blocks(), 0);
    let mut freed = 0;
    for run in &runs {
        // As many blocks at a time as one transaction takes.
        for part in (run.start..run.end()).collect::<Vec<_>>().chunks(4000) {
            let h = fs.vol.journal.begin(credits::FREE_BLOCKS * 2).unwrap();
            for start in part.iter().copied().filter(|nr| nr % 2 == 1) {
                fs.space
                    .free_blocks(&h, BlockRun { start, len: 1 }, Freed::Data)
                    .unwrap();
                freed += 1;
            }
        }
    }
    fs.vol.journal.commit_all().unwrap();
    freed
}

#[test]
fn a_comb_is_filled_in_linear_time() {
    let device = mkfs(192, &Mkfs::blocks(1024));
    let fs = open(&device);
    let free = comb(&fs);
    let groups = u64::from(fs.space.groups.count());
    assert!(
        groups > 20 && free > 60_000,
        "{groups} groups, {free} blocks"
    );
    // Large files, with a search for every block: eight that grow side by side.
    let writers: Vec<Inode> = (0..8).map(|i| owner(&fs, 12 + i * 2000)).collect();
    let mut goals = [None; 8];
    let before = cost(&fs);
    for n in 0..free {
        let i = (n % 8) as usize;
        let run = alloc(&fs, &writers[i], goals[i], 200, AllocFor::Data)
            .unwrap_or_else(|e| panic!("block {n} of {free}: {e}"));
        assert_eq!(run.len, 1);
        goals[i] = Some(run.end());
    }
    let after = cost(&fs);
    let last = alloc(&fs, &writers[0], None, 1, AllocFor::Data).unwrap_err();
    assert_eq!(last.errno(), libc::ENOSPC);
    let (looks, words) = (after.0 - before.0, after.1 - before.1);
    // One look each at the goal, in the window, and at the next place; and every group once without
    // success.
    assert!(
        looks <= 3 * free + 8 * groups,
        "{looks} looks for {free} blocks"
    );
    // A bitmap of 1 KiB has 128 words.
    assert!(
        words <= 15 * free + 8 * 128 * groups,
        "{words} words for {free} blocks"
    );
    fs.unmount().unwrap();
}

/// The same with files of one block, each of which begins anew.
#[test]
fn small_files_in_a_comb_do_not_search_from_the_start() {
    let device = mkfs(96, &Mkfs::blocks(1024));
    let fs = open(&device);
    let free = comb(&fs);
    let before = cost(&fs);
    for n in 0..free {
        let small = owner(&fs, 20 + (n % 16) as u32);
        alloc(&fs, &small, None, 1, AllocFor::Data).unwrap();
        fs.space.release_window(&small);
    }
    let after = cost(&fs);
    let (looks, words) = (after.0 - before.0, after.1 - before.1);
    let groups = u64::from(fs.space.groups.count());
    assert!(
        looks <= 2 * free + 8 * groups,
        "{looks} looks for {free} blocks"
    );
    assert!(
        words <= 12 * free + 8 * 128 * groups,
        "{words} words for {free} blocks"
    );
    fs.unmount().unwrap();
}

/// The search hints agree with the free space (space.S4).
#[test]
fn a_run_that_becomes_free_is_found_at_once() {
    let device = mkfs(192, &Mkfs::blocks(1024));
    let fs = open(&device);
    comb(&fs);
    let inode = owner(&fs, 12);
    // Searches learn that no run is longer than one block.
    let one = alloc(&fs, &inode, None, 64, AllocFor::Meta).unwrap();
    assert_eq!(one.len, 1);
    for group in 0..fs.space.groups.count() {
        let goal = fs.vol.geo.layout.group_first_block(group) + 5000;
        alloc(&fs, &inode, Some(goal), 64, AllocFor::Meta).unwrap();
    }
    // The used blocks of a part of the comb, far away, are freed.
    let far = fs
        .vol
        .geo
        .layout
        .group_first_block(fs.space.groups.count() - 2)
        + 4000;
    let used: Vec<u64> = (far..far + 100).filter(|nr| nr % 2 == 0).collect();
    for start in used {
        free(&fs, BlockRun { start, len: 1 });
    }
    fs.vol.journal.commit_all().unwrap();
    let before = cost(&fs);
    let run = alloc(&fs, &inode, None, 64, AllocFor::Meta).unwrap();
    assert_eq!(run.len, 64, "{run:?}");
    assert!((far..far + 100).contains(&run.start));
    assert!(cost(&fs).0 - before.0 <= 2, "it is known where that is");
    fs.unmount().unwrap();
}

#[test]
fn windows_come_back() {
    let device = mkfs(64, &Mkfs::blocks(1024));
    let fs = open(&device);
    let writers: Vec<Inode> = (0..8).map(|i| owner(&fs, 12 + i)).collect();
    let held = |fs: &Fs| -> u64 {
        (0..fs.space.groups.count())
            .flat_map(|g| fs.space.groups.lock(g).unwrap().windows.avoid(None))
            .map(|(start, end)| u64::from(end - start))
            .sum()
    };
    let mut goals = [None; 8];
    for n in 0..400 {
        let i = n % 8;
        let run = alloc(&fs, &writers[i], goals[i], 4, AllocFor::Data).unwrap();
        goals[i] = Some(run.end());
    }
    assert!(held(&fs) > 8 * 16, "{} blocks set aside", held(&fs));
    assert!(
        held(&fs) < fs.space.groups.free_blocks() / 4,
        "{} of {} blocks set aside",
        held(&fs),
        fs.space.groups.free_blocks()
    );
    // One writer takes all space, also out of the windows of others.
    let free = fs.space.groups.free_blocks();
    let mut taken = 0;
    while let Ok(run) = alloc(&fs, &writers[0], goals[0], 500, AllocFor::Data) {
        taken += u64::from(run.len);
        goals[0] = Some(run.end());
    }
    assert_eq!((taken, fs.space.groups.free_blocks()), (free, 0));
    for inode in &writers {
        fs.space.release_window(inode);
    }
    assert_eq!(held(&fs), 0);
    fs.unmount().unwrap();
}

#[test]
fn top_directories_spread_and_others_stay() {
    let device = mkfs(512, &Mkfs::blocks(1024));
    let fs = open(&device);
    let group = |ino: Ino| fs.vol.geo.layout.locate_inode(ino).unwrap().0;
    let mut groups = std::collections::BTreeSet::new();
    let mut near = 0;
    for t in 0..24 {
        let top = fs.mkdir(&Ctx::ROOT, ROOT_INO, format!("{t}").as_bytes(), 0o755, 0);
        let top = top.unwrap().ino;
        groups.insert(group(top));
        for s in 0..4 {
            let sub = fs.mkdir(&Ctx::ROOT, top, format!("{s}").as_bytes(), 0o755, 0);
            near += u32::from(group(sub.unwrap().ino).abs_diff(group(top)) <= 4);
        }
    }
    assert!(groups.len() >= 12, "24 directories in {groups:?}");
    assert!(near >= 90, "{near} of 96 stay near their parent");
    fs.unmount().unwrap();
    fsck(&device);
}

/// A volume with 256 inodes, of which a few are in use.
fn with_few_inodes() -> (Arc<stetfs_block::MemDevice>, Arc<Fs>) {
    let mut options = Mkfs::blocks(1024).feature("ea_inode");
    options.args.extend(["-N".into(), "256".into()]);
    let device = mkfs(32, &options);
    let fs = open(&device);
    assert!((200..256).contains(&fs.space.groups.free_inodes()));
    (device, fs)
}

fn mknod(fs: &Fs, name: &[u8]) -> Result<Ino, FsError> {
    let made = fs.mknod(&Ctx::ROOT, ROOT_INO, name, libc::S_IFREG | 0o644, 0, 0)?;
    fs.forget(made.ino, 1);
    Ok(made.ino)
}

/// Inodes that wait for a commit are available to every operation that takes an inode (space.S2).
#[test]
fn inodes_freed_without_a_sync_are_given_out_again() {
    type Turn = fn(&Fs) -> Result<(), FsError>;
    let file: Turn = |fs| {
        mknod(fs, b"file")?;
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"file")
    };
    let directory: Turn = |fs| {
        let made = fs.mkdir(&Ctx::ROOT, ROOT_INO, b"dir", 0o755, 0)?;
        fs.forget(made.ino, 1);
        fs.rmdir(&Ctx::ROOT, ROOT_INO, b"dir")
    };
    let link: Turn = |fs| {
        let made = fs.symlink(&Ctx::ROOT, ROOT_INO, b"link", &[b't'; 100])?;
        fs.forget(made.ino, 1);
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"link")
    };
    let nameless: Turn = |fs| {
        let (made, open) = fs.tmpfile(&Ctx::ROOT, ROOT_INO, 0o600, 0, libc::O_RDWR)?;
        drop(open);
        fs.forget(made.ino, 1);
        Ok(())
    };
    let whiteout: Turn = |fs| {
        mknod(fs, b"old")?;
        let flags = RenameFlags {
            whiteout: true,
            ..RenameFlags::default()
        };
        fs.rename(&Ctx::ROOT, ROOT_INO, b"old", ROOT_INO, b"new", flags)?;
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"old")?;
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"new")
    };
    let value: Turn = |fs| {
        fs.setxattr(&Ctx::ROOT, ROOT_INO, b"user.v", &[7; 9000], XattrSet::Any)?;
        fs.removexattr(&Ctx::ROOT, ROOT_INO, b"user.v")
    };
    for (what, turn) in [
        ("file", file),
        ("directory", directory),
        ("link", link),
        ("file without a name", nameless),
        ("whiteout", whiteout),
        ("value of an attribute", value),
    ] {
        let (device, fs) = with_few_inodes();
        let free = fs.space.groups.free_inodes();
        for i in 0..3 * free {
            turn(&fs).unwrap_or_else(|e| panic!("{what} {i} of {free}: {e}"));
        }
        assert_eq!(fs.space.groups.free_inodes(), free, "{what}");
        fs.unmount().unwrap();
        fsck(&device);
    }
}

/// Threads take turns with inodes that wait for the same commits.
#[test]
fn threads_share_the_inodes_that_a_commit_frees() {
    let (device, fs) = with_few_inodes();
    std::thread::scope(|s| {
        for thread in 0..4 {
            let fs = &fs;
            s.spawn(move || {
                let name = format!("file{thread}");
                for i in 0..400 {
                    mknod(fs, name.as_bytes()).unwrap_or_else(|e| panic!("{name}, {i}: {e}"));
                    fs.unlink(&Ctx::ROOT, ROOT_INO, name.as_bytes()).unwrap();
                }
            });
        }
    });
    fs.unmount().unwrap();
    fsck(&device);
}

/// If every inode is in use, no commit is made for more.
#[test]
fn a_volume_whose_inodes_are_in_use_says_so_at_once() {
    let (_device, fs) = with_few_inodes();
    for i in 0..fs.space.groups.free_inodes() {
        mknod(&fs, format!("file{i}").as_bytes()).unwrap();
    }
    fs.vol.journal.commit_all().unwrap();
    let before = fs.vol.journal.everything();
    for _ in 0..3 {
        let e = mknod(&fs, b"more").unwrap_err();
        assert_eq!(e.errno(), libc::ENOSPC);
    }
    assert_eq!(
        fs.vol.journal.everything(),
        before,
        "the same transaction runs"
    );
    fs.unlink(&Ctx::ROOT, ROOT_INO, b"file0").unwrap();
    mknod(&fs, b"more").unwrap();
}
