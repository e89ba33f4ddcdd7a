//! The crash lab: what a power cut can leave behind, tried and judged.
//!
//! * [`workload`]: operations, a model of what they do, scripts;
//! * [`work`]: scripts at work on a volume over a recording device;
//! * [`record`]: records of that, also as files; [`state`], [`walk`]: the crashes that a record
//!   allows;
//! * [`judge`]: whether a state that a crash could leave is one that was promised;
//! * [`explore`]: the search; [`shrink`], [`report`], [`html`]: what it found, made small and
//!   shown;
//! * [`layers`]: the same search with a flash translation layer, or a log, below the volume;
//! * [`canary`]: planted faults; [`faults`]: misbehaving devices;
//! * [`stress`]: many threads, and kills, failing flushes and cuts in the middle of it;
//! * [`swarm`]: runs that draw everything, so that every pair of features meets;
//! * [`peers`]: real programs, and the kernel's file systems, recorded over FUSE;
//! * [`tree`], [`volume`], [`machine`]: what a volume shows, and volumes in memory; [`setup`]: what
//!   is under test;
//! * [`command`]: the command line.
//!
//! docs/crash.md is the manual, and tells the model of crashes and the oracles.

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
