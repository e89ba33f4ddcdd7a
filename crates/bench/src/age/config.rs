//! What to run, and on what.

use super::peer::PeerSpec;

/// What to run, and on what.
#[derive(Clone, Debug)]
pub struct AgeConfig {
    /// File systems; ratios are to the first.
    pub peers: Vec<PeerSpec>,
    /// Bytes of each image.
    pub image_bytes: u64,
    /// Decides the script.
    pub seed: u64,
    /// The phases, one after the other.
    pub phases: Vec<Phase>,
    /// What is written in a day, as a part of the volume.
    pub churn: f64,
    /// Shows a progress bar (on standard error, if that is a terminal).
    pub progress: bool,
}

/// A part of a volume's life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// How full the volume is kept, 0 to 1.
    pub full: f64,
    /// Days after it is as full.
    pub days: u32,
}
