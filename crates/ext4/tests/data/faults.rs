//! Failing devices, and damaged extent trees.

use std::sync::Arc;

use stetfs_block::{BlockDevice, Fault, FaultInjector, MemDevice, Op};
use stetfs_ext4::*;
use stetfs_testkit::{Image, Mkfs};

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 24,
    extents: true,
    cluster: 1,
};

fn with_faults() -> (
    Volume,
    Arc<FaultInjector<Arc<dyn stetfs_block::BlockDevice>>>,
) {
    let mut injector = None;
    let vol = Volume::with(SHAPE, FsOptions::default(), |device| {
        let faulty = Arc::new(FaultInjector::new(device));
        injector = Some(faulty.clone());
        faulty
    });
    (vol, injector.unwrap())
}

#[test]
fn a_read_that_fails_says_so_and_later_ones_succeed() {
    let (mut vol, faults) = with_faults();
    for large in [false, true] {
        let len = if large { 1 << 20 } else { 3000 };
        let f = vol.create(if large { "large" } else { "small" });
        vol.fs()
            .write(&Ctx::ROOT, &f, 0, &vec![9; len], false)
            .unwrap();
        drop(f);
        vol.reopen();
        let f = vol.open(if large { "large" } else { "small" });
        let mut buf = vec![0; len];
        faults.add(Fault::fail(Op::Read, libc::EIO));
        assert_eq!(
            vol.fs().read(&f, 0, &mut buf).unwrap_err().errno(),
            libc::EIO
        );
        faults.clear();
        assert_eq!(vol.fs().read(&f, 0, &mut buf).unwrap(), len);
        assert!(buf.iter().all(|b| *b == 9));
        vol.fs().write(&Ctx::ROOT, &f, 5, b"after", false).unwrap();
        drop(f);
    }
    vol.finish();
}

/// An unmounted volume, with or without checksums, with a file whose extent tree is two levels
/// deep; and the numbers of the tree's blocks, the inner one first, then the leaves.
fn with_tree(csum: bool) -> (Arc<MemDevice>, Vec<u64>) {
    let mut mkfs = Mkfs::blocks(1024);
    if !csum {
        mkfs = mkfs.feature("^metadata_csum");
    }
    let image = Image::make(16 << 20, &mkfs).unwrap();
    let mem = Arc::new(MemDevice::load(image.path()).unwrap());
    let vol = Volume::on(mem.clone(), mem.clone(), FsOptions::default());
    let f = vol.create("f");
    for i in 0..500u64 {
        vol.fs()
            .write(&Ctx::ROOT, &f, i * 2048, &[7; 1024], false)
            .unwrap();
    }
    drop(f);
    vol.finish();
    // Nodes as they are on the volume: magic, entries, room for 84, depth.
    let node = |nr: u64, depth: u8| {
        let mut b = [0; 1024];
        mem.read(nr * 1024, &mut b).unwrap();
        b[..2] == [0x0A, 0xF3]
            && b[4..6] == [84, 0]
            && b[6] == depth
            && u16::from_le_bytes([b[2], b[3]]) > 4
    };
    let inner = (1..16 << 10).find(|nr| node(*nr, 1)).unwrap();
    let leaves = (0..5).map(|i| {
        let mut b = [0; 4];
        mem.read(inner * 1024 + 12 + i * 12 + 4, &mut b).unwrap();
        u64::from(u32::from_le_bytes(b))
    });
    let blocks: Vec<u64> = std::iter::once(inner).chain(leaves).collect();
    assert!(blocks[1..].iter().all(|nr| node(*nr, 0)), "{blocks:?}");
    (mem, blocks)
}

/// The errors of reading, writing, seeking and truncating the file.
fn errors(mem: &Arc<MemDevice>, at: u64) -> Vec<FsError> {
    let opts = FsOptions {
        on_error: Some(OnError::Continue),
        ..FsOptions::default()
    };
    let vol = Volume::on(mem.clone(), mem.clone(), opts);
    let f = vol.open("f");
    let fs = vol.fs();
    let read = fs.read(&f, at, &mut [0; 100]).map(|_| ());
    let write = fs.write(&Ctx::ROOT, &f, at, &[1], false).map(|_| ());
    let seek = fs.seek(&f, at, SeekWhat::Hole).map(|_| ());
    let cut = vol.truncate(&f, at.saturating_sub(5000));
    [read, write, seek, cut]
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

fn assert_all_name(errors: &[FsError], nr: u64) {
    assert_eq!(errors.len(), 4, "{errors:?}");
    for e in errors {
        assert_eq!(e.errno(), libc::EUCLEAN, "{e}");
        assert!(
            e.to_string().contains(&format!("block {nr}:")),
            "{e} does not name block {nr}"
        );
    }
}

#[test]
fn a_damaged_tree_block_is_named() {
    let (mem, blocks) = with_tree(true);
    // A bit of a block number in the third leaf.
    let mut b = [0; 1];
    mem.read(blocks[3] * 1024 + 12 + 8, &mut b).unwrap();
    mem.write(blocks[3] * 1024 + 12 + 8, &[b[0] ^ 1]).unwrap();
    let first = {
        let mut b = [0; 4];
        mem.read(blocks[3] * 1024 + 12, &mut b).unwrap();
        u64::from(u32::from_le_bytes(b))
    };
    assert_all_name(&errors(&mem, first * 1024), blocks[3]);
}

#[test]
fn a_tree_that_leads_back_to_itself_ends() {
    let (mem, blocks) = with_tree(false);
    let inner = blocks[0];
    let own = (inner as u32).to_le_bytes();
    mem.write(inner * 1024 + 12 + 12 + 4, &own).unwrap();
    let mut b = [0; 4];
    mem.read(inner * 1024 + 12 + 12, &mut b).unwrap();
    assert_all_name(
        &errors(&mem, u64::from(u32::from_le_bytes(b)) * 1024),
        inner,
    );
}

#[test]
fn a_file_that_claims_the_inode_table_gets_nothing() {
    let (mem, blocks) = with_tree(false);
    // The first extent of the first leaf now lies on the group descriptors.
    mem.write(blocks[1] * 1024 + 12 + 8, &2u32.to_le_bytes())
        .unwrap();
    let opts = FsOptions {
        on_error: Some(OnError::Continue),
        ..FsOptions::default()
    };
    let vol = Volume::on(mem.clone(), mem, opts);
    let f = vol.open("f");
    assert_eq!(
        vol.fs().read(&f, 0, &mut [0; 100]).unwrap_err().errno(),
        libc::EUCLEAN
    );
    assert_eq!(
        vol.fs()
            .write(&Ctx::ROOT, &f, 0, &[0; 1024], false)
            .unwrap_err()
            .errno(),
        libc::EUCLEAN
    );
}
