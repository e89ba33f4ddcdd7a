//! What a translation layer has done.

/// Merges of a layer with log blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Merges {
    /// A block put together anew from wherever its pages were.
    pub full: u64,
    /// A log block that was completed and took the data block's place.
    pub partial: u64,
    /// A log block that took its place as it was.
    pub switch: u64,
}

/// Totals since the device was made; [`Counters::since`] gives those of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Pages that the host read, mapped or not.
    pub host_reads: u64,
    /// Pages that the host wrote.
    pub host_writes: u64,
    /// Pages that the host trimmed.
    pub host_trims: u64,
    /// Pages that the host shared.
    pub host_shares: u64,
    /// Flushes.
    pub flushes: u64,
    /// Pages programmed: the host's, those moved, and the mapping's own.
    pub programs: u64,
    /// Of these: moved by garbage collection or merges.
    pub moved: u64,
    /// Of these: pages of the mapping's own.
    pub map_programs: u64,
    /// Blocks erased, without the mapping's own.
    pub erases: u64,
    /// Blocks of the mapping's own erased.
    pub map_erases: u64,
    /// Runs of garbage collection: victims taken.
    pub collections: u64,
    /// Merges, where the layer has log blocks.
    pub merges: Merges,
}

impl Counters {
    /// Pages programmed for each that the host wrote (write amplification); 1 where it wrote none.
    pub fn waf(&self) -> f64 {
        match self.host_writes {
            0 => 1.0,
            writes => self.programs as f64 / writes as f64,
        }
    }

    /// Pages programmed that the host did not write.
    pub fn hidden_writes(&self) -> u64 {
        self.programs.saturating_sub(self.host_writes)
    }

    /// What came after `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            host_reads: self.host_reads - earlier.host_reads,
            host_writes: self.host_writes - earlier.host_writes,
            host_trims: self.host_trims - earlier.host_trims,
            host_shares: self.host_shares - earlier.host_shares,
            flushes: self.flushes - earlier.flushes,
            programs: self.programs - earlier.programs,
            moved: self.moved - earlier.moved,
            map_programs: self.map_programs - earlier.map_programs,
            erases: self.erases - earlier.erases,
            map_erases: self.map_erases - earlier.map_erases,
            collections: self.collections - earlier.collections,
            merges: Merges {
                full: self.merges.full - earlier.merges.full,
                partial: self.merges.partial - earlier.merges.partial,
                switch: self.merges.switch - earlier.merges.switch,
            },
        }
    }
}

/// What an erase block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Erased, and waiting.
    Free,
    /// Holds data at any place (page-level), or at its own (block-level).
    Data,
    /// Is being written to.
    Open,
    /// Log block for writes in sequence.
    Sequential,
    /// Log block for all others.
    Log,
}

/// An erase block as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BlockView {
    /// What it is used for.
    pub role: Role,
    /// Pages with the current content of some logical page.
    pub live: u32,
    /// Pages programmed since it was erased.
    pub used: u32,
    /// How often it was erased.
    pub erases: u32,
}

/// How often the blocks were erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Wear {
    /// The block erased least.
    pub least: u32,
    /// On average.
    pub mean: f64,
    /// The block erased most: the one that ends the device's life.
    pub most: u32,
}

impl Wear {
    /// Of these blocks.
    pub fn of(blocks: &[BlockView]) -> Wear {
        let erases = || blocks.iter().map(|b| b.erases);
        Wear {
            least: erases().min().unwrap_or_default(),
            mean: erases().map(f64::from).sum::<f64>() / blocks.len().max(1) as f64,
            most: erases().max().unwrap_or_default(),
        }
    }
}
