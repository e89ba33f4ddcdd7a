//! Extended attributes against a map, debugfs and the kernel.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stetfs_ext4::{Ctx, Ino, ROOT_INO, XattrSet};
use stetfs_testkit::Mkfs;

use crate::names::support::{Vol, kernel, small};

fn set(vol: &Vol, ino: Ino, name: &str, value: &[u8], how: XattrSet) -> Result<(), i32> {
    vol.fs
        .setxattr(&Ctx::ROOT, ino, name.as_bytes(), value, how)
        .map_err(|e| e.errno())
}

fn get(vol: &Vol, ino: Ino, name: &str) -> Result<Vec<u8>, i32> {
    vol.fs.getxattr(ino, name.as_bytes()).map_err(|e| e.errno())
}

fn remove(vol: &Vol, ino: Ino, name: &str) -> Result<(), i32> {
    vol.fs
        .removexattr(&Ctx::ROOT, ino, name.as_bytes())
        .map_err(|e| e.errno())
}

fn list(vol: &Vol, ino: Ino) -> Vec<String> {
    let list = String::from_utf8(vol.fs.listxattr(ino).unwrap()).unwrap();
    let mut names: Vec<String> = list.split_terminator('\0').map(str::to_owned).collect();
    names.sort();
    names
}

fn all(vol: &Vol, ino: Ino) -> BTreeMap<String, Vec<u8>> {
    list(vol, ino)
        .into_iter()
        .map(|n| (n.clone(), get(vol, ino, &n).unwrap()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn attributes_behave_like_a_map(
        inode_size in prop_oneof![Just(128u32), Just(256), Just(512)],
        csum: bool,
        ops in prop::collection::vec((0usize..2, 0usize..8, prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..400))), 1..60),
    ) {
        const NAMES: [&str; 8] = [
            "user.a", "user.longer-name", "trusted.t", "security.selinux", "user.b", "security.x", "user.0", "trusted.zz",
        ];
        let mut mkfs = small().inode_size(inode_size);
        if !csum { mkfs = mkfs.feature("^metadata_csum") }
        if inode_size == 128 { mkfs = mkfs.feature("^extra_isize") }
        let vol = Vol::new(8, &mkfs);
        let files = [vol.file(ROOT_INO, b"file").unwrap(), vol.mkdir(ROOT_INO, b"dir").unwrap()];
        let blocks = files.map(|f| vol.fs.getattr(f).unwrap().blocks);
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        for (which, name, value) in ops {
            let (ino, model, name) = (files[which], &mut models[which], NAMES[name]);
            match value {
                Some(v) => match set(&vol, ino, name, &v, XattrSet::Any) {
                    Ok(()) => drop(model.insert(name.to_owned(), v)),
                    Err(e) => prop_assert_eq!(e, libc::ENOSPC),
                },
                None => {
                    let wanted = if model.remove(name).is_some() { Ok(()) } else { Err(libc::ENODATA) };
                    prop_assert_eq!(remove(&vol, ino, name), wanted);
                }
            }
            prop_assert_eq!(&all(&vol, ino), &*model);
        }
        let vol = vol.reopen();
        for (ino, model) in files.into_iter().zip(&models) {
            prop_assert_eq!(&all(&vol, ino), model);
        }
        // Without attributes the block is freed.
        for (ino, model) in files.into_iter().zip(&models) {
            for name in model.keys() {
                remove(&vol, ino, name).unwrap();
            }
        }
        prop_assert_eq!(files.map(|f| vol.fs.getattr(f).unwrap().blocks), blocks);
        vol.close();
    }
}

#[test]
fn errors_are_the_kernels() {
    let vol = Vol::new(8, &small());
    let file = vol.file(ROOT_INO, b"file").unwrap();
    assert_eq!(
        set(&vol, file, "user.a", b"1", XattrSet::Replace),
        Err(libc::ENODATA)
    );
    set(&vol, file, "user.a", b"1", XattrSet::Create).unwrap();
    assert_eq!(
        set(&vol, file, "user.a", b"2", XattrSet::Create),
        Err(libc::EEXIST)
    );
    set(&vol, file, "user.a", b"3", XattrSet::Replace).unwrap();
    assert_eq!(get(&vol, file, "user.a").unwrap(), b"3");
    assert_eq!(get(&vol, file, "user.b"), Err(libc::ENODATA));
    assert_eq!(get(&vol, file, "system.other"), Err(libc::EOPNOTSUPP));
    assert_eq!(
        set(&vol, file, "noprefix", b"", XattrSet::Any),
        Err(libc::EOPNOTSUPP)
    );
    assert_eq!(
        set(
            &vol,
            file,
            &format!("user.{}", "n".repeat(251)),
            b"",
            XattrSet::Any
        ),
        Err(libc::ERANGE)
    );
    set(
        &vol,
        file,
        &format!("user.{}", "n".repeat(250)),
        b"",
        XattrSet::Any,
    )
    .unwrap();
    assert_eq!(
        set(&vol, file, "user.big", &vec![0; 65537], XattrSet::Any),
        Err(libc::E2BIG)
    );
    assert_eq!(
        set(&vol, file, "user.big", &vec![0; 1024], XattrSet::Any),
        Err(libc::ENOSPC)
    );
    let link = vol
        .fs
        .symlink(&Ctx::ROOT, ROOT_INO, b"link", b"file")
        .unwrap()
        .ino;
    vol.fs.forget(link, 1);
    assert_eq!(
        set(&vol, link, "user.a", b"1", XattrSet::Any),
        Err(libc::EPERM)
    );
    assert_eq!(get(&vol, link, "user.a"), Err(libc::ENODATA));
    set(&vol, link, "trusted.a", b"1", XattrSet::Any).unwrap();
    let user = stetfs_ext4::Ctx {
        uid: 7,
        gid: 7,
        pid: 1,
    };
    let refused = vol
        .fs
        .setxattr(&user, file, b"trusted.a", b"1", XattrSet::Any)
        .unwrap_err();
    assert_eq!(refused.errno(), libc::EPERM);
    vol.close();
}

#[test]
fn debugfs_reads_what_was_set() {
    let vol = Vol::new(32, &Mkfs::blocks(4096).journal_mib(4));
    let file = vol.file(ROOT_INO, b"file").unwrap();
    set(&vol, file, "user.small", b"in the inode", XattrSet::Any).unwrap();
    set(&vol, file, "user.large", &[b'L'; 2000], XattrSet::Any).unwrap();
    set(&vol, file, "trusted.other", b"tttt", XattrSet::Any).unwrap();
    let image = vol.close();
    assert!(
        image
            .debugfs("ea_get file user.small")
            .unwrap()
            .contains("in the inode")
    );
    assert!(
        image
            .debugfs("ea_get file user.large")
            .unwrap()
            .contains(&"L".repeat(2000))
    );
    let list = image.debugfs("ea_list file").unwrap();
    for name in ["user.small (12)", "user.large (2000)", "trusted.other (4)"] {
        assert!(list.contains(name), "{list}");
    }
    // The other direction.
    image
        .debugfs_write("ea_set file user.theirs from-debugfs")
        .unwrap();
    image.e2fsck_fn().unwrap();
    let vol = Vol::on(image);
    assert_eq!(get(&vol, file, "user.theirs").unwrap(), b"from-debugfs");
    assert_eq!(get(&vol, file, "user.large").unwrap(), [b'L'; 2000]);
    vol.close();
}

/// The kernel lets inodes with equal attributes share a block. A change of one inode must not
/// change the others.
#[test]
fn shared_blocks_are_unshared() {
    let vol = Vol::new(32, &Mkfs::blocks(4096).journal_mib(4));
    let image = vol.close();
    let mount = kernel(&image);
    let value = "v".repeat(1500);
    for i in 0..4 {
        let path = mount.path().join(format!("f{i}"));
        std::fs::write(&path, b"").unwrap();
        rustix::fs::setxattr(
            &path,
            "user.same",
            value.as_bytes(),
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
    }
    mount.umount().unwrap();
    let acl_of = |i: usize| {
        let stat = image.debugfs(&format!("stat f{i}")).unwrap();
        let at = stat.find("File ACL: ").unwrap() + 10;
        stat[at..]
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(
        acl_of(0) != 0 && (1..4).all(|i| acl_of(i) == acl_of(0)),
        "the kernel does not share"
    );

    let vol = Vol::on(image.copy().unwrap());
    let files: Vec<Ino> = (0..4).map(|i| vol.ino(&format!("f{i}"))).collect();
    set(&vol, files[0], "user.more", b"mine", XattrSet::Any).unwrap();
    remove(&vol, files[1], "user.same").unwrap();
    vol.unlink(ROOT_INO, b"f2").unwrap();
    let mut vol = vol.reopen();
    for _ in 0..2 {
        assert_eq!(get(&vol, files[0], "user.more").unwrap(), b"mine");
        assert_eq!(get(&vol, files[0], "user.same").unwrap(), value.as_bytes());
        assert!(list(&vol, files[1]).is_empty());
        assert_eq!(get(&vol, files[3], "user.same").unwrap(), value.as_bytes());
        // The last inode has the block for itself.
        set(&vol, files[3], "user.last", b"too", XattrSet::Any).unwrap();
        vol = vol.reopen();
    }
    vol.close();
}
