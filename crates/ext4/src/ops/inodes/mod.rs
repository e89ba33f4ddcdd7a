//! Inodes: making, holding and deleting them, and their owners.

mod create;
mod delete;
mod hold;
mod open;
mod owner;

pub(crate) use create::NewFile;
pub use open::{OpenInode, OpenRef};
