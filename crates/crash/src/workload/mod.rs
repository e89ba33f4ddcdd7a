//! Workloads: operations, scripts of them, and the sources of scripts.

pub mod ace;
pub mod feed;
pub mod model;
pub mod named;
pub mod op;
pub mod random;
pub mod script;
pub mod session;
pub mod text;

pub use named::{Case, cases};
pub use op::{Op, bytes};
pub use random::{Bounds, Deed, Family, Generator, Habits, USER, Weights};
pub use script::{Progress, Script};
pub use session::Session;
