//! Counters of a translation layer's work, and of wear.

/// Counts of the merges of a layer with log blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Merges {
    /// Full merges: a block was assembled from pages at other places.
    pub full: u64,
    /// Partial merges: a log block was completed and took the place of the data block.
    pub partial: u64,
    /// Switch merges: a log block took the place of the data block as it was.
    pub switch: u64,
}

impl Merges {
    /// Counts the merge of a log block that has the first `used` pages of a logical block in place,
    /// and gets the others of `lpns`.
    pub(super) fn completed(&mut self, used: u32, lpns: &std::ops::Range<u32>) {
        match used as usize >= lpns.len() {
            true => self.switch += 1,
            false => self.partial += 1,
        }
    }
}

/// Totals since the device was made; [`Counters::since`] gives those of an interval.
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
    /// Pages programmed: for the host, moved, and for the mapping.
    pub programs: u64,
    /// Pages among these that garbage collection or merges moved.
    pub moved: u64,
    /// Pages among these that hold the mapping.
    pub map_programs: u64,
    /// Blocks erased, without those of the mapping.
    pub erases: u64,
    /// Blocks of the mapping erased.
    pub map_erases: u64,
    /// Victims of garbage collection.
    pub collections: u64,
    /// Merges, if the layer has log blocks.
    pub merges: Merges,
}

impl Counters {
    /// Write amplification: pages programmed per page that the host wrote; 1 if it wrote none.
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

    /// The counts after `earlier`.
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

/// The role of an erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Erased and unused.
    Free,
    /// Holds data: any pages (page-level mapping), or those of one logical block.
    Data,
    /// Being filled.
    Open,
    /// Log block for sequential writes.
    Sequential,
    /// Log block for other writes: of all logical blocks (FAST), or of one (BAST).
    Log,
}

/// The present state of an erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BlockView {
    /// Its role.
    pub role: Role,
    /// Pages that hold the current content of a logical page.
    pub live: u32,
    /// Pages programmed since it was erased.
    pub used: u32,
    /// Number of erasures.
    pub erases: u32,
}

/// Erasures per block.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Wear {
    /// Erasures of the least worn block.
    pub least: u32,
    /// Average number of erasures.
    pub mean: f64,
    /// Erasures of the most worn block, which ends the device's life.
    pub most: u32,
}

impl Wear {
    /// The wear of these blocks.
    pub fn of(blocks: &[BlockView]) -> Wear {
        let erases = || blocks.iter().map(|b| b.erases);
        Wear {
            least: erases().min().unwrap_or_default(),
            mean: erases().map(f64::from).sum::<f64>() / blocks.len().max(1) as f64,
            most: erases().max().unwrap_or_default(),
        }
    }
}
