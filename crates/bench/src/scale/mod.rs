//! Loads on many simulated cores, in virtual time: how StetFS scales on machines that are not here.
//!
//! The code that runs is that of the library; its threads run one at a time, in the order of
//! virtual time, and the device is a model (decisions/0046). Without the cargo feature `virtual`
//! the locks know no virtual time, and the command only says how to build it.

mod args;
mod command;
mod report;
#[cfg(feature = "virtual")]
mod run;

pub use args::{Load, ScaleArgs};
pub use report::{Compared, Row, ScaleReport, WaitedFor};
