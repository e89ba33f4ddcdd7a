//! Hostile servers, in the clear and with TLS: silent, trickling, or endless, in any phase. Each
//! must give an error in bounded time.
use crate::attacker;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::attacker::{Attack, Attacker, Phase};
use stetfs_block::BlockDevice;
use stetfs_nbd::{NbdDevice, NbdOptions};

/// Time limit for the servers' answers.
const ANSWER: Duration = Duration::from_millis(400);
/// Longer than any of the calls takes.
const LONG: Duration = Duration::from_secs(20);

fn impatient() -> NbdOptions {
    NbdOptions {
        connections: 1,
        timeout: Duration::ZERO,
        answer: ANSWER,
        ..NbdOptions::default()
    }
}

/// The result of `act`, if it ends within `long`.
fn within<T: Send + 'static>(
    long: Duration,
    act: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, is_done) = channel();
    thread::spawn(move || done.send(act()));
    is_done.recv_timeout(long).ok()
}

/// Opens, uses and closes the export of a server.
fn use_all(address: &str, options: NbdOptions) -> stetfs_block::Result<()> {
    let device = NbdDevice::open(address.as_ref(), options)?;
    device.read(0, &mut [0; 4096])?;
    device.write(0, &vec![1; 8 << 20])?;
    device.flush()
}

#[test]
fn silent_and_trickling_servers_are_bounded_in_each_phase() {
    use Phase::*;
    let pki = attacker::Pki::new();
    for encrypted in [false, true] {
        for attack in [Attack::Silent, Attack::Trickle] {
            for phase in [Accept, Greeting, Tls, Structured, Go, Read, Write, Flush] {
                let is_played = match phase {
                    Accept => attack == Attack::Silent,
                    Tls => encrypted,
                    _ => true,
                };
                if !is_played {
                    continue;
                }
                let server = Attacker::new(encrypted.then_some(&pki), phase, attack);
                let address = server.address();
                let begun = Instant::now();
                let done = within(LONG, move || use_all(&address, impatient()));
                let what = format!("{phase:?} {attack:?} encrypted={encrypted}");
                let error = done
                    .unwrap_or_else(|| panic!("{what}: for ever"))
                    .unwrap_err();
                assert!(begun.elapsed() < Duration::from_secs(5), "{what}");
                let (said, in_time) = (error.to_string(), "in time|answer within|no connections");
                let is_said = in_time.split('|').any(|part| said.contains(part));
                assert!(is_said, "{what}: {said}");
            }
        }
    }
}

/// The server may still carry out its requests, so it gets no further ones.
#[test]
fn a_server_that_did_not_answer_is_asked_nothing_more() {
    let pki = attacker::Pki::new();
    for pki in [None, Some(&pki)] {
        let server = Attacker::new(pki, Phase::Write, Attack::Silent);
        let options = NbdOptions {
            timeout: Duration::from_secs(60),
            ..impatient()
        };
        let device = NbdDevice::open(server.address().as_ref(), options).unwrap();
        let device = within(LONG, move || {
            let error = device.write(0, &[1; 4096]).unwrap_err().to_string();
            assert!(error.contains("nbd_answer="), "{error}");
            device
        });
        let device = device.expect("it is waited for");
        let begun = Instant::now();
        for refused in [
            device.write(0, &[2; 4096]),
            device.flush(),
            device.read(0, &mut [0; 512]),
        ] {
            assert!(refused.unwrap_err().to_string().contains("nbd_answer="));
        }
        assert!(begun.elapsed() < ANSWER);
        assert_eq!((server.connections(), server.writes()), (1, 1));
        // Closing does not wait for the server.
        drop(device);
        assert!(begun.elapsed() < LONG);
    }
}

/// The test's own canary: without a time limit a silent server is waited for.
#[test]
fn without_a_limit_a_silent_server_is_waited_for() {
    let server = Attacker::new(None, Phase::Read, Attack::Silent);
    let (address, options) = (
        server.address(),
        NbdOptions {
            answer: Duration::MAX,
            ..impatient()
        },
    );
    assert!(within(ANSWER * 4, move || use_all(&address, options)).is_none());
}

#[test]
fn leaving_a_silent_server_takes_no_time() {
    let pki = attacker::Pki::new();
    for pki in [None, Some(&pki)] {
        let server = Attacker::new(pki, Phase::Disconnect, Attack::Silent);
        let device = NbdDevice::open(server.address().as_ref(), impatient()).unwrap();
        device.flush().unwrap();
        assert!(within(LONG, move || drop(device)).is_some());
    }
}

#[test]
fn replies_without_end_are_no_replies() {
    let pki = attacker::Pki::new();
    for pki in [None, Some(&pki)] {
        for (phase, said) in [
            (Phase::Structured, "its reply to an option is invalid"),
            (Phase::Go, "describes the export too often"),
            (Phase::Read, "too many errors"),
        ] {
            let server = Attacker::new(pki, phase, Attack::Flood);
            let address = server.address();
            // The time limit is not the reason for the end.
            let options = NbdOptions {
                answer: LONG,
                ..impatient()
            };
            let done = within(LONG / 2, move || use_all(&address, options));
            let error = done
                .unwrap_or_else(|| panic!("{phase:?}: for ever"))
                .unwrap_err();
            assert!(error.to_string().contains(said), "{phase:?}: {error}");
        }
    }
}

/// The state can be read without waiting for the server.
#[test]
fn a_server_that_is_looked_for_holds_nobody_off() {
    let server = Attacker::new(None, Phase::Disconnect, Attack::Silent);
    let options = NbdOptions {
        timeout: Duration::from_secs(3),
        ..impatient()
    };
    let device = NbdDevice::open(server.address().as_ref(), options).unwrap();
    server.turn(Phase::Greeting);
    thread::scope(|scope| {
        let device = &device;
        let flush = scope.spawn(move || device.flush());
        thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        assert_eq!(device.state().connections, 0);
        assert!(begun.elapsed() < Duration::from_millis(100));
        assert!(!flush.is_finished());
        assert!(flush.join().unwrap().is_err());
    });
}

#[test]
fn what_a_server_says_steers_no_terminal() {
    let pki = attacker::Pki::new();
    for pki in [None, Some(&pki)] {
        let server = Attacker::new(pki, Phase::Disconnect, Attack::Refuse);
        let error = use_all(&server.address(), impatient())
            .unwrap_err()
            .to_string();
        let shown = r"let this client in (no\u{1b}]0;x\u{7}\r\n\u{9b}2J\u{202e}gpj";
        assert!(error.contains(shown), "{error}");
        assert!(!error.chars().any(stetfs_block::is_unseen), "{error}");
        assert!(error.len() < 3000, "{}", error.len());
    }
}
