//! The crash lab: tries the states that a power cut can leave, and judges each.
//!
//! * [`workload`]: operations, a model of what they do, scripts;
//! * [`work`]: runs of scripts on a volume over a recording device;
//! * [`record`]: recordings of such runs, also as files; [`state`], [`walk`]: the crashes that a
//!   recording allows;
//! * [`judge`]: whether a state that a crash could leave is one that was promised;
//! * [`explore`]: the search; [`shrink`], [`report`], [`html`]: its failures, made small and shown;
//! * [`layers`]: the same search with a flash translation layer, or a log, below the volume;
//! * [`canary`]: deliberate faults; [`faults`]: misbehaving devices;
//! * [`stress`]: many threads, and kills, failing flushes and cuts meanwhile;
//! * [`swarm`]: runs that draw everything, so that every pair of features meets;
//! * [`peers`]: real programs, and the kernel's file systems, recorded over FUSE;
//! * [`tree`]: the tree of a volume; [`volume`], [`machine`]: volumes in memory; [`setup`]: the
//!   journal and the volume under test;
//! * [`command`]: the command line.
//!
//! docs/crash.md is the manual. It describes the crash model and the oracles.

mod answer;
pub mod canary;
pub mod certify;
pub mod command;
pub mod explore;
pub mod faults;
pub mod html;
pub mod judge;
pub mod layers;
pub mod machine;
mod marks;
mod newest;
mod outside;
pub mod peers;
mod progress;
pub mod record;
pub mod report;
pub mod setup;
pub mod shrink;
pub mod state;
pub mod stress;
pub mod swarm;
pub mod tree;
pub mod volume;
pub mod walk;
pub mod work;
pub mod workload;
