//! The journal of SQLite.

/// How SQLite keeps its transactions whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqliteJournal {
    /// A rollback journal, which each transaction makes and deletes.
    #[default]
    Rollback,
    /// A write-ahead log.
    Wal,
    /// No journal: the file system has atomic writes.
    None,
}

impl SqliteJournal {
    pub(super) fn mode(self) -> &'static str {
        match self {
            // Without a journal, too: that is up to what the file system offers.
            Self::Rollback | Self::None => "DELETE",
            Self::Wal => "WAL",
        }
    }
}
