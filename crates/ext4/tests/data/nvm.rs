//! The whole log in a region of persistent memory: a commit waits for no device, and committed
//! changes survive a crash, logged as the changed units of each block.

use std::sync::Arc;

use stetfs_block::{BlockDevice, Fault, FaultInjector, MemDevice, Op};
use stetfs_ext4::*;
use stetfs_journal::region::RegionSource;
use stetfs_nvm::MemRegion;

use crate::data::records::{bytes, create, read, sync, sync_all};
use crate::data::region::{
    Recorded, SHAPE, at, finish, flushes, options, recovered, refused, region,
};
use crate::data::volume::fresh;
use stetfs_ext4::Ctx;

const JOURNAL: &str = "nvm";
const MIB: u64 = 8;

fn mkdir(fs: &Fs, parent: Ino, name: &[u8]) -> Ino {
    fs.mkdir(&Ctx::ROOT, parent, name, 0o755, 0).unwrap().ino
}

/// changes.C1: many commits of the same blocks, none of which is written back; with every unit of
/// changes, and with syncs by record or by commit.
#[test]
fn commits_wait_for_no_device() {
    for journal in [
        "nvm",
        "nvm,sync=compound",
        "nvm,unit=64",
        "nvm,unit=256",
        "nvm,unit=block",
        "nvm,data=journal",
    ] {
        let rig = Recorded::new(fresh(SHAPE), MIB);
        let (device, fs) = (&rig.device, rig.open(journal));
        mkdir(&fs, ROOT_INO, b"first");
        sync_all(&fs);
        let before = (flushes(&device.log()), device.log().events.len());
        for i in 0..30u8 {
            let dir = mkdir(&fs, ROOT_INO, format!("dir{i}").as_bytes());
            create(&fs, dir, b"file");
            if i % 3 == 0 {
                fs.unlink(&Ctx::ROOT, dir, b"file").unwrap();
            }
            sync_all(&fs);
        }
        let stats = fs.stats().journal;
        let log = device.log();
        assert_eq!((flushes(&log), log.events.len()), before, "{journal}");
        assert_eq!(stats.commits, 31, "{journal}");
        let each = stats.bytes_logged / stats.commits;
        match journal {
            "nvm,unit=block" => assert!(each > 5 * 4096, "{each} bytes a commit"),
            _ => assert!(each < 6 << 10, "{journal}: {each} bytes a commit"),
        }
        let (device, fs) = rig.recovered();
        for i in 0..30u8 {
            let dir = format!("dir{i}");
            let content = read(&fs, &[dir.as_bytes(), b"file"]);
            assert_eq!(content, (i % 3 != 0).then(Vec::new), "{journal}, {dir}");
        }
        finish(&device, &fs);
    }
}

/// Ordered data, and data that was written back earlier, is durable before its transaction counts.
#[test]
fn data_goes_home_before_its_transaction_counts() {
    let rig = Recorded::new(fresh(SHAPE), MIB);
    let fs = rig.open("nvm,sync=compound");
    let open = create(&fs, ROOT_INO, b"file");
    let content = bytes(3, 300_000);
    fs.write(&Ctx::ROOT, &open.file, 0, &content, false)
        .unwrap();
    sync(&fs, &open.file, false);
    // An overwrite changes no block of metadata except the inode's.
    let other = bytes(4, 8192);
    fs.write(&Ctx::ROOT, &open.file, 4096, &other, false)
        .unwrap();
    sync(&fs, &open.file, true);
    let (device, fs) = rig.recovered();
    let mut expected = content;
    expected[4096..4096 + 8192].copy_from_slice(&other);
    assert!(read(&fs, &[b"file"]) == Some(expected));
    finish(&device, &fs);
}

/// An error is noted in the superblock past the log. A changed superblock is logged as a whole, so
/// that its checksum is right whatever was noted since.
#[test]
fn an_error_that_was_noted_does_not_spoil_the_superblock() {
    let disk = Arc::new(fresh(SHAPE));
    let device = Arc::new(FaultInjector::new(disk.clone()));
    let region = region(MIB);
    let fs = Fs::open(device.clone(), options(JOURNAL, at(region.clone()))).unwrap();
    fs.set_last_mounted(b"/mnt").unwrap();
    sync_all(&fs);
    device.add(Fault::fail(Op::Flush, libc::EIO).once());
    fs.set_label(b"new").unwrap_err();
    fs.unmount().unwrap_err();
    drop(fs);
    let mut noted = [0; 4];
    disk.read(1024 + 0x194, &mut noted).unwrap();
    assert_eq!(u32::from_le_bytes(noted), 1, "errors in the superblock");
    let (_, fs) = recovered(disk.fork(), at(Arc::new(region.fork()))).unwrap();
    assert_eq!(fs.label().unwrap(), b"new");
}

/// A volume with its commits in its region, with a checkpoint among them.
fn committed() -> (MemDevice, MemRegion) {
    let device = Arc::new(fresh(SHAPE));
    let region = region(MIB);
    let fs = Fs::open(device.clone(), options(JOURNAL, at(region.clone()))).unwrap();
    for i in 0..20u8 {
        mkdir(&fs, ROOT_INO, &[b'a' + i]);
        sync_all(&fs);
    }
    (device.fork(), region.fork())
}

#[test]
fn without_its_region_a_volume_is_not_opened() {
    let (device, region) = committed();
    let refused = |source| refused(&device, source);
    for (source, why) in [
        (RegionSource::None, "name it with nvm=PATH"),
        (at(Arc::new(MemRegion::new(MIB << 20))), "only zeroes"),
        (at(Arc::new(committed().1)), "another mount of the volume"),
        (RegionSource::GivenUp, "was given up"),
    ] {
        let said = refused(source);
        assert!(said.contains(why), "{said}");
    }
    let named = refused(RegionSource::None);
    assert!(named.contains("--without-nvm --salvage"), "{named}");
    let (device, fs) = recovered(device.fork(), at(Arc::new(region.fork()))).unwrap();
    assert!((0..20u8).all(|i| fs.lookup(ROOT_INO, &[b'a' + i]).is_ok()));
    finish(&device, &fs);
    // Damage in the memory is reported.
    let (device, memory) = committed();
    let mut all = memory.to_vec();
    let magic = b"stetnvt1";
    let at_magic = |i: &usize| all[*i..].starts_with(magic);
    let heads: Vec<usize> = (0..all.len()).step_by(64).filter(at_magic).collect();
    assert!(heads.len() > 10, "{heads:?}");
    all[heads[5] + 200] ^= 1;
    let memory = at(Arc::new(MemRegion::from_bytes(&all)));
    let said = recovered(device, memory).err().unwrap().to_string();
    assert!(said.contains("does not match its checksum"), "{said}");
}

/// The preset needs a region, and regions that are too small are refused with the size that they
/// need.
#[test]
fn a_region_is_needed() {
    let open = |source| {
        let fs = Fs::open(Arc::new(fresh(SHAPE)), options(JOURNAL, source));
        fs.err().unwrap().to_string()
    };
    let none = open(RegionSource::None);
    assert!(none.contains("name it with nvm=PATH"), "{none}");
    let small = open(at(region(1)));
    assert!(small.contains("too small"), "{small}");
}

/// More than the log holds: checkpoints empty it, and no caller waits forever.
#[test]
fn a_full_log_has_room_again_after_a_checkpoint() {
    let device = Arc::new(fresh(SHAPE));
    let region = Arc::new(MemRegion::new((4 << 20) + 8192));
    let journal = "nvm,unit=block,sync=compound";
    let fs = Fs::open(device.clone(), options(journal, at(region.clone()))).unwrap();
    for i in 0..1200u32 {
        create(&fs, ROOT_INO, format!("{i:0>40}").as_bytes());
        if i % 3 == 0 {
            sync_all(&fs);
        }
    }
    sync_all(&fs);
    let stats = fs.stats().journal;
    assert!(stats.bytes_logged > 6 << 20, "{}", stats.bytes_logged);
    assert!(stats.checkpoints > 1);
    let left = at(Arc::new(region.fork()));
    let (device, fs) = recovered(device.fork(), left).unwrap();
    for i in 0..1200u32 {
        fs.lookup(ROOT_INO, format!("{i:0>40}").as_bytes()).unwrap();
    }
    finish(&device, &fs);
}
