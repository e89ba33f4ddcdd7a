//! The sandbox of a mount's server: the server gives up its privileges, so that an attacker who
//! takes it over, by a damaged volume or by a request, gains little (decisions/0028).
//!
//! Capabilities and the like belong to threads, and a new thread inherits those of its starter. So
//! the first thread gives them up when the volume's devices are open, before any of their content
//! is read, and before there are other threads. System calls go at the same time, except the few
//! that lead to the mount; these go when the mount stands, from all threads at once. Two processes
//! started before do what needs privileges later, and read nothing of the volume: the mounter and
//! the helper (decisions/0039). A third process, which has given up everything, too, reads what
//! must be known before the devices are opened ([`crate::scout`]).

mod calls;
mod capabilities;
mod files;
mod testing;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::Serialize;
use stetfs::low::{Connector, NbdAddress};
use stetfs_fuse::{Helper, start_helper};

use self::calls::Stage;
use crate::failure::{Code, Failure, Result};

/// `-o sandbox=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wanted {
    /// As far as this kernel can.
    #[default]
    Auto,
    /// Everything, or no mount.
    On,
    /// Nothing.
    Off,
}

/// The state of the sandbox, as `stetfs stat` shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sandbox {
    option: Wanted,
    /// The helper, which keeps the privileges.
    #[serde(skip_serializing_if = "Option::is_none")]
    helper_pid: Option<u32>,
    /// The capabilities that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    capabilities: Option<String>,
    /// Programs that this process executes get no more privileges than it.
    no_new_privileges: bool,
    /// The version of Landlock that keeps it from files, TCP, and other processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    landlock: Option<String>,
    /// The number of system calls that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    seccomp: Option<String>,
    /// The restrictions that failed, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacking: Vec<String>,
    #[serde(skip)]
    restricted: Option<Arc<files::Restricted>>,
    /// The volume is on a server of network block devices.
    #[serde(skip)]
    has_network: bool,
    #[serde(skip)]
    connector: Option<Connector>,
}

/// Gives up everything at once, for a process that reads a volume and reports what it found.
///
/// # Errors
/// `sandbox=on`, and a restriction failed.
pub(crate) fn enter_alone(option: Wanted, has_network: bool) -> Result {
    let mut sandbox = Sandbox::new(option);
    sandbox.has_network = has_network;
    sandbox.give_away()
}

impl Sandbox {
    fn new(option: Wanted) -> Sandbox {
        Sandbox {
            option,
            helper_pid: None,
            capabilities: None,
            no_new_privileges: false,
            landlock: None,
            seccomp: None,
            lacking: Vec::new(),
            restricted: None,
            has_network: false,
            connector: None,
        }
    }

    /// Prepares the sandbox: starts the helper for what will not be possible later. The helper
    /// hears of the mount through `facts` and connects to `servers`. To be called while there is
    /// one thread.
    ///
    /// # Errors
    /// `sandbox=on`, and the helper cannot start.
    pub(crate) fn prepare(
        option: Wanted,
        facts: Option<OwnedFd>,
        servers: &[NbdAddress],
    ) -> Result<Sandbox> {
        let mut sandbox = Sandbox::new(option);
        if option != Wanted::Off {
            let helper = sandbox.try_to("have a helper", start_helper(facts, servers))?;
            sandbox.helper_pid = helper.map(Helper::pid);
            let connects = helper.filter(|_| !servers.is_empty());
            sandbox.connector = connects.map(|helper| Connector(helper));
            sandbox.has_network = sandbox.connector.is_some();
        }
        Ok(sandbox)
    }

    /// The process that connects to the volume's servers, if not this one.
    pub(crate) fn connector(&self) -> Option<Connector> {
        self.connector
    }

    /// Whether privileges are given up.
    pub(crate) fn is_on(&self) -> bool {
        // Without a helper the mount could not be taken down.
        self.helper_pid.is_some()
    }

    /// Gives up the privileges of the calling thread and of those that it starts later, and all
    /// system calls except those that make a mount and serve it.
    ///
    /// # Errors
    /// `sandbox=on`, and a restriction failed.
    pub(crate) fn enter(&mut self) -> Result {
        match self.is_on() {
            true => self.give_away(),
            false => Ok(()),
        }
    }

    fn give_away(&mut self) -> Result {
        let nnp = rustix::thread::set_no_new_privs(true).map_err(Into::into);
        self.no_new_privileges = self.try_to("set no_new_privs", nnp)?.is_some();
        self.capabilities = self.try_to("give capabilities away", capabilities::give_away())?;
        let restricted = testing::without("landlock").and_then(|()| files::restrict());
        if let Some(restricted) = self.try_to("restrict files by Landlock", restricted)? {
            for what in &restricted.lacking {
                let lacks = std::io::Error::other("the kernel is older");
                self.try_to::<()>(&format!("restrict {what} by Landlock"), Err(lacks))?;
            }
            self.landlock = Some(restricted.version.clone());
            self.restricted = Some(Arc::new(restricted));
        }
        self.filter(Stage::Mounting).map(drop)
    }

    /// Gives up the system calls that only making the mount needed, for all threads.
    ///
    /// # Errors
    /// `sandbox=on`, and a restriction failed.
    pub(crate) fn seal(&mut self) -> Result {
        if self.is_on() {
            let left = self.filter(Stage::Serving)?;
            self.seccomp = left.map(|n| format!("{n} system calls left"));
        }
        Ok(())
    }

    fn filter(&mut self, stage: Stage) -> Result<Option<usize>> {
        let left = calls::filter(stage, self.has_network);
        // A failure is noted once, at the last stage.
        match stage {
            Stage::Mounting if self.option == Wanted::Auto => Ok(left.ok()),
            _ => self.try_to("filter system calls by seccomp", left),
        }
    }

    /// The result of an attempt `to` do something. After a failure it is `None` with a note if the
    /// mount goes on without it.
    fn try_to<T>(&mut self, to: &str, tried: std::io::Result<T>) -> Result<Option<T>> {
        match tried {
            Ok(done) => Ok(Some(done)),
            Err(e) if self.option == Wanted::On => {
                let message = format!("sandbox=on: cannot {to}: {e}");
                Err(Failure::new(Code::System, message)
                    .hint("mount with sandbox=auto to go without what this system lacks"))
            }
            Err(e) => {
                tracing::info!("sandbox: cannot {to}: {e}");
                self.lacking.push(format!("cannot {to}: {e}"));
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_an_error_or_is_noted() {
        let failed = || Err::<(), _>(std::io::Error::from_raw_os_error(libc::ENOSYS));
        let refused = Sandbox::new(Wanted::On)
            .try_to("fly", failed())
            .unwrap_err();
        assert!(refused.to_string().contains("cannot fly"), "{refused}");
        let mut auto = Sandbox::new(Wanted::Auto);
        assert_eq!(auto.try_to("fly", failed()).unwrap(), None);
        assert_eq!(auto.try_to("walk", Ok(3)).unwrap(), Some(3));
        let shown = serde_json::to_value(&auto).unwrap();
        assert_eq!(shown["option"], "auto");
        let lacking = shown["lacking"][0].as_str().unwrap();
        assert!(
            lacking.starts_with("cannot fly: Function not implemented"),
            "{lacking}"
        );
    }
}
