//! The help on journal options, for the command line, manual pages and documents.

use super::part::{Axis, Part};

/// An option, or a value of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionHelp {
    /// The syntax, such as `chunk=SIZE` or `codec=jbd2|frames`.
    pub usage: String,
    /// The description, in lines.
    pub help: Vec<String>,
}

/// The help on all journal options except the presets.
pub fn options_help() -> Vec<OptionHelp> {
    let mut all = Vec::new();
    for axis in Axis::ALL {
        let parts = Part::of(axis);
        let names: Vec<&str> = parts.iter().map(|p| p.name).collect();
        let mut help = vec![axis.help().to_owned()];
        help.extend(parts.iter().map(|p| format!("{}: {}", p.name, p.help)));
        all.push(OptionHelp {
            usage: format!("{axis}={}", names.join("|")),
            help,
        });
    }
    for part in super::PARTS {
        for option in part.options {
            all.push(OptionHelp {
                usage: format!("{}={}", option.name, option.values),
                help: vec![format!("with {part}: {}", option.help)],
            });
        }
    }
    all
}
