//! Tests of the library, in one program: each subject is a module.

#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "the test program is the whole crate")]

mod clones;
mod common;
mod foreign;
mod format;
mod groups;
mod hostile;
mod lanes;
mod large;
mod option_sizes;
mod paths;
mod reentrant;
mod reopen;
mod replay;
