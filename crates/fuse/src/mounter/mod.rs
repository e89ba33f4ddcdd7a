//! The mounter: a process that makes the one mount, and never reads the volume (decisions/0039).
//!
//! To mount takes privileges, and so do the kernel's switch for io_uring, a loop device and what
//! the kernel reads ahead. The server gives its own away before it looks at the volume, and the
//! mount comes after that. So a copy of the server, from before, waits with the plan: all that
//! does not depend on the volume. It is told once what does ([`Late`]), mounts, passes the
//! connection, and ends when the kernel has the server's answer to INIT.
//!
//! It stays in the mount namespace of the one who mounts, which the server leaves (decisions/0025),
//! and has no descriptor of the connection once the server has it.

mod client;
mod message;
mod plan;
mod process;
mod uring;

pub use self::client::Mounter;
pub use self::plan::{Entrance, Plan};
pub(crate) use self::plan::{Late, Stood};
