//! Tests of regions of persistent memory, in one program: each subject is a module.

#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "the test program is the whole crate")]

mod crashes;
mod regions;
