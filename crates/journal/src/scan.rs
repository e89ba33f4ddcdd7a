//! The scan of all lanes of a log, by several threads.

use stetfs_ondisk::num::to_usize;
use stetfs_sync::plain::{
    Mutex,
    atomic::{AtomicU64, Ordering},
    mpsc, thread,
};

use crate::error::Result;
use crate::policy::{Medium, Scan, Scheme};

/// The most lanes read at once: each may have a frame of 64 MiB in memory.
const THREADS: usize = 4;

/// Scans each lane. `progress` gets (done, of) in log blocks.
///
/// # Errors
/// The device's; `Corrupt` for a log that contradicts itself in a way no crash explains. The error
/// is that of the first lane that has one.
pub(crate) fn scan(scheme: &Scheme, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<Scan>> {
    let lane = |medium: &dyn Medium, progress: &mut dyn FnMut(u64, u64)| {
        scheme.codec.scan(medium, medium.tail(), progress)
    };
    let threads = stetfs_sync::processors()
        .min(THREADS)
        .min(scheme.media.len());
    if threads < 2 {
        let media = scheme.media.iter();
        return media.map(|medium| lane(&**medium, progress)).collect();
    }
    let total = scheme.media.iter().map(|medium| medium.capacity()).sum();
    let next = AtomicU64::new(0);
    let found: Mutex<Vec<(usize, Result<Scan>)>> = Mutex::default();
    let (tell, told) = mpsc::channel::<(usize, u64)>();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (next, found, tell) = (&next, &found, tell.clone());
            scope.spawn(move || {
                stetfs_sync::run_anywhere();
                loop {
                    let at = to_usize(next.fetch_add(1, Ordering::Relaxed));
                    let Some(medium) = scheme.media.get(at) else {
                        return;
                    };
                    let scan = lane(&**medium, &mut |done, _| {
                        // The receiver outlives the senders.
                        let _ = tell.send((at, done));
                    });
                    found.lock().push((at, scan));
                }
            });
        }
        drop(tell);
        let mut done = vec![0; scheme.media.len()];
        while let Ok((at, blocks)) = told.recv() {
            if let Some(of_lane) = done.get_mut(at) {
                *of_lane = blocks;
            }
            progress(done.iter().sum(), total);
        }
    });
    let mut found = std::mem::take(&mut *found.lock());
    found.sort_unstable_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, scan)| scan).collect()
}
