//! What `-o` says of servers of network block devices.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stetfs::low::{NbdAddress, NbdOptions};

/// The options.
pub(crate) const NAMES: [&str; 2] = ["nbd_connections", "nbd_reconnect"];

/// Connections at most.
const CONNECTIONS: usize = 16;

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
            options.timeout = Duration::from_secs(seconds.into());
        }
    }
    Ok(())
}

/// The servers that a mount needs: those of its volume and of its journal.
pub(crate) fn servers(paths: &[Option<&Path>]) -> Vec<NbdAddress> {
    let parsed = paths.iter().flatten().filter_map(|path| address(path));
    parsed.collect()
}

fn address(path: &Path) -> Option<NbdAddress> {
    path.to_str()?.parse().ok()
}

/// The path of the socket that an address names, if it is one.
pub(crate) fn socket(path: &Path) -> Option<PathBuf> {
    address(path)?.socket().map(Into::into)
}
