//! Simulations with the costs of the table: what they are is known to the nanosecond.

use std::sync::Arc;
use std::time::Duration;

use super::atomic::{AtomicU64, Ordering};
use super::control::{now, pin, this_core, work};
use super::*;

const COSTS: Costs = Costs::TABLE;

fn simulated<T: Send + 'static>(cores: usize, first: impl FnOnce() -> T + Send + 'static) -> T {
    match run(Settings::table(cores, 1), first) {
        Ok(outcome) => outcome.result,
        Err(e) => panic!("{e}"),
    }
}

fn at() -> u64 {
    now().unwrap_or(0)
}

#[test]
fn threads_on_cores_of_their_own_work_at_once_and_on_one_core_in_turn() {
    let all = |cores| {
        simulated(cores, || {
            let begin = at();
            let workers: Vec<_> = (0..4).map(|_| thread::spawn(|| work(1_000_000))).collect();
            for worker in workers {
                assert!(worker.join().is_ok());
            }
            at() - begin
        })
    };
    let (apart, together) = (all(5), all(1));
    assert!((1_000_000..1_100_000).contains(&apart), "{apart}");
    assert!((4_000_000..4_100_000).contains(&together), "{together}");
}

#[test]
fn a_lock_passes_to_the_waiter_at_its_release_and_after_a_wake() {
    let (released, got) = simulated(2, || {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock();
        let other = {
            let lock = lock.clone();
            thread::spawn(move || {
                let _held = lock.lock();
                at()
            })
        };
        work(100_000);
        drop(held);
        let released = at();
        (released, other.join().unwrap_or(0))
    });
    // The releaser pays for the wake, the waiter waits from the release until it runs.
    let release = released - COSTS.wake;
    assert_eq!(got, release + COSTS.wake_latency);
}

#[test]
fn a_waiter_that_still_spins_needs_no_wake() {
    let (released, got) = simulated(2, || {
        let lock = Arc::new(Mutex::new(()));
        let other = {
            let lock = lock.clone();
            thread::spawn(move || {
                work(1_000);
                let _held = lock.lock();
                at()
            })
        };
        let held = lock.lock();
        work(2_000);
        drop(held);
        (at(), other.join().unwrap_or(0))
    });
    assert_eq!(got, released + COSTS.transfer);
}

#[test]
fn readers_share_and_a_writer_waits_for_them() {
    let (readers, writer) = simulated(4, || {
        let lock = Arc::new(RwLock::new(0));
        let mut readers = Vec::new();
        for _ in 0..2 {
            let lock = lock.clone();
            readers.push(thread::spawn(move || {
                let seen = lock.read();
                work(200_000);
                assert_eq!(*seen, 0);
                at()
            }));
        }
        let writer = thread::spawn(move || {
            work(50_000);
            *lock.write() += 1;
            at()
        });
        let readers: Vec<u64> = readers.into_iter().filter_map(|r| r.join().ok()).collect();
        (readers, writer.join().unwrap_or(0))
    });
    assert_eq!(readers.len(), 2);
    assert!(readers[0].abs_diff(readers[1]) < 20_000, "{readers:?}");
    assert!(
        readers.iter().all(|read| *read < writer),
        "{readers:?} {writer}"
    );
}

#[test]
fn a_reader_that_was_woken_does_not_wait_for_the_writer_behind_it() {
    let order = simulated(4, || {
        let lock = Arc::new(RwLock::new(Vec::new()));
        let order = Arc::new(Mutex::new(Vec::new()));
        let held = lock.write();
        let spawn = |after: u64, write: bool| {
            let (lock, order) = (lock.clone(), order.clone());
            thread::spawn(move || {
                thread::sleep(Duration::from_micros(after));
                let note = |what| order.lock().push(what);
                if write {
                    let mut held = lock.write();
                    held.push(());
                    note("writer");
                } else {
                    let _held = lock.read();
                    note("reader");
                }
            })
        };
        let all = [spawn(10, false), spawn(20, true)];
        work(100_000);
        drop(held);
        for one in all {
            assert!(one.join().is_ok());
        }
        let order = order.lock();
        order.clone()
    });
    assert_eq!(order, ["reader", "writer"]);
}

#[test]
fn a_simulation_without_an_end_is_an_error_that_names_who_waits() {
    let settings = Settings {
        longest: 1_000_000_000,
        ..Settings::table(2, 1)
    };
    let outcome = run(settings, || {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_millis(1));
            }
        });
        thread::park();
    });
    match outcome.map(|o| o.result) {
        Err(SimulationError::Late(who)) => assert!(who.contains("first"), "{who}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_condition_wakes_at_the_signal_or_at_the_deadline() {
    simulated(2, || {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let begin = Instant::now();
        {
            let mut set = pair.0.lock();
            let until = begin + Duration::from_millis(5);
            assert!(pair.1.wait_until(&mut set, until).timed_out());
        }
        let late = begin.elapsed();
        assert!(
            late >= Duration::from_millis(5) && late < Duration::from_micros(5_010),
            "{late:?}"
        );
        let other = pair.clone();
        let signal = thread::spawn(move || {
            thread::sleep(Duration::from_millis(1));
            *other.0.lock() = true;
            assert!(other.1.notify_one());
        });
        let begin = Instant::now();
        let mut set = pair.0.lock();
        while !*set {
            let limit = Duration::from_secs(3600);
            assert!(!pair.1.wait_for(&mut set, limit).timed_out());
        }
        drop(set);
        let took = begin.elapsed();
        assert!(
            took > Duration::from_millis(1) && took < Duration::from_millis(2),
            "{took:?}"
        );
        assert!(signal.join().is_ok());
    });
}

#[test]
fn sleepers_wake_in_the_order_of_time_and_hours_take_no_time() {
    let host = std::time::Instant::now();
    let order = simulated(2, || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let sleepers: Vec<_> = [5_u64, 1, 3]
            .into_iter()
            .map(|hours| {
                let order = order.clone();
                thread::spawn(move || {
                    thread::sleep(Duration::from_secs(hours * 3600));
                    order.lock().push(hours);
                })
            })
            .collect();
        for sleeper in sleepers {
            assert!(sleeper.join().is_ok());
        }
        assert!(at() > 5 * 3600 * 1_000_000_000);
        let order = order.lock();
        order.clone()
    });
    assert_eq!(order, [1, 3, 5]);
    assert!(host.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_deadlock_is_an_error_that_names_who_waits_where() {
    let outcome = run(Settings::table(2, 1), || {
        let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let other = {
            let (a, b) = (a.clone(), b.clone());
            thread::Builder::new()
                .name("crosswise".to_owned())
                .spawn(move || {
                    let _b = b.lock();
                    thread::sleep(Duration::from_millis(1));
                    let _a = a.lock();
                })
        };
        let _a = a.lock();
        thread::sleep(Duration::from_millis(1));
        let _b = b.lock();
        drop(other);
    });
    match outcome.map(|o| o.result) {
        Err(SimulationError::Deadlock(who)) => {
            assert!(
                who.contains("crosswise") && who.contains("tests.rs"),
                "{who}"
            );
            assert!(who.contains("mutex"), "{who}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_thread_that_waits_outside_is_an_error() {
    let settings = Settings {
        patience: Duration::from_millis(500),
        ..Settings::table(1, 1)
    };
    let outcome = run(settings, std::thread::park);
    assert!(
        matches!(outcome, Err(SimulationError::Stuck(_))),
        "{outcome:?}"
    );
}

#[test]
fn a_panic_of_the_first_thread_is_an_error_and_others_are_of_their_joins() {
    let outcome = run(Settings::table(1, 1), || {
        assert!(thread::spawn(|| panic!("quietly")).join().is_err());
        panic!("loudly");
    });
    let text = SimulationError::Panicked("loudly".to_owned());
    assert_eq!(outcome.map(|o: Outcome<()>| o.result), Err(text));
}

#[test]
fn a_line_that_another_core_wrote_is_fetched_and_transfers_follow_one_another() {
    let time = |shared: bool| {
        simulated(9, move || {
            let one = Arc::new(AtomicU64::new(0));
            let workers: Vec<_> = (0..8)
                .map(|_| {
                    let word = if shared { one.clone() } else { Arc::default() };
                    thread::spawn(move || {
                        // All begin at once.
                        thread::sleep(Duration::from_nanos(1_000_000 - at()));
                        for _ in 0..1000 {
                            word.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for worker in workers {
                assert!(worker.join().is_ok());
            }
            if shared {
                assert_eq!(one.load(Ordering::Relaxed), 8000);
            }
            at() - 1_000_000
        })
    };
    let (shared, apart) = (time(true), time(false));
    // Most of 8000 additions find the line elsewhere, and it moves once at a time.
    assert!(shared > 4000 * COSTS.transfer, "{shared}");
    assert!(apart * 3 < shared, "{apart} {shared}");
}

#[test]
fn channels_scopes_and_parks_work() {
    let sum = simulated(3, || {
        let (send, receive) = channel::bounded(2);
        let (mine, theirs) = mpsc::sync_channel(0);
        let mut local = vec![1, 2, 3];
        let sum = thread::scope(|scope| {
            let adder = scope.spawn(move || receive.into_iter().sum::<u64>());
            scope.spawn(|| {
                local.push(4);
                local.iter().for_each(|n| assert!(send.send(*n).is_ok()));
                drop(send);
            });
            adder.join().unwrap_or(0)
        });
        let sleeper = thread::spawn(move || {
            thread::park();
            let nothing = theirs.recv_timeout(Duration::from_millis(3));
            assert_eq!(nothing, Err(mpsc::RecvTimeoutError::Timeout));
            assert!(mine.try_send(7).is_err());
            theirs.try_recv().is_err()
        });
        sleeper.thread().unpark();
        assert_eq!(sleeper.join().ok(), Some(true));
        sum
    });
    assert_eq!(sum, 10);
}

#[test]
fn pinned_threads_stay_and_others_find_an_idle_core() {
    let settings = Settings {
        placement: Placement::Idle,
        ..Settings::table(3, 1)
    };
    let outcome = run(settings, || {
        pin(0);
        let busy = thread::spawn(|| {
            pin(1);
            work(1_000_000);
            this_core()
        });
        let free = thread::spawn(|| {
            thread::sleep(Duration::from_micros(100));
            work(100_000);
            (this_core(), at())
        });
        work(1_000_000);
        (busy.join().ok().flatten(), free.join().ok())
    });
    let Ok(Outcome {
        result: (busy, Some((core, when))),
        ..
    }) = outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!((busy, core), (Some(1), Some(2)));
    assert!(when < 400_000, "{when}");
}

#[test]
fn a_spinning_thread_leaves_its_core_when_its_slice_is_over() {
    simulated(1, || {
        let flag = Arc::new(AtomicU64::new(0));
        let other = {
            let flag = flag.clone();
            thread::spawn(move || flag.store(1, Ordering::Release))
        };
        while flag.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        assert!(at() >= 1_000_000);
        assert!(other.join().is_ok());
    });
}

/// Threads that share locks, signals, and time; the seed breaks ties.
fn mixed(seed: u64) -> (u64, u64, u64, Vec<Waited>) {
    let outcome = run(Settings::table(4, seed), || {
        let shared = Arc::new((Mutex::new(0_u64), Condvar::new(), RwLock::new(0_u64)));
        let workers: Vec<_> = (0..8_u64)
            .map(|n| {
                let shared = shared.clone();
                thread::spawn(move || {
                    for round in 0..200 {
                        *shared.0.lock() += n;
                        shared.1.notify_one();
                        match round % 3 {
                            0 => *shared.2.write() += 1,
                            1 => assert!(*shared.2.read() < 2000),
                            _ => {
                                let mut count = shared.0.lock();
                                let limit = Duration::from_micros(20 + n);
                                let _ = shared.1.wait_for(&mut count, limit);
                            }
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            assert!(worker.join().is_ok());
        }
    });
    match outcome {
        Ok(o) => (o.nanos, o.steps, o.trace, o.waits),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_seed_repeats_exactly_and_another_one_does_not() {
    let first = mixed(7);
    assert_eq!(first, mixed(7));
    assert!(
        first
            .3
            .iter()
            .any(|w| w.kind == WaitKind::Mutex && w.nanos > 0)
    );
    assert_ne!(first.2, mixed(8).2);
}

#[test]
fn measured_work_is_charged() {
    let costs = Costs::TABLE;
    let outcome = run(Settings::measured(2, costs), || {
        let begin = Instant::now();
        let host = std::time::Instant::now();
        let mut x = 1_u64;
        while host.elapsed() < Duration::from_millis(20) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        begin.elapsed()
    });
    let charged = outcome.map(|o| o.result).unwrap_or_default();
    assert!(charged > Duration::from_millis(2), "{charged:?}");
    assert!(charged < Duration::from_millis(25), "{charged:?}");
}

#[test]
fn outside_of_a_simulation_the_types_are_real() {
    let pair = Arc::new((Mutex::new(0), Condvar::new()));
    let other = pair.clone();
    let begin = Instant::now();
    let setter = thread::spawn(move || {
        thread::sleep(Duration::from_millis(2));
        *other.0.lock() = 1;
        other.1.notify_all();
    });
    let mut value = pair.0.lock();
    while *value == 0 {
        pair.1.wait(&mut value);
    }
    drop(value);
    assert!(setter.join().is_ok());
    assert!(begin.elapsed() >= Duration::from_millis(2));
    assert_eq!((now(), this_core()), (None, None));
}
