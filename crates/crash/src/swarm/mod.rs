//! The swarm: runs that draw everything, so that every pair of features meets.
//!
//! Each workload of the lab fixes most of what could differ, and what was lost in the past was lost
//! where two features met that no test had brought together. A run of the swarm draws an answer to
//! each question ([`dimension`]): the volume, its features and how full it is, the journal with its
//! parts and options, threads, a subset of the operations with weights, and faults. What was drawn
//! is a [`plan`]; its seed gives it again.
//!
//! * [`volume`] makes the volume, [`run`] has the threads work on it, mount by mount;
//! * [`feed`] draws the operations and compares what the volume shows with the model, without a
//!   crash; [`refusal`] says which of them the volume may refuse;
//! * [`states`] draws crashes of the record and has the lab's oracles judge them;
//! * `fault` is the device that fails meanwhile, `transport` the way to it;
//! * [`pulse`] tells of what hangs; [`coverage`] counts the pairs that met, and [`cover`] makes
//!   plans by which all of them do;
//! * `shrink` makes a plan that failed plain; [`command`] is the command line.
//!
//! Kills of StetFS itself and mounts are to come: work is driven by feeds whatever the transport.

pub mod command;
pub mod cover;
pub mod coverage;
pub mod dimension;
mod fault;
pub mod feed;
pub mod plan;
pub mod pulse;
pub mod refusal;
pub mod run;
mod shrink;
pub mod states;
mod transport;
pub mod volume;
