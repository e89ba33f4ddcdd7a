//! Failures of writes in the background: each opener is told once (the kernel: `errseq_t`).
//!
//! Some files are open without a handle in this crate (decisions/0017). An opener of such a file is
//! a descriptor of a program that syncs it. The crate sees it for the first time when it syncs, and
//! then reports every failure since the file was last not in use at all.

use std::collections::VecDeque;
use std::sync::Arc;

use stetfs_sync::timed::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::error::FsError;
use crate::types::{Caller, Descriptor};

/// The most descriptors that are remembered as told. A forgotten descriptor is told again.
const MOST_TOLD: usize = 256;

/// Failures of one file, or of all files of the volume.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<State>);

#[derive(Clone, Debug, Default)]
struct State {
    count: u64,
    last: Option<FsError>,
    /// An opener was told of the last failure.
    told: bool,
    /// The number of failures that a descriptor outside `descriptors` need not be told of: they
    /// happened before it was opened, or another opener was told of them.
    settled: u64,
    /// Each descriptor that was told of a failure, with the number of failures that it has been
    /// told of.
    descriptors: VecDeque<(Descriptor, u64)>,
}

/// The failures of a file, kept for the next opening of the volume.
#[derive(Clone, Debug)]
pub struct KeptFailures(State);

impl State {
    fn is_pending(&self) -> bool {
        self.last.is_some() && !self.told
    }
}

/// The number of failures that an opener was told of, or need not be told of.
#[derive(Debug, Default)]
pub(crate) struct Told(AtomicU64);

/// The opener to be told.
#[derive(Clone, Debug)]
pub(crate) enum Opener {
    /// An open handle.
    Handle(Arc<Told>),
    /// A user of the file without a handle.
    Caller(Caller),
}

impl Failures {
    /// Adds a failure. Returns whether it is the first since an opener was told.
    pub(crate) fn add(&self, e: FsError) -> bool {
        let mut s = self.0.lock();
        let first = !s.is_pending();
        s.count += 1;
        s.last = Some(e);
        s.told = false;
        first
    }

    /// The state of a new opener: it is told of future failures, and of a past one that no opener
    /// was told of.
    pub(crate) fn opener(&self) -> Told {
        let s = self.0.lock();
        Told(AtomicU64::new(match s.is_pending() {
            true => s.count.wrapping_sub(1),
            false => s.count,
        }))
    }

    /// Takes over an earlier failure that only this opener was not told of.
    pub(crate) fn adopt(&self, told: &Told, e: FsError) {
        let mut s = self.0.lock();
        s.last = Some(e);
        told.0.store(s.count.wrapping_sub(1), Ordering::Release);
    }

    /// The last failure, if this opener was not told of it yet; marks it as told.
    pub(crate) fn tell(&self, told: &Told) -> Option<FsError> {
        let mut s = self.0.lock();
        if told.0.swap(s.count, Ordering::AcqRel) == s.count {
            return None;
        }
        s.told = true;
        s.last.clone()
    }

    /// The last failure, if this opener was not told of it yet; marks it as told.
    pub(crate) fn tell_opener(&self, opener: &Opener) -> Option<FsError> {
        match opener {
            Opener::Handle(told) => self.tell(told),
            Opener::Caller(caller) => self.tell_caller(caller),
        }
    }

    /// The last failure, if this descriptor of the caller was not told of it yet; marks it as told.
    /// A caller whose descriptor cannot be found is told again each time.
    fn tell_caller(&self, caller: &Caller) -> Option<FsError> {
        if !self.concerns_callers() {
            return None;
        }
        // This takes long, but is rare.
        let descriptor = (caller.descriptor)(caller.pid);
        let mut s = self.0.lock();
        let (count, settled) = (s.count, s.settled);
        if let Some(descriptor) = descriptor {
            let known = s.descriptors.iter_mut().find(|(d, _)| *d == descriptor);
            let told = match known {
                Some((_, told)) => std::mem::replace(told, count),
                None => {
                    if s.descriptors.len() >= MOST_TOLD {
                        s.descriptors.pop_front();
                    }
                    s.descriptors.push_back((descriptor, count));
                    settled
                }
            };
            if told == count {
                return None;
            }
        }
        s.told = true;
        s.last.clone()
    }

    /// Whether some descriptor may still have to be told of a failure.
    pub(crate) fn concerns_callers(&self) -> bool {
        let s = self.0.lock();
        s.count != s.settled
    }

    /// Notes that the file is not in use any more: a descriptor opened from now on is a new opener,
    /// as in [`opener`](Self::opener).
    pub(crate) fn not_in_use(&self) {
        let mut s = self.0.lock();
        s.descriptors.clear();
        s.settled = match s.is_pending() {
            true => s.count.wrapping_sub(1),
            false => s.count,
        };
    }

    /// The state to keep for the next opening of the volume, if it matters there.
    pub(crate) fn keep(&self) -> Option<KeptFailures> {
        let s = self.0.lock();
        let matters = s.count != s.settled || s.is_pending();
        matters.then(|| KeptFailures(s.clone()))
    }

    /// Continues with a kept state.
    pub(crate) fn go_on_with(&self, kept: KeptFailures) {
        *self.0.lock() = kept.0;
    }

    /// Whether there is a failure that no opener was told of.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.lock().is_pending()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn told(failures: &Failures, opener: &Told) -> Option<i32> {
        failures.tell(opener).map(|e| e.errno())
    }

    #[test]
    fn each_opener_is_told_once() {
        let failures = Failures::default();
        let [a, b] = [failures.opener(), failures.opener()];
        assert_eq!(told(&failures, &a), None);
        assert!(failures.add(FsError::Errno(libc::EIO)));
        assert!(!failures.add(FsError::Errno(libc::ENOSPC)));
        assert!(failures.is_pending());
        let untold = failures.opener();
        assert_eq!(told(&failures, &a), Some(libc::ENOSPC), "the last");
        assert!(!failures.is_pending());
        assert_eq!(told(&failures, &a), None);
        assert_eq!(told(&failures, &failures.opener()), None, "one was told");
        assert_eq!(told(&failures, &b), Some(libc::ENOSPC));
        assert_eq!(told(&failures, &untold), Some(libc::ENOSPC));
        assert!(failures.add(FsError::Errno(libc::EIO)), "again");
        assert_eq!(told(&failures, &a), Some(libc::EIO));
    }

    /// Thread 0 cannot be seen; the other threads use descriptors of different programs.
    fn caller(pid: u32) -> Opener {
        let descriptor = |pid: u32| (pid > 0).then_some((pid / 10, Some(pid % 10)));
        Opener::Caller(Caller { pid, descriptor })
    }

    #[test]
    fn each_descriptor_is_told_once_however_late_it_comes() {
        let failures = Failures::default();
        let told = |pid| failures.tell_opener(&caller(pid)).map(|e| e.errno());
        assert_eq!((told(11), told(0)), (None, None));
        failures.add(FsError::Errno(libc::EIO));
        assert_eq!((told(11), told(11)), (Some(libc::EIO), None));
        assert!(!failures.is_pending());
        assert_eq!(
            (told(12), told(12)),
            (Some(libc::EIO), None),
            "another of the program"
        );
        assert_eq!(
            (told(21), told(21)),
            (Some(libc::EIO), None),
            "another program"
        );
        assert_eq!(
            (told(0), told(0)),
            (Some(libc::EIO), Some(libc::EIO)),
            "nobody knows who"
        );
        failures.add(FsError::Errno(libc::ENOSPC));
        assert_eq!((told(11), told(11)), (Some(libc::ENOSPC), None), "again");
        let again = Failures::default();
        again.go_on_with(failures.keep().unwrap());
        let told_again = |pid| again.tell_opener(&caller(pid)).map(|e| e.errno());
        assert_eq!(
            told_again(11),
            None,
            "told before the volume was opened again"
        );
        assert_eq!(
            (told_again(21), told_again(31)),
            (Some(libc::ENOSPC), Some(libc::ENOSPC))
        );
        again.not_in_use();
        assert_eq!(
            (told_again(41), told_again(0)),
            (None, None),
            "one was told, and all closed"
        );
        assert!(again.keep().is_none());
    }

    #[test]
    fn who_opens_a_file_after_a_failure_that_nobody_was_told_of_is_told() {
        let failures = Failures::default();
        failures.add(FsError::Errno(libc::EIO));
        failures.add(FsError::Errno(libc::EIO));
        failures.not_in_use();
        let told = |pid| failures.tell_opener(&caller(pid)).map(|e| e.errno());
        assert_eq!((told(11), told(11)), (Some(libc::EIO), None));
        for pid in 1000..1000 + 2 * MOST_TOLD as u32 {
            assert_eq!(told(pid), Some(libc::EIO));
        }
        assert_eq!(told(11), Some(libc::EIO), "forgotten, so told again");
    }

    #[test]
    fn one_opener_takes_a_failure_along() {
        let failures = Failures::default();
        let [a, b] = [failures.opener(), failures.opener()];
        failures.adopt(&a, FsError::Errno(libc::EIO));
        assert_eq!(told(&failures, &b), None);
        assert_eq!(told(&failures, &a), Some(libc::EIO));
        assert_eq!(told(&failures, &a), None);
        assert_eq!(told(&failures, &failures.opener()), None);
    }
}
