//! Volumes as a whole: what the kernel leaves for us, what we leave for it, and sizes.
#![allow(clippy::unwrap_used)]

mod damage;
mod faults;
mod orphans;
mod sizes;
