//! The crash lab: what a power cut can leave behind, tried and judged.
//!
//! * [`workload`]: operations, a model of what they do, scripts;
//! * [`work`]: scripts at work on a volume over a recording device;
//! * [`judge`]: whether a state that a crash could leave is one that was promised;
//! * [`tree`], [`volume`]: what a volume shows, and volumes in memory.
//!
//! docs/crash.md is the manual, and tells the model of crashes and the oracles.

pub mod canary;
pub mod command;
pub mod explore;
pub mod judge;
pub mod peers;
pub mod record;
pub mod report;
pub mod setup;
pub mod shrink;
pub mod state;
pub mod tree;
pub mod volume;
pub mod work;
pub mod workload;
