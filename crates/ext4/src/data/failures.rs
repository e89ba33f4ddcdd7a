//! Failures of writes that nobody waited for: each opener is told once (the kernel: `errseq_t`).

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::FsError;

/// Failures of one file, or of all.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    count: u64,
    last: Option<FsError>,
    /// Somebody was told of the last.
    told: bool,
}

impl State {
    fn is_pending(&self) -> bool {
        self.last.is_some() && !self.told
    }
}

/// How many failures an opener was told of, or need not be told of.
#[derive(Debug, Default)]
pub(crate) struct Told(AtomicU64);

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

    /// Whether there is a failure that nobody was told of.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.lock().is_pending()
    }
}

#[cfg(test)]
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
