//! The rows of the matrix: special properties of a volume, its mount, or the files of a cell.

use super::ops::Group::{self, Access, Dir, File, Flags, Held};

/// A row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Features for mke2fs.
    pub(crate) features: &'static str,
    /// Arguments of tune2fs.
    pub(crate) tune: &'static str,
    /// Mount options.
    pub(crate) options: &'static str,
    /// Flags of `f` and `d` (`EXT4_*_FL`).
    pub(crate) flags: [u32; 2],
    /// Operations to run.
    pub(crate) groups: &'static [Group],
    /// Whether to check the state after a crash, too.
    pub(crate) crash: bool,
    /// Run only with `STETFS_FLAGS=all`.
    pub(crate) long: bool,
}

pub(crate) const PLAIN: &str = "plain";

/// Letters of chattr(1) and their flags.
const LETTERS: [(&str, u32); 12] = [
    ("s", 0x1),
    ("u", 0x2),
    ("c", 0x4),
    ("S", 0x8),
    ("i", 0x10),
    ("a", 0x20),
    ("d", 0x40),
    ("A", 0x80),
    ("j", 0x4000),
    ("t", 0x8000),
    ("D", 0x1_0000),
    ("T", 0x2_0000),
];

fn flag(letters: &str) -> u32 {
    LETTERS
        .iter()
        .filter(|(l, _)| letters.contains(l))
        .map(|(_, flag)| flag)
        .sum()
}

/// All rows. Operations for which a row has no cells of its own have the cells of the row `plain`.
pub(crate) fn all() -> Vec<Row> {
    let plain = Row {
        groups: &[File, Held, Dir, Access, Flags],
        crash: true,
        ..row(PLAIN, false)
    };
    let mut all = vec![plain];
    all.extend(flags_of_files());
    all.extend(flags_of_directories());
    all.extend(options_of_mounts());
    all.extend(options_of_volumes());
    all
}

fn row(name: &str, long: bool) -> Row {
    Row {
        name: name.into(),
        long,
        groups: &[File, Dir],
        ..Row::default()
    }
}

/// Names, with whether the row of each is run only on demand.
fn each<'a>(always: &[&'a str], on_demand: &[&'a str]) -> Vec<(&'a str, bool)> {
    let always = always.iter().map(|name| (*name, false));
    always
        .chain(on_demand.iter().map(|name| (*name, true)))
        .collect()
}

fn flags_of_files() -> impl Iterator<Item = Row> {
    let flags = each(
        &["S", "i", "a", "A", "j"],
        &["d", "t", "s", "u", "c", "ai", "jS"],
    );
    flags.into_iter().map(|(letters, long)| Row {
        flags: [flag(letters), 0],
        groups: &[File, Held, Access],
        crash: letters.contains('S'),
        ..row(&format!("file +{letters}"), long)
    })
}

fn flags_of_directories() -> impl Iterator<Item = Row> {
    let flags = each(
        &["S", "D", "i", "a", "A", "T"],
        &["d", "j", "t", "s", "u", "c", "ai", "ScDAdjt"],
    );
    flags.into_iter().map(|(letters, long)| Row {
        flags: [0, flag(letters)],
        groups: &[Dir, Access],
        crash: letters.contains(['S', 'D']),
        ..row(&format!("directory +{letters}"), long)
    })
}

fn options_of_mounts() -> impl Iterator<Item = Row> {
    let synchronous = each(&["sync", "dirsync"], &["data=journal"]);
    let synchronous = synchronous.into_iter().map(|(options, long)| Row {
        options,
        crash: true,
        ..row(&format!("-o {options}"), long)
    });
    let access = [
        "noatime",
        "nodiratime",
        "strictatime",
        "relatime",
        "lazytime",
    ];
    let access = each(&access, &["strictatime,nodiratime"]);
    let access = access.into_iter().map(|(options, long)| Row {
        options,
        groups: &[Access],
        ..row(&format!("-o {options}"), long)
    });
    let others = each(
        &[
            "ro",
            "grpid",
            "noacl",
            "nouser_xattr",
            "nosuid,nodev,noexec",
        ],
        &[
            "bsdgroups",
            "nogrpid",
            "sysvgroups",
            "acl",
            "user_xattr",
            "nobarrier",
            "discard",
            "errors=continue",
            "errors=panic",
            "data=writeback",
        ],
    );
    let others = others.into_iter().map(|(options, long)| Row {
        options,
        ..row(&format!("-o {options}"), long)
    });
    synchronous.chain(access).chain(others)
}

fn options_of_volumes() -> impl Iterator<Item = Row> {
    let journaled = each(&["-o journal_data"], &["-E mount_opts=data=journal"]);
    let journaled = journaled.into_iter().map(|(tune, long)| Row {
        tune,
        groups: &[File],
        crash: true,
        ..row(&format!("tune2fs {tune}"), long)
    });
    let tuned = each(
        &["-E mount_opts=grpid"],
        &[
            "-o journal_data_ordered",
            "-o journal_data_writeback",
            "-o bsdgroups",
            "-o journal_data,bsdgroups -E mount_opts=data=ordered",
            "-o ^acl",
            "-o ^user_xattr",
            "-o nobarrier",
            "-o nodelalloc",
            "-o discard",
            "-e remount-ro",
        ],
    );
    let tuned = tuned.into_iter().map(|(tune, long)| Row {
        tune,
        ..row(&format!("tune2fs {tune}"), long)
    });
    let made = each(
        &["^extents,^64bit"],
        &[
            "ea_inode",
            "^dir_index",
            "^metadata_csum",
            "^has_journal",
            "bigalloc,^resize_inode",
        ],
    );
    let made = made.into_iter().map(|(features, long)| Row {
        features,
        ..row(&format!("-O {features}"), long)
    });
    journaled.chain(tuned).chain(made)
}
