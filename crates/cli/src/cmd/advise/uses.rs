//! What programs ask of a volume, and which preset has answered that best.

use clap::ValueEnum;
use serde::Serialize;

/// What the volume is for.
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

/// How to mount for a use.
pub(super) struct Advice {
    /// Options of `mount`.
    pub options: &'static str,
    pub because: &'static str,
    /// What the program itself can be told then.
    pub program: Option<&'static str>,
}

impl Use {
    pub(super) fn advice(self) -> Advice {
        match self {
            Use::Files => Advice {
                options: "journal=ordered",
                because: "it is ext4's own, and nothing here asks for more; after a crash the kernel and e2fsck \
                          replay the log, too",
                program: None,
            },
            Use::Shared => Advice {
                options: "journal=ordered",
                because: "the kernel and e2fsck replay its log; journal=data is the other one that they do, with \
                          whole blocks and twice the writes",
                program: None,
            },
            Use::Sqlite => Advice {
                options: "journal=ijournal",
                because: "in WAL mode it made 1.7 to 2.1 times the transactions of the kernel's ext4, in DELETE mode \
                          about as many (docs/speed.md)",
                program: Some(
                    "PRAGMA journal_mode=WAL; synchronous=FULL, for NORMAL syncs the log at checkpoints only",
                ),
            },
            Use::Postgresql => Advice {
                options: "journal=ldj,direct_io",
                because: "each write of a page is whole or absent after a crash, so PostgreSQL need not log whole \
                          pages; without that gain no preset is as fast as the kernel's ext4 (docs/schemes/ldj.md)",
                program: Some(
                    "full_page_writes=off is safe on this mount, and only while it has these options",
                ),
            },
            Use::Mariadb => Advice {
                options: "journal=ldj,direct_io",
                because: "each write of a page is whole or absent after a crash, so InnoDB need not write its pages \
                          twice (docs/schemes/ldj.md)",
                program: Some(
                    "innodb_doublewrite=OFF is safe on this mount, and only while it has these options",
                ),
            },
            Use::Mail => Advice {
                options: "journal=ordered",
                because: "many small files of many clients share commits: of the presets it came nearest to the \
                          kernel's ext4, .84 of it with 16 clients (docs/speed.md)",
                program: None,
            },
            Use::Log => Advice {
                options: "journal=stet",
                because: "an append and its sync took .43 of the time that the kernel's ext4 needs, and waits for \
                          nobody else; journal=ijournal (.47) is older, and journals no data (docs/schemes/ijournal.md)",
                program: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stetfs::low::Composition;

    /// The journals that are named can be mounted.
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
