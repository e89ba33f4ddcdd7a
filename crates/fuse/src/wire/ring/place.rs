//! Where a thread of a queue runs: on the processor that its requests come from, so that nothing wakes another one. But not
//! while it serves long reads: what reads ahead copies on that processor, and the two would only take turns. The scheduler
//! would often leave them there, for each sleeps while the other works: so the thread is sent away.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The place of the calling thread.
pub(super) struct Place {
    /// The processor of its queue.
    home: CpuSet,
    /// All others that it may run on; the same where there are none.
    away: CpuSet,
    at_home: bool,
}

impl Place {
    /// Binds the thread to processor `qid`.
    pub(super) fn pinned(qid: u16) -> Place {
        let place = Place::of(qid, sched_getaffinity(None).ok());
        // Where the processor is offline, or not ours, it runs elsewhere.
        let _ = sched_setaffinity(None, &place.home);
        place
    }

    /// The place at processor `qid` of a thread that may run on `anywhere`.
    fn of(qid: u16, anywhere: Option<CpuSet>) -> Place {
        let qid = usize::from(qid);
        let mut home = CpuSet::new();
        home.set(qid);
        let mut away = anywhere.unwrap_or(home);
        away.unset(qid);
        if away.count() == 0 {
            away = home;
        }
        Place {
            home,
            away,
            at_home: true,
        }
    }

    /// A request is to be served.
    pub(super) fn serve(&mut self, long_read: bool) {
        if self.at_home != long_read {
            return;
        }
        let cpus = if long_read { &self.away } else { &self.home };
        let _ = sched_setaffinity(None, cpus);
        self.at_home = !long_read;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn away_is_any_other_processor_if_there_is_one() {
        assert!(Place::of(1, Some(set(&[0, 1, 2]))).away == set(&[0, 2]));
        assert!(Place::of(7, Some(set(&[0, 1]))).away == set(&[0, 1]));
        assert!(Place::of(0, Some(set(&[0]))).away == set(&[0]));
        assert!(Place::of(3, None).away == set(&[3]));
    }
}
