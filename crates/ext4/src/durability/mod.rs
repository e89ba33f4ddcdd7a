//! What is not yet durable of an inode: the ledger of its data, the ledger of its metadata, and
//! what a sync has to do by them ([`Found::plan`]).
//!
//! [`DataLedger`] holds two things of each block: where its newest content is, and what records of
//! the file hold of it. Its verbs are the only edges:
//!
//! | verb | the content was | and is | a record that holds it |
//! | --- | --- | --- | --- |
//! | `change` | anywhere | dirty | held it as it is: holds it as it was |
//! | `take` | dirty | leaving | |
//! | `came_home` | leaving | at home, not flushed | |
//! | `was_lost` | leaving | lost if the home has nothing of the file, else as it was there | |
//! | `replaced` | lost, and newer since | what it is since | |
//! | `free` | dirty or lost | nowhere | |
//! | `record` | dirty, or at home for a transaction that is not valid | the same | holds it as it is |
//! | `unlogged` | anywhere | the same | forgotten if it is not alive |
//!
//! Invariants:
//! * **durability.L1** Where the file has records, the blocks `unlogged` are the dirty ones that no
//!   record holds as they are.
//! * **durability.L2** Only what a record holds can have changed since.
//! * **durability.L3** As many blocks come home or are lost as were taken.
//! * **durability.L4** A transaction waits for the file's data only while there is some that is
//!   dirty or leaving.
//!
//! [`MetadataLedger`] holds of each thing that can change (the inode, what is needed to read its
//! data, places of blocks, its name, its attributes) the newest transaction with a change. It is
//! durable when that transaction is valid, or when a record says it:
//!
//! | verb | what it was | and is |
//! | --- | --- | --- |
//! | `changed`, `needed` | anything | held by this transaction, which a sync commits |
//! | `touched`, `unrecorded_need`, `moved`, `made` | anything | to be said by a record, until the transaction is valid |
//! | `attributes`, `names_changed`, `grouped`, `reformed` | anything | what no record can say, until the transaction is valid |
//! | `after` | not known | as if all of it had changed, and no record could say it |
//! | `recorded` | to be said by a record | said by one, which ends with the transactions that supersede it |
//! | `prune` | held by a transaction that is valid | durable |
//!
//! * **durability.L5** What a transaction that is not valid holds is not durable for a sync unless
//!   a record says it: `upto` names that transaction, and `any` says that there is something to do.

mod data;
mod metadata;
#[cfg(test)]
mod metadata_tests;
mod names;
mod plan;
mod recorded;
#[cfg(test)]
mod tests;

pub(crate) use data::{Changed, DataLedger, Dropping, Leaving, Overwriting, Unlogged};
pub(crate) use metadata::{MetadataLedger, Naming};
pub(crate) use names::{Before, NAMES};
pub(crate) use plan::{Found, Plan, Room, SyncReason, SyncReasons};
