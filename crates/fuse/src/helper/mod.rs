//! The helper: a process that keeps the rights that the server of a mount gives away
//! (decisions/0028, 0039). It changes that one mount, connects to the volume's servers, and looks
//! up facts about callers.
//!
//! A process cannot regain privileges, and system calls such as execve(2), once it has given them
//! away. But a mount is unmounted in the end, a lost network block device is reconnected, and some
//! facts about callers are only in `/proc`. So a second process keeps these rights, without a
//! descriptor of the volume or of the connection, and does these few things when the server asks.
//!
//! It trusts what the server says before the volume is read, and nothing later: it learns of the
//! mount from the process that makes it. The orders and questions that it accepts are all that a
//! compromised server could do through it.
//!
//! It ends with the server, when its sockets are closed.

pub(crate) mod caller;
pub(crate) mod calls;
mod change;
mod client;
mod message;
mod process;

pub(crate) use self::client::ours;
pub use self::client::{HELPER, Helper, hush, start_helper};
pub(crate) use self::message::{Answer, Order, Question, about, facts, read_about};
pub use self::process::helper;
