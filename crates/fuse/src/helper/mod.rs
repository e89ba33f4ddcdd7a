//! A process that keeps what the server of a mount gives away (decisions/0028, 0039): it changes
//! that one mount, connects to the volume's servers, and looks at who asks.
//!
//! Privileges, and system calls such as execve(2), are gone for good once a process has given them
//! away; but a mount is taken down in the end, a server of network block devices that was lost is
//! connected to again, and of some callers only `/proc` says what the kernel does not. So a second
//! process stays as the first was, without a descriptor of the volume or of the connection, and
//! does these few things when the server asks.
//!
//! It believes the server what it is told before the volume is looked at, and nothing later: of the
//! mount it hears from the process that makes it. What it can be asked is all that a server taken
//! over could do through it.
//!
//! It ends with the server: when its sockets are closed.

mod client;
mod message;
mod process;

pub(crate) use self::client::ours;
pub use self::client::{HELPER, Helper, hush, start_helper};
pub(crate) use self::message::{Answer, Order, Question, about, facts, read_about};
pub use self::process::helper;
