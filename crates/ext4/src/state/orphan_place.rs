//! The place of an orphan in the orphan mechanism.

/// The place where the volume remembers an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanPlace {
    /// On the orphan list.
    List,
    /// In the orphan file.
    File {
        /// Index of the block in the orphan file.
        block: u32,
        /// Slot in the block.
        slot: u32,
    },
}
