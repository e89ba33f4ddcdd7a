//! Volumes as a whole: what the kernel leaves for us, what we leave for it, and sizes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod damage;
mod external;
mod faults;
mod inline;
mod mmp;
mod orphans;
mod reads;
mod sealed;
mod sizes;
