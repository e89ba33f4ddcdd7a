//! Write-back in the background, and blocks that are hidden after their data could not be written.

pub(in crate::data) mod lost;
#[cfg(test)]
mod lost_tests;
pub(in crate::data) mod write_back;
