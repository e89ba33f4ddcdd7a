//! Models of the journal's concurrency under Shuttle: its own code, in many orders of its steps
//! (docs/crash.md, Models).
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;

mod acks;
mod answers;
mod disk;
mod explore;
mod lanes;
mod memory;
mod records;
mod region;
mod volume;
