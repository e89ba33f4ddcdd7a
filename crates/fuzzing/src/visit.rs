//! A visitor that continues after errors: it looks at everything, and then makes changes.

mod change;
mod look;

pub use self::change::change;
pub use self::look::{Found, wander};
