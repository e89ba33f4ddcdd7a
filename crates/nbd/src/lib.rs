//! A block device on another machine, by the network block device protocol (NBD).
//!
//! Data that a server may lose in a crash is kept in memory, and is written again first when the
//! server comes back ([`NbdDevice`]). The protocol is the one of
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: fixed newstyle, simple and
//! structured replies.
#![forbid(unsafe_code)]

mod address;
mod claim;
mod connection;
mod device;
mod error;
mod handshake;
mod link;
mod patience;
mod place;
mod stream;
mod tls;
mod unflushed;
mod way;
mod wire;

pub use address::{Address, BadAddress};
pub use device::{NbdDevice, Unconnected};
pub use link::{NbdOptions, NbdState};
pub use place::{Connect, Connector, Route};
