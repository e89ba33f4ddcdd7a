//! Where a thread of a queue runs: on the processor that its requests come from, so that nothing
//! wakes another one. But not while it serves long reads: what reads ahead copies on that
//! processor, and the two would only take turns. And on another one while it looks for the next
//! request instead of sleeping.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Which processors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// The queue's.
    Home,
    /// All but the queue's.
    Away,
    Anywhere,
}

/// The place of the calling thread.
pub(super) struct Place {
    home: CpuSet,
    /// All that it may run on.
    anywhere: Option<CpuSet>,
    away: Option<CpuSet>,
    now: Where,
}

impl Place {
    /// Binds the thread to processor `qid`, whose requests it serves.
    pub(super) fn at(qid: u16) -> Place {
        stetfs::low::serve_processor(qid);
        let processor = usize::from(qid);
        let mut home = CpuSet::new();
        home.set(processor);
        let anywhere = sched_getaffinity(None).ok();
        let mut away = anywhere;
        if let Some(cpus) = &mut away {
            cpus.unset(processor);
        }
        // Where the processor is offline, or not ours, it runs elsewhere.
        let _ = sched_setaffinity(None, &home);
        Place {
            home,
            anywhere,
            away: away.filter(|cpus| cpus.count() > 0),
            now: Where::Home,
        }
    }

    /// Whether there are other processors than the queue's.
    pub(super) fn has_others(&self) -> bool {
        self.away.is_some()
    }

    /// Goes there.
    pub(super) fn take(&mut self, place: Where) {
        if self.now == place {
            return;
        }
        let cpus = match place {
            Where::Home => Some(&self.home),
            Where::Away => self.away.as_ref(),
            Where::Anywhere => self.anywhere.as_ref(),
        };
        let _ = sched_setaffinity(None, cpus.unwrap_or(&self.home));
        self.now = place;
    }
}
