//! Capabilities: of those that root has the server needs next to nothing once its files are open.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// What is kept: io_uring counts the memory of its rings against a bound that without it is a
/// user's, for all his processes.
const KEPT: CapabilitySet = CapabilitySet::IPC_LOCK;

/// Gives all others away, for good, and says what is left.
pub(super) fn give_away() -> io::Result<String> {
    // What programs could get that are executed. It takes CAP_SETPCAP, so this comes first; without
    // it none of them gets more.
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Beyond those that this kernel has; or not ours to change.
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
