//! Buffer cache of copy-on-write pages, with pluggable replacement policies.
//!
//! One cache serves metadata and file data alike: StetFS allocates space at write time, so every
//! dirty page already has a block on the volume, and the physical block number is the key.
//!
//! Invariants (cited as `cache.C1`… where code leans on them):
//!
//! * **cache.C1** A [`Page`] is never changed while more than one `Arc` to it exists: a [`PageRef`]
//!   is a snapshot. Writers copy first ([`BlockWrite::page_mut`]).
//! * **cache.C2** There is at most one [`Block`] per block number in the cache, and an `Arc<Block>`
//!   keeps it there. Only a block that the cache alone holds can be evicted, so every dirty or
//!   pinned block must be held by an `Arc` (transaction list, checkpoint list, dirty-data map).
//! * **cache.C3** A block's content is readable only once `uptodate`: loaded, or created whole.

#![forbid(unsafe_code)]

mod block;
mod page;
mod policy;
mod shard;
mod store;

pub use block::{Block, BlockWrite};
pub use page::{Page, PageRef};
pub use policy::{Access, Choice, Costs, Frame, Policy, PolicyKind, Shape, UnknownPolicy};
pub use store::{Cache, CacheConfig, CacheStats};
