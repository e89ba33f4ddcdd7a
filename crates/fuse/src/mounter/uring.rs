//! Whether requests come by io_uring.

use crate::mount::{MountError, is_root};
use crate::serve_options::{IoUring, ServeOptions};
use crate::uring_switch::{self, Moment};
use crate::wire::{self, Rings};

/// More queues than this are not made unasked: each takes two threads.
const MANY_QUEUES: u16 = 64;

/// Rings for a connection that may have use for them, made while this process may make some.
pub(super) fn rings(options: &ServeOptions) -> Rings {
    let is_few = wire::queues().is_ok_and(|n| n <= MANY_QUEUES);
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

/// What was found out about io_uring before a mount.
pub(super) struct UringChoice {
    /// The kernel's switch is on as long as this is held.
    pub(super) moment: Option<Moment>,
    /// Why it is not asked for.
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
            IoUring::Auto => Ok(match wire::queues() {
                Ok(n) if n > MANY_QUEUES => no(format!("{n} processors; io_uring=on takes it")),
                Err(e) => no(e.to_string()),
                Ok(_) => match uring_switch::for_a_moment() {
                    Ok(moment) => yes(Some(moment)),
                    // Not ours to turn on; but it may be on.
                    Err(_) if uring_switch::is_on() => yes(None),
                    Err(e) => no(format!("{}: {e}", uring_switch::PATH)),
                },
            }),
        }
    }
}
