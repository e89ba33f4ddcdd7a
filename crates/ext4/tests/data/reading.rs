//! The requests that reads make to the device.

use stetfs_block::BlockDevice;
use stetfs_ext4::*;

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 64,
    extents: true,
    cluster: 1,
};
const LEN: usize = 8 << 20;

/// A volume with a file of [`LEN`] bytes, none of it cached.
fn cold() -> (Volume, OpenRef, Vec<u8>) {
    let opts = FsOptions {
        cache_bytes: 16 << 20,
        ..FsOptions::default()
    };
    let mut vol = Volume::with(SHAPE, opts, |d| d);
    let f = vol.create("f");
    let content: Vec<u8> = (0..LEN)
        .map(|i| (i / 4096 % 251) as u8 ^ (i % 256) as u8)
        .collect();
    vol.fs().write(&Ctx::ROOT, &f, 0, &content, false).unwrap();
    drop(f);
    vol.reopen();
    let f = vol.open("f");
    // Loads the metadata of the file.
    vol.fs().read(&f, 0, &mut [0; 1]).unwrap();
    (vol, f, content)
}

/// The number of requests and bytes that the device reads during `f`.
fn reads(vol: &Volume, f: impl FnOnce()) -> (u64, u64) {
    let before = vol.mem().stats();
    f();
    let after = vol.mem().stats();
    (
        after.reads - before.reads,
        after.bytes_read - before.bytes_read,
    )
}

#[test]
fn small_reads_in_order_are_read_ahead() {
    let (vol, f, content) = cold();
    let (requests, bytes) = reads(&vol, || {
        let mut buf = vec![0; 4096];
        for (i, want) in content.chunks(4096).enumerate() {
            assert_eq!(vol.fs().read(&f, i as u64 * 4096, &mut buf).unwrap(), 4096);
            assert!(buf == want, "block {i}");
        }
    });
    assert!(
        requests < 60,
        "{requests} requests for {} blocks",
        LEN / 4096
    );
    assert!(bytes < LEN as u64 + (64 << 10), "{bytes} bytes read");
    drop(f);
    vol.finish();
}

#[test]
fn small_reads_here_and_there_read_no_more_than_they_need() {
    let (vol, f, content) = cold();
    let mut rng = fastrand::Rng::with_seed(1);
    let count = 200;
    let (_, bytes) = reads(&vol, || {
        let mut buf = vec![0; 4096];
        for _ in 0..count {
            let at = rng.usize(..LEN / 8192) * 8192;
            vol.fs().read(&f, at as u64, &mut buf).unwrap();
            assert!(buf == content[at..at + 4096]);
        }
    });
    assert!(
        bytes <= count * 2 * 4096,
        "{bytes} bytes read for {count} blocks"
    );
    drop(f);
    vol.finish();
}

/// data.D1.
#[test]
fn large_reads_leave_the_cache_alone_and_see_what_is_newer_there() {
    let (vol, f, mut content) = cold();
    let cached = |vol: &Volume| vol.fs().stats().cache.blocks;
    let before = cached(&vol);
    // Dirty, only in the cache.
    vol.fs()
        .write(&Ctx::ROOT, &f, 1_500_000, &[0xAB; 10_000], false)
        .unwrap();
    content[1_500_000..1_510_000].fill(0xAB);
    let mut buf = vec![0; 1 << 20];
    let (requests, bytes) = reads(&vol, || {
        for at in (0..LEN).step_by(buf.len()) {
            assert_eq!(vol.fs().read(&f, at as u64, &mut buf).unwrap(), buf.len());
            assert!(buf == content[at..at + buf.len()], "from {at}");
        }
    });
    assert!(requests < 30, "{requests} requests");
    assert!(bytes <= LEN as u64, "{bytes} bytes read");
    assert!(
        cached(&vol) < before + 40,
        "{} blocks cached, {before} before",
        cached(&vol)
    );
    // The same at unaligned places.
    for (at, len) in [
        (1_499_999, 300_000),
        (4095, 262_145),
        (LEN - 300_001, 300_001),
    ] {
        assert_eq!(vol.fs().read(&f, at as u64, &mut buf[..len]).unwrap(), len);
        assert!(buf[..len] == content[at..at + len], "{len} from {at}");
    }
    drop(f);
    vol.finish();
}
