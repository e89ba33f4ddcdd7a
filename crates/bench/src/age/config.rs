//! Configuration of an ageing run.

use super::peer::PeerSpec;

/// Configuration of an ageing run.
#[derive(Clone, Debug)]
pub struct AgeConfig {
    /// File systems; ratios are relative to the first.
    pub peers: Vec<PeerSpec>,
    /// Size of each image, bytes.
    pub image_bytes: u64,
    /// Seed of the script.
    pub seed: u64,
    /// The phases, one after the other.
    pub phases: Vec<Phase>,
    /// Amount written per day, as a fraction of the volume.
    pub churn: f64,
    /// Shows a progress bar (on standard error, if that is a terminal).
    pub progress: bool,
}

/// A phase of a volume's life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Fullness of the volume, 0 to 1.
    pub full: f64,
    /// Days of use at that fullness.
    pub days: u32,
}
