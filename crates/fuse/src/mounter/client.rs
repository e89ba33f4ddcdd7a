//! The server's end: starting the mounter, and telling it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, WaitOptions};
use stetfs::low::namespaces;

use super::message::{Answer, Begin};
use super::plan::{Entrance, Late, Plan, Stood};
use super::{process, uring};
use crate::awake::Means;
use crate::mount::MountError;
use crate::mounted::Mounted;
use crate::wire::Rings;
use crate::{passing, sys};

/// The server's end.
pub struct Mounter {
    pid: Pid,
    /// Ends with the mounter's work.
    orders: OwnedFd,
    /// The mount, as the mounter tells it the helper.
    facts: Option<OwnedFd>,
    /// What else takes privileges and no volume: what keeps processors awake, and rings.
    prepared: (Means, Rings),
    plan: Plan,
}

impl Mounter {
    /// Starts it, in the mount namespace and with the privileges of this process, which must have
    /// one thread only. Once the mount stands it makes the entrance.
    ///
    /// # Errors
    /// There are no more processes, or [`MountError::LowLatency`].
    pub fn start(
        plan: Plan,
        entrance: impl FnOnce(&Mounted) -> io::Result<Entrance>,
    ) -> Result<Mounter, MountError> {
        let (orders, its_orders) = passing::pair().map_err(MountError::Session)?;
        let (facts, its_facts) = passing::pair().map_err(MountError::Session)?;
        let means = Means::find(plan.options.low_latency).map_err(MountError::LowLatency)?;
        // In the mounter the server's ends are closed, else it would not see the server end.
        let mut ours = Some((orders, facts, means));
        let pid = sys::fork(|| {
            drop(ours.take());
            process::run(&plan, &its_orders, &its_facts, entrance);
        });
        let pid = pid.map_err(MountError::Session)?;
        namespaces::leave_behind(pid.as_raw_nonzero().get().unsigned_abs());
        let gone = || MountError::Session(io::ErrorKind::BrokenPipe.into());
        let (orders, facts, means) = ours.take().ok_or_else(gone)?;
        let rings = uring::rings(&plan.options);
        Ok(Mounter {
            pid,
            orders,
            facts: Some(facts),
            prepared: (means, rings),
            plan,
        })
    }

    /// Where the helper hears of the mount from the mounter.
    pub fn facts(&mut self) -> Option<OwnedFd> {
        self.facts.take()
    }

    /// Says, before the volume is looked at, whether the server is in another mount namespace now.
    ///
    /// # Errors
    /// The mounter is gone.
    pub fn begin(&self, moved: bool) -> io::Result<()> {
        passing::send(&self.orders, &Begin { moved }.to_bytes(), &[])
    }

    /// What the server found by the same privileges: what it keeps processors awake with, and rings
    /// for the connection.
    pub(crate) fn prepared(&mut self) -> (Means, Rings) {
        std::mem::take(&mut self.prepared)
    }

    /// Has the mount made.
    pub(crate) fn mount(&self, late: Late) -> Result<Stood, MountError> {
        passing::send(&self.orders, &late.to_bytes(), &[]).map_err(MountError::Session)?;
        let (text, fds) = passing::receive(self.orders.as_fd()).map_err(MountError::Session)?;
        Answer::read(&text, fds, &self.plan.dir)
    }

    /// The kernel has the answer to its offer: what was changed for that moment is put back, what
    /// it allows the mount is set, and the mounter ends.
    pub(crate) fn settle(self) {
        drop(self.orders);
        let pid = self.pid;
        let wait = move || {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        };
        // If its namespace ends with it, it waits for an answer of the server's.
        if let Err(e) = std::thread::Builder::new().name("mount".into()).spawn(wait) {
            tracing::debug!("nobody waits for the mounter: {e}");
        }
    }
}
