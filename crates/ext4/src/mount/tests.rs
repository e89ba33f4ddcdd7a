#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::mpsc;

use stetfs_block::{
    BlockDevice, BlockError, Fault, FaultInjector, MemDevice, Op, Recorder, Replay,
};
use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::{State, Superblock};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::{Image, KernelMount, Mkfs};

use crate::error::FsError;
use crate::fs::Fs;
use crate::testing::{flavours, fsck, image, mkfs, open};
use crate::types::{Ctx, FsOptions, OnError, ROOT_INO, SetAttr};
use crate::volume::super_bytes::read_superblock;

fn superblock(device: &MemDevice) -> Superblock {
    read_superblock(device).unwrap()
}

/// Rewrites the superblock with a valid checksum.
fn change_superblock(device: &MemDevice, change: impl FnOnce(&mut Superblock)) {
    let mut sb = superblock(device);
    change(&mut sb);
    sb.update_checksum();
    let mut bytes = vec![0; 1024];
    sb.encode(&mut bytes).unwrap();
    device.write(1024, &bytes).unwrap();
}

fn read_only() -> FsOptions {
    FsOptions {
        read_only: true,
        ..FsOptions::default()
    }
}

fn refusal(device: &Arc<MemDevice>, opts: FsOptions) -> FsError {
    match Fs::open(device.clone(), opts) {
        Ok(_) => panic!("the volume was opened"),
        Err(e) => e,
    }
}

fn sync(fs: &Fs) {
    let (tx, rx) = mpsc::channel();
    fs.sync_all(Box::new(move |r| tx.send(r).unwrap()));
    rx.recv().unwrap().unwrap();
}

#[test]
fn every_default_volume_opens_and_closes_clean() {
    for (name, mib, options) in flavours() {
        let device = mkfs(mib, &options);
        let before = superblock(&device);
        let fs = open(&device);
        let during = superblock(&device);
        assert_eq!(
            during.incompat().contains(Incompat::RECOVER),
            during.compat().contains(Compat::HAS_JOURNAL),
            "{name}"
        );
        assert_eq!(
            during.state().contains(State::VALID_FS),
            during.compat().contains(Compat::HAS_JOURNAL),
            "{name}"
        );
        assert_eq!(
            fs.getattr(ROOT_INO).unwrap().nlink,
            3,
            "{name}: . .. and lost+found/.."
        );
        fs.setattr(
            &Ctx::ROOT,
            ROOT_INO,
            &SetAttr {
                mode: Some(0o700),
                ..SetAttr::default()
            },
        )
        .unwrap();
        fs.unmount().unwrap();
        fs.unmount().unwrap();
        assert_eq!(
            fs.setattr(&Ctx::ROOT, ROOT_INO, &SetAttr::default())
                .unwrap_err()
                .errno(),
            libc::ESHUTDOWN
        );
        fsck(&device);
        let after = superblock(&device);
        assert!(!after.incompat().contains(Incompat::RECOVER), "{name}");
        assert!(after.state().contains(State::VALID_FS), "{name}");
        assert!(
            !after.ro_compat().contains(RoCompat::ORPHAN_PRESENT),
            "{name}"
        );
        assert_eq!(after.mnt_count.get(), before.mnt_count.get() + 1, "{name}");
        assert_eq!(
            after.free_blocks_count(),
            before.free_blocks_count(),
            "{name}"
        );
        let again = Fs::open(device.clone(), read_only()).unwrap();
        assert_eq!(
            again.getattr(ROOT_INO).unwrap().mode & 0o7777,
            0o700,
            "{name}"
        );
    }
}

#[test]
fn statfs_is_the_kernels() {
    for (name, mib, options) in flavours() {
        let image = Image::make(mib << 20, &options).unwrap();
        let ours = {
            let device = Arc::new(MemDevice::load(image.path()).unwrap());
            Fs::open(device, read_only()).unwrap().statfs()
        };
        let loop_device = LoopDev::attach(
            image.path(),
            LoopOptions {
                read_only: true,
                ..LoopOptions::default()
            },
        )
        .unwrap();
        let mount = KernelMount::new(loop_device, "ext4", "ro").unwrap();
        let kernel = rustix_statfs(mount.path());
        assert_eq!(
            (
                ours.blocks,
                ours.bfree,
                ours.bavail,
                ours.files,
                ours.ffree,
                ours.fsid
            ),
            kernel,
            "{name}"
        );
        mount.umount().unwrap();
    }
}

fn rustix_statfs(path: &std::path::Path) -> (u64, u64, u64, u64, u64, u64) {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: statfs is plain data and the call fills it; the path is NUL-terminated.
    let st = unsafe {
        let mut st: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::statfs(path.as_ptr(), &mut st), 0);
        st
    };
    // SAFETY: fsid_t is two 32-bit words without invalid values.
    let fsid: [u32; 2] = unsafe { std::mem::transmute(st.f_fsid) };
    (
        st.f_blocks,
        st.f_bfree,
        st.f_bavail,
        st.f_files,
        st.f_ffree,
        u64::from(fsid[0]) | u64::from(fsid[1]) << 32,
    )
}

#[test]
fn without_the_precomputed_overhead_it_is_counted() {
    for (name, mib, options) in flavours() {
        let device = mkfs(mib, &options);
        let stored = Fs::open(device.clone(), read_only()).unwrap().statfs();
        change_superblock(&device, |sb| sb.overhead_clusters.set(0));
        let counted = Fs::open(device, read_only()).unwrap().statfs();
        assert_eq!(stored, counted, "{name}");
    }
}

#[test]
fn features_decide_by_name() {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let fresh = superblock(&device);
    for (bit, name) in [
        (Incompat::COMPRESSION.bits(), "compression"),
        (1 << 29, "FEATURE_I29"),
        (Incompat::DIRDATA.bits(), "dirdata"),
    ] {
        change_superblock(&device, |sb| {
            sb.feature_incompat.set(fresh.feature_incompat.get() | bit)
        });
        let e = refusal(&device, read_only());
        assert!(
            matches!(&e, FsError::Unsupported(text) if text.contains(name)),
            "{e}"
        );
    }
    for (bit, name) in [
        (RoCompat::VERITY.bits(), "verity"),
        (1 << 27, "FEATURE_R27"),
        (RoCompat::READONLY.bits(), "read-only"),
    ] {
        change_superblock(&device, |sb| {
            *sb = fresh.clone();
            sb.feature_ro_compat
                .set(fresh.feature_ro_compat.get() | bit);
        });
        let e = refusal(&device, FsOptions::default());
        assert!(
            matches!(&e, FsError::Unsupported(text) if text.contains(name)),
            "{e}"
        );
        let fs = Fs::open(device.clone(), read_only()).unwrap();
        assert_eq!(
            fs.setattr(&Ctx::ROOT, ROOT_INO, &SetAttr::default())
                .unwrap_err()
                .errno(),
            libc::EROFS
        );
    }
}

#[test]
fn a_read_only_open_writes_nothing() {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let before = device.fork();
    let fs = Fs::open(device.clone(), read_only()).unwrap();
    fs.getattr(ROOT_INO).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert!(device.differences(&before).is_empty());
}

#[test]
fn what_was_synced_is_there_after_a_crash() {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let fs = open(&device);
    fs.setattr(
        &Ctx::ROOT,
        ROOT_INO,
        &SetAttr {
            mode: Some(0o711),
            ..SetAttr::default()
        },
    )
    .unwrap();
    sync(&fs);
    let crashed = Arc::new(device.fork());
    drop(fs);
    assert!(superblock(&crashed).incompat().contains(Incompat::RECOVER));

    // e2fsck replays the journal ...
    let copy = image(&crashed);
    copy.e2fsck_replay().unwrap();
    let replayed = Arc::new(MemDevice::load(copy.path()).unwrap());
    let theirs = Fs::open(replayed, read_only()).unwrap();
    assert_eq!(theirs.getattr(ROOT_INO).unwrap().mode & 0o7777, 0o711);

    // ... a device that cannot be written is not replayed ...
    let dirty = Arc::new(crashed.fork());
    let noload = FsOptions {
        no_recovery: true,
        ..read_only()
    };
    assert_eq!(
        Fs::open(dirty.clone(), noload)
            .unwrap()
            .getattr(ROOT_INO)
            .unwrap()
            .mode
            & 0o7777,
        0o755
    );
    assert!(dirty.differences(&crashed).is_empty());

    // ... and an opening replays it, read-only or for writing.
    let ro = Arc::new(crashed.fork());
    assert_eq!(
        Fs::open(ro.clone(), read_only())
            .unwrap()
            .getattr(ROOT_INO)
            .unwrap()
            .mode
            & 0o7777,
        0o711
    );
    assert!(!superblock(&ro).incompat().contains(Incompat::RECOVER));
    fsck(&ro);
    let rw = open(&crashed);
    assert_eq!(rw.getattr(ROOT_INO).unwrap().mode & 0o7777, 0o711);
    rw.unmount().unwrap();
    fsck(&crashed);
}

#[test]
fn commits_and_checkpoints_are_timed() {
    let fs = open(&mkfs(32, &Mkfs::blocks(4096)));
    fs.mkdir(&Ctx::ROOT, ROOT_INO, b"dir", 0o755, 0).unwrap();
    let before = fs.stats().latency;
    fs.vol.journal.commit_all().unwrap();
    let commit = fs.stats().latency.commit;
    assert!(commit.count() > before.commit.count());
    assert!(!commit.longest.is_zero() && commit.longest <= commit.total);
    fs.unmount().unwrap();
    let checkpoint = fs.stats().latency.checkpoint;
    assert!(checkpoint.count() > before.checkpoint.count());
    assert!(!checkpoint.total.is_zero());
}

/// Requests that fail-stop refuses after a failure are not counted as the device's.
#[test]
fn what_the_device_fails_is_counted() {
    let device = Arc::new(FaultInjector::new(mkfs(32, &Mkfs::blocks(4096))));
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    let counts = || {
        let failed = fs.stats().failed.into_iter();
        let all = failed.map(|(op, failed)| (op.name(), failed.count, failed.first));
        all.filter(|(_, count, _)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(counts(), []);
    device.add(Fault::fail(Op::Flush, libc::EIO).once());
    fs.mkdir(&Ctx::ROOT, ROOT_INO, b"dir", 0o755, 0).unwrap();
    assert!(fs.vol.journal.commit_all().is_err());
    assert!(fs.mkdir(&Ctx::ROOT, ROOT_INO, b"more", 0o755, 0).is_err());
    let all = counts();
    let [("flush", 1, Some(first))] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!((first.device, first.offset), ("volume", None));
    assert_eq!(first.errno, libc::EIO);
    assert!(fs.unmount().is_err());
}

/// The error codes are in the second sector; the other changes are in the first.
#[test]
fn no_crash_tears_the_superblock_when_an_error_is_noted() {
    let base = mkfs(32, &Mkfs::blocks(4096));
    let device = Arc::new(Recorder::new(base.fork()));
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    let io = || {
        BlockError::io(
            Op::Read,
            0,
            512,
            std::io::Error::from_raw_os_error(libc::EIO),
        )
    };
    for error in [
        FsError::corrupt("test", 77, "damage for a test"),
        FsError::corrupt("test", 78, "damage for a test"),
        FsError::Device(Arc::new(io())),
    ] {
        fs.vol.report(&error);
        sync(&fs);
        fs.vol.journal.checkpoint().unwrap();
    }
    fs.unmount().unwrap();
    let log = device.take_log();
    let mut replay = Replay::new(&base, &log);
    let (mut counts, mut torn_writes) = ([0; 4], 0);
    for event in 0..=log.len() {
        replay.advance_to(event);
        for set in 0..8 {
            let left = replay.crash(|sector| match sector.offset {
                1024 => set & 1 != 0,
                1536 => set & 2 != 0,
                _ => set & 4 != 0,
            });
            let sb = read_superblock(&left).unwrap_or_else(|e| panic!("{event}, {set}: {e}"));
            counts[sb.error_count.get() as usize] += 1;
        }
        let of_it = replay.pending().into_iter();
        torn_writes += usize::from(of_it.filter(|s| (1024..2048).contains(&s.offset)).count() > 1);
    }
    assert!(counts.iter().all(|n| *n > 0), "{counts:?}");
    assert!(torn_writes > 0, "no write of the superblock was under way");
}

#[test]
fn errors_are_noted_and_decide() {
    let damage = || FsError::corrupt("test", 77, "damage for a test");
    let device = mkfs(32, &Mkfs::blocks(4096));
    let fs = open(&device);
    fs.vol.report(&damage());
    fs.vol.report(&damage());
    fs.vol.report(&FsError::Errno(libc::ENOENT));
    fs.setattr(
        &Ctx::ROOT,
        ROOT_INO,
        &SetAttr {
            mode: Some(0o755),
            ..SetAttr::default()
        },
    )
    .unwrap();
    fs.unmount().unwrap();
    let sb = superblock(&device);
    assert!(sb.state().contains(State::ERROR_FS));
    assert_eq!(
        (
            sb.error_count.get(),
            sb.first_error_block.get(),
            sb.first_error_errcode
        ),
        (2, 77, 16)
    );

    // A read-only volume writes no notes.
    let device = mkfs(32, &Mkfs::blocks(4096));
    let before = device.fork();
    let fs = Fs::open(device.clone(), read_only()).unwrap();
    fs.vol.report(&damage());
    fs.unmount().unwrap();
    assert!(device.differences(&before).is_empty());

    let device = mkfs(32, &Mkfs::blocks(4096));
    let opts = FsOptions {
        on_error: Some(OnError::RemountRo),
        ..FsOptions::default()
    };
    let fs = Fs::open(device.clone(), opts).unwrap();
    fs.vol.report(&damage());
    let e = fs
        .setattr(
            &Ctx::ROOT,
            ROOT_INO,
            &SetAttr {
                mode: Some(0o755),
                ..SetAttr::default()
            },
        )
        .unwrap_err();
    assert_eq!(e.errno(), libc::EROFS);
    assert!(superblock(&device).state().contains(State::ERROR_FS));
    assert!(fs.unmount().is_err());
    assert!(superblock(&device).incompat().contains(Incompat::RECOVER));
}

#[test]
fn damaged_structures_are_named() {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let sound = device.fork();
    device.write(1024 + 0x20, &[9]).unwrap();
    assert!(matches!(
        refusal(&device, read_only()),
        FsError::Corrupt {
            what: "superblock",
            ..
        } | FsError::Format(_)
    ));
    let device = Arc::new(sound.fork());
    device.write(4096 + 4, &[0xff; 4]).unwrap();
    assert!(matches!(
        refusal(&device, read_only()),
        FsError::Corrupt {
            what: "group descriptor",
            ..
        }
    ));
    let device = Arc::new(sound.fork());
    change_superblock(&device, |sb| sb.set_blocks_count(1 << 20));
    refusal(&device, read_only());
}

#[test]
fn an_error_left_in_the_journal_marks_the_volume() {
    let device = mkfs(32, &Mkfs::blocks(4096).feature("^metadata_csum"));
    let log = {
        let image = image(&device);
        let blocks = image.debugfs("bmap <8> 0").unwrap();
        blocks.trim().parse::<u64>().unwrap() * 4096
    };
    // s_errno, big-endian.
    device.write(log + 0x20, &(-5i32).to_be_bytes()).unwrap();
    open(&device).unmount().unwrap();
    assert!(superblock(&device).state().contains(State::ERROR_FS));
    // It stays in the superblock; the journal begins without it.
    let mut errno = [9; 4];
    device.read(log + 0x20, &mut errno).unwrap();
    assert_eq!(errno, [0; 4]);
    open(&device).unmount().unwrap();
    assert!(superblock(&device).state().contains(State::ERROR_FS));
}
