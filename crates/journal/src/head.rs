//! The journal's notes on a cached block (jbd2: `journal_head`).

use stetfs_cache::PageRef;

use crate::ids::TxId;

/// The journal's notes on one block.
#[derive(Debug, Default)]
pub struct JournalHead {
    /// The newest transaction that lists this block, whatever its phase. `None`: never changed
    /// since it was loaded, or freed by the transaction that had listed it.
    pub(crate) tx: Option<TxId>,
    /// The block's content before that transaction, where the codec logs only changes
    /// ([`Codec::change_unit`](crate::policy::Codec::change_unit)); otherwise none.
    pub(crate) base: Option<PageRef>,
    /// The home location holds neither the content nor a state that the live log leads on from: a
    /// write home outside the journal failed. The next transaction logs all of the block
    /// (changes.C1).
    pub(crate) unlike_home: bool,
}

/// The buffer cache as the journal and the file system share it.
pub type Cache = stetfs_cache::Cache<JournalHead>;
/// A cached block.
pub type Block = stetfs_cache::Block<JournalHead>;
/// A cached block, open for changing.
pub(crate) type BlockWrite<'b> = stetfs_cache::BlockWrite<'b, JournalHead>;
