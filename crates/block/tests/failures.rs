//! Failures of devices are counted by kind, with the first and the last.
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use stetfs_block::{
    BlockDevice, FailStop, Failed, Failures, Fault, FaultInjector, MemDevice, Op, Read, Span,
    Watched, Window, Write,
};

const SIZE: u64 = 1 << 20;

fn failed(failures: &Failures, op: Op) -> Failed {
    let mut all = failures.snapshot().into_iter();
    all.find(|(kind, _)| *kind == op).unwrap().1
}

fn offsets(failed: &Failed) -> [Option<u64>; 2] {
    [&failed.first, &failed.last].map(|one| one.as_ref().unwrap().offset)
}

#[test]
fn the_first_and_the_last_of_each_kind_are_kept() {
    let below = Arc::new(FaultInjector::new(MemDevice::new(SIZE)));
    let failures = Arc::new(Failures::default());
    let device = Watched::new(below.clone(), "disk", failures.clone());
    let mut buf = [0; 512];
    let begin = SystemTime::now();
    device.write(0, &[1; 512]).unwrap();
    assert!(failures.snapshot().iter().all(|(_, f)| f.count == 0));

    below.add(Fault::fail(Op::Read, libc::EIO).times(3));
    assert!(device.read(4096, &mut buf).is_err());
    assert!(device.read_batch(&mut [Read::new(512, &mut buf)]).is_err());
    assert!(device.read(8192, &mut buf).is_err());
    device.read(0, &mut buf).unwrap();
    let reads = failed(&failures, Op::Read);
    assert_eq!(
        (reads.count, offsets(&reads)),
        (3, [Some(4096), Some(8192)])
    );
    let first = reads.first.unwrap();
    assert_eq!(
        (first.device, first.len, first.errno),
        ("disk", 512, libc::EIO)
    );
    assert!(first.at >= begin && reads.last.unwrap().at >= first.at);

    // Of a write with a flush, the failed part counts.
    below.add(Fault::fail(Op::Write, libc::ENOSPC).once());
    let writes = [Write::new(1024, &[2; 512])];
    assert!(device.write_batch_flush(&writes).is_err());
    below.add(Fault::fail(Op::Flush, libc::EREMOTEIO).once());
    assert!(device.write_batch_flush(&writes).is_err());
    let (written, flushed) = (failed(&failures, Op::Write), failed(&failures, Op::Flush));
    assert_eq!((written.count, offsets(&written)), (1, [Some(1024); 2]));
    assert_eq!(written.last.unwrap().errno, libc::ENOSPC);
    assert_eq!((flushed.count, offsets(&flushed)), (1, [None; 2]));
    assert_eq!(flushed.last.unwrap().errno, libc::EREMOTEIO);
    below.add(Fault::fail(Op::Discard, libc::EIO).once());
    assert!(device.discard(0..4096).is_err());
    assert_eq!(failed(&failures, Op::Discard).count, 1);

    // A request that is not tried does not count as failed.
    assert!(device.read(SIZE, &mut buf).is_err());
    assert!(device.write(SIZE, &buf).is_err());
    let counts: Vec<u64> = failures.snapshot().iter().map(|(_, f)| f.count).collect();
    assert_eq!(counts, [3, 1, 1, 1, 0]);
}

#[test]
fn what_fail_stop_refuses_is_not_the_devices() {
    let below = Arc::new(FaultInjector::new(MemDevice::new(SIZE)));
    let failures = Arc::new(Failures::default());
    let device = FailStop::new(Watched::new(below.clone(), "disk", failures.clone()));
    below.add(Fault::fail(Op::Flush, libc::EIO).once());
    for _ in 0..3 {
        assert!(device.flush().is_err() && device.write(0, &[1; 512]).is_err());
    }
    assert_eq!(failed(&failures, Op::Flush).count, 1);
    assert_eq!(failed(&failures, Op::Write).count, 0);
}

#[test]
fn bytes_of_a_part_are_counted_from_its_beginning() {
    let below = Arc::new(FaultInjector::new(MemDevice::new(SIZE)));
    let span = Span {
        start: 64 << 10,
        len: 128 << 10,
    };
    let window = Window::new(below.clone(), span, Path::new("disk")).unwrap();
    let failures = Arc::new(Failures::default());
    let device = Watched::new(window, "disk", failures.clone());
    for op in [Op::Read, Op::Write, Op::Flush] {
        below.add(Fault::fail(op, libc::EIO).times(2));
    }
    let writes = [Write::new(4096, &[2; 512])];
    assert!(device.write_batch_flush(&writes).is_err());
    assert!(device.zero(8192..12288).is_err());
    assert!(device.read(512, &mut [0; 512]).is_err());
    assert!(device.flush().is_err());
    let place = |op| offsets(&failed(&failures, op));
    assert_eq!(place(Op::Write), [Some(4096), Some(8192)]);
    assert_eq!(place(Op::Read), [Some(512); 2]);
    assert_eq!(place(Op::Flush), [None; 2]);
}
