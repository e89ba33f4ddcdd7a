//! Capabilities: once its files are open, a server needs almost none of root's.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The capability that is kept: without it io_uring charges the memory of its rings to a limit per
/// user, over all of the user's processes.
const KEPT: CapabilitySet = CapabilitySet::IPC_LOCK;

/// Gives up all others, for good, and describes what is left.
pub(super) fn give_away() -> io::Result<String> {
    // The bounding set limits what executed programs can get. Changing it takes CAP_SETPCAP, so
    // this comes first; without that capability no program can get more.
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Beyond the last capability of this kernel, or without the right to change the set.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(e) => return Err(e.into()),
        }
    }
    let left = rustix::thread::capabilities(None)?.permitted & KEPT;
    let sets = CapabilitySets {
        effective: left,
        permitted: left,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    let names: Vec<String> = left
        .iter_names()
        .map(|(name, _)| name.to_lowercase())
        .collect();
    Ok(match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    })
}
