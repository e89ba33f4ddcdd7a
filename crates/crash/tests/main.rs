//! Tests of the crash lab, in one program: each subject is a module.

#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "the test program is the whole crate")]

mod drawn;
mod explore;
mod foreign;
mod layers;
mod pairs;
mod room;
mod stress;
mod swarm;
