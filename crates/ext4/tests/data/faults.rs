//! Devices that fail.

use std::sync::Arc;

use stetfs_block::{Fault, FaultInjector, Op};
use stetfs_ext4::*;

use crate::volume::{ROOT, Shape, Volume};

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 24,
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
fn a_write_that_cannot_go_home_fails_the_sync_of_every_opener() {
    let (vol, faults) = with_faults();
    let a = vol.create("f");
    vol.fs().write(&ROOT, &a, 0, &[1; 8192], false).unwrap();
    vol.fsync(&a, false).unwrap();
    let b = vol.open("f");
    let other = vol.create("other");
    vol.fs().write(&ROOT, &a, 0, &[2; 4096], false).unwrap();
    faults.add(Fault::fail(Op::Write, libc::EIO));
    assert_eq!(
        vol.fsync(&b, true).unwrap_err().errno(),
        libc::EIO,
        "the first to ask"
    );
    assert_eq!(
        vol.fsync(&a, true).unwrap_err().errno(),
        libc::EIO,
        "the other opener, later"
    );
    faults.clear();
    assert!(
        vol.fsync(&other, true).is_err(),
        "the volume is read-only: nothing is promised any more"
    );
    assert_eq!(
        vol.fs()
            .write(&ROOT, &other, 0, b"x", false)
            .unwrap_err()
            .errno(),
        libc::EROFS
    );
    // Reading goes on.
    let mut buf = [0; 10];
    assert_eq!(vol.fs().read(&b, 4096, &mut buf).unwrap(), 10);
    assert_eq!(buf, [1; 10]);
}

#[test]
fn a_read_that_fails_says_so_and_later_ones_succeed() {
    let (mut vol, faults) = with_faults();
    for large in [false, true] {
        let len = if large { 1 << 20 } else { 3000 };
        let f = vol.create(if large { "large" } else { "small" });
        vol.fs().write(&ROOT, &f, 0, &vec![9; len], false).unwrap();
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
        vol.fs().write(&ROOT, &f, 5, b"after", false).unwrap();
        drop(f);
    }
    vol.finish();
}
