//! The mounter: a process that makes the one mount, and never reads the volume (decisions/0039).
//!
//! Mounting needs privileges, and so do the kernel's switch for io_uring, a loop device and the
//! kernel's read-ahead limit. The server gives its own privileges away before it reads the volume,
//! and the mount comes after that. So an earlier copy of the server waits with the plan: everything
//! that does not depend on the volume. It gets the rest once ([`Late`]), mounts, passes the
//! connection, and ends when the kernel has the server's answer to INIT.
//!
//! It stays in the mount namespace of the user, which the server leaves (decisions/0025), and
//! closes its descriptor of the connection once the server has it.

mod client;
mod message;
mod plan;
mod process;
mod uring;

pub use self::client::Mounter;
pub use self::plan::{Entrance, Plan};
pub(crate) use self::plan::{Late, Stood};
