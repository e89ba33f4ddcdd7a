//! What a translation layer does to the flash.

/// One step on the flash. Physical pages and erase blocks are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhysOp {
    /// A page is read for the host.
    Read {
        /// Which.
        page: u32,
    },
    /// A page gets what the host wrote to a logical one.
    Program {
        /// Which.
        page: u32,
        /// The logical page.
        lpn: u32,
    },
    /// A page is moved: read, and programmed elsewhere.
    Copy {
        /// From where.
        from: u32,
        /// To where.
        to: u32,
    },
    /// A block is erased.
    Erase {
        /// Which.
        block: u32,
    },
    /// A page of the mapping's own is programmed: trims, shares, or a part of the table.
    ProgramMap,
    /// A block of the mapping's own is erased.
    EraseMap,
}

/// Takes what a layer does, step by step in order: for timing, or to move content along.
///
/// `()` takes no notice, a `Vec` keeps the steps.
pub trait Sink {
    /// The next step.
    fn op(&mut self, op: PhysOp);
}

impl Sink for () {
    fn op(&mut self, _: PhysOp) {}
}

impl Sink for Vec<PhysOp> {
    fn op(&mut self, op: PhysOp) {
        self.push(op);
    }
}

/// Steps by kind: enough to tell what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Pages read for the host.
    pub reads: u64,
    /// Pages programmed for the host.
    pub programs: u64,
    /// Pages moved.
    pub copies: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Pages of the mapping's own programmed.
    pub map_programs: u64,
    /// Blocks of the mapping's own erased.
    pub map_erases: u64,
}

impl Sink for Tally {
    fn op(&mut self, op: PhysOp) {
        match op {
            PhysOp::Read { .. } => self.reads += 1,
            PhysOp::Program { .. } => self.programs += 1,
            PhysOp::Copy { .. } => self.copies += 1,
            PhysOp::Erase { .. } => self.erases += 1,
            PhysOp::ProgramMap => self.map_programs += 1,
            PhysOp::EraseMap => self.map_erases += 1,
        }
    }
}
