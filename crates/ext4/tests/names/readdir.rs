//! Reading directories while they change.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stetfs_ext4::{Ctx, ROOT_INO};
use stetfs_testkit::Mkfs;

use crate::names::support::{Random, Vol, batch, small};

/// Entries that exist throughout come exactly once, whatever happens between the calls.
fn stable_through_changes(vol: &Vol, seed: u64, room: usize, before: usize, changes: usize) {
    let mut random = Random::new(seed);
    let dir = vol
        .mkdir(ROOT_INO, format!("dir{seed}").as_bytes())
        .unwrap();
    let mut others = BTreeSet::new();
    let mut stable = BTreeSet::new();
    for i in 0..before {
        let name = format!("{}-{i}", random.next() % 1000).into_bytes();
        vol.file(dir, &name).unwrap();
        if random.below(3) == 0 {
            others.insert(name)
        } else {
            stable.insert(name)
        };
    }
    let open = vol.open_dir(dir);
    let (mut cookie, mut seen, mut step) = (0, BTreeMap::new(), 0);
    loop {
        let entries = batch(&vol.fs, &open, cookie, room);
        let Some(last) = entries.last() else { break };
        cookie = last.next;
        for e in entries {
            *seen.entry(e.name).or_insert(0) += 1;
        }
        for i in 0..changes {
            if random.below(2) == 0 || others.is_empty() {
                let name = format!("new-{seed}-{step}-{i}").into_bytes();
                vol.file(dir, &name).unwrap();
                others.insert(name);
            } else {
                let gone = others
                    .iter()
                    .nth(random.below(others.len()))
                    .unwrap()
                    .clone();
                vol.unlink(dir, &gone).unwrap();
                others.remove(&gone);
            }
        }
        step += 1;
    }
    for name in stable
        .iter()
        .map(Vec::as_slice)
        .chain([b".".as_slice(), b".."])
    {
        assert_eq!(
            seen.get(name),
            Some(&1),
            "seed {seed}: {}",
            name.escape_ascii()
        );
    }
    for (name, times) in &seen {
        assert_eq!(
            *times,
            1,
            "seed {seed}: {} came {times} times",
            name.escape_ascii()
        );
    }
    // At the end no more entries come, until one is added behind.
    assert!(batch(&vol.fs, &open, i64::MAX as u64, 10).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn an_entry_that_stays_comes_once(
        seed: u64, room in 1usize..60, before in 0usize..600, changes in 0usize..30,
        indexed in prop::bool::weighted(0.8),
    ) {
        let vol = Vol::new(16, &if indexed { small() } else { small().feature("^dir_index") });
        stable_through_changes(&vol, seed, room, before, changes);
        vol.close();
    }
}

/// The legacy hash has only 31 bits and no second half, so names collide.
#[test]
fn colliding_hashes_are_told_apart() {
    for hash in ["legacy", "tea", "half_md4"] {
        let vol = Vol::new(32, &small());
        let image = vol.close();
        let set = std::process::Command::new("tune2fs")
            .args(["-E", &format!("hash_alg={hash}")])
            .arg(image.path())
            .output()
            .unwrap();
        assert!(set.status.success(), "{set:?}");
        let vol = Vol::on(image);
        let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
        let mut names = BTreeSet::new();
        for i in 0..3000u32 {
            // The legacy hash mixes short names poorly that differ in one byte.
            let name = vec![
                b'a' + (i % 19) as u8,
                b'a' + (i / 19 % 13) as u8,
                b'a' + (i / 247) as u8,
            ];
            vol.file(dir, &name).unwrap();
            names.insert(name);
        }
        for room in [1, 7, 1000] {
            let listed = vol.list_by(dir, room);
            assert_eq!(listed.len(), names.len() + 2, "{hash}, {room} at a time");
            let listed: BTreeSet<_> = listed
                .into_iter()
                .map(|e| e.name)
                .filter(|n| n != b"." && n != b"..")
                .collect();
            assert_eq!(listed, names);
        }
        let vol = vol.reopen();
        for name in &names {
            assert!(vol.lookup(dir, name).is_ok());
        }
        vol.close();
    }
}

#[test]
fn types_and_dots() {
    let vol = Vol::new(32, &Mkfs::blocks(4096).journal_mib(4));
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let modes = [
        libc::S_IFREG,
        libc::S_IFIFO,
        libc::S_IFSOCK,
        libc::S_IFCHR,
        libc::S_IFBLK,
    ];
    for (i, mode) in modes.into_iter().enumerate() {
        vol.node(dir, format!("n{i}").as_bytes(), mode | 0o600)
            .unwrap();
    }
    vol.mkdir(dir, b"sub").unwrap();
    let link = vol
        .fs
        .symlink(&Ctx::ROOT, dir, b"link", b"somewhere/else")
        .unwrap();
    vol.fs.forget(link.ino, 1);
    for e in vol.list_by(dir, 3) {
        let attr = match e.name.as_slice() {
            b"." => vol.fs.getattr(dir).unwrap(),
            b".." => vol.fs.getattr(ROOT_INO).unwrap(),
            name => vol.lookup(dir, name).unwrap(),
        };
        assert_eq!(
            (e.ino, e.kind),
            (attr.ino, Some(attr.kind)),
            "{}",
            e.name.escape_ascii()
        );
    }
    assert_eq!(vol.list_by(dir, 2).len(), 9);
    assert_eq!(vol.attr("dir").nlink, 3);
    vol.close();
}
