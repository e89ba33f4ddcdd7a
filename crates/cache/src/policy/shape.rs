//! What a policy is made for.

/// What using the device costs, in reads of a page: what a policy that weighs costs goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reading a page.
    pub read: u32,
    /// Writing one.
    pub write: u32,
    /// Writing any pages of an erase block, beside the pages: divided among them.
    pub visit: u32,
    /// Writing a page when nothing else of its erase block is written, beside the page: what has
    /// to be moved for it. Less as more of the erase block is written, nothing when all is.
    pub rest: u32,
}

impl Default for Costs {
    /// An SSD with a page-level map.
    fn default() -> Costs {
        Costs {
            read: 1,
            write: 6,
            visit: 8,
            rest: 12,
        }
    }
}

/// What a policy is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks that the cache (or the shard) holds.
    pub capacity: usize,
    /// Blocks in an erase block of the device.
    pub erase_block: u64,
    /// What the device takes.
    pub costs: Costs,
}
