//! The command line of the laboratory.

mod certify;
mod device;
mod measure;

pub(crate) use certify::CertifyArgs;
pub(crate) use device::{Device, DeviceFaultArgs, DeviceServeArgs, FlashArgs};
pub(crate) use measure::{Bench, Flash, FlashTrace, RecordArgs};

use clap::Subcommand;
use stetfs_crash::command::CrashCommand;

/// The commands beside those of `stetfs`. The server's program lists them with the same names and
/// help texts ([`stetfs_cli::Laboratory`]).
#[derive(Debug, Subcommand)]
pub(crate) enum Laboratory {
    /// Check whether a volume, or the mount at a directory, keeps its promises here, and write a
    /// page about it: the storage below it, the cost of syncs, the effects of a device error and of
    /// power cuts. Changes nothing of a volume; on a mount, makes files and removes them.
    Certify(CertifyArgs),
    /// Run benchmarks.
    #[command(subcommand)]
    Bench(Bench),
    /// Explore the states that power cuts can leave behind, and check them.
    #[command(subcommand)]
    Crash(Box<CrashCommand>),
    /// Provide simulated devices.
    #[command(subcommand)]
    Device(Device),
    /// Run traces through page caches and simulated flash.
    #[command(subcommand)]
    Flash(Flash),
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    fn commands<C: Subcommand>() -> Vec<(String, String)> {
        let all = C::augment_subcommands(Command::new("stetfs"));
        let sentence = |c: &Command| c.get_about().map(ToString::to_string).unwrap_or_default();
        let named = |c: &Command| (c.get_name().to_owned(), sentence(c));
        all.get_subcommands().map(named).collect()
    }

    /// The server's program lists exactly the commands of the laboratory.
    #[test]
    fn the_server_names_these_commands() {
        let commands = commands::<Laboratory>();
        assert_eq!(commands.len(), 5);
        assert_eq!(commands, self::commands::<stetfs_cli::Laboratory>());
    }
}
