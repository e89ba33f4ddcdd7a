//! Servers that are lost: acknowledged data stands, flushed data is durable, and a changed export
//! stops everything.
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Server;
use proptest::prelude::*;
use stetfs_block::{BlockDevice, BlockError, Write, suite};
use stetfs_nbd::NbdOptions;
use stetfs_testkit::nbd::{ALL, FLUSH, FUA, HAS_FLAGS, How, MULTI_CONN, READ_ONLY};

const SIZE: usize = 256 << 10;

fn impatient() -> NbdOptions {
    NbdOptions {
        timeout: Duration::ZERO,
        ..NbdOptions::default()
    }
}

#[test]
fn a_device_as_any() {
    for (is_structured, blocks, flags) in [
        (true, (1, 1 << 20), ALL),
        (false, (1, 4096), ALL),
        (true, (512, 8192), HAS_FLAGS | FLUSH),
        (false, (4096, 1 << 20), ALL & !FUA),
        (true, (1, 32 << 20), ALL & !MULTI_CONN),
    ] {
        let how = How {
            flags,
            is_structured,
            blocks,
            ..How::default()
        };
        let server = Server::new(SIZE, how, 1);
        let device = server.open(NbdOptions::default());
        suite::check_all(&device, 7);
        let connections = if flags & MULTI_CONN == 0 { 1 } else { 4 };
        assert_eq!(device.state().connections, connections);
        assert_eq!(server.deaths(), 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        at: usize,
        len: usize,
        fua: bool,
    },
    Zero {
        at: usize,
        len: usize,
    },
    Discard {
        at: usize,
        len: usize,
    },
    Flush,
    Read,
    /// The server dies at the n-th request from now; 0 is now.
    Die(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..60usize, 1..5usize).prop_map(|(at, len)| (at * 700, len * 700));
    prop_oneof![
        6 => (range(), any::<bool>()).prop_map(|((at, len), fua)| Step::Write { at, len, fua }),
        1 => range().prop_map(|(at, len)| Step::Zero { at, len }),
        1 => range().prop_map(|(at, len)| Step::Discard { at, len }),
        2 => Just(Step::Flush),
        1 => Just(Step::Read),
        3 => (0..6u64).prop_map(Step::Die),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Of each byte the current and the durable value, where known. A value is known to be durable
    /// after a flush or a FUA write, until the next write.
    #[test]
    fn nothing_acknowledged_is_lost(
        steps in prop::collection::vec(step(), 1..60),
        seed in any::<u64>(),
        flags in prop_oneof![Just(ALL), Just(ALL & !MULTI_CONN), Just(ALL & !FUA)],
        block in prop_oneof![Just(1u32), Just(512)],
    ) {
        let how = How { flags, blocks: (block, 1 << 16), ..How::default() };
        let server = Server::new(64 << 10, how, seed);
        let device = server.open(NbdOptions::default());
        let mut now = vec![Some(0u8); 64 << 10];
        let mut durable = now.clone();
        let check = |found: &[u8], expected: &[Option<u8>]| {
            found.iter().zip(expected).position(|(found, e)| e.is_some_and(|e| e != *found))
        };
        for (n, step) in steps.iter().enumerate() {
            match *step {
                Step::Write { at, len, fua } => {
                    let data = vec![n as u8 + 1; len];
                    let write = Write { fua, ..Write::new(at as u64, &data) };
                    device.write_batch(&[write]).unwrap();
                    now[at..at + len].fill(Some(n as u8 + 1));
                    durable[at..at + len].fill(fua.then_some(n as u8 + 1));
                }
                Step::Zero { at, len } => {
                    device.zero(at as u64..(at + len) as u64).unwrap();
                    now[at..at + len].fill(Some(0));
                    durable[at..at + len].fill(None);
                }
                Step::Discard { at, len } => {
                    device.discard(at as u64..(at + len) as u64).unwrap();
                    // Both the current and the durable content are unknown now.
                    now[at..at + len].fill(None);
                    durable[at..at + len].fill(None);
                }
                Step::Flush => {
                    device.flush().unwrap();
                    durable = now.clone();
                }
                Step::Read => {
                    let mut found = vec![0; 64 << 10];
                    device.read(0, &mut found).unwrap();
                    prop_assert_eq!(check(&found, &now), None, "step {}", n);
                }
                Step::Die(0) => server.die(),
                Step::Die(requests) => server.die_in(requests),
            }
            prop_assert_eq!(check(&server.durable(), &durable), None, "durable, step {}", n);
        }
        device.flush().unwrap();
        prop_assert_eq!(check(&server.durable(), &now), None, "at the end");
    }
}

#[test]
fn many_threads_and_a_server_that_dies_again_and_again() {
    let server = Server::new(1 << 20, How::default(), 3);
    let device = server.open(NbdOptions::default());
    thread::scope(|scope| {
        let (device, server) = (&device, &server);
        for n in 0..8u64 {
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(n);
                let base = n * (128 << 10);
                let mut mine = vec![0u8; 128 << 10];
                for round in 0..150u64 {
                    let at = rng.usize(..31) * 4096;
                    let data = vec![(round % 255) as u8 + 1; rng.usize(1..4096)];
                    device.write(base + at as u64, &data).unwrap();
                    mine[at..at + data.len()].copy_from_slice(&data);
                    if round % 10 == 9 {
                        device.flush().unwrap();
                        assert!(server.durable()[base as usize..][..mine.len()] == mine);
                    }
                    if round % 7 == 0 {
                        server.die_in(rng.u64(1..40));
                    }
                }
                let mut found = vec![0; mine.len()];
                device.read(base, &mut found).unwrap();
                assert!(found == mine, "thread {n}");
            });
        }
    });
    assert!(server.deaths() > 20, "{}", server.deaths());
    assert!(device.state().losses > 5, "{:?}", device.state());
    assert!(device.state().bytes_written_again > 0);
}

#[test]
fn what_is_not_flushed_is_bounded() {
    let server = Server::new(8 << 20, How::default(), 1);
    let device = server.open(NbdOptions::default());
    let data = vec![1; 1 << 20];
    for n in 0..100u64 {
        // Each write replaces the kept content of its range, so it adds nothing to the unflushed
        // data.
        device.write((n % 8) << 20, &data).unwrap();
    }
    assert_eq!(server.disk().flushes.load(SeqCst), 0, "8 MiB are no reason");
    assert_eq!(device.state().bytes_unflushed, 8 << 20);
    let server = Server::new(80 << 20, How::default(), 1);
    let device = server.open(NbdOptions::default());
    for n in 0..80u64 {
        device.write(n << 20, &data).unwrap();
    }
    assert!(server.disk().flushes.load(SeqCst) > 0);
    assert!(device.state().bytes_unflushed < 66 << 20);
}

#[test]
fn another_volume_that_comes_back_is_not_touched() {
    let stopped = |change: &dyn Fn(&Server), why: &str| {
        let server = Server::new(SIZE, How::default(), 1);
        let device = server.open(NbdOptions::default());
        device.write(8192, &[1; 4096]).unwrap();
        device.flush().unwrap();
        device.write(0, &[2; 512]).unwrap();
        server.die();
        server.overwrite(0, &[0; 512]);
        change(&server);
        let error = device.read(0, &mut [0; 512]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        // Permanently.
        for error in [
            device.write(0, &[3; 512]),
            device.flush(),
            device.read(0, &mut [0; 1]),
        ] {
            assert!(error.unwrap_err().to_string().contains(why));
        }
        assert_eq!(server.durable()[..512], [0; 512]);
    };
    let other = |server: &Server| server.overwrite(9000, &[7]);
    stopped(
        &other,
        "different data at byte 8192, which had been flushed",
    );
    let larger = |server: &Server| server.behave(|how| how.size = Some(2 << 20));
    stopped(&larger, "an export of 2097152 bytes; it had 262144");
    let read_only = |server: &Server| server.behave(|how| how.flags |= READ_ONLY);
    stopped(&read_only, "flags or request limits");
}

#[test]
fn a_volume_that_another_machine_took_is_not_touched() {
    let server = Server::new(SIZE, How::default(), 1);
    let device = server.open(NbdOptions::default());
    let ours = |n: u8| Write::new(4096, &[[1; 1024], [2; 1024], [3; 1024]][n as usize]).fua();
    device.write_batch(&[ours(0)]).unwrap();
    device.guard(4096..8192).unwrap();
    for n in [1, 2] {
        device.write(20_000, &[n; 100]).unwrap();
        server.die();
        device.write_batch(&[ours(n)]).unwrap();
    }
    device.write(20_000, &[9; 100]).unwrap();
    server.die();
    server.overwrite(20_000, &[0; 100]);
    // The other machine writes a content that was this one's earlier.
    server.overwrite(4096, &[2; 1024]);
    let error = device.flush().unwrap_err().to_string();
    assert!(
        error.contains("another machine has taken the volume"),
        "{error}"
    );
    assert_eq!(server.durable()[20_000..20_100], [0; 100]);
}

#[test]
fn a_server_that_stays_away_is_given_up_and_taken_back() {
    let server = Server::new(SIZE, How::default(), 1);
    let options = NbdOptions {
        timeout: Duration::from_millis(300),
        ..NbdOptions::default()
    };
    let device = server.open(options);
    device.write(0, &[1; 512]).unwrap();
    server.set_up(false);
    server.die();
    let begun = Instant::now();
    let error = device.write(512, &[2; 512]).unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(error.to_string().contains("is lost"), "{error}");
    assert_eq!(error.errno(), 5);
    // The server may have lost its acknowledged data by now.
    assert!(device.write(0, &[3; 512]).is_err());
    server.overwrite(0, &[9; 512]);
    // A further request at once does not wait again.
    let begun = Instant::now();
    assert!(device.flush().is_err());
    assert!(begun.elapsed() < Duration::from_millis(200));
    server.set_up(true);
    thread::sleep(Duration::from_millis(1100));
    let mut found = [0; 512];
    device.read(0, &mut found).unwrap();
    assert!(found == [1; 512] || found == [3; 512], "{}", found[0]);
}

#[test]
fn one_that_never_answers_a_request_is_not_asked_for_ever() {
    for nonsense in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        // A reply without a request, as a simple and as a structured one.
        b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\x42\x42",
        b"\x66\x8e\x33\xef\0\x01\0\0\0\0\0\0\0\0\x42\x42\0\0\0\0",
        // Bytes outside the request, a hole too large, a read that ends early.
        b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x01\0\0\x10\x08\0\0\0\0\0\0\xff\xff",
        b"\x66\x8e\x33\xef\0\x01\0\x02\0\0\0\0\0\0\0\x01\0\0\0\x0c\0\0\0\0\0\0\0\0\xff\xff\xff\xff",
        b"\x66\x8e\x33\xef\0\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\0",
        // A chunk of four gigabytes, and an error without a number.
        b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x01\xff\xff\xff\xff",
        b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0",
        // Chunks that bring a reply no nearer to its end: none that is not the last, no bytes, an
        // empty hole.
        b"\x66\x8e\x33\xef\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0",
        b"\x66\x8e\x33\xef\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x08\0\0\0\0\0\0\0\0",
        b"\x66\x8e\x33\xef\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        let server = Server::new(SIZE, How::default(), 1);
        server.behave(|how| how.nonsense = Some(nonsense));
        let device = server.open(NbdOptions {
            connections: 1,
            ..impatient()
        });
        device.read(0, &mut [0; 512]).unwrap_err();
        assert!(device.state().losses >= 7, "{:?}", device.state());
        server.behave(|how| how.nonsense = None);
        device.read(0, &mut [0; 512]).unwrap();
    }
}

#[test]
fn what_the_server_refuses_is_an_error_and_no_loss() {
    let server = Server::new(SIZE, How::default(), 1);
    let device = server.open(NbdOptions::default());
    server.disk().write_errno.store(28, SeqCst);
    let error = device.write(0, &[1; 512]).unwrap_err();
    assert!(matches!(error, BlockError::NoSpace { .. }), "{error}");
    server.disk().write_errno.store(5, SeqCst);
    assert_eq!(device.write(0, &[1; 512]).unwrap_err().errno(), 5);
    server.disk().write_errno.store(0, SeqCst);
    assert_eq!(device.state().bytes_unflushed, 0);
    assert_eq!(device.state().losses, 0);
    device.write(0, &[1; 512]).unwrap();
}

/// More than 64 MiB are not flushed, so a write flushes first. That flush fails once, and the
/// server has lost its acknowledged data: no write and no flush is sent from then on, though the
/// server would accept both. (block.F4)
#[test]
fn a_flush_that_fails_inside_a_write_is_no_write_that_fails() {
    let chunk = vec![1; 1 << 20];
    let server = Server::new(80 << 20, How::default(), 1);
    let device = server.open(NbdOptions::default());
    for n in 0..65 {
        device.write(n << 20, &chunk).unwrap();
    }
    server.disk().flush_errno.store(5, SeqCst);
    let error = device.write(70 << 20, &chunk).unwrap_err();
    assert!(error.is_of_flush(), "{error}");
    server.disk().flush_errno.store(0, SeqCst);
    let zeroes = device.zero(0..4096);
    let partial = device.write(70 << 20 | 5, &[1; 9]);
    for result in [
        device.write(70 << 20, &chunk),
        partial,
        zeroes,
        device.flush(),
    ] {
        assert_eq!(result.unwrap_err().errno(), 5);
    }
    assert!(device.discard(0..4096).is_err());
    let mut bytes = [1; 512];
    device.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 512], "the server forgot it");
}

#[test]
fn who_may_open_it() {
    let server = Server::new(SIZE, How::default(), 1);
    let writer = server.open(NbdOptions::default());
    let read_only = NbdOptions {
        read_only: true,
        ..impatient()
    };
    for options in [NbdOptions::default(), read_only] {
        let error = server.try_open(options).unwrap_err();
        assert!(matches!(error, BlockError::Locked { .. }), "{error}");
    }
    drop(writer);
    let readers = [server.open(read_only), server.open(read_only)];
    assert!(readers[0].write(0, &[0; 512]).is_err());
    // An export is not writable if the server cannot flush, or is read-only.
    server.behave(|how| how.flags = 1);
    let error = server.try_open(impatient()).unwrap_err().to_string();
    assert!(error.contains("the export has no flush"), "{error}");
    server.behave(|how| how.flags = ALL | READ_ONLY);
    assert_eq!(server.try_open(impatient()).unwrap_err().errno(), 30);
}
