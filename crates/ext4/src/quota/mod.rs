//! Usage and limits of users, groups and projects (feature `quota`: hidden inodes with a file of
//! entries each).
//!
//! All entries are in memory while the volume is open for writing. What an inode uses is counted
//! where the inode is put into the journal, in the same transaction: the difference to what was
//! counted of it before (`InodeBody::counted`). So no operation counts anything itself, and after a
//! crash the entries say what the inodes do.
//!
//! Invariants:
//! * **quota.Q1** An account in memory equals its entry in the cache block, but for promises.
//! * **quota.Q2** Accounts are only added, with the quota file's inode locked; an entry never
//!   moves.
//! * **quota.Q3** Who gives an id its first file opens its account before his handle begins
//!   ([`Fs::promise`]).
//! * **quota.Q4** Blocks of a quota file change under the lock of the accounts, from when they are
//!   read until they are written back.
//!
//! | file | what it does |
//! | --- | --- |
//! | `tree` | the format's tree, without I/O |
//! | `store` | the blocks of quota files; opening; new accounts |
//! | `usage` | what an inode uses, and counting it |
//! | `promise` | limits: an operation learns of EDQUOT before it has changed anything |

mod project;
mod promise;
mod report;
mod store;
mod tally;
#[cfg(test)]
mod tests;
mod tree;
mod usage;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stetfs_journal::{BlockNr, Credits};
use stetfs_ondisk::ext4::quota::{Entry, Info, QuotaKind};
use stetfs_sync::Mutex;

pub(crate) use project::check_project;
pub(crate) use promise::Promise;
pub use report::QuotaUsage;
pub(crate) use tally::{Owner, Tally, Usage};

use self::tally::KINDS;
use crate::inode::Inode;

/// Credits of every handle on top of its own, for each quota file: the entries of two inodes, or of
/// an old and a new owner, and one more.
const CREDITS: Credits = 3;

/// The quota files of a volume that is open for writing.
pub(crate) struct Quotas {
    /// The kinds that the volume counts.
    files: Vec<QuotaFile>,
    /// By kind.
    accounts: Mutex<[Accounts; KINDS]>,
}

/// A quota file.
struct QuotaFile {
    kind: QuotaKind,
    inode: Arc<Inode>,
}

impl QuotaFile {
    fn index(&self) -> usize {
        self.kind as usize
    }
}

/// The accounts of one kind.
#[derive(Default)]
struct Accounts {
    info: Option<Info>,
    /// Ids whose entries have no reference yet.
    loose: HashSet<u32>,
    by_id: HashMap<u32, Account>,
}

/// One id's usage and limits.
#[derive(Clone, Copy, Debug)]
struct Account {
    entry: Entry,
    /// The leaf in which it is: a block of the file.
    leaf: u32,
    /// The block of the volume in which the entry is.
    nr: BlockNr,
    /// Where in it.
    offset: usize,
    /// Space promised to operations under way, bytes.
    promised_space: u64,
    /// Inodes promised to them.
    promised_inodes: u64,
}
