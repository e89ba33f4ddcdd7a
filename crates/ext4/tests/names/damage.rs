//! Damaged directories: they lead to errors or partial results, but never to a panic or an endless
//! loop.

use std::fs::File;
use std::os::unix::fs::FileExt;

use stetfs_ext4::{Ctx, ROOT_INO, RenameFlags};
use stetfs_testkit::Image;

use crate::names::support::{Random, Vol, batch, small};

const BLOCK: u64 = 1024;

/// An image with an indexed directory `dir` of 700 names, and the blocks of that directory.
fn victim(csum: bool) -> (Image, Vec<u64>) {
    // A fixed seed, so that a changed name belongs to the same other leaf each time.
    let mkfs = small().extended("hash_seed=0b1e6f2a-5c77-4d0e-9a43-2f8d1c3b5e60");
    let mkfs = if csum {
        mkfs
    } else {
        mkfs.feature("^metadata_csum")
    };
    let vol = Vol::new(8, &mkfs);
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    for i in 0..700 {
        vol.file(dir, format!("name-{i}").as_bytes()).unwrap();
    }
    vol.mkdir(dir, b"sub").unwrap();
    let image = vol.close();
    let blocks = image.debugfs("blocks dir").unwrap();
    let blocks: Vec<u64> = blocks
        .split_whitespace()
        .map(|b| b.parse().unwrap())
        .collect();
    assert!(blocks.len() > 10);
    (image, blocks)
}

#[test]
fn a_flipped_bit_is_noticed_where_there_are_checksums() {
    let (image, blocks) = victim(true);
    let mut random = Random::new(1);
    for (i, block) in blocks.iter().enumerate() {
        let copy = image.copy().unwrap();
        let file = File::options()
            .read(true)
            .write(true)
            .open(copy.path())
            .unwrap();
        // The checksum of an index block does not cover the free part of the table, so the place is
        // near the front.
        let at = block * BLOCK
            + if i == 0 {
                33
            } else {
                random.below(BLOCK as usize) as u64
            };
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        drop(file);
        let vol = Vol::on(copy);
        let dir = vol.ino("dir");
        let failed: Vec<i32> = (0..700)
            .filter_map(|n| vol.lookup(dir, format!("name-{n}").as_bytes()).err())
            .collect();
        assert!(
            !failed.is_empty() && failed.iter().all(|e| *e == libc::EUCLEAN),
            "block {i}: {failed:?}"
        );
        let open = vol.open_dir(dir);
        let read = vol.fs.readdir(&open, 0, &mut |_| true).unwrap_err();
        assert_eq!(read.errno(), libc::EUCLEAN);
        assert!(
            read.to_string().contains(&format!("block {block}")),
            "{read}"
        );
        drop(open);
        let _ = vol.fs.unmount();
    }
}

/// Reads bytes at the same place of a block, and replaces them.
fn patch<const N: usize>(
    image: &Image,
    block: u64,
    at: u64,
    change: impl FnOnce([u8; N]) -> [u8; N],
) {
    let file = File::options().read(true).write(true).open(image.path());
    let file = file.unwrap();
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, block * BLOCK + at).unwrap();
    file.write_all_at(&change(bytes), block * BLOCK + at)
        .unwrap();
}

/// Names of a directory, and the result of reading it.
fn listed(vol: &Vol, dir: u32) -> (Vec<Vec<u8>>, Result<(), i32>) {
    let open = vol.open_dir(dir);
    let mut names = Vec::new();
    let end = vol.fs.readdir(&open, 0, &mut |e| {
        names.push(e.name);
        true
    });
    (names, end.map_err(|e| e.errno()))
}

/// An index of two levels.
fn deep() -> (Image, u64) {
    let vol = Vol::new(8, &small().feature("^metadata_csum"));
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let file = vol.file(dir, b"file").unwrap();
    for i in 0..1100 {
        let name = format!("{i}{}", "n".repeat(100));
        let linked = vol.fs.link(&Ctx::ROOT, file, dir, name.as_bytes()).unwrap();
        vol.fs.forget(linked.ino, 1);
    }
    let image = vol.close();
    let root = image.debugfs("bmap dir 0").unwrap().trim().parse().unwrap();
    (image, root)
}

/// Without checksums only the structure shows damage: names that are not listed are never skipped
/// without an error.
#[test]
fn names_that_damage_hides_are_an_error_without_checksums() {
    let (image, root) = deep();
    let shallow = victim(false);
    let leaf = shallow.1[3];
    type Damage<'a> = Box<dyn Fn(&Image) + 'a>;
    let damages: [(&str, &Image, Damage<'_>); 7] = [
        (
            "no size",
            &image,
            Box::new(|i| drop(i.debugfs_write("sif dir size 0").unwrap())),
        ),
        (
            "an odd size",
            &image,
            Box::new(|i| drop(i.debugfs_write("sif dir size 70000").unwrap())),
        ),
        (
            "a level less",
            &image,
            Box::new(|i| patch(i, root, 30, |[n]: [u8; 1]| [n - 1])),
        ),
        (
            "a level more",
            &shallow.0,
            Box::new(|i| patch(i, shallow.1[0], 30, |[n]: [u8; 1]| [n + 1])),
        ),
        (
            "two leaves exchanged",
            &shallow.0,
            Box::new(|i| {
                patch(i, shallow.1[0], 40, |mut two: [u8; 16]| {
                    let (a, b) = two.split_at_mut(8);
                    a[4..].swap_with_slice(&mut b[4..]);
                    two
                });
            }),
        ),
        (
            "another name",
            &shallow.0,
            Box::new(|i| patch(i, leaf, 14, |b: [u8; 2]| b.map(|b| b ^ 1))),
        ),
        (
            "no leaf",
            &shallow.0,
            Box::new(|i| patch(i, leaf, 4, |_: [u8; 2]| [3, 0])),
        ),
    ];
    for (what, image, damage) in damages {
        let image = image.copy().unwrap();
        damage(&image);
        let vol = Vol::on(image);
        let dir = vol.ino("dir");
        let (names, end) = listed(&vol, dir);
        assert_eq!(end, Err(libc::EUCLEAN), "{what}: {} names", names.len());
        let removed = vol.rmdir(ROOT_INO, b"dir");
        let refused = [Err(libc::EUCLEAN), Err(libc::ENOTEMPTY)];
        assert!(refused.contains(&removed), "{what}: {removed:?}");
        let _ = vol.fs.unmount();
    }
}

/// Names that an index no longer leads to still exist: their directory is not empty.
#[test]
fn a_directory_is_not_removed_with_names_in_it_that_are_not_listed() {
    let (image, blocks) = victim(false);
    // The root's count.
    patch(&image, blocks[0], 34, |_: [u8; 2]| [1, 0]);
    let vol = Vol::on(image);
    let dir = vol.ino("dir");
    let (names, end) = listed(&vol, dir);
    assert_eq!(end, Ok(()));
    assert!((5..600).contains(&names.len()), "{} names", names.len());
    for name in names.iter().filter(|n| !n.starts_with(b".")) {
        let removed = vol.unlink(dir, name).or_else(|_| vol.rmdir(dir, name));
        assert_eq!(removed, Ok(()));
    }
    assert_eq!(listed(&vol, dir).0.len(), 2);
    assert_eq!(vol.rmdir(ROOT_INO, b"dir"), Err(libc::ENOTEMPTY));
    let other = vol.mkdir(ROOT_INO, b"other").unwrap();
    let over = vol.rename(
        (ROOT_INO, b"other"),
        (ROOT_INO, b"dir"),
        RenameFlags::default(),
    );
    assert_eq!(over, Err(libc::ENOTEMPTY));
    assert_eq!(vol.ino("other"), other);
    vol.fs.unmount().unwrap();
}

/// Tries all operations on a directory; the results do not matter.
fn poke(vol: &Vol) {
    let Ok(dir) = vol.lookup(ROOT_INO, b"dir") else {
        return;
    };
    let dir = dir.ino;
    let Ok(open) = vol.fs.open_inode(&Ctx::ROOT, dir, libc::O_RDONLY) else {
        return;
    };
    let (mut cookie, mut calls) = (0, 0);
    loop {
        let mut last = None;
        let read = vol.fs.readdir(&open, cookie, &mut |e| {
            last = Some(e.next);
            calls += 1;
            calls % 5 != 0
        });
        match last {
            Some(next) if read.is_ok() => {
                assert!(next > cookie, "the cookie goes back");
                cookie = next;
            }
            _ => break,
        }
        assert!(calls < 100_000, "readdir does not end");
    }
    drop(open);
    for i in 0..40 {
        let name = |kind: &str| format!("{kind}-{}", i * 10).into_bytes();
        let _ = vol.lookup(dir, &name("name"));
        let _ = vol.file(dir, &[name("new"), vec![b'x'; 150]].concat());
        let _ = vol.rename(
            (dir, &name("name")),
            (dir, &name("moved")),
            RenameFlags::default(),
        );
        let _ = vol.rename(
            (dir, &name("name")),
            (ROOT_INO, &name("moved")),
            RenameFlags::default(),
        );
        let _ = vol.unlink(dir, &name("name"));
    }
    let _ = vol.rename((dir, b"sub"), (ROOT_INO, b"sub"), RenameFlags::default());
    let _ = vol.rmdir(dir, b"sub");
    let _ = vol.rmdir(ROOT_INO, b"dir");
}

#[test]
fn random_damage_neither_panics_nor_loops() {
    let (image, blocks) = victim(false);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let copy = image.copy().unwrap();
        let file = File::options().write(true).open(copy.path()).unwrap();
        for _ in 0..1 + random.below(30) {
            let which = if random.below(3) == 0 {
                0
            } else {
                random.below(blocks.len())
            };
            let at = blocks[which] * BLOCK
                + random.below(if which == 0 { 200 } else { BLOCK as usize }) as u64;
            let byte = if random.below(2) == 0 {
                random.below(40)
            } else {
                random.below(256)
            };
            file.write_all_at(&[byte as u8], at).unwrap();
        }
        drop(file);
        let vol = Vol::on(copy);
        poke(&vol);
        let _ = vol.fs.unmount();
    }
}

/// An entry that leads back to its own directory, or upwards, must not make a thread wait for
/// itself.
#[test]
fn entries_that_lead_back_end_with_an_error() {
    let vol = Vol::new(8, &small().feature("^metadata_csum"));
    let a = vol.mkdir(ROOT_INO, b"a").unwrap();
    let b = vol.mkdir(a, b"b").unwrap();
    vol.file(b, b"file").unwrap();
    let image = vol.close();
    image.debugfs_write("ln a a/self").unwrap();
    image.debugfs_write("ln a a/b/up").unwrap();
    let vol = Vol::on(image);
    let plain = RenameFlags::default();
    assert_eq!(vol.rmdir(a, b"self"), Err(libc::EUCLEAN));
    assert_eq!(vol.unlink(a, b"self"), Err(libc::EUCLEAN));
    assert_eq!(
        vol.rename((a, b"self"), (a, b"x"), plain),
        Err(libc::EUCLEAN)
    );
    assert_eq!(
        vol.rename((a, b"b"), (a, b"self"), plain),
        Err(libc::EUCLEAN)
    );
    assert_eq!(vol.rename((b, b"up"), (a, b"x"), plain), Err(libc::EINVAL));
    assert!(vol.rename((b, b"up"), (ROOT_INO, b"x"), plain).is_err());
    assert_eq!(
        vol.rename((b, b"file"), (a, b"self"), plain),
        Err(libc::ENOTEMPTY)
    );
    let open = vol.open_dir(a);
    assert_eq!(batch(&vol.fs, &open, 0, 100).len(), 4);
    drop(open);
    vol.fs.unmount().unwrap();
}
