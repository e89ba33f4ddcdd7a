//! The address of an export, as a URI (the NBD project's `doc/uri.md`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The default port of NBD servers.
const PORT: u16 = 10809;

/// The escape set for paths and queries that this module prints.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'-')
    .remove(b'_');

/// An export of a server: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`; with TLS
/// `nbds://` and `nbds+unix://`, and `tls-certificates=DIRECTORY` in the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(crate) endpoint: Endpoint,
    /// The export's name; the server's default export if empty.
    pub(crate) export: String,
    pub(crate) tls: Option<Certificates>,
}

/// The endpoint that the server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A host name or IP address without brackets, and a port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The certificates for TLS: those to trust and those to present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificates {
    /// The directory with `ca-cert.pem` and, where the server asks for a client certificate,
    /// `client-cert.pem` and `client-key.pem`.
    pub(crate) directory: PathBuf,
    /// The name that the server's certificate must have, if not the host's.
    pub(crate) hostname: Option<String>,
}

/// The error for a text that is no address of an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text} is not the address of an NBD export: {reason}")]
pub struct BadAddress {
    text: String,
    reason: String,
}

impl Address {
    /// Whether a path is meant as an address, valid or not.
    pub fn is_meant(path: &Path) -> bool {
        path.to_str().and_then(scheme).is_some()
    }

    /// Whether the connection uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The path of the socket, for a Unix socket.
    pub fn socket(&self) -> Option<&Path> {
        match &self.endpoint {
            Endpoint::Unix(path) => Some(path),
            Endpoint::Tcp(..) => None,
        }
    }

    /// The port, for TCP.
    pub fn port(&self) -> Option<u16> {
        match &self.endpoint {
            Endpoint::Unix(_) => None,
            Endpoint::Tcp(_, port) => Some(*port),
        }
    }

    /// The text that identifies the export: the address without its TLS settings.
    pub(crate) fn identity(&self) -> String {
        Address {
            tls: None,
            ..self.clone()
        }
        .to_string()
    }
}

/// The scheme of an address (is it a Unix socket? with TLS?) and the rest of the text.
fn scheme(text: &str) -> Option<(bool, bool, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let (is_unix, is_tls) = match scheme {
        "nbd" => (false, false),
        "nbds" => (false, true),
        "nbd+unix" => (true, false),
        "nbds+unix" => (true, true),
        _ => return None,
    };
    Some((is_unix, is_tls, rest))
}

fn decoded(text: &str) -> Result<String, String> {
    let bytes = percent_decode_str(text).decode_utf8();
    bytes
        .map(|s| s.into_owned())
        .map_err(|_| format!("{text} is not valid UTF-8"))
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        parse(text).map_err(|reason| BadAddress {
            text: text.to_owned(),
            reason,
        })
    }
}

fn parse(text: &str) -> Result<Address, String> {
    let (is_unix, is_tls, rest) =
        scheme(text).ok_or("it begins with none of nbd://, nbds://, nbd+unix://, nbds+unix://")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (mut socket, mut directory, mut hostname) = (None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = Some(decoded(value)?).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| format!("{name}= needs a value"))?;
        match name {
            "socket" if is_unix => socket = Some(absolute(value)?),
            "tls-certificates" if is_tls => directory = Some(absolute(value)?),
            "tls-hostname" if is_tls => hostname = Some(value),
            "tls-certificates" | "tls-hostname" => {
                return Err(format!("{name}= is for nbds:// and nbds+unix://"));
            }
            _ => return Err(format!("it has no parameter {name}")),
        }
    }
    let endpoint = match (is_unix, socket) {
        (false, _) => tcp(authority)?,
        (true, _) if !authority.is_empty() => {
            return Err(
                "a socket has no host: use three slashes, nbd+unix:///EXPORT?socket=PATH".into(),
            );
        }
        (true, Some(path)) => Endpoint::Unix(path),
        (true, None) => return Err("socket=PATH is missing".into()),
    };
    let tls = match (is_tls, directory) {
        (false, _) => None,
        (true, None) => {
            return Err("tls-certificates=DIRECTORY is missing: the one with ca-cert.pem and, where the server asks for them, client-cert.pem and client-key.pem".into());
        }
        (true, Some(directory)) => Some(Certificates {
            directory,
            hostname,
        }),
    };
    if tls
        .as_ref()
        .is_some_and(|tls| is_unix && tls.hostname.is_none())
    {
        return Err(
            "tls-hostname=NAME is missing: a socket has no name that a certificate could have"
                .into(),
        );
    }
    Ok(Address {
        endpoint,
        export: decoded(export)?,
        tls,
    })
}

/// The absolute form of a path, valid in any working directory.
fn absolute(path: String) -> Result<PathBuf, String> {
    std::path::absolute(&path).map_err(|e| format!("{path}: {e}"))
}

fn tcp(authority: &str) -> Result<Endpoint, String> {
    if authority.contains('@') {
        return Err("an NBD address has no user name".into());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the bracket is not closed")?;
            let port = port.strip_prefix(':').or(port.is_empty().then_some(""));
            (host, port.ok_or("only :PORT may follow the bracket")?)
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    let port = match port {
        "" => PORT,
        port => port
            .parse()
            .map_err(|_| format!("{port} is not a port number"))?,
    };
    Ok(Endpoint::Tcp(decoded(host)?, port))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
        let path = |path: &Path| escaped(&path.to_string_lossy());
        f.write_str(match self.tls {
            Some(_) => "nbds",
            None => "nbd",
        })?;
        let mut query = Vec::new();
        match &self.endpoint {
            Endpoint::Tcp(host, port) => {
                match host.contains(':') {
                    true => write!(f, "://[{host}]")?,
                    false => write!(f, "://{}", escaped(host))?,
                }
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
            }
            Endpoint::Unix(socket) => {
                f.write_str("+unix://")?;
                query.push(format!("socket={}", path(socket)));
            }
        }
        write!(f, "/{}", escaped(&self.export))?;
        if let Some(tls) = &self.tls {
            query.push(format!("tls-certificates={}", path(&tls.directory)));
            let name = tls.hostname.as_ref();
            query.extend(name.map(|name| format!("tls-hostname={}", escaped(name))));
        }
        match query.is_empty() {
            true => Ok(()),
            false => write!(f, "?{}", query.join("&")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_read_and_written() {
        for (text, host, port, export) in [
            ("nbd://there", "there", 10809, ""),
            ("nbd://there/", "there", 10809, ""),
            ("nbd://there:10810/disk", "there", 10810, "disk"),
            ("nbd://[fe80::1]:7/a/b%20c", "fe80::1", 7, "a/b c"),
            ("nbd://10.0.0.1/d", "10.0.0.1", 10809, "d"),
        ] {
            let address = parsed(text);
            assert_eq!(address.endpoint, Endpoint::Tcp(host.into(), port), "{text}");
            assert_eq!(address.export, export, "{text}");
            assert_eq!(parsed(&address.to_string()), address, "{text}");
        }
        let unix = parsed("nbd+unix:///d?socket=/run/nbd%20s");
        assert_eq!(unix.socket(), Some(Path::new("/run/nbd s")));
        assert_eq!(unix.to_string(), "nbd+unix:///d?socket=/run/nbd%20s");
        let tls = parsed("nbds://there/d?tls-certificates=/etc/pki&tls-hostname=other");
        let certificates = tls.tls.clone().unwrap();
        assert_eq!(certificates.directory, Path::new("/etc/pki"));
        assert_eq!(certificates.hostname.as_deref(), Some("other"));
        assert_eq!(parsed(&tls.to_string()), tls);
        assert_eq!(tls.identity(), "nbd://there/d");
        let relative = parsed("nbd+unix:///?socket=here");
        assert!(relative.socket().unwrap().is_absolute());
    }

    #[test]
    fn what_is_no_address_says_why() {
        for (text, why) in [
            ("nbd://", "the host is missing"),
            ("nbd:///d", "the host is missing"),
            ("nbd://a:b/d", "b is not a port number"),
            ("nbd://a:99999/d", "99999 is not a port number"),
            ("nbd://[::1/d", "bracket is not closed"),
            ("nbd://u@a/d", "no user name"),
            ("nbd://a/d?what=1", "no parameter what"),
            ("nbd://a/d?socket=/x", "no parameter socket"),
            ("nbd://a/d?tls-certificates=/x", "is for nbds://"),
            ("nbds://a/d", "tls-certificates=DIRECTORY is missing"),
            (
                "nbds+unix:///d?socket=/s&tls-certificates=/x",
                "tls-hostname=NAME is missing",
            ),
            ("nbd+unix://host/d?socket=/x", "three slashes"),
            ("nbd+unix:///d", "socket=PATH is missing"),
            ("nbd+unix:///d?socket=", "socket= needs a value"),
            ("http://a", "begins with none of"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(Address::is_meant(Path::new("nbd://")));
        assert!(!Address::is_meant(Path::new("/nbd://x")));
        assert!(!Address::is_meant(Path::new("ftp://x")));
    }
}
