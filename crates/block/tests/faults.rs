//! Programmed faults have exactly the programmed effect.
use stetfs_block::{
    BlockDevice, BlockError, Fault, FaultInjector, MemDevice, Op, Read, Recorder, Write,
};

const SIZE: u64 = 1 << 20;

fn device() -> FaultInjector<MemDevice> {
    FaultInjector::new(MemDevice::from_image(&vec![1; SIZE as usize]))
}

/// The content of the device below.
fn stored(dev: &FaultInjector<MemDevice>, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    dev.inner().read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_nth_request_fails_once() {
    let dev = device();
    dev.add(Fault::fail(Op::Write, libc::EIO).after(2).once());
    let results: Vec<bool> = (0..5)
        .map(|i| dev.write(i * 512, &[9; 512]).is_ok())
        .collect();
    assert_eq!(results, [true, true, false, true, true]);
    assert_eq!(stored(&dev, 2 * 512, 512), [1; 512]);
    assert_eq!(stored(&dev, 3 * 512, 512), [9; 512]);
    assert_eq!((dev.writes_seen(), dev.hits()), (5, 1));
}

#[test]
fn from_the_nth_on_all_fail_until_cleared() {
    let dev = device();
    dev.add(Fault::fail(Op::Flush, libc::EIO).after(1));
    assert!(dev.flush().is_ok());
    for _ in 0..3 {
        assert_eq!(dev.flush().unwrap_err().errno(), libc::EIO);
    }
    dev.clear();
    assert!(dev.flush().is_ok());
    assert_eq!(dev.flushes_seen(), 5);
    assert_eq!(dev.inner().stats().flushes, 2);
}

#[test]
fn a_full_host_is_told_apart() {
    let dev = device();
    dev.add(Fault::fail(Op::Write, libc::ENOSPC));
    let error = dev.write(4096, &[1; 512]).unwrap_err();
    assert!(
        matches!(
            error,
            BlockError::NoSpace {
                offset: 4096,
                len: 512,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.errno(), libc::ENOSPC);
    dev.read(0, &mut [0; 8]).unwrap();
}

#[test]
fn only_what_touches_the_range_or_passes_the_filter() {
    let dev = device();
    dev.add(Fault::fail(Op::Read, libc::EIO).within(4096..4097));
    dev.add(Fault::fail(Op::Read, libc::EIO).when(|_, len| len == 7));
    let ok = |offset, len: usize| dev.read(offset, &mut vec![0; len]).is_ok();
    assert!(ok(0, 4096) && ok(4097, 100));
    assert!(!ok(0, 4097) && !ok(4096, 1) && !ok(4000, 1000));
    assert!(!ok(90_000, 7) && ok(90_000, 8));
    dev.write(4096, &[2]).unwrap();
}

/// One bad request fails its batch, and the others of the batch still run.
#[test]
fn a_batch_fails_for_one() {
    let dev = device();
    dev.add(Fault::fail(Op::Write, libc::EIO).within(512..1024));
    let writes = [
        Write::new(0, &[5; 512]),
        Write::new(512, &[5; 512]),
        Write::new(1024, &[5; 512]),
    ];
    assert!(matches!(
        dev.write_batch(&writes),
        Err(BlockError::Io {
            op: Op::Write,
            offset: 512,
            ..
        })
    ));
    assert_eq!(
        stored(&dev, 0, 1536),
        [[5; 512], [1; 512], [5; 512]].concat()
    );
    dev.clear();
    dev.add(Fault::fail(Op::Read, libc::EIO).within(512..1024));
    let (mut a, mut b) = ([0; 512], [0; 512]);
    assert!(
        dev.read_batch(&mut [Read::new(512, &mut a), Read::new(1024, &mut b)])
            .is_err()
    );
    assert_eq!(b, [5; 512]);
}

#[test]
fn a_torn_write_leaves_some_sectors() {
    let dev = device();
    dev.add(Fault::tear(|offset, _| offset % 1024 == 0, Some(libc::EIO)).once());
    dev.add(Fault::tear(|offset, len| (offset, len) == (8192 + 512, 88), None).once());
    assert_eq!(dev.write(0, &[7; 2048]).unwrap_err().errno(), libc::EIO);
    assert_eq!(
        stored(&dev, 0, 2048),
        [[7; 512], [1; 512], [7; 512], [1; 512]].concat()
    );
    // Without an error, and cut at the device's sectors, not the request's.
    dev.write(8192 + 100, &[7; 500]).unwrap();
    assert_eq!(stored(&dev, 8192, 512), [1; 512]);
    assert_eq!(
        stored(&dev, 8192 + 512, 89),
        [vec![7; 88], vec![1]].concat()
    );
}

#[test]
fn lost_requests_claim_success() {
    let dev = device();
    dev.add(Fault::lose(Op::Write).once());
    dev.add(Fault::lose(Op::Flush).once());
    dev.add(Fault::lose(Op::Discard).once());
    dev.write_batch_flush(&[Write::new(0, &[7; 512])]).unwrap();
    dev.discard(0..4096).unwrap();
    assert_eq!(stored(&dev, 0, 4096), [1; 4096]);
    assert_eq!(dev.inner().stats().flushes, 0);
    dev.discard(0..4096).unwrap();
    assert_eq!(stored(&dev, 0, 4096), [0; 4096]);
}

#[test]
fn bits_flip_on_the_way() {
    let dev = device();
    dev.add(Fault::flip(Op::Read, 1000, 0x80).once());
    dev.add(Fault::flip(Op::Write, 3000, 0x01));
    let mut buf = [0; 2048];
    dev.read(0, &mut buf).unwrap();
    assert_eq!(buf[1000], 0x81);
    assert_eq!(buf.iter().filter(|&&b| b != 1).count(), 1);
    dev.read(0, &mut buf).unwrap();
    assert!(buf.iter().all(|&b| b == 1));
    dev.write(2048, &[4; 2048]).unwrap();
    assert_eq!(stored(&dev, 3000, 1), [5]);
    assert_eq!(
        stored(&dev, 2048, 2048).iter().filter(|&&b| b == 4).count(),
        2047
    );
}

#[test]
fn power_goes_after_the_nth_write_and_nothing_follows() {
    for n in 0..7 {
        let dev = device();
        dev.power_off_after(n);
        // In a batch each write counts.
        let batch: Vec<_> = (0..3).map(|i| Write::new(i * 512, &[8; 512])).collect();
        let first = dev.write_batch(&batch);
        assert_eq!(first.is_ok(), n >= 3, "n {n}");
        let second = dev.write(3 * 512, &[8; 512]);
        assert_eq!(second.is_ok(), n >= 4);
        assert_eq!(dev.flush().is_ok(), n >= 5);
        let third = dev.write(4 * 512, &[8; 512]);
        assert_eq!(third.is_ok(), n >= 5);
        assert_eq!(dev.writes_seen(), 5);
        assert_eq!(dev.is_off(), n <= 5);
        let arrived = (0..5).filter(|i| stored(&dev, i * 512, 1) == [8]).count() as u64;
        assert_eq!(arrived, n.min(5));
        // Only the first ones arrived.
        assert!((0..arrived).all(|i| stored(&dev, i * 512, 512) == [8; 512]));
        if dev.is_off() {
            for refused in [dev.read(0, &mut [0]), dev.discard(0..512), dev.flush()] {
                assert_eq!(refused.unwrap_err().errno(), libc::EIO);
            }
        }
        dev.power_on();
        dev.write(0, &[6]).unwrap();
        assert_eq!(stored(&dev, 0, 1), [6]);
    }
}

#[test]
fn what_power_kept_from_the_device_is_not_recorded() {
    let dev = FaultInjector::new(Recorder::new(MemDevice::new(SIZE)));
    dev.power_off_after(1);
    dev.write(0, &[1]).unwrap();
    dev.write(1, &[1]).unwrap_err();
    dev.flush().unwrap_err();
    assert_eq!(dev.inner().take_log().len(), 2);
}
