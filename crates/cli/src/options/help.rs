//! The options of a mount as help and manual pages show them.

use stetfs::low::options::{OptionRow, VOLUME_OPTIONS};
use stetfs::low::{OptionHelp, Preset, options_help, preset};

use super::mount::MOUNT_OPTIONS;

/// Columns of the names, and of a line.
const NAMES: usize = 28;
const LINE: usize = 100;

/// Help of `-o`: the rows of the tables, and the options of journals, which their parts tell.
pub(crate) fn mount_options() -> String {
    let (journal, of_volume): (Vec<_>, Vec<_>) = VOLUME_OPTIONS
        .iter()
        .map(OptionRow::help)
        .partition(|option| option.usage.starts_with("journal="));
    let mut text = String::from("Options, separated by commas:\n");
    let of_mount = MOUNT_OPTIONS.iter().map(OptionRow::help);
    for option in of_volume.into_iter().chain(of_mount) {
        entry(&mut text, &option);
    }
    text.push_str("\nThe journal:\n");
    let presets = Preset::all().into_iter().chain([preset::CUSTOM]);
    let presets = presets.map(|preset| format!("{preset}: {}", preset.help()));
    for mut option in journal {
        option.help.extend(presets.clone());
        entry(&mut text, &option);
    }
    for option in options_help() {
        entry(&mut text, &option);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Names on the left and their help on the right, or below names that are long.
fn entry(text: &mut String, option: &OptionHelp) {
    let mut line = format!("  {}", option.usage);
    if line.len() + 2 > NAMES {
        text.push_str(&line);
        text.push('\n');
        line.clear();
    }
    for said in &option.help {
        for word in said.split(' ') {
            if line.len() < NAMES {
                line = format!("{line:NAMES$}{word}");
            } else if line.len() + 1 + word.len() > LINE {
                text.push_str(&line);
                text.push('\n');
                line = format!("{:NAMES$}{word}", "");
            } else {
                line.push(' ');
                line.push_str(word);
            }
        }
        text.push_str(&line);
        text.push('\n');
        line.clear();
    }
}
