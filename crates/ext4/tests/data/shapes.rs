//! Files of unusual shape: fragmented, huge, and on full volumes.

use stetfs_ext4::*;

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

const SMALL: Shape = Shape {
    block_size: 1024,
    mib: 64,
    extents: true,
    cluster: 1,
};

const CLUSTERS: Shape = Shape {
    cluster: 8,
    ..SMALL
};
const BLOCK_MAPPED: Shape = Shape {
    extents: false,
    ..SMALL
};

/// A file with so many extents that its tree is deep and its removal needs many transactions.
fn broken_up(shape: Shape, data: DataMode) {
    let pieces = 9000u64;
    let mut vol = Volume::new(shape, data);
    let f = vol.create("pieces");
    for i in 0..pieces {
        let block = [i as u8 | 1; 1024];
        assert_eq!(
            vol.fs()
                .write(&Ctx::ROOT, &f, i * 2048, &block, false)
                .unwrap(),
            1024
        );
    }
    drop(f);
    vol.reopen();
    let f = vol.open("pieces");
    let mut buf = [0; 2048];
    for i in (0..pieces).step_by(97) {
        let n = vol.fs().read(&f, i * 2048, &mut buf).unwrap();
        assert!(
            n >= 1024 && buf[..1024].iter().all(|b| *b == i as u8 | 1),
            "piece {i}"
        );
        assert!(buf[1024..n].iter().all(|b| *b == 0), "hole {i}");
    }
    let free = vol.fs().statfs().bfree;
    // Half of it in the middle, then all.
    vol.fs()
        .fallocate(
            &Ctx::ROOT,
            &f,
            FallocateMode::PunchHole,
            2_000_000,
            8_000_000,
        )
        .unwrap();
    assert_eq!(
        vol.fs().seek(&f, 2_000_000, SeekWhat::Data).unwrap(),
        10_000_384
    );
    vol.truncate(&f, 0).unwrap();
    vol.fsync(&f, false).unwrap();
    let attr = vol.fs().getattr(f.ino()).unwrap();
    assert_eq!((attr.size, attr.blocks), (0, 0));
    assert!(vol.fs().statfs().bfree >= free + pieces);
    drop(f);
    vol.finish();
}

#[test]
fn a_file_in_many_pieces_ordered() {
    broken_up(SMALL, DataMode::Ordered);
}

#[test]
fn a_file_in_many_pieces_journaled() {
    broken_up(SMALL, DataMode::Journal);
    broken_up(SMALL, DataMode::Overwrites);
}

/// cluster.C3.
#[test]
fn a_file_in_clusters_in_many_pieces() {
    broken_up(CLUSTERS, DataMode::Ordered);
    broken_up(CLUSTERS, DataMode::Journal);
}

#[test]
fn a_block_mapped_file_in_many_pieces() {
    broken_up(BLOCK_MAPPED, DataMode::Ordered);
    broken_up(BLOCK_MAPPED, DataMode::Journal);
    broken_up(BLOCK_MAPPED, DataMode::Overwrites);
}

#[test]
fn a_full_volume_gives_short_writes_then_enospc_and_space_comes_back() {
    for (shape, data) in [
        (SMALL, DataMode::Ordered),
        (SMALL, DataMode::Journal),
        (SMALL, DataMode::Overwrites),
        (BLOCK_MAPPED, DataMode::Ordered),
        (CLUSTERS, DataMode::Ordered),
        (CLUSTERS, DataMode::Journal),
    ] {
        let vol = Volume::new(shape, data);
        let f = vol.create("big");
        let chunk = vec![7u8; 1 << 20];
        let mut size = 0;
        let error = loop {
            match vol.fs().write(&Ctx::ROOT, &f, size, &chunk, false) {
                Ok(n) => size += n as u64,
                Err(e) => break e,
            }
        };
        assert_eq!(error.errno(), libc::ENOSPC);
        assert_eq!(
            vol.size(&f),
            size,
            "what was written counts, and nothing else"
        );
        assert!(size > 40 << 20);
        // The kernel keeps a few blocks for itself; the rest can be used.
        let free = vol.fs().statfs();
        assert!(free.bfree < 5000, "{free:?}");
        // Again and again: freed space can be used again at once.
        for round in 0..3 {
            vol.truncate(&f, size / 2).unwrap();
            let mut at = size / 2;
            while at < size {
                let want = (chunk.len() as u64).min(size - at) as usize;
                at += vol
                    .fs()
                    .write(&Ctx::ROOT, &f, at, &chunk[..want], false)
                    .unwrap_or_else(|e| panic!("{round}: {e}")) as u64;
            }
        }
        drop(f);
        vol.finish();
    }
}

#[test]
fn the_reserve_is_for_root() {
    let vol = Volume::new(SMALL, DataMode::Ordered);
    let f = vol.create("f");
    let user = Ctx {
        uid: 1000,
        gid: 1000,
        pid: 1,
    };
    let chunk = vec![1u8; 1 << 20];
    let mut at = 0;
    while let Ok(n) = vol.fs().write(&user, &f, at, &chunk, false) {
        at += n as u64;
    }
    assert_eq!(
        vol.fs()
            .write(&user, &f, at, &chunk, false)
            .unwrap_err()
            .errno(),
        libc::ENOSPC
    );
    assert!(vol.fs().write(&Ctx::ROOT, &f, at, &chunk, false).unwrap() > 0);
    drop(f);
    vol.finish();
}

#[test]
fn the_largest_file() {
    largest_file(SMALL);
}

#[test]
fn the_largest_block_mapped_file() {
    largest_file(BLOCK_MAPPED);
}

fn largest_file(shape: Shape) {
    let vol = Volume::new(shape, DataMode::Ordered);
    let f = vol.create("f");
    let most = vol.fs().max_file_size();
    assert_eq!(
        vol.fs()
            .write(&Ctx::ROOT, &f, most - 10, &[5; 100], false)
            .unwrap(),
        10
    );
    assert_eq!(vol.size(&f), most);
    assert_eq!(
        vol.fs()
            .write(&Ctx::ROOT, &f, most, &[5], false)
            .unwrap_err()
            .errno(),
        libc::EFBIG
    );
    assert_eq!(vol.truncate(&f, most + 1).unwrap_err().errno(), libc::EFBIG);
    let allocate = FallocateMode::Allocate { keep_size: false };
    assert_eq!(
        vol.fs()
            .fallocate(&Ctx::ROOT, &f, allocate, most, 1)
            .unwrap_err()
            .errno(),
        libc::EFBIG
    );
    assert_eq!(
        vol.fs()
            .fallocate(&Ctx::ROOT, &f, allocate, 0, 0)
            .unwrap_err()
            .errno(),
        libc::EINVAL
    );
    assert_eq!(
        vol.fs()
            .fallocate(&Ctx::ROOT, &f, allocate, 0, most - 1)
            .unwrap_err()
            .errno(),
        if shape.extents {
            libc::ENOSPC
        } else {
            libc::EOPNOTSUPP
        }
    );
    let mut buf = [1; 20];
    assert_eq!(vol.fs().read(&f, most - 20, &mut buf).unwrap(), 20);
    assert_eq!(
        (buf[..10].to_vec(), buf[10..].to_vec()),
        (vec![0; 10], vec![5; 10])
    );
    assert_eq!(
        vol.fs().seek(&f, 5000, SeekWhat::Data).unwrap(),
        (most - 1) / 1024 * 1024
    );
    drop(f);
    vol.finish();
}
