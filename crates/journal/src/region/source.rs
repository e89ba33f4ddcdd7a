//! The choice of a region for a volume.

use std::fmt;
use std::sync::Arc;

use stetfs_nvm::Region;

/// The region for a volume's log and records of files.
#[derive(Clone, Default)]
pub enum RegionSource {
    /// No region. It is an error if the log says that records are in one.
    #[default]
    None,
    /// This region.
    Open(Arc<dyn Region>),
    /// No region. If the log says that records are in one, they are given up: files are as of the
    /// last commit.
    GivenUp,
}

impl RegionSource {
    /// The same with a copy of the region; `None` if the region cannot be copied instantly.
    pub fn snapshot(&self) -> Option<RegionSource> {
        match self {
            RegionSource::Open(region) => region.snapshot().map(RegionSource::Open),
            none => Some(none.clone()),
        }
    }

    /// Whether both regions have the same bytes. A region that cannot be read has none.
    pub fn holds_the_same(&self, other: &RegionSource) -> bool {
        match (self, other) {
            (RegionSource::Open(mine), RegionSource::Open(other)) => {
                mine.size() == other.size() && all_of(&**mine) == all_of(&**other)
            }
            _ => self == other,
        }
    }
}

fn all_of(region: &dyn Region) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(region.size()).ok()?];
    region.read(0, &mut bytes).ok()?;
    Some(bytes)
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

/// A region in which a log is to be made.
#[derive(Clone)]
pub struct RegionUse {
    /// The region.
    pub region: Arc<dyn Region>,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Whether the journal runs with barriers.
    pub barrier: bool,
}
