//! What is not yet durable of a file: the ledger of its data.
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
//! Of the transactions that hold a file's metadata `inode::SyncPoints` and `inode::Changes` know.

mod data;
mod recorded;
#[cfg(test)]
mod tests;

pub(crate) use data::{Changed, DataLedger, Dropping, Leaving, Unlogged};
