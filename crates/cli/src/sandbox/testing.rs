//! Failures for tests: a kernel that lacks a feature.

use std::io;

/// Fails if a test says that the kernel has no `what`; never in a release.
pub(super) fn without(what: &str) -> io::Result<()> {
    let lacks = cfg!(debug_assertions)
        && std::env::var_os("STETFS_TEST_WITHOUT").is_some_and(|name| name == what);
    match lacks {
        true => Err(io::ErrorKind::Unsupported.into()),
        false => Ok(()),
    }
}
