//! Failures of writes that nobody waited for: each opener is told once (the kernel: `errseq_t`).
//!
//! Where files are open without a handle here (decisions/0017), an opener is a descriptor of a
//! program that syncs, and is first seen when it does: it is told of every failure since the file
//! was last not in use at all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::FsError;
use crate::types::{Caller, Descriptor};

/// The number of descriptors that are remembered as told, at most. One that is forgotten is told
/// again.
const MOST_TOLD: usize = 256;

/// Failures of one file, or of all.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<State>);

#[derive(Clone, Debug, Default)]
struct State {
    count: u64,
    last: Option<FsError>,
    /// Somebody was told of the last.
    told: bool,
    /// The number of failures of which a descriptor that is not in `descriptors` need not be told:
    /// they happened before it was opened, or somebody was told of them.
    settled: u64,
    /// Each descriptor that was told of a failure, and how many failures it has been told of so
    /// far.
    descriptors: VecDeque<(Descriptor, u64)>,
}

/// Failures of a file, to be taken to another opening of the volume.
#[derive(Clone, Debug)]
pub struct KeptFailures(State);

impl State {
    fn is_pending(&self) -> bool {
        self.last.is_some() && !self.told
    }
}

/// How many failures an opener was told of, or need not be told of.
#[derive(Debug, Default)]
pub(crate) struct Told(AtomicU64);

/// Who is to be told.
#[derive(Clone, Debug)]
pub(crate) enum Opener {
    /// Who holds the file open.
    Handle(Arc<Told>),
    /// Who uses it without a handle.
    Caller(Caller),
}

impl Failures {
    /// Remembers a failure. Says whether it is the first since somebody was told.
    pub(crate) fn add(&self, e: FsError) -> bool {
        let mut s = self.0.lock();
        let first = !s.is_pending();
        s.count += 1;
        s.last = Some(e);
        s.told = false;
        first
    }

    /// Of a new opener: it learns of failures to come, and of a past one that nobody was told of.
    pub(crate) fn opener(&self) -> Told {
        let s = self.0.lock();
        Told(AtomicU64::new(match s.is_pending() {
            true => s.count.wrapping_sub(1),
            false => s.count,
        }))
    }

    /// Takes over a failure from before, of which this opener alone was not told.
    pub(crate) fn adopt(&self, told: &Told, e: FsError) {
        let mut s = self.0.lock();
        s.last = Some(e);
        told.0.store(s.count.wrapping_sub(1), Ordering::Release);
    }

    /// The last failure, if this opener was not told of it; now it is.
    pub(crate) fn tell(&self, told: &Told) -> Option<FsError> {
        let mut s = self.0.lock();
        if told.0.swap(s.count, Ordering::AcqRel) == s.count {
            return None;
        }
        s.told = true;
        s.last.clone()
    }

    /// The last failure, if this opener was not told of it; now it is.
    pub(crate) fn tell_opener(&self, opener: &Opener) -> Option<FsError> {
        match opener {
            Opener::Handle(told) => self.tell(told),
            Opener::Caller(caller) => self.tell_caller(caller),
        }
    }

    /// The last failure, if this descriptor of the caller was not told of it; now it is. A caller
    /// whom nobody can see is told again each time.
    fn tell_caller(&self, caller: &Caller) -> Option<FsError> {
        if !self.concerns_callers() {
            return None;
        }
        // Takes long, and is rare.
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

    /// Whether there is a failure that some descriptor may have to be told of.
    pub(crate) fn concerns_callers(&self) -> bool {
        let s = self.0.lock();
        s.count != s.settled
    }

    /// The file is not in use any more: who opens it from now on is an opener as
    /// [`opener`](Self::opener) has them.
    pub(crate) fn not_in_use(&self) {
        let mut s = self.0.lock();
        s.descriptors.clear();
        s.settled = match s.is_pending() {
            true => s.count.wrapping_sub(1),
            false => s.count,
        };
    }

    /// What is to be known after the volume was opened again, if anything.
    pub(crate) fn keep(&self) -> Option<KeptFailures> {
        let s = self.0.lock();
        let matters = s.count != s.settled || s.is_pending();
        matters.then(|| KeptFailures(s.clone()))
    }

    /// Goes on with what was kept.
    pub(crate) fn go_on_with(&self, kept: KeptFailures) {
        *self.0.lock() = kept.0;
    }

    /// Whether there is a failure that nobody was told of.
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

    /// Thread 0 cannot be seen; the others are descriptors of programs of their own.
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
