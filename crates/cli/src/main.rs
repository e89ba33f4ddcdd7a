//! The `stetfs` command.
fn main() {}
