//! Keeping this machine's other programs off. A server knows nothing of locks.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::address::Address;

/// A name in this machine's abstract namespace of sockets, which one process has at a time, and no
/// longer than it lives.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixDatagram,
}

/// Who only looks whether somebody has it has it himself, for a moment.
const TRIES: u32 = 20;

impl Claim {
    /// # Errors
    /// `AddrInUse` if somebody has it.
    pub(crate) fn take(address: &Address) -> io::Result<Claim> {
        let number = xxhash_rust::xxh3::xxh3_64(address.identity().as_bytes());
        let name = SocketAddr::from_abstract_name(format!("stetfs/nbd/{number:016x}"))?;
        let mut tries = 0;
        loop {
            match UnixDatagram::bind_addr(&name) {
                Ok(socket) => return Ok(Claim { _socket: socket }),
                Err(e) if e.kind() != io::ErrorKind::AddrInUse || tries == TRIES => return Err(e),
                Err(_) => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }
}
