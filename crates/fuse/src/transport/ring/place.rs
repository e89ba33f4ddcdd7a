//! The processor affinity of a queue's thread. It runs on the processor that its requests come
//! from, so that no other one has to be woken. During long reads it runs anywhere: the kernel's
//! read-ahead copies on that processor, and the two would only take turns. While it polls for the
//! next request it runs on another processor.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A choice of processors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// The queue's processor.
    Home,
    /// All except the queue's.
    Away,
    Anywhere,
}

/// The affinity of the calling thread.
pub(crate) struct Place {
    home: CpuSet,
    /// All processors that it may run on.
    anywhere: Option<CpuSet>,
    away: Option<CpuSet>,
    now: Where,
}

impl Place {
    /// Binds the thread to processor `qid`, whose requests it serves.
    pub(crate) fn at(qid: u16) -> Place {
        stetfs::low::serve_processor(qid);
        let processor = usize::from(qid);
        let mut home = CpuSet::new();
        home.set(processor);
        let anywhere = sched_getaffinity(None).ok();
        let mut away = anywhere;
        if let Some(cpus) = &mut away {
            cpus.unset(processor);
        }
        // On failure (the processor is offline, or not allowed) it runs elsewhere.
        let _ = sched_setaffinity(None, &home);
        Place {
            home,
            anywhere,
            away: away.filter(|cpus| cpus.count() > 0),
            now: Where::Home,
        }
    }

    /// Whether there are processors other than the queue's.
    pub(crate) fn has_others(&self) -> bool {
        self.away.is_some()
    }

    /// Moves the thread.
    pub(crate) fn take(&mut self, place: Where) {
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
