//! The server's side: it starts the mounter, and gives it orders.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, WaitOptions};
use stetfs::low::namespaces;

use super::message::{Answer, Begin};
use super::plan::{Entrance, Late, Plan, Stood};
use super::{process, uring};
use crate::mount::MountError;
use crate::mount::mounted::Mounted;
use crate::system::{passing, sys};
use crate::transport::awake::Means;
use crate::transport::ring::Rings;

/// The server's side of the mounter.
pub struct Mounter {
    pid: Pid,
    /// Closed at the end of the mounter's work.
    orders: OwnedFd,
    /// The socket through which the mounter tells the helper of the mount.
    facts: Option<OwnedFd>,
    /// Other resources that need privileges and no volume: the means to keep processors awake, and
    /// rings.
    prepared: (Means, Rings),
    plan: Plan,
}

impl Mounter {
    /// Starts the mounter, in the mount namespace and with the privileges of this process, which
    /// must be single-threaded. The mounter calls `entrance` once the mount exists.
    ///
    /// # Errors
    /// The fork failed, or [`MountError::LowLatency`].
    pub fn start(
        plan: Plan,
        entrance: impl FnOnce(&Mounted) -> io::Result<Entrance>,
    ) -> Result<Mounter, MountError> {
        let (orders, its_orders) = passing::pair().map_err(MountError::Session)?;
        let (facts, its_facts) = passing::pair().map_err(MountError::Session)?;
        let means = Means::find(plan.options.low_latency).map_err(MountError::LowLatency)?;
        // The mounter closes the server's ends, as it would otherwise not see the server end.
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

    /// The socket through which the helper learns of the mount.
    pub fn facts(&mut self) -> Option<OwnedFd> {
        self.facts.take()
    }

    /// Reports, before the volume is read, whether the server is in another mount namespace now.
    ///
    /// # Errors
    /// The mounter is gone.
    pub fn begin(&self, moved: bool) -> io::Result<()> {
        passing::send(&self.orders, &Begin { moved }.to_bytes(), &[])
    }

    /// The resources that the server allocated with the same privileges: the means to keep
    /// processors awake, and rings for the connection.
    pub(crate) fn prepared(&mut self) -> (Means, Rings) {
        std::mem::take(&mut self.prepared)
    }

    /// Has the mount made.
    pub(crate) fn mount(&self, late: Late) -> Result<Stood, MountError> {
        passing::send(&self.orders, &late.to_bytes(), &[]).map_err(MountError::Session)?;
        let (text, fds) = passing::receive(self.orders.as_fd()).map_err(MountError::Session)?;
        Answer::read(&text, fds, &self.plan.dir)
    }

    /// Tells the mounter that the kernel has the answer to its offer: the mounter restores
    /// temporary changes, sets the mount's limits in the kernel, and ends.
    pub(crate) fn settle(self) {
        drop(self.orders);
        let pid = self.pid;
        let wait = move || {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        };
        // If its namespace ends with it, its exit waits for an answer of the server.
        if let Err(e) = std::thread::Builder::new().name("mount".into()).spawn(wait) {
            tracing::debug!("nobody waits for the mounter: {e}");
        }
    }
}
