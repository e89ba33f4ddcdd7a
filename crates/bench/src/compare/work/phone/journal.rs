//! The journal mode of SQLite.

/// The method by which SQLite makes its transactions atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqliteJournal {
    /// A rollback journal, which each transaction creates and deletes.
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
            // Also without a journal: SQLite does without one if the file system offers atomic
            // writes.
            Self::Rollback | Self::None => "DELETE",
            Self::Wal => "WAL",
        }
    }
}
