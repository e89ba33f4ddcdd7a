//! The workloads and their names.

/// One workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Append 4 KiB, `fsync`.
    AppendFsync,
    /// The same with StetFS as a library, without FUSE.
    AppendLibrary,
    /// Overwrite 4 KiB at random in a written file, `fdatasync`.
    OverwriteFdatasync,
    /// Append 80 KiB and `fsync`, and read 64 KiB, just after a mount and with a full cache.
    Steady,
    /// `fsync` of 80 KB that were written a tenth of a second before.
    PausedFsync,
    /// Calls that need no device, beside a thread that writes much and syncs it.
    BehindSync,
    /// Append 4 KiB, `fsync`, with one, two and four threads.
    FsyncThreads,
    /// Overwrite 4 KiB, `fsync`, with one, two and four threads.
    OverwriteThreads,
    /// Create empty files, with one, two and four threads.
    CreateThreads,
    /// Create files of 4 KiB, with one, two and four threads.
    FilesThreads,
    /// Varmail, with one, two and four threads.
    VarmailThreads,
    /// Create, rename and unlink empty files, one thread.
    Names1,
    /// The same with two threads, each in a directory of its own.
    Names2,
    /// The same with one and two threads and StetFS as a library, without FUSE.
    NamesLibrary,
    /// `stat` of cached files.
    Stat,
    /// Open, read and close small cached files.
    OpenReadClose,
    /// List a cached directory of several thousand names.
    RepeatedListing,
    /// Write a file in 1 MiB calls and `fsync` it; read it again with cold caches.
    Stream,
    /// Write a file in 4 KiB calls and `fsync` it.
    SmallStream,
    /// `git clone` of a local repository.
    GitClone,
    /// SQLite, one row per transaction, rollback journal.
    SqliteDelete,
    /// The same with the journal truncated instead of deleted, as on phones.
    SqliteTruncate,
    /// SQLite, one row per transaction, write-ahead log.
    SqliteWal,
    /// SQLite under statements like those of Facebook's application on a phone.
    SqliteFacebook,
    /// The same with statements like Gmail's.
    SqliteGmail,
    /// The same with AndroBench's: rows are inserted, then updated, then deleted.
    SqliteAndrobench,
    /// Filebench's varmail: mail files that are made, appended to with fsync, read and deleted, 16
    /// threads.
    Varmail,
    /// Filebench's fileserver: whole files written, appended to, read, deleted, 50 threads.
    Fileserver,
    /// The same with five times as many files.
    FileserverMf,
    /// Filebench's webserver: ten small files read whole for each append to a log, 16 threads.
    Webserver,
    /// PostMark's mix: small files that are created, read, appended to and deleted, without a sync.
    Postmark,
    /// PostgreSQL under pgbench: small transactions of several clients.
    Oltp,
    /// The same with YCSB's workload A: half updates, half reads.
    Ycsb,
    /// The same with the transactions of TPC-C.
    Tpcc,
    /// MariaDB under sysbench: its mix of reads and writes, from several clients.
    Sysbench,
    /// The same with a load like LinkBench's: the nodes and links of a social graph.
    Linkbench,
    /// Copy incompressible files, and `syncfs`.
    Copy,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 37] = [
        Self::AppendFsync,
        Self::AppendLibrary,
        Self::OverwriteFdatasync,
        Self::Steady,
        Self::PausedFsync,
        Self::BehindSync,
        Self::FsyncThreads,
        Self::OverwriteThreads,
        Self::CreateThreads,
        Self::FilesThreads,
        Self::VarmailThreads,
        Self::Names1,
        Self::Names2,
        Self::NamesLibrary,
        Self::Stat,
        Self::OpenReadClose,
        Self::RepeatedListing,
        Self::Stream,
        Self::SmallStream,
        Self::GitClone,
        Self::SqliteDelete,
        Self::SqliteTruncate,
        Self::SqliteWal,
        Self::SqliteFacebook,
        Self::SqliteGmail,
        Self::SqliteAndrobench,
        Self::Varmail,
        Self::Fileserver,
        Self::FileserverMf,
        Self::Webserver,
        Self::Postmark,
        Self::Oltp,
        Self::Ycsb,
        Self::Tpcc,
        Self::Sysbench,
        Self::Linkbench,
        Self::Copy,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AppendFsync => "append-fsync",
            Self::AppendLibrary => "append-library",
            Self::OverwriteFdatasync => "overwrite-fdatasync",
            Self::Steady => "steady",
            Self::PausedFsync => "paused-fsync",
            Self::BehindSync => "behind-sync",
            Self::FsyncThreads => "fsync-threads",
            Self::OverwriteThreads => "overwrite-threads",
            Self::CreateThreads => "create-threads",
            Self::FilesThreads => "files-threads",
            Self::VarmailThreads => "varmail-threads",
            Self::Names1 => "names-1",
            Self::Names2 => "names-2",
            Self::NamesLibrary => "names-library",
            Self::Stat => "stat",
            Self::OpenReadClose => "open-read-close",
            Self::RepeatedListing => "repeated-listing",
            Self::Stream => "stream",
            Self::SmallStream => "stream-4k",
            Self::GitClone => "git-clone",
            Self::SqliteDelete => "sqlite-delete",
            Self::SqliteTruncate => "sqlite-truncate",
            Self::SqliteWal => "sqlite-wal",
            Self::SqliteFacebook => "sqlite-facebook",
            Self::SqliteGmail => "sqlite-gmail",
            Self::SqliteAndrobench => "sqlite-androbench",
            Self::Varmail => "varmail",
            Self::Fileserver => "fileserver",
            Self::FileserverMf => "fileserver-mf",
            Self::Webserver => "webserver",
            Self::Postmark => "postmark",
            Self::Oltp => "oltp",
            Self::Ycsb => "ycsb-a",
            Self::Tpcc => "tpcc",
            Self::Sysbench => "sysbench",
            Self::Linkbench => "linkbench",
            Self::Copy => "copy",
        }
    }

    /// The workload of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }

    /// Whether it needs PostgreSQL.
    pub(super) fn is_pgbench(self) -> bool {
        matches!(self, Self::Oltp | Self::Ycsb | Self::Tpcc)
    }

    /// Whether it unmounts the file system.
    pub(super) fn unmounts(self) -> bool {
        matches!(
            self,
            Self::Stream | Self::Steady | Self::NamesLibrary | Self::AppendLibrary
        )
    }
}
