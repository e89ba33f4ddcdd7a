//! Which region a volume is given.

use std::fmt;
use std::sync::Arc;

use stetfs_nvm::Region;

/// The region for a volume's records of files.
#[derive(Clone, Default)]
pub enum RegionSource {
    /// None. Where the log says that records are in one, that is an error.
    #[default]
    None,
    /// This one.
    Open(Arc<dyn Region>),
    /// None. Where the log says that records are in one, they are given up: files are as of the
    /// last commit.
    GivenUp,
}

impl PartialEq for RegionSource {
    fn eq(&self, other: &RegionSource) -> bool {
        match (self, other) {
            (RegionSource::Open(a), RegionSource::Open(b)) => Arc::ptr_eq(a, b),
            (RegionSource::None, RegionSource::None) => true,
            (RegionSource::GivenUp, RegionSource::GivenUp) => true,
            _ => false,
        }
    }
}

impl Eq for RegionSource {}

impl fmt::Debug for RegionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionSource::None => f.write_str("None"),
            RegionSource::Open(region) => {
                write!(f, "Open({} bytes, {})", region.size(), region.durability())
            }
            RegionSource::GivenUp => f.write_str("GivenUp"),
        }
    }
}

/// A region that a log is to be made with.
#[derive(Clone)]
pub struct RegionUse {
    /// It.
    pub region: Arc<dyn Region>,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Whether the journal runs with barriers.
    pub barrier: bool,
}
