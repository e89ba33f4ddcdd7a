//! The messages of a server: a line each, with the volume and the process. They go to a file if one
//! is named, else to standard error in the foreground and to syslog in a daemon; to another place
//! where that one takes none.

mod name;
mod place;
mod repeats;

use std::io::{self, IsTerminal};
use std::path::Path;

use tracing::Level;
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::Filter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, Registry};

use crate::failure::{Code, Failure, Result};
use place::{Place, Places};
use repeats::Repeats;

pub(crate) use name::volume_is;
pub(crate) use repeats::{finish, join};

/// The environment variable that selects messages: a level or `TARGET=LEVEL`, separated by commas.
const FILTER: &str = "STETFS_LOG";

/// The modules of a server that tell what becomes of the volume: mounts, recoveries, remounts,
/// unmounts.
const LIFE: [&str; 2] = ["stetfs_cli::serve", "stetfs_ext4::mount"];

/// The filter for these messages; `default` if nothing valid is chosen.
fn filter(chosen: Option<&str>, default: Targets) -> Targets {
    let read = chosen.filter(|text| !text.is_empty());
    read.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Warnings and errors.
fn warnings() -> Targets {
    Targets::new().with_default(Level::WARN)
}

/// The messages of a server that chose none: warnings, errors, and the volume's life.
fn of_server() -> Targets {
    warnings().with_targets(LIFE.map(|module| (module, Level::INFO)))
}

fn chosen() -> Option<String> {
    std::env::var(FILTER).ok()
}

/// Sends messages to this place from now on.
fn go_to<F>(place: impl Layer<Registry> + Send + Sync + 'static, filter: F)
where
    F: Filter<Registry> + Send + Sync + 'static,
{
    // The call fails only if it was done before.
    let _ = tracing_subscriber::registry()
        .with(place.with_filter(filter))
        .try_init();
}

/// Sends messages of a command to standard error.
pub(crate) fn to_stderr() {
    let lines = fmt::layer().with_ansi(io::stderr().is_terminal());
    let filter = filter(chosen().as_deref(), warnings());
    go_to(lines.with_writer(io::stderr), filter);
}

/// The log of a server.
pub(crate) struct ServerLog {
    /// The warning if messages have no place.
    pub(crate) nowhere: Option<String>,
    /// Messages may go to standard error.
    pub(crate) has_stderr: bool,
}

/// Sends messages of a server to the file, if there is one, else to where its user or the system
/// looks for them.
///
/// # Errors
/// The file cannot be opened or created.
pub(crate) fn of(source: &Path, file: Option<&Path>, daemon: bool) -> Result<ServerLog> {
    volume_is(source, "");
    let mut places = Vec::new();
    match (file, daemon) {
        (Some(path), _) => places.push(Place::file(path).map_err(|e| not_opened(path, &e))?),
        (None, false) => places.push(Place::Stderr),
        (None, true) => places.extend(Place::syslog().or_else(Place::kept_stderr)),
    }
    places.extend(Place::kernel().or_else(Place::own_file));
    let has_stderr = places.iter().any(|place| matches!(place, Place::Stderr));
    let nowhere = places.is_empty().then(|| {
        "the messages of this mount have no place: there is neither syslog nor a directory for \
         them; name a file with log_file="
            .to_owned()
    });
    let lines = fmt::layer()
        .with_ansi(false)
        .without_time()
        .with_level(false);
    let filter = filter(chosen().as_deref(), of_server());
    let filter = filter.with_target(repeats::TARGET, Level::INFO);
    go_to(lines.with_writer(Places(places)), filter.and(Repeats));
    Ok(ServerLog {
        nowhere,
        has_stderr,
    })
}

fn not_opened(path: &Path, e: &io::Error) -> Failure {
    let message = format!("cannot open the log file {}: {e}", path.display());
    let hint = match e.raw_os_error() {
        Some(libc::ELOOP) => "it is a symbolic link: name its target",
        _ => "name a file in a directory that is there, and that you may write",
    };
    Failure::new(Code::Usage, message).hint(hint)
}

/// The failure of a remount that names another file.
pub(crate) fn file_stays() -> Failure {
    Failure::new(Code::Usage, "a remount cannot change the log file")
        .hint("unmount it, and mount it again with the other log_file=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_tells_the_life_of_its_volume() {
        let tells = |chosen, module| filter(chosen, of_server()).would_enable(module, &Level::INFO);
        for module in ["stetfs_cli::serve", "stetfs_ext4::mount::open"] {
            assert!(tells(None, module));
            assert!(!tells(Some("warn"), module));
        }
        assert!(!tells(None, "stetfs_block::file"));
    }

    #[test]
    fn messages_are_chosen_by_level_and_by_target() {
        let tells = |chosen, target| {
            let filter = filter(chosen, warnings());
            let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN];
            let mut told = levels.into_iter();
            told.find(|level| filter.would_enable(target, level))
        };
        for (chosen, journal, ext4) in [
            (None, Some(Level::WARN), Some(Level::WARN)),
            (Some(""), Some(Level::WARN), Some(Level::WARN)),
            (Some("loud=7"), Some(Level::WARN), Some(Level::WARN)),
            (Some("debug"), Some(Level::DEBUG), Some(Level::DEBUG)),
            (Some("stetfs_journal=debug"), Some(Level::DEBUG), None),
            (
                Some("info,stetfs_journal=trace"),
                Some(Level::TRACE),
                Some(Level::INFO),
            ),
            (Some("error"), None, None),
        ] {
            let found = ["stetfs_journal::engine", "stetfs_ext4"].map(|t| tells(chosen, t));
            assert_eq!(found, [journal, ext4], "{chosen:?}");
        }
    }
}
