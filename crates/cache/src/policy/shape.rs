//! The parameters of a policy: cache size, erase blocks and device costs.

/// The costs of the device, in reads of a page, for policies that weigh costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reading a page.
    pub read: u32,
    /// Writing a page.
    pub write: u32,
    /// Writing any pages of an erase block, in addition to the pages; divided among them.
    pub visit: u32,
    /// Writing a page when nothing else of its erase block is written, in addition to the page: the
    /// cost of moving the rest. It falls as more of the erase block is written, to nothing when all
    /// is.
    pub rest: u32,
}

impl Default for Costs {
    /// The costs of an SSD with a page-level map.
    fn default() -> Costs {
        Costs {
            read: 1,
            write: 6,
            visit: 8,
            rest: 12,
        }
    }
}

/// The parameters of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks that the cache (or the shard) holds.
    pub capacity: usize,
    /// Blocks in an erase block of the device.
    pub erase_block: u64,
    /// The costs of the device.
    pub costs: Costs,
}
