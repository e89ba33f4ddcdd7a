//! Attribute values in inodes of their own (`ea_inode`): against a model, through crashes, with the
//! kernel, and damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use stetfs_block::{MemDevice, Recorder, Replay};
use stetfs_ext4::{Ctx, Fs, FsOptions, Ino, ROOT_INO, SetAttr, XattrSet};
use stetfs_testkit::{Image, Mkfs};

use crate::names::support::{Random, Vol, kernel};

type Model = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

fn mkfs(block_size: u32, also: &str) -> Mkfs {
    Mkfs::blocks(block_size).feature(&format!("ea_inode{also}"))
}

fn value(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 / 3 + salt) as u8).collect()
}

fn set(fs: &Fs, ino: Ino, name: &str, value: &[u8]) -> Result<(), i32> {
    fs.setxattr(&Ctx::ROOT, ino, name.as_bytes(), value, XattrSet::Any)
        .map_err(|e| e.errno())
}

fn get(fs: &Fs, ino: Ino, name: &str) -> Result<Vec<u8>, i32> {
    fs.getxattr(ino, name.as_bytes()).map_err(|e| e.errno())
}

fn assert_model(vol: &Vol, model: &Model) {
    for (file, attrs) in model {
        let ino = vol.ino(file);
        let list = vol.fs.listxattr(ino).unwrap();
        assert_eq!(list.split(|b| *b == 0).count(), attrs.len() + 1, "{file}");
        for (name, value) in attrs {
            assert!(get(&vol.fs, ino, name).unwrap() == *value, "{file}: {name}");
        }
    }
}

/// The numbers of free blocks and inodes.
fn free(vol: &Vol) -> (u64, u64) {
    vol.sync();
    let s = vol.fs.statfs();
    (s.bfree, s.ffree)
}

/// value.V4.
#[test]
fn values_behave_like_a_map_and_leave_nothing_behind() {
    let shapes = [
        (1024, "", 256),
        (4096, "", 256),
        (1024, ",^metadata_csum,^extents,^64bit", 128),
        (4096, ",inline_data,orphan_file", 1024),
        (1024, ",^has_journal", 512),
    ];
    for (seed, (block, also, inode)) in shapes.into_iter().enumerate() {
        let mut vol = Vol::new(32, &mkfs(block, also).inode_size(inode));
        let before = free(&vol);
        let mut random = Random::new(seed as u64 + 5);
        let mut model = Model::new();
        for step in 0..400 {
            let file = format!("f{}", random.below(6));
            match (random.below(12), model.get_mut(&file)) {
                (_, None) => {
                    let kind = [libc::S_IFREG, libc::S_IFDIR][random.below(2)];
                    if kind == libc::S_IFDIR {
                        vol.mkdir(ROOT_INO, file.as_bytes()).unwrap();
                    } else {
                        vol.file(ROOT_INO, file.as_bytes()).unwrap();
                    }
                    model.insert(file, BTreeMap::new());
                }
                (0, Some(_)) => {
                    let gone = vol.unlink(ROOT_INO, file.as_bytes());
                    gone.or_else(|_| vol.rmdir(ROOT_INO, file.as_bytes()))
                        .unwrap();
                    model.remove(&file);
                }
                (1..4, Some(attrs)) => {
                    let name = format!("user.{}", random.below(7));
                    let removed = vol
                        .fs
                        .removexattr(&Ctx::ROOT, vol.ino(&file), name.as_bytes());
                    let was = attrs.remove(&name).ok_or(libc::ENODATA).map(drop);
                    assert_eq!(removed.map_err(|e| e.errno()), was);
                }
                (_, Some(attrs)) => {
                    let name = format!("user.{}", random.below(7));
                    let len = [30, 900, 4000, 65_536][random.below(4)];
                    let value = value(random.below(len + 1), step);
                    match set(&vol.fs, vol.ino(&file), &name, &value) {
                        Ok(()) => drop(attrs.insert(name, value)),
                        Err(e) => assert_eq!(e, libc::ENOSPC),
                    }
                }
            }
            if step % 100 == 99 {
                assert_model(&vol, &model);
                vol = vol.reopen();
                assert_model(&vol, &model);
            }
        }
        for file in model.keys() {
            let gone = vol.unlink(ROOT_INO, file.as_bytes());
            gone.or_else(|_| vol.rmdir(ROOT_INO, file.as_bytes()))
                .unwrap();
        }
        assert_eq!(free(&vol), before, "{block}{also}");
        vol.close();
    }
}

/// The kernel's results of the same calls: sizes, errors, `st_blocks`.
#[test]
fn the_limits_are_the_kernels() {
    let calls = |set: &mut dyn FnMut(&str, usize) -> (i32, u64)| {
        let mut seen = Vec::new();
        for (name, len) in [
            ("user.big", 5000),
            ("user.big2", 65_536),
            ("user.mid", 3000),
            ("user.mid2", 3000),
            ("user.tiny", 5),
            ("user.too-big", 65_537),
            ("user.big", 10),
            ("user.mid", 4030),
            ("user.mid", 4050),
        ] {
            seen.push((name.to_owned(), len, set(name, len)));
        }
        for i in 0..400 {
            let name = format!("user.many-{i}");
            seen.push((name.clone(), 2000, set(&name, 2000)));
        }
        seen
    };
    for block in [1024, 4096] {
        let image = Image::make(64 << 20, &mkfs(block, "")).unwrap();
        let mount = kernel(&image);
        let path = mount.path().join("file");
        std::fs::write(&path, b"").unwrap();
        let theirs = calls(&mut |name, len| {
            use std::os::unix::fs::MetadataExt;
            let flags = rustix::fs::XattrFlags::empty();
            let done = rustix::fs::setxattr(&path, name, &value(len, len), flags);
            let blocks = std::fs::metadata(&path).unwrap().blocks();
            (done.map_or_else(|e| e.raw_os_error(), |()| 0), blocks)
        });
        mount.umount().unwrap();
        let vol = Vol::new(64, &mkfs(block, ""));
        let ino = vol.file(ROOT_INO, b"file").unwrap();
        let ours = calls(&mut |name, len| {
            let done = set(&vol.fs, ino, name, &value(len, len));
            let blocks = vol.fs.getattr(ino).unwrap().blocks;
            (done.err().unwrap_or(0), blocks)
        });
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "blocks of {block}");
        }
        let image = vol.close();
        let mount = kernel(&image);
        let path = mount.path().join("file");
        let mut buf = vec![0; 70_000];
        for (name, len, (errno, _)) in ours.iter().rev() {
            if *errno == 0 && *name != "user.mid" && *name != "user.big" {
                let n = rustix::fs::getxattr(&path, name.as_str(), &mut buf).unwrap();
                assert!(buf[..n] == value(*len, *len), "{name}");
            }
        }
        // The kernel deletes the files that StetFS made.
        std::fs::remove_file(&path).unwrap();
        mount.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

#[test]
fn a_full_volume_refuses_and_stays_right() {
    // Out of blocks.
    let vol = Vol::new(8, &mkfs(1024, ""));
    let mut kept = Vec::new();
    let refused = (0..).find_map(|i| {
        let ino = vol.file(ROOT_INO, format!("f{i}").as_bytes()).unwrap();
        let done = set(&vol.fs, ino, "user.v", &value(60_000, i));
        if done.is_ok() {
            kept.push((ino, i));
        }
        done.err()
    });
    assert_eq!(refused, Some(libc::ENOSPC));
    assert!(kept.len() > 20, "{}", kept.len());
    // A replacement needs space for the new value before the old value's space is free.
    assert_eq!(
        set(&vol.fs, kept[0].0, "user.v", &value(60_001, 9)),
        Err(libc::ENOSPC)
    );
    for (ino, i) in &kept {
        assert!(get(&vol.fs, *ino, "user.v").unwrap() == value(60_000, *i));
    }
    vol.fs
        .removexattr(&Ctx::ROOT, kept[1].0, b"user.v")
        .unwrap();
    vol.sync();
    set(&vol.fs, kept[0].0, "user.v", &value(50_000, 9)).unwrap();
    vol.close();

    // Out of inodes.
    let mut few = mkfs(1024, "");
    few.args.extend(["-N".into(), "32".into()]);
    let vol = Vol::new(8, &few);
    let file = vol.file(ROOT_INO, b"file").unwrap();
    let done: Vec<_> = (0..40)
        .map(|i| set(&vol.fs, file, &format!("user.{i}"), &value(1500, i)))
        .collect();
    assert!(done.iter().filter(|d| d.is_ok()).count() > 10);
    assert_eq!(done[39], Err(libc::ENOSPC));
    vol.close();
}

/// The access list as programs see it, with `n` named users.
fn long_acl(n: u32) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, perm: u16, id: u32| {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    };
    entry(0x01, 7, u32::MAX);
    (0..n).for_each(|i| entry(0x02, (i % 8) as u16, 1000 + i));
    entry(0x04, 5, u32::MAX);
    entry(0x10, 7, u32::MAX);
    entry(0x20, 0, u32::MAX);
    out
}

#[test]
fn long_access_lists_are_kept_inherited_and_follow_the_mode() {
    let vol = Vol::new(16, &mkfs(1024, ""));
    let dir = vol.mkdir(ROOT_INO, b"dir").unwrap();
    let acl = long_acl(1500);
    set(&vol.fs, dir, "system.posix_acl_default", &acl).unwrap();
    let sub = vol.mkdir(dir, b"sub").unwrap();
    let file = vol.node(sub, b"file", libc::S_IFREG | 0o666).unwrap();
    let mode = SetAttr {
        mode: Some(0o640),
        ..SetAttr::default()
    };
    vol.fs.setattr(&Ctx::ROOT, file, &mode).unwrap();
    let vol = vol.reopen();
    let ours = get(&vol.fs, file, "system.posix_acl_access").unwrap();
    assert_eq!(ours.len(), acl.len());
    assert!(get(&vol.fs, sub, "system.posix_acl_default").unwrap() == acl);
    let image = vol.close();
    let mount = kernel(&image);
    let mut theirs = vec![0; 70_000];
    let path = mount.path().join("dir/sub/file");
    let n = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut theirs).unwrap();
    assert!(theirs[..n] == ours);
    mount.umount().unwrap();
    let vol = Vol::on(image);
    vol.unlink(sub, b"file").unwrap();
    vol.rmdir(dir, b"sub").unwrap();
    vol.rmdir(ROOT_INO, b"dir").unwrap();
    vol.close();
}

fn save(mem: &MemDevice) -> Image {
    let image = Image::sparse(0).unwrap();
    mem.save(image.path()).unwrap();
    image
}

/// A value is replaced and removed, and its file deleted; the power fails after any write
/// (value.V1).
#[test]
fn after_a_crash_there_is_the_old_value_or_the_new() {
    let mut tried = 0;
    for (also, by_kernel) in [("", false), (",orphan_file", false), ("", true)] {
        let prepared = Vol::new(8, &mkfs(1024, also).journal_mib(1));
        let file = prepared.file(ROOT_INO, b"file").unwrap();
        let gone = prepared.file(ROOT_INO, b"gone").unwrap();
        for ino in [file, gone] {
            set(&prepared.fs, ino, "user.v", &value(9000, 1)).unwrap();
            set(&prepared.fs, ino, "user.w", &value(20_000, 2)).unwrap();
        }
        let base = MemDevice::load(prepared.close().path()).unwrap();
        let recorder = Arc::new(Recorder::new(Arc::new(base.fork())));
        let fs = Fs::open(recorder.clone(), FsOptions::default()).unwrap();
        let sync = || {
            let (send, wait) = std::sync::mpsc::channel();
            fs.sync_all(Box::new(move |done| send.send(done).unwrap()));
            wait.recv().unwrap().unwrap();
        };
        let states = [value(9000, 1), value(65_536, 3), value(500, 4), Vec::new()];
        for new in &states[1..] {
            if new.is_empty() {
                fs.removexattr(&Ctx::ROOT, file, b"user.v").unwrap();
            } else {
                set(&fs, file, "user.v", new).unwrap();
            }
            sync();
        }
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"gone").unwrap();
        sync();
        let log = recorder.log();
        drop(fs);
        let mut replay = Replay::new(&base, &log);
        let mut random = Random::new(9);
        let mut newest = 0;
        let step = if by_kernel { 3 } else { 1 };
        for position in (0..=log.len()).step_by(step) {
            tried += 1;
            replay.advance_to(position);
            let crashed = replay.crash(|_| random.below(3) > 0);
            let what = format!("{also}, {position} of {}", log.len());
            let image = save(&crashed);
            if by_kernel {
                // The kernel also finishes what StetFS left.
                kernel(&image).umount().unwrap();
                image
                    .e2fsck_fn()
                    .unwrap_or_else(|e| panic!("{what}: {e:#}"));
            }
            let vol = Vol::on(image);
            let now = get(&vol.fs, file, "user.v").or_else(|e| match e {
                libc::ENODATA => Ok(Vec::new()),
                e => Err(e),
            });
            let now = now.unwrap_or_else(|e| panic!("{what}: errno {e}"));
            let state = states.iter().position(|s| *s == now);
            let state = state.unwrap_or_else(|| panic!("{what}: no value it ever had"));
            assert!(state >= newest, "{what}: {state} after {newest}");
            newest = state;
            assert!(get(&vol.fs, file, "user.w").unwrap() == value(20_000, 2));
            if let Ok(attr) = vol.lookup(ROOT_INO, b"gone") {
                assert!(get(&vol.fs, attr.ino, "user.w").unwrap() == value(20_000, 2));
            }
            vol.close();
        }
        assert_eq!(newest, 3);
    }
    assert!(tried > 60, "{tried}");
}

/// Files that share an attribute block, as the kernel made it: the entries of the block count once,
/// until a file gets its own block.
#[test]
fn shared_blocks_share_their_references() {
    let vol = Vol::new(16, &mkfs(1024, "").inode_size(128));
    let image = vol.close();
    let mount = kernel(&image);
    let flags = rustix::fs::XattrFlags::empty();
    for i in 0..5 {
        let path = mount.path().join(format!("f{i}"));
        std::fs::write(&path, b"").unwrap();
        for n in 0..3 {
            let value = value(5000 + n, n);
            rustix::fs::setxattr(&path, format!("user.{n}"), &value, flags).unwrap();
        }
    }
    mount.umount().unwrap();
    // The kernel (6.18) counts references too many when it finds a block to share.
    image.e2fsck_fy().unwrap();
    let vol = Vol::on(image);
    let before = free(&vol);
    let blocks: Vec<u64> = (0..5).map(|i| vol.attr(&format!("f{i}")).blocks).collect();
    assert_eq!(blocks, [blocks[0]; 5]);
    // One file gets its own block, with one value more and one less; one file is deleted; the
    // others stay unchanged.
    let own = vol.ino("f0");
    vol.fs.removexattr(&Ctx::ROOT, own, b"user.1").unwrap();
    set(&vol.fs, own, "user.new", &value(7000, 7)).unwrap();
    vol.unlink(ROOT_INO, b"f1").unwrap();
    vol.fs
        .removexattr(&Ctx::ROOT, vol.ino("f2"), b"user.0")
        .unwrap();
    let vol = vol.reopen();
    for (file, has) in [
        ("f0", [0, 2]),
        ("f2", [1, 2]),
        ("f3", [0, 1]),
        ("f4", [1, 2]),
    ] {
        for n in has {
            let v = get(&vol.fs, vol.ino(file), &format!("user.{n}")).unwrap();
            assert!(v == value(5000 + n, n), "{file}");
        }
    }
    assert_eq!(get(&vol.fs, own, "user.1"), Err(libc::ENODATA));
    assert!(get(&vol.fs, own, "user.new").unwrap() == value(7000, 7));
    for i in [0, 2, 3, 4] {
        vol.unlink(ROOT_INO, format!("f{i}").as_bytes()).unwrap();
    }
    // Five files, three values, one block.
    let after = free(&vol);
    assert_eq!((after.0 - before.0, after.1 - before.1), (3 * 5 + 1, 5 + 3));
    vol.close();
}

/// A volume with a file whose value is the first value inode, after `change`.
fn damaged(change: impl Fn(&Image, Ino, Ino)) -> Vol {
    let vol = Vol::new(8, &mkfs(1024, ",^metadata_csum"));
    let file = vol.file(ROOT_INO, b"file").unwrap();
    vol.file(ROOT_INO, b"other").unwrap();
    set(&vol.fs, file, "user.v", &value(9000, 1)).unwrap();
    let image = vol.close();
    let stat = image.debugfs("ncheck 1").unwrap();
    assert!(stat.contains("Inode"));
    change(&image, file, file + 2);
    Vol::on(image)
}

#[test]
fn damaged_references_are_errors() {
    let field = |field: &'static str, to: &'static str| {
        move |image: &Image, _: Ino, value: Ino| {
            image
                .debugfs_write(&format!("set_inode_field <{value}> {field} {to}"))
                .unwrap();
        }
    };
    // Not a value; another value; none at all.
    for change in [
        field("flags", "0x80000"),
        field("atime", "@0x12345678"),
        field("size", "8000"),
        field("mode", "040755"),
    ] {
        let vol = damaged(change);
        let file = vol.ino("file");
        assert_eq!(get(&vol.fs, file, "user.v"), Err(libc::EUCLEAN));
        let _ = vol.unlink(ROOT_INO, b"file");
        let _ = vol.fs.unmount();
    }
    // The value can be read but not released: its count says that no entry refers to it.
    let vol = damaged(field("version", "0"));
    let file = vol.ino("file");
    assert!(get(&vol.fs, file, "user.v").is_ok());
    let removed = vol.fs.removexattr(&Ctx::ROOT, file, b"user.v");
    assert_eq!(removed.map_err(|e| e.errno()), Err(libc::EUCLEAN));
    let _ = vol.fs.unmount();
    // A name that leads to a value.
    let vol = damaged(|image, _, value| {
        image
            .debugfs_write(&format!("link <{value}> name"))
            .unwrap();
    });
    assert_eq!(vol.lookup(ROOT_INO, b"name").err(), Some(libc::EUCLEAN));
    assert!(get(&vol.fs, vol.ino("file"), "user.v").is_ok());
    let _ = vol.fs.unmount();
}

/// Threads add, remove and read values of their own files while others do the same (value.V2,
/// value.V3).
#[test]
fn many_threads() {
    let vol = Vol::new(64, &mkfs(1024, ""));
    let files: Vec<Ino> = (0..8)
        .map(|i| vol.file(ROOT_INO, format!("f{i}").as_bytes()).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for t in 0..4u64 {
            let (fs, files) = (&vol.fs, &files);
            scope.spawn(move || {
                let mut random = Random::new(t + 77);
                for i in 0..150 {
                    let file = files[random.below(files.len())];
                    let name = format!("user.{}", random.below(3));
                    match random.below(4) {
                        0 => {
                            let _ = fs.removexattr(&Ctx::ROOT, file, name.as_bytes());
                        }
                        1 | 2 => {
                            let len = random.below(30_000);
                            let salt = i + len;
                            let mut v = value(len, salt);
                            v.extend((salt as u32).to_le_bytes());
                            set(fs, file, &name, &v).unwrap();
                        }
                        _ => match get(fs, file, &name) {
                            Ok(v) => {
                                let (v, salt) = v.split_last_chunk::<4>().unwrap();
                                let salt = u32::from_le_bytes(*salt) as usize;
                                assert!(v == value(v.len(), salt));
                            }
                            Err(e) => assert_eq!(e, libc::ENODATA),
                        },
                    }
                }
            });
        }
    });
    let caller = Ctx {
        uid: 5,
        ..Ctx::ROOT
    };
    let denied = vol.fs.setxattr(
        &caller,
        files[0],
        b"trusted.v",
        &value(9000, 1),
        XattrSet::Any,
    );
    assert_eq!(denied.map_err(|e| e.errno()), Err(libc::EPERM));
    vol.close();
}
