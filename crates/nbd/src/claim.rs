//! The claim on an export: it keeps this machine's other programs off. A lock on the server is not
//! possible, as NBD has none.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::address::Address;

/// A name in this machine's abstract socket namespace. One process has it at a time, and it ends
/// with that process.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixDatagram,
}

/// Attempts before the name counts as taken. A program that only checks whether the name is free
/// holds it for a moment itself.
const TRIES: u32 = 20;

impl Claim {
    /// # Errors
    /// `AddrInUse` if another program holds the name.
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
