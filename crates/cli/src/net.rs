//! The servers of network block devices that a mount needs.

use std::path::{Path, PathBuf};

use stetfs::low::NbdAddress;

/// The files that determine the addresses of hosts.
const NAMES_OF_HOSTS: [&str; 3] = ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"];

/// The servers that a mount needs: those of its volume and of its journal.
pub(crate) fn servers(paths: &[Option<&Path>]) -> Vec<NbdAddress> {
    let parsed = paths
        .iter()
        .flatten()
        .filter_map(|path| path.to_str()?.parse().ok());
    parsed.collect()
}

/// The files by which servers are found: their sockets, and the files that resolve their host
/// names. In a container each of these may be a mount of its own.
pub(crate) fn ways(servers: &[NbdAddress]) -> Vec<PathBuf> {
    let sockets = servers.iter().filter_map(NbdAddress::socket);
    let is_by_name = servers.iter().any(|server| server.socket().is_none());
    let names = NAMES_OF_HOSTS.iter().filter(|_| is_by_name).map(Path::new);
    sockets.chain(names).map(Path::to_owned).collect()
}
