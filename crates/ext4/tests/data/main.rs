//! File data on volumes in memory: against models, in parallel, out of space, with failing devices.
#![allow(clippy::unwrap_used)]

mod model;
mod volume;
