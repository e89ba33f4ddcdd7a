//! The steps of a translation layer on the flash.

/// One step on the flash. Physical pages and erase blocks are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhysOp {
    /// A page is read for the host.
    Read {
        /// The page.
        page: u32,
    },
    /// A page is programmed with the host's write to a logical page.
    Program {
        /// The physical page.
        page: u32,
        /// The logical page.
        lpn: u32,
    },
    /// A page is moved: read, and programmed elsewhere.
    Copy {
        /// The source.
        from: u32,
        /// The destination.
        to: u32,
    },
    /// A block is erased.
    Erase {
        /// The block.
        block: u32,
    },
    /// A page of the mapping is programmed: trims, shares, or a part of the table.
    ProgramMap,
    /// A block of the mapping is erased.
    EraseMap,
}

/// A consumer of a layer's steps, in order: it times them, or moves content by them.
///
/// `()` ignores the steps, a `Vec` keeps them.
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

/// Numbers of steps by kind, from which their time is computed.
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
    /// Pages of the mapping programmed.
    pub map_programs: u64,
    /// Blocks of the mapping erased.
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
