//! Tests of damaged and hostile volumes: every byte of metadata may have any value. Nothing panics,
//! hangs or takes unbounded memory; errors are expected.
//!
//! `STETFS_HOSTILE_SECS` sets the time (seconds, 20 by default), `STETFS_SEED` the first seed. A
//! failure prints the image and the seed that repeat it alone: `STETFS_IMAGE`, `STETFS_SEED` and
//! `STETFS_HOSTILE_SECS=0`.

mod damage;
mod memory;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use self::damage::damage;
use crate::common::{number, watchdog};
use stetfs::low::{Fs, FsOptions, OnError, Preset, preset};
use stetfs_crash::volume::options;
use stetfs_fuzzing::images::{Image, images};
use stetfs_fuzzing::visit::{change, wander};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// A case that takes this long is considered hung.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Most memory of all cases that run at a time, bytes. Caches take a few MiB each.
const MEMORY_MAX: usize = 400 << 20;

/// Panics of any thread, including the volume's own.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn catch_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.lock().unwrap().push(info.to_string());
        print(info);
    }));
}

/// Numbers of cases in which the volume could be opened; in which reading met damage; in which
/// recovery did.
static OPENED: AtomicU64 = AtomicU64::new(0);
static MET: AtomicU64 = AtomicU64::new(0);

/// Damages the image, opens it, reads everything, changes something, unmounts.
fn attack(image: &Image, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(image.device.fork());
    damage(&device, image, &mut rng);
    let options = FsOptions {
        read_only: rng.u8(0..4) == 0,
        on_error: Some(
            *rng.choice(&[OnError::Continue, OnError::RemountRo])
                .unwrap(),
        ),
        cache_bytes: 2 << 20,
        ..options(*rng.choice(&Preset::on_a_device()).unwrap())
    };
    let Ok(fs) = Fs::open(device, options) else {
        MET.fetch_add(1, Ordering::Relaxed);
        return;
    };
    OPENED.fetch_add(1, Ordering::Relaxed);
    let found = wander(&fs, &mut rng);
    if !found.errors.is_empty() {
        MET.fetch_add(1, Ordering::Relaxed);
    }
    change(&fs, &found, &mut rng);
    wander(&fs, &mut rng);
    let _ = fs.unmount();
}

/// A case, with checks for everything that must not happen.
fn case(image: &Image, seed: u64) -> Result<(), String> {
    let _watched = watchdog::watch(format!("image {}, seed {seed}", image.name), TIMEOUT);
    let result = panic::catch_unwind(AssertUnwindSafe(|| attack(image, seed)));
    let panics = std::mem::take(&mut *PANICS.lock().unwrap());
    if let Some(first) = panics.first() {
        return Err(format!("panic: {first}"));
    }
    if result.is_err() {
        return Err("panic".into());
    }
    let peak = memory::peak();
    if peak > MEMORY_MAX {
        return Err(format!("{peak} bytes of memory in use"));
    }
    Ok(())
}

#[test]
fn damaged_volumes_give_errors() {
    catch_panics();
    assert!(
        thread::spawn(|| panic!("on purpose, to see that it is noticed"))
            .join()
            .is_err()
    );
    assert_eq!(std::mem::take(&mut *PANICS.lock().unwrap()).len(), 1);
    let images = images();
    let only = std::env::var("STETFS_IMAGE").ok();
    let seconds = number("STETFS_HOSTILE_SECS").unwrap_or(20);
    let end = Instant::now() + Duration::from_secs(seconds);
    let next = AtomicU64::new(number("STETFS_SEED").unwrap_or(1));
    let failures: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let first = next.load(Ordering::Relaxed);
    memory::reset();
    thread::scope(|scope| {
        // Two at a time: then a panic of a volume's thread may be attributed to the wrong one of
        // two cases.
        for _ in 0..if seconds == 0 { 1 } else { 2 } {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    for image in &images {
                        if only.as_ref().is_some_and(|o| *o != image.name) {
                            continue;
                        }
                        if let Err(why) = case(image, seed) {
                            failures.lock().unwrap().push(format!(
                                "{why}\nrepeat with: STETFS_IMAGE={} STETFS_SEED={seed} STETFS_HOSTILE_SECS=0 \
                                 cargo test -p stetfs --test hostile",
                                image.name
                            ));
                        }
                    }
                    if Instant::now() >= end || failures.lock().unwrap().len() >= 10 {
                        return;
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    let tried = next.load(Ordering::Relaxed) - first;
    let (opened, met) = (OPENED.load(Ordering::Relaxed), MET.load(Ordering::Relaxed));
    println!(
        "{tried} seeds on {} images: {opened} could be opened, {met} gave errors, {} MiB at most",
        images.len(),
        memory::peak() >> 20
    );
}

/// The images themselves are sound, so that errors of a case result from the damage.
#[test]
fn undamaged_volumes_give_none() {
    for image in images() {
        let device = Arc::new(image.device.fork());
        let fs = stetfs_crash::volume::open(&device, &options(preset::ORDERED)).unwrap();
        stetfs_crash::tree::Seen::capture(&fs).unwrap_or_else(|e| panic!("{}: {e}", image.name));
        let mut rng = fastrand::Rng::with_seed(1);
        let found = wander(&fs, &mut rng);
        assert!(
            found.files.len() > 300 && found.dirs.len() > 5,
            "{}: {found:?}",
            image.name
        );
        assert_eq!(found.errors, Vec::<String>::new(), "{}", image.name);
        change(&fs, &found, &mut rng);
        fs.unmount().unwrap();
        stetfs_crash::volume::fsck(&device).unwrap_or_else(|e| panic!("{}: {e}", image.name));
    }
}
