//! A visitor who is not put off by errors: looks at everything, then changes something.

mod change;
mod look;

pub use self::change::change;
pub use self::look::{Found, wander};
