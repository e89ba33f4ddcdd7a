//! Tests on real mounts, in one program: each subject is a module, and `scripts/run-tests` runs
//! each test in a process of its own. README.md describes them.

#![allow(clippy::unwrap_used)]

mod atomic;
mod bits;
mod bmap;
mod building;
mod cache_policy;
mod calls;
mod commands;
mod common;
mod connection;
mod copying;
mod cost;
mod damage;
mod durability;
mod editing;
mod fast_commit;
mod files;
mod flags;
mod flushes;
mod freeze;
mod fsx;
mod graph;
mod idmap;
mod interop;
mod kernel_crash;
mod laboratory;
mod language;
mod layering;
mod ldj;
mod limits;
mod log;
mod manual;
mod memory;
mod mkfs;
mod mount_options;
mod namespaces;
mod nbd;
mod opens;
mod packaging;
mod parts;
mod pjdfstest;
mod programs;
mod quota;
mod recovery;
mod remount;
mod repeat;
mod robust;
mod rules;
mod sandbox;
mod scale;
mod security;
mod soak;
mod sources;
mod sparse;
mod sqlite;
mod stat;
mod stress;
mod system;
mod told;
mod walks;

/// The tested program.
const BINARY: &str = env!("CARGO_BIN_EXE_stetfs");
