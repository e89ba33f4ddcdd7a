//! The rows of the matrix: what is special about a volume, its mount, or what a cell holds.

use super::ops::Group::{self, Access, Dir, File, Flags, Held};

/// A row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Features for mke2fs.
    pub(crate) features: &'static str,
    /// Arguments of tune2fs.
    pub(crate) tune: &'static [&'static str],
    /// Mount options.
    pub(crate) options: &'static str,
    /// Flags of `f` and `d` (`EXT4_*_FL`).
    pub(crate) flags: [u32; 2],
    /// Operations to run.
    pub(crate) groups: &'static [Group],
    /// Whether to look what a crash leaves, too.
    pub(crate) crash: bool,
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

/// All rows. What a row's cells do not have of their own they share with the row `plain`.
pub(crate) fn all() -> Vec<Row> {
    let row = |name: &str| Row {
        name: name.into(),
        ..Row::default()
    };
    let mut all = vec![Row {
        groups: &[File, Held, Dir, Access, Flags],
        crash: true,
        ..row(PLAIN)
    }];
    for letters in ["S", "i", "a", "d", "A", "j", "t", "s", "u", "c", "ai", "jS"] {
        all.push(Row {
            flags: [flag(letters), 0],
            groups: &[File, Held, Access],
            crash: letters.contains('S'),
            ..row(&format!("file +{letters}"))
        });
    }
    for letters in [
        "S", "D", "i", "a", "A", "d", "j", "t", "T", "s", "u", "c", "ai", "ScDAdjt",
    ] {
        all.push(Row {
            flags: [0, flag(letters)],
            groups: &[Dir, Access],
            crash: letters.contains(['S', 'D']),
            ..row(&format!("directory +{letters}"))
        });
    }
    for (options, crash) in [("sync", true), ("dirsync", true), ("data=journal", true)] {
        all.push(Row {
            options,
            groups: &[File, Dir],
            crash,
            ..row(&format!("-o {options}"))
        });
    }
    for options in [
        "noatime",
        "nodiratime",
        "strictatime",
        "relatime",
        "lazytime",
        "strictatime,nodiratime",
    ] {
        all.push(Row {
            options,
            groups: &[Access],
            ..row(&format!("-o {options}"))
        });
    }
    for options in [
        "ro",
        "grpid",
        "bsdgroups",
        "nogrpid",
        "sysvgroups",
        "acl",
        "noacl",
        "user_xattr",
        "nouser_xattr",
        "nosuid,nodev,noexec",
        "nobarrier",
        "discard",
        "errors=continue",
        "errors=panic",
        "data=writeback",
    ] {
        all.push(Row {
            options,
            groups: &[File, Dir],
            ..row(&format!("-o {options}"))
        });
    }
    for tune in [
        &["-o", "journal_data"] as &[_],
        &["-E", "mount_opts=data=journal"],
    ] {
        all.push(Row {
            tune,
            groups: &[File],
            crash: true,
            ..row(&format!("tune2fs {}", tune.join(" ")))
        });
    }
    for tune in [
        &["-o", "journal_data_ordered"] as &[_],
        &["-o", "journal_data_writeback"],
        &["-o", "bsdgroups"],
        &["-E", "mount_opts=grpid"],
        &[
            "-o",
            "journal_data,bsdgroups",
            "-E",
            "mount_opts=data=ordered",
        ],
        &["-o", "^acl"],
        &["-o", "^user_xattr"],
        &["-o", "nobarrier"],
        &["-o", "nodelalloc"],
        &["-o", "discard"],
        &["-e", "remount-ro"],
    ] {
        all.push(Row {
            tune,
            groups: &[File, Dir],
            ..row(&format!("tune2fs {}", tune.join(" ")))
        });
    }
    for features in [
        "^extents,^64bit",
        "ea_inode",
        "^dir_index",
        "^metadata_csum",
        "^has_journal",
        "bigalloc,^resize_inode",
    ] {
        all.push(Row {
            features,
            groups: &[File, Dir],
            ..row(&format!("-O {features}"))
        });
    }
    all
}
