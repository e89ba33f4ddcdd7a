//! Tests of the file system on volumes in memory, in one program: each subject is a module.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod data;
mod kinds;
mod names;
mod volume;
