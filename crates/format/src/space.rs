//! The space for a new volume.

/// The space for a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes.
    pub bytes: u64,
    /// Bytes of a sector of the device: no block is smaller.
    pub sector: u32,
}
