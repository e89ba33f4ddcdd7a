//! Damaged and malicious volumes: they lead to errors, never to panics, endless loops or huge
//! allocations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_ext4::{Ctx, FileType, Fs, FsOptions, Ino, ROOT_INO, SetAttr, XattrSet};
use stetfs_testkit::{Image, Mkfs};

/// A volume with every kind of file, crashed with a full journal and with orphans.
fn prepared(mkfs: &Mkfs) -> MemDevice {
    let image = Image::make(8 << 20, mkfs).unwrap();
    let device = Arc::new(MemDevice::load(image.path()).unwrap());
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    let mut open = Vec::new();
    for d in 0..3 {
        let dir = format!("dir{d}");
        let dir = fs
            .mkdir(&Ctx::ROOT, ROOT_INO, dir.as_bytes(), 0o755, 0)
            .unwrap();
        for f in 0..80 {
            let name = format!("a name that takes some room {f}");
            let (attr, file) = fs
                .create(&Ctx::ROOT, dir.ino, name.as_bytes(), 0o644, 0, libc::O_RDWR)
                .unwrap();
            for k in 0..(f % 7) * (f % 5) {
                fs.write(&Ctx::ROOT, &file, k * 5000, &[k as u8; 900], false)
                    .unwrap();
            }
            if f % 9 == 0 {
                let value = vec![7; 10 + f as usize * 4];
                fs.setxattr(&Ctx::ROOT, attr.ino, b"user.x", &value, XattrSet::Any)
                    .unwrap();
            }
            if f % 13 == 0 {
                fs.unlink(&Ctx::ROOT, dir.ino, name.as_bytes()).unwrap();
                open.push(file);
            }
        }
        fs.symlink(&Ctx::ROOT, dir.ino, b"link", &[b'x'; 200])
            .unwrap();
    }
    let (tx, rx) = std::sync::mpsc::channel();
    fs.sync_all(Box::new(move |r| tx.send(r).unwrap()));
    rx.recv().unwrap().unwrap();
    let crashed = device.fork();
    drop(open);
    drop(fs);
    crashed
}

/// Uses everything that can be reached. Errors are allowed.
fn use_it(fs: &Arc<Fs>) {
    let mut dirs = vec![ROOT_INO];
    let mut looks = 0;
    while let Some(dir) = dirs.pop() {
        let mut entries: Vec<(Ino, Vec<u8>)> = Vec::new();
        if let Ok(open) = fs.open_inode(&Ctx::ROOT, dir, libc::O_RDONLY) {
            let _ = fs.readdir(&open, 0, &mut |e| {
                entries.push((e.ino, e.name));
                entries.len() < 500
            });
        }
        for (i, (_, name)) in entries.iter().enumerate() {
            looks += 1;
            if looks > 1500 {
                return;
            }
            if name == b"." || name == b".." {
                continue;
            }
            let Ok(attr) = fs.lookup(dir, name) else {
                continue;
            };
            let _ = fs.listxattr(attr.ino);
            let _ = fs.getxattr(attr.ino, b"user.x");
            match attr.kind {
                FileType::Directory if dirs.len() < 20 => dirs.push(attr.ino),
                FileType::Symlink => drop(fs.readlink(attr.ino)),
                FileType::Regular => use_file(fs, attr.ino, i),
                _ => {}
            }
            if i % 3 == 0 {
                let _ = fs.unlink(&Ctx::ROOT, dir, name);
            }
            fs.forget(attr.ino, 1);
        }
        let _ = fs
            .mkdir(&Ctx::ROOT, dir, b"new dir", 0o755, 0)
            .map(|a| fs.forget(a.ino, 1));
        let _ = fs.rmdir(&Ctx::ROOT, dir, b"dir1");
    }
}

fn use_file(fs: &Fs, ino: Ino, i: usize) {
    let Ok(file) = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR) else {
        return;
    };
    let mut buf = vec![0; 4000];
    for at in [0, 5000, 50_000] {
        let _ = fs.read(&file, at, &mut buf);
    }
    let _ = fs.write(&Ctx::ROOT, &file, (i as u64 % 5) * 3000, &buf, false);
    if i.is_multiple_of(4) {
        let size = SetAttr {
            size: Some(i as u64 * 100),
            ..SetAttr::default()
        };
        let _ = fs.setattr(&Ctx::ROOT, ino, &size);
    }
}

fn mutate(device: &MemDevice, rng: &mut fastrand::Rng) {
    // Mostly structures at the front, where they are close together.
    let reach = if rng.bool() { 1 << 20 } else { device.size() };
    for _ in 0..1 + rng.u32(..24) {
        let at = rng.u64(..reach);
        let mut old = [0; 4];
        device.read(at.min(device.size() - 4), &mut old).unwrap();
        let len = 1 + rng.usize(..4);
        let new: Vec<u8> = match rng.u8(..4) {
            0 => vec![0; len],
            1 => vec![0xff; len],
            2 => old
                .iter()
                .take(len)
                .map(|b| b ^ (1 << rng.u8(..8)))
                .collect(),
            _ => (0..len).map(|_| rng.u8(..)).collect(),
        };
        device.write(at.min(device.size() - 4), &new).unwrap();
    }
}

#[test]
fn mutated_volumes_give_errors() {
    // Without checksums the damage has the widest effect.
    let shapes = [
        Mkfs::blocks(1024)
            .feature("^metadata_csum,^orphan_file")
            .journal_mib(1),
        Mkfs::blocks(1024)
            .feature("^metadata_csum,orphan_file,^flex_bg")
            .journal_mib(1),
        Mkfs::blocks(2048)
            .feature("metadata_csum,orphan_file")
            .journal_mib(2),
        // Block maps, also in the journal's inode; no journal; small inodes.
        Mkfs::blocks(1024)
            .feature("^metadata_csum,^extents,^64bit")
            .journal_mib(1),
        Mkfs {
            fs_type: Some("ext2".into()),
            ..Mkfs::blocks(1024).inode_size(128)
        },
    ];
    let (mut opened, mut longest) = (0, Duration::ZERO);
    for (s, mkfs) in shapes.iter().enumerate() {
        let base = prepared(mkfs);
        for seed in 0..120 {
            let mut rng = fastrand::Rng::with_seed(seed + 1000 * s as u64);
            let device = Arc::new(base.fork());
            mutate(&device, &mut rng);
            let start = Instant::now();
            for read_only in [true, false] {
                let opts = FsOptions {
                    read_only,
                    no_recovery: read_only,
                    cache_bytes: 1 << 20,
                    // The damage may have added the feature.
                    mmp_second: Duration::from_millis(1),
                    ..FsOptions::default()
                };
                let Ok(fs) = Fs::open(device.clone(), opts) else {
                    continue;
                };
                opened += 1;
                use_it(&fs);
                let _ = fs.unmount();
            }
            longest = longest.max(start.elapsed());
        }
    }
    assert!(opened > 200, "{opened} opened");
    assert!(longest < Duration::from_secs(20), "one took {longest:?}");
}
