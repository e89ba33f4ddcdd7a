//! What `-o` says of servers of network block devices.

use std::time::Duration;

use stetfs::low::{Host, NbdAddress, NbdOptions, OpenedDevices};

/// The options.
pub(crate) const NAMES: [&str; 3] = ["nbd_connections", "nbd_reconnect", "nbd_answer"];

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

/// What the server of a mount needs of the network to find a lost server again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    /// Whether there is any.
    pub(crate) is_used: bool,
    /// Ports that TCP is to connect to.
    pub(crate) ports: Vec<u16>,
}

impl Network {
    /// Of devices that are open.
    pub(crate) fn of(devices: &OpenedDevices) -> Network {
        let mut network = Network::default();
        for address in devices
            .hosts()
            .filter_map(Host::export)
            .map(|e| e.address())
        {
            network.is_used = true;
            network.ports.extend(address.port());
        }
        network
    }
}

/// The path of the socket that an address names, if it is one.
pub(crate) fn socket(path: &std::path::Path) -> Option<std::path::PathBuf> {
    let address: NbdAddress = path.to_str()?.parse().ok()?;
    address.socket().map(Into::into)
}
