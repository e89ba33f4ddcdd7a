//! Early writes: groups larger than a transaction, and than memory.

use super::*;

/// Two files on a volume with a small journal. The first consists of `pieces` blocks with a hole of
/// two blocks behind each.
fn small_journal(block: u32, mib: u64, journal: &str, pieces: u64) -> Volume {
    let mkfs = Mkfs::blocks(block).journal_mib(4);
    let v = Volume::new(mib, &mkfs, options(journal), &[0, 100_000]);
    let size = u64::from(block);
    for piece in 0..pieces {
        let bytes = vec![1; block as usize];
        v.fs.write(&Ctx::ROOT, &v.files[0], piece * 3 * size, &bytes, false)
            .unwrap();
    }
    v.fs.vol.journal.commit_all().unwrap();
    v
}

fn both(v: &Volume) -> [Vec<u8>; 2] {
    [v.content(0), v.content(1)]
}

#[test]
fn a_group_larger_than_the_journal_stands_whole_or_leaves_nothing() {
    for journal in JOURNALS {
        let v = small_journal(1024, 80, journal, 2000);
        let (old, free) = (both(&v), v.fs.statfs().bfree);
        let bytes: Vec<u8> = (0..9 << 20).map(|i: u32| (i >> 9) as u8).collect();
        let new = [over(&old[0], 5000, &bytes), over(&old[1], 700, &[9; 900])];
        for end in ["abort", "commit"] {
            let mut group = v.group();
            assert_eq!(
                group.write(&Ctx::ROOT, v.ino(0), 5000, &bytes).unwrap(),
                bytes.len()
            );
            group.write(&Ctx::ROOT, v.ino(1), 700, &[9; 900]).unwrap();
            assert!(group.members[&v.ino(0)].overlay.early_runs().len() > 1);
            assert!(seen(&group, v.ino(0)) == new[0]);
            assert!(both(&v) == old && v.crashed() == old, "{journal}");
            if end == "abort" {
                group.abort();
                v.fs.vol.journal.commit_all().unwrap();
                assert!(both(&v) == old && v.crashed() == old, "{journal}");
                assert_eq!(v.fs.statfs().bfree, free, "{journal}");
                continue;
            }
            group.commit().unwrap();
            assert!(both(&v) == new, "{journal}");
            assert!(v.crashed() == new, "{journal}");
        }
        v.close();
    }
}

/// At any scatter of the blocks, the group accepts as much as its limit, and all of it commits
/// (atomic.A2).
#[test]
fn what_is_below_the_limit_commits_however_it_is_scattered() {
    for (block, mib, step) in [
        (1024, 120, 2),
        (1024, 120, 3),
        (4096, 800, 2),
        (4096, 800, 5),
    ] {
        let v = small_journal(block, mib, "data", 3000);
        let mut group = v.group();
        let limit = group.limit();
        let (mut taken, mut at) = (0, u64::from(block));
        let bytes = vec![7; block as usize];
        let refused = loop {
            match group.write(&Ctx::ROOT, v.ino(0), at, &bytes) {
                Ok(n) => taken += n as u64,
                Err(e) => break e,
            }
            at += step * u64::from(block);
        };
        assert_eq!(refused.errno(), libc::EFBIG, "{block} {step}");
        assert!(taken >= limit, "{block} {step}: {taken} of {limit}");
        let expected = seen(&group, v.ino(0));
        group.commit().unwrap();
        assert!(v.content(0) == expected && v.crashed()[0] == expected);
        v.close();
    }
}

/// No other file gets a block that is set aside. An abort and a cut release such blocks.
#[test]
fn blocks_that_are_set_aside_are_nobody_elses() {
    let v = small_journal(1024, 32, "data", 10);
    let mut group = v.fs.atomic_group(&v.files[1..]).unwrap();
    group.write(&Ctx::ROOT, v.ino(1), 0, &[5; 300_000]).unwrap();
    assert!(group.write_early(&Ctx::ROOT).unwrap());
    let size = group.size(v.ino(1)).unwrap();
    let cost = group.total(v.ino(1), &[], size).unwrap();
    assert_eq!(group.cost, cost, "the commit asks for these credits");
    assert!(group.promised >= cost.space(), "{}", group.promised);
    let expected = seen(&group, v.ino(1));
    fill(&v);
    v.fs.trim(0..u64::MAX, 0).unwrap();
    assert!(seen(&group, v.ino(1)) == expected);
    // Another file can have some of the blocks that the first half releases.
    group.set_size(&Ctx::ROOT, v.ino(1), 150_500).unwrap();
    let expected = seen(&group, v.ino(1));
    assert!(expected == [5; 150_500]);
    v.fs.write(&Ctx::ROOT, &v.files[0], 9 << 20, &[6; 100_000], false)
        .unwrap();
    assert!(seen(&group, v.ino(1)) == expected);
    group.commit().unwrap();
    assert!(v.content(1) == expected && v.crashed()[1] == expected);
    v.close();
}

/// Without room for early writes, the changes accepted before still commit.
#[test]
fn without_room_nothing_goes_early_and_what_was_taken_commits() {
    let v = small_journal(1024, 32, "data", 10);
    let mut group = v.fs.atomic_group(&v.files[1..]).unwrap();
    // Half of it is new, and promised.
    group
        .write(&Ctx::ROOT, v.ino(1), 60_000, &[5; 80_000])
        .unwrap();
    let expected = seen(&group, v.ino(1));
    fill(&v);
    let promised = group.promised;
    assert_eq!(errno(group.write_early(&Ctx::ROOT)), libc::ENOSPC);
    assert_eq!(group.promised, promised);
    assert!(group.members[&v.ino(1)].overlay.early_runs().is_empty());
    group.commit().unwrap();
    assert!(v.content(1) == expected && v.crashed()[1] == expected);
    v.close();
}

/// A caller that was told the place of a file may use it there.
#[test]
fn a_file_whose_place_was_told_stays_where_it_is() {
    let v = small_journal(1024, 32, "data", 10);
    let told = v.fs.bmap(v.ino(1), 3, 1024).unwrap();
    let mut group = v.fs.atomic_group(&v.files[1..]).unwrap();
    assert_eq!(errno(v.fs.bmap(v.ino(1), 3, 1024)), libc::EBUSY);
    group.write(&Ctx::ROOT, v.ino(1), 0, &[5; 50_000]).unwrap();
    assert!(!group.write_early(&Ctx::ROOT).unwrap());
    group.commit().unwrap();
    assert_eq!(v.fs.bmap(v.ino(1), 3, 1024).unwrap(), told);
    v.close();
}

/// The memory of all groups is bounded; changes beyond that are written early.
#[test]
fn what_memory_does_not_hold_is_written_early() {
    let opts = FsOptions {
        cache_bytes: 2 << 20,
        ..options("data")
    };
    let v = Volume::new(200, &Mkfs::blocks(4096).journal_mib(64), opts, &[0]);
    let mut group = v.group();
    let bytes: Vec<u8> = (0..20 << 20).map(|i: u32| (i >> 10) as u8).collect();
    assert_eq!(
        group.write(&Ctx::ROOT, v.ino(0), 0, &bytes).unwrap(),
        bytes.len()
    );
    assert!(v.fs.data.state.groups.0.load(Ordering::Relaxed) <= 1 << 20);
    group.commit().unwrap();
    assert!(v.content(0) == bytes && v.crashed()[0] == bytes);
    assert_eq!(v.fs.data.state.groups.0.load(Ordering::Relaxed), 0);
    v.close();
}

/// Changes a group that writes early because of the change, with some of the changed blocks in
/// memory. Returns the first errno, if a change is refused. Reads return what was written.
fn changes_as_it_goes_early(journal: &str, block: u32, canary: bool) -> Option<i32> {
    let mut opts = options(journal);
    opts.cache_bytes = 128 * u64::from(block);
    opts.canary.admit_stale = canary;
    let mkfs = Mkfs::blocks(block).journal_mib(block / 1024);
    let v = Volume::new(u64::from(block / 32), &mkfs, opts, &[0, 700, 100_000]);
    let mut group = v.group();
    let mut models = [Vec::new(), v.content(1), v.content(2)];
    for round in 0..400_u64 {
        let nr = round as usize % 3;
        let (ino, model) = (v.ino(nr), &mut models[nr]);
        let size = model.len() as u64;
        let done = match round % 14 {
            // The file ends inside a block, which may be in memory.
            0..11 => {
                let bytes = vec![(round % 251) as u8 + 1; 10_000];
                let written = group.write(&Ctx::ROOT, ino, size, &bytes);
                *model = over(
                    model,
                    size as usize,
                    &bytes[..*written.as_ref().unwrap_or(&0)],
                );
                written.map(drop)
            }
            11 => {
                model.truncate(size as usize - 3000);
                group.set_size(&Ctx::ROOT, ino, size - 3000)
            }
            12 => {
                let at = size - 15_000;
                model[at as usize..][..9000].fill(0);
                group.fallocate(&Ctx::ROOT, ino, FallocateMode::PunchHole, at, 9000)
            }
            _ => {
                let at = size - 15_000;
                model[at as usize..].fill(0);
                model.resize(size as usize + 5000, 0);
                let mode = FallocateMode::ZeroRange { keep_size: false };
                group.fallocate(&Ctx::ROOT, ino, mode, at, 20_000)
            }
        };
        if let Err(e) = done {
            return Some(e.errno());
        }
    }
    for (nr, model) in models.iter().enumerate() {
        assert!(seen(&group, v.ino(nr)) == *model, "{journal}: {nr}");
    }
    group.commit().unwrap();
    for (nr, model) in models.iter().enumerate() {
        assert!(v.content(nr) == *model, "{journal}: {nr} after it");
    }
    assert!(v.crashed() == models, "{journal}");
    v.close();
    None
}

#[test]
fn a_change_that_makes_a_group_write_early_is_whole() {
    for journal in JOURNALS {
        for block in [1024, 4096] {
            assert_eq!(changes_as_it_goes_early(journal, block, false), None);
            let found = changes_as_it_goes_early(journal, block, true);
            assert_eq!(found, Some(libc::EIO), "the canary");
        }
    }
}
