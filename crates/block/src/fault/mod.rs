//! A device that fails on command.

mod injector;
mod plan;
mod verdict;

pub use injector::FaultInjector;
pub use plan::Fault;
pub(crate) use verdict::refused;
