//! The swarm: runs that draw everything, so that every pair of features meets.
//!
//! The lab's other workloads fix most of what could differ. But past failures occurred where two
//! features met that no test had combined. A run of the swarm draws a value for each [`dimension`]:
//! the volume, its features and its fullness, the journal with its parts and options, threads, a
//! subset of the operations with weights, and faults. The values of a run are its [`plan`]; the
//! seed gives the same plan again.
//!
//! * [`volume`] makes the volume with its `history`, and [`run`] has the threads work on it, mount
//!   by mount;
//! * [`feed`] draws the operations and compares the volume with the model, without a crash;
//!   [`refusal`] says which operations the volume may refuse;
//! * [`states`] draws crashes of the recording and has the lab's oracles judge them;
//! * `fault` is the device that fails meanwhile, `transport` the way to it;
//! * [`pulse`] finds threads that hang; [`coverage`] counts the pairs that met, and [`cover`] makes
//!   plans by which all of them meet;
//! * `shrink` simplifies a plan that failed; [`command`] is the command line.
//!
//! Not covered yet: kills of the StetFS process, and work on mounts. The feeds do not depend on the
//! transport.

pub mod command;
pub mod cover;
pub mod coverage;
pub mod dimension;
mod fault;
pub mod feed;
mod history;
pub mod plan;
pub mod pulse;
pub mod refusal;
pub mod run;
mod shrink;
pub mod states;
mod transport;
pub mod volume;
