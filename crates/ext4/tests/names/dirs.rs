//! Model test of one directory, against a map: splits, levels, deletes, long names.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stetfs_ext4::{Ctx, ROOT_INO, RenameFlags};
use stetfs_testkit::Mkfs;

use crate::names::support::{Vol, small};

/// Compares the results of lookup and readdir with the model.
fn check(vol: &Vol, dir: u32, model: &BTreeMap<Vec<u8>, u32>) {
    assert_eq!(&vol.names(dir), model);
    for (name, ino) in model {
        assert_eq!(vol.lookup(dir, name).unwrap().ino, *ino);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add(Vec<u8>),
    Remove(prop::sample::Index),
    Rename(prop::sample::Index, Vec<u8>),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_map(|b| if b == 0 || b == b'/' { b'x' } else { b });
    prop_oneof![
        3 => prop::collection::vec(byte.clone(), 1..12),
        1 => prop::collection::vec(byte, 200..=255),
    ]
    .prop_filter("dots", |n| n != b"." && n != b"..")
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => name().prop_map(Op::Add),
        2 => any::<prop::sample::Index>().prop_map(Op::Remove),
        2 => (any::<prop::sample::Index>(), name()).prop_map(|(i, n)| Op::Rename(i, n)),
    ]
}

fn features() -> impl Strategy<Value = Mkfs> {
    prop_oneof![
        Just(small()),
        Just(small().feature("^metadata_csum")),
        Just(small().feature("^dir_index")),
        Just(small().feature("^filetype,^extra_isize").inode_size(128)),
        Just(Mkfs::blocks(4096).journal_mib(4)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_directory_behaves_like_a_map(mkfs in features(), ops in prop::collection::vec(op(), 1..500)) {
        let vol = Vol::new(32, &mkfs);
        let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
        let mut model = BTreeMap::new();
        for op in ops {
            match op {
                Op::Add(name) => match vol.file(dir, &name) {
                    Ok(ino) => prop_assert_eq!(model.insert(name, ino), None),
                    Err(e) => {
                        prop_assert_eq!(e, libc::EEXIST);
                        prop_assert!(model.contains_key(&name));
                    }
                },
                Op::Remove(which) => {
                    if model.is_empty() { continue }
                    let name = model.keys().nth(which.index(model.len())).unwrap().clone();
                    vol.unlink(dir, &name).unwrap();
                    prop_assert_eq!(vol.lookup(dir, &name).unwrap_err(), libc::ENOENT);
                    model.remove(&name);
                }
                Op::Rename(which, new) => {
                    if model.is_empty() { continue }
                    let old = model.keys().nth(which.index(model.len())).unwrap().clone();
                    vol.rename((dir, &old), (dir, &new), RenameFlags::default()).unwrap();
                    let ino = model.remove(&old).unwrap();
                    model.insert(new, ino);
                }
            }
        }
        check(&vol, dir, &model);
        let vol = vol.reopen();
        check(&vol, dir, &model);
        prop_assert_eq!(vol.rmdir(ROOT_INO, b"dir"), if model.is_empty() { Ok(()) } else { Err(libc::ENOTEMPTY) });
        if !model.is_empty() {
            for name in model.keys() {
                vol.unlink(dir, name).unwrap();
            }
            vol.rmdir(ROOT_INO, b"dir").unwrap();
        }
        vol.close();
    }
}

fn many(mkfs: &Mkfs, mib: u64, count: u32) {
    let vol = Vol::new(mib, mkfs);
    let free = vol.fs.statfs();
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let name = |i: u32| format!("some-file-name-{i:07}").into_bytes();
    let mut model = BTreeMap::new();
    for i in 0..count {
        model.insert(name(i), vol.file(dir, &name(i)).unwrap());
    }
    check(&vol, dir, &model);
    let vol = vol.reopen();
    check(&vol, dir, &model);
    for i in (0..count).step_by(2) {
        vol.unlink(dir, &name(i)).unwrap();
        model.remove(&name(i));
    }
    check(&vol, dir, &model);
    let vol = vol.reopen();
    check(&vol, dir, &model);
    assert_eq!(vol.rmdir(ROOT_INO, b"dir"), Err(libc::ENOTEMPTY));
    for name in model.keys() {
        vol.unlink(dir, name).unwrap();
    }
    assert!(vol.names(dir).is_empty());
    vol.rmdir(ROOT_INO, b"dir").unwrap();
    assert_eq!(vol.lookup(ROOT_INO, b"dir").unwrap_err(), libc::ENOENT);
    let vol = vol.reopen();
    // All space is free again.
    assert_eq!(
        (vol.fs.statfs().bfree, vol.fs.statfs().ffree),
        (free.bfree, free.ffree)
    );
    vol.close();
}

/// More leaves than a root of 1 KiB indexes alone (123): a second level.
#[test]
fn an_index_grows_a_level_and_empties() {
    let mut mkfs = small();
    mkfs.args.extend(["-N".into(), "12000".into()]);
    many(&mkfs, 32, 11_000);
}

#[test]
fn many_names_in_blocks_of_4_kib() {
    let mut mkfs = Mkfs::blocks(4096).journal_mib(16);
    mkfs.args.extend(["-N".into(), "60000".into()]);
    many(&mkfs, 64, 50_000);
}

#[test]
#[ignore = "takes half a minute; run with --ignored"]
fn hundreds_of_thousands_of_names() {
    let mut mkfs = Mkfs::blocks(4096).journal_mib(32);
    mkfs.args.extend(["-N".into(), "310000".into()]);
    many(&mkfs, 256, 300_000);
}

/// Two full levels: the next name is refused, and nothing breaks.
#[test]
fn a_full_index_refuses_with_enospc() {
    let vol = Vol::new(64, &small());
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let file = vol.file(ROOT_INO, b"file").unwrap();
    let name = |i: u32| format!("{i:0255}").into_bytes();
    let mut count = 0;
    let refused = loop {
        match vol.fs.link(&Ctx::ROOT, file, dir, &name(count)) {
            Ok(attr) => vol.fs.forget(attr.ino, 1),
            Err(e) => break e.errno(),
        }
        count += 1;
    };
    // 123 x 126 leaves with three names each at best, and half full at worst.
    assert_eq!(refused, libc::ENOSPC);
    assert!(count > 10_000, "{count}");
    let attr = vol.attr("file");
    assert_eq!(attr.nlink, count + 1);
    assert_eq!(vol.names(dir).len(), count as usize);
    assert_eq!(vol.lookup(dir, &name(count)).unwrap_err(), libc::ENOENT);
    vol.close();
}

#[test]
fn large_dir_has_a_third_level() {
    let vol = Vol::new(128, &small().feature("large_dir"));
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let file = vol.file(ROOT_INO, b"file").unwrap();
    let name = |i: u32| format!("{i:0255}").into_bytes();
    let count = 45_000;
    for i in 0..count {
        let linked = vol.fs.link(&Ctx::ROOT, file, dir, &name(i)).unwrap();
        vol.fs.forget(linked.ino, 1);
    }
    let image = vol.close();
    let tree = image.debugfs("htree_dump dir").unwrap();
    assert!(tree.contains("Indirect levels: 2"), "{}", &tree[..300]);
    let vol = Vol::on(image);
    assert_eq!(vol.names(dir).len(), count as usize);
    for i in (0..count).step_by(7) {
        assert_eq!(vol.lookup(dir, &name(i)).unwrap().ino, file);
        vol.unlink(dir, &name(i)).unwrap();
    }
    vol.close();
}

#[test]
fn names_are_checked() {
    let vol = Vol::new(8, &small());
    let long = [b'n'; 255];
    let too_long = [b'n'; 256];
    vol.file(ROOT_INO, &long).unwrap();
    assert!(vol.lookup(ROOT_INO, &long).is_ok());
    assert_eq!(vol.file(ROOT_INO, &long), Err(libc::EEXIST));
    assert_eq!(vol.file(ROOT_INO, &too_long), Err(libc::ENAMETOOLONG));
    assert_eq!(
        vol.lookup(ROOT_INO, &too_long).unwrap_err(),
        libc::ENAMETOOLONG
    );
    assert_eq!(vol.file(ROOT_INO, b""), Err(libc::ENOENT));
    assert_eq!(vol.file(ROOT_INO, b"a/b"), Err(libc::EINVAL));
    assert_eq!(vol.file(ROOT_INO, b"."), Err(libc::EEXIST));
    assert_eq!(vol.mkdir(ROOT_INO, b".."), Err(libc::EEXIST));
    assert_eq!(vol.lookup(ROOT_INO, b"..").unwrap().ino, ROOT_INO);
    let file = vol.file(ROOT_INO, b"file").unwrap();
    assert_eq!(vol.lookup(file, b"x").unwrap_err(), libc::ENOTDIR);
    assert_eq!(vol.file(file, b"x"), Err(libc::ENOTDIR));
    vol.close();
}

#[test]
fn link_counts_have_their_limits() {
    let mut mkfs = small();
    mkfs.args.extend(["-N".into(), "66000".into()]);
    let vol = Vol::new(128, &mkfs);
    let a = vol.mkdir(ROOT_INO, b"a").unwrap();
    let file = vol.file(ROOT_INO, b"file").unwrap();
    for i in 1..65_000 {
        let attr = vol
            .fs
            .link(&Ctx::ROOT, file, a, format!("{i}").as_bytes())
            .unwrap();
        vol.fs.forget(attr.ino, 1);
    }
    let refused = vol.fs.link(&Ctx::ROOT, file, a, b"one more").unwrap_err();
    assert_eq!(refused.errno(), libc::EMLINK);
    assert_eq!(vol.attr("file").nlink, 65_000);
    // A directory shows one link when it has more than 65000 (`dir_nlink`), and continues to do so.
    let b = vol.mkdir(ROOT_INO, b"b").unwrap();
    for i in 0..65_100 {
        vol.mkdir(b, format!("{i}").as_bytes())
            .unwrap_or_else(|e| panic!("directory {i}: errno {e}"));
    }
    assert_eq!(vol.attr("b").nlink, 1);
    for i in 0..200 {
        vol.rmdir(b, format!("{i}").as_bytes()).unwrap();
    }
    assert_eq!(vol.attr("b").nlink, 1);
    vol.close();
}
