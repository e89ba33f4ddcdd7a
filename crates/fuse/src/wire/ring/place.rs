//! Where a thread of a queue runs: on the processor that its requests come from, so that nothing wakes another one. But not
//! while it serves long reads: what reads ahead copies on that processor, and the two would only take turns.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The place of the calling thread.
pub(super) struct Place {
    /// The processor of its queue.
    home: CpuSet,
    /// All that it may run on.
    anywhere: Option<CpuSet>,
    pinned: bool,
}

impl Place {
    /// Binds the thread to processor `qid`.
    pub(super) fn pinned(qid: u16) -> Place {
        let mut home = CpuSet::new();
        home.set(usize::from(qid));
        let anywhere = sched_getaffinity(None).ok();
        // Where the processor is offline, or not ours, it runs elsewhere.
        let _ = sched_setaffinity(None, &home);
        Place {
            home,
            anywhere,
            pinned: true,
        }
    }

    /// A request is to be served.
    pub(super) fn serve(&mut self, long_read: bool) {
        if self.pinned != long_read {
            return;
        }
        let cpus = match &self.anywhere {
            Some(all) if long_read => all,
            _ => &self.home,
        };
        let _ = sched_setaffinity(None, cpus);
        self.pinned = !long_read;
    }
}
