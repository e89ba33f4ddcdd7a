//! Mount options that a volume stores (`tune2fs -o`, `tune2fs -E mount_opts=`).

use stetfs_ondisk::ext4::features::Compat;
use stetfs_ondisk::ext4::superblock::{DefaultMountOpts, Superblock};

/// The options in a superblock, in the form of `-o`; those of `tune2fs -o` come first. Only options
/// that a volume may decide count, because it may come from a stranger. Options that weaken
/// durability (`data=writeback`, `nobarrier`) do not: the user must ask for those.
pub(super) fn options_of(sb: &Superblock) -> Vec<&'static str> {
    let flags = sb.default_mount_opts();
    let journals_data = flags & DefaultMountOpts::JMODE_WBACK == DefaultMountOpts::JMODE_DATA;
    let bsd_groups = flags.contains(DefaultMountOpts::BSDGROUPS);
    let discards = flags.contains(DefaultMountOpts::DISCARD);
    let text = String::from_utf8_lossy(sb.mount_opts());
    let journaled = sb.compat().contains(Compat::HAS_JOURNAL);
    [
        journals_data.then_some("data=journal"),
        bsd_groups.then_some("bsdgroups"),
        discards.then_some("discard"),
    ]
    .into_iter()
    .flatten()
    .chain(text.split(',').filter_map(heeded))
    .filter(|option| journaled || !option.starts_with("data="))
    .collect()
}

/// The options that count in a volume's text.
const HEEDED: [&str; 8] = [
    "data=journal",
    "data=ordered",
    "bsdgroups",
    "grpid",
    "sysvgroups",
    "nogrpid",
    "discard",
    "nodiscard",
];

/// The option as a constant, if a volume may store it.
pub fn own_option(option: &str) -> Option<&'static str> {
    HEEDED.into_iter().find(|heeded| *heeded == option)
}

/// The option of a volume's text that counts; `data=writeback` becomes `data=ordered`.
fn heeded(option: &str) -> Option<&'static str> {
    let option = match option {
        "data=writeback" => "data=ordered",
        other => other,
    };
    own_option(option)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use stetfs_testkit::{Image, Mkfs, cmd};

    use crate::low::own_options;

    fn of(mkfs: &Mkfs, flags: &str, text: &str) -> Vec<&'static str> {
        let image = Image::make(8 << 20, mkfs).unwrap();
        let tune = ["-o", flags];
        cmd::run(Command::new("tune2fs").args(tune).arg(image.path())).unwrap();
        if !text.is_empty() {
            // tune2fs accepts a single option only.
            let request = format!("set_super_value mount_opts {text}");
            image.debugfs_write(&request).unwrap();
        }
        own_options(&image.path().into()).unwrap()
    }

    #[test]
    fn those_of_the_text_come_last_and_nothing_dangerous_is_among_them() {
        let text = "data=writeback,nobarrier,journal_path=/dev/sda,grpid,ro";
        let own = of(&Mkfs::new(), "journal_data,discard", text);
        assert_eq!(own, ["data=journal", "discard", "data=ordered", "grpid"]);
        let own = of(&Mkfs::new(), "journal_data_writeback,nobarrier", "");
        assert!(own.is_empty(), "{own:?}");
    }

    #[test]
    fn a_volume_without_a_journal_asks_for_none() {
        let mkfs = Mkfs::new().feature("^has_journal");
        assert_eq!(of(&mkfs, "journal_data,bsdgroups", ""), ["bsdgroups"]);
    }
}
