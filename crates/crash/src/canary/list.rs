//! The list of all canaries.

use super::fault::{Fault, Lab, Origin};
use super::{checkpoint, commit, data, groups, records, recovery, space};
use crate::judge::promise::Promise;

/// The lab's own canary: the lab expects more than the file system promises.
pub(super) const PROMISE: Fault = Fault {
    name: "promise",
    what: "the lab takes unsynced changes for promised ones",
    from: Origin::Invented,
    set: |spec| spec.promise = Promise::Everything,
    trials: &[Lab::each("", "smoke").trial()],
};

/// All canaries.
pub fn all() -> impl Iterator<Item = &'static Fault> {
    [
        commit::ALL,
        checkpoint::ALL,
        recovery::ALL,
        records::ALL,
        space::ALL,
        data::ALL,
        groups::ALL,
        &[PROMISE],
    ]
    .into_iter()
    .flatten()
}

/// The canary with this name.
///
/// # Errors
/// No canary has this name.
pub fn find(name: &str) -> Result<&'static Fault, String> {
    all().find(|fault| fault.name == name).ok_or_else(|| {
        format!("there is no canary {name:?}; `stetfs crash canaries --list` names them")
    })
}
