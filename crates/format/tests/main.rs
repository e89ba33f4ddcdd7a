//! Tests of new volumes: e2fsprogs and the kernel are the judges.

#![allow(clippy::unwrap_used)]

mod common;
mod features;
mod kernel;
mod overwriting;
mod sizes;
mod tools;
