//! The decision whether requests come by io_uring.

use crate::mount::uring_switch::{self, Moment};
use crate::mount::{MountError, is_root};
use crate::server::options::{IoUring, ServeOptions};
use crate::transport::ring::{self, Rings};

/// With more queues than this the default is not to use io_uring: each queue takes two threads.
const MANY_QUEUES: u16 = 64;

/// Rings for a connection that may use them, made while this process may make rings.
pub(super) fn rings(options: &ServeOptions) -> Rings {
    let is_few = ring::queues().is_ok_and(|n| n <= MANY_QUEUES);
    let may_be = match options.io_uring {
        IoUring::Off => false,
        IoUring::On => true,
        IoUring::Auto => is_few && uring_switch::is_known() && (is_root() || uring_switch::is_on()),
    };
    let prepared = may_be.then(|| Rings::prepare(options.n_threads()));
    let prepared = prepared.transpose().inspect_err(|e| {
        tracing::debug!("no rings for the connection: {e}");
    });
    prepared.ok().flatten().unwrap_or_default()
}

/// The decision about io_uring before a mount.
pub(super) struct UringChoice {
    /// Keeps the kernel's switch on as long as it is held.
    pub(super) moment: Option<Moment>,
    /// The reason why io_uring is not requested.
    pub(super) why_not: Option<String>,
}

impl UringChoice {
    pub(super) fn of(wanted: IoUring) -> Result<UringChoice, MountError> {
        let yes = |moment| UringChoice {
            moment,
            why_not: None,
        };
        let no = |why: String| UringChoice {
            moment: None,
            why_not: Some(why),
        };
        match wanted {
            IoUring::Off => Ok(no("io_uring=off".to_owned())),
            IoUring::On => match uring_switch::for_good() {
                Err(e) if !uring_switch::is_on() => Err(MountError::IoUring(e)),
                _ => Ok(yes(None)),
            },
            IoUring::Auto => Ok(match ring::queues() {
                Ok(n) if n > MANY_QUEUES => no(format!(
                    "{n} processors need as many queues; use io_uring=on to allow it"
                )),
                Err(e) => no(e.to_string()),
                Ok(_) => match uring_switch::for_a_moment() {
                    Ok(moment) => yes(Some(moment)),
                    // This process may not turn it on; but it may be on.
                    Err(_) if uring_switch::is_on() => yes(None),
                    Err(e) => no(format!("{}: {e}", uring_switch::PATH)),
                },
            }),
        }
    }
}
