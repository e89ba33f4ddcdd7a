//! Threads and processors: affinity, the number of processors, thread numbers.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use rustix::process::getpid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

#[cfg(all(feature = "virtual", not(feature = "model")))]
use crate::simulated;

/// Outside of simulations.
#[cfg(not(all(feature = "virtual", not(feature = "model"))))]
mod simulated {
    pub(super) const fn cores() -> Option<usize> {
        None
    }

    pub(super) const fn this_core() -> Option<usize> {
        None
    }

    pub(super) const fn virtual_nanos() -> Option<u64> {
        None
    }

    pub(super) const fn task_number() -> Option<usize> {
        None
    }
}

/// Sets the calling thread's affinity to that of the process's first thread. A thread inherits
/// affinity from the thread that starts it, which may be pinned to one processor.
pub fn run_anywhere() {
    if simulated::task_number().is_some() {
        return;
    }
    if let Ok(all) = sched_getaffinity(Some(getpid())) {
        // On failure the thread stays where it is: slower at worst.
        let _ = sched_setaffinity(None, &all);
    }
}

/// The number of threads that can run at once. Read once and kept: the standard library reads a
/// dozen files for it.
pub fn processors() -> usize {
    if let Some(cores) = simulated::cores() {
        return cores;
    }
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let count = std::thread::spawn(|| {
            run_anywhere();
            std::thread::available_parallelism().map_or(1, usize::from)
        });
        count.join().unwrap_or(1)
    })
}

/// The processor that the calling thread runs on; at once it may be another.
pub fn processor() -> usize {
    simulated::this_core().unwrap_or_else(rustix::thread::sched_getcpu)
}

/// The time of day: seconds and nanoseconds since 1970. In a simulation it begins at a fixed
/// moment.
pub fn time_of_day() -> (i64, u32) {
    /// 2030-01-01.
    const BEGIN: i64 = 1_893_456_000;
    const SECOND: u64 = 1_000_000_000;
    if let Some(nanos) = simulated::virtual_nanos() {
        let seconds = i64::try_from(nanos / SECOND).unwrap_or(i64::MAX);
        let rest = u32::try_from(nanos % SECOND).unwrap_or(0);
        return (BEGIN.saturating_add(seconds), rest);
    }
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (t.tv_sec, u32::try_from(t.tv_nsec).unwrap_or(0))
}

thread_local!(static SERVED: Cell<Option<u16>> = const { Cell::new(None) });

/// Records that the calling thread serves the requests of one processor from now on, wherever the
/// thread itself runs.
pub fn serve_processor(processor: u16) {
    SERVED.set(Some(processor));
}

/// The processor whose requests the calling thread serves ([`serve_processor`]); `None` if it
/// serves no single one.
pub fn served_processor() -> Option<u16> {
    SERVED.get()
}

/// The calling thread's number: threads are numbered from 0 in the order of their first call.
pub fn thread_number() -> u16 {
    if let Some(number) = simulated::task_number() {
        return u16::try_from(number).unwrap_or(u16::MAX);
    }
    static NEXT: AtomicU16 = AtomicU16::new(0);
    thread_local!(static NUMBER: Cell<Option<u16>> = const { Cell::new(None) });
    let number = NUMBER.get().unwrap_or_else(|| NEXT.fetch_add(1, Relaxed));
    NUMBER.set(Some(number));
    number
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    #[test]
    fn a_thread_leaves_the_processor_of_its_parent() {
        let everywhere = sched_getaffinity(Some(getpid())).map_or(0, |all| all.count());
        let seen = std::thread::spawn(|| {
            let first = sched_getaffinity(None)
                .ok()
                .and_then(|all| (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)));
            let mut one = CpuSet::new();
            one.set(first.unwrap_or(0));
            assert!(sched_setaffinity(None, &one).is_ok());
            let child = std::thread::spawn(|| {
                let inherited = sched_getaffinity(None).map_or(0, |mask| mask.count());
                run_anywhere();
                (
                    inherited,
                    sched_getaffinity(None).map_or(0, |mask| mask.count()),
                )
            });
            (child.join(), processors())
        });
        let (masks, processors) = seen.join().unwrap_or((Ok((0, 0)), 0));
        assert_eq!(masks.ok(), Some((1, everywhere)));
        assert!(processors >= 1 && processors <= everywhere as usize);
    }
}
