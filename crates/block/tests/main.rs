//! Tests of devices through their public interface: one program, a module for each subject.

#![allow(clippy::unwrap_used)]

mod backends;
mod clones;
mod crashes;
mod fail_stop;
mod failures;
mod faults;
mod locks;
mod share;
