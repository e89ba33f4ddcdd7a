//! What `-o` says of servers of network block devices.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stetfs::low::{NbdAddress, NbdOptions};

/// The options.
pub(crate) const NAMES: [&str; 3] = ["nbd_connections", "nbd_reconnect", "nbd_answer"];

/// Connections at most.
const CONNECTIONS: usize = 16;

/// The files that say which addresses hosts have.
const NAMES_OF_HOSTS: [&str; 3] = ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"];

/// Reads one of the options. What is wrong is a sentence without its subject, the option.
pub(crate) fn set(
    name: &str,
    value: Option<&str>,
    options: &mut NbdOptions,
) -> std::result::Result<(), String> {
    match name {
        "nbd_connections" => {
            let n = value.and_then(|v| v.parse().ok());
            let n = n.filter(|n| (1..=CONNECTIONS).contains(n));
            options.connections = n.ok_or(format!("must be a number from 1 to {CONNECTIONS}"))?;
        }
        _ => {
            let seconds = value.and_then(|v| v.parse::<u32>().ok());
            let seconds = seconds.ok_or("must be a number of seconds, such as 60")?;
            let time = Duration::from_secs(seconds.into());
            match name {
                "nbd_reconnect" => options.timeout = time,
                // As long as it takes.
                _ if seconds == 0 => options.answer = Duration::MAX,
                _ => options.answer = time,
            }
        }
    }
    Ok(())
}

/// The servers that a mount needs: those of its volume and of its journal.
pub(crate) fn servers(paths: &[Option<&Path>]) -> Vec<NbdAddress> {
    let parsed = paths
        .iter()
        .flatten()
        .filter_map(|path| path.to_str()?.parse().ok());
    parsed.collect()
}

/// The files by which servers are found: their sockets, and what says which addresses their hosts
/// have. In a container each of these may be a mount of its own.
pub(crate) fn ways(servers: &[NbdAddress]) -> Vec<PathBuf> {
    let sockets = servers.iter().filter_map(NbdAddress::socket);
    let is_by_name = servers.iter().any(|server| server.socket().is_none());
    let names = NAMES_OF_HOSTS.iter().filter(|_| is_by_name).map(Path::new);
    sockets.chain(names).map(Path::to_owned).collect()
}
