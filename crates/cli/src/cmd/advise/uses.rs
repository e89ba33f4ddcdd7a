//! The uses of volumes, and the preset that served each of them best.

use clap::ValueEnum;
use serde::Serialize;

/// The use of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Use {
    /// Files of all kinds.
    #[default]
    Files,
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgresql,
    /// MariaDB or MySQL, with InnoDB.
    Mariadb,
    /// A mail store.
    Mail,
    /// Logs, queues, key-value stores: small appends, each synced.
    Log,
    /// Volumes that the kernel or e2fsck recovers after a crash, not StetFS.
    Shared,
}

/// The recommended mount of a use.
pub(super) struct Advice {
    /// The options of `mount`.
    pub options: &'static str,
    pub because: &'static str,
    /// The setting of the program that goes with it.
    pub program: Option<&'static str>,
}

impl Use {
    pub(super) fn advice(self) -> Advice {
        match self {
            Use::Files => Advice {
                options: "journal=ordered",
                because: "it is ext4's default, and plain files need no more; after a crash the \
                          kernel and e2fsck replay the log, too",
                program: None,
            },
            Use::Shared => Advice {
                options: "journal=ordered",
                because: "the kernel and e2fsck replay its log; they also replay that of \
                          journal=data, which keeps blocks whole and writes data twice",
                program: None,
            },
            Use::Sqlite => Advice {
                options: "journal=ijournal",
                because: "in WAL mode it made 1.7 to 2.2 times the transactions of the kernel's \
                          ext4, in DELETE mode .79 to .99 of them (docs/speed.md)",
                program: Some(
                    "PRAGMA journal_mode=WAL; synchronous=FULL, because NORMAL syncs the log at \
                     checkpoints only",
                ),
            },
            Use::Postgresql => Advice {
                options: "journal=ldj,direct_io",
                because: "each write of a page is whole or absent after a crash, so PostgreSQL \
                          need not log whole pages; without that gain no preset is as fast as the \
                          kernel's ext4 (docs/schemes/ldj.md)",
                program: Some(
                    "full_page_writes=off is safe on this mount, and only while it has these options",
                ),
            },
            Use::Mariadb => Advice {
                options: "journal=ldj,direct_io",
                because: "each write of a page is whole or absent after a crash, so InnoDB need \
                          not write its pages twice (docs/schemes/ldj.md)",
                program: Some(
                    "innodb_doublewrite=OFF is safe on this mount, and only while it has these options",
                ),
            },
            Use::Mail => Advice {
                options: "journal=ordered",
                because: "many small files of many clients share commits; of all presets it came \
                          nearest to the kernel's ext4, .52 to .80 of it with 16 threads \
                          (docs/speed.md)",
                program: None,
            },
            Use::Log => Advice {
                options: "journal=stet",
                because: "an append and its sync took .45 to .51 of the time that the kernel's \
                          ext4 needs, and wait for no other file; journal=ijournal (.48 to .55) is \
                          older, and journals no data (docs/speed.md)",
                program: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stetfs::low::Composition;

    /// Each recommended journal can be mounted.
    #[test]
    fn each_use_has_a_journal_that_there_is() {
        for of in Use::value_variants() {
            let options = of.advice().options;
            let journal = options.split(',').find_map(|o| o.strip_prefix("journal="));
            assert!(
                journal.is_some_and(|j| j.parse::<Composition>().is_ok()),
                "{of:?}"
            );
        }
    }
}
